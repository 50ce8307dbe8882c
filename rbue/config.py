"""What a run is, which values are legal, and under which name it is stored.

Types are defined here and values in conf/*.yaml. Every field is MISSING, because a default in Python would silently
replace a value that the YAML forgot. The exception is `network`, which most YAML files leave out. Nothing here imports
torch, so shell completion and `make tables` stay fast.
"""

import copy
import hashlib
import json
import os
import re
from dataclasses import dataclass, field, fields
from functools import cache
from glob import glob
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import MISSING

from rbue.errors import UserError, at_least, one_of, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn, optim


def training(neutral: Any = MISSING, default: Any = MISSING) -> Any:
    """Declare a field that decides the trained weights.

    The neutral value is what runs did before the field existed. It is left out of a run's identity, so a new field with
    a neutral value changes the name of no old result.
    """
    return field(default=default, metadata={"part": "training", "neutral": neutral})


def evaluation(neutral: Any = MISSING) -> Any:
    """Declare a field that decides the metrics of given weights. `training` explains `neutral`."""
    return field(default=MISSING, metadata={"part": "evaluation", "neutral": neutral})


def local() -> Any:
    """Declare a field about this machine, which is not part of a run's identity."""
    return field(default=MISSING, metadata={"part": "local", "neutral": MISSING})


def unused() -> Any:
    """Declare that a method ignores a shared field, which is then not part of its runs' identity."""
    return field(default=MISSING, metadata={"part": "unused", "neutral": MISSING})


NAME = re.compile(r"\w[\w.+-]*")  # of names that become folders
NAMED = ("method", "dataset", "arch", "protocol")
FOLDERS = ("data_dir", "results_dir", "weights_dir")


