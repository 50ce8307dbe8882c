"""From runs to trained networks: find the trainings that are missing, and group those that can share a GPU."""

from contextlib import contextmanager, suppress
from itertools import groupby

import torch

from rbue import data as datasets
from rbue import metrics
from rbue.errors import failure
from rbue.runs import devices, locks
from rbue.runs.results import is_trained, training_key, weights_folder
from rbue.training.checkpoints import load_trained, steps_done
from rbue.training.loop import fit


def load_or_train(runs, data, device):
    """Return the runs' networks and the records of their trainings, loaded from disk or trained now."""
    metrics.try_own(data.classes)
    check_trained(runs, data)
    for failed in train_missing(runs, data, device):
        if failed:
            raise next(iter(failed.values()))
    return tuple(zip(*(load_trained(run, data, device) for run in runs), strict=True))


def check_trained(runs, data):
    """Refuse wrong weights of a run, such as of other images, before the missing runs are trained for hours."""
    trained = [run for run in runs if is_trained(run)]
    if len(trained) < len(runs):  # else they are about to be loaded
        for run in trained:
            load_trained(run, data, torch.device("cpu"))


def train_in_packs(runs):
    """Train all networks that many jobs need. Yield {training_key: why it failed} at once and after every pack."""
    failed = {}
    yield failed

    def source(run):
        images = run.trained_on, run.data_dir, run.holdout, run.size or 0, run.crop, run.batch  # what is refused
        return run.device, run.weights_dir, *images

    for _, alike in groupby(sorted(runs, key=source), source):
        alike = list(alike)
        for known in train_on_one_source(alike):
            failed |= {training_key(run): known[run.training_name] for run in alike if run.training_name in known}
            yield failed
        yield failed


def train_on_one_source(runs):
    """Train runs on the same images. Yield {training's name: why it failed} after every pack."""
    try:
        device = devices.choose(runs[0].device, runs[0].per_gpu)
        data = datasets.load_for(runs[0])
        metrics.try_own(data.classes)
    except Exception as error:  # runs on other datasets go on
        yield {run.training_name: failure(error) for run in runs}
    else:
        yield from train_missing(runs, data, device)


def train_missing(runs, data, device):
    """Train, pack by pack, each run that is not trained. Yield {training's name: why it failed} after each pack.

    All missing trainings are looked up only once per pass, because there may be thousands.
    """
    failed = {}
    while missing := [run for run in runs if not is_trained(run) and run.training_name not in failed]:
        acquired = 0
        for pack in packs(missing, device):
            known = len(failed)
            with acquire(pack, failed) as own:
                acquired += len(own)
                failed |= fit_or_fail(own, data, device)
            if own or len(failed) > known:
                yield failed
        if not acquired:
            wait_for_one([run for run in missing if run.training_name not in failed])
            yield failed


def fit_or_fail(runs, data, device):
    """Train a pack. Return {training's name: why it failed}. Whatever the error is, the other packs go on."""
    try:
        return fit(runs, data, device) if runs else {}
    except Exception as error:
        return {run.training_name: failure(error) for run in runs}


@contextmanager
def acquire(pack, failed):
    """Lock the trainings of a pack and yield those that no other process trains or has trained. Only one pack is locked
    at a time, since a lock is an open file. A training whose folder cannot be locked is added to `failed`. One that
    another process has advanced meanwhile is left to the next pass, since the trainings of a pack step together."""
    held = {}
    try:
        for run in pack:
            try:
                if lock := locks.try_lock(weights_folder(run)):
                    held[run.training_name] = lock
            except locks.Closed as error:
                failed[run.training_name] = failure(error)
        own = [run for run in pack if run.training_name in held and not is_trained(run)]
        yield [run for run in own if steps_done(run) == steps_done(own[0])]
    finally:
        for lock in held.values():
            lock.release()


def wait_for_one(runs):
    """Wait until another process has finished or left one of the trainings."""
    if missing := [weights_folder(run) for run in runs if not is_trained(run)]:
        with suppress(locks.Closed):  # the next pass reports it
            locks.first_free(missing, "waiting for the training of").release()


def packs(runs, device):
    """Yield packs of trainings that can share a GPU: same schedule, same step. On a CPU, packs have one run."""
    trainings = {run.training_name: run for run in runs}.values()  # each once

    def shape(run):
        return run.batch, run.epochs, run.crop, -steps_done(run)  # trainings that have progressed furthest come first

    for _, alike in groupby(sorted(trainings, key=shape), shape):
        alike = list(alike)
        size = alike[0].pack if device.type == "cuda" else 1
        yield from (alike[k : k + size] for k in range(0, len(alike), size))
