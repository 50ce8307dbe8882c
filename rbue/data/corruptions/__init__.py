"""The 19 corruptions of CIFAR-10-C and Tiny-ImageNet-C, and the user's own, batched, on any device.

    corrupt(images, "fog", 3, index)             takes and returns uint8 (N, 3, 32, 32) or (N, 3, 64, 64)
    @corruption("posterize", (6, 5, 4, 3, 2))    registers a corruption of your own, for any size

Image i of a type and severity always has the same bytes: in any batch, in any order, on CPU and GPU. The definitions
and constants are those of hendrycks/robustness (make_cifar_c.py for 32x32, make_tinyimagenet_c.py for 64x64), with all
their peculiarities; only the random numbers differ. Neither OpenCV nor scipy is needed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from rbue.data.corruptions import blur, digital, jpeg, noise, spatter, weather
from rbue.data.corruptions.draws import Draws
from rbue.data.corruptions.severities import CONSTANTS, TYPES
from rbue.errors import UserError, one_of, refuse_second

__all__ = ["CORRUPTIONS", "SEVERITIES", "TYPES", "Draws", "corrupt", "corruption"]

SEVERITIES = (1, 2, 3, 4, 5)
CHUNK = {"cpu": 2**19, "cuda": 2**24}  # pixels that are corrupted at once: a CPU is fastest if they fit its cache

_OFFICIAL = {  # name → f(uint8 images, constants, draws)
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "defocus_blur": blur.defocus_blur,
    "glass_blur": blur.glass_blur,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "fog": weather.fog,
    "brightness": digital.brightness,
    "contrast": digital.contrast,
    "elastic_transform": digital.elastic_transform,
    "pixelate": digital.pixelate,
    "jpeg_compression": digital.jpeg_compression,
    "speckle_noise": noise.speckle_noise,
    "gaussian_blur": blur.gaussian_blur,
    "spatter": spatter.spatter,
    "saturate": digital.saturate,
}


@dataclass(frozen=True)
class Corruption:
    """A function (uint8 images, constant, draws) → uint8 images, and its five constants: one tuple, or one per size."""

    make: Callable
    severities: tuple | dict[int, tuple]

    def constants(self, size):
        """Return the five constants for images of this size, or None if it is not defined for them."""
        return self.severities.get(size) if isinstance(self.severities, dict) else self.severities


# All corruptions: the 19 official types, then the user's own. TYPES holds the 19 alone: an official archive has these,
# and the digits' OOD images are made with these.
CORRUPTIONS = {
    name: Corruption(make, {size: constants[name] for size, constants in CONSTANTS.items()})
    for name, make in _OFFICIAL.items()
}


def corruption(name, severities):
    """Register the decorated function as a corruption of your own; `severities` are its five constants, weakest first.

    The function is called with uint8 images (N, 3, H, W), one of the constants, and a `Draws` for random numbers. The
    generated sets of every `_c` dataset then include it, after the 19 types.
    """
    for five in severities.values() if isinstance(severities, dict) else [severities]:
        if len(five) != len(SEVERITIES):
            raise UserError(f"corruption {name} has {len(five)} severities instead of {len(SEVERITIES)}")

    def register(make):
        refuse_second(f"corruption {name}", CORRUPTIONS[name].make if name in CORRUPTIONS else None, make)
        CORRUPTIONS[name] = Corruption(make, severities)
        return make

    return register


@torch.no_grad()
def corrupt(images, name, severity, index, seed=0, textures=None, saved=None):
    """Return corrupted copies of `images`. `index` holds their positions in the dataset, one integer per image.

    The official Tiny-ImageNet-C was stored as JPEG of quality 85, CIFAR-10-C without compression. So 64x64 images are
    compressed here too, and 32x32 images are not. `saved` sets another JPEG quality, or 0 for no compression.
    """
    constants, size = _constants(images, name, severity), images.shape[-1]
    make = partial(weather.frost, textures=textures) if name == "frost" else CORRUPTIONS[name].make
    quality = {64: 85}.get(size, 0) if saved is None else saved
    images, index = images.contiguous(), _positions(index, len(images)).to(images.device)
    out = torch.empty_like(images)
    step = max(1, CHUNK.get(images.device.type, CHUNK["cpu"]) // size**2)
    for start in range(0, len(images), step):
        part = slice(start, start + step)
        own = images[part].clone()  # a user's corruption may work in place, and the next one needs the clean images
        done = make(own, constants, Draws(name, severity, index[part], seed))
        if done.dtype != torch.uint8 or done.shape != images[part].shape:
            got, wanted = (f"{x.dtype} {tuple(x.shape)}" for x in (done, images[part]))
            raise UserError(f"corruption {name} gives {got} instead of {wanted}")
        out[part] = jpeg.jpeg(done, quality) if quality else done
    return out


def _positions(index, count):
    """Return the index as int64, or refuse one that would give some images the random numbers of others."""
    index = torch.as_tensor(index)
    if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool or index.shape != (count,):
        got = f"{index.dtype} {tuple(index.shape)}"
        raise UserError(f"index must hold one integer per image, shape ({count},), not {got}")
    return index.long()


def _constants(images, name, severity):
    """Return the constant of a type, severity and image size, or refuse what is not defined."""
    one_of(CORRUPTIONS, corruption=name)
    if severity not in SEVERITIES:
        raise UserError(f"severity={severity} must be one of 1, 2, 3, 4, 5")
    kind, got = CORRUPTIONS[name], f"{images.dtype} {tuple(images.shape)}"
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise UserError(f"corruptions take uint8 images (N, 3, size, size), not {got}")
    if images.shape[2] != images.shape[3] or not kind.constants(images.shape[3]):
        sizes = kind.severities if isinstance(kind.severities, dict) else ["size"]
        sizes = " or ".join(f"(N, 3, {size}, {size})" for size in sizes)
        raise UserError(f"{name} takes uint8 images {sizes}, not {got}")
    return kind.constants(images.shape[3])[severity - 1]
