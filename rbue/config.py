"""What a run is, which values are legal, and the name it is stored under.

Types live here and values in conf/*.yaml, never both: every field is MISSING because a Python default would silently
beat YAML. The exception is `network`, which most of the files that could give it leave out. Nothing here imports torch,
so shell completion and `make tables` stay fast.
"""

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
    """A field that decides the trained weights.

    A neutral value is what runs did before the field existed. It is left out of a run's identity, so a new field that
    declares one renames no old result.
    """
    return field(default=default, metadata={"part": "training", "neutral": neutral})


def evaluation(neutral: Any = MISSING) -> Any:
    """A field that decides the metrics of given weights; for `neutral` see `training`."""
    return field(default=MISSING, metadata={"part": "evaluation", "neutral": neutral})


def local() -> Any:
    """A field about this machine: no part of a run's identity."""
    return field(default=MISSING, metadata={"part": "local", "neutral": MISSING})


def unused() -> Any:
    """A shared field that this method ignores: no part of its runs' identity."""
    return field(default=MISSING, metadata={"part": "unused", "neutral": MISSING})


@dataclass
class Run:
    """One run: the settings that every method shares, and the hooks that a method may override.

    A method is a subclass (see `rbue.methods`). The order of the fields is the order of --cfg job. Hooks import torch
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
        within(0, 2**31 - 1, seed=self.seed)
        at_least(0, crop=self.crop, lr=self.lr, weight_decay=self.weight_decay, holdout=self.holdout)
        at_least(1, epochs=self.epochs, batch=self.batch, samples=self.samples, bins=self.bins)
        at_least(1, checkpoint_every=self.checkpoint_every, pack=self.pack)
        for name in ("size", "eval_batch", "per_gpu"):
            at_least(1, **{name: 1 if getattr(self, name) is None else getattr(self, name)})
        within(0, 1, warmup=self.warmup, momentum=self.momentum)
        for drop in self.lr_drops:
            within(0, 1, lr_drops=drop)
        one_of(("step", "linear"), schedule=self.schedule)
        one_of(("auto", "fp32", "bf16"), precision=self.precision)
        if self.precision == "auto":
            self.precision = auto_precision(self.device)
        one_of(("auto", "eager"), engine=self.engine)
        for name in ("data_dir", "results_dir", "weights_dir"):
            setattr(self, name, os.path.expanduser(getattr(self, name)))
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise UserError(f"device={self.device} is not known: choose auto, cpu, cuda or one GPU such as cuda:1")
        one_of(("csv", "tensorboard"), logger=self.logger)
        if self.logger == "tensorboard" and not find_spec("tensorboard"):
            raise UserError("logger=tensorboard needs a package that is not installed: pip install -e '.[tensorboard]'")
        one_of(("none", "auto", "generated", "official"), corruptions=self.corruptions)
        if self.holdout and self.corruptions != "none":
            raise UserError(f"holdout={self.holdout} tests on training images, of which there are no corrupted sets")

    @property
    def trained_on(self) -> str:
        """Networks never train on corrupted images: cifar10_c evaluates what cifar10 trained."""
        return self.dataset.removesuffix("_c")

    # --- hooks: a method overrides what is not the usual -------------------------------------------------------------

    @property
    def trainings(self) -> list["Run"]:
        """The runs whose weights this one needs."""
        return [self]

    @property
    def passes(self) -> int:
        """How many predictions are averaged."""
        return self.samples

    def build(self, network: "nn.Module", images: int) -> "nn.Module":
        """The network to train, made of the plain one; `images` is the number of training images.

        It sees two images in eval mode before it is trained, so a layer may take the size of its input from them.
        """
        from rbue.surgery import trace

        return trace(network)  # as all methods do, so that compiler and evaluation see the same kind of network

    @property
    def loss(self) -> "Callable[[Tensor, Tensor], Tensor]":
        """A function (logits, labels) -> the loss of one batch."""
        from torch.nn.functional import cross_entropy

        return cross_entropy

    @property
    def penalty(self) -> "Callable[[nn.Module], Tensor] | None":
        """A function network -> what the loss of the whole training set is penalised by, such as a KL; or None."""
        return None

    @property
    def penalty_schedule(self) -> tuple[float, float]:
        """The penalty's final weight, and the fraction of training over which it rises from 0 to it."""
        return 0.0, 0.0

    def optimizers(self, network: "nn.Module", lr: "Tensor") -> "list[optim.Optimizer]":
        """The optimizers of a training; `lr` is a tensor that holds the learning rate of the current step."""
        return [self.sgd([{"params": list(network.parameters())}], lr)]

    def sgd(self, groups: list[dict[str, Any]], lr: "Tensor") -> "optim.SGD":
        """SGD as the protocol has it, over parameter groups, of which empty ones are left out."""
        from torch.optim import SGD

        groups = [group for group in groups if group["params"]]
        decay, momentum = self.weight_decay, self.momentum
        return SGD(groups, lr=lr, momentum=momentum, nesterov=momentum > 0, weight_decay=decay, fused=True)

    refit_batchnorm = False  # whether batch-norm statistics are computed anew for each draw of the weights

    # --- what a run is called -----------------------------------------------------------------------------------------

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The method's own settings."""
        shared = {f.name for f in fields(Run)}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in shared}

    def part(self, *parts: str) -> dict[str, Any]:
        """The fields of these parts, without those at their neutral value."""
        values = {f: getattr(self, f.name) for f in fields(self) if f.metadata["part"] in parts}
        return {f.name: value for f, value in values.items() if value != f.metadata["neutral"]}

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


def name_of(identity: dict[str, Any]) -> str:
    """Readable axes for people, eight hex digits of the whole identity for certainty."""
    shared = {f.name for f in fields(Run)}
    hyperparameters = [spelled(key, value) for key, value in identity.items() if key not in shared]
    axes = "-".join([identity["method"], *hyperparameters, identity["protocol"], f"seed{identity['seed']}"])
    return f"{identity['dataset']}/{identity['arch']}/{axes}-{digest(identity)}"


def spelled(key: str, value: Any) -> str:
    """A hyperparameter in a folder's name."""
    if isinstance(value, str):
        return value.replace("/", "_")
    if value is True:
        return key
    return f"{key}{value:.4g}" if isinstance(value, int | float) else f"{key}{value}"


def digest(identity: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]


def auto_precision(device: str) -> str:
    """What precision=auto means on this machine: bf16 on a GPU, fp32 on a CPU."""
    return "bf16" if device.startswith("cuda") or (device == "auto" and gpus()) else "fp32"


@cache
def built_for_cuda() -> bool:
    """Whether the installed torch can use a GPU, read from its version file: importing torch takes seconds."""
    torch = find_spec("torch")
    if not torch or not torch.origin:
        return False
    version = Path(torch.origin).with_name("version.py").read_text(encoding="utf-8")
    return not re.search(r"^cuda\b.*= None", version, re.M)


def gpus() -> int:
    """How many GPUs this process may use, counted without torch."""
    if not built_for_cuda():
        return 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return len(glob("/dev/nvidia[0-9]*")) or len(glob("/dev/dxg"))  # the latter: Linux inside of Windows
    known = re.compile(r"\d+|(GPU|MIG)-.+").fullmatch  # CUDA stops at the first name that it does not know
    return len(list(takewhile(known, visible.split(","))))
