"""Tables that are not in the paper: the deterministic network, temperature scaling, OOD images, more scores from the
stored predictions, and corruptions of the user's own.

Each is built in three stages: pick numbers → mean over seeds → text. Runs of older versions may lack the numbers.
"""

from functools import partial

import pandas as pd

from rbue.report.columns import METHOD, Grid, count, decimals, milliseconds, number, seeded, shown, words
from rbue.report.figures.frames import picked
from rbue.report.records import SCORES, most_passes, over_seeds
from rbue.report.rows import dataset_name
from rbue.report.tables import write_grid
from rbue.runs.predictions import scores

percent, three = decimals(2), decimals(3)
SEEDS = "Numbers are mean ± standard deviation over seeds; the number of seeds is in brackets."


@shown
def factor(value):
    """Format a factor: `98×`, `3.6×`."""
    return f"{value:.0f}×" if value >= 10 else f"{value:.1f}×"


# --- the deterministic network ----------------------------------------------------------------------------------------


def twin(result):
    """Return the samples' scores and those of the deterministic network (one pass, all noise replaced by its mean)."""
    other, own = result.twin, result.metrics
    if not other:
        return None
    ms, twin_ms = result.test_ms_per_image, other.get("ms_per_image")
    return {
        **{key: own.get(key) for key in ("ece", "nll")},
        **{f"twin_{key}": other.get(key) for key in ("ece", "nll")},
        "ms": ms,
        "twin_ms": twin_ms,
        "accuracy": 100 * own["accuracy"],
        "twin_accuracy": 100 * other.get("accuracy", float("nan")),
        "cost": ms / twin_ms if ms and twin_ms else None,
        "passes": result.passes,
    }


TWIN = [
    seeded("accuracy", "Accuracy, %", "samples", percent),
    seeded("twin_accuracy", "Accuracy, %", "noise off", percent),
    seeded("ece", "ECE", "samples", three),
    seeded("twin_ece", "ECE", "noise off", three),
    seeded("nll", "NLL", "samples", three),
    seeded("twin_nll", "NLL", "noise off", three),
    number("ours_passes", "Passes", "samples", count),
    number("ours_ms", "ms/image", "samples", milliseconds),
    number("ours_twin_ms", "ms/image", "noise off", milliseconds),
    number("ours_cost", "Cost, samples / noise off", "", factor),
]
TWIN_NOTE = (
    "Noise off: one pass with the same weights, in which every random quantity is replaced by its mean. For negative "
    "inputs, this is a slope of 1 − q (DropReLU) or (l + u) / 2 (RReLU). There is no dropout. SVI has its posterior's "
    "means. A dash means that a time is unknown. On a GPU, only the passes with noise are compiled, so their cost is "
    "lower than the number of passes suggests."
)


# --- temperature scaling ----------------------------------------------------------------------------------------------


def scaled(result):
    after = result.temperature
    if not after:
        return None
    before = {key: result.metrics.get(key) for key in ("ece", "nll")}
    return before | {"temperature": after.temperature, "after_ece": after.ece, "after_nll": after.nll}


SCALED = [
    seeded("ece", "ECE", "before", three),
    seeded("after_ece", "ECE", "after", three),
    seeded("nll", "NLL", "before", three),
    seeded("after_nll", "NLL", "after", three),
    seeded("temperature", "Temperature", "", percent),
]
SCALED_NOTE = (
    "One temperature divides the logarithm of the mean prediction. We fit it by NLL on one half of the test set and "
    "evaluate it on the other half, and vice versa, since we keep no images for validation. A temperature above 1 "
    "means that the network was overconfident. If one half has no mistake, the temperature stays 1."
)


# --- OOD images -------------------------------------------------------------------------------------------------------


def out_of_distribution(result):
    found = result.ood
    if not found:
        return None
    entropy = {"entropy": result.metrics.get("entropy"), "entropy_out": found.entropy}
    more = {f"auroc_{score}": getattr(found, f"auroc_{score}") for score in ("confidence", "mutual_information")}
    known = {name: value for name, value in more.items() if value is not None}
    return {"dataset": found.dataset, "auroc": found.auroc, **known, **entropy, "images": found.images}


OOD = [
    words("dataset", "OOD images", text=lambda cell: dataset_name(cell["dataset"])),
    seeded("auroc", "AUROC", "", three),
    seeded("auroc_confidence", "AUROC of confidence", "", three),
    seeded("auroc_mutual_information", "AUROC of mutual information", "", three),
    seeded("entropy", "Entropy, nats", "test set", three),
    seeded("entropy_out", "Entropy, nats", "OOD", three),
    number("ours_images", "Images", "", count),
]
OOD_NOTE = "AUROC: how well predictive entropy detects out-of-distribution (OOD) images. 1 is perfect, 0.5 is chance."
MORE_OOD_NOTE = (
    "The further AUROCs use a low confidence (maximum softmax probability, MSP) or a high mutual information (the "
    "samples' disagreement, which one pass does not have) instead. A dash: at least one seed lacks this score."
)

# --- more scores ------------------------------------------------------------------------------------------------------


