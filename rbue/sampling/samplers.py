"""Samplers. A network's part before the first noise is computed once per batch, the rest once per sample.

A sampler is a function (images, rows) that yields the probabilities of one batch, a few samples at a time, each time
(samples of this pass, images, classes). So memory does not grow with the number of samples. Each pass gets its own copy
of the images and of other tensors, since a forward may overwrite them, as x.sub_(mean) does.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_map_only

from rbue import metrics, noise, surgery
from rbue.errors import UserError

Sampler = Callable[..., Iterable[Tensor]]
Warn = Callable[..., None]

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
    buffers = [(own, dict(own)) for m in network.modules() if isinstance(own := m._buffers, dict)]  # not of torch.jit
    values = [(buffer, buffer.clone()) for buffer in network.buffers()]
    try:
        network.eval()
        yield
    finally:
        network.train(modes[network])  # calls the network's own train(), as eval() did
        for module, mode in modes.items():
            module.training = mode
        for own, given in buffers:  # a forward written by hand may assign them, or write into them
            own |= {name: buffer for name, buffer in given.items() if alike(own.get(name), buffer)}
        for buffer, before in values:
            if buffer.layout is torch.strided and not torch.equal(buffer, before):
                buffer.copy_(before)


def alike(buffer: Tensor | None, other: Tensor | None) -> bool:
    """Return whether both are tensors of one shape and type. Otherwise, the buffer is a cache, which has to stay."""
    if buffer is None or other is None:
        return False
    return (buffer.shape, buffer.dtype) == (other.shape, other.dtype)


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
    shared, warn = shared or {}, cache(warnings.warn)  # says the same only once
    if noise.of(network).sites == 0:
        return lambda x, rows, **own: [
            probabilities(call(network, x.clone(), **copied({**shared, **own})), len(x), warn)[None]
        ]
    return StackedIfPossible(network, samples, seed, stack, shared, each, warn)


Given = tuple[Tensor, Tensor, Mapping[str, Tensor]]  # images, their numbers, their keyword arguments


class StackedIfPossible:
    """A sampler that stacks samples of a traced network if this gives the same numbers as one pass per sample. The
    first batch of at least two images decides it: one image cannot show that a tensor does not fit larger batches.

    The numbers differ if images of a batch affect each other, as in a batch statistic. Then a warning says so.
    """

    def __init__(self, network: nn.Module, samples: int, *settings: Any) -> None:
        self.network, self.samples, self.settings = network, samples, settings
        self.stacked, self.tried = None, False
        if isinstance(network, fx.GraphModule) and samples > 1:
            self.stacked = Stacked(network, samples, *settings)

    def __call__(self, x: Tensor, rows: Tensor, **own: Tensor) -> Iterable[Tensor]:
        few, fewer = (first(count, x, rows, own) for count in (FEW, max(min(len(x), FEW) - 1, 2)))
        tried, self.tried = self.tried, self.tried or len(x) > 1
        if self.stacked and not tried and not self.agrees(self.stacked.network, few, fewer):
            self.stacked = None
        draws = self.stacked(x, rows, **own) if self.stacked else self.singly(self.samples, x, rows, own)
        return draws if tried else self.checked(draws, fewer)

    def singly(self, samples: int, x: Tensor, rows: Tensor, own: Mapping[str, Tensor]) -> Iterator[Tensor]:
        seed, _, shared, _, warn = self.settings
        return one_by_one(self.network, x, rows, samples, seed, {**shared, **own}, warn)

    def agrees(self, network: fx.GraphModule, few: Given, fewer: Given) -> bool:
        """Compare two stacked samples with two passes on one image fewer."""
        (x, rows, own), (seed, _, *others) = few, self.settings
        try:
            (two,) = Stacked(network, 2, seed, 2 * len(x), *others)(x, rows, **own)
            singly = torch.cat(list(self.singly(2, *fewer)))
        except Exception:  # a network's own code may raise anything for a batch of another size
            return False
        same = two.shape[2] == singly.shape[2]  # not if weights were repeated, as w.type_as(x) is
        return same and equal_up_to_rounding(
            two[:, : singly.shape[1]], singly, 1e-3 if x.dtype == torch.float32 else 2e-2
        )

    def checked(self, draws: Iterator[Tensor], fewer: Given) -> Iterator[Tensor]:
        """Yield the draws. Warn if the first one differs from a pass with the same noise on its first images alone."""
        probs = next(draws)
        alone = self.drawn_alone(fewer)
        if alone is not None and not equal_up_to_rounding(probs[:1, : alone.shape[1]], alone, 2e-2):
            why = "depends on the other images of its batch, or on random numbers that rbue does not draw"
            warnings.warn(f"the prediction of an image {why}: it is not reproducible", stacklevel=4)
        yield probs
        del probs  # it may be large
        yield from draws

    def drawn_alone(self, fewer: Given) -> Tensor | None:
        """Return a sample, or None for a network that needs larger batches. Refuse one in which images do not come
        first: in a batch of as many images as tokens, this goes unnoticed."""
        try:
            return next(self.singly(1, *fewer))
        except UserError as error:
            raise UserError(f"for the first {len(fewer[0])} images alone, {error}") from error
        except Exception:  # a network's own code may raise anything
            return None


FEW = 4  # images on which stacking is tried


def first(count: int, x: Tensor, rows: Tensor, own: Mapping[str, Tensor]) -> Given:
    return x[:count], rows[:count], {name: t[:count] for name, t in own.items()}


def equal_up_to_rounding(probs: Tensor, others: Tensor, tolerance: float) -> bool:
    """Compare the logits behind two tensors of probabilities, relative to their range: of a thousand classes, nearly
    all have probabilities near zero, which would always be close to each other."""
    logits, other = (p.nan_to_num().clamp_min(metrics.TINY).log() for p in (probs, others))
    spread = (other.amax() - other.amin()).clamp_min(0.01)  # nearly equal logits differ by rounding alone
    return bool(((logits - other).abs() <= tolerance * spread).all())


def probabilities(logits: Any, images: int | None = None, warn: Warn | None = None) -> Tensor:
    """Check a network's output and return its softmax. Only the first pass of a batch gets `warn` and looks at the
    values: a GPU has to finish its work for that."""
    if not torch.is_tensor(logits) or logits.dim() != 2 or logits.shape[1] < 2:
        got = tuple(logits.shape) if torch.is_tensor(logits) else type(logits).__name__
        raise UserError(
            f"a prediction needs logits (images, classes) of at least two classes, but the network returns {got}: wrap "
            "it in a module that returns such logits"
        )
    if images is not None and images != len(logits):
        got = f"{len(logits)} rows of logits for {images} images"
        raise UserError(f"the network returns {got}: it must return one row per image")
    if warn and are_probabilities(logits):
        warn("the outputs look like probabilities: leave out the network's last softmax", stacklevel=2)
    return logits.softmax(-1, dtype=precision_of(logits.device))


def are_probabilities(outputs: Tensor) -> bool:
    """Return whether all rows are probabilities, as after a softmax, which would be applied twice."""
    return bool((outputs >= 0).all() and ((outputs.float().sum(1) - 1).abs() < 1e-3).all())


def precision_of(device: torch.device) -> torch.dtype:
    """Return float64: float32 turns probabilities below 1e-38, or 87 nats, into zero. Apple's GPUs have no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def one_by_one(
    network: nn.Module,
    x: Tensor,
    rows: Tensor,
    samples: int,
    seed: int,
    kwargs: Mapping[str, Any],
    warn: Warn | None = None,
) -> Iterator[Tensor]:
    """Yield samples one by one: for noise in the weights, which all images of a pass share, and for networks that are
    not traced."""
    for k in range(samples):
        with noise.counted(network, seed + noise.TEST, k, rows), noise.calls_apart(network):
            probs = probabilities(call(network, x.clone(), **copied(kwargs)), len(x), None if k else warn)
        yield probs[None]


