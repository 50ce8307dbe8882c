"""Random draws of a corruption: pure functions of (seed, type, severity, image index, stream, element).

Only integer hashes, tables and operations that IEEE 754 rounds in one way, so that a draw is the same number on every
device and in every batch; logarithms and cosines, which libraries round differently, stay inside the tables.
"""

import hashlib
from functools import lru_cache
from math import prod

import numpy as np
import torch

from rbue.data.corruptions.severities import TYPES
from rbue.noise import bits, keys

CORRUPT = 3 << 32  # added to the seed: rbue.noise's TRAIN, AUGMENT and TEST hold 0, 1 and 2
STREAMS = ("byte", "angle", "layer", "field", "jitter", "shift", "texture", "crop")
NORMAL_GRID = 2.0**14  # normals are multiples of 1 / 2**14: what is blurred later must stay exact in float64


class Draws:
    """What one type at one severity draws for the images numbered `index`."""

    def __init__(self, name, severity, index, seed=0):
        self.keys = keys(seed + CORRUPT, 8 * number(name) + severity, index, len(STREAMS))

    def bits(self, stream, *shape):
        """int32, uniform over all 2**32 values."""
        return bits(self.keys[STREAMS.index(stream)], shape)

    def uniform(self, stream, *shape):
        """float64 in [0, 1) with 32 random bits."""
        return self.bits(stream, *shape).double() * 2.0**-32 + 0.5

    def below(self, stream, n, *shape):
        """int64 in [0, n); `n` is a number or a tensor that broadcasts."""
        return (self.uniform(stream, *shape) * n).long()

    def field(self, *shape):
        """float64 in [-1, 1) with 16 random bits: few enough for a blur to be exact."""
        return (self.bits("field", *shape) >> 16).double() * 2.0**-15

    def normal(self, stream, *shape):
        """Standard normals by Box and Muller, two from each pair of hashes."""
        count = prod(shape)
        radius, cosine = _box_muller(self.keys.device)
        far, turn = self.bits(stream, 2, (count + 1) // 2).unbind(1)
        low, high, turn = far & 0xFFFF, (far >> 16) & 0xFFFF, turn & 0xFFFF
        r = radius[torch.where(high > 0, high, low + 0x10000)]
        both = torch.cat([r * cosine[turn], r * cosine[(turn + 0xC000) & 0xFFFF]], 1)
        return (both[:, :count] * NORMAL_GRID).round().view(-1, *shape) / NORMAL_GRID


def number(name):
    """The place of an official type in its list. A user's own type has a number of its name, far above the list: its
    draws are its own, and stay the same whatever else is registered."""
    if name in TYPES:
        return TYPES.index(name)
    return 2**48 + int.from_bytes(hashlib.sha256(name.encode()).digest()[:5])


@lru_cache
def _box_muller(device):
    """sqrt(-2 log u) by the high 16 bits of u, then by its low 16 where those are zero: the tail; cosines of a turn."""
    u = np.concatenate([(np.arange(2**16) + 0.5) / 2**16, (np.arange(2**16) + 0.5) / 2**32])
    radius, cosine = np.sqrt(-2 * np.log(u)), np.cos(2 * np.pi * np.arange(2**16) / 2**16)
    return [torch.from_numpy(np.rint(table * 2**20) / 2**20).to(device) for table in (radius, cosine)]
