"""What a sample buys: accuracy, ECE and NLL against the number of predictions averaged, Deep Ensemble on the same axes.

The paper fixes 100 samples and never shows fewer. One sample is one pass through the network, as is one member.
"""

import pandas as pd

from rbue.report.figures.behaviours import fence
from rbue.report.figures.frames import methods_of, seeds_text
from rbue.report.figures.style import METRICS, canvas, legend_below, lines_of, save, styled, write_csv

SCORES = list(METRICS)


def load(network):
    """One row a (run, number of samples), accuracy in percent; a run of one pass is its own first sample."""
    parts = []
    for run in network.clean.itertuples():
        columns = run.result.get("by_samples")
        if not columns and run.method == "single":
            columns = {"samples": [1], **{score: [run.result["metrics"][score]] for score in SCORES}}
        if columns:
            part = pd.DataFrame(columns)[["samples", *SCORES]]
            parts.append(part.assign(row=run.row, method=run.method, seed=run.seed))
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return frame if frame.empty else frame.assign(accuracy=100 * frame.accuracy)


def curves(frame):
    """Mean and std over seeds at each number of samples that all seeds of the row have."""
    groups = frame.groupby(["row", "method", "samples"], sort=False)
    numbers = groups[SCORES].mean().join(groups[SCORES].std().add_suffix("_std")).assign(n=groups.size()).reset_index()
    seeds = frame.groupby("row").seed.nunique()
    return numbers[numbers.n == numbers.row.map(seeds)].reset_index(drop=True)


def outside_text(numbers, metric, limits):
    """Curves that the frame cuts, with their first and last value: `SVI: 44.3 → 78.9`."""
    digits = 1 if metric == "accuracy" else 3
    cut = [curve for _, curve in numbers.groupby("row", sort=False) if not curve[metric].between(*limits).all()]
    ends = [(curve.row.iloc[0], curve[metric].iloc[0], curve[metric].iloc[-1]) for curve in cut]
    return [f"{row}: {first:.{digits}f} → {last:.{digits}f}" for row, first, last in ends]


def plot(axis, numbers, metric, looks):
    for row, look in looks.items():
        curve = numbers[numbers.row == row]
        axis.plot(curve.samples, curve[metric], label=row, **look)
        if (curve.n > 1).any():
            low, high = (curve[metric] + sign * curve[f"{metric}_std"] for sign in (-1, 1))
            axis.fill_between(curve.samples, low, high, color=look["color"], alpha=0.15, linewidth=0)
    if looks and (single := numbers[numbers.method == "single"])[metric].size:
        axis.axhline(single[metric].iloc[0], color="black", linewidth=0.7, linestyle=":")


@styled
def panels(numbers, title):
    figure, axes = canvas(7, 3.6, ncols=3)
    looks = lines_of(methods_of(numbers))
    for axis, (metric, name) in zip(axes, METRICS.items(), strict=True):
        plot(axis, numbers, metric, looks)
        limits = fence(numbers[metric])
        cut = outside_text(numbers, metric, limits)
        axis.set(xscale="log", xlabel="Samples or members", ylim=limits, title=name)
        axis.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
        axis.minorticks_off()
        if cut:
            axis.text(0.5, -0.3, "\n".join(["beyond the frame:", *cut]), transform=axis.transAxes, fontsize=6.5, ha="center", va="top")
    figure.suptitle(title)
    legend_below(figure, *axes[0].get_legend_handles_labels(), 4)
    return figure


def draw(network, paper_dir, folder):
    frame = load(network)
    if frame.empty or set(frame.method) == {"single"}:
        return []
    numbers = curves(frame)
    title = f"{network.title()}, {seeds_text(numbers.n)}; dotted: Single's one pass"
    return [*save(panels(numbers, title), folder / "samples"), write_csv(numbers, folder / "samples.csv")]
