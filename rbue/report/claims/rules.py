"""From win / tie / loss to a verdict.

First, the comparisons of a claim are corrected for their number: two of 48 would differ by chance alone. Then each part
of the claim is graded by its measured comparisons, and the parts make the verdict. `SOME` and `MOST` say what a
substantial share is: one win and one loss among many ties are not `partly`.

If less than half of a part is measured, there is no verdict, unless the missing cells could not save the claim.
`so_far` is the verdict on the cells that exist.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

from rbue.report.claims.checks import group_by
from rbue.report.claims.evidence import Graded, describe, judged_text, missing_text, reason, seeds_text
from rbue.report.claims.values import LEVEL, holm

HOLDS, PARTLY, FAILS, UNDECIDED = "holds", "partly", "does not hold", "undecided"  # on the paper's own numbers
NOT_TESTED = "not tested"
OURS = {HOLDS: "reproduced", PARTLY: PARTLY, FAILS: "not reproduced", UNDECIDED: "unclear", NOT_TESTED: NOT_TESTED}
PAPERS = {word: word for word in (HOLDS, PARTLY, FAILS, UNDECIDED)} | {NOT_TESTED: UNDECIDED}
SOME, MOST = 1 / 4, 3 / 4  # shares are fractions, so that 3/4 is 3/4


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, and what it is based on."""

    status: str
    why: str  # the numbers that decide, in one or two sentences
    evidence: str = ""
    by: str = "numbers"  # or algebra, or reading if no number can decide
    so_far: str = ""  # for a claim that is not tested: the verdict on the cells that exist
    missing: str = ""
    seeds: str = ""
    judged: str = ""  # paired or not, and how many wins or losses Holm's correction removed
    where: str = ""  # set if the cells lie outside the claim's own datasets and networks
    elsewhere: "Verdict | None" = None  # for a claim without a cell in its scope: the verdict on other cells


# --- the grade of one part --------------------------------------------------------------------------------------------


def shares(items):
    """Return the share of comparisons for the claim and the share against it. Ties are neither."""
    return tuple(Fraction(sum(item.outcome == sign for item in items), len(items)) for sign in (1, -1))


def mean_shares(pairs):
    return (sum(each) / len(pairs) for each in zip(*pairs, strict=True))


def graded(won, lost):
    if won > MOST:
        return HOLDS
    if won >= SOME:
        return PARTLY
    return FAILS if lost >= SOME else UNDECIDED


def by_share(items):
    """Grade by the share of comparisons for the claim: most, some, or fewer."""
    return graded(*shares(items))


def without_exception(items):
    """Grade like `by_share`, but one counterexample is enough to fail."""
    return FAILS if any(item.outcome < 0 for item in items) else by_share(items)


def by_cell(items):
    """Grade a general 'better' over cells (a dataset with a network): comparisons in one cell share its rows, so they
    are not independent.

    Measured comparisons were tested one by one, so their shares count, averaged over the cells. Printed ones have no
    error. There, a test flips the sign of whole cells, in all combinations, and asks how often the sum is as far from
    zero: HOLDS or FAILS if that is rare.
    """
    cells = group_by(items, lambda item: item.cell)
    if all(item.p is not None for item in items):
        return graded(*mean_shares([shares(each) for each in cells.values()]))
    excess = [sum(item.outcome for item in each) for each in cells.values()]
    return UNDECIDED if sign_flip_p(excess) > LEVEL else HOLDS if sum(excess) > 0 else FAILS


def sign_flip_p(values):
    """Two-sided p-value of the sum, by all sign flips (Fisher's randomization test)."""
    values = [value for value in values if value]
    sums = [sum(s * v for s, v in zip(signs, values, strict=True)) for signs in product((1, -1), repeat=len(values))]
    return sum(abs(each) >= abs(sum(values)) for each in sums) / len(sums)


# --- the verdict from the grades --------------------------------------------------------------------------------------


def agreed(grade, parts):
    """Grade the parts' grades by the same shares: a part that holds is for the claim, one that fails against it."""
    sides = {HOLDS: (1, 0), PARTLY: (0.5, 0.5), FAILS: (0, 1), UNDECIDED: (0, 0)}
    return graded(*mean_shares([sides[grade(items)] for items in parts]))


def all_needed(grade, parts):
    """Return FAILS if any part fails, since the claim says 'and'; else the grade of the mean share."""
    return FAILS if FAILS in map(grade, parts) else on_average(grade, parts)


def on_average(grade, parts):
    """Grade the mean share over the parts: 45 training times weigh no more than 9 accuracies."""
    return graded(*mean_shares([shares(items) for items in parts]))


@dataclass(frozen=True)
class Rule:
    """How each part is graded, how the parts make a verdict, and both in words."""

    grade: Callable
    join: Callable
    words: str

    def __call__(self, parts):
        """Return the verdict on {part: items}. Parts without an item are left out."""
        return self.join(self.grade, [items for items in parts.values() if items])


# 'all', 'always', 'consistently', and claims about named rows
every = Rule(without_exception, all_needed, "One counterexample is enough to fail")
# claims of several parts, each as strict as `every`
each_part = Rule(without_exception, agreed, "One counterexample is enough for a part to fail")
# claims that can hold in some places only
degree = Rule(by_share, on_average, "The share of comparisons decides")
# a general 'better'
balance = Rule(by_cell, agreed, "The share of comparisons decides, counted per dataset and network")


# --- verdicts ---------------------------------------------------------------------------------------------------------


def by_part(items):
    """Return {part: items} of what the verdict depends on."""
    return group_by((item for item in items if not item.aside), lambda item: item.part)


def filled(parts, outcome):
    """Return the parts with every missing comparison decided one way, beyond chance.

    Its p-value is 0: among measured comparisons it counts as measured, among printed ones as printed (see `by_cell`).
    """
    return {
        part: [replace(item, outcome=outcome, p=0.0) if item.outcome is None else item for item in items]
        for part, items in parts.items()
    }


def corrected(items):
    """Apply Holm's correction to the comparisons that the verdict depends on and that involve noise."""
    tested = [k for k, item in enumerate(items) if item.p is not None and not item.aside]
    stands = dict(zip(tested, holm([items[k].p for k in tested]), strict=True))
    return [item if stands.get(k, True) else item.by_chance for k, item in enumerate(items)]


def cannot_hold(parts, rule):
    """Whether no missing comparison can change the verdict, and the verdict is not that the claim holds."""
    best, worst = (rule(filled(parts, outcome)) for outcome in (1, -1))
    return best == worst != HOLDS


def decide(items, rule, numbers, where="", words=OURS):
    """Return the verdict on one claim."""
    items = corrected(list(items))
    parts = by_part(items)
    there = {part: [item for item in each if item.outcome is not None] for part, each in parts.items()}
    so_far = rule(there) if any(there.values()) else NOT_TESTED
    grades = [Graded(p, rule.grade(found) if found else NOT_TESTED, found, len(parts[p])) for p, found in there.items()]
    too_few = any(grade.is_thin for grade in grades)
    begun = any(key in numbers.values for each in parts.values() for item in each for key in item.keys)
    status = NOT_TESTED if too_few and not cannot_hold(parts, rule) else so_far
    return Verdict(
        words[status],
        reason(grades, status, strict=rule is every, papers=words is PAPERS, begun=begun),
        describe(items),
        so_far=words[so_far] if so_far != status else "",
        missing=missing_text(items, numbers),
        seeds=seeds_text(items, numbers),
        judged=judged_text(items),
        where=where,
    )


def measured(items):
    """Whether any cell for the verdict exists."""
    return any(item.outcome is not None and not item.aside for item in items)
