"""What the verdict is based on: our numbers under one protocol, the printed ones, and costs and scores of each row."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from rbue.report.claims.numbers import Numbers, corrupted, paper_frame
from rbue.report.claims.scopes import DE as ENSEMBLE
from rbue.report.claims.scopes import Q95, SINGLE
from rbue.report.claims.values import Value, of_one_origin
from rbue.report.columns import from_to
from rbue.report.records import PLACE, ROW, everywhere, in_tables, most_passes, over_seeds, records
from rbue.report.rows import ARCHS, DATASETS, LABELS, METHODS, PROPOSED, by_protocol, protocol_text


@dataclass(frozen=True)
class Evidence:
    """Our numbers under one protocol, the printed ones, and what a row costs at test time."""

    ours: Numbers
    printed: Numbers
    protocol: str = ""
    costs: dict = field(default_factory=dict)  # {(dataset, arch, row): {"test_ms_per_image", "tempered_ece"}}
    corrupted_passes: dict = field(default_factory=dict)  # {(dataset, arch): passes of the variants, corrupted images}
    scores: dict = field(default_factory=dict)  # {(dataset, arch): {row: {"nll", "auroc", "n"}}}
    unused: dict = field(default_factory=dict)  # {(dataset, arch, row) of the paper: its protocols}, none of them ours
    unused_corrupted: dict = field(default_factory=dict)  # the same of corrupted images
    incomplete: set = field(default_factory=set)  # (dataset, arch, row) whose runs all lack types of corruption
    others: tuple["Evidence", ...] = ()  # that under the other protocols
    by_chance: list = field(default_factory=list)  # differences that do not count: see `by_chance` in answers

    @property
    def setting(self) -> str:
        datasets = {dataset for dataset, _ in self.ours.places}
        return f"With the training protocol {protocol_text(self.protocol, datasets)}, " if self.protocol else ""

    def places(self, rows: Iterable[str], *metrics: str) -> list:
        """Return the networks on which all these rows have all these metrics."""
        wanted = [(row, metric) for row in rows for metric in metrics]
        return papers_or_all([p for p in self.ours.places if all((*p, *cell) in self.ours.values for cell in wanted)])

    def rows(self, place: tuple, rows: Iterable[str], *metrics: str) -> list[str]:
        """Return those of the rows that have all these metrics on one network."""
        return [row for row in rows if all((*place, row, metric) in self.ours.values for metric in metrics)]

    def value(self, place: tuple, row: str, metric: str) -> Value:
        """Return a row's value, the larger the better: an ECE is negated."""
        return self.ours.values[*place, row, metric] * (-1 if metric == "ece" else 1)

    def values(self, place: tuple, rows: Iterable[str], metric: str) -> list[Value]:
        return [self.value(place, row, metric) for row in rows]

    def ratios(self, metric: str, row: str, other: str) -> list[float]:
        """Return a row's metric divided by that of another row, for each network where both are measured and the other
        one's is not zero; times only if one version of the code measured them."""
        places = [p for p in self.places([other], metric) if (*p, row, metric) in self.ours.values]
        pairs = [(self.ours.values[(*p, row, metric)], self.ours.values[(*p, other, metric)]) for p in places]
        known = [of_one_origin(pair) for pair in pairs]
        return [pair[0].mean / pair[1].mean for pair in known if pair and pair[1].mean]

    def cost_pairs(self, metric: str, row: str, other: str) -> list[tuple[dict, dict]]:
        """Return the costs of a row and of another row, for each network that one kind of hardware measured."""
        places = papers_or_all([p for p in self.ours.places if metric in self.costs.get((*p, other), {})])
        pairs = [(self.costs.get((*p, row), {}), self.costs[*p, other]) for p in places]
        return [(one, two) for one, two in pairs if metric in one and one["hardware"] == two["hardware"]]

    def scores_by_row(self, metric: str) -> tuple[list, dict[str, list[float]]]:
        """Return the networks where Single, Deep Ensemble and all variants have a score, and {row: its scores on
        them} of the rows that have it on all of them."""
        known = {
            place: {row: cell[metric] for row, cell in rows.items() if metric in cell}
            for place, rows in self.scores.items()
        }
        places = papers_or_all([place for place, rows in known.items() if {SINGLE, ENSEMBLE, *PROPOSED} <= rows.keys()])
        shared = [row for row in known[places[0]] if all(row in known[p] for p in places)] if places else []
        return places, {row: [known[place][row] for place in places] for row in shared}

    @property
    def costed(self) -> list:
        """The networks where the costs of Single and MC-DropReLU(0.95) are known."""
        return papers_or_all([p for p in self.ours.places if all((*p, row) in self.costs for row in (SINGLE, Q95))])

    def mean_cost(self, row: str, kind: str) -> float | None:
        """Return the mean of a cost over `costed`, or None if a network lacks it."""
        found = [self.costs.get((*place, row), {}).get(kind) for place in self.costed]
        return sum(found) / len(found) if found and all(found) else None

    def seeds(self, places: Iterable[tuple], rows: Iterable[str]) -> str:
        """Return the numbers of seeds behind these cells: `n = 1 to 4`."""
        counts = {self.ours.n[(*place, row, "accuracy")] for place in places for row in rows}
        return f"n = {from_to(counts)}"


