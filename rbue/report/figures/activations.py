"""Section 3.2: ReLU, DropReLU and RReLU as curves, and a network in which every unit has its own activation.

The points come from the layers themselves, which need torch: `scripts/activations.py` computes them.
"""

from itertools import pairwise, product

import numpy as np
from matplotlib.patches import Circle

from rbue.report.figures.style import COLOURS, INK, WIDTH, canvas, save, styled

LOOKS = {"ReLU": (INK, "(a) ReLU"), "DropReLU": (COLOURS["dropreLU"], "(b) DropReLU, q = {q:g}")}
LOOKS["RReLU"] = (COLOURS["rrelu"], "(c) RReLU, slope in [{l:.3g}, {u:.3g}]")
UNITS = (3, 4, 4, 2)  # units per layer of the drawn network: inputs, two stochastic layers, outputs
GLYPH, RADIUS = 0.23, 0.38  # half the width of the drawn activation and of its circle


def curve_panel(axis, points, colour, title):
    """Draw every noise draw as a thin line, so that frequent ones look dark."""
    for _, draw in points.groupby("draw"):
        axis.plot(draw.x, draw.y, label=title, color=colour, alpha=max(1 / points.draw.nunique(), 0.25), linewidth=1.5)
    axis.axhline(0, color=INK, linewidth=0.6)
    axis.axvline(0, color=INK, linewidth=0.6)
    axis.set(title=title, xlabel="x", aspect="equal")


@styled
def curves(frame, hyperparameters):
    figure, axes = canvas(WIDTH, 3.4, ncols=3, sharey=True)
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
    axis.add_patch(Circle((x, y), RADIUS, facecolor="none", edgecolor=INK, linewidth=0.9))
    if slope is not None:
        axis.plot([x - GLYPH, x, x + GLYPH], [y - slope * GLYPH, y, y + GLYPH], color=colour, linewidth=1.6)


def network_panel(axis, drawn, colour, title):
    columns, drawn = [places(count, k) for k, count in enumerate(UNITS)], iter(drawn)
    for left, right in pairwise(columns):
        for start, end in product(left, right):
            axis.plot(*wire(start, end), color=INK, alpha=0.3, linewidth=0.6)
    for k, column in enumerate(columns):
        for x, y in column:
            unit(axis, x, y, next(drawn) if k in (1, 2) else None, colour)
    axis.set(title=title, aspect="equal", xlim=(-0.6, 6.9), ylim=(-2.1, 2.1))
    axis.set_axis_off()


def wire(start, end):
    """Return x and y of the line between two circles' edges: a circle is transparent and would not hide the rest."""
    start, end = np.array(start), np.array(end)
    step = RADIUS * (end - start) / np.hypot(*(end - start))
    return np.column_stack([start + step, end - step])


@styled
def networks(frame):
    figure, axes = canvas(WIDTH, 3, ncols=2)
    for axis, layer in zip(axes, ("DropReLU", "RReLU"), strict=True):
        colour = LOOKS[layer][0]
        network_panel(axis, slopes(frame, layer), colour, f"{layer}: each unit draws its own in each pass")
    return figure


def draw(frame, hyperparameters, out):
    """Write <out>/activations and <out>/activations-network, from one row per (layer, draw, x)."""
    shown = save(curves(frame, hyperparameters), out / "activations", frame)
    return [*shown, *save(networks(frame), out / "activations-network")]
