"""Section 3.4 by Monte-Carlo: the variance of a DropReLU layer against its closed form and the paper's formula.

out = Σ_k x_k + Q_k (ReLU(x_k) - x_k) with Q_k ~ B(q), so only negative inputs vary: Var = q(1-q) Σ_{x<0} x².
The paper adds the variances of its two terms without their covariance.
"""

from dataclasses import dataclass
from functools import cache
from math import sqrt

import numpy as np

DRAWS, INPUTS, SEED = 20_000, 64, 0
FAR = 3  # standard errors


@dataclass(frozen=True)
class Simulated:
    """A variance estimated from draws, with its standard error."""

    variance: float
    se: float

    def is_near(self, value):
        return abs(self.variance - value) <= FAR * self.se


def inputs():
    return np.random.default_rng(SEED).standard_normal(INPUTS)


def simulate(x, keep, layer):
    """Estimate the variance of Σ_k layer(x_k, B_k) with B_k ~ B(keep)."""
    bits = uniform(DRAWS, len(x)) < keep
    variance = layer(x, bits).sum(1).var(ddof=1)
    return Simulated(variance, variance * sqrt(2 / (DRAWS - 1)))


@cache
def uniform(*shape):
    """Return the random numbers that all simulations of this shape share."""
    return np.random.default_rng(SEED + 1).random(shape)


def dropreLU(x, bits):
    return np.where(bits, np.maximum(x, 0), x)


def dropout(x, bits):
    return bits * x


def epsilon(x, bits):
    return bits * np.maximum(x, 0)


def exact_dropout(x, q):
    """The variance of dropout at p = 1 - q: q(1-q) Σ x²."""
    return q * (1 - q) * np.square(x).sum()


def exact(x, q):
    """The variance of DropReLU: only negative inputs vary."""
    return exact_dropout(np.minimum(x, 0), q)


def exact_epsilon(x, q):
    return exact_dropout(np.maximum(x, 0), q)


def printed(x, q):
    """The paper's formula: q(1-q) Σ x² + ε."""
    return exact_dropout(x, q) + exact_epsilon(x, q)
