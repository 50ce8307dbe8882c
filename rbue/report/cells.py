"""From records to cells: one row per (protocol, dataset, arch, row), our mean, std and n next to the paper's number."""

from dataclasses import dataclass
from itertools import product

import pandas as pd

from rbue.report.paper import read_paper
from rbue.report.records import KEY, MEASURES, PLACE, ROW, in_tables, over_seeds, with_times_of_other_seeds
from rbue.report.rows import ARCHS, DATASETS, FULL, LABELS, PROPOSED, by_protocol, in_order, name_order

PRINTED = ["accuracy", "ece", "train_hours", "time_ratio"]  # the paper prints these
COMPARED = ["accuracy", "ece", "time_ratio"]
KINDS = {"paper": PRINTED, "ours": MEASURES, "std": MEASURES, "diff": COMPARED}


@dataclass(frozen=True)
class Table:
    """One dataset under one protocol: its cells, and all its clean runs, including those that feed no cell."""

    protocol: str
    dataset: str
    cells: pd.DataFrame
    runs: pd.DataFrame
    bold_found: list[bool]  # for each of the paper's bold rows: whether our rule finds it
    explained: list[dict]  # known reasons why cells differ from the paper's

    @property
    def inside(self):
        """The runs that feed the cells."""
        return self.runs[in_tables(self.runs)]

    @property
    def archs(self):
        return list(self.cells.arch.unique())

    @property
    def by_arch(self):
        """(network, its cells), in order."""
        return list(self.cells.groupby("arch", sort=False))

    @property
    def in_paper(self):
        return self.dataset in DATASETS

    @property
    def measured(self):
        return int((of_paper(self.cells).n > 0).sum())


def of_paper(cells):
    """Drop the rows of methods that are not in the paper: the count of measured cells leaves them out."""
    return cells[cells.row.isin(LABELS)]


def worth_showing(cells):
    """Drop the rows of a network that are neither in the paper nor measured with this network."""
    return cells[cells.row.isin(LABELS) | (cells.n > 0)]


def paper_cells(paper_dir):
    """Read the paper's 90 cells. Add training time relative to Single: hours on other hardware do not compare."""
    frame = pd.DataFrame(read_paper(paper_dir, "numbers")["main"])
    single = frame[frame.row == "Single"][[*PLACE, "train_hours"]]
    frame = frame.merge(single, on=PLACE, suffixes=("", "_single"))
    return frame.assign(time_ratio=frame.train_hours / frame.train_hours_single)


def archs_of(dataset, runs):
    """The paper's networks if the dataset is in the paper, and all networks that have runs."""
    return sorted({*runs.arch, *(ARCHS if dataset in DATASETS else [])}, key=name_order)


def table(protocol, dataset, runs, paper, bold_found, explained):
    """Build every cell of one table, measured or not, in the paper's order."""
    runs = runs[(runs.protocol == protocol) & (runs.dataset == dataset)]
    inside = runs[in_tables(runs)]
    labels, ours = in_order([*LABELS, *inside.row]), over_seeds(inside, KEY, MEASURES)
    grid = pd.DataFrame(product([protocol], [dataset], archs_of(dataset, runs), labels), columns=KEY)
    printed = paper[[*ROW, *PRINTED]].rename(columns={m: f"paper_{m}" for m in PRINTED})
    cells = grid.merge(printed, on=ROW, how="left").merge(ours, on=KEY, how="left")
    cells["n"] = cells.n.fillna(0).astype(int)
    for metric in COMPARED:
        difference = cells[f"ours_{metric}"] - cells[f"paper_{metric}"]
        cells[f"diff_{metric}"] = difference.round(9) + 0.0  # removes 1e-17 and -0
    faster = 3600 * cells.paper_train_hours / cells.ours_train_seconds
    cells["ours_speedup"] = faster.where(cells.protocol.isin(FULL))  # only with as many epochs as the paper
    cells["paper_bold"] = bold(cells, "paper_accuracy", "paper_ece", "paper_train_hours")
    cells["ours_bold"] = bold(cells, "ours_accuracy", "ours_ece", "ours_train_seconds")
    values = [f"{kind}_{m}" for m in [*MEASURES, "train_hours"] for kind, names in KINDS.items() if m in names]
    columns = [*KEY, "n", *values, "ours_speedup", "paper_bold", "ours_bold"]
    return Table(protocol, dataset, cells[columns], runs, bold_found, explained)


def build(records, paper_dir, protocol=None, dataset=None):
    """Build a Table per (protocol, dataset) with clean runs. If a dataset is in the paper, the paper's others come too.

    `protocol` and `dataset` choose the tables of one of them. Corrupted test sets (dataset=cifar10_c) are used in
    figures, not in Tables 1-3.
    """
    runs, paper = with_times_of_other_seeds(records[~records.corrupted]), paper_cells(paper_dir)
    wanted = set(zip(runs.protocol, runs.dataset, strict=True))
    wanted |= {(name, other) for name, known in wanted if known in DATASETS for other in DATASETS}
    wanted = {key for key in wanted if protocol in (None, key[0]) and dataset in (None, key[1])}
    found = [printed == computed for printed, computed in bold_agreement(paper).values()]
    keys = sorted(wanted, key=lambda key: (by_protocol(key[0]), name_order(key[1])))
    explained = read_paper(paper_dir, "explained")
    return [table(*key, runs, paper, found, explained) for key in keys]


def bold(cells, *columns):
    """True for each network's row that balances the three metrics best, by the rule of `balanced`."""
    winners = {arch: balanced(group, *columns) for arch, group in cells.groupby("arch")}
    return cells.row == cells.arch.map(winners)


def balanced(cells, accuracy, ece, time):
    """Return the proposed row with the lowest ECE, then the highest accuracy, then the shortest time, at two decimals.

    The paper's bold is "the best way to balance the three metrics" without a formula. This rule finds all nine of its
    choices from its printed numbers. It returns None unless all five proposed rows have numbers.
    """
    proposed = cells.loc[cells.row.isin(PROPOSED), ["row", accuracy, ece, time]].dropna()
    if len(proposed) < len(PROPOSED):
        return None
    best = min(proposed.itertuples(index=False, name=None), key=lambda r: (round(r[2], 2), -round(r[1], 2), r[3]))
    return best[0]


def bold_agreement(paper):
    """Compare the paper's bold rows with those of `balanced`: {(dataset, arch): (printed, computed)}."""
    return {
        key: (group.row[group.bold].iloc[0], balanced(group, "accuracy", "ece", "train_hours"))
        for key, group in paper.groupby(PLACE, sort=False)
    }
