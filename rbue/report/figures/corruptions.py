"""Accuracy and calibration under 19 corruptions and 5 severities: box plots, median ECE, averages (Sections 4.2, 4.3).

Generated, official and unverified images differ, so each source has its own files, and no number mixes them.
"""

from itertools import chain

import pandas as pd

from rbue.methods import draws_samples
from rbue.report.columns import METHOD, Grid, decimals, number
from rbue.report.figures import style
from rbue.report.figures.frames import count_text, methods_of, nearest
from rbue.report.paper import CORRUPTIONS
from rbue.report.records import LEVEL_SCORES, levels, most_passes, over_seeds, over_types
from rbue.report.rows import IN_BLOCKS, METHODS
from rbue.report.tables import csv_text, write_forms, write_grid

SIX = {"single": 0, "mc_dropout": 0.5, "deep_ensemble": 4, "svi": 0, "rrelu": 0}
Q = {"cifar10": 0.95, "tinyimagenet": 0.9}  # in the paper's two box plots
SEVERITIES = range(6)
RUN = ["row", "seed"]
WHO = [*RUN, "method", "hyperparameter", "source", "passes"]
FIVE = {"min": 0, "q1": 0.25, "median": 0.5, "q3": 0.75, "max": 1}


# --- load -------------------------------------------------------------------------------------------------------------


def load(network):
    """Return one row per (run, type, severity), accuracy in percent; severity 0, type `none`, is the clean test set."""
    tested = network.corrupted.result.map(lambda result: bool(result.corruptions and result.corruptions.types))
    runs = network.corrupted[tested.astype(bool)]
    runs = most_passes(runs.assign(source=[result.corruptions.source for result in runs.result]), [*RUN, "source"])
    parts = [levels(run.result).assign(**{key: getattr(run, key) for key in WHO}) for run in runs.itertuples()]
    if not parts:
        return pd.DataFrame()
    frame = pd.concat(parts, ignore_index=True)
    return frame.drop_duplicates([*RUN, "source", "type", "severity"])  # a run of `auto` may repeat one of `generated`


def six(frame, dataset):
    """Select the paper's six methods, each at the paper's setting or the nearest one, dropout in every block, and all
    methods of the user."""
    wanted = SIX | {"dropreLU": Q.get(dataset, 0.95)}
    rows = [row for method, hyperparameter in wanted.items() if (row := nearest(frame, method, hyperparameter))]
    return frame[frame.row.isin(rows) | frame.row.str.endswith(IN_BLOCKS) | ~frame.method.isin(METHODS)]


def shared_types(frame):
    """Return the types that all runs have: quartiles over different sets of types cannot be compared."""
    runs = frame[frame.severity > 0].groupby(RUN).type.unique()
    return sorted(set.intersection(*map(set, runs))) if len(runs) else []


def by_source(frame):
    """Return (source, its part) of each source whose runs share a type: without one, there is nothing to compare."""
    return [found for found in frame.groupby("source") if shared_types(found[1])] if len(frame) else []


# --- frame ------------------------------------------------------------------------------------------------------------


def comparable(frame):
    """Keep the clean images and the types that all runs have."""
    return frame[frame.type.isin([*shared_types(frame), "none"])]


def seed_means(frame):
    """Mean over seeds of each (row, type, severity), with n."""
    return over_seeds(comparable(frame), ["row", "method", "type", "severity"], LEVEL_SCORES)


def five_numbers(frame):
    """Compute the boxes per (row, severity, metric): quartiles over types, whiskers at minimum and maximum."""
    frame = comparable(frame)
    boxes = pd.concat([number_of_boxes(frame, name, share) for name, share in FIVE.items()], axis=1).reset_index()
    types = frame.groupby("severity").type.nunique()
    return boxes.assign(types=boxes.severity.map(types))[["row", "method", "severity", "metric", *FIVE, "types", "n"]]


