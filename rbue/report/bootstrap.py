"""The variation of accuracy, ECE and NLL over test images and seeds, so that two runs on the same images are paired.

All runs on one test set are resampled with the same weights. The difference of two numbers therefore varies as the
difference of their replicates: errors that both make on the same images cancel. Each test set has its own weights.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, sqrt
from zlib import crc32

import numpy as np

from rbue.runs.predictions import bin_of, correct, gap, loss

RESAMPLES = 1000  # the relative error of a standard error is 1/√(2·1000), about 2 %


@dataclass(frozen=True)
class Part:
    """A variance to add to that of the replicates, the part of it that they contain already, its degrees of freedom.

    `excess` is the variance between networks of different seeds beyond that over images. `lone` is the weight of a
    number from one seed, which has no estimate of its own, and `usual` the excess that such a number may have.
    """

    variance: float
    shown: float = 0.0
    freedom: float = inf
    excess: float | None = None
    lone: float = 0.0
    usual: float = 0.0

    def __mul__(self, factor):
        return replace(self, variance=self.variance * factor, shown=self.shown * factor, lone=self.lone * factor)


@dataclass(frozen=True)
class Sampling:
    """The variation of a number: its replicates over test images, and what its seeds add.

    With one seed per side, an interval is about these trained networks on other images of the same kind, not about
    other seeds. From two seeds on, it is about the methods: the variance of the mean over seeds is added to that over
    images, without the part that both contain (the chance of single networks on these images). The seeds' part has
    few degrees of freedom, so a t quantile with Satterthwaite's degrees of freedom replaces the normal one.

    A side with one seed borrows the variance between the other side's seeds, as if both had the same. For one seed
    against four, simulated 95 % intervals cover 92 % for accuracy, 96 % for ECE and 88 % for NLL.

    ECE is a sum of absolute values, so its replicates lie above the estimate. They are centred and used for their
    spread only: an interval is about the ECE that a test set of this size shows, as in the tables. In simulations such
    intervals cover the limit of infinitely many images no worse than intervals around a bias-corrected estimate, and
    they cover it well at 10,000 images.
    """

    draws: np.ndarray
    parts: tuple = ()

    def __add__(self, other):
        return Sampling(self.draws + other.draws, self.parts + other.parts)

    def __mul__(self, factor):
        return Sampling(self.draws * factor, tuple(part * factor**2 for part in self.parts))

    @property
    def variance(self):
        """The variance, never below that of the replicates: a few seeds may agree by chance."""
        images = self.draws.var(ddof=1)
        return max(images, images + sum(part.variance - part.shown for part in self.parts)) + self.lent

    @property
    def lent(self):
        """The variance that a side with one seed borrows from the other side's seeds; 0 if both sides have one seed."""
        known = [part.excess for part in self.parts if part.excess is not None]
        return sum(part.lone for part in self.parts) * sum(known) / len(known) if known else 0.0

    @property
    def error(self):
        return sqrt(self.variance)

    @property
    def excess(self):
        """The variance between the seeds of a number beyond that over images; None if it has one seed."""
        return next((part.excess for part in self.parts if part.excess is not None), None)

    def with_usual(self, excess):
        """Return this number with the excess that it may have if it comes from one seed."""
        return replace(self, parts=tuple(replace(part, usual=excess) if part.lone else part for part in self.parts))

    @property
    def error_over_seeds(self):
        """The error if every number from one seed varied from seed to seed by its usual excess."""
        return sqrt(self.variance - self.lent + sum(part.lone * part.usual for part in self.parts))

    @property
    def freedom(self):
        """Satterthwaite's degrees of freedom; infinite for one seed per side."""
        doubt = sum(part.variance**2 / part.freedom for part in self.parts)
        if self.lent:  # the borrowed variance and its source are one estimate
            few = [part for part in self.parts if part.freedom < inf]
            doubt = (self.lent + sum(part.variance for part in few)) ** 2 / min(part.freedom for part in few)
        return self.variance**2 / doubt if doubt else inf


def mean_of(values):
    """Return the mean of values that can be added and scaled: Samplings, or Values of the claims."""
    return sum(values[1:], values[0]) * (1 / len(values))


def over_seeds(values, samplings, independent=True):
    """Return the Sampling of a mean over seeds, from each seed's value and Sampling.

    Seeds that are not independent, such as ensembles with common members, count as one.
    """
    n, mean = len(values), mean_of(samplings)
    if n == 1 or not independent:
        return Sampling(mean.draws, (*mean.parts, Part(0.0, lone=1.0)))
    single = np.mean([each.draws.var(ddof=1) for each in samplings])  # common part plus each network's own
    shown = (single - mean.draws.var(ddof=1)) / (n - 1)  # 1/n of a network's own part
    between = np.var(values, ddof=1)
    seeds = Part(between / n, shown, n - 1, excess=max(0.0, between - n * shown))
    return Sampling(mean.draws, (*mean.parts, seeds))


def replicates(predictions, bins=30):
    """Return {metric: Sampling} of one run.

    If two networks differ on very few images, replicates underestimate the error. Half an image per side is therefore
    added to the variance of the accuracy (Agresti and Min 2005).
    """
    p, images = predictions, len(predictions.label)
    by_bin = np.zeros((images, bins))
    by_bin[np.arange(images), bin_of(p.confidence, bins)] = gap(p)
    columns = np.column_stack([correct(p), loss(p), by_bin]).astype(np.float32)
    drawn = (weights(p.label) @ columns).astype(float)
    found = {"accuracy": drawn[:, 0], "nll": drawn[:, 1], "ece": np.abs(drawn[:, 2:]).sum(1)}
    parts = {"accuracy": (Part(0.5 / images**2),)}
    return {metric: Sampling(draws - draws.mean(), parts.get(metric, ())) for metric, draws in found.items()}


def weights(labels):
    """Return each image's share of a resample, one row per resample. Equal test sets have equal weights."""
    return resampled(len(labels), crc32(np.asarray(labels, np.int64).tobytes()))


@lru_cache(maxsize=4)
def resampled(images, seed):
    chosen = np.random.default_rng(seed).integers(images, size=(RESAMPLES, images))
    return np.stack([np.bincount(row, minlength=images) for row in chosen]).astype(np.float32) / images
