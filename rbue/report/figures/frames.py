"""Results in, networks out: the runs of one trained dataset, architecture and protocol, each under its row's name."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rbue.report.figures.style import NAMES
from rbue.report.rows import METHODS, by_protocol, canonical, natural, place, position_row
from rbue.report.text import arch_name, dataset_name

NETWORK = ["protocol", "dataset", "arch"]
KNOBS = ("q", "p", "members")  # what a row's brackets say


@dataclass(frozen=True)
class Network:
    """What was measured of one network: `clean` runs, and `corrupted` ones (dataset=cifar10_c) of the same weights."""

    protocol: str
    dataset: str
    arch: str
    runs: pd.DataFrame

    @property
    def clean(self):
        return self.runs[~self.runs.corrupted]

    @property
    def corrupted(self):
        return self.runs[self.runs.corrupted]

    def folder(self, out):
        return Path(out) / self.protocol / self.dataset / self.arch

    def title(self, suffix=""):
        return f"{dataset_name(self.dataset)}{suffix}, {arch_name(self.arch)}, protocol {self.protocol}"


def row_of(config):
    """The row's name and {}, or None and what differs. Another p, q or members is the same method at another setting.

    A corrupted evaluation is of the network that the clean dataset trained, so it is placed as that one. It may take
    fewer samples: there are 95 test sets, and their figure says how many.
    """
    clean = config | {"dataset": config["dataset"].removesuffix("_c"), "corruptions": "none"}
    usual = canonical(clean["dataset"], config["protocol"], config["method"])
    fewer = usual and config["dataset"].endswith("_c")
    row, differs = place(clean | ({"samples": usual.samples} if fewer else {}))
    name = NAMES.get(config["method"])
    if row is None and name and len(differs) == 1 and (knob := next(iter(differs))) in KNOBS:
        return f"{name}({config[knob]:g})", {}
    return row, differs


def run_row(result):
    config = result["config"]
    row, differs = row_of(config)
    return {
        "name": result["name"],
        "protocol": config["protocol"],
        "dataset": config["dataset"].removesuffix("_c"),
        "arch": config["arch"],
        "corrupted": config["dataset"].endswith("_c"),
        "row": row,
        "method": config["method"],
        "knob": next((config[knob] for knob in KNOBS if knob in config and config["method"] in METHODS), 0),
        "seed": config["seed"],
        "differs": ", ".join(f"{key}={value}" for key, value in differs.items()),
        "result": result,
    }


def run_frame(results):
    """One row a run, in the paper's order of methods."""

    def order(run):
        rank = [*METHODS, run["method"]].index(run["method"])
        return rank, run["knob"], natural(run["row"] or ""), run["seed"], run["name"]

    return pd.DataFrame(sorted(map(run_row, results), key=order))


def networks(results):
    """A Network for each (protocol, dataset, arch) that has a run some figure can show."""
    frame = run_frame(results)
    if frame.empty:
        return []
    groups = sorted(frame[frame.row.notna()].groupby(NETWORK), key=lambda group: (by_protocol(group[0][0]), group[0]))
    return [Network(*key, runs.reset_index(drop=True)) for key, runs in groups]


def left_out(results):
    """`name (epochs=2)` of each run that is in no figure or table, since a setting differs from what its row is."""
    frame = run_frame([result for result in results if not position_row(result["config"])])
    if frame.empty:
        return []
    frame = frame[frame.row.isna()]
    return [f"{name} ({differs})" for name, differs in zip(frame.name, frame.differs, strict=True)]


def picked(network, pick):
    """One row a clean run that has what `pick(result)` wants, its numbers beside row, method and seed."""
    found = [(run, numbers) for run in network.clean.itertuples() if (numbers := pick(run.result))]
    return pd.DataFrame([{"row": run.row, "method": run.method, "seed": run.seed} | numbers for run, numbers in found])


def seed_means(frame, key=("row",)):
    """ours_ and std_ of every number over seeds, with n, in the order the rows come."""
    if frame.empty:
        return frame
    values = [column for column in frame if column not in (*key, "method", "seed")]
    groups = frame.astype(dict.fromkeys(values, float)).groupby(list(key), sort=False)
    mean, std = groups[values].mean().add_prefix("ours_"), groups[values].std().add_prefix("std_")
    return mean.join(std).assign(n=groups.size()).reset_index()


def methods_of(runs):
    """(row, method) pairs in the paper's order."""
    return list(runs[["row", "method"]].drop_duplicates().itertuples(index=False, name=None))


def nearest(runs, method, knob):
    """The row of a method whose setting is nearest to the wanted one, or None."""
    rows = runs[runs.method == method]
    if rows.empty:
        return None
    return rows.row[(rows.knob - knob).abs().idxmin()]


def count_text(counts, noun="seed"):
    """`1 seed`, or `1 to 3 seeds` where rows have different numbers: a figure never hides them."""
    low, high = min(counts), max(counts)
    return f"{low} {noun}{'s' if low > 1 else ''}" if low == high else f"{low} to {high} {noun}s"
