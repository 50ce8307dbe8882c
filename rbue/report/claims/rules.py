"""From win / tie / loss to a verdict.

A rule reads {part: [outcomes]}. It is applied twice: with all missing cells in favour of the claim, and with all
against it. If both verdicts agree, the missing cells do not matter. Otherwise the claim is undecided, and `so_far` is
the verdict on the cells that exist. Before that, the comparisons of a claim are corrected for their number: two of 48
would differ by chance alone.
"""

from dataclasses import dataclass
from itertools import chain
from math import sqrt

from rbue.report.claims.evidence import describe, judged_text, missing_text, seeds_text
from rbue.report.claims.values import Z, holm

SUPPORTED, PARTLY, REFUTED, UNDECIDED = "supported", "partly", "refuted", "undecided"


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, and what it is based on."""

    status: str
    evidence: str
    by: str = "numbers"  # or algebra, or reading if no number can decide
    so_far: str = ""  # for an undecided claim: the verdict on the cells that exist
    missing: str = ""
    seeds: str = ""
    judged: str = ""  # paired or not, and how many wins or losses Holm's correction removed
    where: str = ""  # set if the cells lie outside the claim's own datasets and networks
    elsewhere: "Verdict | None" = None  # for a claim without a cell in its scope: the verdict on other cells


# --- rules ------------------------------------------------------------------------------------------------------------


def every(parts):
    """Rule for 'all', 'always', 'consistently' and single comparisons: one counterexample refutes the claim."""
    return graded(list(chain.from_iterable(parts.values())), at_loss=REFUTED)


def degree(parts):
    """Rule for claims that can hold in some places only: `partly`, unless they hold everywhere or nowhere."""
    return graded(list(chain.from_iterable(parts.values())), at_loss=PARTLY)


def each_part(parts):
    """Rule for claims with several parts: `every` for each part."""
    verdicts = {graded(outcomes, at_loss=REFUTED) for outcomes in parts.values()}
    if verdicts == {REFUTED, UNDECIDED}:
        return REFUTED
    return verdicts.pop() if len(verdicts) == 1 else PARTLY


def balance(parts):
    """Rule for a general 'better': per part, wins outnumber losses by more than chance allows (sign test)."""
    return graded([sign_test(outcomes) for outcomes in parts.values()], at_loss=PARTLY)


def graded(outcomes, at_loss):
    if outcomes and all(outcome > 0 for outcome in outcomes):
        return SUPPORTED
    holds, fails = any(outcome > 0 for outcome in outcomes), any(outcome < 0 for outcome in outcomes)
    if fails:
        return at_loss if holds else REFUTED
    return PARTLY if holds else UNDECIDED  # ties alone decide nothing


def sign_test(outcomes):
    """Return +1 or -1 if wins minus losses exceeds 1.96 standard deviations of a fair coin, else 0."""
    excess, chance = sum(outcomes), Z * sqrt(sum(map(abs, outcomes)))
    return (excess > chance) - (excess < -chance)


# --- verdicts ---------------------------------------------------------------------------------------------------------


def outcomes(items, missing):
    """Return {part: outcomes}. Missing outcomes count as `missing`, or are left out if that is None."""
    parts = {}
    for item in items:
        outcome = missing if item.outcome is None else item.outcome
        if not item.aside and outcome is not None:
            parts.setdefault(item.part, []).append(outcome)
    return parts


def corrected(items):
    """Apply Holm's correction to the comparisons that the verdict depends on and that involve noise."""
    tested = [k for k, item in enumerate(items) if item.p is not None and not item.aside]
    stands = dict(zip(tested, holm([items[k].p for k in tested]), strict=True))
    return [item if stands.get(k, True) else item.by_chance for k, item in enumerate(items)]


def decide(items, rule, numbers, where=""):
    """Return the verdict on one claim."""
    items = corrected(list(items))
    for_it, against = rule(outcomes(items, +1)), rule(outcomes(items, -1))
    there = outcomes(items, None)
    status = for_it if for_it == against else UNDECIDED
    so_far = rule(there) if there and for_it != against else ""
    texts = {"missing": missing_text(items, numbers), "seeds": seeds_text(items, numbers), "where": where}
    return Verdict(status, describe(items), so_far=so_far, judged=judged_text(items), **texts)


def measured(items):
    """Whether any cell for the verdict exists."""
    return any(item.outcome is not None and not item.aside for item in items)