def more_scores(result):
    """The user's own metrics, and the scores of the stored predictions; NLL and Brier score are the exact ones."""
    if not result.predictions:
        return own_metrics(result)
    exact = {key: result.metrics[key] for key in ("nll", "brier") if key in result.metrics}
    return own_metrics(result) | scores(result.predictions, result.config.get("bins", 30)) | exact


def own_metrics(result):
    """The metrics that are not the suite's own; one with the name of a column of ours is not shown."""
    taken = {*SCORES, *(column.key.removeprefix("ours_") for column in MORE)}
    return {name: value for name, value in result.metrics.items() if name not in taken}


MORE = [
    seeded("nll", "NLL", "", three),
    seeded("brier", "Brier score", "", three),
    seeded("ece", "ECE", "equal width", three),
    seeded("ece_adaptive", "ECE", "equal mass", three),
    seeded("ece_classwise", "ECE", "by class", three),
    seeded("ece_as_printed", "ECE", "paper's formula", three),
    seeded("aurc", "AURC", "", decimals(4)),
    seeded("auroc_misclassification", "AUROC of mistakes", "", three),
    seeded("auroc", "OOD images", "AUROC", three),
    seeded("aupr", "OOD images", "AUPR", three),
    seeded("fpr95", "OOD images", "FPR95", three),
]
MORE_NOTE = (
    "All scores but NLL and Brier score are computed from `predictions.npz`. The four ECEs use bins of equal width, as "
    "in the tables (the last digit may differ, since stored confidences are rounded); bins with equally many images; "
    "bins within each predicted class; and the paper's literal formula, which bins by the true class's score and is "
    "not a calibration error (see `rbue/runs/predictions.py`). AURC is the error on the k least uncertain images, "
    "averaged over all k. Predictive entropy detects mistakes and OOD images. A dash: at least one seed lacks this "
    "score."
)

# --- corruptions of the user's own ------------------------------------------------------------------------------------


def own_corruptions(network):
    """Mean, std and n of each row and corruption that is not among the 19, by severity."""
    frame = pd.DataFrame(
        {"row": run.row, "seed": run.seed, "passes": run.passes, "corruption": name} | by_severity(levels)
        for run in network.corrupted.itertuples()
        for name, levels in (run.result.corruptions.own if run.result.corruptions else {}).items()
    )
    key = ["row", "corruption"]
    if frame.empty:
        return frame
    frame = most_passes(frame, [*key, "seed"]).drop(columns="passes")
    return over_seeds(frame, key, frame.columns.difference([*key, "seed"]))


def by_severity(levels):
    percents = {f"accuracy_{level.severity}": 100 * level.accuracy for level in levels}
    return percents | {f"ece_{level.severity}": level.ece for level in levels}


OWN_TYPES = [
    words("corruption", "Corruption"),
    *(seeded(f"accuracy_{k}", "Accuracy, %", f"severity {k}", percent) for k in range(1, 6)),
    *(seeded(f"ece_{k}", "ECE", f"severity {k}", three) for k in range(1, 6)),
]
OWN_TYPES_NOTE = "Corruptions that the user registered. Box plots and averages use only the 19 types of the paper."

# --- all tables -------------------------------------------------------------------------------------------------------


def numbers(pick, network):
    """Mean, std and n of what `pick` takes from each result, by row; by OOD dataset too, if there are several."""
    frame = picked(network, pick)
    key = ["row", "dataset"] if "dataset" in frame else ["row"]
    values = [column for column in frame if column not in (*key, "method", "seed")]
    return over_seeds(frame.astype(dict.fromkeys(values, float)), key, values) if values else frame


TABLES = {  # file → (title, the numbers of a network, columns, note)
    "twins": ("One pass instead of many", partial(numbers, twin), TWIN, TWIN_NOTE),
    "temperature": ("Before and after temperature scaling", partial(numbers, scaled), SCALED, SCALED_NOTE),
    "scores": ("More scores", partial(numbers, more_scores), MORE, MORE_NOTE),
    "ood": ("Out-of-distribution images", partial(numbers, out_of_distribution), OOD, OOD_NOTE),
    "own-corruptions": ("Corruptions beyond the 19", own_corruptions, OWN_TYPES, OWN_TYPES_NOTE),
}


def grid(network, name):
    """Return the table, or None without data."""
    title, numbers_of, columns, note = TABLES[name]
    frame = numbers_of(network)
    if frame.empty:
        return None
    own = sorted({m for result in network.clean.result for m in own_metrics(result)}) if name == "scores" else []
    columns = [METHOD, *columns, *(seeded(metric, metric, "", three) for metric in own)]
    columns = [column for column in columns if column.key in frame]  # a dataset may have no OOD images
    told = [f"Registered by the user, from `result.json`: {', '.join(own)}."] if own else []
    if name == "ood" and "ours_auroc_confidence" in frame:
        told = [MORE_OOD_NOTE]
    if name == "scores" and "ours_auroc" not in frame:
        note = note.replace(" and OOD images", "")
    return Grid(f"{title}: {network.title()}", columns, frame.to_dict("records"), [note, SEEDS, *told])


def grids(network):
    return [found for name in TABLES if (found := grid(network, name))]


def draw(network, folder):
    return [path for name in TABLES if (found := grid(network, name)) for path in write_grid(found, folder / name)]
