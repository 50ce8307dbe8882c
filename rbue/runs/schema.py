"""Result: the typed and versioned content of result.json. `read` is the only reader; it needs no torch.

A field with a default may be absent from a file, for example in an older file or on other hardware: then it is None,
never zero. Format 2 stores which precision `precision=auto` chose and the number of test images. It leaves out settings
that have no effect, such as Single's `samples`.
"""

import json
import sys
from collections.abc import Sized
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, get_type_hints
from zipfile import BadZipFile

from rbue import config, methods
from rbue.errors import UserError
from rbue.runs.predictions import Predictions, correct, ece
from rbue.runs.typed import Wrong, convert_items, converter

FORMAT = 2


def need_same_length(where: str, *columns: Sized) -> None:
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"{where} has columns of different length")


def need_name(where: str, value: Any) -> None:
    if not (isinstance(value, str) and config.NAME.fullmatch(value)):  # it becomes part of a path
        raise ValueError(f"{where} is {value!r:.40}, not a name")


@dataclass(frozen=True)
class Seconds:
    """Durations. `train` is an equal share of the pack's time; `alone` is the training time without a pack."""

    train: float
    evaluate: float
    alone: float | None = None


@dataclass(frozen=True)
class Memory:
    """Peak memory in bytes. `alone` is what a training needs without a pack, on a CPU with all that the process holds;
    None if unknown."""

    alone: int | None = None
    evaluate: int | None = None


@dataclass(frozen=True)
class Training:
    """How one network was trained. `packed` is the number of networks that shared the device. The peak memory is what
    this network needs alone, None if unknown."""

    name: str | None = None
    seconds: float | None = None
    alone: float | None = None
    packed: int = 1
    hardware: str | None = None
    engine: str | None = None
    code: str | None = None  # a hash of the code of a training step; old+new if it changed between checkpoints
    own_code: dict[str, str] | None = None  # hashes of the user's own files that define the method and the network
    torch: str | None = None
    parameters: int | None = None
    alone_peak_memory_bytes: int | None = None
    setup_seconds: float | None = None
    epoch: int | None = None
    loss: float | None = None
    accuracy: float | None = None
    kl: float | None = None
    lr: float | None = None
    curve: dict[str, list[float]] | None = None  # one entry per epoch


@dataclass(frozen=True)
class Environment:
    """What results depend on besides the config. Hardware, precision, engine and the versions of CUDA, cuDNN and the
    driver are those of the evaluation."""

    commit: str | None = None
    changed: bool | None = None  # whether files differ from the commit, if known
    python: str | None = None
    platform: str | None = None
    torch: str | None = None
    torchvision: str | None = None
    numpy: str | None = None
    hardware: str | None = None
    precision: str | None = None
    engine: str | None = None
    cuda: str | None = None
    cudnn: int | None = None
    driver: str | None = None


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
    """OOD detection: images of another dataset, detected by a high predictive entropy (`auroc`), a low confidence (MSP)
    or a high mutual information. Older results have only the first; a network without samples lacks the last."""

    dataset: str
    auroc: float
    entropy: float
    images: int
    auroc_confidence: float | None = None
    auroc_mutual_information: float | None = None


@dataclass(frozen=True)
class LayerVariance:
    """The variance of one DropReLU layer's summed output (Section 3.4), computed in four ways. `site` counts layers in
    the order of execution."""

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
        need_name("corruptions.source", self.source)

    @property
    def levels(self) -> list[Level]:
        """The scores of all corrupted test sets, a user's own included."""
        return [level for levels in (self.types | self.own).values() for level in levels]


ROUNDING = {"accuracy": 1e-4, "brier": 1e-4, "ece": 1e-3}  # predictions are stored with rounded probabilities


class NotOwn(ValueError):
    """Predictions do not belong to a result."""


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
    first_ms_per_image: float | None = None  # of the first pass alone; older results lack it
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
        """The predictions of all test images, or None if the run stored none. If they cannot be used, say why."""
        path = Path(self.folder or "") / "predictions.npz"
        if not self.folder or not (path.exists() or self.stored_predictions):
            return None
        try:
            return self.need_own(Predictions.load(path))
        except NotOwn as error:
            fault = f"not used: the predictions {path} do not belong to this result, since {error}"
        except FileNotFoundError:
            fault = f"missing: the predictions {path}"
        except (ValueError, TypeError, KeyError, EOFError, OSError, BadZipFile) as error:
            fault = f"not used: {path} is damaged ({error})"
        way_out = f"move {path.parent} away and start the run again"
        print(f"{fault}; claims compare its row unpaired, with wider intervals: {way_out}", file=sys.stderr)
        return None

    @property
    def stored_predictions(self) -> bool:
        """Whether the run stored predictions: clean runs do so since the version that also stores training curves."""
        return not self.corruptions and any(training.curve for training in self.trainings)

    def need_own(self, predictions: Predictions) -> Predictions:
        """Refuse the predictions of another run, which were copied next to this result, or of a changed result."""
        found = {"accuracy": correct(predictions).mean(), "brier": predictions.brier.mean(dtype=float)}
        # rounding moves no image across the edges of these bins, or four in older files
        if self.config.get("bins", 30) == 30:
            found["ece"] = ece(predictions)
        for metric in [metric for metric in found if metric in self.metrics]:
            if abs(found[metric] - self.metrics[metric]) > ROUNDING[metric]:
                raise NotOwn(f"their {metric} is {found[metric]:.4f}, but this run's is {self.metrics[metric]:.4f}")
        return predictions


def read(path: str | Path) -> Result:
    """Read a result, or raise a UserError that names the file and says what is wrong with it."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)
        if "\\ud" in text or "\\uD" in text:  # perhaps half a character, which no table could be written with
            json.dumps(content, ensure_ascii=False).encode()
        if not isinstance(content, dict):
            raise TypeError("its JSON is not an object in {}")
        return parse(content | {"folder": str(path.parent)})
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, OverflowError) as error:
        cut = isinstance(error, json.JSONDecodeError)
        fault = "is damaged, since it is not valid JSON" if cut else "is not a result of this suite"
        raise UserError(f"{path} {fault} ({error}): move it away to redo it") from error


def parse(content: dict[str, Any]) -> Result:
    if content.get("format") != FORMAT:
        raise ValueError(f"it has format {content.get('format')}, this version reads format {FORMAT}")
    result = converter(Result)(content)
    for metric in ("accuracy", "ece"):
        if metric not in result.metrics:
            raise ValueError(f"no metrics.{metric}")
        if not 0 <= result.metrics[metric] <= 1:
            raise ValueError(f"metrics.{metric} is {result.metrics[metric]}, not a number from 0 to 1")
    check(result.config)
    return result


AXES = (*config.NAMED, "seed")


def check(settings: dict[str, Any]) -> None:
    """Raise a ValueError if a config lacks one of AXES or has a value of the wrong type for its method."""
    for key in AXES:
        if key not in settings:
            raise ValueError(f"no config.{key}")
        if key != "seed":
            need_name(f"config.{key}", settings[key])
    kinds = kinds_of(settings["method"])
    try:
        convert_items({key: value for key, value in settings.items() if key in kinds}, kinds)
    except Wrong as wrong:
        raise wrong.inside("config") from None


@cache
def kinds_of(method):
    return {name: converter(kind) for name, kind in get_type_hints(methods.METHODS.get(method, config.Run)).items()}
