"""These tests fail for a hash that repeats, drifts or correlates."""

import shutil

import pytest
import torch

from rbue import noise
from rbue.layers import DropReLU
from rbue.surgery import wire

ROWS, LIMIT = torch.arange(64), noise.threshold(0.9)


def row_keys(seed=0, step=0, rows=ROWS, site=0):
    return noise.keys(seed, step, rows, site + 1)[site]


def reference_splitmix(state, value):
    """One round of splitmix64 in Python's unbounded integers."""
    m64 = (1 << 64) - 1
    z = (state + (value + 1) * 0x9E3779B97F4A7C15) & m64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & m64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & m64
    return z ^ (z >> 31)


def reference_bits(seed, step, row, site, element):
    """The same hash in Python's unbounded integers."""
    m32, state = (1 << 32) - 1, 0
    for value in (seed, step, row, site):
        state = reference_splitmix(state, value)
    x = element ^ (state & m32)
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & m32
    x ^= state >> 32
    x = ((x ^ (x >> 15)) * 0x846CA68B) & m32
    x ^= x >> 16
    return x - (1 << 32) if x >> 31 else x


def test_bits_are_the_documented_integer_hash():
    drawn = noise.bits(row_keys(seed=7, step=123, site=3), (2, 5))
    expected = [reference_bits(7, 123, row, 3, e) for row in (0, 63) for e in range(10)]
    assert drawn[[0, 63]].flatten().tolist() == expected


def test_bits_do_not_depend_on_the_batch_they_are_drawn_in():
    whole = noise.bits(row_keys(), (3, 4))
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(whole[order], noise.bits(row_keys(rows=ROWS[order]), (3, 4)))
    assert torch.equal(whole[10:11], noise.bits(row_keys(rows=ROWS[10:11]), (3, 4)))
    assert torch.equal(noise.normal(row_keys(), (3, 4))[order], noise.normal(row_keys(rows=ROWS[order]), (3, 4)))


def test_keys_of_a_later_call_are_the_next_round_of_the_hash():
    first, second = row_keys(), noise.rekey(row_keys(), 5)
    assert second.dtype == torch.int32
    halves = ((keys.long() & 0xFFFFFFFF).tolist() for keys in (first, second))
    for (low, high), (other_low, other_high) in zip(*halves, strict=True):
        assert reference_splitmix(high << 32 | low, 5) == other_high << 32 | other_low


def test_a_layer_is_told_which_sample_each_image_is_for():
    layer, x = wire(DropReLU(0.5)), torch.zeros(64, 3)
    with noise.counted(layer, 0, 7, ROWS):
        assert layer.sample_numbers(x).tolist() == [7]  # one for all of them
    several = ROWS % 5
    with noise.counted(layer, 0, several, ROWS):
        assert torch.equal(layer.sample_numbers(x), several)
    assert len(layer.sample_numbers(x).unique()) > 32  # random numbers outside


def test_a_step_may_be_a_tensor_or_one_number_a_row():
    assert torch.equal(row_keys(step=5), row_keys(step=torch.tensor([5])))
    mixed = noise.keys(0, torch.tensor([5] * 32 + [6] * 32), ROWS, 1)[0]
    assert torch.equal(mixed, torch.cat([row_keys(step=5)[:32], row_keys(step=6)[32:]]))


def test_every_byte_is_uniform():
    drawn = noise.bits(row_keys(), (32, 32, 16)).flatten()
    for shift in (0, 8, 16, 24):
        counts = torch.bincount((drawn >> shift) & 255, minlength=256).double()
        chi2 = ((counts - counts.mean()) ** 2 / counts.mean()).sum().item()
        assert 170 < chi2 < 360  # 255 degrees of freedom: 255 ± 4.6 standard deviations of 22.6


def correlation(a, b):
    return torch.corrcoef(torch.stack([a.flatten(), b.flatten()]).double())[0, 1].abs().item()


OTHERS = {
    "site": lambda: row_keys(site=1),
    "step": lambda: row_keys(step=1),
    "seed": lambda: row_keys(seed=1),
    "row": lambda: row_keys(rows=ROWS + 1),
    "purpose": lambda: row_keys(seed=noise.TEST),
}


