"""The input of a prediction: batches of images, the images' numbers, and keyword arguments of the network."""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_map_only
from torch.utils.data import Dataset, IterableDataset

from rbue.errors import UserError, first_line
from rbue.surgery import device_of

Batch = Tensor | Sequence[Any] | Mapping[str, Any]


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
            f'"images", but this one is {kind_of(batch)}'
        )
    return found


def kind_of(batch: Any) -> str:
    """Say what a batch is that has no images."""
    if isinstance(batch, Mapping):
        return f"a dict with {', '.join(map(repr, batch))}"
    if torch.is_tensor(batch):
        return "a tensor without dimensions"
    return f"a {type(batch).__name__}" + (": use torch.from_numpy" if isinstance(batch, np.ndarray) else "")


def need_as_many_dimensions(shape: torch.Size, first: torch.Size) -> torch.Size:
    """Refuse one batch of images and labels that is passed like a list of batches. Return the first batch's shape."""
    if len(shape) != len(first):
        way_out = "of one batch with labels, pass the images alone"
        raise UserError(f"one batch has the shape {tuple(shape)}, but the first one has {tuple(first)}: {way_out}")
    return first


OF_SHAPES = (RuntimeError, NotImplementedError, ValueError, IndexError, AssertionError)  # torch's, for wrong images


@contextmanager
def naming_images(x: Tensor) -> Iterator[None]:
    """If the network raises an error that wrong images can cause, say which images it got. Subclasses of torch's
    errors, and those about the memory of a GPU or a CPU, have other causes."""
    try:
        yield
    except UserError as error:
        told = f"predict reads the shape {tuple(x.shape)} as {len(x)} images of {tuple(x.shape[1:])}"
        raise UserError(f"{error} ({told})") from error
    except OF_SHAPES as error:
        if type(error) not in OF_SHAPES or "allocate memory" in str(error):
            raise
        kind = f"shape {tuple(x.shape)} and type {str(x.dtype).removeprefix('torch.')}"
        raise UserError(f"the network fails on images of {kind}: {first_line(error)}") from error


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
    refuse_missing(network, kwargs)
    tensors = {name: value for name, value in kwargs.items() if torch.is_tensor(value) and value.dim()}
    if tensors and not torch.is_tensor(images):
        raise UserError(
            f"forward_kwargs has a tensor ({', '.join(tensors)}), but predict cannot assign its rows to batches: "
            "call predict once per batch, with the rows of that batch and index="
        )
    each = {name: value for name, value in tensors.items() if len(value) == len(images)}
    device = device_of(network)
    shared = {name: value for name, value in kwargs.items() if name not in each}
    return tree_map_only(Tensor, lambda value: value.to(device), shared), each


def refuse_missing(network: nn.Module, kwargs: Mapping[str, Any]) -> None:
    """Refuse to call a network without arguments that it needs besides the images."""
    try:
        others = list(inspect.signature(network.forward).parameters.values())[1:]
    except ValueError:  # a forward that is not written in Python
        return
    named = [p for p in others if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.default is p.empty]
    if missing := [p.name for p in named if p.name not in kwargs]:
        told = f"the network also needs {', '.join(missing)}"
        raise UserError(f"{told}: pass it as in forward_kwargs={{{missing[0]!r}: ...}}")


def refuse_unknown(network: nn.Module, kwargs: Mapping[str, Any]) -> None:
    """Refuse keyword arguments that the network's forward does not take, or no longer takes after tracing."""
    taken = inspect.signature(network.forward).parameters.values()
    names = {p.name for p in list(taken)[1:] if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    unknown = set() if any(p.kind == p.VAR_KEYWORD for p in taken) else set(kwargs) - names
    if unknown:
        way_out = (
            "rbue.randomize fixes those whose default is None, a bool or a string, so wrap your network in a module "
            "whose forward takes them without a default, and randomize that"
            if isinstance(network, fx.GraphModule)
            else f"it takes {', '.join(sorted(names)) or 'only images'}"
        )
        raise UserError(f"the network takes no keyword argument {', '.join(sorted(unknown))}: {way_out}")
