"""What variational inference learned: the weights' standard deviations per layer, and KL and accuracy over training."""

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from rbue.report.figures import style
from rbue.report.figures.frames import count_text, picked
from rbue.report.records import over_seeds
from rbue.report.tables import csv_text, write_forms

PANELS = {"Standard deviation": "Layer", "KL per image (nats)": "Epoch", "Training accuracy (%)": "Epoch"}
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
        {"row": run.row, "seed": run.seed, "layer": k, "name": layer.name}
        | {"start": run.start if layer.start is None else layer.start}
        | dict(zip(QUANTILES, layer.sigma, strict=True))
        for run in frame.itertuples()
        for k, layer in enumerate([layer for layer in run.layers if layer.name.endswith("weight")], 1)
    ]
    frame = pd.DataFrame(rows).astype({"start": float})  # None if no start is known
    return over_seeds(frame, ["row", "layer", "name"], ["start", *QUANTILES])


def curves(frame):
    """Mean over seeds of each epoch's KL per training image and training accuracy."""
    parts = [
        pd.DataFrame(run.curve).assign(row=run.row, seed=run.seed, epoch=range(1, len(run.curve["loss"]) + 1))
        for run in frame.itertuples()
    ]
    return over_seeds(pd.concat(parts), ["row", "epoch"], ["loss", "accuracy", "kl"])


def sigma_panel(axis, numbers, colour, row):
    band = {"color": colour, "alpha": 0.2, "linewidth": 0, "label": row}
    axis.fill_between(numbers.layer, numbers.ours_q05, numbers.ours_q95, **band)
    axis.plot(numbers.layer, numbers.ours_q50, color=colour, label=row)
    axis.plot(numbers.layer, numbers.ours_start, color=style.INK, linestyle="--", label=f"{row}: start")
    axis.set_yscale("log")
    style.plain_ticks(axis.yaxis, (1, 2, 5))
    axis.xaxis.get_major_locator().set_params(integer=True)


@style.styled
def figure(spread, course, colours, title):
    rows, height = list(colours), 1.3 + 2.1 * len(colours)
    drawn, axes = style.canvas(style.WIDTH, height, nrows=len(rows), ncols=3, squeeze=False, sharey="col")
    for (left, middle, right), row in zip(axes, rows, strict=True):
        of_row = course[course.row == row]
        sigma_panel(left, spread[spread.row == row], colours[row], row)
        middle.plot(of_row.epoch, of_row.ours_kl, color=colours[row], label=row)
        right.plot(of_row.epoch, 100 * of_row.ours_accuracy, color=colours[row], label=row)
        for axis, (name, along) in zip((left, middle, right), PANELS.items(), strict=True):
            axis.set(ylabel=name, xlabel=along)
        left.set_title(style.narrow(row))
    # all panels of a column share their limits, so these are set after the last
    ends = spread[["ours_q05", "ours_q95", "ours_start"]]
    axes[0][0].set_ylim(ends.min(axis=None) / 3, 3 * ends.max(axis=None))  # a nearly constant line should look so
    for axis in axes[0][1:]:
        axis.set_ylim(0)
    style.head(drawn, title)
    style.legend_below(drawn, *legend_parts(spread), 3)
    return drawn


def legend_parts(spread):
    """Return handles and labels in ink, since each row has a colour of its own. Not every method has a known start."""
    handles = {
        "median after training": Line2D([], [], color=style.INK),
        "5 to 95 % of the weights": Patch(facecolor=(style.INK, 0.2)),
    }
    if spread.ours_start.notna().any():
        handles["at the start"] = Line2D([], [], color=style.INK, linestyle="--")
    return handles.values(), handles


def draw(network, folder):
    frame = load(network)
    if frame.empty:
        return []
    spread, course = layers(frame), curves(frame)
    colours = {run.row: style.COLOURS[run.method] for run in frame.itertuples()}
    title = f"Posterior of the weights: {network.title()}, {count_text(spread.n)}"
    return [
        *style.save(figure(spread, course, colours, title), folder / "posterior", spread),
        *write_forms(folder / "posterior-training", {"csv": csv_text(course)}),
    ]
