"""Blurs: defocus, glass, motion, zoom and gaussian."""

import warnings
from functools import lru_cache

import numpy as np
import torch

from rbue.data.corruptions.exact import extend, gaussian, on_grid, truncate, window, zoom_matrix

DISK_GRID = 2.0**44  # one filter pass over bytes needs 8 + 44 bits: exact in float64
BYTE_GRID = 2**16  # one filter pass over bytes needs 8 + 16 bits: exact in float32


def gaussian_blur(x, sigma, draws):
    return truncate(gaussian(x, sigma))


# --- defocus ----------------------------------------------------------------------------------------------------------


def defocus_blur(x, c, draws):
    """Blur with a disk that is smoothed by a 3x3 Gaussian. Pixels of equal weight (up to eight, by symmetry) are summed
    before they are multiplied."""
    taps, reach = _disk(*c)
    wide, total = extend(x.double(), reach, "reflect101"), 0
    for weight, places in taps:
        total = total + weight * sum(window(wide, reach, row, column) for row, column in places)
    return truncate(total)


@lru_cache
def _disk(radius, alias):
    """Return the kernel as [(weight, [(row, column), ...])], and its radius. OpenCV's kernel is 17x17, mostly zeros.

    OpenCV's weights are float32, so they differ slightly from 1/5 or 1/9. This decides whether a sum near an integer is
    truncated up or down, so ours are rounded to float32 too.
    """
    line = np.arange(-8, 9)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float32)
    disk /= disk.sum()
    side = np.exp(-0.5 / alias**2)
    middle, side = np.float32(1 / (1 + 2 * side)), np.float32(side / (1 + 2 * side))
    for _ in range(2):  # rows, then columns; np.roll is safe because the disk does not touch the border
        disk = (middle * disk + side * (np.roll(disk, 1, 1) + np.roll(disk, -1, 1))).T
    disk = np.rint(disk * DISK_GRID) / DISK_GRID
    places = {weight: np.argwhere(disk == weight) - 8 for weight in np.unique(disk[disk > 0]).tolist()}
    return [(w, p.tolist()) for w, p in places.items()], max(int(abs(p).max()) for p in places.values())


# --- motion -----------------------------------------------------------------------------------------------------------


def motion_blur(x, c, draws):
    return motion(x, 90 * draws.uniform("angle", 1)[:, 0] - 45, *c)


def motion(x, angle, radius, sigma):
    """Apply ImageMagick's motion blur: a one-sided Gaussian from each pixel along `angle` degrees, borders repeated.

    The images are sorted by angle. Neighbours then share each tap's offset, so a tap needs a few slices and no gather.
    """
    order, weights = angle.argsort(), _half_gaussian(2 * radius + 1, sigma)
    reach = len(weights) - 1
    wide = extend(x[order].float(), reach, "nearest")
    total = torch.full_like(x, 0.5, dtype=torch.float32)  # ImageMagick 6.8.9 and 6.9.7 round; 6.9.11 does not
    for weight, offsets in zip(weights, _offsets(angle[order], len(weights)), strict=True):
        for start, stop, row, column in _runs(offsets):
            total[start:stop].add_(window(wide[start:stop], reach, row, column), alpha=weight)
    return total.to(torch.uint8)[order.argsort()]


def _offsets(angle, width):
    """Return rows and columns of the taps, (width, N, 2). Halves round down, as in ImageMagick's ceil(x - 0.5)."""
    turn = np.deg2rad(angle.cpu().numpy())
    along = np.arange(width)[:, None, None] * np.stack([np.sin(turn), np.cos(turn)], 1)
    return np.ceil(along - 0.5).astype(int)


def _runs(offsets):
    """Return the runs of equal offsets, each as (start, stop, row, column)."""
    starts = np.flatnonzero(np.r_[True, (offsets[1:] != offsets[:-1]).any(1)])
    return zip(starts.tolist(), [*starts[1:].tolist(), len(offsets)], *offsets[starts].T.tolist(), strict=True)


@lru_cache
def _half_gaussian(width, sigma):
    """Return the weights of a one-sided Gaussian, largest first. Weights that are rounded to zero are left out."""
    weights = on_grid(np.exp(-(np.arange(width) ** 2) / (2 * sigma**2)), BYTE_GRID)
    return [weight / BYTE_GRID for weight in weights.tolist() if weight > 0]


# --- zoom -------------------------------------------------------------------------------------------------------------


def zoom_blur(x, c, draws):
    """Average the image and its zooms by one sparse matrix over the pixels."""
    matrix = _zooms(x.shape[-1], c, x.device)
    pixels = x.reshape(-1, x.shape[-1] ** 2).T.float().contiguous()
    return (matrix @ pixels).T.to(torch.uint8).reshape(x.shape)


@lru_cache
def _zooms(size, c, device):
    """Return the sparse matrix. As in the reference, the image counts twice: by itself, and as its zoom by 1."""
    layers = np.stack([np.eye(size), *(zoom_matrix(size, factor) for factor in np.arange(*c))])
    rows = []  # of the matrix, built for one image row at a time, since the dense matrix would be large
    for by_row in layers.transpose(1, 0, 2):
        block = np.tensordot(layers, by_row, (0, 0)).transpose(0, 2, 1).reshape(size, -1)
        rows.append(torch.from_numpy(on_grid(block, BYTE_GRID) / BYTE_GRID).float().to_sparse())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR", UserWarning)  # it only says that CSR is "in beta state"
        return torch.cat(rows).to_sparse_csr().to(device)


# --- glass ------------------------------------------------------------------------------------------------------------


def glass_blur(x, c, draws):
    """Blur, shuffle neighbouring pixels, and blur again. Both blurs truncate to uint8."""
    sigma, reach, iterations = c
    size, moved = x.shape[-1], truncate(gaussian(x, sigma)).flatten(2)
    shifts = draws.below("shift", 2 * reach, iterations, 2, size, size) - reach
    for step in range(iterations):
        source = glass_sources(shifts[:, step, 0], shifts[:, step, 1], reach)
        moved = moved.gather(2, source[:, None].expand_as(moved))
    return truncate(gaussian(moved.view_as(x), sigma))


def glass_sources(across, down, reach):
    """Return the flat index from which each pixel takes its value in one sweep of the reference implementation.

    The reference swaps two views of one array, so its second assignment reads what the first has written. The effect is
    a copy from (h + down, w + across), and the source keeps its value. The reference visits the pixels from last to
    first, so a source at a later position was overwritten before and passes on its new value. Such chains of copies
    are resolved by pointer doubling.
    """
    size = across.shape[-1]
    line = torch.arange(size, device=across.device)
    swept = (line > reach) & (line <= size - reach)
    swept = (swept[:, None] & swept).flatten()
    here = torch.arange(size * size, device=across.device)
    source = torch.where(swept, here + (down * size + across).flatten(1), here)
    passed = swept & swept[source] & (source > here)
    while passed.any():
        onward = source.gather(1, source), passed.gather(1, source)
        source, passed = torch.where(passed, onward[0], source), passed & onward[1]
    return source
