"""Verdicts on the claims of Section 3.4, by simulation and by the closed form."""

import numpy as np

from rbue.report.claims.rules import FAILS, HOLDS, Verdict
from rbue.report.simulation import (
    FAR,
    INPUTS,
    dropout,
    dropreLU,
    epsilon,
    exact,
    exact_dropout,
    exact_epsilon,
    inputs,
    printed,
    simulate,
)

Q = 0.8


def verdict(refuted, why, evidence):
    return Verdict(FAILS if refuted else HOLDS, why, evidence, by="algebra")


def t1():
    x = inputs()
    simulated, paper = simulate(x, Q, dropreLU), printed(x, Q)
    return verdict(
        simulated.is_near(exact(x, Q)) and not simulated.is_near(paper),
        f"The formula leaves out a covariance: it gives {paper / exact(x, Q):.1f} times the simulated variance.",
        f"{INPUTS} inputs from N(0, 1), q = {Q}: simulated {simulated.variance:.2f} ± {simulated.se:.2f}, closed form "
        f"q(1-q)·Σ_{{x<0}} x² = {exact(x, Q):.2f}, the paper's formula {paper:.2f}",
    )


def t2():
    x = inputs()
    simulated, silent = simulate(x, Q, epsilon), simulate(-np.abs(x), Q, epsilon)
    return verdict(
        simulated.is_near(exact_epsilon(x, Q)) and silent.variance == 0,
        f"It has a closed form, and with no positive input it is {silent.variance:.0f}.",
        f"ε simulated {simulated.variance:.2f} ± {simulated.se:.2f}, closed form q(1-q)·Σ ReLU(x)² = "
        f"{exact_epsilon(x, Q):.2f}; with every x ≤ 0 it is {silent.variance:.0f}, not > 0",
    )


def t3():
    """Tested at the boundary q = 1 - p of the claim."""
    x = inputs()
    ours, theirs = simulate(x, Q, dropreLU), simulate(x, Q, dropout)
    ratio = exact(x, Q) / exact_dropout(x, Q)
    return verdict(
        ours.variance + FAR * ours.se < theirs.variance - FAR * theirs.se,
        f"For {INPUTS} standard normal inputs and q = 1-p, the variance of DropReLU is {ratio:.2f} times that of "
        "dropout. At q = 1-p, it is never larger, whatever the inputs are. At a smaller q, it may be.",
        f"q = 1-p = {Q}: DropReLU {ours.variance:.2f} ± {ours.se:.2f} < dropout {theirs.variance:.2f} ± "
        f"{theirs.se:.2f}; the exact ratio Σ_{{x<0}} x² / Σ x² = {ratio:.2f} is never above 1",
    )


ALGEBRA = {"T1": t1, "T2": t2, "T3": t3}
