"""Three tables the paper has not: the one-pass twin of each network, temperature scaling, images from elsewhere.

Each goes pick → mean over seeds → text. A run without the numbers, from an older version, is not in them.
"""

from rbue.report.figures.frames import picked, seed_means
from rbue.report.figures.style import write_csv, write_text
from rbue.report.grid import Grid
from rbue.report.text import count, dataset_name, decimals, milliseconds, over_seeds, plain, shown
from rbue.report.text import grid as text_grid

percent, three = decimals(2), decimals(3)
SEEDS = "Mean ± standard deviation over seeds (number of seeds)."


@shown
def factor(value):
    """`98×`, `3.6×`: how many times."""
    return f"{value:.0f}×" if value >= 10 else f"{value:.1f}×"


def seeded(metric, text):
    return lambda cell: over_seeds(cell, metric, text)


# --- the deterministic twin -------------------------------------------------------------------------------------------


def twin(result):
    """The samples' scores beside those of the one pass in which every random thing is its mean."""
    other, own = result.get("twin"), result["metrics"]
    if not other:
        return None
    scores = {key: own[key] for key in ("ece", "nll")} | {f"twin_{key}": other[key] for key in ("ece", "nll")}
    times = {"ms": result.get("test_ms_per_image"), "twin_ms": other.get("ms_per_image")}
    ratio = times["ms"] / times["twin_ms"] if all(times.values()) else None
    return scores | times | {
        "accuracy": 100 * own["accuracy"],
        "twin_accuracy": 100 * other["accuracy"],
        "cost": ratio,
        "passes": result.get("passes"),
    }  # fmt: skip


TWIN = [
    ("Accuracy, %: samples", seeded("accuracy", percent)),
    ("twin", seeded("twin_accuracy", percent)),
    ("ECE: samples", seeded("ece", three)),
    ("twin", seeded("twin_ece", three)),
    ("NLL: samples", seeded("nll", three)),
    ("twin", seeded("twin_nll", three)),
    ("Passes: samples", plain("ours_passes", count)),
    ("ms/image: samples", plain("ours_ms", milliseconds)),
    ("twin", plain("ours_twin_ms", milliseconds)),
    ("Cost, samples / twin", plain("ours_cost", factor)),
]
TWIN_NOTES = [
    "The twin is the same weights in one pass without noise: slope 1 − q on negative inputs for DropReLU, (l + u) / 2 "
    "for RReLU, dropout switched off, the posterior's means for SVI.",
    SEEDS,
]


# --- temperature scaling ----------------------------------------------------------------------------------------------


def scaled(result):
    after = result.get("temperature")
    if not after:
        return None
    before = {key: result["metrics"][key] for key in ("ece", "nll")}
    return before | {"temperature": after["temperature"], "after_ece": after["ece"], "after_nll": after["nll"]}


SCALED = [
    ("ECE: before", seeded("ece", three)),
    ("after", seeded("after_ece", three)),
    ("NLL: before", seeded("nll", three)),
    ("after", seeded("after_nll", three)),
    ("Temperature", seeded("temperature", percent)),
]
SCALED_NOTES = [
    "One temperature for the logarithm of the mean prediction, fitted by NLL on one half of the test set and scored on "
    "the other, both ways, since the paper has no validation set. Above 1 the network was too sure; a half without a "
    "mistake leaves it at 1.",
    SEEDS,
]


# --- images from elsewhere --------------------------------------------------------------------------------------------


def elsewhere(result):
    found = result.get("ood")
    if not found:
        return None
    return {
        "dataset": found["dataset"],
        "auroc": found["auroc"],
        "entropy": result["metrics"]["entropy"],
        "entropy_out": found["entropy"],
        "images": found.get("images"),
    }


ELSEWHERE = [
    ("Foreign images", lambda cell: dataset_name(cell["dataset"])),
    ("AUROC", seeded("auroc", three)),
    ("Entropy, nats: own", seeded("entropy", three)),
    ("foreign", seeded("entropy_out", three)),
    ("Images", plain("ours_images", count)),
]
ELSEWHERE_NOTES = [
    "How well predictive entropy tells foreign images from the test set's own: 1 is always, 0.5 is chance.",
    SEEDS,
]

TABLES = {  # file → (title, what a result gives, columns, notes)
    "twins": ("One pass instead of many", twin, TWIN, TWIN_NOTES),
    "temperature": ("Before and after temperature scaling", scaled, SCALED, SCALED_NOTES),
    "ood": ("Images from elsewhere", elsewhere, ELSEWHERE, ELSEWHERE_NOTES),
}


def numbers(network, name):
    """Mean, std and n a row; where several foreign datasets were used, a row for each."""
    frame = picked(network, TABLES[name][1])
    return seed_means(frame, ["row", "dataset"] if "dataset" in frame else ["row"])


def grid(network, name):
    """The table as text, or None without data."""
    title, _, columns, notes = TABLES[name]
    frame = numbers(network, name)
    return None if frame.empty else Grid(f"{title}: {network.title()}", text_grid(frame, columns), notes)


def grids(network, paper_dir):
    return [found for name in TABLES if (found := grid(network, name))]


def draw(network, paper_dir, folder):
    paths = []
    for name in TABLES:
        if found := grid(network, name):
            paths.append(write_csv(numbers(network, name), folder / f"{name}.csv"))
            paths.append(write_text(found.markdown(), folder / f"{name}.md"))
    return paths
