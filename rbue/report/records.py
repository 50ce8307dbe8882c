"""One tidy row per run, and the mean over seeds. Tables, figures, claims and the page are built from these two.

runs = records(collect("results/runs"))
over_seeds(runs[runs.row == "SVI"], ["protocol", "dataset", "arch"], ["accuracy", "ece"])
"""

import numpy as np
import pandas as pd

from rbue.config import Run
from rbue.report.rows import HYPERPARAMETER, LABELS, METHODS, match_row
from rbue.runs import schema

PLACE = ["dataset", "arch"]
NETWORK = ["protocol", *PLACE]
ROW = [*PLACE, "row"]  # under any protocol
KEY = [*NETWORK, "row"]
SCORES = ["accuracy", "ece", "nll", "brier", "entropy"]
MEASURES = [*SCORES, "train_seconds", "time_ratio", "parameters", "peak_train_bytes", "test_ms_per_image"]
FLAGS = ["corrupted", "shared", "on_cpu", "by_step", "other_code", "uncompiled"]
TRAINED_ALIKE = ["machine", "torch", "trained_in"]
TESTED_ALIKE = ["corrupted", "hardware", "precision", "passes", "uncompiled"]
NUMBERS = [*MEASURES, "hyperparameter", "passes", "images"]
COLUMNS = [*NETWORK, "corrupted", "seed", "name", "row", "position", "differs", "method", "hyperparameter"]
COLUMNS += ["hyperparameters", "passes", "images", *MEASURES, "shared", "on_cpu", "by_step", "other_code"]
COLUMNS += ["uncompiled", "trained_in", "machine", "hardware", "precision", "torch", "commit", "origin", "result"]


def records(results):
    """Return one row per run, in the paper's order of methods, then by hyperparameters."""
    rows = sorted(map(record, results), key=order)
    frame = pd.DataFrame(rows, columns=COLUMNS)  # all columns exist even without a run
    frame = frame.astype(dict.fromkeys(FLAGS, bool) | dict.fromkeys(NUMBERS, float))
    held_out = frame.result.map(lambda result: bool(result.config.get("holdout"))).astype(bool)
    known = frame[~held_out].dropna(subset="images").drop_duplicates("dataset").set_index("dataset").images
    frame["images"] = frame.images.fillna(frame.dataset.map(known))  # older runs on corrupted images do not store it
    single = frame[(frame.row == "Single") & in_tables(frame)]
    peak = from_other_seeds(frame.peak_train_bytes, frame, "origin", "precision")
    return frame.assign(**time_ratios(single, frame), peak_train_bytes=peak)


def record(result):
    """Return one result as a row; accuracy is in percent, as in the paper."""
    config, environment, seconds = result.config, result.environment, result.seconds
    row, differs = match_row(config)
    papers = config["method"] in METHODS
    return {
        "protocol": config["protocol"],
        "dataset": config["dataset"].removesuffix("_c"),
        "arch": config["arch"],
        "corrupted": config["dataset"].endswith("_c"),
        "seed": config["seed"],
        "name": result.name,
        "row": row,
        "position": config.get("position") if papers else None,
        "differs": ", ".join(f"{key}={value}" for key, value in differs.items()),
        "method": config["method"],
        "hyperparameter": config.get(HYPERPARAMETER.get(config["method"])),
        "hyperparameters": {key: value for key, value in config.items() if key not in Run.__dataclass_fields__},
        "passes": result.passes,
        "images": result.images,
        **{score: result.metrics.get(score) for score in SCORES},
        "accuracy": 100 * result.metrics["accuracy"],
        "train_seconds": seconds.train if seconds.alone is None else seconds.alone,  # with the GPU to itself, if known
        "parameters": result.parameters,
        "peak_train_bytes": result.peak_memory_bytes.alone,
        "test_ms_per_image": result.test_ms_per_image,
        "shared": packed(result) > 1 and seconds.alone is None,  # its share of a pack's time is not its own cost
        "on_cpu": "CPU" in machine(result),  # other programs take part of its time, so times do not compare
        "by_step": seconds.alone not in (None, seconds.train),
        "machine": machine(result),
        **{key: getattr(environment, key) or "unknown" for key in ("hardware", "precision", "torch")},
        "uncompiled": environment.engine == "eager" and "CPU" not in (environment.hardware or ""),  # in evaluation
        "trained_in": config.get("precision", "unknown"),
        "commit": commit(environment.commit, environment.changed),
        "origin": origin(result),
        "result": result,
    }


