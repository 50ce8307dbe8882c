"""Noise that acts on each byte independently: Gaussian, shot, impulse and speckle.

The distribution of the output byte depends only on the input byte, so it is a table of 256 x 256 probabilities.
Walker's alias method draws from one row with one hash, one look-up, and integers only. The probabilities equal those of
the reference, including its truncation to uint8, to within 2**-28.
"""

from functools import lru_cache, partial

import numpy as np
import torch

CELL = 2**20  # units of probability per cell of the alias table; a row has 256 cells


def noise(name, x, c, draws):
    table, drawn = _alias_table(name, c, x.device), draws.bits("byte", *x.shape[1:])
    cell = drawn & 0xFF
    entry = table.index_select(0, (x.int() * 256 + cell).view(-1)).view(x.shape)
    kept = (((drawn >> 12) & (CELL - 1)) - (entry >> 8)) >> 31  # a mask of ones or zeros: cheaper than a comparison
    return (((entry ^ cell) & ~kept) ^ cell).to(torch.uint8)  # the conversion keeps the low eight bits


gaussian_noise = partial(noise, "gaussian")
shot_noise = partial(noise, "shot")
impulse_noise = partial(noise, "impulse")  # of bytes, not of pixels: skimage draws for each channel separately
speckle_noise = partial(noise, "speckle")


@lru_cache
def _alias_table(name, c, device):
    """Return one int32 per entry: the probability of the cell's own byte, then in the low 8 bits the other byte."""
    keep, other = _alias(_counts(cumulative(name, c)))
    return torch.from_numpy((keep * 256 + other).astype(np.int32)).flatten().to(device)


def cumulative(name, c):
    """Return P(output <= column | input = row) as a (256, 256) table."""
    below = torch.arange(1, 257, dtype=torch.float64)[None, :]  # byte y covers [y, y + 1) before truncation
    x = torch.arange(256, dtype=torch.float64)[:, None]
    if name == "gaussian":
        table = torch.special.ndtr((below - x) / (255 * c))
    elif name == "speckle":
        table = torch.special.ndtr(torch.where(x > 0, (below - x) / (x * c).clamp(min=1e-9), torch.inf))
    elif name == "impulse":
        table = c / 2 + (1 - c) * (below > x)
    else:
        table = _poisson(c)
    table[:, 255] = 1  # clipping to white
    return table.numpy()


def _poisson(c):
    """Return P(floor(255 * min(k / c, 1)) <= column), where k is Poisson with mean c * row / 255."""
    counts = np.arange(2 * c + 100)
    log_factorial = np.concatenate([[0], np.cumsum(np.log(counts[1:]))])
    mean = c * np.arange(256)[:, None] / 255
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 * log 0 for a black pixel, which receives no photons
        log_mass = np.where(counts == 0, 0, counts * np.log(mean)) - mean - log_factorial
    byte = (np.clip(counts / c, 0, 1) * 255).astype(np.uint8)
    return torch.from_numpy(np.cumsum(np.exp(log_mass) @ (byte[:, None] == np.arange(256)), 1))


def _counts(table):
    """Return the probabilities as integers in units of 2**-28. Each row sums to one."""
    return np.diff(np.rint(table.clip(0, 1) * CELL * 256).astype(np.int64), prepend=0)


def _alias(counts):
    """Build Walker's tables: at each step, the emptiest cell of each row is filled up from its fullest cell."""
    left, rows = counts.copy(), np.arange(256)
    keep, other = np.full_like(left, CELL), np.tile(rows, (256, 1))
    for _ in range(256):
        low, high = left.argmin(1), left.argmax(1)
        room = CELL - left[rows, low]
        keep[rows, low] -= room
        other[rows, low] = np.where(room > 0, high, other[rows, low])
        left[rows, low] = CELL
        left[rows, high] -= room
    return keep, other
