"""How accuracy, ECE and NLL vary over test images and seeds, such that two runs on the same images can be paired.

All runs on one test set are resampled with the same weights, so a difference of two numbers varies as the difference of
their replicates does: what both get wrong on the same images cancels. Other test images have other weights.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, sqrt
from zlib import crc32

import numpy as np

from rbue.runs.predictions import bin_of, correct, gap, loss

RESAMPLES = 1000  # an error is known to 1/√(2·1000), 2 %


@dataclass(frozen=True)
class Part:
    """A variance beyond the replicates': how much, how much of it they show already, its degrees of freedom.

    `excess` is by how much one seed's network varies beyond its images; `lone` weighs a number of one seed, which
    cannot tell its own.
    """

    variance: float
    shown: float = 0.0
    freedom: float = inf
    excess: float | None = None
    lone: float = 0.0

    def __mul__(self, factor):
        return replace(self, variance=self.variance * factor, shown=self.shown * factor, lone=self.lone * factor)


@dataclass(frozen=True)
class Sampling:
    """How a number varies: replicates over test images, and what its seeds add.

    With one seed per side, an interval is about these trained networks on other images of the kind, and says nothing of
    other seeds. From two seeds up it is about the methods: to the variance over images comes that of the mean over
    seeds, less what single networks' chance on these images has in both. The seeds' part has few degrees of freedom,
    so a t quantile with Satterthwaite's number of them takes the normal one's place.

    A side with one seed is lent the variance between the other side's seeds, as if both scattered alike. For one
    against four seeds, simulated intervals of 95 % cover 92 % for accuracy, 96 % for ECE and 88 % for NLL.

    ECE adds up absolute values, so its replicates lie above the estimate. They are used centred, for their spread
    alone: an interval is about the ECE that a test set of this size shows, as the tables do. In simulations this covers
    the limit of many images no worse than moving the estimate down by as much, and at 10,000 images well.
    """

    draws: np.ndarray
    parts: tuple = ()

    def __add__(self, other):
        return Sampling(self.draws + other.draws, self.parts + other.parts)

    def __mul__(self, factor):
        return Sampling(self.draws * factor, tuple(part * factor**2 for part in self.parts))

    @property
    def variance(self):
        """At least the replicates': seeds may agree by chance better than test images allow."""
        images = self.draws.var(ddof=1)
        return max(images, images + sum(part.variance - part.shown for part in self.parts)) + self.lent

    @property
    def lent(self):
        """What the seeds of one side say of a side with one seed; nothing where both have one."""
        known = [part.excess for part in self.parts if part.excess is not None]
        return sum(part.lone for part in self.parts) * sum(known) / len(known) if known else 0.0

    @property
    def error(self):
        return sqrt(self.variance)

    @property
    def freedom(self):
        """Satterthwaite's degrees of freedom; infinite for one seed per side."""
        doubt = sum(part.variance**2 / part.freedom for part in self.parts)
        if self.lent:  # and what it was lent from are one estimate
            few = [part for part in self.parts if part.freedom < inf]
            doubt = (self.lent + sum(part.variance for part in few)) ** 2 / min(part.freedom for part in few)
        return self.variance**2 / doubt if doubt else inf


def over_seeds(values, samplings, independent=True):
    """The Sampling of a mean over seeds, from each seed's value and Sampling.

    Seeds that are not independent, as ensembles with common members, count as one.
    """
    n, mean = len(values), sum(samplings[1:], samplings[0]) * (1 / len(values))
    if n == 1 or not independent:
        return Sampling(mean.draws, (*mean.parts, Part(0.0, lone=1.0)))
    single = np.mean([each.draws.var(ddof=1) for each in samplings])  # shared by all networks, and each one's own
    shown = (single - mean.draws.var(ddof=1)) / (n - 1)  # an n-th of each one's own
    between = np.var(values, ddof=1)
    seeds = Part(between / n, shown, n - 1, excess=max(0.0, between - n * shown))
    return Sampling(mean.draws, (*mean.parts, seeds))


def replicates(predictions, bins=30):
    """{metric: Sampling} of one run.

    Where two networks differ on a handful of images, replicates promise too much: half an image per side is added to
    the variance of the accuracy (Agresti and Min 2005).
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
    """How often each image is drawn over how many there are, one row per resample: the same for the same test set."""
    return resampled(len(labels), crc32(np.asarray(labels, np.int64).tobytes()))


@lru_cache(maxsize=4)
def resampled(images, seed):
    chosen = np.random.default_rng(seed).integers(images, size=(RESAMPLES, images))
    return np.stack([np.bincount(row, minlength=images) for row in chosen]).astype(np.float32) / images
