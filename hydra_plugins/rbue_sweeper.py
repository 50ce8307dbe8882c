"""Multirun: a union of grids, every job composed and checked before the first one runs. Hydra looks in this folder."""

import os
import sys
from pathlib import Path

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.utils import JobStatus
from hydra.errors import HydraException

from rbue.errors import UserError
from rbue.runs import results, sweeps
from rbue.runs.messages import sentence


class UnionSweeper(BasicSweeper):
    """`sweep=name` stands for the grids of conf/sweep/name.yaml; Hydra's own sweeper knows one grid and no ranges."""

    def __init__(self, grids, clean):
        super().__init__(max_batch_size=None)

    def sweep(self, arguments):
        """What is finished is not launched; what failed is named again at the end, when all others are through."""
        loader = self.hydra_context.config_loader
        jobs = sweeps.jobs(arguments, loader, lambda overrides: loader.load_sweep_config(self.config, overrides))
        runs = [run for _, run in jobs]
        if not runs:
            raise UserError(f"{' '.join(arguments)} is no run: a range or a list of choices is empty")
        cells = [sweeps.cell(run) for run in runs]
        missing = [words for (words, _), one in zip(jobs, cells, strict=True) if one.state != "done"]
        print(sweeps.table(cells), flush=True)
        if not missing:
            return []
        results.check_writable(*{folder for run in runs for folder in (run.results_dir, run.weights_dir)})
        importable_in_workers()
        try:
            returned = self.launcher.launch(missing, initial_job_idx=0)
        except Exception as error:  # a worker that was killed, a cluster that went away
            if isinstance(error, (HydraException, UserError)):
                raise
            print(sweeps.table(sweeps.refresh(cells)), flush=True)
            sys.exit(f"failed: the launcher gave up ({sentence(error)}): the same command goes on with what is missing")
        print(sweeps.table(sweeps.refresh(cells)), flush=True)
        if failed := sum(job.status != JobStatus.COMPLETED for job in returned):
            sys.exit(f"{failed} of {len(missing)} jobs failed: the same command tries them again, and nothing else")
        return [returned]


def importable_in_workers():
    """Processes that a launcher starts find this clone too, installed or not."""
    paths = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
