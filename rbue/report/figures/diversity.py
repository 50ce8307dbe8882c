"""The diversity of four samples (or ensemble members): JSD and disagreement per pair (Section 4.4, Tables 4 and 5)."""

from functools import partial
from operator import itemgetter

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm

from rbue.report.claims.scopes import DE, P2, P5, Q8, Q95, RRELU, SVI
from rbue.report.columns import METHOD, MISSING, Column, Grid, decimals, number
from rbue.report.figures.frames import picked
from rbue.report.figures.style import INK, WIDTH, head, narrow, panel_grid, save, styled
from rbue.report.paper import read_paper
from rbue.report.records import over_pairs, over_seeds, pairs
from rbue.report.rows import METHODS, in_order, labelled
from rbue.report.tables import csv_text, write_forms, write_grid

PANELS = [DE, SVI, RRELU, P2, P5, Q8, Q95]  # in the paper's order
MEASURES = {  # measure → (what the cells show, their unit)
    "jsd": ("Jensen–Shannon divergence between samples or members, in thousandths of a nat", 1e-3),
    "dis": ("Test images for which two samples or members predict different classes, in %", 1e-2),
}
ENDS = ("low", "high")  # of a 95 % bootstrap interval over test images
COLUMNS = {f"{kind}_{measure}": f"{kind.title()}-{measure.upper()}" for measure in MEASURES for kind in ("mean", "max")}
NOTES = [
    "Mean and maximum over the pairs of four samples or members, with the natural logarithm. For one seed, brackets "
    "hold the 95 % bootstrap interval over test images. The interval of a maximum holds for all pairs together; older "
    "results have none. For several seeds, the table shows mean ± standard deviation over seeds."
]
PAPER_NOTES = ["The paper's Tables 4 and 5 state neither dataset nor logarithm. We assume CIFAR-10 and nats."]


# --- load -------------------------------------------------------------------------------------------------------------


def load(network):
    """Return one row per run that has the matrices."""
    return picked(network, lambda result: {"matrices": vars(result.diversity)} if result.diversity else None)


def paper_rows(network):
    """Read Tables 4 and 5 under our row names. They state no dataset; CIFAR-10 is the most likely one."""
    entries = read_paper(network.paper_dir, "numbers")["diversity"]
    mine = [entry for entry in entries if network.dataset == "cifar10" and network.arch == entry["arch"]]
    return pd.DataFrame([entry | {"row": labelled(entry)} for entry in mine], columns=["row", *COLUMNS])


# --- frame ------------------------------------------------------------------------------------------------------------


def intervals(frame):
    """Return low_ and high_ of every column for each row's lowest seed: an interval is about one network."""
    first = frame.sort_values("seed").drop_duplicates("row").set_index("row").matrices
    none = dict.fromkeys(map(stored, COLUMNS), (np.nan, np.nan))
    found = pd.DataFrame.from_dict({row: none | (m["intervals"] or {}) for row, m in first.items()}, orient="index")
    return pd.DataFrame({f"{end}_{c}": found[stored(c)].str[k] for c in COLUMNS for k, end in enumerate(ENDS)})


def stored(column):
    """Return the name of a column's interval in a result. The `max_jsd` of older results covers too little."""
    return f"{column}_simultaneous" if column.startswith("max") else column


def table(frame, paper):
    """Mean and max over pairs per run, then mean and std over seeds, with the paper's numbers next to ours."""
    runs = frame[["row", "seed"]].join(pd.DataFrame(map(over_pairs, frame.matrices), index=frame.index))
    ours = over_seeds(runs, ["row"], COLUMNS).set_index("row").join(intervals(frame))
    both = ours.join(paper.set_index("row").add_prefix("paper_"), how="left" if paper.empty else "outer")
    both["n"] = both.n.fillna(0).astype(int)
    return both.loc[in_order([*ours.index, *both.index])].reset_index(names="row")


def matrix_frame(frame):
    """Return the matrices of all runs as tidy rows, including seeds that no panel shows."""
    return pd.DataFrame(
        {"row": run.row, "seed": run.seed, "measure": m, "i": i + 1, "j": j + 1, "value": value}
        for run in frame.itertuples()
        for m in MEASURES
        for (i, j), value in np.ndenumerate(np.asarray(run.matrices[m]))
    )


# --- draw -------------------------------------------------------------------------------------------------------------


