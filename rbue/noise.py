"""Counter-based random bits: a pure function of (seed, site, step or sample, row, element).

The same numbers come out on CPU and GPU, eager and compiled, in any batch size and order of batches: at test time a
row is an image's own index, in training it is the place in the batch. Nothing is stored for the backward pass.

Two stages. `keys` hashes (seed, step, row, site) to 64 bits with splitmix64, once a row. `bits` hashes the element's
place with both halves of its row's key through two 32-bit multiplications (lowbias32), once an element.
"""

from contextlib import contextmanager

import torch

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
    """64-bit keys as int32 pairs (sites, rows, 2). `rows` is an int64 tensor; `seed` and `step` ints or tensors."""
    state = _splitmix(torch.zeros_like(rows), torch.zeros_like(rows) + seed)  # no copy from the host: may be captured
    state = _splitmix(state, torch.zeros_like(rows) + step)
    state = _splitmix(state, rows)
    state = _splitmix(state, torch.arange(sites, device=rows.device)[:, None])
    return state.contiguous().view(torch.int32).view(sites, len(rows), 2)


def bits(row_keys, shape):
    """Random int32 of shape (rows, *shape): uniform over all 2**32 values."""
    first, second = (row_keys[:, half].view(-1, *[1] * len(shape)) for half in (0, 1))
    count = 1
    for size in shape:
        count *= size
    x = torch.arange(count, dtype=torch.int32, device=row_keys.device).view(1, *shape)
    x = x ^ first  # before any multiplication: a compiler folds index * constant into (overflowing) index arithmetic
    x = (x ^ _shift(x, 16, 32)) * LOW_A
    x = x ^ second
    x = (x ^ _shift(x, 15, 32)) * LOW_B
    return x ^ _shift(x, 16, 32)


def uniform(row_keys, shape):
    """float32 in [0, 1) with 24 random bits."""
    return _shift(bits(row_keys, shape), 8, 32).float() * 2.0**-24


def threshold(probability):
    """A tensor for `below`, so that one compiled graph serves every probability. int64: exact at 0 and 1."""
    return torch.tensor([round(probability * 2**32) - 2**31])


def below(row_keys, shape, limit):
    """True with the probability whose `threshold` is given."""
    return bits(row_keys, shape).long() < limit


def bernoulli(row_keys, shape, probability):
    """True with the given probability, exact at 0 and 1."""
    return below(row_keys, shape, threshold(probability).to(row_keys.device))


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

    def of_rows(self, site, rows, device):
        """Keys of a site that draws for each image of the batch."""
        return fresh(rows, device) if self.by_row is None else self.by_row[site]

    def of_pass(self, site, device):
        """The key of a site that draws once a forward pass."""
        return fresh(1, device) if self.by_pass is None else self.by_pass[site]


@contextmanager
def counted(network, seed, step, rows):
    """Inside, every site of `network` draws the bits of (seed, step, row): `rows` numbers the images of the batch.

    `step` may be a number or one number a row; what is drawn once a pass goes by the first.
    """
    noise, one = of(network), rows.new_full((1,), PASS)
    before = noise.by_row, noise.by_pass
    if noise.sites:
        noise.by_row = keys(seed, step, rows, noise.sites)
        noise.by_pass = keys(seed, step[:1] if torch.is_tensor(step) else step, one, noise.sites)
    try:
        yield network
    finally:
        noise.by_row, noise.by_pass = before


def of(network):
    """The network's shared source of noise; one without sites for a deterministic network."""
    return next((m.noise for m in network.modules() if isinstance(getattr(m, "noise", None), Noise)), Noise())
