"""Runs in, cells out: one row a (protocol, dataset, arch, row) with our mean, std and n beside the paper's number."""

import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pandas as pd

from rbue.report.rows import ARCHS, DATASETS, FULL, LABELS, PROPOSED, by_protocol, in_order, place, position_row

KEY = ["protocol", "dataset", "arch", "row"]
SCORES = ["accuracy", "ece", "nll", "brier", "entropy"]
MEASURES = [
    *SCORES,
    "train_seconds",
    "time_ratio",
    "parameters",
    "peak_train_bytes",
    "peak_evaluate_bytes",
    "test_ms_per_image",
]
PRINTED = ["accuracy", "ece", "train_hours", "time_ratio"]  # what the paper has a number for
COMPARED = ["accuracy", "ece", "time_ratio"]
KINDS = {"paper": PRINTED, "ours": MEASURES, "std": MEASURES, "diff": COMPARED}
VALUES = [f"{kind}_{m}" for m in [*MEASURES, "train_hours"] for kind, names in KINDS.items() if m in names]


@dataclass(frozen=True)
class Table:
    """One dataset under one protocol: its cells, and all its runs, those outside the cells too."""

    protocol: str
    dataset: str
    cells: pd.DataFrame
    runs: pd.DataFrame
    bold_found: list[bool]  # of the paper's bold rows, which ones our rule finds
    explained: list[dict]  # why cells differ from the paper's: where, and in words

    @property
    def archs(self):
        return list(self.cells.arch.unique())

    @property
    def in_paper(self):
        return self.dataset in DATASETS

    @property
    def labels(self):
        """The paper's ten rows, then those of other methods."""
        return list(self.cells.row.unique())

    @property
    def measured(self):
        return int((of_paper(self.cells).n > 0).sum())


def of_paper(cells):
    """Without the rows of methods that the paper has not: they are no part of what there is to measure."""
    return cells[cells.row.isin(LABELS)]


def paper_cells(paper_dir):
    """The paper's ninety cells, with training time as a ratio to Single too: hours on other hardware do not compare."""
    frame = pd.DataFrame(json.loads((Path(paper_dir) / "numbers.json").read_text())["main"])
    single = frame[frame.row == "Single"][["dataset", "arch", "train_hours"]]
    frame = frame.merge(single, on=["dataset", "arch"], suffixes=("", "_single"))
    return frame.assign(time_ratio=frame.train_hours / frame.train_hours_single)


def run_row(result):
    """One result.json flattened; accuracy in percent, as in the paper."""
    config, metrics, environment = result["config"], result["metrics"], result.get("environment") or {}
    memory = result.get("peak_memory_bytes") or {}  # null on hardware that does not tell
    row, differs = place(config)
    return {
        "name": result["name"],
        **{key: config[key] for key in ("protocol", "dataset", "arch", "seed")},
        "row": row,
        "position_row": position_row(config),
        "position": config.get("position"),
        "differs": ", ".join(f"{key}={value}" for key, value in differs.items()),
        **{metric: metrics.get(metric) for metric in SCORES},
        "accuracy": 100 * metrics["accuracy"],
        "train_seconds": training_seconds(result),
        "trainings": {t.get("name"): t.get("seconds") or 0.0 for t in result.get("trainings") or []},
        "shared": shared(result),
        "by_step": result["seconds"].get("alone") not in (None, result["seconds"]["train"]),
        "machine": machine(result),
        "parameters": result.get("parameters"),
        "peak_train_bytes": memory.get("train") if packed(result) == 1 else None,  # an equal share compares nothing
        "peak_evaluate_bytes": memory.get("evaluate"),
        "test_ms_per_image": result.get("test_ms_per_image"),
        **{key: environment.get(key) or "unknown" for key in ("hardware", "precision", "torch")},
        "commit": commit(environment),
    }


def training_seconds(result):
    """With the GPU to itself where that was measured, else what it took."""
    alone = result["seconds"].get("alone")
    return result["seconds"]["train"] if alone is None else alone


def packed(result):
    """How many networks shared the GPU in training."""
    return max(t.get("packed", 1) for t in result.get("trainings") or [{}])


def shared(result):
    """Whether its time is only an equal share of a pack's, which says little of its own cost."""
    return packed(result) > 1 and result["seconds"].get("alone") is None


def machine(result):
    """Where and how its networks were trained; the evaluation's engine is another one for a network without noise."""
    records = result.get("trainings") or [result.get("environment") or {}]
    return str(sorted({f"{record.get('hardware')}, {record.get('engine')}" for record in records}))


def commit(environment):
    changed = " with changes" if environment.get("changed") else ""
    return f"`{(environment.get('commit') or 'unknown')[:10]}`{changed}"


def run_frame(results):
    """One row a run. Corrupted test sets (dataset=cifar10_c) feed figures, not the paper's Tables 1-3."""
    runs = pd.DataFrame([run_row(r) for r in results if not r["config"]["dataset"].endswith("_c")])
    if runs.empty:
        return runs
    runs = runs.sort_values("name", ignore_index=True)  # the folder listing's order must not reach a table
    runs["time_ratio"] = (runs.train_seconds / single_seconds(runs)).where(~runs.shared)
    return runs.assign(**{measure: pd.to_numeric(runs[measure]) for measure in MEASURES})


