"""The variation of accuracy, ECE, NLL and AUROC over images and seeds, so that two runs on the same images are paired.

All runs on one test set are resampled with the same weights. The difference of two numbers therefore varies as the
difference of their replicates: errors that both make on the same images cancel. Each test set has its own weights.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf, sqrt
from zlib import crc32

import numpy as np

from rbue.runs.predictions import bin_of, correct, gap, loss

RESAMPLES = 1000  # the relative error of a standard error is 1/√(2·1000), about 2 %


@dataclass(frozen=True)
class Scatter:
    """How networks vary from seed to seed: the variance between seeds, and the part that the test images explain.

    `own` is that part: the chance of each network on these images, which the replicates of a number contain already.
    """

    between: float
    own: float
    freedom: int

    def __mul__(self, factor):
        return replace(self, between=self.between * factor, own=self.own * factor)

    @property
    def excess(self):
        """The variance that replicates over images do not show; seeds may agree by chance."""
        return max(0.0, self.between - self.own)


@dataclass(frozen=True)
class Sampling:
    """The variation of a number: its replicates over test images, and what its seeds add.

    `seeds` holds the weight of each Scatter in the variance: 1/n for a mean over n seeds. With it, an interval is about
    the methods. Without it, an interval is about these trained networks on other images of the same kind. A Scatter has
    few degrees of freedom, so a t quantile with Satterthwaite's degrees of freedom replaces the normal one. In
    simulations of methods that vary alike, with one to three seeds per row and two to four degrees of freedom, 95 %
    intervals cover 93 to 98 % for accuracy and NLL and 95 to 99 % for ECE. With one degree of freedom, they cover 90 %.
    In a sum, each cell may occur once: two terms of one cell would count as independent.

    ECE is a sum of absolute values, so its replicates lie above the estimate. They are centred and used for their
    spread only: an interval is about the ECE that a test set of this size shows, as in the tables. In simulations such
    intervals cover the limit of infinitely many images no worse than intervals around a bias-corrected estimate, and
    they cover it well at 10,000 images.
    """

    draws: np.ndarray
    added: float = 0.0  # a variance that the replicates lack
    seeds: dict = field(default_factory=dict)

    def __add__(self, other):
        seeds = {each: self.seeds.get(each, 0.0) + other.seeds.get(each, 0.0) for each in self.seeds | other.seeds}
        return Sampling(self.draws + other.draws, self.added + other.added, seeds)

    def __mul__(self, factor):
        seeds = {each: weight * factor**2 for each, weight in self.seeds.items()}
        return Sampling(self.draws * factor, self.added * factor**2, seeds)

    @property
    def variance(self):
        images = self.draws.var(ddof=1) + self.added
        return images + sum(weight * each.excess for each, weight in self.seeds.items())

    @property
    def error(self):
        return sqrt(self.variance)

    @property
    def freedom(self):
        """Satterthwaite's degrees of freedom; infinite if no seeds are included. They are at least 1: if seeds agree by
        chance and the networks differ on few images, the approximation falls below it, and an interval explodes."""
        doubt = sum((weight * each.between) ** 2 / each.freedom for each, weight in self.seeds.items())
        return max(1.0, self.variance**2 / doubt) if doubt and self.variance else inf


def mean_of(values):
    """Return the mean of values that can be added and scaled: Samplings, or Values of the claims."""
    return sum(values[1:], values[0]) * (1 / len(values))


def scatter_of(values, samplings):
    """Return the Scatter of networks that differ by their seed only, from each one's value and Sampling."""
    n, mean = len(values), mean_of(samplings)
    single = np.mean([each.draws.var(ddof=1) for each in samplings])  # common part plus each network's own
    own = n * (single - mean.draws.var(ddof=1)) / (n - 1)
    return Scatter(float(np.var(values, ddof=1)), float(own), n - 1)


def pool(scatters):
    """Return the common Scatter of several methods, as if all varied alike: one method has too few seeds for its own.

    Each counts by its degrees of freedom.
    """
    freedom = sum(each.freedom for each in scatters)
    between, own = (sum(getattr(s, name) * s.freedom for s in scatters) / freedom for name in ("between", "own"))
    return Scatter(between, own, freedom)


def replicates(predictions, bins=30):
    """Return {metric: Sampling} of one run.

    If two networks differ on very few images, replicates underestimate the error. Half an image per side is therefore
    added to the variance of the accuracy (Agresti and Min 2005). The AUROC of OOD detection is taken to first order:
    each image counts by the share of images on the other side that it is told from (DeLong et al. 1988).
    """
    p, images = predictions, len(predictions.label)
    by_bin = np.zeros((images, bins))
    by_bin[np.arange(images), bin_of(p.confidence, bins)] = gap(p)
    columns = np.column_stack([correct(p), loss(p), by_bin]).astype(np.float32)
    drawn = (weights(p.label) @ columns).astype(float)
    found = {"accuracy": drawn[:, 0], "nll": drawn[:, 1], "ece": np.abs(drawn[:, 2:]).sum(1)}
    if p.foreign_entropy is not None and len(p.foreign_entropy):
        others = weights(np.full(len(p.foreign_entropy), -1))
        sides = told_apart(p.entropy, p.foreign_entropy), told_apart(-p.foreign_entropy, -p.entropy)
        found["auroc"] = sum(w @ side for w, side in zip((weights(p.label), others), sides, strict=True)).astype(float)
    added = {"accuracy": 0.5 / images**2}
    return {metric: Sampling(draws - draws.mean(), added.get(metric, 0.0)) for metric, draws in found.items()}


def told_apart(values, others):
    """Return, for each value, the share of the others that are larger; equal ones count half."""
    others = np.sort(others)
    share = 1 - np.mean([np.searchsorted(others, values, side) for side in ("left", "right")], 0) / len(others)
    return share.astype(np.float32)


def weights(labels):
    """Return each image's share of a resample, one row per resample. Equal test sets have equal weights."""
    return resampled(len(labels), crc32(np.asarray(labels, np.int64).tobytes()))


@lru_cache(maxsize=8)
def resampled(images, seed):
    chosen = np.random.default_rng(seed).integers(images, size=(RESAMPLES, images))
    return np.stack([np.bincount(row, minlength=images) for row in chosen]).astype(np.float32) / images
