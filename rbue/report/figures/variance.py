"""Section 3.4, the variance of a DropReLU layer: exact, by the paper's formula, and simulated; over q and per layer.

The output is Σ (1−Q)·x + Q·ReLU(x). The paper adds the variances of the two terms. They share Q, so twice their
covariance must be added too, which cancels the positive inputs: Var = q(1−q)·Σ_{x<0} x².
"""

import numpy as np
import pandas as pd

from rbue.report import simulation
from rbue.report.columns import Column, Grid, count, decimals, number, shown, times, words
from rbue.report.figures import style
from rbue.report.figures.frames import count_text, stacked
from rbue.report.records import over_seeds
from rbue.report.tables import write_forms

Q = np.round(np.arange(0.05, 1, 0.05), 2)
PAPERS_Q = (0.8, 0.85, 0.9, 0.95)
LINES = {  # column → (legend, keywords for plot)
    "paper": ("the paper's formula", {"color": style.INK, "linestyle": "--"}),
    "dropout": ("dropout at p = 1 − q", {"color": style.COLOURS["mc_dropout"], "linestyle": "-."}),
    "closed": ("exact", {"color": style.COLOURS["dropreLU"], "linestyle": "-"}),
}
DRAWN = {"color": style.COLOURS["dropreLU"], "linestyle": "none", "marker": "o", "markersize": 5, "mfc": "none"}


# --- over q -----------------------------------------------------------------------------------------------------------


def over_q():
    """Return one row per q: the same standard normal inputs through DropReLU and through dropout at p = 1 − q."""
    x = simulation.inputs()
    drawn = [simulation.simulate(x, q, simulation.dropreLU) for q in Q]
    formulas = {"closed": simulation.exact, "paper": simulation.printed, "dropout": simulation.exact_dropout}
    computed = {name: [variance(x, q) for q in Q] for name, variance in formulas.items()}
    simulated = {"monte_carlo": [each.variance for each in drawn], "monte_carlo_se": [each.se for each in drawn]}
    return pd.DataFrame({"q": Q} | computed | simulated)


def terms(q):
    """Return the terms of the variance at one q: those that the paper adds, the one it omits, and the sum."""
    x = simulation.inputs()
    positive, every = simulation.exact_epsilon(x, q), simulation.exact_dropout(x, q)
    return {"Var of\n(1−Q)·x": every, "Var of\nQ·ReLU(x)": positive, "2·Cov,\nomitted": -2 * positive}


def curve_panel(axis, frame):
    for column, (label, look) in LINES.items():
        axis.plot(frame.q, frame[column], label=label, **look)
    error = 3 * frame.monte_carlo_se
    axis.errorbar(frame.q, frame.monte_carlo, error, label="simulated, ± 3 standard errors", elinewidth=0.8, **DRAWN)
    axis.set(xlabel="q", ylabel="Variance of the layer's sum", ylim=(0, None), title="The same inputs at every q")


def sum_panel(axis, q):
    """Draw a waterfall: the paper's two terms up, the covariance down, and the result."""
    parts = terms(q)
    ends = np.cumsum([0, *parts.values()])
    colours, hatches = [(style.INK, 0.3), (style.INK, 0.3), "none"], ["", "", "///"]
    axis.bar(range(3), parts.values(), bottom=ends[:3], color=colours, edgecolor=style.INK, hatch=hatches, width=0.6)
    axis.bar([3], ends[-1:], color=style.COLOURS["dropreLU"], width=0.6)
    axis.hlines(ends[1:4], [0.3, 1.3, 2.3], [0.7, 1.7, 2.7], color=style.INK, linewidth=0.8)
    axis.text(0, ends[2], "the paper\nstops here", ha="center", va="center")
    axis.annotate("", (0.68, ends[2]), (0.45, ends[2]), arrowprops={"arrowstyle": "->", "color": style.INK})
    axis.set_xticks(range(4), [*parts, "exact:\nq(1−q)·Σ x²\nover x < 0"])
    axis.set(title=f"Where the proof goes wrong, q = {q:g}", ylabel="Variance", ylim=(0, 1.08 * ends.max()))
    axis.grid(axis="x", visible=False)


@style.styled
def over_q_figure(frame):
    figure, (left, right) = style.canvas(style.WIDTH, 4.2, ncols=2)
    curve_panel(left, frame)
    sum_panel(right, 0.8)
    style.head(figure, f"Variance of a DropReLU layer, {simulation.INPUTS} standard normal inputs")
    style.legend_below(figure, *left.get_legend_handles_labels(), 4)
    return figure


def over_q_grid(frame):
    with_error = "{monte_carlo:.2f} ± {monte_carlo_se:.2f}".format_map
    drawn = Column("monte_carlo", "Simulated", "", with_error, lambda cell: cell["monte_carlo"])
    columns = [number("q", "q", "", "{:g}".format), *compared(decimals(2), drawn, "Dropout, p = 1 − q")]
    notes = [
        f"{simulation.INPUTS} inputs from N(0, 1), {simulation.DRAWS:,} draws. Dropout has the same inputs and is not "
        "scaled, as in the paper. At q = 1 − p, the paper claims a larger variance for DropReLU; it is smaller."
    ]
    return Grid("Variance of a DropReLU layer over q", columns, frame[frame.q.isin(PAPERS_Q)].to_dict("records"), notes)


