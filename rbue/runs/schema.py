"""Result: the typed and versioned content of result.json. `read` is the only reader; it needs no torch.

A field with a default may be absent from a file, for example in an older format or on other hardware: then it is None,
never zero. Format 2 stores which precision `precision=auto` chose and the number of test images. It leaves out settings
that have no effect, such as Single's `samples`. `upgrade` converts older files.
"""

import json
import math
import sys
from collections.abc import Sized
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache, cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints
from zipfile import BadZipFile

from rbue import config, methods
from rbue.errors import UserError
from rbue.methods.mc_dropout import placement_of
from rbue.runs.predictions import Predictions, correct

FORMAT = 2


def need_same_length(where: str, *columns: Sized) -> None:
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"{where} has columns of different length")


@dataclass(frozen=True)
class Seconds:
    """Durations. `train` is an equal share of the pack's time; `alone` is the training time without a pack."""

    train: float
    evaluate: float
    alone: float | None = None


@dataclass(frozen=True)
class Memory:
    """Peak memory in bytes."""

    train: int | None = None
    evaluate: int | None = None


@dataclass(frozen=True)
class Training:
    """How one network was trained. `packed` is the number of networks that shared the device."""

    name: str | None = None
    seconds: float | None = None
    alone: float | None = None
    packed: int = 1
    hardware: str | None = None
    engine: str | None = None
    code: str | None = None  # a hash of the code that decides the time of a step
    torch: str | None = None
    parameters: int | None = None
    peak_memory_bytes: int | None = None
    setup_seconds: float | None = None
    epoch: int | None = None
    loss: float | None = None
    accuracy: float | None = None
    kl: float | None = None
    lr: float | None = None
    curve: dict[str, list[float]] | None = None  # one entry per epoch


@dataclass(frozen=True)
class Environment:
    """What results depend on besides the config. Hardware, precision and engine are those of the evaluation."""

    commit: str | None = None
    changed: bool | None = None
    python: str | None = None
    platform: str | None = None
    torch: str | None = None
    torchvision: str | None = None
    numpy: str | None = None
    hardware: str | None = None
    precision: str | None = None
    engine: str | None = None


@dataclass(frozen=True)
class Diversity:
    """Matrices over pairs of samples, with bootstrap intervals of their mean and maximum."""

    jsd: list[list[float]]
    dis: list[list[float]]
    intervals: dict[str, list[float]] | None = None

    def __post_init__(self) -> None:
        if len(self.jsd) < 2:
            raise ValueError("diversity has no pair")
        need_same_length("diversity", self.jsd, self.dis, *self.jsd, *self.dis)


@dataclass(frozen=True)
class Reliability:
    """One entry per ECE bin; an empty bin has no confidence and no accuracy."""

    count: list[int]
    confidence: list[float | None]
    accuracy: list[float | None]

    def __post_init__(self) -> None:
        need_same_length("reliability", self.count, self.confidence, self.accuracy)


@dataclass(frozen=True)
class Rejection:
    rejected: list[float]
    accuracy: list[float]

    def __post_init__(self) -> None:
        need_same_length("rejection", self.rejected, self.accuracy)


@dataclass(frozen=True)
class Temperature:
    temperature: float
    ece: float
    nll: float


@dataclass(frozen=True)
class Foreign:
    """OOD detection: images of another dataset, detected by their predictive entropy."""

    dataset: str
    auroc: float
    entropy: float
    images: int


@dataclass(frozen=True)
class LayerVariance:
    """The variance of one DropReLU layer's summed output (Section 3.4), computed in four ways."""

    site: int
    name: str
    closed: float
    paper: float
    dropout: float
    monte_carlo: float
    elements: int


@dataclass(frozen=True)
class LayerPosterior:
    """The 5, 25, 50, 75 and 95 % quantiles of the standard deviations in one random weight tensor after training."""

    name: str
    elements: int
    sigma: list[float]
    start: float | None = None  # the value of all standard deviations before training


@dataclass(frozen=True)
class Example:
    """One test image with its sample predictions, for the framework figure."""

    index: int
    label: str
    classes: list[str]
    png: str
    samples: list[list[float]]
    mean: list[float]
    entropy: float

    def __post_init__(self) -> None:
        need_same_length("example", self.classes, self.mean, *self.samples)


@dataclass(frozen=True)
class Level:
    """Scores on one corruption at one severity."""

    severity: int
    accuracy: float
    ece: float
    nll: float | None = None
    brier: float | None = None


