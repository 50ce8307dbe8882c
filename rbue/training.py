"""trained(): from runs to trained networks, through checkpoints, so that a killed training goes on where it was."""

import csv
import math
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import torch
from tqdm import tqdm

from rbue import data as datasets
from rbue import devices, engine, locks, methods, results
from rbue.cli import Failed, bars, failure, out_of_memory
from rbue.config import Refused
from rbue.results import is_trained
from rbue.results import weights as folder


def trained(runs, data, device):
    """The runs' networks and the records of their trainings: from disk, or trained now, several at once on a GPU."""
    for failed in missing_trained(runs, data, device, {}):
        for error in failed.values():
            raise error
    return tuple(zip(*(finished(run, data, device) for run in runs), strict=True))


def in_packs(runs):
    """Trains what many jobs need. Yields {training's name: why it failed}, at once and whenever there is news."""
    failed = {}
    yield failed

    def source(run):
        return run.device, run.trained_on, run.data_dir, run.holdout

    for _, alike in groupby(sorted(runs, key=source), source):
        alike = list(alike)
        try:
            first = alike[0]
            device = devices.choose(first.device, first.per_gpu)
            data = datasets.of(first)
        except Exception as error:  # what needs another dataset goes on
            failed |= {run.training_name: failure(error) for run in alike}
        else:
            yield from missing_trained(alike, data, device, failed)
        yield failed


def missing_trained(runs, data, device, failed):
    """Trains pack after pack what is neither trained nor failed. Yields after each what failed so far."""
    while missing := [run for run in runs if not is_trained(run) and run.training_name not in failed]:
        try:
            with claimed(missing, device) as pack:
                try:
                    failed |= fit(pack, data, device) if pack else {}
                except Exception as error:  # whatever it is, the other packs go on
                    failed |= {run.training_name: failure(error) for run in pack}
        except locks.Closed as error:  # and so do those whose folders can be had
            failed |= {run.training_name: failure(error) for run in missing if folder(run) == error.folder}
        yield failed


@contextmanager
def claimed(runs, device):
    """The next pack, locked until its weights are there: no other process trains the same. Empty where none is left."""
    held = {}
    try:
        first = locks.first_free(list(map(folder, runs)), "waiting for the training of")
        held[first.folder] = first
        for path in map(folder, runs):  # a training that two cells need is there twice, and locked once
            held[path] = held[path] if path in held else locks.attempt(path)
        pack = next(packs([run for run in runs if held[folder(run)]], device), [])
        for path in held.keys() - set(map(folder, pack)):
            release(held.pop(path))
        yield pack
    finally:
        for lock in held.values():
            release(lock)


def release(lock):
    if lock:
        lock.release()


def packs(runs, device):
    """Trainings still to do that can share a GPU: of one schedule and at one step. A CPU takes one at a time."""
    missing = {run.training_name: run for run in runs if not is_trained(run)}

    def shape(run):
        return run.batch, run.epochs, run.crop, -steps_done(run)  # what was begun first

    for _, alike in groupby(sorted(missing.values(), key=shape), shape):
        alike = list(alike)
        size = alike[0].pack if device.type == "cuda" else 1
        yield from (alike[k : k + size] for k in range(0, len(alike), size))


def build(run, data):
    return methods.build(run, data.classes, len(data.train_images))


def finished(run, data, device):
    path = folder(run) / "weights.pt"
    saved, network = load(path, device), build(run, data).to(device)
    with ours(path):
        network.load_state_dict(saved["network"])
        return network.eval(), saved["record"]


def steps_done(run):
    """Of the run's checkpoint; one that cannot be read counts as none here, and is named when it is needed."""
    with suppress(Refused):
        path = folder(run) / "checkpoint.pt"
        saved = load(path, "cpu") if path.exists() else {"step": {"count": 0}}
        with ours(path):
            return int(saved["step"]["count"])
    return 0


def load(path, device):
    """Weights or a checkpoint. Only tensors and plain values are read, never code."""
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # a truncated zip, a foreign pickle, an unreadable disk: all mean the same to the user
        raise Refused(f"{path} cannot be read ({type(error).__name__}): move it away to train again") from error


