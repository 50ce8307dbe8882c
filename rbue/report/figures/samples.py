"""The value of more samples: accuracy, ECE and NLL against passes and milliseconds, with Deep Ensemble for comparison.

The paper uses 100 samples and never shows fewer. One sample is one pass through the network, and so is one member.
Milliseconds are measured for all passes together and for one pass without noise; passes in between share the
difference equally.
"""

import textwrap

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from rbue.report.figures.frames import count_text, methods_of
from rbue.report.figures.style import (
    METRICS,
    canvas,
    framed,
    head,
    legend_below,
    limits,
    lines_of,
    save,
    styled,
    write_csv,
)
from rbue.report.records import over_seeds

SCORES = list(METRICS)
COSTS = {"samples": "Passes: samples or members", "ours_ms": "Milliseconds an image"}


def load(network):
    """Return one row per (run, number of samples), accuracy in percent; a run with one pass counts as one sample."""
    parts = []
    for run in network.clean.itertuples():
        columns = run.result.by_samples
        if not columns and run.passes == 1:
            columns = {"samples": [1], **{score: [run.result.metrics.get(score)] for score in SCORES}}
        if columns:
            part = pd.DataFrame(columns)[["samples", *SCORES]].astype({"samples": int})
            part["ms"] = milliseconds(run.result, part.samples)
            parts.append(part.assign(row=run.row, method=run.method, seed=run.seed))
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return frame if frame.empty else frame.assign(accuracy=100 * frame.accuracy)


def milliseconds(result, samples):
    """Return the milliseconds per image for this many passes; NaN if an older result has no time.

    Layers before the first noise are computed once, so the first pass costs more: as much as the deterministic network.
    """
    total, passes = (value or float("nan") for value in (result.test_ms_per_image, result.passes))
    twin = (result.twin or {}).get("ms_per_image") or 0
    first = max(total / passes, min(total, twin))
    return first + (samples - 1) * (total - first) / max(passes - 1, 1)


def curves(frame):
    """Mean and std over seeds at each number of samples that all seeds of the row have."""
    numbers = over_seeds(frame, ["row", "method", "samples"], [*SCORES, "ms"])
    seeds = frame.groupby("row").seed.nunique()
    return numbers[numbers.n == numbers.row.map(seeds)].reset_index(drop=True)


def split(numbers, metric):
    """Split the curves into those that end within one frame and the others."""
    ends = numbers.groupby("row", sort=False)[f"ours_{metric}"].last()
    inside = numbers.row.map(framed(ends, metric))
    return numbers[inside], numbers[~inside]


def outside_text(numbers, metric):
    """Name the curves that are not drawn with their first and last values: `beyond: SVI, 44.3 → 78.9`."""
    digits = 1 if metric == "accuracy" else 3
    ends = numbers.groupby("row", sort=False)[f"ours_{metric}"].agg(["first", "last"])
    named = [f"beyond: {row}, {first:.{digits}f} → {last:.{digits}f}" for row, first, last in ends.itertuples()]
    return "".join(f"\n{textwrap.fill(line, 36)}" for line in named)


def plot(axis, numbers, cost, metric, looks):
    """Plot curves, with a band of one standard deviation if there are several seeds."""
    ours, std = f"ours_{metric}", f"std_{metric}"
    for row, curve in numbers.groupby("row", sort=False):
        axis.plot(curve[cost], curve[ours], **looks[row])
        low, high = (curve[ours] + sign * curve[std].fillna(0) for sign in (-1, 1))
        axis.fill_between(curve[cost], low, high, color=looks[row]["color"], alpha=0.15, linewidth=0)
    for value in numbers[ours][numbers.groupby("row").samples.transform("max") == 1]:
        axis.axhline(value, color="black", linewidth=0.7, linestyle=":")


def panel(axis, numbers, cost, metric, looks):
    """Draw one panel. Return the curves that end too far away to be drawn."""
    inside, beyond = split(numbers, metric)
    plot(axis, inside, cost, metric, looks)
    axis.set(xscale="log", ylim=limits(inside[f"ours_{metric}"]))
    return beyond


def panels_row(axes, numbers, cost, looks):
    for axis, (metric, name) in zip(axes, METRICS.items(), strict=True):
        beyond = panel(axis, numbers, cost, metric, looks)
        axis.set_ylabel(name)
        axis.set_xlabel(COSTS[cost] + outside_text(beyond, metric), fontsize=8)
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.minorticks_off()


@styled
def panels(numbers, title):
    """Draw one line of panels per cost; without measured times there is one line."""
    costs = [cost for cost in COSTS if numbers[cost].notna().all()]
    figure, axes = canvas(7, 2.6 * len(costs) + 1, nrows=len(costs), ncols=3, squeeze=False)
    looks = lines_of(methods_of(numbers))
    for line, cost in zip(axes, costs, strict=True):
        panels_row(line, numbers, cost, looks)
    head(figure, title)
    legend_below(figure, [Line2D([], [], **look) for look in looks.values()], looks, 4)
    return figure


def draw(network, paper_dir, folder):
    frame = load(network)
    if frame.empty or frame.samples.max() == 1:
        return []
    numbers = curves(frame)
    title = f"{network.title()}, {count_text(numbers.n)}; dotted: Single's one pass"
    return [*save(panels(numbers, title), folder / "samples"), write_csv(numbers, folder / "samples.csv")]
