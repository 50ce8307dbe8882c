"""The paper's tables and our runs as the same tidy cells: dataset, arch, row, metric, value, half, se, n.

Metrics are named as in result.json; accuracy is in percent. `time` is training time: the paper's hours, our seconds.
`ece@3` is the median over the 19 corruptions at severity 3. `MC-DropReLU(0.8)@last` is a position of Section 4.5.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd

from rbue.report.cells import machine, shared, training_seconds
from rbue.report.claims import sampling
from rbue.report.claims.values import Value, binomial
from rbue.report.rows import ARCHS, DATASETS, ROWS, by_protocol, place

CELL = ["dataset", "arch", "row", "metric"]
IMAGES = {"cifar10": 10_000, "cifar100": 10_000, "tinyimagenet": 10_000, "digits": 360}  # a test set's size
HALF = {"accuracy": 0.005, "ece": 0.005, "time": 0.05, "jsd": 0.0005, "dis": 0.0005}  # as the paper prints
TIME_NOISE = 0.02  # of a training time, from run to run on one machine
CORRUPTIONS, SEVERITIES = 19, range(1, 6)
DIVERSITY = {"dataset": "cifar10", "arch": "resnet18"}  # the dataset of Tables 4 and 5 is not stated: see numbers.json


@dataclass(frozen=True)
class Numbers:
    """Cells by (dataset, arch, row, metric)."""

    values: dict
    n: dict

    @classmethod
    def of(cls, frame):
        keys = list(frame[CELL].itertuples(index=False, name=None))
        columns = [name for name in ("value", "half", "se", "sampling") if name in frame]  # the paper has no sampling
        values = [Value(*row) for row in frame[columns].itertuples(index=False, name=None)]
        return cls(dict(zip(keys, values, strict=True)), dict(zip(keys, frame.n, strict=True)))

    @property
    def places(self):
        """The (dataset, arch) pairs with any cell, the paper's first and in its order."""
        return sorted({key[:2] for key in self.values}, key=paper_order)

    @cached_property
    def runs(self):
        """(dataset, arch, row) of everything measured."""
        return {key[:3] for key in self.values}


def paper_order(place):
    """For sorting: the paper's datasets and networks first, in its order; others by name."""
    order = {name: i for i, name in enumerate([*DATASETS, *ARCHS])}
    return [(order.get(name, len(order)), name) for name in place]


def labelled(settings):
    """The row of the paper's tables with these settings, or None."""
    return next((label for label, own in ROWS if all(settings.get(k) == v for k, v in own.items())), None)


def noise(metric, value, accuracy, images):
    """The standard error of one run; see values.py."""
    if metric == "time":
        return TIME_NOISE * value
    share = {"accuracy": accuracy / 100, "ece": accuracy / 100, "dis": value}.get(kind(metric))
    return (100 if kind(metric) == "accuracy" else 1) * binomial(share, images) if share is not None else 0.0


def kind(metric):
    """ece@3 -> ece, mean_jsd -> jsd."""
    return metric.split("@")[0].split("_")[-1]


def metrics_of(where, scores, images):
    """One record a metric, each with the error of one run."""
    for metric, value in scores.items():
        accuracy = scores.get("".join(["accuracy", *metric.partition("@")[1:]]), 0)  # at the same severity
        yield where | {"metric": metric, "value": value, "noise": noise(metric, value, accuracy, images)}


# --- the paper --------------------------------------------------------------------------------------------------------


def paper_frame(paper_dir):
    """Every printed number that a claim rests on; one run each, since the paper states no seeds."""
    printed = json.loads((Path(paper_dir) / "numbers.json").read_text())
    records = [*paper_main(printed), *paper_diversity(printed), *paper_position(printed)]
    frame = pd.DataFrame(records).rename(columns={"noise": "se"})
    return frame.assign(half=frame.half.fillna(frame.metric.map(kind).map(HALF)).fillna(0.0), n=1)


def paper_main(printed):
    passes = {"single": 1, "deep_ensemble": printed["setup"]["members"]}
    for entry in printed["main"]:
        where = {key: entry[key] for key in ("dataset", "arch", "row")}
        scores = {"accuracy": entry["accuracy"], "ece": entry["ece"], "time": entry["train_hours"]}
        scores["passes"] = passes.get(entry["method"], printed["setup"]["samples"])
        yield from metrics_of(where, scores, IMAGES[entry["dataset"]])


def paper_diversity(printed):
    for entry in printed["diversity"]:
        scores = {metric: entry[metric] for metric in ("mean_jsd", "max_jsd", "mean_dis", "max_dis")}
        yield from metrics_of(DIVERSITY | {"row": labelled(entry)}, scores, IMAGES[DIVERSITY["dataset"]])


def paper_position(printed):
    for entry in printed["position"]:
        where = {"dataset": entry["dataset"], "arch": entry["arch"], "row": f"{labelled(entry)}@{entry['position']}"}
        scores = {"accuracy": 100 * entry["accuracy"], "ece": entry["ece"], "time": entry["train_hours"]}
        for record in metrics_of(where, scores, IMAGES[entry["dataset"]]):
            yield record | ({"half": 0.5} if record["metric"] == "accuracy" else {})  # .63: two digits, not four


