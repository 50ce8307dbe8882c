"""Section 3.4 by Monte-Carlo: the variance of a DropReLU layer against its closed form and the paper's formula.

out = Σ_k x_k + Q_k (ReLU(x_k) - x_k) with Q_k ~ B(q), so only negative inputs vary: Var = q(1-q) Σ_{x<0} x².
The paper adds the variances of its two terms and forgets their covariance.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from rbue.report.claims.rules import REFUTED, SUPPORTED, Verdict

DRAWS, INPUTS, SEED = 20_000, 64, 0
FAR = 3  # standard errors


@dataclass(frozen=True)
class Simulated:
    """A variance estimated from draws, with the standard error of a variance."""

    variance: float
    se: float

    def is_near(self, value):
        return abs(self.variance - value) <= FAR * self.se


def inputs():
    return np.random.default_rng(SEED).standard_normal(INPUTS)


def simulate(x, keep, layer):
    """Var of Σ_k layer(x_k, B_k) with B_k ~ B(keep)."""
    bits = np.random.default_rng(SEED + 1).random((DRAWS, len(x))) < keep
    variance = layer(x, bits).sum(1).var(ddof=1)
    return Simulated(variance, variance * sqrt(2 / (DRAWS - 1)))


def dropreLU(x, bits):
    return np.where(bits, np.maximum(x, 0), x)


def dropout(x, bits):
    return bits * x


def epsilon(x, bits):
    return bits * np.maximum(x, 0)


def exact(x, q):
    return q * (1 - q) * np.square(np.minimum(x, 0)).sum()


def exact_epsilon(x, q):
    return q * (1 - q) * np.square(np.maximum(x, 0)).sum()


def printed(x, q):
    """The paper's formula: q(1-q) Σ x² + ε."""
    return q * (1 - q) * np.square(x).sum() + exact_epsilon(x, q)


def verdict(refuted, evidence):
    return Verdict(REFUTED if refuted else SUPPORTED, evidence, by="algebra")


def t1(q=0.8):
    x = inputs()
    simulated, paper = simulate(x, q, dropreLU), printed(x, q)
    return verdict(
        simulated.is_near(exact(x, q)) and not simulated.is_near(paper),
        f"{INPUTS} inputs from N(0, 1), q = {q}: simulated {simulated.variance:.2f} ± {simulated.se:.2f}, closed form "
        f"q(1-q)·Σ_{{x<0}} x² = {exact(x, q):.2f}, the paper's formula {paper:.2f} ({paper / exact(x, q):.1f}×)",
    )


def t2(q=0.8):
    x = inputs()
    simulated, silent = simulate(x, q, epsilon), simulate(-np.abs(x), q, epsilon)
    return verdict(
        simulated.is_near(exact_epsilon(x, q)) and silent.variance == 0,
        f"ε simulated {simulated.variance:.2f} ± {simulated.se:.2f}, closed form q(1-q)·Σ ReLU(x)² = "
        f"{exact_epsilon(x, q):.2f}: it can be computed; with every x ≤ 0 it is {silent.variance:.0f}, not > 0",
    )


def t3(q=0.8):
    """At the boundary q = 1 - p of the claim."""
    x = inputs()
    ours, theirs = simulate(x, q, dropreLU), simulate(x, q, dropout)
    ratio = exact(x, q) / (q * (1 - q) * np.square(x).sum())
    return verdict(
        ours.variance + FAR * ours.se < theirs.variance - FAR * theirs.se,
        f"q = 1-p = {q}: DropReLU {ours.variance:.2f} ± {ours.se:.2f} < dropout {theirs.variance:.2f} ± "
        f"{theirs.se:.2f}; the exact ratio Σ_{{x<0}} x² / Σ x² = {ratio:.2f} is never above 1",
    )


ALGEBRA = {"T1": t1, "T2": t2, "T3": t3}
