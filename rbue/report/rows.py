"""The ten rows of the paper's Tables 1-3, the rows of other methods, and the rule that assigns runs to rows.

A run feeds a cell only if all its settings, except the seed, equal what `python train.py dataset=D arch=A protocol=P`
with the row's settings composes. A run with epochs=2 on the command line is no result of `protocol=paper`.
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
NAMES = {settings["method"]: label.partition("(")[0] for label, settings in ROWS}  # in the paper's order
OWN_NAMES = {"ivon": "IVON"}  # methods of this suite that are not in the paper
METHODS = list(NAMES)  # any other method is the user's own
IN_BLOCKS = " in every block"  # ends the name of a row: the paper does not say where dropout is
HYPERPARAMETER = {"mc_dropout": "p", "deep_ensemble": "members", "dropreLU": "q"}  # in brackets in a row's name
PROPOSED_METHODS = ("rrelu", "dropreLU")
PROPOSED = [label for label, settings in ROWS if settings["method"] in PROPOSED_METHODS]

# In the paper's order and spelling. A name that is not listed here (a user's own) is printed as it is.
ARCHS = {"vgg13": "VGG-13", "resnet18": "ResNet-18", "densenet121": "DenseNet-121"}
DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tinyimagenet": "TinyImageNet"}

FULL = ("matched", "paper")  # full schedules: `matched` fits the paper's numbers, `paper` is what it states


def arch_name(arch):
    return ARCHS.get(arch, arch)


def dataset_name(dataset):
    clean = dataset.removesuffix("_c")
    return DATASETS.get(clean, clean) + ("-C" if clean != dataset else "")


def place_name(dataset, arch):
    return f"{dataset_name(dataset)} with {arch_name(arch)}"


def by_protocol(name):
    """Return a protocol's sort key: full schedules come before short ones."""
    return [*FULL, name].index(name), name


def name_order(name):
    """Return the sort key of a dataset or a network: the paper's come first, in its order, then others by name."""
    return [*DATASETS, *ARCHS, name].index(name), name


def protocol_settings(protocol, datasets):
    """Return `200 epochs, 150 on TinyImageNet, weight decay 0.0005`; None if conf/ has no such protocol."""
    found = {dataset: canonical(dataset, protocol, "single") for dataset in sorted(datasets, key=name_order)}
    runs = {dataset: run for dataset, run in found.items() if run}
    if not runs:
        return None
    usual, *_ = runs.values()
    others = [f"{run.epochs} on {dataset_name(name)}" for name, run in runs.items() if run.epochs != usual.epochs]
    return ", ".join([f"{usual.epochs} epochs", *others, f"weight decay {usual.weight_decay:g}"])


def protocol_text(protocol, datasets):
    settings = protocol_settings(protocol, datasets)
    return f"`{protocol}` ({settings})" if settings else f"`{protocol}`"


def paper_order(place):
    """Return the sort key of several names, such as a dataset and a network."""
    return [name_order(name) for name in place]


def in_order(labels):
    """Return each label once: the paper's rows in its order, then the others in order of appearance."""
    return sorted(dict.fromkeys(labels), key=lambda label: [*LABELS, label].index(label))


def labelled(settings):
    """Return the row of the paper's tables with these settings, or None."""
    return next((label for label, own in ROWS if own.items() <= settings.items()), None)


# --- which row a run belongs to ---------------------------------------------------------------------------------------


@cache
def cell_identity(dataset, protocol, arch, label):
    """Return the config that a run of this cell must have: every key that affects weights or metrics."""
    settings = dict(ROWS)[label]
    return complete(replace(on_arch(canonical(dataset, protocol, settings["method"]), arch), **settings).identity)


def difference(config, expected):
    """Return {key: the run's value} where a run differs from the expected config. Seeds and precisions share a row."""
    config, expected = complete(config), complete(expected)
    keys = [key for key in config | expected if key not in ("seed", "precision")]
    return {k: config.get(k, "absent") for k in keys if k not in config or config[k] != expected.get(k)}


def match_row(config):
    """Return the run's row and {}, or None and the differences from the nearest row.

    A corrupted evaluation belongs to the network trained on the clean dataset. It may use fewer samples, since there
    are 95 test sets. Another p, placement, q or members gives a row of its own, below the paper's. The position of
    stochastic rectifiers (Section 4.5) does not change the row: it is a separate axis.
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
    if differs.keys() <= {"position", "placement", hyperparameter} and "absent" not in differs.values():
        row = f"{NAMES[config['method']]}({str(config[hyperparameter]).removesuffix('.0')})"
        return row + (placed(config["placement"]) if "placement" in differs else ""), {}
    return None, differs


def placed(placement):
    return IN_BLOCKS if placement == "block" else f", placement={placement}"


def as_clean(config, usual):
    """Return the config as if the run had been tested on the clean images only."""
    fewer = config["dataset"] != usual.dataset and "samples" in config
    samples = {"samples": usual.samples} if fewer else {}
    return config | {"dataset": usual.dataset, "corruptions": usual.corruptions} | samples


def own_row(config, usual):
    """Return the row of a method that is not in the paper. Each setting is a row, named after its hyperparameters; if
    there are several, after those that differ from the method's YAML file."""
    own = {key: config[key] for key in usual.hyperparameters if key in config}
    differs = difference(config, on_arch(usual, config["arch"]).identity | own)
    name = OWN_NAMES.get(usual.method, usual.method)
    told = {key: value for key, value in own.items() if len(own) == 1 or value != getattr(usual, key)}
    text = ", ".join(f"{key}={value}" for key, value in told.items())
    return (None if differs else f"{name}({text})" if text else name), differs
