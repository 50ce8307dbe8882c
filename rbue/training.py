"""fit(): from a run to trained weights, through checkpoints, so that a killed training goes on where it was."""

import csv
import io
import os
from pathlib import Path

import torch
from tqdm import tqdm

from rbue import devices, engine, methods, results
from rbue.config import Refused


def trained(run, data, device):
    """The run's trained network and the record of its training: from disk if it is there, else trained now."""
    weights = folder(run) / "weights.pt"
    network = methods.build(run, data.classes, len(data.train_images)).to(device)
    saved = load(weights, device) if weights.exists() else fit(run, network, data, device)
    network.load_state_dict(saved["network"])
    return network.eval(), saved["record"]


def folder(run) -> Path:
    return Path(run.weights_dir) / run.training_name


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


def fit(run, network, data, device):
    """Trains one network and saves its weights; returns {"network": state, "record": what it took}."""
    step = engine.Step(run, network, engine.Images(data, run.crop, device), device)
    checkpoint = folder(run) / "checkpoint.pt"
    curve, seconds = [], 0.0
    if checkpoint.exists():
        saved = load(checkpoint, device)
        step.load(saved["step"])
        curve, seconds = saved["curve"], saved["seconds"]
    with tqdm(total=step.total, initial=len(curve) * step.per_epoch, desc=label(run), unit="step", disable=None) as bar:
        for epoch in range(len(curve), run.epochs):
            with devices.measured(device) as cost:
                curve.append(train_epoch(run, step, epoch, bar))
            seconds += cost["seconds"]
            if (epoch + 1) % run.checkpoint_every == 0 and epoch + 1 < run.epochs:
                save(checkpoint, {"step": step.state(), "curve": curve, "seconds": seconds})
    return finish(run, step, curve, cost | {"seconds": seconds})


def label(run):
    return f"{run.trained_on} {run.arch} " + "-".join(Path(run.training_name).name.split("-")[:-1])


def train_epoch(run, step, epoch, bar):
    """One pass over the images; the only moment the device is waited for. Returns a row of the curve."""
    step.shuffle(epoch)
    step.sums.zero_()
    for _ in range(step.per_epoch):
        step()
        bar.update()
    loss, accuracy, kl = (step.sums / step.per_epoch).tolist()
    if not torch.isfinite(step.sums).all():
        raise Failed(run, f"the loss of {run.training_name} is {loss} in epoch {epoch + 1}: lower lr={run.lr:g}")
    bar.set_postfix(loss=f"{loss:.3f}", accuracy=f"{accuracy:.1%}")
    return {"epoch": epoch + 1, "loss": loss, "accuracy": accuracy, "kl": kl, "lr": step.lr.item()}


class Failed(Refused):
    """A training that cannot go on: the reason is left beside where its result would be."""

    def __init__(self, run, sentence):
        super().__init__(sentence)
        results.write(results.folder(run) / "failed.json", {"reason": sentence, "config": run.identity})


def finish(run, step, curve, cost):
    parameters = sum(p.numel() for p in step.network.parameters())
    record = {"name": run.training_name, "parameters": parameters, **cost, **curve[-1]}
    saved = {"network": step.network.state_dict(), "record": record}
    write_curve(folder(run) / "curve.csv", curve)
    save(folder(run) / "weights.pt", saved)
    (folder(run) / "checkpoint.pt").unlink(missing_ok=True)
    return saved


def write_curve(path, curve):
    text = io.StringIO()
    writer = csv.DictWriter(text, curve[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(curve)
    results.write(path, text.getvalue())

