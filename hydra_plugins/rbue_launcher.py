"""The default launcher: one process that trains several networks at once on a GPU. Hydra finds it in this folder."""

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.utils import JobReturn, JobStatus

from rbue.cli import keep_failure
from rbue.errors import UserError, failure
from rbue.runs import locks, provenance, results, sweeps


class PackedLauncher(BasicLauncher):
    """A launcher that trains the jobs' networks in packs, and runs each job as soon as its networks are trained."""

    def launch(self, job_overrides, initial_job_idx):
        from rbue.data import read_once  # imports torch, which takes seconds: shell completion must not wait

        with read_once():
            return self.launch_all(job_overrides, initial_job_idx)

    def launch_all(self, job_overrides, initial_job_idx):
        provenance.at_start()
        from rbue import training
        from rbue.evaluation import analysis, corruption, evaluator  # noqa: F401 - the code of this commit, not of later ones
        from rbue.runs import devices

        loader, config = self.hydra_context.config_loader, self.config
        jobs = sweeps.compose_runs(job_overrides, lambda overrides: loader.load_sweep_config(config, overrides))
        waiting = {n: (words, sweeps.Cell(run, "missing")) for n, (words, run) in enumerate(jobs, initial_job_idx)}
        self.waiting, self.total, self.ended = waiting, len(waiting), []
        runs = {number: one.run for number, (_, one) in waiting.items()}
        for run in {run.device: run for run in runs.values()}.values():
            devices.choose(run.device, run.per_gpu)  # refuse a device that is not there before the first job starts
        refuse_without_images(runs.values())
        refused = without_sets(runs) | with_wrong_members(waiting)
        returned = {number: fail_job(waiting.pop(number)[1].run, why) for number, why in refused.items()}
        parts = [part for _, one in waiting.values() for part in one.trainings.values()]
        for failed in training.train_in_packs(parts):
            for number in ready_jobs(waiting, failed):
                returned[number] = self.run_one(number, *waiting.pop(number), failed)
        while waiting:  # for jobs that another process is running
            number = next(ready_jobs(waiting, failed), next(iter(waiting)))
            returned[number] = self.run_one(number, *waiting.pop(number), failed)
        return [returned[number] for number in sorted(returned)]

    def run_one(self, number, overrides, one, failed):
        reasons = [failed[key] for key in map(results.training_key, one.run.trainings) if key in failed]
        if reasons and sweeps.cell(one.run).state not in ("running", "done"):  # then another process has it
            returned = fail_job(one.run, reasons[0])
        else:
            returned = super().launch([overrides], number)[0]
        self.ended.append(sweeps.cell(one.run))
        left = sweeps.time_left([cell for _, cell in self.waiting.values()], self.ended)
        print(f"{self.total - len(self.waiting)} of {self.total} jobs ended{left}", flush=True)
        return returned


def refuse_without_images(runs):
    """Refuse a sweep of which a dataset is not there, in one line per dataset: its jobs would fail after hours."""
    from rbue.data.sources import refuse_absent

    reasons = []
    for dataset, data_dir in dict.fromkeys((run.trained_on, run.data_dir) for run in runs):
        try:
            refuse_absent(dataset, data_dir)
        except UserError as reason:
            reasons.append(str(reason))
    if reasons:
        raise UserError("\nrefused: ".join(reasons))


def without_sets(runs):
    """Return {job number: reason} of jobs whose corrupted files are missing or wrong, before any network is trained."""
    tested = {number: run for number, run in runs.items() if run.corruptions != "none"}
    sources = {n: (r.dataset, r.corruptions, r.data_dir, r.size, r.crop, r.batch) for n, r in tested.items()}
    one_each = {source: tested[number] for number, source in sources.items()}
    reasons = {source: why_refused(run, check_sets) for source, run in one_each.items()}
    return {number: reasons[source] for number, source in sources.items() if reasons[source]}


def check_sets(run, images):
    from rbue.evaluation import corruption

    corruption.sets(run, images)


def with_wrong_members(waiting):
    """Return {job number: reason} of jobs of which only some networks are trained, and one of these cannot be used.
    Weights of other jobs are not read here, since there may be thousands."""
    trained = {number: [*map(results.has_weights, one.trainings)] for number, (_, one) in waiting.items()}
    partly = {number: waiting[number][1].run for number, those in trained.items() if any(those) and not all(those)}
    reasons = {number: why_refused(run, check_members) for number, run in partly.items()}
    return {number: why for number, why in reasons.items() if why}


def check_members(run, images):
    from rbue import training

    training.check_trained(run.trainings, images)


def why_refused(run, check):
    """Return why a check of a run and its images fails, or None."""
    from rbue import data

    try:
        check(run, data.load_for(run))
    except Exception as error:  # the other jobs go on
        return failure(error)
    return None


def ready_jobs(waiting, failed):
    """Yield the numbers of the jobs whose networks are trained or have failed, and that no other process runs."""
    for number, (_, one) in list(waiting.items()):
        trained = all(map(results.has_weights, one.trainings))
        known = trained or (failed and any(results.training_key(part) in failed for part in one.trainings.values()))
        if known and not locks.holder(results.folder(one.run)):
            yield number


def fail_job(run, failed):
    """Record that a job failed because its networks or images are missing, and return it."""
    job = JobReturn(status=JobStatus.FAILED)
    job.return_value = keep_failure(run, failed)
    return job