def order(run):
    """Return a run's sort key. Hyperparameters compare as values: s=2 comes before s=10."""
    papers = run["method"] in METHODS
    rank = METHODS.index(run["method"]) if papers else len(METHODS)
    hyperparameters = [run["hyperparameter"] or 0] if papers else run["hyperparameters"].values()
    sizes = [(0, value, "") if isinstance(value, int | float) else (1, 0, str(value)) for value in hyperparameters]
    own = run["row"] not in LABELS  # dropout in another place comes after the paper's row with the same p
    return rank, run["method"], sizes, own, run["dataset"], run["arch"], run["seed"], run["name"]


def packed(result):
    """Return how many networks shared the GPU in training."""
    return max((training.packed for training in result.trainings), default=1)


def machine(result):
    """Return the hardware and engine of the training. The engine of the evaluation may be another one."""
    parts = result.trainings or [result.environment]
    return str(sorted({f"{part.hardware}, {part.engine}" for part in parts}))


def origin(result):
    """Return what training times depend on besides the run: machine, torch and the code of a step. For older results,
    which do not know their code, it is the commit."""
    where = result.environment
    commits = commit(where.commit, where.changed)
    codes = {f"torch {part.torch or where.torch}, {part.code or commits}" for part in result.trainings}
    return f"{machine(result)}, {', '.join(sorted(codes)) or commits}"


def commit(name, changed):
    return f"`{(name or 'unknown')[:10]}`{' with changes' if changed else ''}"


# --- which runs -------------------------------------------------------------------------------------------------------


def everywhere(runs):
    """Whether runs have noise in all layers, or a method without a position."""
    return runs.position.isna() | (runs.position == "all")


def in_tables(runs):
    """Whether runs feed Tables 1-3."""
    return runs.row.notna() & ~runs.corrupted & everywhere(runs)


def most_passes(runs, key):
    """Keep the evaluation with the most samples, if a network was evaluated several times."""
    passes = runs.passes.fillna(0)
    return runs[passes == passes.groupby([runs[name] for name in key]).transform("max")]


# --- over seeds -------------------------------------------------------------------------------------------------------


def over_seeds(frame, key, values):
    """Return n, the means `ours_*` and the standard deviations `std_*` (ddof 1) per key, in order of appearance.

    Values are first averaged within a seed, since one network evaluated twice is not two seeds. If a run lacks a value,
    the cell is empty: a mean over fewer seeds would mislead.
    """
    key, values = list(key), list(values)
    within = whole(frame.groupby([*key, "seed"], sort=False, dropna=False)[values])[0]
    mean, std, n = whole(within.groupby(key, sort=False, dropna=False))
    parts = [n.rename("n"), mean.add_prefix("ours_"), std.add_prefix("std_")]
    return pd.concat(parts, axis=1).reset_index()


def whole(groups):
    """Mean, standard deviation and size of each group. A missing value makes the first two empty."""
    size, count = groups.size(), groups.count()
    complete = count.eq(size, axis=0)
    return groups.mean().where(complete), groups.std().where(complete), size