@dataclass(frozen=True)
class Corruptions:
    """Scores on corrupted images. `source` is generated, official or unverified; `types` are among the paper's 19
    types, `own` are the user's own; `skipped` says why a type was left out."""

    source: str
    types: dict[str, list[Level]]
    own: dict[str, list[Level]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not config.NAME.fullmatch(self.source):
            raise ValueError(f"corruptions.source is {self.source!r:.40}, not a name")  # it becomes part of a path


@dataclass(frozen=True)
class Result:
    name: str
    config: dict
    metrics: dict[str, float]
    seconds: Seconds
    format: int = FORMAT
    images: int | None = None  # in the test set
    passes: int | None = None
    parameters: int | None = None
    test_ms_per_image: float | None = None
    peak_memory_bytes: Memory = field(default_factory=Memory)
    trainings: list[Training] = field(default_factory=list)
    environment: Environment = field(default_factory=Environment)
    finished: str | None = None
    by_samples: dict[str, list[float]] | None = None
    diversity: Diversity | None = None
    reliability: Reliability | None = None
    rejection: Rejection | None = None
    temperature: Temperature | None = None
    ood: Foreign | None = None
    twin: dict[str, float] | None = None
    variance: list[LayerVariance] | None = None
    posterior: list[LayerPosterior] | None = None
    example: Example | None = None
    corruptions: Corruptions | None = None
    folder: str | None = None  # where it was read from; not in the file

    def __post_init__(self) -> None:
        if self.by_samples:
            need_same_length("by_samples", *map(self.by_samples.__getitem__, ("samples", "accuracy", "ece", "nll")))

    @cached_property
    def predictions(self) -> Predictions | None:
        """The predictions of all test images, or None if the run stored none."""
        path = Path(self.folder or "") / "predictions.npz"
        if not self.folder or not path.exists():
            return None
        try:
            return self.need_own(Predictions.load(path))
        except (ValueError, TypeError, KeyError, EOFError, OSError, BadZipFile) as error:
            way_out = f"move {path.parent} away and start the run again"
            print(f"left out: {path} holds no predictions ({error}): {way_out}", file=sys.stderr)
            return None

    def need_own(self, predictions: Predictions) -> Predictions:
        """Refuse the predictions of another run, which were copied next to this result."""
        found = {"accuracy": correct(predictions).mean(), "brier": predictions.brier.mean(dtype=float)}
        for metric in found.keys() & self.metrics.keys():
            if abs(found[metric] - self.metrics[metric]) > 1e-4:  # they are stored with rounded probabilities
                raise ValueError(f"their {metric} is {found[metric]:.4f}, but this run's is {self.metrics[metric]:.4f}")
        return predictions


def read(path: str | Path) -> Result:
    """Read a result, or raise a UserError that names the file and says what is wrong with it."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)
        if "\\ud" in text or "\\uD" in text:  # perhaps half a character, which no table could be written with
            json.dumps(content, ensure_ascii=False).encode()
        return parse(content | {"folder": str(path.parent)})
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, OverflowError, OSError) as error:
        raise UserError(f"{path} is not a result of this suite ({error}): move it away to redo it") from error


def parse(content: dict[str, Any]) -> Result:
    if content.get("format") not in (1, FORMAT):
        raise ValueError(f"it has format {content.get('format')}, this version reads 1 to {FORMAT}")
    result = converter(Result)(upgrade(content) if content["format"] < FORMAT else content)
    for metric in (metric for metric in ("accuracy", "ece") if metric not in result.metrics):
        raise ValueError(f"no metrics.{metric}")
    for metric in (metric for metric in ("accuracy", "ece") if not 0 <= result.metrics[metric] <= 1):
        raise ValueError(f"metrics.{metric} is {result.metrics[metric]}, not a share")
    check(result.config)
    return result


AXES = (*config.NAMED, "seed")


def check(settings: dict[str, Any]) -> None:
    """Raise a ValueError if a config lacks one of AXES or has a value of the wrong type for its method."""
    for key in (key for key in AXES if key not in settings):
        raise ValueError(f"no config.{key}")
    for key in (key for key in AXES if key != "seed" and not is_name(settings[key])):
        raise ValueError(f"config.{key} is {settings[key]!r:.40}, not a name")  # it becomes part of a path
    kinds = kinds_of(settings["method"])
    try:
        convert_items({key: value for key, value in settings.items() if key in kinds}, kinds)
    except Wrong as wrong:
        raise wrong.inside("config") from None


def is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(config.NAME.fullmatch(value))


@cache
def kinds_of(method):
    return {name: converter(kind) for name, kind in get_type_hints(methods.METHODS.get(method, config.Run)).items()}


# --- JSON against the types above -------------------------------------------------------------------------------------


class Wrong(ValueError):
    """A value of the wrong type. Its path grows from the inside out: paths of correct values would only cost time."""

    def __init__(self, after: str, before: str = "", path: tuple[str, ...] = ()) -> None:
        self.after, self.before, self.path = after, before, path

    def inside(self, key: str) -> "Wrong":
        return Wrong(self.after, self.before, (key, *self.path))

    def __str__(self) -> str:
        return f"{self.before}{'.'.join(self.path) or 'it'}{self.after}"


@cache
def converter(kind):
    """Return a function value -> the value as this type. It raises Wrong if the type is wrong somewhere inside."""
    if is_dataclass(kind):
        return record_of(kind)
    if get_origin(kind) is UnionType:
        (inner,) = (converter(part) for part in get_args(kind) if part is not NoneType)
        return lambda value: None if value is None else inner(value)
    if kind in (list[float], list[str]):
        return numbers if kind == list[float] else texts
    if get_origin(kind) is list:
        inner = converter(*get_args(kind))
        return lambda value: [*map(inner, checked(value, list))]
    if get_origin(kind) is dict:
        inner = converter(get_args(kind)[1])
        return lambda value: convert_items(checked(value, dict), dict.fromkeys(value, inner))
    if kind is Any:
        return lambda value: value
    return {float: number, int: whole_number}.get(kind) or (lambda value: checked(value, kind))


def record_of(kind):
    hints, absent = get_type_hints(kind), (MISSING, MISSING)
    inner = {f.name: converter(hints[f.name]) for f in fields(kind)}
    needed = [f.name for f in fields(kind) if (f.default, f.default_factory) == absent]
    optional = inner.keys() - needed

    def convert(value):
        value = checked(value, dict)
        for name in (name for name in needed if name not in value):
            raise Wrong("", "no ", (name,))
        known = {k: v for k, v in value.items() if k in inner and not (v is None and k in optional)}
        return kind(**convert_items(known, inner))

    return convert


def convert_items(items, converters):
    converted = {}
    try:
        for key, value in items.items():
            converted[key] = converters[key](value)
    except Wrong as wrong:
        raise wrong.inside(key) from None
    return converted


def checked(value, kind):
    if type(value) is not kind:
        raise Wrong(f" is {value!r:.40}, not {KINDS.get(kind, kind.__name__)}")
    return value


KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}


def number(value):
    if type(value) not in (int, float) or not math.isfinite(value):
        raise Wrong(f" is {value!r:.40}, not a number")
    return float(value)


def whole_number(value):
    if type(value) is not int or abs(value) >= 2**63:  # larger ones do not fit into a table
        raise Wrong(f" is {value!r:.40}, not an integer")
    return value


def numbers(value):
    """Convert a list of numbers. Results hold thousands of them, so they are not checked one by one in Python."""
    if {*map(type, checked(value, list))} <= {int, float} and all(map(math.isfinite, value)):
        return [*map(float, value)]
    return [*map(number, value)]  # its error names the wrong entry


def texts(value):
    """Convert a list of texts in the same way. Most of them are names of classes."""
    return value if {*map(type, checked(value, list))} <= {str} else [checked(each, str) for each in value]


# --- format 1 ---------------------------------------------------------------------------------------------------------


def upgrade(content):
    """Convert the content of a format-1 file to format 2: the settings that were used, and the names that follow."""
    settings = used(content)
    named = zip(content.get("trainings") or [], training_names(settings), strict=False)
    trainings = [training | {"name": name} for training, name in named]
    counted = (content.get("reliability") or {}).get("count")  # every test image is in one bin
    known = {"name": config.name_of(settings), "images": sum(counted) if counted else None}
    return content | {"format": FORMAT, "config": settings, "trainings": trainings} | known


def used(content):
    """Return the config with the precision that `precision=auto` chose, without settings that its method ignores."""
    settings = dict(content["config"])
    records = [*(content.get("trainings") or []), content.get("environment") or {}]
    hardware = next((str(r["hardware"]) for r in records if r.get("hardware")), "CPU")
    if settings.get("precision") == "auto":
        settings["precision"] = "fp32" if "CPU" in hardware else "bf16"
    if "placement" in settings:
        settings["placement"] = placement_of(settings["arch"], settings["placement"])
    unused = {f.name for f in schema_fields(settings["method"]) if f.metadata["part"] == "unused"}
    return {key: value for key, value in settings.items() if key not in unused}


def schema_fields(method):
    return fields(methods.METHODS.get(method, config.Run))


def training_names(settings):
    """Return the names of a run's trainings, in order. Those of an ensemble are Single runs of consecutive seeds."""
    members = settings.get("members", 1)
    method = "single" if "members" in settings else settings["method"]
    parts = {f.name for f in schema_fields(method) if f.metadata["part"] == "training"}
    own = {key: value for key, value in settings.items() if key in parts}
    own |= {"method": method, "dataset": settings["dataset"].removesuffix("_c")}
    return [config.name_of(own | {"seed": settings["seed"] + k}) for k in range(members)]
