"""Linear filters without rounding error.

The weights are integer multiples of a negative power of two and sum to one, so every product and partial sum of bytes
is exact in the number format that is used. Then the order of addition, the batch size, fused multiply-adds and the
device change nothing, and truncation to uint8 gives the same bytes everywhere.
"""

from functools import lru_cache

import numpy as np
import torch
from torch.nn import functional as F

GRID = 2**18  # two filter passes need 8 + 18 + 18 bits for bytes, 17 + 18 + 18 for normals: float64 has 53
BORDERS = {"nearest": "replicate", "reflect101": "reflect"}  # OpenCV's and scipy's names → torch's


def on_grid(weights, grid):
    """Return the weights as integers that sum to `grid` along the last axis. The largest absorbs the rounding error."""
    whole = np.rint(weights / weights.sum(-1, keepdims=True) * grid)
    largest = whole.argmax(-1)[..., None]
    rest = grid - whole.sum(-1, keepdims=True)
    np.put_along_axis(whole, largest, np.take_along_axis(whole, largest, -1) + rest, -1)
    return whole


def fold(position, size, mode):
    """Map positions at most `size` outside of 0..size-1 to the pixels that the border mode reads: "reflect" repeats the
    edge pixel, "reflect101" does not."""
    if mode == "nearest":
        return position.clamp(0, size - 1)
    if mode == "reflect":
        position = position ^ (position >> 31)
        return torch.minimum(position, 2 * size - 1 - position)
    position = position.abs()
    return torch.minimum(position, 2 * size - 2 - position)


@lru_cache
def gaussian_matrix(size, sigma, truncate, mode, device):
    """Return scipy's gaussian_filter1d as a (size, size) matrix, which includes the border mode."""
    radius = int(truncate * sigma + 0.5)
    taps = np.arange(-radius, radius + 1)
    weights = on_grid(np.exp(-0.5 * (taps / sigma) ** 2) if radius else np.ones(1), GRID)
    matrix, rows = np.zeros((size, size)), np.arange(size)[:, None]
    np.add.at(matrix, (rows, fold(torch.from_numpy(rows + taps), size, mode).numpy()), weights / GRID)
    return torch.from_numpy(matrix).to(device)


def columns(x, matrix):
    """Apply the matrix along the last dimension, then swap the last two dimensions."""
    return (x @ matrix.T).mT.contiguous()


def separable(x, matrix):
    """Apply the matrix along both of the last two dimensions."""
    return columns(columns(x, matrix), matrix)


def gaussian(x, sigma, truncate=4.0, mode="nearest"):
    """Apply skimage.filters.gaussian to the last two dimensions, exactly in float64."""
    return separable(x.double(), gaussian_matrix(x.shape[-1], sigma, truncate, mode, x.device))


def extend(x, by, mode):
    """Pad the last two dimensions of a float tensor by a border of `by` pixels."""
    return F.pad(x, (by, by, by, by), mode=BORDERS[mode])


def window(x, by, row, column):
    """Return, for each pixel of the extended image `x`, the pixel `row` below it and `column` to the right."""
    height, width = x.shape[-2] - 2 * by, x.shape[-1] - 2 * by
    return x[..., by + row : by + row + height, by + column : by + column + width]


def zoom_matrix(size, factor):
    """Return scipy's zoom of order 1 along one axis, about the centre and cropped to `size`, as a matrix."""
    inner = int(np.ceil(size / factor))
    outer = round(inner * factor)
    place = (np.arange(size) + (outer - size) // 2) * ((inner - 1) / (outer - 1))
    left = np.floor(place).astype(int)
    matrix, rows, top = np.zeros((size, size)), np.arange(size), (size - inner) // 2
    np.add.at(matrix, (rows, top + left), 1 - (place - left))
    np.add.at(matrix, (rows, top + np.minimum(left + 1, inner - 1)), place - left)
    return matrix


def divide(x, by):
    """Divide with one rounding on every device. For a Python number, torch on CUDA multiplies by its reciprocal."""
    return x / torch.full((), by, dtype=x.dtype, device=x.device)


def to_unit(x):
    """Convert bytes to float64 in [0, 1]."""
    return divide(x.double(), 255)


def truncate(x):
    """Clip and convert to uint8. This truncates instead of rounding, as the reference's np.uint8 does."""
    return x.clamp(0, 255).to(torch.uint8)
