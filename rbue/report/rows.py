"""The ten rows of the paper's Tables 1-3, rows of methods it has not, and which of their cells a finished run feeds.

A run feeds a cell only if its whole config, the seed aside, is what `python train.py dataset=D arch=A protocol=P` with
the row's settings composes to: a run with epochs=2 on the command line is no result of `protocol=paper`.
"""

import re
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException

from rbue.config import Run, complete, parse, register

ROWS = [
    ("Single", {"method": "single"}),
    ("MC-Dropout(0.2)", {"method": "mc_dropout", "p": 0.2}),
    ("MC-Dropout(0.5)", {"method": "mc_dropout", "p": 0.5}),
    ("Deep Ensemble(4)", {"method": "deep_ensemble", "members": 4}),
    ("SVI", {"method": "svi"}),
    ("MC-RReLU", {"method": "rrelu", "l": 1 / 8, "u": 1 / 3}),
    ("MC-DropReLU(0.8)", {"method": "dropreLU", "q": 0.8}),
    ("MC-DropReLU(0.85)", {"method": "dropreLU", "q": 0.85}),
    ("MC-DropReLU(0.9)", {"method": "dropreLU", "q": 0.9}),
    ("MC-DropReLU(0.95)", {"method": "dropreLU", "q": 0.95}),
]
LABELS = [label for label, _ in ROWS]
METHODS = list(dict.fromkeys(settings["method"] for _, settings in ROWS))  # any other is a user's own
PROPOSED = [label for label, settings in ROWS if settings["method"] in ("rrelu", "dropreLU")]

# In the paper's order and spelling; a name not listed here (a user's own) is printed as it is.
ARCHS = {"vgg13": "VGG-13", "resnet18": "ResNet-18", "densenet121": "DenseNet-121"}
DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tinyimagenet": "TinyImageNet"}

FULL = ("matched", "paper")  # the whole schedule: what the paper's numbers fit, what it states


def by_protocol(name):
    """Sorts protocols: the whole schedule before short ones."""
    return [*FULL, name].index(name), name


CONF = Path(__file__).resolve().parents[2] / "conf"
register_once = cache(register)


@contextmanager
def own_hydra():
    """Hydra over conf/, also inside a running Hydra application: there is one a process, so that one steps aside."""
    outer, GlobalHydra.instance().hydra = GlobalHydra.instance().hydra, None
    try:
        with initialize_config_dir(str(CONF), version_base=None):
            yield
    finally:
        GlobalHydra.instance().hydra = outer


@cache
def composed(dataset, protocol, method):
    """What Hydra makes of the three choices, or None where conf/ does not know one of them."""
    register_once()
    try:
        with own_hydra():
            return parse(compose("config", [f"dataset={dataset}", f"protocol={protocol}", f"method={method}"]))
    except HydraException:
        return None


def canonical(dataset, protocol, method):
    """The same as `composed`, from fewer compositions: each takes a tenth of a second, and a full suite has 54.

    Dataset and protocol come after the method in conf/config.yaml's list and win, so a method's file decides its own
    knobs alone: composing them once and taking the rest from Single gives the same Run, which a test checks.
    """
    shared, own = composed(dataset, protocol, "single"), composed("cifar10", "paper", method)
    if shared is None or own is None:
        return None
    return replace(own, **{f.name: getattr(shared, f.name) for f in fields(Run) if f.name != "method"})


def cell_identity(dataset, protocol, arch, settings):
    """What a run must have been to be this cell: every key that decides weights or metrics."""
    run = canonical(dataset, protocol, settings["method"])
    return replace(run, arch=arch, **settings).identity if run else settings


def difference(config, expected):
    """The keys in which a run is not what was expected, with the run's values. Seeds and precisions share a row."""
    config, expected = complete(config), complete(expected)
    keys = [key for key in config | expected if key not in ("seed", "precision")]
    return {k: config.get(k, "absent") for k in keys if k not in config or config[k] != expected.get(k)}


def place(config):
    """The row a run belongs to and {}, or None and how it differs from the row it is nearest to."""
    rows = [(label, settings) for label, settings in ROWS if settings["method"] == config["method"]]
    where = config["dataset"], config["protocol"], config["arch"]
    if not (usual := canonical(*where[:2], config["method"])):
        return None, {key: config[key] for key in ("method", "dataset", "protocol")}
    if not rows:
        return own_row(config, usual)
    differences = {label: difference(config, cell_identity(*where, settings)) for label, settings in rows}
    nearest = min(differences, key=lambda label: len(differences[label]))
    return (None if differences[nearest] else nearest), differences[nearest]


def own_row(config, usual):
    """The same for a method that the paper has not: each setting of its knobs is a row, named after them."""
    knobs = {key: config[key] for key in usual.knobs if key in config}
    differs = difference(config, usual.identity | {"arch": config["arch"]} | knobs)
    text = ", ".join(f"{key}={value}" for key, value in knobs.items())
    return (None if differs else f"{usual.method}({text})" if text else usual.method), differs


def position_row(config):
    """The row of a run if only the place of its random rectifiers may set it apart, else None (Section 4.5)."""
    papers = "position" in config and config["method"] in METHODS
    return place(config | {"position": "all"})[0] if papers else None


def in_order(labels):
    """The paper's rows in the paper's order, then others by name and number: s=2 before s=10."""
    return sorted(labels, key=lambda label: (LABELS.index(label) if label in LABELS else len(LABELS), natural(label)))


def natural(label):
    """Text and numbers in turn, for sorting."""
    parts = re.split(r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?)", label)
    return [float(part) if k % 2 else part for k, part in enumerate(parts)]