def single_seconds(runs):
    """For each run, Single's mean training time with the same network on the same machine; NaN where there is none.

    Networks trained side by side on one GPU have equal shares of its time, whatever each costs: no base for a ratio.
    """
    key = ["protocol", "dataset", "arch", "machine"]
    single = runs[(runs.row == "Single") & ~runs.shared].groupby(key, as_index=False).train_seconds.mean()
    return runs[key].merge(single, on=key, how="left").train_seconds


def our_cells(runs):
    return mean_and_spread(runs[runs.row.notna()].groupby(KEY), MEASURES).reset_index()


def mean_and_spread(groups, measures):
    """Mean, std over seeds (ddof 1) and n. A run without a value empties the cell: no silent mean over fewer seeds."""
    n, values = groups.size().rename("n"), groups[measures]
    mean = values.mean().where(values.count().eq(n, axis=0))
    return pd.concat([n, mean.add_prefix("ours_"), values.std().add_prefix("std_")], axis=1)


def archs_of(dataset, runs):
    """The paper's networks for the paper's datasets, and whichever others there are runs of."""
    present = sorted(set(runs.arch) - set(ARCHS))
    return [arch for arch in ARCHS if dataset in DATASETS or arch in set(runs.arch)] + present


def table(protocol, dataset, runs, paper, bold_found, explained):
    """Every cell of one table, measured or not, in the paper's order."""
    runs = runs[(runs.protocol == protocol) & (runs.dataset == dataset)]
    labels = in_order({*LABELS, *runs.row.dropna()})
    grid = pd.DataFrame(product([protocol], [dataset], archs_of(dataset, runs), labels), columns=KEY)
    printed = paper[["dataset", "arch", "row", *PRINTED]].rename(columns={m: f"paper_{m}" for m in PRINTED})
    cells = grid.merge(printed, on=["dataset", "arch", "row"], how="left").merge(our_cells(runs), on=KEY, how="left")
    cells["n"] = cells.n.fillna(0).astype(int)
    for metric in COMPARED:
        difference = cells[f"ours_{metric}"] - cells[f"paper_{metric}"]
        cells[f"diff_{metric}"] = difference.round(9) + 0.0  # neither 1e-17 nor -0
    faster = 3600 * cells.paper_train_hours / cells.ours_train_seconds
    cells["ours_speedup"] = faster.where(cells.protocol.isin(FULL))  # of as many epochs
    cells["paper_bold"] = bold(cells, "paper_accuracy", "paper_ece", "paper_train_hours")
    cells["ours_bold"] = bold(cells, "ours_accuracy", "ours_ece", "ours_train_seconds")
    columns = [*KEY, "n", *VALUES, "ours_speedup", "paper_bold", "ours_bold"]
    return Table(protocol, dataset, cells[columns], runs, bold_found, explained)


def build(results, paper_dir):
    """A Table for each (protocol, dataset) with runs; one of the paper's datasets brings the paper's other two."""
    runs, paper = run_frame(results), paper_cells(paper_dir)
    if runs.empty:
        return []
    wanted = set(zip(runs.protocol, runs.dataset, strict=True))
    wanted |= {(protocol, other) for protocol, dataset in wanted if dataset in DATASETS for other in DATASETS}
    order = [*DATASETS, *sorted(set(runs.dataset) - set(DATASETS))]
    found = [printed == computed for printed, computed in bold_agreement(paper).values()]
    keys = sorted(wanted, key=lambda key: (by_protocol(key[0]), order.index(key[1])))
    explained = json.loads((Path(paper_dir) / "explained.json").read_text())
    return [table(*key, runs, paper, found, explained) for key in keys]


def bold(cells, *columns):
    """True for the row of each network that balances the three metrics best, by `balanced`."""
    winners = {arch: balanced(group, *columns) for arch, group in cells.groupby("arch")}
    return cells.row == cells.arch.map(winners)


def balanced(cells, accuracy, ece, time):
    """The proposed row with the lowest ECE, then the highest accuracy, then the shortest time, at two decimals.

    The paper's bold is "the best way to balance the three metrics" without a formula; this one finds all nine of its
    choices from its printed numbers. None unless all five proposed rows have numbers: no winner by default.
    """
    proposed = cells.loc[cells.row.isin(PROPOSED), ["row", accuracy, ece, time]].dropna()
    if len(proposed) < len(PROPOSED):
        return None
    best = min(
        proposed.itertuples(index=False, name=None), key=lambda row: (round(row[2], 2), -round(row[1], 2), row[3])
    )
    return best[0]


def bold_agreement(paper):
    """Which of the paper's printed bold rows `balanced` finds: {(dataset, arch): (printed, computed)}."""
    return {
        key: (group.row[group.bold].iloc[0], balanced(group, "accuracy", "ece", "train_hours"))
        for key, group in paper.groupby(["dataset", "arch"], sort=False)
    }