@pytest.mark.parametrize("other", OTHERS)
def test_draws_of_different_counters_are_uncorrelated(other):
    a, b = noise.uniform(row_keys(), (64, 64)), noise.uniform(OTHERS[other](), (64, 64))
    assert correlation(a, b) < 4 / 512  # 262,144 pairs: four standard errors
    assert correlation(a > 0.9, b > 0.9) < 4 / 512
    limit = noise.threshold(0.9)
    kept = [noise.below(keys, (64, 8, 8), limit) for keys in (row_keys(), OTHERS[other]())]
    assert correlation(*kept) < 4 / 512


@pytest.mark.parametrize("lag", [1, 2, 32, 64, 1024])
def test_neighbouring_elements_are_uncorrelated(lag):
    drawn = noise.uniform(row_keys(), (4096,))
    assert correlation(drawn[:, :-lag], drawn[:, lag:]) < 4 / 440


def test_a_row_never_repeats_another_rows_mask_in_another_order():
    """With XOR by one key only, the masks of two rows would be permutations of each other."""
    ones = noise.below(row_keys(rows=torch.arange(4096)), (256,), noise.threshold(0.5)).sum(1).double()
    assert abs(ones.mean() - 128) < 0.5
    assert 7.5 < ones.std() < 8.5  # binomial: sqrt(256 / 4) = 8


@pytest.mark.parametrize("q", [0.0, 0.05, 0.5, 0.9, 1.0])
def test_below_has_its_probability(q):
    share = noise.below(row_keys(), (4096,), noise.threshold(q)).double().mean().item()
    assert share == q if q in (0, 1) else abs(share - q) < 4 * (q * (1 - q) / 262144) ** 0.5


def test_between_is_uniform():
    drawn = noise.between(row_keys(), (4096,), 0.2, 0.6)
    assert drawn.min() >= 0.2 and drawn.max() <= 0.6
    counts = torch.histc(drawn, 64, 0.2, 0.6).double()
    assert ((counts - 4096) ** 2 / 4096).sum() < 63 + 4.6 * 126**0.5


def test_a_feature_map_is_numbered_as_channels_last_memory():
    drawn = noise.uniform(row_keys(), (3, 4, 5))
    assert torch.equal(drawn.permute(0, 2, 3, 1).flatten(1), noise.uniform(row_keys(), (60,)))


def test_normal_has_the_moments_of_a_standard_normal():
    drawn = noise.normal(row_keys(), (4096,)).double()
    assert torch.isfinite(drawn).all()
    for power, moment, error in ((1, 0, 0.01), (2, 1, 0.012), (3, 0, 0.03), (4, 3, 0.08)):
        assert abs((drawn**power).mean().item() - moment) < error


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler")
def test_the_same_bits_eager_and_compiled():
    compiled = torch.compile(lambda keys: (noise.bits(keys, (3, 8, 8)), noise.below(keys, (3, 8, 8), LIMIT)))
    for mine, its in zip((noise.bits(row_keys(), (3, 8, 8)), noise.below(row_keys(), (3, 8, 8), LIMIT)),
                         compiled(row_keys()), strict=True):  # fmt: skip
        assert torch.equal(mine, its)
    sites = torch.arange(5)
    assert torch.equal(torch.compile(noise.keys)(3, torch.tensor([7]), ROWS, sites), noise.keys(3, 7, ROWS, 5))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_same_bits_on_cpu_and_gpu_eager_and_compiled():
    cpu = noise.bits(row_keys(), (16, 32, 32))
    gpu = row_keys(rows=ROWS.cuda())
    assert torch.equal(gpu.cpu(), row_keys())
    assert torch.equal(noise.bits(gpu, (16, 32, 32)).cpu(), cpu)
    assert torch.equal(torch.compile(noise.bits)(gpu, (16, 32, 32)).cpu(), cpu)
    limit, shape = noise.threshold(0.9), (16, 32, 32)
    mask = noise.below(row_keys(), shape, limit)
    assert torch.equal(noise.below(gpu, shape, limit.cuda()).cpu(), mask)
    assert torch.equal(torch.compile(noise.below)(gpu, shape, limit.cuda()).cpu(), mask)
