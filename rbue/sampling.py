"""Monte-Carlo prediction (Section 3.3). The part of a network before the first noise is computed once per batch, the
rest once per sample.

A sampler is a function (images, rows) that yields the probabilities of one batch, a few samples at a time, each time
(samples of this pass, images, classes). So memory does not grow with the number of samples.
"""

import inspect
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_map
from torch.utils.data import Dataset, IterableDataset

from rbue import metrics, noise, surgery
from rbue.errors import UserError, at_least, within
from rbue.layers import StochasticLayer
from rbue.surgery import device_of
from rbue.tracing import need_module

Batch = Tensor | Sequence[Any] | Mapping[str, Any]
Sampler = Callable[..., Iterable[Tensor]]


@dataclass(frozen=True, eq=False)
class Prediction:
    """Mean probabilities (images, classes), the mean entropy of the samples (images), and uncertainties from them."""

    mean: Tensor
    sample_entropy: Tensor
    kept: Tensor | None = None

    @property
    def entropy(self) -> Tensor:
        """Predictive entropy, the entropy of the mean: one number per image, in nats."""
        return metrics.entropy(self.mean)

    @property
    def mutual_information(self) -> Tensor:
        """Disagreement of the samples: the entropy of the mean minus the mean entropy of the samples, in nats."""
        return (self.entropy - self.sample_entropy).clamp_min(0)  # rounding errors may make it slightly negative

    @property
    def samples(self) -> Tensor:
        """Probabilities of all samples, (samples, images, classes)."""
        if self.kept is None:
            raise UserError("this prediction did not keep its samples: ask for them with predict(keep_samples=True)")
        return self.kept


def predict(
    network: nn.Module,
    images: Tensor | Iterable[Batch],
    samples: int = 100,
    *,
    seed: int = 0,
    batch: int = 500,
    index: Tensor | Sequence[int] | None = None,
    keep_samples: bool = False,
    forward_kwargs: Mapping[str, Any] | None = None,
) -> Prediction:
    """Average the predictions of `samples` stochastic passes.

    `images` is a tensor, a DataLoader, or any iterable of batches. A batch is a tensor, a tuple or list whose first
    entry is the images, or a dict that has them under "images". Labels are ignored. Images are moved to the network's
    device, at most `batch` at a time. The result is on the device of `images` if this is a tensor, else on the CPU.

    Sample k of a seed is the same every time and for every batch size. The noise of an image depends on its number,
    which is its position in the input. `index` sets other numbers, one per image in the order of the input, so that a
    part of a dataset gets the same predictions as within the full dataset. A dict may have its numbers under "index".

    Threads may share a network: only one of them computes at a time.

    `forward_kwargs` are passed to the network's forward. If `images` is a tensor, keyword arguments that are tensors
    with one row per image are split into batches and repeated with the images. All others are passed unchanged.
    """
    need_module(network)
    samples, batch, seed = whole_numbers(samples=samples, batch=batch, seed=seed)
    at_least(1, samples=samples, batch=batch)
    within(0, 2**32 - 1, seed=seed)
    if samples > 1 and not any(isinstance(m, StochasticLayer) for m in network.modules()):
        warnings.warn("the network has no stochastic layer, so all samples are equal: use rbue.randomize", stacklevel=2)
    numbers = None if index is None else image_numbers(index)
    shared, each = divide_kwargs(network, images, forward_kwargs or {})
    home = images.device if torch.is_tensor(images) else torch.device("cpu")
    with sampling(network):
        draw = sampler(network, samples, seed, batch, shared, tuple(each))
    parts = []
    for x, rows, own in batches(images, numbers, each, batch, device_of(network)):
        with sampling(network):  # inside the loop, so that another thread may predict while a batch is read
            parts.append(summarise(draw(x, rows, **own), keep_samples, home))
    at_least(1, images=len(parts))
    mean, sample_entropy, kept = zip(*parts, strict=True)
    return Prediction(torch.cat(mean), torch.cat(sample_entropy), torch.cat(kept, 1) if keep_samples else None)


def whole_numbers(**values: Any) -> list[int]:
    """Return the values as integers of Python, also if they are of NumPy, or refuse them."""
    for name, value in values.items():
        try:
            operator.index(value)
        except TypeError as error:
            raise UserError(f"{name}={value} must be an integer") from error
    return [operator.index(value) for value in values.values()]


