"""The paper's tables and our runs as the same tidy cells: dataset, arch, row, metric, value, half, se, n.

Metrics are named as in result.json; accuracy is in percent. `time` is training time: the paper's in hours, ours in
seconds. `ece@3` is the median over the 19 corruptions at severity 3. `MC-DropReLU(0.8)@last` is a position of
Section 4.5, `MC-Dropout(0.5)@block` is dropout in every block.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from rbue.report.claims import sampling
from rbue.report.claims.values import Value, binomial
from rbue.report.paper import CORRUPTIONS, HALF, PAPERS_IMAGES, read_paper
from rbue.report.records import ROW, everywhere, levels, most_passes, over_pairs, over_seeds, over_types, pairs, records
from rbue.report.rows import IN_BLOCKS, LABELS, by_protocol, labelled, paper_order

CELL = [*ROW, "metric"]
TIME_NOISE = 0.01  # relative variation of a training time between sessions on one kind of GPU; we measured 0.9 %
SEVERITIES = range(1, 6)
BLOCK = "@block"
DIVERSITY = {"dataset": "cifar10", "arch": "resnet18"}  # Tables 4 and 5 do not state their dataset: see numbers.json


@dataclass(frozen=True)
class Numbers:
    """Cells by (dataset, arch, row, metric)."""

    values: dict
    n: dict

    @classmethod
    def of(cls, frame):
        frame = frame.sort_values("n", ascending=False, kind="stable")  # a time first as measured with most seeds
        keys = list(frame[CELL].itertuples(index=False, name=None))
        columns = [c for c in ("value", "half", "se", "sampling", "origin") if c in frame]  # the paper has no last two
        values, n = {}, {}
        for key, count, row in zip(keys, frame.n, frame[columns].itertuples(index=False, name=None), strict=True):
            first = values.get(key)
            values[key] = replace(first, also=(*first.also, Value(*row))) if first else Value(*row)
            n.setdefault(key, count)
        return cls(values, n)

    @property
    def places(self):
        """The (dataset, arch) pairs with any cell, the paper's first and in its order."""
        return sorted({key[:2] for key in self.values}, key=paper_order)

    @cached_property
    def runs(self):
        """The (dataset, arch, row) triples with any cell."""
        return {key[:3] for key in self.values}


def noise(metric, value, accuracy, images):
    """The standard error of one run (see values.py); NaN if the number of images is unknown, so that all is a tie."""
    if metric == "time":
        return TIME_NOISE * value
    share = {"accuracy": accuracy / 100, "ece": accuracy / 100, "dis": value}.get(kind(metric))
    if share is None:
        return 0.0
    error = binomial(share, images) if images > 0 else float("nan")
    return 100 * error if kind(metric) == "accuracy" else error


def kind(metric):
    """Strip severity and prefix: ece@3 -> ece, mean_jsd -> jsd."""
    return metric.split("@")[0].split("_")[-1]


def metrics_of(where, scores, images):
    """Yield one record per metric, each with the error of one run."""
    for metric, value in scores.items():
        _, at, severity = metric.partition("@")
        accuracy = scores.get(f"accuracy{at}{severity}", 0)
        yield where | {"metric": metric, "value": value, "noise": noise(metric, value, accuracy, images)}


# --- the paper --------------------------------------------------------------------------------------------------------


def paper_frame(paper_dir):
    """Read every printed number that a claim uses. Each counts as one run, since the paper states no seeds."""
    printed = read_paper(paper_dir, "numbers")
    records = [*paper_main(printed), *paper_diversity(printed), *paper_position(printed)]
    frame = pd.DataFrame(records).rename(columns={"noise": "se"})
    return frame.assign(half=frame.half.fillna(frame.metric.map(kind).map(HALF)).fillna(0.0), n=1)


def paper_main(printed):
    passes = {"single": 1, "deep_ensemble": printed["setup"]["members"]}
    for entry in printed["main"]:
        where = {key: entry[key] for key in ("dataset", "arch", "row")}
        scores = {"accuracy": entry["accuracy"], "ece": entry["ece"], "time": entry["train_hours"]}
        scores["passes"] = passes.get(entry["method"], printed["setup"]["samples"])
        yield from metrics_of(where, scores, PAPERS_IMAGES)


def paper_diversity(printed):
    for entry in printed["diversity"]:
        scores = {metric: entry[metric] for metric in ("mean_jsd", "max_jsd", "mean_dis", "max_dis")}
        yield from metrics_of(DIVERSITY | {"row": labelled(entry)}, scores, PAPERS_IMAGES)


def paper_position(printed):
    for entry in printed["position"]:
        where = {"dataset": entry["dataset"], "arch": entry["arch"], "row": f"{labelled(entry)}@{entry['position']}"}
        scores = {"accuracy": 100 * entry["accuracy"], "ece": entry["ece"], "time": entry["train_hours"]}
        for record in metrics_of(where, scores, PAPERS_IMAGES):
            yield record | ({"half": 0.5} if record["metric"] == "accuracy" else {})  # .63 has two digits, not four


