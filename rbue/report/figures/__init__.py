"""The paper's figures from finished runs: PDF for print, SVG for pages, and the plotted numbers as CSV.

    for network in networks(records(collect("results/runs"))):
        for figure, paths in draw(network, "results/figures").items():
            print(figure, paths)

Each module has three stages, load → frame → draw. A frame holds every number of its figure and is tested; drawing
computes nothing. The files contain no timestamp, so the same runs give the same bytes.
"""

import shlex
from pathlib import Path

from rbue import plugins
from rbue.report.figures import (
    behaviours,
    beyond,
    corruptions,
    diversity,
    framework,
    posterior,
    reliability,
    samples,
    variance,
)
from rbue.report.figures.frames import left_out, networks
from rbue.runs.places import COMMAND

__all__ = ["FIGURES", "draw", "draw_general", "grids", "left_out", "makes", "networks"]

FIGURES = {  # title → f(network, folder), which returns the written paths; none if no run has the data
    "corruption box plots": corruptions.draw,
    "diversity matrices": diversity.draw,
    "space of behaviours": behaviours.draw,
    "framework with a real image": framework.draw,
    "variance layer by layer": variance.draw,
    "posterior of the weights": posterior.draw,
    "metrics against samples": samples.draw,
    "reliability diagrams": reliability.draw_reliability,
    "error against rejection": reliability.draw_rejection,
    "tables of twins, temperature and OOD images": beyond.draw,
}
RESULTS = "results/runs"  # where train.py puts results unless results_dir= says otherwise
GRIDS = (diversity.grids, corruptions.grids, variance.grids, beyond.grids)


def draw(network, out):
    """Draw all figures below <out>/<protocol>/<dataset>/<arch>. Return {figure: paths}, [] if data is missing."""
    folder = network.folder(out)
    return {name: render(network, folder) for name, render in FIGURES.items()}


def draw_general(out):
    """Draw the figures that need no run."""
    return variance.draw_over_q(Path(out))


def grids(network):
    """Return the tables in the folder of a network's figures, as text."""
    return [grid for tables in GRIDS for grid in tables(network)]


def makes(figure, network, results=RESULTS):
    """Return the command whose results, in this folder, a missing figure needs."""
    dataset = f"{network.dataset}_c" if figure == "corruption box plots" else network.dataset
    choices = f"sweep=rows dataset={dataset} arch={network.arch} protocol={network.protocol}"
    where = [f"results_dir={shlex.quote(str(results))}"] if str(results) != RESULTS else []
    return " ".join([COMMAND, "-m", *plugins.words(), choices, *where])