@contextmanager
def ours(path):
    """A file that can be read but holds something else."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        why = f"{path} is not of this training ({type(error).__name__})"
        raise Refused(f"{why}: move it away to train again") from error


def save(path, content):
    """Whole or not at all: a crash or a full disk while writing leaves the file before it."""
    with results.replacing(path) as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:  # torch's zip writer hides the disk's own error behind its own
            raise (error.__context__ if isinstance(error.__context__, OSError) else error) from error


@dataclass
class Training:
    """One run on its way: its step on the device, a row of the curve an epoch, and the seconds it has taken."""

    run: object
    step: engine.Step
    curve: list = field(default_factory=list)
    seconds: float = 0.0
    alone: float | None = None  # what the whole training would take with the GPU to itself
    board: object = None

    @property
    def checkpoint(self):
        return folder(self.run) / "checkpoint.pt"

    @property
    def curve_file(self):
        return folder(self.run) / "curve.csv"

    @property
    def steps_of_epoch(self):
        """Steps of the epoch it is in that are done: not 0 where a checkpoint was asked for in its middle."""
        return int(self.step.count) - len(self.curve) * self.step.per_epoch

    def resume(self):
        if self.checkpoint.exists():
            saved = load(self.checkpoint, self.step.device)
            with ours(self.checkpoint):
                self.step.load(saved["step"])
                self.curve, self.seconds = saved["curve"], saved["seconds"]
                self.step.sums.copy_(saved.get("sums", torch.zeros_like(self.step.sums)))
        self.board = board(self.run, len(self.curve))
        self.curve_file.unlink(missing_ok=True)  # rows after the checkpoint come again
        for row in self.curve:
            add_row(self.curve_file, row)
        return self

    def keep(self):
        content = {"step": self.step.state(), "sums": self.step.sums, "curve": self.curve, "seconds": self.seconds}
        save(self.checkpoint, content)

    def add(self, epoch):
        """What the epoch came to, or why the run ends here."""
        loss, accuracy, kl = (self.step.sums / self.step.per_epoch).tolist()
        self.step.sums.zero_()
        if not math.isfinite(loss + kl):
            name, lr = self.run.training_name, self.run.lr
            return Failed(f"the loss of {name} is {loss} in epoch {epoch + 1}: lower lr={lr:g}")
        row = {"epoch": epoch + 1, "loss": loss, "accuracy": accuracy, "kl": kl, "lr": self.step.lr.item()}
        self.curve.append(row)
        add_row(self.curve_file, row)
        for name in ("loss", "accuracy", "kl", "lr") if self.board else ():
            self.board.add_scalar(name, row[name], epoch + 1)
        return None

    def finish(self, shared):
        parameters = sum(p.numel() for p in self.step.network.parameters())
        record = {
            "name": self.run.training_name,
            "parameters": parameters,
            "seconds": self.seconds,
            "alone": self.alone,
            "curve": {key: [float(f"{row[key]:.5g}") for row in self.curve] for key in ("loss", "accuracy", "kl")},
        }
        saved = {"network": self.step.network.state_dict(), "record": record | shared | self.curve[-1]}
        save(folder(self.run) / "weights.pt", saved)
        self.checkpoint.unlink(missing_ok=True)
        if self.board:
            self.board.close()


def board(run, epochs):
    """TensorBoard's writer where it is asked for; what a killed training wrote after its checkpoint is hidden."""
    if run.logger != "tensorboard":
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(folder(run), purge_step=epochs + 1)


def fit(runs, data, device):
    """Trains runs of one schedule side by side and saves their weights. Returns those that failed, by name."""
    try:
        return _fit(runs, data, device)
    except torch.OutOfMemoryError as error:
        alone = f"lower batch={runs[0].batch}, which makes it another run"
        packed = f"lower pack={len(runs)}, which changes no result"
        raise Refused(out_of_memory(error, packed if len(runs) > 1 else alone)) from error