# --- ours -------------------------------------------------------------------------------------------------------------


def our_frames(results):
    """{protocol: tidy cells}: mean over seeds, n, and the standard error of values.py."""
    records = pd.DataFrame([record for result in results for record in our_records(result)])
    if records.empty:
        return {}
    records = comparable_times(most_samples(records))
    groups = sorted(records.groupby("protocol"), key=lambda group: by_protocol(group[0]))
    return {protocol: over_seeds(group) for protocol, group in groups}


def most_samples(records):
    """Of two evaluations of one network, one with fewer samples, the other."""
    best = records.groupby(["protocol", *CELL, "seed"]).passes.transform("max")
    return records[records.passes == best]


def over_seeds(records):
    """First within a seed, so that one network evaluated twice does not count as two."""
    evaluations = records.groupby([*CELL, "seed"])
    seeds = evaluations[["value", "noise"]].mean()
    seeds["sampling"] = [sampling.of_seed(list(group)) for _, group in evaluations.sampling]
    groups = seeds.groupby(CELL)
    n, spread = groups.size(), groups["value"].std().fillna(0.0)
    frame = pd.DataFrame({"value": groups["value"].mean(), "half": 0.0, "n": n})
    frame["se"] = np.hypot(groups["noise"].mean(), spread / np.sqrt(n))
    frame["sampling"] = [sampling.of_cell(group.value, group.sampling) for _, group in groups]
    return frame.reset_index()


def comparable_times(records):
    """A protocol's times from the machine most of its runs used: seconds of two machines do not compare."""
    usual = records.groupby("protocol").machine.agg(lambda machines: machines.mode()[0])
    return records[(records.metric != "time") | (records.machine == records.protocol.map(usual))]


def our_records(result):
    """A result.json as records; none if the run is no row of the tables and no position of one."""
    config = result["config"]
    dataset, row = config["dataset"].removesuffix("_c"), row_of(config)
    where = {"protocol": config["protocol"], "dataset": dataset, "arch": config["arch"], "seed": config["seed"]}
    where["machine"] = machine(result)
    where["passes"] = result.get("passes") or 1
    scores = {} if dataset != config["dataset"] else clean(result)  # cifar10_c brings its corruptions alone
    sampled = sampling.of_run(result) if dataset == config["dataset"] else {}
    scores |= diversity(result) | corrupted(result)
    for name in names(row):
        for record in metrics_of(where | {"row": name}, scores, IMAGES.get(dataset)):
            record |= {"sampling": sampled.get(record["metric"])}
            yield record | ({"noise": jsd_noise(result)} if kind(record["metric"]) == "jsd" else {})


def names(row):
    """A row of the tables is also its own `all` position."""
    return [] if row is None else [row] if "@" in row else [row, f"{row}@all"]


def row_of(config):
    """The row a run feeds, `row@position` for one that differs in its position alone, else None."""
    clean = config["dataset"].removesuffix("_c")
    _, differs = place(config | {"dataset": clean})
    other = differs.keys() - {"corruptions"}  # more evaluation, same network, same clean numbers
    other -= {"samples"} if clean != config["dataset"] else set()  # there are 95 test sets
    if other == {"position"}:
        return f"{labelled(config)}@{config['position']}"
    return None if other else labelled(config)


def clean(result):
    scores = {"accuracy": 100 * result["metrics"]["accuracy"], "ece": result["metrics"]["ece"]}
    time = None if shared(result) else training_seconds(result)
    more = {"time": time, **{key: result.get(key) for key in ("passes", "parameters")}}
    return scores | {metric: value for metric, value in more.items() if value is not None}


def pairs(matrix):
    return [matrix[i][j] for i, j in combinations(range(len(matrix)), 2)]


def diversity(result):
    """Mean and maximum over the six pairs of four samples (Section 4.4.1)."""
    scores = {}
    measured = result.get("diversity") or {}
    for name in measured.keys() & {"jsd", "dis"}:
        values = pairs(measured[name])
        scores |= {f"mean_{name}": sum(values) / len(values), f"max_{name}": max(values)}
    return scores


def jsd_noise(result):
    """A divergence has no binomial error: the spread of the six pairs, which are the same quantity six times."""
    return float(np.std(pairs(result["diversity"]["jsd"]), ddof=1))


def corrupted(result):
    """Medians over the corruptions at each severity; nothing unless all 19 x 5 are there: the claims are about 19."""
    types = (result.get("corruptions") or {}).get("types") or {}
    levels = {s: [level for levels in types.values() for level in levels if level["severity"] == s] for s in SEVERITIES}
    if any(len(level) < CORRUPTIONS for level in levels.values()):
        return {}
    scales = {"accuracy": 100, "ece": 1}
    return {f"{m}@{s}": scales[m] * median(level[m] for level in levels[s]) for s in SEVERITIES for m in scales}