def colour_scale(matrices):
    """Scale colours logarithmically: methods differ by two orders of magnitude, and a linear scale would hide most."""
    positive = np.concatenate([pairs(matrix) for matrix in matrices])
    positive = positive[positive > 0]
    low, high = (positive.min(), positive.max()) if len(positive) else (1e-4, 1e-3)
    return LogNorm(low * 0.8, max(high, low * 1.5))  # the palest cell is not white; one value still has a scale


def printed(value):
    """Format with one decimal, or with two if one would be a zero."""
    return f"{value:.1f}" if value >= 0.095 or value == 0 else f"{value:.2f}"


def panel(axis, matrix, scale, unit, title):
    """Draw one matrix. Zeros off the diagonal have the palest colour; the diagonal, always zero, stays blank."""
    matrix, size = np.asarray(matrix), len(matrix)
    shown = np.ma.masked_where(np.eye(size, dtype=bool), np.maximum(matrix, scale.vmin))
    axis.pcolormesh(shown, cmap="Blues", norm=scale, label=title)
    for (i, j), value in np.ndenumerate(matrix):
        colour = INK if i == j else "#FFFFFF" if scale(max(value, scale.vmin)) > 0.6 else ON_PALE
        number, look = "0" if i == j else printed(value / unit), {"ha": "center", "va": "center", "color": colour}
        text = axis.text(j + 0.5, i + 0.5, number, **look)
        text.set_in_layout(False)  # it fits into its cell, and measuring it would take most of the drawing time
    centres, names = np.arange(size) + 0.5, range(1, size + 1)
    axis.set_xticks(centres, names)
    axis.set_yticks(centres, names)
    axis.set(title=narrow(title), aspect="equal", ylim=(size, 0))
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)


ON_PALE = "#08306B"  # text on a pale cell, which stays pale where the page is dark


def shown_runs(frame):
    """Select the lowest seed for each of the paper's panels and other methods: a mean matrix belongs to no network."""
    first = frame.sort_values("seed").drop_duplicates("row").set_index("row")
    own = frame.row[~frame.method.isin(METHODS)].unique()
    return first.loc[[row for row in (*PANELS, *own) if row in first.index]]


@styled
def matrices(frame, measure, title):
    runs = shown_runs(frame)
    figure, axes = panel_grid(len(runs), 4, WIDTH / 4, 2.55, margin=0.6)
    scale, (what, unit) = colour_scale([m[measure] for m in runs.matrices]), MEASURES[measure]
    for axis, (row, run) in zip(axes.flat, runs.iterrows(), strict=False):
        panel(axis, run.matrices[measure], scale, unit, row)
    head(figure, f"{title}, seed {', '.join(map(str, sorted(set(runs.seed))))}\n{what}")
    return figure


def ours_text(row, column):
    """Format as `0.0205 ± 0.0003`, or for one seed `0.0205 [0.0198, 0.0212]`: one decimal more than the paper."""
    low, high = (row.get(f"{end}_{column}") for end in ENDS)
    interval = "" if pd.isna(low) or row["n"] > 1 else f" [{low:.4f}, {high:.4f}]"
    spread = f" ± {row[f'std_{column}']:.4f}" if row["n"] > 1 else interval
    return decimals(4)(row[f"ours_{column}"]) + spread


def columns(with_paper):
    """Return columns with ours and the paper's side by side."""
    found, mine = [METHOD], {"name": "ours", "side": "ours"} if with_paper else {"name": ""}
    for key, name in COLUMNS.items():
        if with_paper:
            found.append(number(f"paper_{key}", name, "paper", decimals(3), side="paper"))
        text, value = partial(ours_text, column=key), itemgetter(f"ours_{key}")
        found.append(Column(f"ours_{key}", name, text=text, value=value, **mine))
    return [*found, number("n", "n", "", lambda n: str(n) if n else MISSING)]


def grid(network):
    """Return Tables 4 and 5, or None without data."""
    frame, paper = load(network), paper_rows(network)
    if frame.empty:
        return None
    with_paper = not paper.empty
    cells = table(frame, paper).to_dict("records")
    return Grid(f"Diversity: {network.title()}", columns(with_paper), cells, NOTES + PAPER_NOTES * with_paper)


def grids(network):
    return [found] if (found := grid(network)) else []


def draw(network, folder):
    frame, paths = load(network), []
    if frame.empty:
        return []
    if not shown_runs(frame).empty:
        for measure in MEASURES:
            paths += save(matrices(frame, measure, network.title()), folder / f"diversity-{measure}")
    return [
        *paths,
        *write_forms(folder / "diversity-matrices", {"csv": csv_text(matrix_frame(frame))}),
        *write_grid(grid(network), folder / "diversity"),
    ]