def _fit(runs, data, device):
    group, failed = begun(runs, data, device)
    if not group:
        return failed
    packed = len(group)
    with devices.measured(device) as setup:
        with devices.measured(device) as warming_up:  # the replay of a graph takes no memory
            advance, how = engine.fast([t.step for t in group], device, runs[0].engine)
        for training in group if how == "captured" else ():  # alone or not, timed the same way
            with suppress(torch.OutOfMemoryError):  # then it is not known: no reason to lose the run
                replay = advance if packed == 1 else None
                training.alone = training.step.total * engine.seconds_alone(training.step, device, replay)
    with Stop() as stop:  # also over the writing of the weights
        with devices.measured(device) as cost:
            failed |= train_epochs(group, advance, stop)
        peak = max(each["peak_memory_bytes"] for each in (warming_up, cost))
        shared = {"peak_memory_bytes": peak // packed, "hardware": cost["hardware"]}
        for training in (t for t in group if t.run.training_name not in failed):
            training.alone = training.seconds if training.alone is None and packed == 1 else training.alone
            training.finish(shared | {"setup_seconds": setup["seconds"], "packed": packed, "engine": how})
    return failed


def begun(runs, data, device):
    """The trainings from their checkpoints on, and those whose checkpoint is not to be used."""
    group, failed, images = [], {}, engine.Images(data, runs[0].crop, device)
    for run in runs:
        try:
            group.append(Training(run, engine.Step(run, build(run, data), images, device)).resume())
        except Refused as error:
            failed[run.training_name] = failure(error)
    return group, failed


class Stop:
    """A signal to end (Ctrl-C, SLURM's warning, timeout) waits for the end of the step and for a checkpoint. Then it is
    sent again, to whoever would have had it: submitit asks to be requeued, a plain process ends."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)

    def __enter__(self):
        self.asked, self.before = [], {}
        if threading.current_thread() is threading.main_thread():  # Python takes signals nowhere else
            known = [n for n in self.SIGNALS if signal.getsignal(n) is not None]  # None: a library in C has it
            self.before = {number: signal.signal(number, self.ask) for number in known}
        return self

    def __exit__(self, *_):
        for number, handler in self.before.items():
            signal.signal(number, handler)
        for number in self.asked:  # after the last step: the weights are written
            signal.raise_signal(number)

    def ask(self, number, frame):
        self.asked.append(number)

    def pass_on(self):
        while self.asked:
            number = self.asked.pop(0)
            signal.signal(number, self.before[number])
            signal.raise_signal(number)
            signal.signal(number, self.ask)  # it was let pass: the training goes on


def label(runs):
    name = "-".join(Path(runs[0].training_name).name.split("-")[:-1])
    others = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
    return f"{runs[0].trained_on} {runs[0].arch} {name}{others}"


def train_epochs(group, advance, stop):
    """From the checkpoint to the last epoch, for as long as one of them goes on. Returns those that failed."""
    first, name, failed = group[0], label([t.run for t in group]), {}
    steps = {"total": first.step.total, "initial": int(first.step.count), "unit": "step"}
    with tqdm(desc=name, disable=bars(), **steps) as bar:
        bar.desc = name  # tqdm forgets it where it draws nothing
        for epoch in range(len(first.curve), first.run.epochs):
            failed |= train_epoch(group, advance, epoch, bar, stop)
            group = [t for t in group if t.run.training_name not in failed]
            if not group:
                break
            if (epoch + 1) % first.run.checkpoint_every == 0 and epoch + 1 < first.run.epochs:
                for training in group:
                    training.keep()
    return failed


def train_epoch(group, advance, epoch, bar, stop):
    """One pass over the images; its end is the only moment the device is waited for. Returns those that failed."""
    begun = time.perf_counter()
    for training in group:
        training.step.shuffle(epoch)
    for _ in range(group[0].steps_of_epoch, group[0].step.per_epoch):
        advance()
        bar.update()
        if stop.asked:
            devices.synchronize(group[0].step.device)
            begun = share_time(group, begun)
            for training in group:
                training.keep()
            stop.pass_on()
    failed = {t.run.training_name: why for t in group if (why := t.add(epoch))}
    share_time(group, begun)
    if alive := [t for t in group if t.run.training_name not in failed]:
        say(bar, alive[0].curve[-1], alive[0].run.epochs)
    return failed


def share_time(group, begun):
    now = time.perf_counter()
    for training in group:
        training.seconds += (now - begun) / len(group)
    return now


def say(bar, row, epochs):
    """On the bar; where there is no terminal to draw it, ten lines a training."""
    figures = {"loss": f"{row['loss']:.3f}", "accuracy": f"{row['accuracy']:.1%}"}
    bar.set_postfix(figures)
    if bar.disable and row["epoch"] % -(-epochs // 10) == 0:
        text = "  ".join(f"{name} {value}" for name, value in figures.items())
        print(f"{bar.desc}: epoch {row['epoch']}/{epochs}  {text}", file=sys.stderr, flush=True)


def add_row(path, row):
    """For somebody to watch: the checkpoint keeps the curve too, so a row needs no care."""
    begun = path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        if not begun:
            writer.writeheader()
        writer.writerow(row)
