"""The value of more samples: accuracy, ECE and NLL against passes and milliseconds, with Deep Ensemble for comparison.

The paper uses 100 samples and never shows fewer. One sample is one pass through the network, and so is one member.
Milliseconds are measured for all passes together and for the first one; passes in between share the difference
equally. In older results, the first pass is taken to cost as much as the deterministic network.
"""

from itertools import product

import pandas as pd
from matplotlib.lines import Line2D

from rbue.report.figures import style
from rbue.report.figures.frames import count_text, methods_of, stacked, uncompiled_text
from rbue.report.records import over_seeds

SCORES = list(style.METRICS)
BETWEEN = "\nmilliseconds between the first and the last pass are interpolated"
COSTS = {"samples": "Passes: samples or members", "ours_ms": "Milliseconds per image"}


def load(network):
    """Return one row per (run, number of samples), accuracy in percent; a run with one pass counts as one sample."""
    return stacked(network, by_samples)


def by_samples(result):
    columns = result.by_samples
    if not columns and result.passes == 1:
        columns = {"samples": [1], **{score: [result.metrics.get(score)] for score in SCORES}}
    if not columns:
        return None
    kinds = {"samples": int} | dict.fromkeys(SCORES, float)  # a score that the result lacks is None
    frame = pd.DataFrame(columns)[list(kinds)].astype(kinds)
    return frame.assign(accuracy=100 * frame.accuracy, ms=milliseconds(result, frame.samples))


def milliseconds(result, samples):
    """Return the milliseconds per image for this many passes; NaN if an older result has no time.

    Layers before the first noise are computed once, so the first pass may cost more than the others.
    """
    total, passes = (value or float("nan") for value in (result.test_ms_per_image, result.passes))
    known = result.first_ms_per_image or (result.twin or {}).get("ms_per_image") or 0
    first = max(total / passes, min(total, known))
    return first + (samples - 1) * (total - first) / max(passes - 1, 1)


def curves(frame):
    """Mean and std over seeds at each number of samples that all seeds of the row have. If the time of a seed is
    unknown, the other seeds of its row give it."""
    times = frame.ms.fillna(frame.groupby(["row", "samples"]).ms.transform("mean"))
    numbers = over_seeds(frame.assign(ms=times), ["row", "method", "samples"], [*SCORES, "ms"])
    seeds = frame.groupby("row").seed.nunique()
    return numbers[numbers.n == numbers.row.map(seeds)].reset_index(drop=True)


def inside(numbers, metric):
    """Whether a row's curve ends within the frame that the rows share."""
    ends = numbers.groupby("row", sort=False)[f"ours_{metric}"].last()
    return numbers.row.map(style.framed(ends, metric))


def outside_text(numbers):
    """Name the curves that are not drawn with their first and last values: `SVI, Accuracy (%) 44.3 → 78.9`."""
    named = {}
    for metric, name in style.METRICS.items():
        digits, outside = 1 if metric == "accuracy" else 3, numbers[~inside(numbers, metric)]
        ends = outside.groupby("row", sort=False)[f"ours_{metric}"].agg(["first", "last"])
        for row, first, last in ends.itertuples():
            named.setdefault(row, []).append(f"{name} {first:.{digits}f} → {last:.{digits}f}")
    return "".join(f"\noutside the plot: {row}, {', '.join(values)}" for row, values in named.items())


def drawn_rows(numbers):
    """Return the rows that are within the frame of any metric."""
    return {row for metric in style.METRICS for row in numbers.row[inside(numbers, metric)]}


def one_pass(numbers):
    """Whether a row needs one pass only, such as Single: its value is also a dotted line."""
    return numbers.groupby("row").samples.transform("max") == 1


def dotted_text(numbers):
    rows = list(dict.fromkeys(numbers.row[one_pass(numbers)]))
    return f"; dotted: {' and '.join(rows)}, in one pass" if rows else ""


def partly_timed_text(frame):
    """Name the rows of which only some seeds have a time."""
    unknown = frame.ms.isna().groupby(frame.row, sort=False).agg(["any", "all"])
    rows = unknown.index[unknown["any"] & ~unknown["all"]]
    return f"\ntest time known for some seeds only: {', '.join(rows)}" if len(rows) else ""


def untimed_text(numbers):
    """Name the rows without a time, if others have one."""
    unknown = numbers.ours_ms.isna()
    rows = list(dict.fromkeys(numbers.row[unknown])) if not unknown.all() else []
    return f"\ntest time unknown: {', '.join(rows)}" if rows else ""


def panel(axis, numbers, cost, metric, looks):
    """Draw the curves that end within one frame, with a band of one standard deviation if there are several seeds."""
    shown, ours = numbers[inside(numbers, metric)], f"ours_{metric}"
    for row, curve in shown.groupby("row", sort=False):
        axis.plot(curve[cost], curve[ours], **looks[row])
        style.band(axis, curve[cost], curve[ours], curve[f"std_{metric}"], looks[row])
    for single in shown[one_pass(shown)].itertuples():
        look = {"color": looks[single.row]["color"], "linewidth": 0.9, "linestyle": ":"}
        axis.axhline(getattr(single, ours), label=single.row, **look)
    axis.set(xscale="log", ylim=style.limits(shown[ours], metric), xlabel=COSTS[cost], ylabel=style.METRICS[metric])
    style.plain_ticks(axis.xaxis)


@style.styled
def panels(numbers, title):
    """Draw one line of panels per cost, of the rows for which it is known; without any times there is one line."""
    costs = [cost for cost in COSTS if numbers[cost].notna().any()]
    figure, axes = style.canvas(style.WIDTH, 2.7 * len(costs) + 1.3, nrows=len(costs), ncols=3, squeeze=False)
    looks = style.lines_of(methods_of(numbers))
    for axis, (cost, metric) in zip(axes.flat, product(costs, style.METRICS), strict=True):
        panel(axis, numbers[numbers[cost].notna()], cost, metric, looks)
    style.head(figure, title + untimed_text(numbers) + outside_text(numbers))
    shown = {row: Line2D([], [], **look) for row, look in looks.items() if row in drawn_rows(numbers)}
    style.legend_below(figure, shown.values(), shown, 4)
    return figure


def first_text(runs):
    """Say if the time of a first pass is that of the pass without noise, which was not compiled as the others were."""
    compiled = [run.result for run in runs.itertuples() if not (run.uncompiled or run.on_cpu)]
    if any((result.twin or {}).get("ms_per_image") and not result.first_ms_per_image for result in compiled):
        return "\nthe first pass of some rows was timed without compilation, so it may look too slow"
    return ""


def draw(network, folder):
    frame = load(network)
    if frame.empty or frame.samples.max() == 1:
        return []
    numbers = curves(frame)
    title = f"{network.title()}, {count_text(numbers.n)}{dotted_text(numbers)}"
    between = BETWEEN if numbers.ours_ms.notna().any() else ""
    title += between + uncompiled_text(network, numbers.row) + first_text(network.clean)
    title += partly_timed_text(frame)
    return style.save(panels(numbers, title), folder / "samples", numbers)
