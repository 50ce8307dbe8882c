"""Random numbers of a corruption: pure functions of (seed, type, severity, image index, stream, element).

They are the same on every device and in every batch. So they are computed only from integer hashes, from tables, and by
operations whose rounding IEEE 754 defines. Libraries round logarithms and cosines differently, so these are read from
tables, which are computed on the CPU.
"""

import hashlib
from functools import lru_cache
from math import prod

import numpy as np
import torch

from rbue.data.corruptions.severities import TYPES
from rbue.noise import bits, keys

CORRUPT = 3 << 32  # added to the seed: rbue.noise's TRAIN, AUGMENT and TEST use 0, 1 and 2
STREAMS = ("byte", "angle", "layer", "field", "jitter", "shift", "texture", "crop")
NORMAL_GRID = 2.0**14  # normals are rounded to multiples of 2**-14, so that blurring them is exact in float64


class Draws:
    """The random numbers of one type at one severity for the images at `index`. All shapes are per image."""

    def __init__(self, name, severity, index, seed=0):
        self.keys = keys(seed + CORRUPT, 8 * number(name) + severity, index.long(), len(STREAMS))

    def bits(self, stream, *shape):
        """Return int32, uniform over all 2**32 values."""
        return bits(self.keys[STREAMS.index(stream)], shape)

    def uniform(self, stream, *shape):
        """Return float64, uniform in [0, 1), with 32 random bits."""
        return self.bits(stream, *shape).double() * 2.0**-32 + 0.5

    def below(self, stream, n, *shape):
        """Return int64, uniform in [0, n). `n` is a number or a tensor that broadcasts."""
        return (self.uniform(stream, *shape) * n).long()

    def field(self, *shape):
        """Return float64, uniform in [-1, 1), with 16 random bits: few enough for a blur to be exact."""
        return (self.bits("field", *shape) >> 16).double() * 2.0**-15

    def normal(self, stream, *shape):
        """Return standard normals by the Box-Muller transform, two from each pair of hashes."""
        count = prod(shape)
        radius, cosine = _box_muller(self.keys.device)
        far, turn = self.bits(stream, 2, (count + 1) // 2).unbind(1)
        low, high, turn = far & 0xFFFF, (far >> 16) & 0xFFFF, turn & 0xFFFF
        r = radius[torch.where(high > 0, high, low + 0x10000)]
        both = torch.cat([r * cosine[turn], r * cosine[(turn + 0xC000) & 0xFFFF]], 1)
        return (both[:, :count] * NORMAL_GRID).round().view(-1, *shape) / NORMAL_GRID


def number(name):
    """Return an official type's position in TYPES. A user's own type has a larger number, hashed from its name, so that
    its random numbers do not depend on which other types are registered."""
    if name in TYPES:
        return TYPES.index(name)
    return 2**48 + int.from_bytes(hashlib.sha256(name.encode()).digest()[:5])


@lru_cache
def _box_muller(device):
    """Return two tables: sqrt(-2 log u), and cosines of 2**16 angles.

    The first 2**16 entries of the radius are indexed by the high 16 bits of u. The others are for the tail, where these
    bits are zero, and are indexed by the low 16 bits.
    """
    u = np.concatenate([(np.arange(2**16) + 0.5) / 2**16, (np.arange(2**16) + 0.5) / 2**32])
    radius, cosine = np.sqrt(-2 * np.log(u)), np.cos(2 * np.pi * np.arange(2**16) / 2**16)
    return [torch.from_numpy(np.rint(table * 2**20) / 2**20).to(device) for table in (radius, cosine)]
