"""The 19 corruptions of CIFAR-10-C and Tiny-ImageNet-C, batched, on any device.

    corrupt(images, "fog", 3, index)    uint8 (N, 3, 32, 32) or (N, 3, 64, 64) in, the same out

Image i of a type and severity is always the same bytes: in any batch, in any order, on CPU and GPU. The definitions are
those of hendrycks/robustness (make_cifar_c.py for 32x32, make_tinyimagenet_c.py for 64x64) with their constants and
their quirks; only the random numbers are others. Neither OpenCV nor scipy is needed.
"""

from functools import partial

import torch

from rbue.data.corruptions import blur, digital, jpeg, noise, spatter, weather
from rbue.data.corruptions.draws import Draws
from rbue.data.corruptions.severities import CONSTANTS, TYPES
from rbue.errors import UserError, one_of

__all__ = ["CORRUPTIONS", "SEVERITIES", "TYPES", "Draws", "corrupt"]

SEVERITIES = (1, 2, 3, 4, 5)
CHUNK = {"cpu": 2**19, "cuda": 2**24}  # pixels at a time: a CPU is fastest near its cache

CORRUPTIONS = {  # name → f(uint8 images, constants, draws)
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


@torch.no_grad()
def corrupt(images, name, severity, index, seed=0, textures=None, saved=None):
    """Corrupted copies of `images`, which are numbered `index` (int64) in their dataset.

    Tiny-ImageNet-C was saved as JPEG of quality 85 after the corruption and CIFAR-10-C as it was. Ours follow: 64x64
    images pass through that JPEG and 32x32 do not. `saved` is another quality, or 0 for none.
    """
    constants, size = _constants(images, name, severity), images.shape[-1]
    apply = partial(weather.frost, textures=textures) if name == "frost" else CORRUPTIONS[name]
    quality = {32: 0, 64: 85}[size] if saved is None else saved
    images, index = images.contiguous(), index.to(images.device)
    out = torch.empty_like(images)
    step = max(1, CHUNK.get(images.device.type, CHUNK["cpu"]) // size**2)
    for start in range(0, len(images), step):
        part = slice(start, start + step)
        done = apply(images[part], constants, Draws(name, severity, index[part], seed))
        out[part] = jpeg.jpeg(done, quality) if quality else done
    return out


def _constants(images, name, severity):
    """The numbers of a type, severity and size, or a sentence."""
    one_of(TYPES, corruption=name)
    if severity not in SEVERITIES:
        raise UserError(f"severity={severity} must be one of 1, 2, 3, 4, 5")
    if images.dtype != torch.uint8 or images.shape[1:] not in {(3, size, size) for size in CONSTANTS}:
        got = f"{images.dtype} {tuple(images.shape)}"
        raise UserError(f"corruptions take uint8 images (N, 3, 32, 32) or (N, 3, 64, 64), not {got}")
    return CONSTANTS[images.shape[-1]][name][severity - 1]