def summarise(draws: Iterable[Tensor], keep: bool, home: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the mean of one batch's samples, the mean of their entropies, and the samples themselves if `keep`."""
    count, total, entropies, kept = 0, torch.zeros(()), torch.zeros(()), []
    for probs in map(torch.Tensor.float, draws):
        count, total, entropies = count + len(probs), total + probs.sum(0), entropies + metrics.entropy(probs).sum(0)
        if keep:
            kept.append(probs.to(home))
    return (total / count).to(home), (entropies / count).to(home), torch.cat(kept) if keep else None


# --- the input --------------------------------------------------------------------------------------------------------


def batches(
    images: Tensor | Iterable[Batch], numbers: Tensor | None, each: Mapping[str, Tensor], most: int, device: Any
) -> Iterator[tuple[Tensor, Tensor, dict[str, Tensor]]]:
    """Yield (images, their numbers, their keyword arguments) for at most `most` images, on the network's device."""
    start, first_shape = 0, None
    if numbers is not None and torch.is_tensor(images):
        need_one_per_image(numbers, len(images))
    for found in [images] if torch.is_tensor(images) else iterate(images):
        x = images_of(found)
        first_shape = need_as_many_dimensions(x.shape, first_shape or x.shape)
        rows = numbers_of(found, start, len(x)) if numbers is None else taken(numbers, start, len(x))
        start += len(x)
        for cut in (slice(first, first + most) for first in range(0, len(x), most)):
            part = x[cut].to(device)
            yield part, rows[cut].to(part.device), {name: t[cut].to(part.device) for name, t in each.items()}
    if numbers is not None:
        need_one_per_image(numbers, start)


def iterate(images: Iterable[Batch]) -> Iterator[Batch]:
    if isinstance(images, Dataset) and not isinstance(images, IterableDataset):
        raise UserError("images is a dataset, which gives single images: put it into a torch.utils.data.DataLoader")
    if isinstance(images, Mapping) or not isinstance(images, Iterable):
        raise UserError(f"images is a {type(images).__name__}: it must be a tensor, a DataLoader or a list of batches")
    return iter(images)


def images_of(batch: Batch) -> Tensor:
    if isinstance(batch, Mapping):
        found = batch.get("images")
    else:
        found = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
    if not torch.is_tensor(found) or found.dim() == 0:
        raise UserError(
            "a batch must be a tensor of images, a tuple or list that starts with one, or a dict that has one under "
            f'"images", but this one is a {type(batch).__name__}'
        )
    return found


def need_as_many_dimensions(shape: torch.Size, first: torch.Size) -> torch.Size:
    """Refuse one batch of images and labels that is passed like a list of batches. Return the first batch's shape."""
    if len(shape) != len(first):
        way_out = "of one batch with labels, pass the images alone"
        raise UserError(f"one batch has the shape {tuple(shape)}, but the first one has {tuple(first)}: {way_out}")
    return first


def image_numbers(index: Tensor | Sequence[int]) -> Tensor:
    """Check the images' numbers and return them as a tensor on the CPU."""
    try:
        numbers = torch.as_tensor(index).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"index must be one integer per image, not a {type(index).__name__}: {error}") from error
    if numbers.dim() != 1 or numbers.dtype == torch.bool or (numbers != numbers.long()).any() or (numbers < 0).any():
        raise UserError("index must be one integer per image, each at least 0")
    return numbers.long()


def numbers_of(batch: Batch, start: int, images: int) -> Tensor:
    """Return the numbers that a batch has, or else the positions of its images in the input."""
    own = batch.get("index") if isinstance(batch, Mapping) else None
    rows = torch.arange(start, start + images) if own is None else image_numbers(own)
    need_one_per_image(rows, images)
    return rows


def taken(numbers: Tensor, start: int, images: int) -> Tensor:
    """Return the numbers of the next `images` images."""
    need_one_per_image(numbers[: start + images], start + images)
    return numbers[start : start + images]


def need_one_per_image(numbers: Tensor, images: int) -> None:
    if len(numbers) != images:
        raise UserError(f"index must have one number per image: it has {len(numbers)} for {images} images")