def number_of_boxes(frame, name, share):
    """Compute one number of each run's box, then its mean over seeds, as the claims do with the median."""
    cell = ["row", "method", "severity"]
    means = over_seeds(over_types(frame, share, ["row", "method", "seed"]).reset_index(), cell, LEVEL_SCORES)
    means = means.rename(columns={f"ours_{score}": score for score in LEVEL_SCORES})
    return means.melt([*cell, "n"], LEVEL_SCORES, "metric", name).set_index([*cell, "metric", "n"])


def averages(cells):
    """Means over types and severities 1 to 5, and the error relative to Single's.

    mce is that of Hendrycks and Dietterich: per type, the error summed over severities divided by Single's, then
    averaged over types, in percent. error_ratio is the ratio of the two mean errors. Both are empty without Single;
    mce is also empty if Single makes no error on a type, since a mean over fewer types would mislead.
    """
    scores = {"error": 100 - cells.ours_accuracy, "ece": cells.ours_ece, "nll": cells.ours_nll}
    cells = cells.assign(**scores)[cells.severity > 0]
    groups = cells.groupby(["row"], sort=False)
    frame = groups[list(scores)].mean().add_prefix("mean_")
    by_type = cells.pivot_table("error", "type", "row", aggfunc="sum")
    single = by_type.get("Single", by_type.iloc[:, 0] * float("nan"))
    frame["error_ratio"] = frame.mean_error / frame.mean_error.get("Single", float("nan"))
    frame["mce"] = 100 * by_type.div(single.where(single > 0), axis=0).mean(skipna=False)
    return frame.assign(types=cells.type.nunique(), n=groups.n.first()).reset_index()


# --- draw -------------------------------------------------------------------------------------------------------------


def caption(network, source, frame, numbers):
    types = numbers.types.max()
    which = f"{types} corruption types" if types == CORRUPTIONS else f"{types} of {CORRUPTIONS} types"
    drawn = frame[frame.method.map(draws_samples).astype(bool)].passes.dropna()
    samples = f", {count_text(drawn.astype(int), 'sample')}" if len(drawn) else ""
    return f"{network.title('-C')}\n{which}, {source}, {count_text(numbers.n)}{samples}"


def box(row):
    """Return one entry of matplotlib's bxp, so that matplotlib recomputes nothing."""
    return {"whislo": row.min, "q1": row.q1, "med": row.median, "q3": row.q3, "whishi": row.max, "fliers": []}


def boxes(axis, numbers, offset, width, colour, row):
    """Draw one method's five boxes, and its clean test set as a short thick line at severity 0."""
    at, clean = numbers[numbers.severity > 0], numbers[numbers.severity == 0]
    drawn = axis.bxp(
        [box(row) for row in at.itertuples(index=False)],
        positions=list(at.severity + offset),
        widths=width * 0.85,
        patch_artist=True,
        manage_ticks=False,
        boxprops={"facecolor": (colour, 0.45), "edgecolor": colour, "linewidth": 0.8},
        medianprops={"color": colour, "linewidth": 1.8, "solid_capstyle": "butt"},
        whiskerprops={"color": colour, "linewidth": 0.8},
        capprops={"color": colour, "linewidth": 0.8},
    )
    axis.hlines(clean["median"], offset - width / 2, offset + width / 2, colour, linewidth=2.5, label=row)
    for artist in chain.from_iterable(drawn.values()):
        artist.set_label(row)
    return drawn["boxes"][0]


