"""What variational inference learned: the weights' standard deviations per layer, and KL and accuracy over training."""

from itertools import chain

import pandas as pd
from matplotlib.ticker import LogLocator, NullFormatter

from rbue.report.figures.frames import count_text, picked
from rbue.report.figures.style import COLOURS, canvas, head, legend_below, save, styled, write_csv
from rbue.report.records import over_seeds

QUANTILES = ("q05", "q25", "q50", "q75", "q95")


def load(network):
    """Return runs with a posterior: row, method, seed, the layers' quantiles and the training curve."""
    return picked(network, chosen)


def chosen(result):
    curve = result.trainings[0].curve if result.trainings else None
    start = result.config.get("sigma")
    return {"layers": result.posterior, "curve": curve, "start": start} if result.posterior and curve else None


def layers(frame):
    """Mean over seeds of each weight tensor's quantiles; biases have too few elements for a distribution."""
    rows = [
        {"row": run.row, "seed": run.seed, "layer": k, "name": layer.name, "start": first_of(layer.start, run.start)}
        | dict(zip(QUANTILES, layer.sigma, strict=True))
        for run in frame.itertuples()
        for k, layer in enumerate([layer for layer in run.layers if layer.name.endswith("weight")], 1)
    ]
    return over_seeds(pd.DataFrame(rows), ["row", "layer", "name"], ["start", *QUANTILES])


def first_of(*values):
    return next((value for value in values if value is not None), float("nan"))


def curves(frame):
    """Mean over seeds of each epoch's KL per training image and training accuracy."""
    parts = [
        pd.DataFrame(run.curve).assign(row=run.row, seed=run.seed, epoch=range(1, len(run.curve["loss"]) + 1))
        for run in frame.itertuples()
    ]
    return over_seeds(pd.concat(parts), ["row", "epoch"], ["loss", "accuracy", "kl"])


def sigma_panel(axis, numbers, colour, row):
    axis.fill_between(numbers.layer, numbers.ours_q05, numbers.ours_q95, color=colour, alpha=0.2, linewidth=0)
    axis.plot(numbers.layer, numbers.ours_q50, color=colour, label="after training: median, 5 to 95 %")
    axis.plot(numbers.layer, numbers.ours_start, color="black", linestyle="--", label="at the start")
    axis.set(title=row, yscale="log", ylabel="Standard deviation")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 3), numticks=6))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter(NullFormatter())


def curve_panel(axis, numbers, colour):
    axis.plot(numbers.epoch, numbers.ours_kl, color=colour, label="KL per training image, nats")
    axis.set(ylabel="KL per image (nats)", title="Training")
    right = axis.twinx()
    right.plot(numbers.epoch, 100 * numbers.ours_accuracy, color="black", linestyle=":", label="training accuracy")
    right.set(ylim=(0, 102), ylabel="Accuracy (%)")
    right.grid(False)
    return right


@styled
def figure(spread, course, colours, title):
    rows = list(colours)
    drawn, axes = canvas(7, 1 + 1.9 * len(rows), nrows=len(rows), ncols=2, squeeze=False, sharey="col")
    for (left, right), row in zip(axes, rows, strict=True):
        sigma_panel(left, spread[spread.row == row], colours[row], row)
        other = curve_panel(right, course[course.row == row], colours[row])
    axes[0][1].set_ylim(0)  # all panels of the column share it, so it is set after the last
    axes[-1][0].set_xlabel("Layer")
    axes[-1][1].set_xlabel("Epoch")
    head(drawn, title)
    handles = [axis.get_legend_handles_labels() for axis in (axes[0][0], axes[0][1], other)]
    legend_below(drawn, *([*chain(*parts)] for parts in zip(*handles, strict=True)), 2)
    return drawn


def draw(network, paper_dir, folder):
    frame = load(network)
    if frame.empty:
        return []
    spread, course = layers(frame), curves(frame)
    colours = {run.row: COLOURS[run.method] for run in frame.itertuples()}
    title = f"Posterior of the weights: {network.title()}, {count_text(spread.n)}"
    return [
        *save(figure(spread, course, colours, title), folder / "posterior"),
        write_csv(spread, folder / "posterior.csv"),
        write_csv(course, folder / "posterior-training.csv"),
    ]
