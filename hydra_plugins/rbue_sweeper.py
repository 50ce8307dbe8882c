"""A sweeper over a union of grids. It checks all jobs before the first one starts. Hydra finds it in this folder."""

import os
import sys
from pathlib import Path

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.utils import JobStatus
from hydra.errors import HydraException

from rbue.cli import JOBS, SWEEP
from rbue.errors import UserError
from rbue.runs import results, sweeps
from rbue.runs.messages import sentence


class UnionSweeper(BasicSweeper):
    """A sweeper over several grids: `sweep=name` stands for those of conf/sweep/name.yaml. Hydra's own sweeper has one
    grid only."""

    def __init__(self, grids, clean, also):
        super().__init__(max_batch_size=None)

    def sweep(self, arguments):
        """Launch the jobs that are not finished. Then print the table again, and exit with an error if some failed."""
        loader = self.hydra_context.config_loader
        jobs = sweeps.jobs(arguments, loader, lambda overrides: loader.load_sweep_config(self.config, overrides))
        cells = [sweeps.cell(run) for _, run in jobs]
        unfinished = [(words, run) for (words, run), one in zip(jobs, cells, strict=True) if one.state != "done"]
        missing = [words for words, _ in unfinished]
        print(f"{sweeps.table(cells)}\n{sweeps.without_metrics(cells)}", end="", flush=True)
        if not missing:
            return []
        folders = [folder for _, run in unfinished for folder in results.folders_written(run)]
        results.check_writable(*dict.fromkeys(folders))
        os.environ |= {JOBS: str(len(missing)), SWEEP: str(os.getpid())}
        importable_in_workers()
        try:
            returned = self.launcher.launch(missing, initial_job_idx=0)
        except (HydraException, UserError):
            raise
        except Exception as error:  # for example a killed worker or a lost cluster
            print(sweeps.table(sweeps.refresh(cells)), flush=True)
            sys.exit(f"failed: the launcher stopped ({sentence(error)}): the same command continues")
        print(sweeps.table(sweeps.refresh(cells)), flush=True)
        if failed := sum(job.status != JobStatus.COMPLETED for job in returned):
            sys.exit(f"{failed} of {len(missing)} jobs failed: the same command tries only these again")
        return [returned]


def importable_in_workers():
    """Put this clone on PYTHONPATH, so that processes of a launcher find it without an install."""
    paths = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
