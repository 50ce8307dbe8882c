"""Multirun: every job's config is composed and checked before the first job runs. Hydra finds it in this folder."""

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from omegaconf import open_dict

from rbue import config


class CheckingSweeper(BasicSweeper):
    """Hydra's own sweeper composes the jobs beforehand but knows no ranges: q=0.8,1.5 would train 0.8 first."""

    def validate_batch_is_legal(self, batch):
        for overrides in batch:
            cfg = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
            with open_dict(cfg):
                cfg.pop("hydra")
            config.parse(cfg)
