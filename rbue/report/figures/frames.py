"""From records to networks: the runs of one training dataset, architecture and protocol, each under its row's name."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from rbue.report.claims.values import binomial
from rbue.report.columns import from_to
from rbue.report.records import NETWORK, everywhere, over_seeds
from rbue.report.rows import LABELS, arch_name, by_protocol, dataset_name
from rbue.runs.places import PAPER


@dataclass(frozen=True)
class Network:
    """The runs of one network: `clean` ones, and `corrupted` ones (dataset=cifar10_c) with the same weights."""

    protocol: str
    dataset: str
    arch: str
    runs: pd.DataFrame
    paper_dir: Path  # of the paper's numbers, which some figures show next to ours

    @property
    def clean(self):
        return self.runs[~self.runs.corrupted]

    @property
    def corrupted(self):
        return self.runs[self.runs.corrupted]

    @property
    def papers_rows(self):
        """The number of rows of the paper's tables that it was tested for."""
        return len(set(self.clean.row) & set(LABELS))

    def folder(self, out):
        return Path(out) / self.protocol / self.dataset / self.arch

    def title(self, suffix=""):
        return f"{dataset_name(self.dataset)}{suffix}, {arch_name(self.arch)}, protocol {self.protocol}"


def networks(records, paper_dir=PAPER):
    """Return a Network per (protocol, dataset, arch) with a run that a figure can show."""
    shown = records[records.row.notna() & everywhere(records)]
    groups = sorted(shown.groupby(NETWORK), key=lambda group: (by_protocol(group[0][0]), group[0]))
    return [Network(*key, runs.reset_index(drop=True), paper_dir) for key, runs in groups]


def left_out(records):
    """Return `name (epochs=2)` of each run that no figure or table shows, since a setting differs from its row's."""
    lost = records[records.row.isna()]
    return [f"{name} ({differs})" for name, differs in zip(lost.name, lost.differs, strict=True)]


def picked(network, pick):
    """Return one row per clean run for which `pick(result)` returns numbers, with row, method and seed."""
    found = [(run, numbers) for run in network.clean.itertuples() if (numbers := pick(run.result))]
    return pd.DataFrame([{"row": run.row, "method": run.method, "seed": run.seed} | numbers for run, numbers in found])


def stacked(network, pick):
    """Return the frames that `pick(result)` returns for clean runs below each other, with row, method and seed."""
    found = [(run, frame) for run in network.clean.itertuples() if (frame := pick(run.result)) is not None]
    parts = [frame.assign(row=run.row, method=run.method, seed=run.seed) for run, frame in found]
    return pd.concat(parts) if parts else pd.DataFrame()


def methods_of(runs):
    """Return (row, method) pairs in the paper's order."""
    return list(runs[["row", "method"]].drop_duplicates().itertuples(index=False, name=None))


def nearest(runs, method, hyperparameter):
    """Return the method's row with the nearest setting, the paper's first, or None."""
    rows = runs[runs.method == method]
    far = (rows.hyperparameter - hyperparameter).abs().fillna(0)
    ranked = rows.assign(far=far, own=~rows.row.isin(LABELS)).sort_values(["far", "own"], kind="stable")
    return None if ranked.empty else ranked.row.iloc[0]


def with_errors(runs, key):
    """Return n, mean, std and standard error over seeds of accuracy and ECE, by the rule of claims/values.py.

    Test images add a binomial error, which also bounds that of an ECE; several seeds add std/√n.
    """
    noise = binomial(runs.accuracy / 100, runs.images)
    frame = over_seeds(runs.assign(noise=noise), key, ["accuracy", "ece", "noise"])
    for metric, unit in (("accuracy", 100), ("ece", 1)):
        seeds = frame[f"std_{metric}"].fillna(0) / np.sqrt(frame.n)
        frame[f"se_{metric}"] = np.hypot(unit * frame.ours_noise, seeds)
    return frame.drop(columns=["ours_noise", "std_noise"])


def uncompiled_text(network, rows, words="not compiled at test time, so slower"):
    """Name those of the rows whose networks were not compiled at test time, in a new line of a figure's head."""
    clean = network.clean
    found = dict.fromkeys(clean.row[clean.uncompiled & clean.row.isin(rows)])
    return f"\n{words}: {', '.join(found)}" if found else ""


def count_text(counts, noun="seed"):
    """Format as `1 seed`, or `1 to 3 seeds` if rows differ, so that a figure never hides it."""
    return f"{from_to(counts)} {noun}{'s' if max(counts) > 1 else ''}"
