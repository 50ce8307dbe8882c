"""Made-up results in the form of train.py's result.json, for the tests of everything that reads results."""

import base64
import json
from dataclasses import replace
from io import BytesIO
from math import log

import numpy as np
from PIL import Image

from rbue.config import name_of
from rbue.report.figures import networks
from rbue.report.records import records
from rbue.report.rows import ROWS
from rbue.runs import schema
from rbue.runs.compose import canonical

TYPES = ["fog", "snow", "contrast", "pixelate", "spatter"]
DIGITS = ("digits", "demo", "small")


def read(contents):
    """Parse contents as if collected from files; Results are passed through."""
    return [c if isinstance(c, schema.Result) else schema.parse(json.loads(json.dumps(c))) for c in contents]


def read_records(contents):
    return records(read(contents))


def only(contents):
    """The one network that these results are of."""
    (network,) = networks(read_records(contents))
    return network


def write(folder, contents):
    """Write a folder of finished runs."""
    for content in contents:
        path = folder / content["name"] / "result.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(content), encoding="utf-8")
    return folder


def result(label, accuracy=0.95, ece=0.03, where=("cifar10", "fast", "resnet18"), **changes):
    """A clean result with only scores and costs."""
    dataset, protocol, arch = where
    settings = dict(ROWS)[label]
    run = replace(canonical(dataset, protocol, settings["method"]), arch=arch, **settings | changes)
    return {
        "format": schema.FORMAT,
        "name": run.name,
        "config": run.identity,
        "metrics": {"accuracy": accuracy, "ece": ece, "nll": 0.2, "brier": 0.1, "entropy": 0.1},
        "seconds": {"train": 200.0, "evaluate": 12.0},
        "test_ms_per_image": 0.3,
        "images": 10_000,
        "passes": {"single": 1, "deep_ensemble": 4}.get(run.method, run.samples),
        "parameters": 11173962,
        "environment": {"commit": "0123456789abcdef", "hardware": "NVIDIA H200", "torch": "2.11", "precision": "bf16"},
        "finished": "2026-11-15T10:00:00+00:00",
    }


def corrupted(label, source="generated", types=TYPES, step=0.01, **more):
    """For type k at severity s, accuracy falls by (k + 1) s steps and ECE rises by as many thousandths."""
    clean = result(label, **more)
    settings = clean["config"] | {"dataset": f"{clean['config']['dataset']}_c", "corruptions": "auto"}
    accuracy, ece = clean["metrics"]["accuracy"], clean["metrics"]["ece"]
    levels = {
        t: [
            {"severity": s, "accuracy": accuracy - step * k * s, "ece": ece + 0.001 * k * s, "nll": 1.0}
            for s in range(1, 6)
        ]
        for k, t in enumerate(types, 1)
    }
    shift = {"source": source, "types": levels, "skipped": {}}
    return clean | {"name": f"{name_of(settings)}-{source}", "config": settings, "corruptions": shift}


def sampled(label, *values, **more):
    """by_samples with these accuracies at 1, 2, 3, … samples, and matrices whose pair (i, j) has JSD (i + j) / 1000."""
    count = range(1, len(values) + 1)
    columns = {"samples": [*count], "accuracy": values, "ece": [0.1 / k for k in count], "nll": [0.5 for k in count]}
    jsd = [[0 if i == j else (i + j) / 1000 for j in range(1, 5)] for i in range(1, 5)]
    matrices = {"jsd": jsd, "dis": [[10 * value for value in row] for row in jsd]}
    return result(label, **more) | {"by_samples": columns, "diversity": matrices}


def picture():
    """A small image as base64, as stored in a result's example."""
    file = BytesIO()
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def example():
    samples = [[0.7 - 0.1 * k, 0.2 + 0.1 * k, 0.1] for k in range(5)]
    mean = np.mean(samples, axis=0).tolist()
    entropy = -sum(p * log(p) for p in mean)
    return {
        "index": 7,
        "label": "cat",
        "classes": ["cat", "dog", "frog"],
        "png": picture(),
        "samples": samples,
        "mean": mean,
        "entropy": entropy,
    }


def layer(site, q=0.8, negative=10.0, positive=5.0):
    noise = q * (1 - q)
    exact = {"closed": noise * negative, "paper": noise * (negative + 2 * positive), "dropout": noise * positive}
    return {"site": site, "name": f"relu_{site}", **exact, "monte_carlo": noise * negative * 1.01, "elements": 64}


def analysed(label, *values, **more):
    """A result with every number of the analysis."""
    found = sampled(label, *(values or (0.94, 0.95)), **more)
    random = found["config"]["method"] not in ("single", "deep_ensemble")
    intervals = {key.format(m): [0.001, 0.009] for key in ("mean_{}", "max_{}_simultaneous") for m in ("jsd", "dis")}
    twin = {"accuracy": 0.94, "ece": 0.05, "nll": 0.25, "brier": 0.1, "entropy": 0.1, "ms_per_image": 0.003}
    return found | {
        "diversity": found["diversity"] | {"intervals": intervals},
        "reliability": {"count": [0, 20, 80], "confidence": [None, 0.5, 0.9], "accuracy": [None, 0.4, 0.95]},
        "rejection": {"rejected": [0, 0.25, 0.5], "accuracy": [0.95, 0.97, 1.0]},
        "temperature": {"temperature": 1.3, "ece": 0.01, "nll": 0.18},
        "ood": {"dataset": "cifar100", "auroc": 0.91, "entropy": 0.8, "images": 10000},
        "twin": twin if random else None,
        "variance": [layer(0), layer(1, negative=40.0)] if found["config"]["method"] == "dropreLU" else None,
        "example": example(),
        **(posterior() if found["config"]["method"] == "svi" else {}),
    }


def posterior():
    """Two layers and a bias, whose deviations grew from 0.007, and three epochs in which KL falls."""
    names = ("conv.weight", "conv.bias", "fc.weight")
    layers = [
        {"name": n, "elements": 9, "sigma": [0.006, 0.007, 0.008 + k / 1000, 0.009, 0.01]} for k, n in enumerate(names)
    ]
    curve = {"loss": [2.0, 1.0, 0.5], "accuracy": [0.3, 0.6, 0.9], "kl": [640.0, 620.0, 600.0]}
    return {"posterior": layers, "trainings": [{"seconds": 200.0, "curve": curve}]}


def whole_suite(where=DIGITS):
    """Ten rows, the positions of one of them, and two methods under corruption."""
    rows = [analysed(label, where=where) for label, _ in ROWS]
    positions = [analysed("MC-DropReLU(0.8)", where=where, position=place) for place in ("last", "first")]
    return [*rows, *positions, *(corrupted(label, where=where) for label in ("Single", "MC-RReLU"))]
