"""The answer in one picture: our numbers against the printed ones, and what calibration costs at test time.

Left, each measured cell of the paper's Tables 1-3: the difference of accuracy and of ECE. Right, ECE against
milliseconds per image, for the network with the most measured rows. In both, the colour says the row and the marker
says the network.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from rbue.report.cells import paper_cells
from rbue.report.claims.values import Z, binomial
from rbue.report.figures import beyond, samples
from rbue.report.figures.corruptions import six
from rbue.report.figures.frames import count_text, methods_of, networks, uncompiled_text, with_errors
from rbue.report.figures.style import INK, WIDTH, canvas, head, lines_of, look_of, plain_ticks, save, styled
from rbue.report.paper import HALF, PAPERS_IMAGES
from rbue.report.records import KEY, NETWORK, PLACE, ROW, in_tables
from rbue.report.rows import (
    ARCHS,
    DATASETS,
    FULL,
    METHODS,
    PROPOSED_METHODS,
    arch_name,
    by_protocol,
    dataset_name,
    in_order,
    name_order,
    paper_order,
)

DIFFERENCES = {"accuracy": "Ours − printed\n(percentage points)", "ece": "Ours − printed\n(left: ours is lower)"}
NAMES = {"accuracy": "Accuracy", "ece": "ECE"}
ONE_PASS = {  # kind of a single point → (its marker, which stands for no network; its name in the legend)
    "temperature": ("+", "Single, temperature scaled"),
    "twin": ("x", "noise switched off, one pass"),
}


# --- frame: printed against ours --------------------------------------------------------------------------------------


def compared(records, paper_dir):
    """Return each measured cell with its difference from the printed number and half of its 95 % interval.

    Only schedules as long as the paper's compare. Both sides count as independent, as in claims/values.py: the
    binomial error of the printed number and the standard error of ours add up, and rounding comes on top.
    """
    ours = with_errors(records[in_tables(records) & records.protocol.isin(FULL)], [*KEY, "method"])
    cells = ours.merge(paper_cells(paper_dir)[[*ROW, *DIFFERENCES]], on=ROW)
    noise = binomial(cells.accuracy / 100, PAPERS_IMAGES)
    for metric, unit in (("accuracy", 100), ("ece", 1)):
        cells[f"diff_{metric}"] = cells[f"ours_{metric}"] - cells[metric]
        cells[f"half_{metric}"] = HALF[metric] + Z * np.hypot(cells[f"se_{metric}"], unit * noise)
    return one_protocol(cells.rename(columns={metric: f"paper_{metric}" for metric in DIFFERENCES}))


def one_protocol(cells):
    """Keep each network's protocol with the most measured rows; if there are two, `matched`."""
    rows, rank = cells.groupby(NETWORK).row.transform("size"), cells.protocol.map(FULL.index)
    best = cells.assign(rows=rows, rank=rank).sort_values(["rows", "rank"], ascending=[False, True])
    return cells.merge(best.drop_duplicates(PLACE)[NETWORK], on=NETWORK)


def agree(cells, metric):
    """Whether the interval of each difference contains zero."""
    return cells[f"diff_{metric}"].abs() <= cells[f"half_{metric}"]


# --- frame: quality against cost --------------------------------------------------------------------------------------


def best_measured(records):
    """Return the network with the most timed rows, then the most runs, that has scores by number of samples."""
    return next((network for network in sorted(networks(records), key=order) if not costs(network).empty), None)


def order(network):
    own = network.clean[network.clean.method.isin(METHODS)]
    place = paper_order([network.dataset, network.arch])
    return -own.row[own.test_ms_per_image.notna()].nunique(), by_protocol(network.protocol), -len(own), place


def costs(network):
    """Return ECE, NLL and milliseconds per image of the paper's six methods.

    `kind` says of what: `samples` of that many passes, `twin` of one pass without noise (proposed methods only),
    `temperature` of Single after temperature scaling, which costs no time.
    """
    frame = samples.load(network)
    if frame.empty or frame.samples.max() == 1:
        return pd.DataFrame()
    drawn = six(network.clean[network.clean.method.isin(METHODS)], network.dataset)[["row", "method"]].drop_duplicates()
    curves = samples.curves(frame).assign(kind="samples")
    parts = [curves, twins(network), scaled(network, curves)]
    columns = ["kind", "row", "samples", "ours_ms", "ours_ece", "ours_nll", "n"]
    return pd.concat([part.reindex(columns=columns) for part in parts if len(part)]).merge(drawn, on="row").dropna()


