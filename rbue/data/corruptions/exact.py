"""Linear filters without rounding error.

Weights are whole multiples of a power of two that sum to one, so every product and partial sum of bytes is exact in the
number format used. Order of addition, size of the batch, fused multiply-adds and the device then change nothing, and
the reference's truncation to uint8 falls the same way everywhere.
"""

from functools import lru_cache

import numpy as np
import torch
from torch.nn import functional as F

GRID = 2**18  # two passes over bytes need 8 + 18 + 18 bits, over normals 17 + 18 + 18: float64 holds 53
BORDERS = {"nearest": "replicate", "reflect101": "reflect"}  # OpenCV's and scipy's names → torch's


def on_grid(weights, grid):
    """Weights as whole numbers that sum to `grid` along the last axis, the largest taking what rounding left over."""
    whole = np.rint(weights / weights.sum(-1, keepdims=True) * grid)
    largest = whole.argmax(-1)[..., None]
    rest = grid - whole.sum(-1, keepdims=True)
    np.put_along_axis(whole, largest, np.take_along_axis(whole, largest, -1) + rest, -1)
    return whole


def fold(position, size, mode):
    """Where a position up to `size` outside 0..size-1 reads from: "reflect" repeats the edge, "reflect101" does not."""
    if mode == "nearest":
        return position.clamp(0, size - 1)
    if mode == "reflect":
        position = position ^ (position >> 31)
        return torch.minimum(position, 2 * size - 1 - position)
    position = position.abs()
    return torch.minimum(position, 2 * size - 2 - position)


@lru_cache
def gaussian_matrix(size, sigma, truncate, mode, device):
    """scipy's gaussian_filter1d along one axis as a (size, size) matrix, its border inside."""
    radius = int(truncate * sigma + 0.5)
    taps = np.arange(-radius, radius + 1)
    weights = on_grid(np.exp(-0.5 * (taps / sigma) ** 2) if radius else np.ones(1), GRID)
    matrix, rows = np.zeros((size, size)), np.arange(size)[:, None]
    np.add.at(matrix, (rows, fold(torch.from_numpy(rows + taps), size, mode).numpy()), weights / GRID)
    return torch.from_numpy(matrix).to(device)


def columns(x, matrix):
    """The matrix along the last dimension, which then changes places with the one before."""
    return (x @ matrix.T).mT.contiguous()


def separable(x, matrix):
    """The matrix along both of the last two dimensions."""
    return columns(columns(x, matrix), matrix)


def gaussian(x, sigma, truncate=4.0, mode="nearest"):
    """skimage.filters.gaussian of the last two dimensions, exact in float64."""
    return separable(x.double(), gaussian_matrix(x.shape[-1], sigma, truncate, mode, x.device))


def extend(x, by, mode):
    """The last two dimensions of a float tensor with a border of `by` pixels."""
    return F.pad(x, (by, by, by, by), mode=BORDERS[mode])


def window(x, by, row, column):
    """The extended image `x`, shifted: what stands `row` below and `column` to the right of each pixel."""
    height, width = x.shape[-2] - 2 * by, x.shape[-1] - 2 * by
    return x[..., by + row : by + row + height, by + column : by + column + width]


def zoom_matrix(size, factor):
    """scipy's zoom of order 1 of the centre, cropped back to `size`, along one axis."""
    inner = int(np.ceil(size / factor))
    outer = round(inner * factor)
    place = (np.arange(size) + (outer - size) // 2) * ((inner - 1) / (outer - 1))
    left = np.floor(place).astype(int)
    matrix, rows, top = np.zeros((size, size)), np.arange(size), (size - inner) // 2
    np.add.at(matrix, (rows, top + left), 1 - (place - left))
    np.add.at(matrix, (rows, top + np.minimum(left + 1, inner - 1)), place - left)
    return matrix


def divide(x, by):
    """x / by with one rounding on every device: on CUDA torch multiplies by the reciprocal of a plain number."""
    return x / torch.full((), by, dtype=x.dtype, device=x.device)


def to_unit(x):
    """Bytes as float64 in [0, 1]."""
    return divide(x.double(), 255)


def truncate(x):
    """np.uint8 of a clipped image: towards zero, where rounding would be fairer."""
    return x.clamp(0, 255).to(torch.uint8)
