"""`predict`: the mean of many stochastic passes, and the uncertainties that follow from them."""

import operator
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rbue import metrics
from rbue.errors import UserError, at_least, within
from rbue.layers import StochasticLayer
from rbue.sampling.inputs import Batch, batches, divide_kwargs, image_numbers, naming_images
from rbue.sampling.samplers import sampler, sampling
from rbue.surgery import device_of
from rbue.tracer import hidden_by
from rbue.tracing import need_module


class NotKept(UserError, AttributeError):
    """So `hasattr(prediction, "samples")` tells whether it has them."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """What `predict` returns, in float32. It is computed in float64: the mutual information is a small difference."""

    mean: Tensor
    """Mean probabilities (images, classes)."""
    entropy: Tensor
    """Predictive entropy, the entropy of the mean: one number per image, in nats."""
    sample_entropy: Tensor
    """Mean entropy of the samples: one number per image, in nats."""
    mutual_information: Tensor
    """Disagreement of the samples: the entropy of the mean minus the mean entropy of the samples, in nats."""
    kept: Tensor | None = None

    @property
    def samples(self) -> Tensor:
        """Probabilities of all samples, (samples, images, classes)."""
        if self.kept is None:
            raise NotKept("this prediction did not keep its samples: ask for them with predict(keep_samples=True)")
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
    device, at most `batch` at a time. If there are fewer, several samples are computed at once, in a batch of at most
    this size: lower it if memory runs out. The result is on the device of `images` if it is a tensor, else on the CPU.

    Sample k of a seed is the same every time and for every batch size. The noise of an image depends on its number,
    which is its position in the input. `index` sets other numbers, one per image in the order of the input, so that a
    part of a dataset gets the same predictions as within the full dataset. A dict may have its numbers under "index".

    Threads may share a network. Only one thread of a process computes a prediction at a time.

    `forward_kwargs` are passed to the network's forward. If `images` is a tensor, keyword arguments that are tensors
    with one row per image are split into batches and repeated with the images. All others go to every
    pass, tensors on the network's device.
    """
    need_module(network)
    if isinstance(network, nn.DataParallel):
        network = network.module  # each GPU would get some of the images, but the noise of all of them
    samples, batch, seed = whole_numbers(samples=samples, batch=batch, seed=seed)
    at_least(1, samples=samples, batch=batch)
    within(0, 2**32 - 1, seed=seed)
    if samples > 1 and not any(isinstance(m, StochasticLayer) for m in network.modules()):
        refuse_hiding(network)
        warnings.warn("the network has no stochastic layer, so all samples are equal: use rbue.randomize", stacklevel=2)
    numbers = None if index is None else image_numbers(index)
    shared, each = divide_kwargs(network, images, forward_kwargs or {})
    home = images.device if torch.is_tensor(images) else torch.device("cpu")
    with sampling(network):
        draw = sampler(network, samples, seed, batch, shared, tuple(each))
    parts = []
    for x, rows, own in batches(images, numbers, each, batch, device_of(network)):
        with sampling(network), naming_images(x):  # in the loop: another thread may predict while a batch is read
            parts.append(summarise(draw(x, rows, **own), keep_samples, home))
    if not parts:
        raise UserError("images has no batch: pass at least one image, and a generator only once, since it is used up")
    found, kept = zip(*parts, strict=True)
    mean, entropy, sample_entropy, mutual = (torch.cat(each) for each in zip(*found, strict=True))
    return Prediction(mean, entropy, sample_entropy, mutual, torch.cat(kept, 1) if keep_samples else None)


def refuse_hiding(network: nn.Module) -> None:
    """Refuse modules of torch.jit and torch.export: if they hide random layers, all samples would be one pass."""
    if origin := hidden_by(network):
        way_out = f"pass the network as it was before {origin}"
        way_out += ", or samples=1 if it is not random" if origin == "torch.jit" else ""
        raise UserError(f"{origin} hides random layers, so that predict cannot draw their samples: {way_out}")


def whole_numbers(**values: Any) -> list[int]:
    """Return the values as integers of Python, also if they are of NumPy, or refuse them."""
    for name, value in values.items():
        try:
            operator.index(value)
        except TypeError as error:
            raise UserError(f"{name}={value} must be an integer") from error
    return [operator.index(value) for value in values.values()]


def summarise(draws: Iterable[Tensor], keep: bool, home: torch.device) -> tuple[list[Tensor], Tensor | None]:
    """Return the fields of one batch's Prediction, and the samples themselves if `keep`."""
    count, total, entropies, kept = 0, torch.zeros(()), torch.zeros(()), []
    for probs in draws:
        count, total, entropies = count + len(probs), total + probs.sum(0), entropies + metrics.entropy(probs).sum(0)
        if keep:
            kept.append(probs.float().to(home))
    mean, sample_entropy = total / count, entropies / count
    entropy = metrics.entropy(mean)
    found = mean, entropy, sample_entropy, metrics.mutual_information(entropy, sample_entropy)
    return [each.float().to(home) for each in found], torch.cat(kept) if keep else None
