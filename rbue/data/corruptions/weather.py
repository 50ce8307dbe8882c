"""Snow, frost and fog."""

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from rbue.data.corruptions.blur import motion
from rbue.data.corruptions.exact import GRID, on_grid, separable, to_unit, truncate, zoom_matrix
from rbue.data.corruptions.severities import FROST_SCALE
from rbue.errors import UserError

# --- snow -------------------------------------------------------------------------------------------------------------


def snow(x, c, draws):
    """Add snowflakes, and the same flakes rotated by 180 degrees, to an image that is faded towards white."""
    blend = c[6]
    flakes = _flakes(draws.normal("layer", *x.shape[2:]), 90 * draws.uniform("angle", 1)[:, 0] - 135, c)
    flakes = to_unit(flakes)
    x = to_unit(x)
    grey = (0.299 * x[:, :1] + 0.587 * x[:, 1:2]) + 0.114 * x[:, 2:]
    x = blend * x + (1 - blend) * torch.maximum(x, grey * 1.5 + 0.5)
    return truncate((x + flakes + flakes.flip(2, 3)).clamp(0, 1) * 255)


def _flakes(normal, angle, c):
    """Return the flakes as uint8 (N, 1, H, W): zoomed noise above a threshold, with motion blur along `angle`."""
    loc, scale, zoom, threshold, radius, sigma, _ = c
    layer = loc + scale * separable(normal, _zoom(normal.shape[-1], zoom, normal.device))
    layer = torch.where(layer < threshold, 0, layer)
    return motion(truncate(layer.clamp(0, 1) * 255)[:, None], angle, radius, sigma)


@lru_cache
def _zoom(size, factor, device):
    return torch.from_numpy(on_grid(zoom_matrix(size, factor), GRID) / GRID).to(device)


# --- frost ------------------------------------------------------------------------------------------------------------


def frost(x, c, draws, textures=None):
    """Add a random crop of one of five textures. The reference lists a sixth but never draws it."""
    sheet, sizes = _sheet(_texture_folder(textures), x.shape[-1], x.device)
    which = draws.below("texture", len(sizes), 1)[:, 0]
    corner = draws.below("crop", sizes[which] - x.shape[-1], 2)
    return truncate(c[0] * x.double() + c[1] * _crops(sheet, which, corner, x.shape[-1]))


def _crops(sheet, which, corner, size):
    """Cut one crop per image from the (textures, 3, rows, columns) sheet. Return float64 (N, 3, size, size)."""
    line = torch.arange(size, device=sheet.device)
    rows, columns = corner[:, :1] + line, corner[:, 1:] + line
    start = which[:, None] * sheet[0].numel() + torch.arange(3, device=sheet.device) * sheet[0, 0].numel()
    place = (rows * sheet.shape[-1])[:, None, :, None] + columns[:, None, None, :] + start[:, :, None, None]
    return torch.take(sheet, place).double()


class NoTextures(UserError):
    """Refusal: the optional package with the frost textures is not installed."""


def _texture_folder(textures):
    """Return the user's folder, or the folder of an installed `imagecorruptions`, which is not imported."""
    if textures is not None:
        return Path(textures)
    package = find_spec("imagecorruptions")
    if package is None:
        raise NoTextures(
            "frost needs five photographs: pip install -e '.[frost]', or name a folder that holds frost1 to frost5"
        )
    return Path(package.origin).parent / "frost"


@lru_cache
def _sheet(folder, size, device):
    """Return the five resized textures, padded to one size and stacked, and their (rows, columns) before padding."""
    scaled = [_scaled(_find(folder, number), FROST_SCALE[size]) for number in range(1, 6)]
    sizes = torch.tensor([image.shape[1:] for image in scaled])
    sheet = torch.zeros(5, 3, *sizes.amax(0).tolist(), dtype=torch.uint8)
    for page, image in zip(sheet, scaled, strict=True):
        page[:, : image.shape[1], : image.shape[2]] = torch.from_numpy(image)
    return sheet.to(device), sizes.to(device)


def _find(folder, number):
    found = sorted(folder.glob(f"frost{number}.*"))
    if not found:
        raise UserError(f"{folder} holds no frost{number}.png or .jpg: frost needs the textures frost1 to frost5")
    return found[0]


def _scaled(path, scale):
    """Resize as OpenCV does by default: linear, unsmoothed, in fixed point. At scale 0.2 it takes every fifth pixel."""
    image = np.asarray(Image.open(path).convert("RGB")).astype(np.int64).transpose(2, 0, 1)
    (left, right, part), (top, bottom, share) = (_taps(size, scale) for size in (image.shape[2], image.shape[1]))
    image = image[:, :, left] * (2048 - part) + image[:, :, right] * part >> 4
    upper, lower = image[:, top] * (2048 - share)[:, None] >> 16, image[:, bottom] * share[:, None] >> 16
    return (upper + lower + 2 >> 2).astype(np.uint8)


def _taps(size, scale):
    """Return both neighbours of each output pixel, and the weight of the second in units of 1/2048."""
    place = (np.arange(round(size * scale)) + 0.5) / scale - 0.5
    first = np.floor(place).astype(int)
    part = np.rint((place - first) * 2048).astype(np.int64)
    return first.clip(0, size - 1), (first + 1).clip(0, size - 1), part


# --- fog --------------------------------------------------------------------------------------------------------------


def fog(x, c, draws):
    """Add a plasma fractal, then scale the image so that its maximum stays about the same."""
    strength, decay = c
    plasma = plasma_fractal(draws.uniform("layer", *x.shape[2:]), decay)[:, None]
    x = to_unit(x)
    peak = x.amax((1, 2, 3), keepdim=True)
    return truncate(((x + strength * plasma) * peak / (peak + strength)).clamp(0, 1) * 255)


def plasma_fractal(uniform, decay):
    """Return a plasma fractal in [0, 1] by diamond-square on a torus. `uniform` (N, size, size) holds draws in [0, 1).

    As in the reference, the noise is w * U(-w, w) for a roughness w (`wibble`): it falls with the square of the decay.
    """
    size, wibble = uniform.shape[-1], 100.0
    field = torch.zeros_like(uniform)
    step = size
    while step >= 2:
        noise, half = wibble * (2 * wibble * uniform - wibble), step // 2
        corner = field[:, ::step, ::step]
        down = corner + corner.roll(-1, 1)
        middle = (down + down.roll(-1, 2)) / 4 + noise[:, half::step, half::step]
        field[:, half::step, half::step] = middle
        across = (middle + middle.roll(1, 1)) + (corner + corner.roll(-1, 2))
        field[:, ::step, half::step] = across / 4 + noise[:, ::step, half::step]
        along = (middle + middle.roll(1, 2)) + (corner + corner.roll(-1, 1))
        field[:, half::step, ::step] = along / 4 + noise[:, half::step, ::step]
        step, wibble = half, wibble / decay
    field = field - field.amin((1, 2), keepdim=True)
    return field / field.amax((1, 2), keepdim=True)
