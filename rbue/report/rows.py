"""The ten rows of the paper's Tables 1-3, rows of methods it has not, and which of them a finished run is of.

A run feeds a cell only if its whole config, the seed aside, is what `python train.py dataset=D arch=A protocol=P` with
the row's settings composes to: a run with epochs=2 on the command line is no result of `protocol=paper`.
"""

from dataclasses import replace
from functools import cache

from rbue.methods import complete
from rbue.runs.compose import canonical, on_arch

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
NAMES = {
    "single": "Single",
    "mc_dropout": "MC-Dropout",
    "deep_ensemble": "Deep Ensemble",
    "svi": "SVI",
    "rrelu": "MC-RReLU",
    "dropreLU": "MC-DropReLU",
}
OWN_NAMES = {"ivon": "IVON"}  # methods of ours, not in the paper
METHODS = list(NAMES)  # in the paper's order; any other is a user's own
HYPERPARAMETER = {"mc_dropout": "p", "deep_ensemble": "members", "dropreLU": "q"}  # what a row's brackets say
PROPOSED = [label for label, settings in ROWS if settings["method"] in ("rrelu", "dropreLU")]

# In the paper's order and spelling; a name not listed here (a user's own) is printed as it is.
ARCHS = {"vgg13": "VGG-13", "resnet18": "ResNet-18", "densenet121": "DenseNet-121"}
DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tinyimagenet": "TinyImageNet"}

FULL = ("matched", "paper")  # the whole schedule: what the paper's numbers fit, what it states


def by_protocol(name):
    """Sorts protocols: the whole schedule before short ones."""
    return [*FULL, name].index(name), name


def paper_order(place):
    """For sorting: the paper's datasets and networks first, in its order; others by name."""
    order = {name: i for i, name in enumerate([*DATASETS, *ARCHS])}
    return [(order.get(name, len(order)), name) for name in place]


def in_order(labels):
    """Each label once: the paper's rows in the paper's order, then the others as they come."""
    return sorted(dict.fromkeys(labels), key=lambda label: [*LABELS, label].index(label))


def labelled(settings):
    """The row of the paper's tables with these settings, or None."""
    return next((label for label, own in ROWS if own.items() <= settings.items()), None)


# --- the one rule -----------------------------------------------------------------------------------------------------


@cache
def cell_identity(dataset, protocol, arch, label):
    """What a run must have been to be this cell: every key that decides weights or metrics."""
    settings = dict(ROWS)[label]
    return complete(replace(on_arch(canonical(dataset, protocol, settings["method"]), arch), **settings).identity)


def difference(config, expected):
    """The keys in which a run is not what was expected, with the run's values. Seeds and precisions share a row."""
    config, expected = complete(config), complete(expected)
    keys = [key for key in config | expected if key not in ("seed", "precision")]
    return {k: config.get(k, "absent") for k in keys if k not in config or config[k] != expected.get(k)}


def place(config):
    """The row a run is of and {}, or None and how it differs from the row it is nearest to.

    A corrupted evaluation is of the network that the clean dataset trained, and may take fewer samples: there are 95
    test sets. Another p, q or members is a row between those of the tables, from which it differs. Where random
    rectifiers stand (Section 4.5) sets no row apart: that is an axis of its own.
    """
    where = config["dataset"].removesuffix("_c"), config["protocol"], config["method"]
    if not (usual := canonical(*where)):
        return None, {key: config[key] for key in ("method", "dataset", "protocol")}
    config = as_clean(config, usual)
    if config["method"] not in METHODS:
        return own_row(config, usual)
    rows = [label for label, settings in ROWS if settings["method"] == config["method"]]
    differences = {label: difference(config, cell_identity(*where[:2], config["arch"], label)) for label in rows}
    nearest = min(rows, key=lambda label: len(differences[label]))
    differs, hyperparameter = differences[nearest], HYPERPARAMETER.get(config["method"])
    if differs.keys() <= {"position"}:
        return nearest, {}
    between = differs.keys() - {"position"} == {hyperparameter} and hyperparameter in config
    return (f"{NAMES[config['method']]}({config[hyperparameter]:g})" if between else None), differs


def as_clean(config, usual):
    """A run as if it had been tested on the clean images alone."""
    fewer = config["dataset"] != usual.dataset and "samples" in config
    samples = {"samples": usual.samples} if fewer else {}
    return config | {"dataset": usual.dataset, "corruptions": usual.corruptions} | samples


def own_row(config, usual):
    """The row of a method that is not in the paper. Each setting is a row, named after its hyperparameters; where there
    are several, after those that differ from the method's file."""
    own = {key: config[key] for key in usual.hyperparameters if key in config}
    differs = difference(config, on_arch(usual, config["arch"]).identity | own)
    name = OWN_NAMES.get(usual.method, usual.method)
    told = {key: value for key, value in own.items() if len(own) == 1 or value != getattr(usual, key)}
    text = ", ".join(f"{key}={value}" for key, value in told.items())
    return (None if differs else f"{name}({text})" if text else name), differs
