"""Section 3.2: ReLU, DropReLU and RReLU as curves, and a network in which every unit has its own activation.

The points come from the layers themselves, which need torch: `scripts/activations.py` computes them.
"""

from itertools import pairwise

from rbue.report.figures.style import COLOURS, canvas, save, styled, write_csv

LOOKS = {"ReLU": ("#000000", "(a) ReLU"), "DropReLU": (COLOURS["dropreLU"], "(b) DropReLU, q = {q:g}")}
LOOKS["RReLU"] = (COLOURS["rrelu"], "(c) RReLU, slope in [{l:.3g}, {u:.3g}]")
UNITS = (3, 4, 4, 2)  # units per layer of the drawn network: inputs, two stochastic layers, outputs
GLYPH = 0.23  # half the width of a unit


def curve_panel(axis, points, colour, title):
    """Draw every noise draw as a thin line, so that frequent ones look dark."""
    for _, draw in points.groupby("draw"):
        axis.plot(draw.x, draw.y, color=colour, alpha=max(1 / points.draw.nunique(), 0.25), linewidth=1.5)
    axis.axhline(0, color="black", linewidth=0.6)
    axis.axvline(0, color="black", linewidth=0.6)
    axis.set(title=title, xlabel="x", aspect="equal")


@styled
def curves(frame, hyperparameters):
    figure, axes = canvas(7, 2.7, ncols=3, sharey=True)
    for axis, (layer, (colour, title)) in zip(axes, LOOKS.items(), strict=True):
        curve_panel(axis, frame[frame.layer == layer], colour, title.format(**hyperparameters))
    return figure


def slopes(frame, layer):
    """Return the slope of each draw on the negative side: one per unit of the network."""
    at = frame[(frame.layer == layer) & (frame.x == frame.x.min())]
    return (at.y / at.x).tolist()


def places(count, column):
    return [(2.1 * column, k - (count - 1) / 2) for k in range(count)]


def unit(axis, x, y, slope, colour):
    """Draw a unit as a circle with its own activation inside; inputs and outputs have none."""
    axis.scatter([x], [y], s=620, color="white", edgecolor="#555555", linewidth=0.9, zorder=2)
    if slope is not None:
        axis.plot([x - GLYPH, x, x + GLYPH], [y - slope * GLYPH, y, y + GLYPH], color=colour, linewidth=1.6, zorder=3)


def network_panel(axis, drawn, colour, title):
    columns, drawn = [places(count, k) for k, count in enumerate(UNITS)], iter(drawn)
    for left, right in pairwise(columns):
        for x, y in left:
            axis.plot([[x] * len(right), [p[0] for p in right]], [[y] * len(right), [p[1] for p in right]], **WIRE)
    for k, column in enumerate(columns):
        for x, y in column:
            unit(axis, x, y, next(drawn) if k in (1, 2) else None, colour)
    axis.set(title=title, aspect="equal", xlim=(-0.6, 6.9), ylim=(-2.1, 2.1))
    axis.set_axis_off()


WIRE = {"color": "#CCCCCC", "linewidth": 0.6, "zorder": 1}


@styled
def networks(frame):
    figure, axes = canvas(7, 2.4, ncols=2)
    for axis, layer in zip(axes, ("DropReLU", "RReLU"), strict=True):
        colour = LOOKS[layer][0]
        network_panel(axis, slopes(frame, layer), colour, f"{layer}: every unit draws its own, anew each pass")
    return figure


def draw(frame, hyperparameters, out):
    """Write <out>/activations and <out>/activations-network, from one row per (layer, draw, x)."""
    return [
        *save(curves(frame, hyperparameters), out / "activations"),
        *save(networks(frame), out / "activations-network"),
        write_csv(frame, out / "activations.csv"),
    ]