@dataclass
class Run:
    """One run: the settings that all methods share, and the hooks that a method may override.

    A method is a subclass (see `rbue.methods`). `--cfg job` shows the fields in the order below. Hooks import torch
    only when they are called.
    """

    method: str = training()
    dataset: str = training()
    arch: str = training()
    protocol: str = training()
    seed: int = training()
    epochs: int = training()
    batch: int = training()
    lr: float = training()
    lr_drops: list[float] = training()
    schedule: str = training()
    warmup: float = training()
    weight_decay: float = training()
    momentum: float = training()
    crop: int = training()
    flip: bool = training()
    size: int | None = training(neutral=None)
    precision: str = training()
    holdout: int = training(neutral=0)
    network: dict[str, Any] | None = training(neutral=None, default=None)
    samples: int = evaluation()
    bins: int = evaluation()
    corruptions: str = evaluation()
    device: str = local()
    engine: str = local()
    data_dir: str = local()
    results_dir: str = local()
    weights_dir: str = local()
    checkpoint_every: int = local()
    eval_batch: int | None = local()
    pack: int = local()
    per_gpu: int | None = local()
    logger: str = local()

    def __post_init__(self) -> None:
        check_names(self)
        check_numbers(self)
        check_choices(self)
        check_images(self)
        if self.precision == "auto":
            self.precision = auto_precision(self.device)
        for name in FOLDERS:
            setattr(self, name, os.path.expanduser(getattr(self, name)))

    @property
    def trained_on(self) -> str:
        """Return the clean dataset, cifar10 for cifar10_c: networks are never trained on corrupted images."""
        return self.dataset.removesuffix("_c")

    # --- hooks, which a method may override --------------------------------------------------------------------------

    @property
    def trainings(self) -> list["Run"]:
        """Return the runs whose trained weights this run needs."""
        return [self]

    @property
    def passes(self) -> int:
        """Return the number of predictions that are averaged."""
        return self.samples

    def build(self, network: "nn.Module", images: int) -> "nn.Module":
        """Return the network to train, made from the deterministic one. `images` is the number of training images.

        Before training, two images pass through it in eval mode, so a layer may take its input size from them.
        """
        from rbue.surgery import trace

        return trace(network)  # as the other methods do, so that compiler and evaluation get the same kind of network

    @property
    def loss(self) -> "Callable[[Tensor, Tensor], Tensor]":
        """Return a function (logits, labels) -> the loss of one batch."""
        from torch.nn.functional import cross_entropy

        return cross_entropy

    @property
    def penalty(self) -> "Callable[[nn.Module], Tensor] | None":
        """Return a function network -> penalty on the loss summed over the training set, such as a KL; or None."""
        return None

    @property
    def penalty_schedule(self) -> tuple[float, float]:
        """Return the penalty's final weight, and the fraction of training over which the weight rises from 0."""
        return 0.0, 0.0

    def optimizers(self, network: "nn.Module", lr: "Tensor") -> "list[optim.Optimizer]":
        """Return the optimizers. `lr` is a tensor that holds the learning rate of the current step."""
        return [self.sgd([{"params": list(network.parameters())}], lr)]

    def sgd(self, groups: list[dict[str, Any]], lr: "Tensor") -> "optim.SGD":
        """Return SGD with the protocol's settings. Empty parameter groups are left out."""
        from torch.optim import SGD

        groups = [group for group in groups if group["params"]]
        decay, momentum = self.weight_decay, self.momentum
        return SGD(groups, lr=lr, momentum=momentum, nesterov=momentum > 0, weight_decay=decay, fused=True)

    refit_batchnorm = False  # whether batch-norm statistics are recomputed for each sample of the weights

    def with_seed(self, seed: int) -> "Run":
        """Return the same run with another seed. `dataclasses.replace` would take twice the time."""
        other = copy.copy(self)
        other.seed = seed
        other.__post_init__()
        return other

    # --- identity and name --------------------------------------------------------------------------------------------

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Return the settings that only this method has."""
        return {name: getattr(self, name) for name in own_settings(type(self))}

    def part(self, *parts: str) -> dict[str, Any]:
        """Return the fields of these parts, without those that have their neutral value."""
        kind: Any = type(self)  # for mypy, a dataclass is no Hashable
        chosen = [(name, neutral) for name, part, neutral in declared(kind) if part in parts]
        return {name: value for name, neutral in chosen if (value := getattr(self, name)) != neutral}

    @property
    def training_identity(self) -> dict[str, Any]:
        return self.part("training") | {"dataset": self.trained_on}

    @property
    def identity(self) -> dict[str, Any]:
        return self.part("training", "evaluation")

    @property
    def training_name(self) -> str:
        return name_of(self.training_identity)

    @property
    def name(self) -> str:
        return name_of(self.identity)


def check_names(run: Run) -> None:
    for name in NAMED:
        if not NAME.fullmatch(getattr(run, name)):
            told = "a name may only have letters, digits and _ . + -, and must begin with a letter, a digit or _"
            raise UserError(f"{name}={getattr(run, name)} cannot be used: {told}")
    for name in FOLDERS:
        if not getattr(run, name):
            raise UserError(f"{name}= is empty: name a folder, such as . for the current one")


def check_numbers(run: Run) -> None:
    within(0, 2**31 - 1, seed=run.seed)
    at_least(0, crop=run.crop, lr=run.lr, weight_decay=run.weight_decay, holdout=run.holdout)
    at_least(1, epochs=run.epochs, batch=run.batch, samples=run.samples)
    within(1, 100_000, bins=run.bins)
    at_least(1, checkpoint_every=run.checkpoint_every, pack=run.pack)
    optional = {"size": run.size, "eval_batch": run.eval_batch, "per_gpu": run.per_gpu}
    at_least(1, **{name: value for name, value in optional.items() if value is not None})
    within(0, 1, warmup=run.warmup, momentum=run.momentum)
    for drop in run.lr_drops:
        within(0, 1, lr_drops=drop)


def check_choices(run: Run) -> None:
    one_of(("step", "linear"), schedule=run.schedule)
    one_of(("auto", "fp32", "bf16"), precision=run.precision)
    one_of(("auto", "eager"), engine=run.engine)
    one_of(("csv", "tensorboard"), logger=run.logger)
    one_of(("none", "auto", "generated", "official"), corruptions=run.corruptions)
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", run.device):
        raise UserError(f"device={run.device} is not known: choose auto, cpu, cuda or one GPU such as cuda:1")
    if run.logger == "tensorboard" and not find_spec("tensorboard"):
        raise UserError("logger=tensorboard needs a package that is not installed: pip install -e '.[tensorboard]'")


def check_images(run: Run) -> None:
    """Refuse a dataset that does not fit `corruptions`, and images that have no corrupted version."""
    if run.corruptions == "none" and run.dataset.endswith("_c"):
        way_out = f"write dataset={run.trained_on} for clean images, or corruptions=auto for corrupted ones"
        raise UserError(f"dataset={run.dataset} needs corrupted images, but corruptions=none: {way_out}")
    if run.corruptions != "none" and not run.dataset.endswith("_c"):
        way_out = f"write dataset={run.dataset}_c for corrupted images, or corruptions=none for clean ones"
        raise UserError(f"dataset={run.dataset} has clean images, but corruptions={run.corruptions}: {way_out}")
    if run.holdout and run.corruptions != "none":
        why = f"holdout={run.holdout} tests on training images, which have no corrupted versions"
        raise UserError(f"{why}: write dataset={run.trained_on} corruptions=none, or leave out holdout=")


def own_settings(method: type[Run]) -> list[str]:
    """Return the names of the settings that only this method has."""
    return [f.name for f in fields(method) if f.name not in Run.__dataclass_fields__]


@cache
def declared(kind: Any) -> list[tuple[str, str, Any]]:
    """Return (name, part, neutral value) of each field of a kind of run."""
    return [(f.name, f.metadata["part"], f.metadata["neutral"]) for f in fields(kind)]


def name_of(identity: dict[str, Any]) -> str:
    """Return a run's name: its main settings in readable form, and eight hex digits of the hash of all settings."""
    hyperparameters = [spelled(key, value) for key, value in identity.items() if key not in Run.__dataclass_fields__]
    axes = "-".join([identity["method"], *hyperparameters, identity["protocol"], f"seed{identity['seed']}"])
    return f"{identity['dataset']}/{identity['arch']}/{axes}-{digest(identity)}"


