"""The space of behaviours (Section 4.5): accuracy against ECE, one point per setting; the bottom right is best."""

import pandas as pd
from matplotlib.lines import Line2D

from rbue.report.cells import paper_cells
from rbue.report.figures.frames import count_text, methods_of, with_errors
from rbue.report.figures.style import INK, canvas, framed, head, legend_below, limits, lines_of, save, styled
from rbue.report.rows import in_order

SCORES = [f"{kind}{metric}" for kind in ("", "std_", "se_") for metric in ("accuracy", "ece")]
COLUMNS = ["origin", "row", "method", "p", "q", *SCORES, "n"]


# --- frame ------------------------------------------------------------------------------------------------------------


def points(runs):
    """Mean, std and standard error over seeds, with n. p is MC-Dropout's and q MC-DropReLU's; a user's method may have
    a p or q too."""
    axes = (("p", "mc_dropout"), ("q", "dropreLU"))
    own = {name: runs.hyperparameter.where(runs.method == method) for name, method in axes}
    frame = with_errors(runs.assign(**own), ["row", "method", *own])
    return frame.rename(columns=lambda name: name.removeprefix("ours_")).assign(origin="ours")[COLUMNS]


def paper_points(network):
    cells = paper_cells(network.paper_dir)
    cells = cells[(cells.dataset == network.dataset) & (cells.arch == network.arch)]
    return cells.assign(origin="paper").reindex(columns=COLUMNS)


# --- draw -------------------------------------------------------------------------------------------------------------


def mark(axis, point, look):
    """Draw a point: ours filled, with one standard error each way; the paper's hollow."""
    look = look | {"markersize": 1.4 * look["markersize"]}
    if point.origin == "ours":
        error = {"ecolor": (look["color"], 0.6), "elinewidth": 1, "zorder": 3}
        axis.errorbar(point.accuracy, point.ece, point.se_ece, point.se_accuracy, linestyle="none", **error, **look)
    else:
        axis.plot(point.accuracy, point.ece, markerfacecolor="none", markeredgewidth=1.4, linestyle="none", **look)


def connect(axis, frame, looks):
    """Draw a thin line from the paper's point of a row to ours."""
    for row, pair in frame.groupby("row", sort=False):
        axis.plot(pair.accuracy, pair.ece, color=looks[row]["color"], alpha=0.5, linewidth=0.8, label=row, zorder=1)


def ends(frame, metric):
    """Return both ends of each point's error bar."""
    error = frame[f"se_{metric}"].fillna(0)
    return pd.concat([frame[metric] - error, frame[metric] + error])


def outside_text(points):
    """Name the points outside the frame with their values, so that none is dropped silently."""
    return [
        f"\noutside the plot: {p.row}{' (paper)' if p.origin == 'paper' else ''}, {p.accuracy:.1f} %, ECE {p.ece:.3f}"
        for p in points.itertuples()
    ]


def legend(figure, looks, with_paper):
    """Name the rows that have a point of either kind, then the two kinds."""
    point = {"linestyle": "none"}
    handles = {row: Line2D([], [], **point, **looks[row]) for row in in_order(looks)}
    if with_paper:
        either = {"color": INK, "marker": "o", "markersize": 6}
        handles["ours ± 1 standard error"] = Line2D([], [], linewidth=1, **either)
        handles["printed by the paper"] = Line2D([], [], markerfacecolor="none", **point, **either)
    legend_below(figure, handles.values(), handles, 4)


def shown(frame):
    """Whether a point is near the others of its origin: our points may be far from the paper's."""
    accuracy, ece = (frame.groupby("origin")[metric].transform(framed, metric) for metric in ("accuracy", "ece"))
    return accuracy & ece


@styled
def scatter(frame, title):
    figure, axis = canvas(8, 5.4)
    inside = shown(frame)
    looks = lines_of(methods_of(frame[inside]))
    connect(axis, frame[inside], looks)
    for point in frame[inside].itertuples():
        mark(axis, point, looks[point.row])
    xlim, ylim = (limits(ends(frame[inside], metric), metric) for metric in ("accuracy", "ece"))
    axis.set(xlim=xlim, ylim=ylim)
    axis.set(xlabel="Accuracy (%, higher is better)", ylabel="ECE (lower is better)")
    head(figure, title + "".join(outside_text(frame[~inside])))
    legend(figure, looks, "paper" in set(frame.origin))
    return figure


def draw(network, folder):
    if network.clean.empty:
        return []
    ours, paper = points(network.clean), paper_points(network)
    frame = ours if paper.empty else pd.concat([ours, paper.dropna(axis=1, how="all")], ignore_index=True)
    return save(scatter(frame, f"{network.title()}, {count_text(ours.n)}"), folder / "behaviours", frame)