def papers_or_all(places: list[tuple]) -> list[tuple]:
    """Return the paper's networks; the user's own count only if there is none of them."""
    return [place for place in places if place[0] in DATASETS and place[1] in ARCHS] or places


def gather(results: list, paper_dir: str, frames: dict) -> Evidence:
    """Gather the evidence under `matched` if it has runs, else under the protocol that has. `frames` are not empty."""
    every, printed = records(results), Numbers.of(paper_frame(paper_dir))
    first, *others = (under(name, frames[name], printed, every) for name in sorted(frames, key=by_protocol))
    return replace(first, others=tuple(others))


def under(protocol: str, frame: pd.DataFrame, printed: Numbers, every: pd.DataFrame) -> Evidence:
    """Return the evidence under one protocol. `every` holds the runs of all protocols."""
    runs = every[every.protocol == protocol]
    shifted = every[every.corrupted & every.row.notna() & everywhere(every)]
    return Evidence(
        Numbers.of(frame),
        printed,
        protocol,
        costs(runs),
        corrupted_passes(shifted[shifted.protocol == protocol]),
        scores(runs),
        unused_cells(every[in_tables(every)], protocol),
        unused_cells(shifted, protocol),
        incomplete_cells(shifted[shifted.protocol == protocol]),
    )


def costs(runs: pd.DataFrame) -> dict:
    """Return {(dataset, arch, row): test time, ECE, ECE after 10 passes and after temperature scaling, where known}."""
    runs = runs[in_tables(runs) & ~runs.hardware.str.contains("CPU")]  # other programs take part of a CPU's time
    values = ["test_ms_per_image", "ece", "ece_10", "tempered_ece"]
    tempered = runs.result.map(lambda result: result.temperature.ece if result.temperature else None).astype(float)
    after_10 = runs.result.map(ece_after_10).astype(float)
    found = over_seeds(runs.assign(tempered_ece=tempered, ece_10=after_10), ROW, values).to_dict("records")
    known = {tuple(cell[name] for name in ROW): known_values(cell, values) for cell in found}
    cells = [runs[name] for name in ROW]
    hardware = (runs.hardware + ", " + runs.precision).groupby(cells).unique().map(str)
    uncompiled = runs.uncompiled.groupby(cells).any()
    return {at: cell | {"hardware": hardware[at], "uncompiled": uncompiled[at]} for at, cell in known.items()}


def scores(runs: pd.DataFrame) -> dict:
    """Return {(dataset, arch): {row: {"nll", "auroc" of OOD detection, where known, and "n"}}}. Of the paper's methods,
    only the paper's rows count."""
    runs = runs[in_tables(runs) & (runs.row.isin(LABELS) | ~runs.method.isin(METHODS))]
    auroc = runs.result.map(lambda result: result.ood.auroc if result.ood else None).astype(float)
    found: dict = {}
    for cell in over_seeds(runs.assign(auroc=auroc), ROW, ["nll", "auroc"]).to_dict("records"):
        values = known_values(cell, ["nll", "auroc"]) | {"n": cell["n"]}
        found.setdefault((cell["dataset"], cell["arch"]), {})[cell["row"]] = values
    return found


def unused_cells(runs: pd.DataFrame, protocol: str) -> dict:
    """Return {(dataset, arch, row): protocols} of the paper's cells that are measured, but not under this protocol."""
    cells = runs[runs.dataset.isin(DATASETS) & runs.arch.isin(ARCHS) & runs.row.isin(LABELS)]
    found = cells.groupby(ROW).protocol.unique().to_dict()
    return {cell: list(protocols) for cell, protocols in found.items() if protocol not in protocols}


def incomplete_cells(runs: pd.DataFrame) -> set:
    """Return (dataset, arch, row) if no run on corrupted images has a median over all types, as without frost."""
    cells = pd.Series(list(zip(runs.dataset, runs.arch, runs.row, strict=True)), runs.index)
    whole = runs.result.map(lambda result: bool(corrupted(result))).astype(bool)
    return set(cells[~whole]) - set(cells[whole])


def corrupted_passes(runs: pd.DataFrame) -> dict:
    """Return {(dataset, arch): passes of the variants on corrupted images}, often fewer than on clean images."""
    proposed = most_passes(runs[runs.row.isin(PROPOSED) & runs.passes.notna()], [*ROW, "seed"])
    return proposed.groupby(PLACE).passes.unique().to_dict()


def known_values(cell: dict, names: list[str]) -> dict:
    return {name: cell[f"ours_{name}"] for name in names if cell[f"ours_{name}"] > 0}


def ece_after_10(result: Any) -> float | None:
    known = dict(zip(result.by_samples["samples"], result.by_samples["ece"], strict=True)) if result.by_samples else {}
    return known.get(10.0)
