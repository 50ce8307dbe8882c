"""Calibration per confidence bin (reliability diagrams), and the error after the most uncertain images are rejected.

Neither is in the paper, which gives ECE as one number and entropy as a picture.
"""

import pandas as pd
from matplotlib.lines import Line2D

from rbue.report.figures import style
from rbue.report.figures.frames import count_text, methods_of, stacked
from rbue.report.records import over_seeds
from rbue.report.rows import PROPOSED_METHODS

DRAWN = 50  # percent of the images; beyond, a handful of mistakes is left, and curves show chance

# --- load, frame ------------------------------------------------------------------------------------------------------


def load(network, key):
    """Return one row per run and entry of the result's columns under `key`."""

    def entries(result):
        columns = getattr(result, key)
        return pd.DataFrame(vars(columns), dtype=float) if columns else None

    return stacked(network, entries).reset_index(names="bin")


def bins(frame):
    """Pool the seeds bin by bin, weighted by their images; empty bins are left out. ECE is the mean over seeds, as in
    the tables: the ECE of pooled bins is lower, since the seeds' gaps cancel."""
    frame, numbers = frame[frame["count"] > 0], ["count", "confidence", "accuracy"]
    ece = frame.groupby(["row", "seed"])[numbers].apply(calibration_error).groupby("row").mean()
    sums = frame.assign(confidence=frame.confidence * frame["count"], accuracy=frame.accuracy * frame["count"])
    groups = sums.groupby(["row", "method", "bin"], sort=False)
    pooled = groups[numbers].sum()
    pooled[["confidence", "accuracy"]] = pooled[["confidence", "accuracy"]].div(pooled["count"], axis=0)
    return pooled.assign(n=groups.seed.nunique()).reset_index().assign(ece=lambda pooled: pooled.row.map(ece))


def calibration_error(curve):
    share = curve["count"] / curve["count"].sum()
    return float((share * (curve.accuracy - curve.confidence).abs()).sum())


def rejection(frame):
    """Mean and std over seeds of accuracy and error on kept images, in percent."""
    accuracy = 100 * frame.accuracy
    frame = frame.assign(rejected=100 * frame.rejected, accuracy=accuracy, error=100 - accuracy)
    return over_seeds(frame, ["row", "method", "rejected"], ["accuracy", "error"])


# --- draw -------------------------------------------------------------------------------------------------------------


def diagram(axis, curve, row, colour):
    """Draw one diagram. A line from each bin to the diagonal is its gap; a dot's area is the bin's share of images."""
    share = curve["count"] / curve["count"].sum()
    axis.plot([0, 1], [0, 1], color=style.INK, linewidth=0.8)
    faint = [(colour, min(1, 0.15 + 20 * s)) for s in share]  # a bin with few images is uncertain
    axis.vlines(curve.confidence, curve.confidence, curve.accuracy, color=faint, linewidth=1.1, label=row)
    dots = {"s": 7 + 90 * share, "color": colour, "linewidth": 0, "clip_on": False}
    axis.scatter(curve.confidence, curve.accuracy, label=row, **dots)
    axis.set_title(style.narrow(row))
    axis.text(1, 0.05, f"ECE {curve.ece.iloc[0]:.3f}", transform=axis.transAxes, ha="right")
    axis.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1), aspect="equal")


@style.styled
def diagrams(numbers, title):
    rows = style.lines_of(methods_of(numbers))
    figure, axes = style.panel_grid(len(rows), 5, style.WIDTH / 5, 1.95, margin=0.8, sharey=True)
    for axis, (row, look) in zip(axes.flat, rows.items(), strict=False):
        diagram(axis, numbers[numbers.row == row], row, look["color"])
    style.head(figure, title)
    style.label_below(axes, len(rows), "Confidence")
    for axis in axes[:, 0]:
        axis.set_ylabel("Accuracy")
    return figure


@style.styled
def curves(numbers, title):
    """Draw the baselines' curves and the proposed rows', both with Single's and Deep Ensemble's."""
    inside = numbers.row.map(style.framed(numbers.groupby("row").ours_error.first(), "accuracy"))
    panels = {name: rows for name, rows in split(numbers[inside]).items() if len(rows)}
    figure, axes = style.canvas(4 * len(panels) + 1, 4.6, ncols=len(panels), squeeze=False, sharey=True)
    looks = style.lines_of(methods_of(numbers[inside]))
    for axis, (name, rows) in zip(axes.flat, panels.items(), strict=True):
        panel(axis, numbers, name, {row: looks[row] for row in rows})
    axes.flat[0].set_ylabel("Error on the remaining images (%)")
    style.head(figure, title + outside_text(numbers[~inside]))
    style.legend_below(figure, [Line2D([], [], **look) for look in looks.values()], looks, 4)
    return figure


def split(numbers):
    """Return {panel's title: rows}. The rows that are not RBUE share a panel."""
    rows = list(dict.fromkeys(numbers.row))
    proposed = [row for row, method in methods_of(numbers) if method in PROPOSED_METHODS]
    guides = [row for row, method in methods_of(numbers) if method in ("single", "deep_ensemble")]
    others = [row for row in rows if row not in proposed]
    if not proposed or set(others) <= set(guides):
        return {"": rows}
    return {"Other methods": others, "RBUE": [*guides, *proposed]}


def panel(axis, numbers, name, looks):
    for row, look in looks.items():
        curve = numbers[(numbers.row == row) & (numbers.rejected <= DRAWN)]
        axis.plot(curve.rejected, curve.ours_error, **look)
        style.band(axis, curve.rejected, curve.ours_error, curve.std_error, look)
    axis.set(xlabel="Images rejected, the most uncertain first (%)", title=name)
    if (numbers.ours_error > 0).any():  # a logarithmic axis cannot show that no image is wrong
        axis.set_yscale("log")
        style.plain_ticks(axis.yaxis, (1, 2, 5))


def outside_text(numbers):
    ends = numbers[numbers.rejected <= DRAWN].groupby("row", sort=False).ours_error.agg(["first", "last"]).itertuples()
    return "".join(f"\noutside the plot: {row}, {first:.1f} → {last:.1f} %" for row, first, last in ends)


BINS = "each dot is a bin; its area: the share of images in it; its line: the gap to perfect calibration"


def draw_reliability(network, folder):
    frame = load(network, "reliability")
    if frame.empty:
        return []
    numbers = bins(frame)
    title = f"{network.title()}, {count_text(frame.groupby('row').seed.nunique())}\n{BINS}"
    return style.save(diagrams(numbers, title), folder / "reliability", numbers)


def draw_rejection(network, folder):
    frame = load(network, "rejection")
    if frame.empty:
        return []
    numbers = rejection(frame)
    title = f"{network.title()}, {count_text(numbers.n)}"
    return style.save(curves(numbers, title), folder / "rejection", numbers)