def spelled(key: str, value: Any) -> str:
    """Write a hyperparameter for the name of a folder."""
    if isinstance(value, str):
        return value.replace("/", "_")
    if value is True:
        return key
    return f"{key}{value:.4g}" if isinstance(value, int | float) else f"{key}{value}"


def digest(identity: dict[str, Any]) -> str:
    return hashlib.sha256(SORTED.encode(identity).encode()).hexdigest()[:8]


SORTED = json.JSONEncoder(sort_keys=True)  # made once, since a table of many seeds needs hundreds of thousands of names


def auto_precision(device: str) -> str:
    """Return what precision=auto means on this machine: bf16 on a GPU, fp32 on a CPU."""
    return "bf16" if device.startswith("cuda") or (device == "auto" and gpus()) else "fp32"


@cache
def built_for_cuda() -> bool:
    """Return whether the installed torch supports CUDA, from its version file, since importing torch takes seconds."""
    torch = find_spec("torch")
    if not torch or not torch.origin:
        return False
    version = Path(torch.origin).with_name("version.py").read_text(encoding="utf-8")
    return not re.search(r"^cuda\b.*= None", version, re.M)


def gpus() -> int:
    """Count the GPUs that this process may use, without importing torch."""
    if not built_for_cuda():
        return 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return len(glob("/dev/nvidia[0-9]*")) or len(glob("/dev/dxg"))  # /dev/dxg: the GPU under WSL
    known = re.compile(r"\d+|(GPU|MIG)-.+").fullmatch  # CUDA ignores everything after the first unknown name
    return len(list(takewhile(known, visible.split(","))))
