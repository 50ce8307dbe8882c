"""Counter-based random bits: a pure function of (seed, site, step or sample, row, element).

The same numbers come out on CPU and GPU, eager and compiled, in any batch size and order of batches: at test time a
row is an image's own index, in training it is the place in the batch. Nothing is stored for the backward pass.

Two stages. `keys` hashes (seed, step, row, site) to 64 bits with splitmix64, once a row. `_hash` mixes the element's
place with both halves of its row's key through two 32-bit multiplications (lowbias32), once an element: on a GPU the
layers' cost is these few integer operations.
"""

import math
from contextlib import contextmanager

import torch

from rbue.errors import UserError

PASS = -1  # the row of what is drawn once a forward pass
TRAIN, AUGMENT, TEST = (purpose << 32 for purpose in range(3))  # added to a run's seed: three streams that never meet


def _signed(value, width):
    """Python's unbounded integer as torch's two's complement."""
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


GOLDEN, MIX_A, MIX_B = (_signed(c, 64) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
LOW_A, LOW_B = (_signed(c, 32) for c in (0x7FEB352D, 0x846CA68B))


def _shift(x, by, width):
    """Logical right shift: torch's is arithmetic, so the sign's copies are masked off."""
    return (x >> by) & ((1 << (width - by)) - 1)


def _splitmix(state, value):
    """One round of splitmix64: `state` and `value` are int64 tensors or Python ints."""
    z = state + (value + 1) * GOLDEN
    z = (z ^ _shift(z, 30, 64)) * MIX_A
    z = (z ^ _shift(z, 27, 64)) * MIX_B
    return z ^ _shift(z, 31, 64)


def keys(seed, step, rows, sites):
    """64-bit keys as int32 pairs (sites, rows, 2). `rows` is an int64 tensor; `seed` and `step` ints or tensors.

    `sites` is their number, or a tensor of their numbers where this is compiled: an index would be folded into the
    compiler's 32-bit index arithmetic.
    """
    if not torch.is_tensor(sites):
        sites = torch.arange(sites, device=rows.device)
    state = _splitmix(torch.zeros_like(rows), torch.zeros_like(rows) + seed)  # no copy from the host: may be captured
    state = _splitmix(state, torch.zeros_like(rows) + step)
    state = _splitmix(state, rows)
    state = _splitmix(state, sites[:, None])
    return torch.stack([state.to(torch.int32), (state >> 32).to(torch.int32)], -1)  # conversion keeps the low 32 bits


def _hash(row_keys, places):
    """32 bits of which the upper are good: what is compared or scaled needs no more."""
    first, second = (row_keys[:, half].view(-1, *[1] * (places.dim() - 1)) for half in (0, 1))
    x = (
        places ^ first
    )  # before any multiplication: a compiler folds index * constant into (overflowing) index arithmetic
    x = (x ^ _shift(x, 16, 32)) * LOW_A ^ second
    return (x ^ _shift(x, 15, 32)) * LOW_B


def bits(row_keys, shape):
    """Random int32 of shape (rows, *shape): uniform over all 2**32 values, every bit good."""
    x = _hash(row_keys, _count(shape, row_keys.device).view(1, *shape))
    return x ^ _shift(x, 16, 32)


def _count(shape, device):
    return torch.arange(math.prod(shape), dtype=torch.int32, device=device)


def _places(shape, device):
    """Numbers the elements of a feature map as channels-last memory has them: the cheapest index on a GPU."""
    if len(shape) != 3:
        return _count(shape, device).view(1, *shape)
    return _count(shape, device).view(1, *shape[1:], shape[0]).movedim(-1, 1)


def uniform(row_keys, shape):
    """float32 in [0, 1) with 24 random bits."""
    return _shift(_hash(row_keys, _places(shape, row_keys.device)), 8, 32).float() * 2.0**-24


def between(row_keys, shape, low, high):
    """float32, uniform over [low, high]."""
    return _hash(row_keys, _places(shape, row_keys.device)).float() * ((high - low) * 2.0**-32) + (low + high) / 2


def threshold(probability):
    """A tensor for `below`, so that one compiled graph serves every probability."""
    return torch.tensor([min(round(probability * 2**32) - 2**31, 2**31 - 1)], dtype=torch.int32)


def below(row_keys, shape, limit):
    """True with the probability whose `threshold` is given: exactly never at 0; at 1 all but one in 2**32."""
    return _hash(row_keys, _places(shape, row_keys.device)) < limit


def normal(row_keys, shape):
    """Standard normal by Box and Muller from two uniforms an element, the second from the key's mirrored halves."""
    radius = torch.sqrt(-2 * torch.log1p(-uniform(row_keys, shape)))
    return radius * torch.cos(2 * torch.pi * uniform(~row_keys.flip(-1), shape))


def fresh(rows, device):
    """Keys from torch's own generator: what a network uses outside `counted`, as any dropout would."""
    return torch.randint(-(2**31), 2**31, (rows, 2), dtype=torch.int64, device=device).to(torch.int32)


class Noise:
    """Where the sites of one network get their keys: drawn afresh at each call, or counted."""

    def __init__(self, sites=0):
        self.sites = sites
        self.by_row = self.by_pass = None  # (sites, rows, 2) and (sites, 1, 2) inside `counted`
        self.step = None  # the number of the sample or of the training step inside `counted`: an int or a tensor

    def of_rows(self, site, rows, device):
        """Keys of a site that draws for each image of the batch."""
        if self.by_row is None:
            return fresh(rows, device)
        if rows not in (1, self.by_row.shape[1]):  # one row, as of a parameter, meets every image
            raise UserError(f"a random layer got {rows} rows for {self.by_row.shape[1]} images: images must come first")
        return self.by_row[site]

    def of_pass(self, site, device):
        """The key of a site that draws once a forward pass."""
        return fresh(1, device) if self.by_pass is None else self.by_pass[site]

    def numbers(self, rows, device):
        """The number of the sample that each image is for: int64, one per image or one for all of them. Outside
        `counted` the numbers are random."""
        if self.step is None:
            return torch.randint(2**31, (rows,), device=device)
        return torch.as_tensor(self.step, device=device).view(-1)


def draw(seed, step, rows, sites):
    """Keys of a network's sites by row and by pass. `step` may be one number a row; a pass goes by the first."""
    first = step[:1] if torch.is_tensor(step) else step
    return keys(seed, step, rows, sites), keys(seed, first, torch.full_like(rows[:1], PASS), sites)


@contextmanager
def using(noise, drawn, step=None):
    """Inside, the network's sites use these keys, which were drawn for this step or sample."""
    before = noise.by_row, noise.by_pass, noise.step
    noise.by_row, noise.by_pass, noise.step = *drawn, step
    try:
        yield
    finally:
        noise.by_row, noise.by_pass, noise.step = before


def counted(network, seed, step, rows):
    """Inside, every site of `network` draws the bits of (seed, step, row): `rows` numbers the images of the batch."""
    noise = of(network)
    return using(noise, draw(seed, step, rows, noise.sites), step)


def of(network):
    """The network's shared source of noise; one without sites for a deterministic network."""
    return next((m.noise for m in network.modules() if isinstance(getattr(m, "noise", None), Noise)), Noise())
