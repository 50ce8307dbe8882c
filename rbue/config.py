"""What a run is, which values are legal, and the name it is stored under.

Types live here and values in conf/*.yaml, never both: every field is MISSING because a Python default would silently
beat YAML. Nothing here imports torch, so shell completion and `make tables` stay fast.
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

from hydra.core.config_store import ConfigStore
from hydra.errors import CompactHydraException
from omegaconf import MISSING, OmegaConf


class Refused(CompactHydraException):
    """A request declined in one sentence that says what is wrong and the way out."""


def training(neutral=MISSING):
    """A field that decides the trained weights.

    A neutral value is what runs did before the field existed. It is left out of a run's identity, so a new field that
    declares one renames no old result.
    """
    return field(default=MISSING, metadata={"part": "training", "neutral": neutral})


def evaluation(neutral=MISSING):
    """A field that decides the metrics of given weights; for `neutral` see `training`."""
    return field(default=MISSING, metadata={"part": "evaluation", "neutral": neutral})


def local():
    """A field about this machine: no part of a run's identity."""
    return field(default=MISSING, metadata={"part": "local", "neutral": MISSING})


def unused():
    """A shared field that this method ignores: no part of its runs' identity."""
    return field(default=MISSING, metadata={"part": "unused", "neutral": MISSING})


def within(low, high, **values):
    for name, value in values.items():
        if not low <= value <= high:  # also refuses NaN
            raise Refused(f"{name}={value} must lie in [{low}, {high}]")


def at_least(low, **values):
    for name, value in values.items():
        if not low <= value < float("inf"):
            raise Refused(f"{name}={value} must be at least {low}")


def one_of(choices, **values):
    for name, value in values.items():
        if value not in choices:
            raise Refused(f"{name}={value} is not known: choose one of {', '.join(choices)}")


@dataclass
class Run:
    """What every method shares. The order of the fields is the order of --cfg job."""

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
    precision: str = training()
    holdout: int = training(neutral=0)
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

    def __post_init__(self):
        within(0, 2**31 - 1, seed=self.seed)
        at_least(0, crop=self.crop, lr=self.lr, weight_decay=self.weight_decay, holdout=self.holdout)
        at_least(1, epochs=self.epochs, batch=self.batch, samples=self.samples, bins=self.bins)
        at_least(1, checkpoint_every=self.checkpoint_every, pack=self.pack)
        for name in ("eval_batch", "per_gpu"):
            at_least(1, **{name: 1 if getattr(self, name) is None else getattr(self, name)})
        within(0, 1, warmup=self.warmup, momentum=self.momentum)
        for drop in self.lr_drops:
            within(0, 1, lr_drops=drop)
        one_of(("step", "linear"), schedule=self.schedule)
        one_of(("auto", "fp32", "bf16"), precision=self.precision)
        if self.precision == "auto":
            self.precision = auto_precision(self.device)
        one_of(("auto", "eager"), engine=self.engine)
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise Refused(f"device={self.device} is not known: choose auto, cpu, cuda or one GPU such as cuda:1")
        one_of(("csv", "tensorboard"), logger=self.logger)
        if self.logger == "tensorboard" and not find_spec("tensorboard"):
            raise Refused("logger=tensorboard needs a package that is not installed: pip install -e '.[tensorboard]'")
        one_of(("none", "auto", "generated", "official"), corruptions=self.corruptions)
        if self.holdout and self.corruptions != "none":
            raise Refused(f"holdout={self.holdout} tests on training images, of which there are no corrupted sets")

    @property
    def trained_on(self):
        """Networks never train on corrupted images: cifar10_c evaluates what cifar10 trained."""
        return self.dataset.removesuffix("_c")

    @property
    def trainings(self):
        """The runs whose weights this one needs."""
        return [self]

    @property
    def knobs(self):
        shared = {f.name for f in fields(Run)}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in shared}

    def part(self, *parts):
        """The fields of these parts, without those at their neutral value."""
        values = {f: getattr(self, f.name) for f in fields(self) if f.metadata["part"] in parts}
        return {f.name: value for f, value in values.items() if value != f.metadata["neutral"]}

    @property
    def training_identity(self):
        return self.part("training") | {"dataset": self.trained_on}

    @property
    def identity(self):
        return self.part("training", "evaluation")

    @property
    def training_name(self):
        return name_of(self.training_identity)

    @property
    def name(self):
        return name_of(self.identity)


def name_of(identity):
    """Readable axes for people, eight hex digits of the whole identity for certainty."""
    shared = {f.name for f in fields(Run)}
    knobs = [spelled(key, value) for key, value in identity.items() if key not in shared]
    axes = "-".join([identity["method"], *knobs, identity["protocol"], f"seed{identity['seed']}"])
    return f"{identity['dataset']}/{identity['arch']}/{axes}-{digest(identity)}"


def complete(identity):
    """An identity with the neutral values that it leaves out: absent and neutral are the same setting."""
    schema = SCHEMAS.get(identity["method"], Run)
    neutral = {f.name: f.metadata["neutral"] for f in fields(schema) if f.metadata["neutral"] is not MISSING}
    return neutral | identity


def spelled(key, value):
    """A knob in a folder's name."""
    if isinstance(value, str):
        return value.replace("/", "_")
    if value is True:
        return key
    return f"{key}{value:.4g}" if isinstance(value, int | float) else f"{key}{value}"


def digest(identity):
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]


@dataclass
class Single(Run):
    """One deterministic network (Section 4.1.4, a)."""

    samples: int = unused()


@dataclass
class MCDropout(Run):
    """Dropout in training and testing (Section 4.1.4, b)."""

    p: float = training()
    placement: str = training()

    def __post_init__(self):
        super().__post_init__()
        within(0, 1, p=self.p)
        one_of(("last", "block", "conv", "relu"), placement=self.placement)
        self.placement = placement_of(self.arch, self.placement)