def twins(network):
    frame = beyond.numbers(beyond.twin, network)
    if frame.empty:
        return frame
    proposed = network.clean.row[network.clean.method.isin(PROPOSED_METHODS)]
    names = {f"ours_twin_{name}": f"ours_{name}" for name in ("ms", "ece", "nll")}
    frame = frame.loc[frame.row.isin(proposed), ["row", "n", *names]].rename(columns=names)
    return frame.assign(kind="twin", samples=1)


def scaled(network, curves):
    frame = beyond.numbers(beyond.scaled, network)
    if frame.empty:
        return frame
    names = {"ours_after_ece": "ours_ece", "ours_after_nll": "ours_nll"}
    frame = frame.loc[frame.row == "Single", ["row", "n", *names]].rename(columns=names)
    return frame.merge(curves[["row", "samples", "ours_ms"]], on="row").assign(kind="temperature")


# --- draw -------------------------------------------------------------------------------------------------------------


SHAPE = "#888888"  # in the legend, so that a shape is not taken for Single's points, which are as dark as text
SHAPES = dict(zip(ARCHS, "soD", strict=True))
FILLINGS = dict(zip(DATASETS, ("full", "none", "left"), strict=True))
FILLED = {"full": "filled", "none": "hollow", "left": "half filled"}


def place_look(place):
    """Return the marker of a network. The marker says the architecture, its filling the dataset."""
    return {"marker": SHAPES.get(place[1], "o"), "fillstyle": FILLINGS.get(place[0], "full"), "markersize": 5}


def places_of(cells):
    return sorted(set(zip(cells.dataset, cells.arch, strict=True)), key=paper_order)


def difference_panel(axis, cells, metric):
    """Draw a dot per cell; zero is the printed number."""
    places, rows = places_of(cells), in_order(cells.row)
    for cell in cells.itertuples():
        at = rows.index(cell.row) + 0.75 * ((places.index((cell.dataset, cell.arch)) + 0.5) / len(places) - 0.5)
        look, value = look_of(cell.row, cell.method), getattr(cell, f"diff_{metric}")
        error = {"ecolor": (look["color"], 0.35), "elinewidth": 1.6, "linestyle": "none", "label": cell.row}
        shape = place_look((cell.dataset, cell.arch))
        axis.errorbar(value, at, xerr=getattr(cell, f"half_{metric}"), color=look["color"], **error, **shape)
    axis.axvline(0, color=INK, linewidth=1)
    axis.set(xlabel=DIFFERENCES[metric], ylim=(len(rows) - 0.5, -0.5))
    axis.set_title(f"{NAMES[metric]}: {agree(cells, metric).sum()} of {len(cells)} agree")
    axis.set_yticks(range(len(rows)), rows)
    axis.tick_params(axis="y", length=0)
    axis.xaxis.set_major_locator(MaxNLocator(4))
    axis.grid(axis="y", visible=False)


def curve_looks(frame, place):
    """Return the look of each curve on the right: solid for the variants of RBUE, dashed for the others. A single point
    stands on top of the curves, which begin there."""
    curves = frame[frame.kind == "samples"]
    rows, passes = methods_of(curves), curves.groupby("row").samples.max()
    colours = {row: {"color": look["color"]} for row, look in lines_of(rows).items()}
    lines = {row: "none" if passes[row] == 1 else "-" if method in PROPOSED_METHODS else "--" for row, method in rows}
    return {
        row: look | place_look(place) | {"linestyle": lines[row], "zorder": 2 + (lines[row] == "none")}
        for row, look in colours.items()
    }


def point_look(kind):
    return {"marker": ONE_PASS[kind][0], "markersize": 9, "markeredgewidth": 2, "linestyle": "none"}