def call(network: nn.Module, *images: Tensor, **kwargs: Any) -> Any:
    """Call a network. A graph of torch.fx would also print a traceback if an error occurs, which may be expected."""
    return (nn.Module.__call__ if isinstance(network, fx.GraphModule) else type(network).__call__)(
        network, *images, **kwargs
    )


def copied(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the tensors, also inside of lists and dicts."""
    return tree_map_only(Tensor, torch.clone, dict(kwargs))


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
        warn: Warn,
    ) -> None:
        self.network, self.samples, self.seed, self.stack = network, samples, seed + noise.TEST, stack
        self.shared, self.warn = shared, warn
        self.once, self.every = surgery.parts_of(network, each)

    def __call__(self, x: Tensor, rows: Tensor, **own: Tensor) -> Iterator[Tensor]:
        given, at_once = call(self.once, x.clone(), **copied({**self.shared, **own})), max(1, self.stack // len(x))
        for number, ks in enumerate(torch.arange(self.samples, device=x.device).split(at_once)):
            with noise.counted(self.network, self.seed, ks.repeat_interleave(len(x)), rows.repeat(len(ks))):
                logits = call(self.every, *repeated(given, len(ks)), **copied(self.shared))
            warn = None if number else self.warn
            yield probabilities(logits, len(ks) * len(x), warn).view(len(ks), len(x), -1)


def repeated(given: Any, times: int) -> Any:
    """Repeat the rows of all tensors in `given`, also inside tuples, as x.max(1) returns. Single numbers stay."""
    return tree_map_only(Tensor, lambda t: t.repeat(times, *[1] * (t.dim() - 1)) if t.dim() else t, given)