def divide_kwargs(
    network: nn.Module, images: Any, kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Divide the keyword arguments into those that all images share and those with one row per image."""
    if kwargs:
        refuse_unknown(network, kwargs)
    tensors = {name: value for name, value in kwargs.items() if torch.is_tensor(value) and value.dim()}
    if tensors and not torch.is_tensor(images):
        raise UserError(
            f"forward_kwargs has a tensor ({', '.join(tensors)}), but predict cannot assign its rows to batches: "
            "call predict once per batch, with the rows of that batch and index="
        )
    each = {name: value for name, value in tensors.items() if len(value) == len(images)}
    device = device_of(network)
    shared = {name: value for name, value in kwargs.items() if name not in each}
    return {name: v.to(device) if torch.is_tensor(v) else v for name, v in shared.items()}, each


def refuse_unknown(network: nn.Module, kwargs: Mapping[str, Any]) -> None:
    """Refuse keyword arguments that the network's forward does not take, or no longer takes after tracing."""
    taken = inspect.signature(network.forward).parameters.values()
    names = {p.name for p in list(taken)[1:] if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    unknown = set() if any(p.kind == p.VAR_KEYWORD for p in taken) else set(kwargs) - names
    if unknown:
        raise UserError(
            f"the network takes no keyword argument {', '.join(sorted(unknown))}: rbue.randomize fixes those whose "
            "default is None or a bool, so wrap your network in a module whose forward takes them without a default, "
            "and randomize that"
        )


# --- the network ------------------------------------------------------------------------------------------------------


ONE_THREAD = RLock()  # modes and noise belong to a network, and networks may share modules


@contextmanager
def sampling(network: nn.Module) -> Iterator[None]:
    """Put the network into eval mode and compute no gradients inside; stochastic layers stay random. Modes and buffers
    are restored after. Only one thread at a time is inside."""
    with ONE_THREAD, torch.no_grad(), evaluating(network):
        yield


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    surgery.wire_if_needed(network)
    modes = {m: m.training for m in network.modules()}
    buffers = [(buffer, buffer.clone()) for buffer in network.buffers()]
    try:
        network.eval()
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        for buffer, before in buffers:  # a forward written by hand may write them
            if not torch.equal(buffer, before):
                buffer.copy_(before)


def sampler(
    network: nn.Module,
    samples: int,
    seed: int,
    stack: int,
    shared: Mapping[str, Any] | None = None,
    each: Sequence[str] = (),
) -> Sampler:
    """Return a sampler: one pass for a network without noise, stacked samples for a traced one, else a pass per sample.

    `shared` are keyword arguments of every pass. `each` names those that a batch brings, with one row per image.
    """
    shared = shared or {}
    if noise.of(network).sites == 0:
        return lambda x, rows, **own: [probabilities(network(x, **shared, **own), len(x))[None]]
    if isinstance(network, fx.GraphModule):
        return StackedIfPossible(network, samples, seed, stack, shared, each)
    return lambda x, rows, **own: one_by_one(network, x, rows, samples, seed, {**shared, **own})


class StackedIfPossible:
    """A sampler that stacks samples if this gives the same numbers as one pass per sample. The first images decide it.

    The numbers differ if images of a batch affect each other after the noise, as in a batch statistic.
    """

    def __init__(self, network: fx.GraphModule, samples: int, *settings: Any) -> None:
        self.network, self.samples, self.settings = network, samples, settings
        self.stacked = Stacked(network, samples, *settings)
        self.possible: bool | None = None if samples > 1 else True

    def __call__(self, x: Tensor, rows: Tensor, **own: Tensor) -> Iterable[Tensor]:
        if self.possible is None:
            few = {name: t[:FEW] for name, t in own.items()}
            self.possible = self.agrees(x[:FEW], rows[:FEW], few)
        return self.stacked(x, rows, **own) if self.possible else self.singly(self.samples, x, rows, own)

    def singly(self, samples: int, x: Tensor, rows: Tensor, own: Mapping[str, Tensor]) -> Iterator[Tensor]:
        seed, _, shared, _ = self.settings
        return one_by_one(self.network, x, rows, samples, seed, {**shared, **own})

    def agrees(self, x: Tensor, rows: Tensor, own: Mapping[str, Tensor]) -> bool:
        seed, _, shared, each = self.settings
        try:
            (two,) = Stacked(self.network, 2, seed, 2 * len(x), shared, each)(x, rows, **own)
        except Exception:  # a network's own code may raise anything for a larger batch
            return False
        singly = torch.cat(list(self.singly(2, x, rows, own)))
        return equal_up_to_rounding(two, singly, 1e-3 if x.dtype == torch.float32 else 2e-2)


FEW = 4  # images on which stacking is tried


def equal_up_to_rounding(probs: Tensor, others: Tensor, tolerance: float) -> bool:
    """Compare the logits behind two tensors of probabilities, relative to their range: of a thousand classes, nearly
    all have probabilities near zero, which would always be close to each other."""
    logits, other = (p.clamp_min(metrics.TINY).log() for p in (probs, others))
    spread = (other.amax() - other.amin()).clamp_min(0.01)  # nearly equal logits differ by rounding alone
    return bool(((logits - other).abs() <= tolerance * spread).all())


def probabilities(logits: Any, images: int | None = None, first: bool = True) -> Tensor:
    """Check a network's output and return its softmax. Only the first pass of a batch looks at the values: a GPU has to
    finish its work for that."""
    if not torch.is_tensor(logits) or logits.dim() != 2 or logits.shape[1] < 2:
        got = tuple(logits.shape) if torch.is_tensor(logits) else type(logits).__name__
        raise UserError(
            f"a prediction needs logits (images, classes) of at least two classes, but the network returns {got}"
        )
    if images is not None:
        if images != len(logits):
            got = f"{len(logits)} rows of logits for {images} images"
            raise UserError(f"the network returns {got}: it must return one row per image")
        if first and are_probabilities(logits):
            warnings.warn("the outputs look like probabilities: leave out the network's last softmax", stacklevel=2)
    return logits.softmax(-1, dtype=precision_of(logits.device))


def are_probabilities(outputs: Tensor) -> bool:
    """Return whether all rows are probabilities, as after a softmax, which would be applied twice."""
    return bool((outputs >= 0).all() and ((outputs.float().sum(1) - 1).abs() < 1e-3).all())


def precision_of(device: torch.device) -> torch.dtype:
    """Return float64: float32 turns probabilities below 1e-38, or 87 nats, into zero. Apple's GPUs have no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def one_by_one(
    network: nn.Module, x: Tensor, rows: Tensor, samples: int, seed: int, kwargs: Mapping[str, Any]
) -> Iterator[Tensor]:
    """Yield samples one by one: for noise in the weights, which all images of a pass share, and for networks that are
    not traced."""
    for k in range(samples):
        with noise.counted(network, seed + noise.TEST, k, rows), noise.calls_apart(network):
            probs = probabilities(network(x, **kwargs), len(x), first=k == 0)
        yield probs[None]


class Stacked:
    """A sampler that stacks several samples of a small batch into one larger batch for the part with noise."""

    def __init__(
        self,
        network: fx.GraphModule,
        samples: int,
        seed: int,
        stack: int,
        shared: Mapping[str, Any],
        each: Sequence[str],
    ) -> None:
        self.network, self.samples, self.seed, self.stack = network, samples, seed + noise.TEST, stack
        self.shared = shared
        self.once, self.every = surgery.split_at_noise(network, each)

    def __call__(self, x: Tensor, rows: Tensor, **own: Tensor) -> Iterator[Tensor]:
        # not by calling the graphs, since torch.fx would print an error that StackedIfPossible expects
        given, at_once = self.once.forward(x, **self.shared, **own), max(1, self.stack // len(x))
        for number, ks in enumerate(torch.arange(self.samples, device=x.device).split(at_once)):
            with noise.counted(self.network, self.seed, ks.repeat_interleave(len(x)), rows.repeat(len(ks))):
                logits = self.every.forward(*repeated(given, len(ks)), **self.shared)
            yield probabilities(logits, len(ks) * len(x), first=number == 0).view(len(ks), len(x), -1)


def repeated(given: Any, times: int) -> Any:
    """Repeat the rows of all tensors in `given`, also inside tuples, as x.max(1) returns. Single numbers stay."""

    def repeat(value: Any) -> Any:
        has_rows = torch.is_tensor(value) and value.dim() > 0
        return value.repeat(times, *[1] * (value.dim() - 1)) if has_rows else value

    return tree_map(repeat, given)
