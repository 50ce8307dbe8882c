"""The default launcher: one process, which packs several trainings on a GPU. Hydra looks in this folder."""

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.utils import JobReturn, JobStatus

from rbue import sweeps
from rbue.cli import keep_failure


class PackedLauncher(BasicLauncher):
    """Trains what the jobs need and runs each job as soon as its networks are there."""

    def launch(self, job_overrides, initial_job_idx):
        from rbue import devices, training  # torch takes seconds: not for a TAB

        loader, config = self.hydra_context.config_loader, self.config
        jobs = sweeps.composed(job_overrides, lambda overrides: loader.load_sweep_config(config, overrides))
        waiting = dict(enumerate(jobs, initial_job_idx))
        for run in {run.device: run for _, run in waiting.values()}.values():
            devices.choose(run.device, run.per_gpu)  # refused before the first job
        returned = {}
        for failed in training.in_packs([part for _, run in waiting.values() for part in run.trainings]):
            for number, (overrides, run) in list(waiting.items()):
                reasons = [failed[part.training_name] for part in run.trainings if part.training_name in failed]
                if reasons or all(map(training.is_trained, run.trainings)):
                    del waiting[number]
                    returned[number] = lost(run, reasons[0]) if reasons else self.run_one(overrides, number)
        return [returned[number] for number in sorted(returned)]

    def run_one(self, overrides, number):
        (returned,) = super().launch([overrides], number)
        return returned


def lost(run, failed):
    """A job whose networks could not be trained."""
    job = JobReturn(status=JobStatus.FAILED)
    job.return_value = keep_failure(run, failed)
    return job
