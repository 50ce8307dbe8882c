"""The space of behaviours (Section 4.5): accuracy against ECE, one point per setting; the bottom right is best."""

import pandas as pd
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D

from rbue.report.cells import paper_cells
from rbue.report.figures.frames import count_text
from rbue.report.figures.style import (
    COLOURS,
    MARKERS,
    METRICS,
    canvas,
    fitted,
    framed,
    legend_below,
    limits,
    save,
    styled,
    write_csv,
)
from rbue.report.records import over_seeds
from rbue.report.rows import METHODS, NAMES, OWN_NAMES

COLUMNS = ["origin", "row", "method", "p", "q", "accuracy", "ece", "std_accuracy", "std_ece", "n"]


# --- frame ------------------------------------------------------------------------------------------------------------


def points(runs):
    """Mean and std over seeds, with n. p is MC-Dropout's and q MC-DropReLU's; a user's method may have a p or q too."""
    axes = (("p", "mc_dropout"), ("q", "dropreLU"))
    own = {name: runs.hyperparameter.where(runs.method == method) for name, method in axes}
    frame = over_seeds(runs.assign(**own), ["row", "method", *own], ["accuracy", "ece"])
    return frame.rename(columns=lambda name: name.removeprefix("ours_")).assign(origin="ours")[COLUMNS]


def paper_points(network, paper_dir):
    cells = paper_cells(paper_dir)
    cells = cells[(cells.dataset == network.dataset) & (cells.arch == network.arch)]
    return cells.assign(origin="paper").reindex(columns=COLUMNS)


# --- draw -------------------------------------------------------------------------------------------------------------


def q_scale(frame):
    """Scale colours for q. Viridis without its palest end, which is invisible on white; the paper's q always fit."""
    q = pd.concat([frame.q.dropna(), pd.Series([0.8, 0.95])])
    return Normalize(q.min(), q.max() + 0.1 * (q.max() - q.min()))


def colour_of(point, scale):
    return COLOURS[point.method] if pd.isna(point.q) else colormaps["viridis"](scale(point.q))


def labelled(frame):
    """Decide label positions. A method's points lie close together: the lowest is labelled below, the others above."""
    rank = frame.groupby(["origin", "method"]).ece.rank(method="first")
    return frame.assign(below=rank == 1)


def mark(axis, point, colour, setting):
    """Draw a point: ours filled, the paper's hollow."""
    ours = point.origin == "ours"
    face, edge = (colour, "black") if ours else ("none", colour)
    size = 13 if MARKERS[point.method] == "*" else 8  # a star has little area for its width
    look = {"markersize": size, "markeredgecolor": edge, "markeredgewidth": 0.6 if ours else 1.5}
    axis.plot(point.accuracy, point.ece, MARKERS[point.method], markerfacecolor=face, zorder=3 if ours else 2, **look)
    if text := f"p={point.p:g}" if not pd.isna(point.p) else setting:
        where = {"xytext": (0, -13 if point.below else 7), "textcoords": "offset points", "ha": "center"}
        axis.annotate(text, (point.accuracy, point.ece), fontsize=7, zorder=4, **where)


def own_settings(runs):
    """Return {row: hyperparameters as text} of a user's own methods."""
    own = runs[~runs.method.isin(METHODS)]
    texts = [", ".join(f"{key}={value}" for key, value in each.items()) for each in own.hyperparameters]
    return dict(zip(own.row, texts, strict=True))


def outside_text(points):
    """Name the points outside the frame with their values, so that none is dropped silently."""
    points = points.itertuples()
    return [
        f"\nbeyond the frame: {p.row}{' (paper)' if p.origin == 'paper' else ''}, {p.accuracy:.1f} %, {p.ece:.3f}"
        for p in points
    ]


def legend(figure, frame):
    look = {"linestyle": "none", "markeredgecolor": "black", "markeredgewidth": 0.6}
    handles = [
        Line2D([], [], marker=MARKERS[m], markersize=8, color="white" if m == "dropreLU" else COLOURS[m], **look)
        for m in frame.method.unique()
    ]
    labels = [
        (NAMES | OWN_NAMES).get(m, m) + (" (colour: q)" if m == "dropreLU" else "") for m in frame.method.unique()
    ]
    legend_below(figure, handles, labels, 3)


@styled
def scatter(frame, title, settings):
    figure, axis = canvas(5.4, 4.5)
    inside, scale = framed(frame.accuracy, "accuracy") & framed(frame.ece, "ece"), q_scale(frame)
    for point in labelled(frame[inside]).itertuples():
        mark(axis, point, colour_of(point, scale), settings.get(point.row))
    axis.set(xlim=limits(frame.accuracy[inside]), ylim=limits(frame.ece[inside]))
    axis.set(xlabel=METRICS["accuracy"], ylabel=METRICS["ece"])
    axis.set_title(fitted(title + "".join(outside_text(frame[~inside])), figure))
    if frame.q.notna().any():
        mapped = ScalarMappable(scale, "viridis")
        figure.colorbar(mapped, ax=axis, label="MC-DropReLU's q", ticks=sorted(frame.q.dropna().unique()), aspect=30)
    legend(figure, frame)
    return figure


def draw(network, paper_dir, folder):
    if network.clean.empty:
        return []
    ours, paper = points(network.clean), paper_points(network, paper_dir)
    frame = ours if paper.empty else pd.concat([ours, paper.dropna(axis=1, how="all")], ignore_index=True)
    whose = f"ours, {count_text(ours.n)}" if paper.empty else f"filled: ours, {count_text(ours.n)}; hollow: the paper"
    title = f"{network.title()}\n{whose}"
    figure = scatter(frame, title, own_settings(network.clean))
    return [*save(figure, folder / "behaviours"), write_csv(frame, folder / "behaviours.csv")]