def ratio_to(base, runs, key):
    """Training time relative to the base's mean with the same key on the same machine; NaN without such a base.

    Networks trained side by side on one GPU have equal shares of its time, and other programs take part of a CPU's, so
    such times are no base for a ratio.
    """
    key = [*key, "machine"]
    usual = base[~(base.shared | base.on_cpu)].groupby(key, as_index=False).train_seconds.mean()
    seconds = runs[key].merge(usual, on=key, how="left").train_seconds.to_numpy()
    return (runs.train_seconds / seconds).where(~runs.shared)


def time_ratios(single, frame):
    """Return the training time relative to Single's, and whether the two were timed with different code.

    Seeds that were timed with Single's code stand for the other seeds of their row.
    """
    any_code, same_code = ratio_to(single, frame, NETWORK), ratio_to(single, frame, [*NETWORK, "origin"])
    same_code, known = from_other_seeds(same_code, frame), any_code.notna()
    return {"time_ratio": same_code.fillna(any_code).where(known), "other_code": known & same_code.isna()}


def with_times_of_other_seeds(frame):
    """Return runs for a table, in which a seed that shared the GPU has the mean times of its row's other seeds on the
    same machine. `borrowed` marks such runs. Claims do not use them, since no time was measured."""
    measured = frame.train_seconds.where(~frame.shared)
    trained = from_other_seeds(measured, frame, *TRAINED_ALIKE)
    tested = from_other_seeds(frame.test_ms_per_image, frame, *TESTED_ALIKE)
    borrowed = frame.shared & trained.notna()
    ratio = from_other_seeds(frame.time_ratio, frame, *TRAINED_ALIKE)
    stepped = from_other_seeds(frame.by_step.astype(float).where(~frame.shared), frame, *TRAINED_ALIKE) > 0
    return frame.assign(
        train_seconds=trained.where(borrowed, frame.train_seconds),
        time_ratio=ratio.where(borrowed, frame.time_ratio),
        test_ms_per_image=tested,
        shared=frame.shared & ~borrowed,
        by_step=stepped.where(borrowed, frame.by_step),
        borrowed=borrowed | (frame.test_ms_per_image.isna() & tested.notna()),
    )


def from_other_seeds(cost, frame, *same):
    """Fill a cost that a run lacks with the mean of its row's other seeds that have the `same` columns.

    A run that belongs to no row stands for itself only.
    """
    row = [*(frame[key] for key in [*NETWORK, "row", *same]), frame.position.fillna("")]
    return cost.fillna(cost.groupby(row).transform("mean"))


# --- over types of corruption -----------------------------------------------------------------------------------------

LEVEL_SCORES = ["accuracy", "ece", "nll"]


def levels(result):
    """Return a run's scores per type and severity, accuracy in percent. Severity 0, type `none`: the clean test set."""
    clean = schema.Level(0, *(result.metrics.get(score) for score in LEVEL_SCORES))
    tested = [("none", clean), *((kind, level) for kind, found in result.corruptions.types.items() for level in found)]
    frame = pd.DataFrame({"type": kind, **vars(level)} for kind, level in tested)
    frame = frame.astype(dict.fromkeys(LEVEL_SCORES, float))  # a score that no level has would be a column of None
    return frame.assign(accuracy=100 * frame.accuracy)


def over_types(levels, share, run=()):
    """Return a quantile over the types for each run and severity. `run` names the columns that identify a run.

    The mean over seeds comes after it, in figures and in claims: the other order gives another number.
    """
    return levels.groupby([*run, "severity"], sort=False)[LEVEL_SCORES].quantile(share)


# --- over pairs of samples --------------------------------------------------------------------------------------------


def pairs(matrix):
    """The values above the diagonal: each pair once."""
    return np.asarray(matrix)[np.triu_indices(len(matrix), 1)]


def over_pairs(matrices):
    """Mean and maximum of each measure over the six pairs of four samples (Section 4.4.1)."""
    values = {measure: pairs(matrices[measure]) for measure in ("jsd", "dis")}
    return {f"{kind}_{m}": float(f(v)) for m, v in values.items() for kind, f in (("mean", np.mean), ("max", np.max))}