@style.styled
def box_plots(numbers, title):
    figure, axes = style.canvas(style.WIDTH, 6.4, nrows=2, sharex=True)
    rows, handles = style.lines_of(methods_of(numbers)), {}
    width = min(0.13, 0.9 / len(rows))
    for metric, axis in zip(("accuracy", "ece"), axes, strict=True):
        for k, (row, look) in enumerate(rows.items()):
            of_row = numbers[(numbers.row == row) & (numbers.metric == metric)]
            offset = width * (k - (len(rows) - 1) / 2)
            handles[row] = boxes(axis, of_row, offset, width, look["color"], row)
        axis.set_ylabel(style.METRICS[metric])
        axis.grid(axis="x", visible=False)
        for between in SEVERITIES[1:]:
            axis.axvline(between - 0.5, color=style.INK, alpha=0.15, linewidth=0.6)
    axes[1].set(xlabel="Severity (0: clean)", xticks=SEVERITIES, ylim=(0, None), xlim=(-0.5, 5.5))
    style.head(figure, title)
    style.legend_below(figure, handles.values(), handles, 6)
    return figure


@style.styled
def median_curves(numbers, title):
    figure, axis = style.canvas(7, 4.4)
    for row, look in style.lines_of(methods_of(numbers)).items():
        of_row = numbers[(numbers.row == row) & (numbers.metric == "ece")].sort_values("severity")
        axis.plot(of_row.severity, of_row["median"], **look)
    axis.set(xlabel="Severity (0: clean)", ylabel="Median ECE over types", xticks=SEVERITIES, ylim=(0, None))
    style.head(figure, title)
    style.legend_below(figure, *axis.get_legend_handles_labels(), 6)
    return figure


AVERAGES = [
    METHOD,
    number("mean_error", "Mean error (%)", "", decimals(2)),
    number("error_ratio", "Error / Single's", "", decimals(3)),
    number("mce", "mCE (%)", "", decimals(1)),
    number("mean_ece", "Mean ECE", "", decimals(4)),
    number("mean_nll", "Mean NLL", "", decimals(3)),
    number("n", "n", "", str),
]


def averages_grid(network, source, frame):
    """Return the table of averages of one source, with a note on mCE, and one on networks that are not the tables'."""
    note = (
        "Numbers are means over types and severities 1 to 5. For mCE, the error of a type is summed over severities, "
        "then divided by Single's; mCE is the mean of this ratio over types, in percent (Single has 100)."
    )
    means = averages(seed_means(frame))
    title = caption(network, source, frame, means).replace("\n", ", ")
    notes = [note, *trained_again(network, means.row)]
    return Grid(f"Averages under corruption: {title}", AVERAGES, means.to_dict("records"), notes)


def trained_again(network, rows):
    """Yield a note that names the rows with clean results of another training: same name, but another loss."""
    clean, corrupted = (losses(runs) for runs in (network.clean, network.corrupted))
    other = {row for row, name in clean.keys() & corrupted.keys() if clean[row, name] != corrupted[row, name]}
    if ours := [row for row in rows if row in other]:
        yield f"Some clean results of these rows come from other trainings with the same seeds: {', '.join(ours)}."


def losses(runs):
    """Return {(row, training): its final loss} of these runs, where it is known."""
    trainings = [(run.row, training) for run in runs.itertuples() for training in run.result.trainings]
    return {(row, each.name): each.loss for row, each in trainings if each.loss is not None}


def grids(network):
    """Return one table per source of images."""
    return [averages_grid(network, source, part) for source, part in by_source(load(network))]


def draw_source(network, source, frame, folder):
    """Write all files of one source: boxes and curves of `six`, averages and cells of all rows."""
    drawn, stem = six(frame, network.dataset), f"corruptions-{source}"
    numbers = five_numbers(drawn)
    title = caption(network, source, drawn, numbers)
    return [
        *style.save(box_plots(numbers, title), folder / stem, numbers),
        *style.save(median_curves(numbers, title), folder / f"{stem}-ece"),
        *write_forms(folder / f"{stem}-types", {"csv": csv_text(seed_means(frame))}),
        *write_grid(averages_grid(network, source, frame), folder / f"{stem}-averages"),
    ]


def draw(network, folder):
    return [path for source, part in by_source(load(network)) for path in draw_source(network, source, part, folder)]
