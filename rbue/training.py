"""trained(): from runs to trained networks, through checkpoints, so that a killed training goes on where it was."""

import csv
import io
import os
import sys
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import torch
from tqdm import tqdm

from rbue import devices, engine, methods, results
from rbue.config import Refused


def trained(runs, data, device):
    """The runs' networks and the records of their trainings: from disk, or trained now, several at once on a GPU."""
    for group in packs(runs, device):
        fit(group, data, device)
    return tuple(zip(*(finished(run, data, device) for run in runs), strict=True))


def is_trained(run):
    return (folder(run) / "weights.pt").exists()


def packs(runs, device):
    """Trainings still to do that can share a GPU: of one schedule and at one epoch. A CPU takes one at a time."""
    missing = {run.training_name: run for run in runs if not is_trained(run)}

    def shape(run):
        return run.batch, run.epochs, run.crop, epochs_done(run)

    for _, alike in groupby(sorted(missing.values(), key=shape), shape):
        alike = list(alike)
        size = alike[0].pack if device.type == "cuda" else 1
        yield from (alike[k : k + size] for k in range(0, len(alike), size))


def folder(run) -> Path:
    return Path(run.weights_dir) / run.training_name


def build(run, data):
    return methods.build(run, data.classes, len(data.train_images))


def finished(run, data, device):
    saved = load(folder(run) / "weights.pt", device)
    network = build(run, data).to(device)
    network.load_state_dict(saved["network"])
    return network.eval(), saved["record"]


def epochs_done(run):
    path = folder(run) / "checkpoint.pt"
    return len(load(path, "cpu")["curve"]) if path.exists() else 0


def load(path, device):
    """Weights or a checkpoint. Only tensors and plain values are read, never code."""
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # a truncated zip, a foreign pickle, an unreadable disk: all mean the same to the user
        raise Refused(f"{path} cannot be read ({type(error).__name__}): delete it to train again") from error


def save(path, content):
    """Atomically: a crash while writing leaves the file before it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    torch.save(content, part)
    os.replace(part, path)


@dataclass
class Training:
    """One run on its way: its step on the device, a row of the curve an epoch, and the seconds it has taken."""

    run: object
    step: engine.Step
    curve: list = field(default_factory=list)
    seconds: float = 0.0

    @property
    def checkpoint(self):
        return folder(self.run) / "checkpoint.pt"

    def resume(self):
        if self.checkpoint.exists():
            saved = load(self.checkpoint, self.step.device)
            self.step.load(saved["step"])
            self.curve, self.seconds = saved["curve"], saved["seconds"]
        return self

    def keep(self):
        save(self.checkpoint, {"step": self.step.state(), "curve": self.curve, "seconds": self.seconds})

    def add(self, epoch):
        """What the epoch came to. A loss that is not finite ends the run."""
        loss, accuracy, kl = (self.step.sums / self.step.per_epoch).tolist()
        if not torch.isfinite(self.step.sums).all():
            name, lr = self.run.training_name, self.run.lr
            alone = "; pack=1 lets the other runs go on without it" if self.step.device.type == "cuda" else ""
            raise Failed(self.run, f"the loss of {name} is {loss} in epoch {epoch + 1}: lower lr={lr:g}{alone}")
        row = {"epoch": epoch + 1, "loss": loss, "accuracy": accuracy, "kl": kl, "lr": self.step.lr.item()}
        self.curve.append(row)

    def finish(self, record):
        parameters = sum(p.numel() for p in self.step.network.parameters())
        record = {"name": self.run.training_name, "parameters": parameters, "seconds": self.seconds, **record}
        write_curve(folder(self.run) / "curve.csv", self.curve)
        saved = {"network": self.step.network.state_dict(), "record": record | self.curve[-1]}
        save(folder(self.run) / "weights.pt", saved)
        self.checkpoint.unlink(missing_ok=True)


class Failed(Refused):
    """A training that cannot go on: the reason is left beside where its result would be."""

    def __init__(self, run, sentence):
        super().__init__(sentence)
        results.write(results.folder(run) / "failed.json", {"reason": sentence, "config": run.identity})


def fit(runs, data, device):
    """Trains runs of one schedule side by side and saves their weights."""
    first, images = runs[0], engine.Images(data, runs[0].crop, device)
    group = [Training(run, engine.Step(run, build(run, data), images, device)).resume() for run in runs]
    with devices.measured(device) as setup:
        advance, how = engine.fast([t.step for t in group], device, first.engine)
    done, per_epoch = len(group[0].curve), group[0].step.per_epoch
    steps = {"total": first.epochs * per_epoch, "initial": done * per_epoch, "unit": "step"}
    with tqdm(desc=label(runs), disable=None, **steps) as bar:
        bar.desc = label(runs)  # tqdm forgets it where it draws nothing
        for epoch in range(done, first.epochs):
            with devices.measured(device) as cost:
                train_epoch(group, advance, epoch, bar)
            for training in group:
                training.seconds += cost["seconds"] / len(group)
                if (epoch + 1) % first.checkpoint_every == 0 and epoch + 1 < first.epochs:
                    training.keep()
    shared = {"peak_memory_bytes": cost["peak_memory_bytes"] // len(group), "hardware": cost["hardware"]}
    for training in group:
        training.finish(shared | {"setup_seconds": setup["seconds"], "packed": len(group), "engine": how})


def label(runs):
    name = "-".join(Path(runs[0].training_name).name.split("-")[:-1])
    others = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
    return f"{runs[0].trained_on} {runs[0].arch} {name}{others}"


def train_epoch(group, advance, epoch, bar):
    """One pass over the images; its end is the only moment the device is waited for."""
    for training in group:
        training.step.shuffle(epoch)
        training.step.sums.zero_()
    for _ in range(group[0].step.per_epoch):
        advance()
        bar.update()
    for training in group:
        training.add(epoch)
    say(bar, group[0].curve[-1], group[0].run.epochs)


def say(bar, row, epochs):
    """On the bar; where there is no terminal to draw it, ten lines a training."""
    figures = {"loss": f"{row['loss']:.3f}", "accuracy": f"{row['accuracy']:.1%}"}
    bar.set_postfix(figures)
    if bar.disable and row["epoch"] % -(-epochs // 10) == 0:
        text = "  ".join(f"{name} {value}" for name, value in figures.items())
        print(f"{bar.desc}: epoch {row['epoch']}/{epochs}  {text}", file=sys.stderr, flush=True)


def write_curve(path, curve):
    text = io.StringIO()
    writer = csv.DictWriter(text, curve[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(curve)
    results.write(path, text.getvalue())
