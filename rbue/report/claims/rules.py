"""From win / tie / loss to a verdict.

A rule reads {part: [outcomes]}. Missing cells are tried both ways, all for the claim and all against it: where the
verdict is the same, it stands without them; where it is not, the claim is undecided and `so_far` says what there is.
Before that, the comparisons of one claim are corrected for their number: of 48, two would differ by chance alone.
"""

from dataclasses import dataclass
from itertools import chain
from math import sqrt

from rbue.report.claims.evidence import describe, judged_text, missing_text, seeds_text
from rbue.report.claims.values import Z, holm

SUPPORTED, PARTLY, REFUTED, UNDECIDED = "supported", "partly", "refuted", "undecided"


@dataclass(frozen=True)
class Verdict:
    """What the numbers say of a claim, and from what."""

    status: str
    evidence: str
    by: str = "numbers"  # or algebra, or reading: no number decides it
    so_far: str = ""  # of an undecided claim: what the cells there are say
    missing: str = ""
    seeds: str = ""
    judged: str = ""  # paired or not, and what the correction for many comparisons undid
    where: str = ""  # set when the cells lie outside the claim's own datasets and networks
    elsewhere: "Verdict | None" = None  # of a claim with nothing measured in its scope: the same question elsewhere


# --- rules ------------------------------------------------------------------------------------------------------------


def every(parts):
    """For 'all', 'always', 'consistently', and for single comparisons: one counterexample is enough to refute."""
    return graded(list(chain.from_iterable(parts.values())), at_loss=REFUTED)


def degree(parts):
    """For claims that can hold here and not there: partly, unless they hold everywhere or nowhere."""
    return graded(list(chain.from_iterable(parts.values())), at_loss=PARTLY)


def each_part(parts):
    """For claims with several halves, each asked by `every`."""
    verdicts = {graded(outcomes, at_loss=REFUTED) for outcomes in parts.values()}
    if verdicts == {REFUTED, UNDECIDED}:
        return REFUTED
    return verdicts.pop() if len(verdicts) == 1 else PARTLY


def balance(parts):
    """For 'better' as such: wins outnumber losses by more than coin flips would (sign test), part by part."""
    return graded([sign_test(outcomes) for outcomes in parts.values()], at_loss=PARTLY)


def graded(outcomes, at_loss):
    if outcomes and all(outcome > 0 for outcome in outcomes):
        return SUPPORTED
    holds, fails = any(outcome > 0 for outcome in outcomes), any(outcome < 0 for outcome in outcomes)
    if fails:
        return at_loss if holds else REFUTED
    return PARTLY if holds else UNDECIDED  # ties alone tell nothing


def sign_test(outcomes):
    """+1 or -1 where wins and losses are further apart than 1.96 standard deviations of a fair coin."""
    excess, chance = sum(outcomes), Z * sqrt(sum(map(abs, outcomes)))
    return (excess > chance) - (excess < -chance)


# --- verdicts ---------------------------------------------------------------------------------------------------------


def outcomes(items, missing):
    """{part: outcomes} with the missing ones counted as `missing`, or left out for None."""
    parts = {}
    for item in items:
        outcome = missing if item.outcome is None else item.outcome
        if not item.aside and outcome is not None:
            parts.setdefault(item.part, []).append(outcome)
    return parts


def corrected(items):
    """Holm's correction over the comparisons that a verdict rests on and chance has a part in."""
    tested = [k for k, item in enumerate(items) if item.p is not None and not item.aside]
    stands = dict(zip(tested, holm([items[k].p for k in tested]), strict=True))
    return [item if stands.get(k, True) else item.by_chance for k, item in enumerate(items)]


def decide(items, rule, numbers, where=""):
    """The verdict on one claim."""
    items = corrected(list(items))
    for_it, against = rule(outcomes(items, +1)), rule(outcomes(items, -1))
    there = outcomes(items, None)
    status = for_it if for_it == against else UNDECIDED
    so_far = rule(there) if there and for_it != against else ""
    texts = {"missing": missing_text(items, numbers), "seeds": seeds_text(items, numbers), "where": where}
    return Verdict(status, describe(items), so_far=so_far, judged=judged_text(items), **texts)


def measured(items):
    """Whether there is any cell to go by."""
    return any(item.outcome is not None and not item.aside for item in items)
