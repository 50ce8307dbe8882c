"""What a user sees of a training: a progress bar or lines, curve.csv, and TensorBoard."""

import csv
import sys
from pathlib import Path

from rbue.progress import duration
from rbue.runs.results import weights_folder


def label(runs):
    name = "-".join(Path(runs[0].training_name).name.split("-")[:-1])
    others = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
    return f"{runs[0].trained_on} {runs[0].arch} {name}{others}"


def open_board(run, epochs):
    """Return a TensorBoard writer if the run wants one. It hides what a killed training wrote past its checkpoint."""
    if run.logger != "tensorboard":
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(weights_folder(run), purge_step=epochs + 1)


def report_start(bar, hardware, precision, epochs):
    """Without a terminal, say where a training runs, and after how many epochs it resumes."""
    if bar.disable:
        resumed = f", resumed after epoch {epochs}" if epochs else ""
        print(f"{bar.desc}: training on {hardware} in {precision}{resumed}", file=sys.stderr, flush=True)


def report_epoch(bar, row, epochs, left):
    """Show the epoch on the progress bar. Without a terminal, print at most ten lines, with the time left."""
    figures = {"loss": f"{row['loss']:.3f}", "training accuracy": f"{row['accuracy']:.1%}"}
    bar.set_postfix(figures)
    if bar.disable and (row["epoch"] % -(-epochs // 10) == 0 or row["epoch"] == epochs):
        text = "  ".join(f"{name} {value}" for name, value in figures.items())
        rest = f"  {duration(left)} left" if row["epoch"] < epochs else ""
        print(f"{bar.desc}: epoch {row['epoch']}/{epochs}  {text}{rest}", file=sys.stderr, flush=True)


def add_row(path, row):
    """Append a row to curve.csv, which is for watching only: the checkpoint holds the curve too."""
    begun = path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        if not begun:
            writer.writeheader()
        writer.writerow(row)