def cost_panel(axis, frame, place):
    looks = curve_looks(frame, place)
    for row, curve in frame[frame.kind == "samples"].groupby("row", sort=False):
        axis.plot(curve.ours_ms, curve.ours_ece, label=row, **looks[row])
    for point in frame[frame.kind != "samples"].itertuples():
        look = {"color": look_of(point.row, point.method)["color"], "label": point.row}
        axis.plot(point.ours_ms, point.ours_ece, **point_look(point.kind), **look)
    axis.set(xscale="log", yscale="log", title="ECE against test time")
    axis.set(xlabel="Milliseconds per image\n(better to the left)", ylabel="ECE, logarithmic (lower is better)")
    axis.set_ylim(0.8 * frame.ours_ece.min())
    plain_ticks(axis.xaxis)
    plain_ticks(axis.yaxis, (1, 2, 3, 5))


def place_handles(cells):
    """Return the handles of the left panels: a shape per architecture, then a filling per dataset. Nine networks would
    make a legend as high as the panels."""
    datasets, archs = (dict.fromkeys(names) for names in zip(*places_of(cells), strict=True))
    shapes = {arch_name(arch): place_look(("", arch)) for arch in sorted(archs, key=name_order)}
    looks = {name: place_look((name, "")) for name in datasets}
    fillings = {f"{FILLED[look['fillstyle']]}: {dataset_name(name)}": look for name, look in looks.items()}
    return {name: Line2D([], [], color=SHAPE, linestyle="none", **look) for name, look in (shapes | fillings).items()}


def cost_handles(frame, place):
    """Return the handles of the right panel: its rows, and what takes one pass."""
    handles = {row: Line2D([], [], **look) for row, look in curve_looks(frame, place).items()}
    for kind in (kind for kind in ONE_PASS if kind in set(frame.kind)):
        colour = look_of(*frame[frame.kind == kind][["row", "method"]].iloc[-1])["color"]
        handles[ONE_PASS[kind][1]] = Line2D([], [], color=colour, **point_look(kind))
    return handles


def caption(cells, network, frame):
    """Say protocol, hardware and number of seeds of both parts."""
    parts = []
    if len(cells):
        protocols = " and ".join(sorted(set(cells.protocol), key=by_protocol))
        parts.append(
            f"{len(cells)} of the paper's 90 cells, protocol {protocols}, {count_text(cells.n)}. "
            "Zero: the printed number. Bars: 95 % intervals."
        )
    if network:
        hardware, precision = (" and ".join(sorted(set(network.clean[key]))) for key in ("hardware", "precision"))
        parts.append(
            f"{'Right: ' if len(cells) else ''}{network.title()}, {hardware} ({precision}), {count_text(frame.n)}.\n"
            "One point per number of passes, or of members. The times of fewer passes than all are interpolated."
            f"{uncompiled_text(network, frame.row, 'Not compiled, so slower')}"
        )
    return "\n".join(parts)


@styled
def picture(cells, network, frame):
    left, right = (["accuracy", "ece"] if len(cells) else []), (["cost"] if network else [])
    widths = [1] * len(left) + [1.7] * len(right)
    height = 6.2 + 0.35 * max(0, len(places_of(cells)) - 4) if left else 5  # more networks need more room per row
    figure, axes = canvas(WIDTH if left else 6.5, height, [[*left, *right]], width_ratios=widths)
    for metric in left:
        difference_panel(axes[metric], cells, metric)
    if left:
        axes["ece"].tick_params(axis="y", labelleft=False)
        handles = place_handles(cells)
        figure.legend(handles.values(), handles, loc="outside lower left")
    if right:
        place = network.dataset, network.arch
        cost_panel(axes["cost"], frame, place)
        handles = cost_handles(frame, place)
        figure.legend(handles.values(), handles, loc="outside lower right", ncols=2)
    head(figure, caption(cells, network, frame))
    return figure


def draw(records, paper_dir, out):
    """Write <out>/headline from what is measured. Return [] if there is neither a cell of the paper nor a cost."""
    cells, network = compared(records, paper_dir), best_measured(records)
    frame = costs(network) if network else pd.DataFrame()
    if cells.empty and frame.empty:
        return []
    place = {key: getattr(network, key) for key in NETWORK} if network else {}
    numbers = pd.concat([cells.assign(kind="printed"), frame.assign(**place)])
    return save(picture(cells, network, frame), Path(out) / "headline", numbers, readme=True)
