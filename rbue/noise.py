"""Counter-based random bits: a pure function of (seed, layer, step or sample, row, element).

The numbers are equal on CPU and GPU, eager and compiled, for any batch size and any order of batches. At test time
the row is the image's index in the dataset; in training it is its position in the batch. Nothing is stored for the
backward pass. In names, a `site` is one stochastic layer of a network, numbered as the network lists them.

There are two stages. `keys` hashes (seed, step, row, site) to 64 bits with splitmix64, once per row. `_hash` mixes
the element's position with both halves of its row's key by two 32-bit multiplications (lowbias32), once per element.
On a GPU, these few integer operations are the layers' whole cost.
"""

import math
from contextlib import contextmanager

import torch

from rbue.errors import UserError

PASS = -1  # the row number of keys that are drawn once per forward pass
TRAIN, AUGMENT, TEST = (purpose << 32 for purpose in range(3))  # added to a run's seed: three disjoint streams


def _signed(value, width):
    """Convert Python's unbounded integer to torch's two's complement."""
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


GOLDEN, MIX_A, MIX_B = (_signed(c, 64) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
LOW_A, LOW_B = (_signed(c, 32) for c in (0x7FEB352D, 0x846CA68B))


def _shift(x, by, width):
    """Logical right shift: torch's is arithmetic, so the copies of the sign bit are masked off."""
    return (x >> by) & ((1 << (width - by)) - 1)


def _splitmix(state, value):
    """One round of splitmix64 on int64 tensors or Python ints."""
    z = state + (value + 1) * GOLDEN
    z = (z ^ _shift(z, 30, 64)) * MIX_A
    z = (z ^ _shift(z, 27, 64)) * MIX_B
    return z ^ _shift(z, 31, 64)


def keys(seed, step, rows, sites):
    """Return 64-bit keys as int32 pairs (sites, rows, 2). `rows` is int64; `seed` and `step` are ints or tensors.

    `sites` is the number of stochastic layers. In compiled code it is a tensor of their indices, since the compiler
    would fold an index made here into its 32-bit index arithmetic.
    """
    if not torch.is_tensor(sites):
        sites = torch.arange(sites, device=rows.device)
    state = _splitmix(torch.zeros_like(rows), torch.zeros_like(rows) + seed)  # no copy from host: can be captured
    state = _splitmix(state, torch.zeros_like(rows) + step)
    state = _splitmix(state, rows)
    state = _splitmix(state, sites[:, None])
    return torch.stack([state.to(torch.int32), (state >> 32).to(torch.int32)], -1)  # conversion keeps the low 32 bits


def _hash(row_keys, places):
    """Return 32 bits of which only the upper ones are well mixed; comparing and scaling need no more."""
    first, second = (row_keys[:, half].view(-1, *[1] * (places.dim() - 1)) for half in (0, 1))
    # XOR before any multiplication: a compiler folds index * constant into its index arithmetic, which overflows
    x = places ^ first
    x = (x ^ _shift(x, 16, 32)) * LOW_A ^ second
    return (x ^ _shift(x, 15, 32)) * LOW_B


def bits(row_keys, shape):
    """Random int32 of shape (rows, *shape): uniform over all 2**32 values, with every bit well mixed."""
    x = _hash(row_keys, _count(shape, row_keys.device).view(1, *shape))
    return x ^ _shift(x, 16, 32)


def _count(shape, device):
    return torch.arange(math.prod(shape), dtype=torch.int32, device=device)


def _places(shape, device):
    """Number the elements of a feature map in channels-last order, which is the cheapest index on a GPU."""
    if len(shape) != 3:
        return _count(shape, device).view(1, *shape)
    return _count(shape, device).view(1, *shape[1:], shape[0]).movedim(-1, 1)


def uniform(row_keys, shape):
    """Uniform float32 in [0, 1) with 24 random bits."""
    return _shift(_hash(row_keys, _places(shape, row_keys.device)), 8, 32).float() * 2.0**-24


def between(row_keys, shape, low, high):
    """Uniform float32 in [low, high]."""
    return _hash(row_keys, _places(shape, row_keys.device)).float() * ((high - low) * 2.0**-32) + (low + high) / 2


def threshold(probability):
    """Return the limit for `below` as a tensor, so that one compiled graph serves every probability."""
    return torch.tensor([min(round(probability * 2**32) - 2**31, 2**31 - 1)], dtype=torch.int32)


def below(row_keys, shape, limit):
    """True with the probability that `threshold` got: never for 0; for 1, false in one of 2**32 cases."""
    return _hash(row_keys, _places(shape, row_keys.device)) < limit


def normal(row_keys, shape):
    """Standard normal by Box-Muller from two uniforms per element. The second uses the flipped, inverted key."""
    radius = torch.sqrt(-2 * torch.log1p(-uniform(row_keys, shape)))
    return radius * torch.cos(2 * torch.pi * uniform(~row_keys.flip(-1), shape))


def fresh(rows, device):
    """Keys from torch's own generator, used outside `counted`, as by any dropout layer."""
    return torch.randint(-(2**31), 2**31, (rows, 2), dtype=torch.int64, device=device).to(torch.int32)


class Noise:
    """The source of keys for the stochastic layers of one network: new ones at each call, or counter-based ones."""

    def __init__(self, sites=0):
        self.sites = sites
        self.by_row = self.by_pass = None  # (sites, rows, 2) and (sites, 1, 2) inside `counted`
        self.calls = None  # {site: calls in this pass} inside `calls_apart`
        self.step = None  # the number of the sample or of the training step inside `counted`: an int or a tensor

    def of_rows(self, site, rows, device):
        """Return the keys of a layer that draws noise per image of the batch."""
        if self.by_row is None:
            return fresh(rows, device)
        if rows not in (1, self.by_row.shape[1]):  # one row, as of a parameter, is broadcast to all images
            raise UserError(f"a random layer got {rows} rows for {self.by_row.shape[1]} images: images must come first")
        return self.by_row[site] if self.calls is None else self.of_call(site)

    def of_call(self, site):
        """Return the keys of a layer's next call in this pass: those of its first call are the layer's own."""
        count = self.calls[site] = self.calls.get(site, -1) + 1
        return rekey(self.by_row[site], count) if count else self.by_row[site]

    def of_pass(self, site, device):
        """Return the key of a layer that draws noise once per forward pass."""
        return fresh(1, device) if self.by_pass is None else self.by_pass[site]

    def numbers(self, rows, device):
        """The number of the sample that each image is for: int64, one per image or one for all of them. Outside
        `counted` the numbers are random."""
        if self.step is None:
            return torch.randint(2**31, (rows,), device=device)
        return torch.as_tensor(self.step, device=device).view(-1)


def draw_keys(seed, step, rows, sites):
    """Keys of a network's stochastic layers, per row and per pass. `step` may differ per row; a pass uses the first."""
    first = step[:1] if torch.is_tensor(step) else step
    return keys(seed, step, rows, sites), keys(seed, first, torch.full_like(rows[:1], PASS), sites)


def rekey(row_keys, count):
    """Other keys that follow from these and a number."""
    low, high = row_keys.long().unbind(-1)
    state = _splitmix((high << 32) | (low & 0xFFFFFFFF), torch.full_like(low, count))
    return torch.stack([state.to(torch.int32), (state >> 32).to(torch.int32)], -1)


@contextmanager
def calls_apart(network):
    """Inside, a layer that is called several times in a pass draws anew at each call, as it does in training. Networks
    that `randomize` made have a layer per call and do not need this."""
    noise = of(network)
    noise.calls = {}
    try:
        yield
    finally:
        noise.calls = None


@contextmanager
def using(noise, drawn, step=None):
    """Inside, the stochastic layers of the network use these keys, drawn for this step or sample."""
    before = noise.by_row, noise.by_pass, noise.step
    noise.by_row, noise.by_pass, noise.step = *drawn, step
    try:
        yield
    finally:
        noise.by_row, noise.by_pass, noise.step = before


def counted(network, seed, step, rows):
    """Inside, every stochastic layer of `network` draws the bits of (seed, step, row). `rows` numbers the images."""
    noise = of(network)
    return using(noise, draw_keys(seed, step, rows, noise.sites), step)


def of(network):
    """Return the source of noise that the network's layers share; an empty one for a deterministic network."""
    return next((m.noise for m in network.modules() if isinstance(getattr(m, "noise", None), Noise)), Noise())