def placement_of(arch, placement):
    """VGG-13 has no blocks: there `block` is `last`, dropout before the classifier, and has its name."""
    return "last" if (arch, placement) == ("vgg13", "block") else placement


@dataclass
class DeepEnsemble(Run):
    """Independently trained networks (Section 4.1.4, c)."""

    samples: int = unused()
    members: int = evaluation()

    def __post_init__(self):
        super().__post_init__()
        at_least(1, members=self.members)

    @property
    def trainings(self):
        """Members are the Single runs of the next seeds, so a Single, an ensemble and a sweep share their trainings."""
        shared = {f.name: getattr(self, f.name) for f in fields(Run)} | {"method": "single"}
        return [Single(**shared | {"seed": self.seed + k}) for k in range(self.members)]


@dataclass
class SVI(Run):
    """A Gaussian over the weights, sampled (Section 4.1.4, d)."""

    sigma: float = training()
    beta: float = training()
    kl_warmup: float = training()
    rho_lr: float = training()
    rho_optimizer: str = training(neutral="adam")
    tempered_prior: bool = training(neutral=False)
    refit_batchnorm: bool = evaluation(neutral=False)

    def __post_init__(self):
        super().__post_init__()
        at_least(0, rho_lr=self.rho_lr, beta=self.beta)
        one_of(("sgd", "adam"), rho_optimizer=self.rho_optimizer)
        if self.rho_optimizer == "sgd":
            self.rho_lr = 1e-3  # not used, so all values are one run
        if self.tempered_prior and not self.beta:
            raise Refused("tempered_prior=true scales the prior's variance by beta, so beta must be above 0")
        if not self.weight_decay:
            raise Refused("method=svi takes its prior from the weight decay, so weight_decay must be above 0")
        within(1e-8, 10, sigma=self.sigma)
        within(0, 1, kl_warmup=self.kl_warmup)


@dataclass
class IVON(Run):
    """A Gaussian over the weights by natural gradients (Shen et al., 2024); not in the paper."""

    hess_init: float = training()
    hess_rate: float = training()

    def __post_init__(self):
        super().__post_init__()
        within(1e-8, 1e4, hess_init=self.hess_init)
        within(0, 1, hess_rate=self.hess_rate)
        if not self.weight_decay or self.momentum == 1:
            raise Refused("method=ivon needs weight_decay above 0, for its prior, and momentum below 1")


@dataclass
class DropReLU(Run):
    """Rectifiers kept with probability q (eq. 5)."""

    q: float = training()
    position: str = training()

    def __post_init__(self):
        super().__post_init__()
        within(0, 1, q=self.q)
        one_of(("all", "first", "last"), position=self.position)


@dataclass
class RReLU(Run):
    """Negative slopes drawn from U(l, u) (eq. 6)."""

    l: float = training()
    u: float = training()
    position: str = training()

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.l < self.u < 1:
            raise Refused(f"l={self.l}, u={self.u} must satisfy 0 <= l < u < 1")
        one_of(("all", "first", "last"), position=self.position)


SCHEMAS = {
    "single": Single,
    "mc_dropout": MCDropout,
    "deep_ensemble": DeepEnsemble,
    "svi": SVI,
    "ivon": IVON,
    "dropreLU": DropReLU,
    "rrelu": RReLU,
}


@dataclass
class Union:
    """A sweep: lines as typed at the command line, and lines for clean datasets alone (conf/sweep)."""

    _target_: str = "hydra_plugins.rbue_sweeper.UnionSweeper"
    grids: list[str] = field(default_factory=list)
    clean: list[str] = field(default_factory=list)


@dataclass
class Packed:
    _target_: str = "hydra_plugins.rbue_launcher.PackedLauncher"


def register():
    store = ConfigStore.instance().store
    for name, schema in SCHEMAS.items():
        store(group="hydra/schema", name=name, node=schema, package="_global_")
    store(group="hydra/sweeper", name="union", node=Union)
    store(group="hydra/launcher", name="packed", node=Packed)
    OmegaConf.register_new_resolver("gpus", gpus, replace=True)
    OmegaConf.register_new_resolver("places", lambda per_gpu: gpus() * (per_gpu or 1) or os.cpu_count(), replace=True)
    OmegaConf.register_new_resolver("gpu_share", lambda per_gpu: 1 / (per_gpu or 1) if gpus() else 0, replace=True)


def auto_precision(device):
    """What precision=auto means on this machine: bf16 on a GPU, fp32 on a CPU."""
    return "bf16" if device.startswith("cuda") or (device == "auto" and gpus()) else "fp32"


@cache
def built_for_cuda():
    """Whether the installed torch can use a GPU, read from its version file: importing torch takes seconds."""
    torch = find_spec("torch")
    version = Path(torch.origin).with_name("version.py").read_text() if torch else "cuda = None"
    return not re.search(r"^cuda\b.*= None", version, re.M)


def gpus():
    """How many GPUs this process may use, counted without torch."""
    if not built_for_cuda():
        return 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return len(glob("/dev/nvidia[0-9]*")) or len(glob("/dev/dxg"))  # the latter: Linux inside of Windows
    known = re.compile(r"\d+|(GPU|MIG)-.+").fullmatch  # CUDA stops at the first name that it does not know
    return len(list(takewhile(known, visible.split(","))))


def parse(cfg) -> Run:
    """A composed config becomes a checked, typed Run, or a sentence."""
    known = {f.name for f in fields(SCHEMAS[cfg.method])}
    for key in set(cfg) - known:
        raise Refused(f"method={cfg.method} has no setting '{key}': python train.py --help lists each method's knobs")
    return OmegaConf.to_object(cfg)
