"""Multirun: every job's config is composed and checked before the first job runs. Hydra finds it in this folder."""

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import open_dict

from rbue import config


class CheckingSweeper(BasicSweeper):
    """Hydra's own sweeper composes the jobs beforehand but knows no ranges: q=0.8,1.5 would train 0.8 first."""

    def sweep(self, arguments):
        """Checked before Hydra's sweeper writes its first file."""
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        for batch in self.split_arguments(parser.parse_overrides(arguments), max_batch_size=None):
            self.validate_batch_is_legal(batch)
        return super().sweep(arguments)

    def validate_batch_is_legal(self, batch):
        for overrides in batch:
            cfg = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
            with open_dict(cfg):
                cfg.pop("hydra")
            config.parse(cfg)
