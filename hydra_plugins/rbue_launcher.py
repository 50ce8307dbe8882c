"""The default launcher: one process, which packs several trainings on a GPU. Hydra looks in this folder."""

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.utils import JobReturn, JobStatus

from rbue.cli import keep_failure
from rbue.errors import failure
from rbue.runs import locks, results, sweeps


class PackedLauncher(BasicLauncher):
    """Trains what the jobs need and runs each job as soon as its networks are there."""

    def launch(self, job_overrides, initial_job_idx):
        from rbue import training
        from rbue.runs import devices  # torch takes seconds: not for a TAB

        loader, config = self.hydra_context.config_loader, self.config
        jobs = sweeps.compose_runs(job_overrides, lambda overrides: loader.load_sweep_config(config, overrides))
        waiting = dict(enumerate(jobs, initial_job_idx))
        for run in {run.device: run for _, run in waiting.values()}.values():
            devices.choose(run.device, run.per_gpu)  # refused before the first job
        returned = {number: lost(waiting.pop(number)[1], why) for number, why in without_official(waiting).items()}
        for failed in training.train_in_packs([part for _, run in waiting.values() for part in run.trainings]):
            while (number := free(waiting, failed)) is not None:
                returned[number] = self.run_one(number, *waiting.pop(number), failed)
        while waiting:  # for what another process is at
            number = free(waiting, failed)
            number = next(iter(waiting)) if number is None else number
            returned[number] = self.run_one(number, *waiting.pop(number), failed)
        return [returned[number] for number in sorted(returned)]

    def run_one(self, number, overrides, run, failed):
        for reason in (failed[part.training_name] for part in run.trainings if part.training_name in failed):
            return lost(run, reason)
        (returned,) = super().launch([overrides], number)
        return returned


def without_official(waiting):
    """{number: why} of jobs whose official corrupted files are not there: known before their networks are trained."""
    official = {number: run for number, (_, run) in waiting.items() if run.corruptions == "official"}
    sources = {(run.dataset, run.data_dir): run for run in official.values()}
    reasons = {source: why_no_sets(run) for source, run in sources.items()}
    return {number: why for number, run in official.items() if (why := reasons[run.dataset, run.data_dir])}


def why_no_sets(run):
    from rbue import data
    from rbue.evaluation import corruption

    try:
        corruption.sets(run, data.load_for(run))
    except Exception as error:  # the other jobs go on
        return failure(error)
    return None


def free(waiting, failed):
    """The first job that no other process is at and whose networks are there or cannot be had, or None."""
    for number, (_, run) in waiting.items():
        known = any(p.training_name in failed for p in run.trainings) or all(map(results.is_trained, run.trainings))
        if known and not locks.holder(results.folder(run)):
            return number
    return None


def lost(run, failed):
    """A job without its networks or its images."""
    job = JobReturn(status=JobStatus.FAILED)
    job.return_value = keep_failure(run, failed)
    return job