# --- ours -------------------------------------------------------------------------------------------------------------


def our_frames(results):
    """Return {protocol: tidy cells} with mean over seeds, n, and the standard error of values.py."""
    found = [record for run in our_runs(results).itertuples() for record in our_records(run)]
    if not found:
        return {}
    frame = comparable_times(most_passes(of_one_source(pd.DataFrame(found)), ["protocol", *CELL, "seed"]))
    groups = sorted(frame.groupby("protocol"), key=lambda group: by_protocol(group[0]))
    return {protocol: with_errors(group) for protocol, group in groups}


def our_runs(results):
    """Return the records of runs that claims ask about. A run at a position is named `row@position`; a row of the
    tables is also listed as `row@all`. Dropout in every block is `row@block`: the paper does not say where it is."""
    every = records(results)
    runs = every[every.row.isin(LABELS)]
    placed = runs[runs.position.notna()]
    placed = placed.assign(row=placed.row + "@" + placed.position)
    return pd.concat([runs[everywhere(runs)], placed, in_every_block(every)], ignore_index=True)


def in_every_block(runs):
    """Return the runs that differ from a row of MC-Dropout only by dropout in every block."""
    block = runs[runs.row.isin([row + IN_BLOCKS for row in LABELS])]
    return block.assign(row=block.row.str.replace(IN_BLOCKS, BLOCK, regex=False))


def with_errors(frame):
    key = [*CELL, "origin"]
    frame = frame.sort_values(key, kind="stable")
    found = over_seeds(frame, key, ["value", "noise"])
    cells = [cell for _, cell in frame.groupby(key, sort=False)]
    se = np.hypot(found.ours_noise, found.std_value.fillna(0.0) / np.sqrt(found.n))
    samplings = sampling.of_cells(cells)
    return found[key].assign(value=found.ours_value, half=0.0, n=found.n, se=se, sampling=samplings)


def of_one_source(frame):
    """Keep scores on corrupted images from the source that most runs of a protocol used on a dataset: generated,
    official and unverified images differ, so their scores do not compare."""
    usual = frame.groupby(["protocol", "dataset"]).source.transform(most_common)
    return frame[frame.source.isna() | (frame.source == usual)]


def comparable_times(frame):
    """Keep times from the machine that timed most of the protocol's runs, each with the `origin` of its code.

    Seconds on two machines do not compare, nor do seconds of two versions: `ask` compares times of one origin.
    """
    timed = frame.metric == "time"
    usual = frame[timed].groupby("protocol").machine.agg(most_common)
    kept = frame.assign(origin=frame.origin.where(timed, ""))
    return kept[~timed | (frame.machine == frame.protocol.map(usual))]


def most_common(names):
    """Return the most common name, None if there is none."""
    return next(iter(names.mode()), None)


def our_records(run):
    """Yield one record per metric of a run. A run on cifar10_c contributes its scores on corrupted images only."""
    kept = ("protocol", "dataset", "arch", "row", "seed", "machine", "origin", "passes")
    where = {key: getattr(run, key) for key in kept} | {"members": run.result.config.get("members", 1)}
    scores, sampled = ({}, {}) if run.corrupted else (clean(run), sampling.of_run(run.result))
    for record in metrics_of(where, scores | corrupted(run.result), run.images):
        source = run.result.corruptions.source if "@" in record["metric"] else None
        errors = {"sampling": sampled.get(record["metric"]), "noise": noise_of(record, run.result)}
        yield record | errors | {"source": source}


def clean(run):
    """Scores, costs and diversity on clean images, where known."""
    scores = {"accuracy": run.accuracy, "ece": run.ece, "time": None if run.shared or run.on_cpu else run.train_seconds}
    scores |= {"passes": run.passes, "parameters": run.parameters, "nll": run.nll}
    scores |= {"auroc": run.result.ood.auroc} if run.result.ood else {}
    scores |= over_pairs(vars(run.result.diversity)) if run.result.diversity else {}
    return {metric: value for metric, value in scores.items() if not pd.isna(value)}


def noise_of(record, result):
    """The error of a record. For diversity, it is at least the spread of the six pairs, which estimate one quantity:
    a divergence is not binomial, and images are not independent if weights are drawn once per pass."""
    measure = kind(record["metric"])
    if measure not in ("jsd", "dis"):
        return record["noise"]
    spread = float(np.std(pairs(getattr(result.diversity, measure)), ddof=1))
    return max(record["noise"], spread) if record["noise"] >= 0 else record["noise"]  # NaN stays NaN


def corrupted(result):
    """Medians over the corruptions per severity; {} unless all 19 x 5 are there, since the claims are about 19."""
    if not result.corruptions:
        return {}
    found = levels(result)
    if (found.severity.value_counts().reindex(SEVERITIES, fill_value=0) < CORRUPTIONS).any():
        return {}
    medians = over_types(found, 0.5)
    return {f"{metric}@{s}": float(medians.at[s, metric]) for s in SEVERITIES for metric in ("accuracy", "ece")}