def compared(text, drawn, dropout, of=""):
    """Return columns of the four variances, whose keys start with `of`, and of two ratios."""
    closed, paper, other = (f"{of}{name}" for name in ("closed", "paper", "dropout"))
    return [
        number(closed, "Exact", "", text),
        drawn,
        number(paper, "The paper's formula", "", text),
        ratio("Paper / exact", paper, closed),
        number(other, dropout, "", text),
        ratio("Exact / dropout", closed, other),
    ]


def ratio(header, above, below):
    """Make a column of a ratio, `2.89×`; empty for a layer whose inputs are never negative."""

    def value(cell):
        return cell[above] / cell[below] if cell[below] else None

    return Column(header, header, "", lambda cell: times(value(cell)), value)


def draw_over_q(out):
    """Write <out>/variance, which needs no run."""
    frame = over_q()
    return [
        *style.save(over_q_figure(frame), out / "variance", frame),
        *write_forms(out / "variance", {"md": over_q_grid(frame).markdown()}),
    ]


# --- layer by layer ---------------------------------------------------------------------------------------------------


def load(network):
    """Return one row per (run, layer) of every trained DropReLU network."""
    return stacked(network, lambda result: pd.DataFrame(map(vars, result.variance)) if result.variance else None)


def layers(frame):
    """Mean over seeds, with n."""
    return over_seeds(frame, ["row", "site", "name", "elements"], ["closed", "paper", "monte_carlo", "dropout"])


BEHIND = {"dropout": ("dropout after the rectifier, p = 1 − q", LINES["dropout"][1])}  # its place in networks
DOTS = {"paper": "_", "dropout": "s", "closed": "o"}  # marker of each column where layers are too many for lines
MANY = 40  # layers


def layer_panel(axis, numbers, row):
    """Draw lines with the draws on them. If layers are many and differ in turn, dots show bands instead of a zigzag."""
    at, many = numbers.site + 1, len(numbers) > MANY
    for column, (label, look) in (LINES | BEHIND).items():
        dots = {"linestyle": "none", "marker": DOTS[column], "markersize": 5, "markeredgewidth": 1.4} if many else {}
        axis.plot(at, numbers[f"ours_{column}"], label=label, **look | dots)
    axis.plot(at, numbers.ours_monte_carlo, label="simulated", **DRAWN)
    axis.set(yscale="log", title=row)
    style.plain_ticks(axis.yaxis)
    axis.xaxis.get_major_locator().set_params(integer=True)


@style.styled
def layers_figure(numbers, title):
    rows = list(dict.fromkeys(numbers.row))
    wide = numbers.site.max() >= MANY
    size = (style.WIDTH, 3.4) if wide else (style.WIDTH / 2, 2.4)
    figure, axes = style.panel_grid(len(rows), 1 if wide else 2, *size, margin=1.1, sharex=True)
    for axis, row in zip(axes.flat, rows, strict=False):
        layer_panel(axis, numbers[numbers.row == row], row)
    style.head(figure, title)
    style.label_below(axes, len(rows), "Layer, in the order of execution")
    figure.supylabel("Variance of the layer's sum")
    style.legend_below(figure, *axes.flat[0].get_legend_handles_labels(), 4)
    return figure


@shown
def size(value):
    """Format with at least three digits: layers differ by orders of magnitude."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def layers_grid(network, numbers):
    """Return a row per layer for the paper's own comparison, q = 0.8 and p = 0.2, or else for the lowest q."""
    row = "MC-DropReLU(0.8)" if "MC-DropReLU(0.8)" in set(numbers.row) else numbers.row.iloc[0]
    drawn = number("ours_monte_carlo", "Simulated", "", size)
    columns = [
        words("name", "Layer", text=lambda layer: f"{layer['site'] + 1} {layer['name']}"),
        number("elements", "Elements", "", count),
        *compared(size, drawn, "Dropout", of="ours_"),
    ]
    notes = [
        "Mean over the first 32 test images. Dropout (p = 1 − q, not scaled) comes after the layer's rectifier here, "
        "as in real networks; in the paper's proof, it acts on the rectifier's input. DropReLU has the larger variance "
        "in layers where the negative inputs have the larger sum of squares."
    ]
    layers = numbers[numbers.row == row].to_dict("records")
    return Grid(f"Variance layer by layer: {network.title()}, {row}", columns, layers, notes)


def grids(network):
    """Return the table of the layers. The page has none of many layers: their figure links to the numbers."""
    frame = load(network)
    return [layers_grid(network, layers(frame))] if len(frame) and frame.site.nunique() <= MANY else []


def draw(network, folder):
    frame = load(network)
    if frame.empty:
        return []
    numbers = layers(frame)
    title = f"{network.title()}, {count_text(numbers.n)}"
    return [
        *style.save(layers_figure(numbers, title), folder / "variance", numbers),
        *write_forms(folder / "variance", {"md": layers_grid(network, numbers).markdown()}),
    ]
