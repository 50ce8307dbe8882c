"""Calibration per confidence bin (reliability diagrams), and accuracy after the most uncertain images are rejected.

Neither is in the paper, which gives ECE as one number and entropy as a picture.
"""

import pandas as pd

from rbue.report.figures.frames import count_text, methods_of
from rbue.report.figures.style import (
    COLOURS,
    canvas,
    fitted,
    framed,
    head,
    legend_below,
    lines_of,
    narrow,
    panel_grid,
    save,
    styled,
    write_csv,
)
from rbue.report.records import over_seeds

# --- load, frame ------------------------------------------------------------------------------------------------------


def load(network, key):
    """Return one row per run and entry of the result's columns under `key`."""
    parts = [
        pd.DataFrame(vars(columns), dtype=float).assign(row=run.row, method=run.method, seed=run.seed)
        for run in network.clean.itertuples()
        if (columns := getattr(run.result, key))
    ]
    return pd.concat(parts).reset_index(names="bin") if parts else pd.DataFrame()


def bins(frame):
    """Pool the seeds bin by bin, weighted by their images; empty bins are left out. ECE is the mean over seeds, as in
    the tables: the ECE of pooled bins is lower, since the seeds' gaps cancel."""
    frame, numbers = frame[frame["count"] > 0], ["count", "confidence", "accuracy"]
    errors = frame.groupby(["row", "seed"])[numbers].apply(calibration_error).rename("ece").reset_index()
    ece = over_seeds(errors, ["row"], ["ece"]).set_index("row").ours_ece
    sums = frame.assign(confidence=frame.confidence * frame["count"], accuracy=frame.accuracy * frame["count"])
    groups = sums.groupby(["row", "method", "bin"], sort=False)
    pooled = groups[numbers].sum()
    pooled[["confidence", "accuracy"]] = pooled[["confidence", "accuracy"]].div(pooled["count"], axis=0)
    return pooled.assign(n=groups.size()).reset_index().assign(ece=lambda pooled: pooled.row.map(ece))


def calibration_error(curve):
    share = curve["count"] / curve["count"].sum()
    return float((share * (curve.accuracy - curve.confidence).abs()).sum())


def rejection(frame):
    """Mean and std over seeds of the accuracy on kept images, in percent."""
    frame = frame.assign(rejected=100 * frame.rejected, accuracy=100 * frame.accuracy)
    return over_seeds(frame, ["row", "method", "rejected"], ["accuracy"])


# --- draw -------------------------------------------------------------------------------------------------------------


def diagram(axis, curve, row):
    """Draw one diagram. A line from each bin to the diagonal is its gap; a dot's area is the bin's share of images."""
    colour, share = COLOURS[curve.method.iloc[0]], curve["count"] / curve["count"].sum()
    axis.plot([0, 1], [0, 1], color="#777777", linewidth=0.8)
    faint = [(colour, min(1, 0.15 + 20 * s)) for s in share]  # a bin with few images is uncertain
    axis.vlines(curve.confidence, curve.confidence, curve.accuracy, color=faint, linewidth=1.1)
    look = {"color": colour, "edgecolor": "white", "linewidth": 0.4, "clip_on": False}
    axis.scatter(curve.confidence, curve.accuracy, s=5 + 90 * share, **look)
    axis.set_title(narrow(row), fontsize=8)
    axis.text(0.97, 0.06, f"ECE {curve.ece.iloc[0]:.3f}", transform=axis.transAxes, ha="right", fontsize=7.5)
    axis.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1), aspect="equal")


@styled
def diagrams(numbers, title):
    rows = list(dict.fromkeys(numbers.row))
    figure, axes = panel_grid(len(rows), 5, 1.4, 1.6, margin=0.75, sharey=True)
    for axis, row in zip(axes.flat, rows, strict=False):
        diagram(axis, numbers[numbers.row == row], row)
    head(figure, title)
    figure.supxlabel("Confidence", fontsize=9)
    figure.supylabel("Share correct", fontsize=9)
    return figure


@styled
def curves(numbers, title):
    figure, axis = canvas(5.4, 4.2)
    inside = numbers.row.map(framed(numbers.groupby("row").ours_accuracy.first(), "accuracy"))
    for row, look in lines_of(methods_of(numbers)).items():
        curve = numbers[(numbers.row == row) & inside]
        axis.plot(curve.rejected, curve.ours_accuracy, label=row, markevery=2, **look)
        low, high = (curve.ours_accuracy + sign * curve.std_accuracy.fillna(0) for sign in (-1, 1))
        axis.fill_between(curve.rejected, low, high, color=look["color"], alpha=0.15, linewidth=0)
    beyond = numbers[~inside].groupby("row", sort=False).ours_accuracy.agg(["first", "last"]).itertuples()
    named = "".join(f"\nbeyond the frame: {row}, {first:.1f} → {last:.1f} %" for row, first, last in beyond)
    axis.set(xlabel="Images rejected, the most uncertain first (%)", ylabel="Accuracy of the kept (%)")
    axis.set_title(fitted(title + named, figure))
    legend_below(figure, *axis.get_legend_handles_labels(), 3)
    return figure


def draw_reliability(network, paper_dir, folder):
    frame = load(network, "reliability")
    if frame.empty:
        return []
    numbers = bins(frame)
    title = f"{network.title()}, {count_text(frame.groupby('row').seed.nunique())}; a dot's area: share of images"
    return [*save(diagrams(numbers, title), folder / "reliability"), write_csv(numbers, folder / "reliability.csv")]


def draw_rejection(network, paper_dir, folder):
    frame = load(network, "rejection")
    if frame.empty:
        return []
    numbers = rejection(frame)
    title = f"{network.title()}, {count_text(numbers.n)}"
    return [*save(curves(numbers, title), folder / "rejection"), write_csv(numbers, folder / "rejection.csv")]
