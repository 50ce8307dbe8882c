"""The questions that claims are made of.

A check is a function (numbers, places) -> Items. An Item is one comparison: +1 it holds, -1 it does not, 0 the numbers
cannot tell, None a cell is missing. A judge turns the cells of one comparison into an outcome; where chance has a part
in it, also into the p-value of its difference and the outcome it has `otherwise`, if that is put down to chance.
"""

from dataclasses import dataclass, replace
from itertools import chain, combinations, product

from rbue.report.claims.numbers import kind
from rbue.report.claims.values import Value

VERSUS, CONDITION = ("win", "tie", "loss"), ("yes", "unclear", "no")
BETTER = {"accuracy": 1, "ece": -1, "time": -1, "jsd": 1, "dis": 1}  # which direction a reader wants
NAMES = {
    "accuracy": "accuracy",
    "ece": "ECE",
    "time": "training time",
    "mean_jsd": "Mean-JSD",
    "max_jsd": "Max-JSD",
    "mean_dis": "Mean-DIS",
    "max_dis": "Max-DIS",
    "passes": "test passes",
    "parameters": "parameters",
}
RATIO = "{:.2f}×"
SHOWN = {"accuracy": "{:+.2f} pp", "ece": "{:+.3f}", "jsd": "{:+.4f}", "dis": "{:+.4f}", "time": RATIO}
COARSE = {"accuracy": 1.5, "ece": 0.015}  # an error too large to call two numbers the same


@dataclass(frozen=True)
class Item:
    part: str
    keys: tuple = ()
    outcome: int | None = None
    beyond: int | None = None  # the outcome against rounding and test noise together
    shown: float | None = None  # the difference or ratio itself
    form: str = "{}"
    words: tuple = VERSUS
    coarse: bool = False  # the error is so large that a tie is no agreement
    aside: bool = False  # evidence worth printing that the verdict does not rest on
    missing: tuple = ()
    p: float | None = None  # None: nothing that chance decides
    otherwise: int = 0
    judged: str = ""  # paired or unpaired
    undone: bool = False  # put down to chance among all comparisons of the claim

    @property
    def by_chance(self):
        beyond = None if self.beyond is None else self.otherwise
        return replace(self, outcome=self.otherwise, beyond=beyond, undone=self.outcome != self.otherwise)


def ask(numbers, part, keys, judge, **more):
    """One comparison, or the cells that it lacks."""
    missing = tuple(key for key in keys if key not in numbers.values)
    if missing:
        return Item(part, tuple(keys), missing=missing, **more)
    return replace(Item(part, tuple(keys), **more), **judge(*(numbers.values[key] for key in keys)))


def name(metric):
    base, _, severity = metric.partition("@")
    return NAMES[base] + (f" at severity {severity}" if severity else "")


def form(metric):
    return SHOWN.get(kind(metric), "{}")


# --- judges -----------------------------------------------------------------------------------------------------------


def told(gap, **more):
    """What a difference says: its sign, unless that is put down to chance."""
    return {"outcome": gap.sign, "p": gap.p, "judged": gap.judged, **more}


def advantage(metric, a, b):
    """How much better a is than b."""
    return (a - b) * BETTER[kind(metric)]


def quotient(a, b):
    """For showing; four samples that all agree have no disagreement to divide by."""
    return a.mean / b.mean if b.mean else None


def best(metric, values):
    return max(values, key=lambda value: value.mean * BETTER[kind(metric)])


def is_coarse(metric, gap):
    """Whether a difference could hide in the error: few test images show everything on par with everything."""
    return gap.reach > COARSE.get(kind(metric), float("inf"))


def better(metric):
    """The first cell is better than the best of the others."""

    def judge(own, *others):
        rival = best(metric, others)
        gap = advantage(metric, own, rival)
        shown = quotient(own, rival) if metric == "time" else own.mean - rival.mean
        return told(gap, beyond=gap.beyond, shown=shown, coarse=is_coarse(metric, gap))

    return judge


def significantly_better(metric):
    """The same, where only a difference beyond rounding and noise counts."""
    return lambda *cells: (found := better(metric)(*cells)) | {"outcome": found["beyond"]}


def best_against(metric, own):
    """The best of the first `own` cells is better than the best of the others."""
    return lambda *cells: better(metric)(best(metric, cells[:own]), *cells[own:])


def on_par(metric):
    """The best of the first cells is not worse than the last: ECE as printed, accuracy within 1.96 SE.

    Accuracy is printed finer than 10,000 images can tell apart; ECE is printed coarser.
    """

    def judge(*cells):
        found = best_against(metric, len(cells) - 1)(*cells)
        worse = (found["beyond"] if kind(metric) == "accuracy" else found["outcome"]) < 0
        return same_unless(worse, found)

    return judge


def same_unless(differs, found):
    """Where no difference is the claim, one that may be chance is unclear, and so is none where the error is large."""
    outcome = -1 if differs else 0 if found["coarse"] else 1
    return found | {"outcome": outcome, "otherwise": max(outcome, 0), "beyond": None}


def unaffected(metric):
    """No difference beyond rounding and noise, in either direction."""

    def judge(*cells):
        found = better(metric)(*cells)
        return same_unless(found["beyond"], found)

    return judge


def at_most(limit):
    """a ≤ limit·b."""
    return lambda a, b: told(b * limit - a, shown=quotient(a, b))


def at_least(limit):
    """a ≥ limit·b."""
    return lambda a, b: told(a - b * limit, shown=quotient(a, b))


def exactly(factor):
    """a = factor·b, for counts."""
    return lambda a, b: {"outcome": 1 if abs((a - b * factor).mean) < 0.5 else -1, "shown": quotient(a, b)}


def within(share):
    """|a - b| ≤ share·b: what a time may differ by and still be called the same."""

    def judge(a, b):
        slack = b.mean * share - abs((a - b).mean)  # the share stands for the noise: no standard error on top
        return {"outcome": Value(slack, (a - b).half).sign, "shown": quotient(a, b)}

    return judge


def agree(a, b):
    """The same number as far as can be told."""
    gap = a - b
    return same_unless(gap.sign, told(gap, shown=gap.mean, coarse=False))


def inside(value, high, *lows):
    """min(lows) ≤ value ≤ high."""
    low = min(lows, key=lambda v: v.mean)
    worst = min(value - low, high - value, key=lambda gap: gap.mean)
    return same_unless(worst.sign < 0, told(worst, coarse=False))


def joined(found, outcome, chance):
    """One answer from several differences, with `chance` of their p-values: max where all have to stand."""
    ps, judged = [each["p"] for each in found], {each["judged"] for each in found}
    p = None if None in ps else min(1.0, chance(ps))
    return {"outcome": outcome, "p": p, "judged": "unpaired" if "unpaired" in judged else max(judged)}


# --- checks -----------------------------------------------------------------------------------------------------------


def each(rows, others, *metrics, judge=better, part="{}", **more):
    """Every row against every other row, one item a pair, place and metric."""

    def check(numbers, places):
        for metric, place, row, other in product(metrics, places, rows, others):
            keys = [(*place, row, metric), (*place, other, metric)]
            settings = {"form": form(metric)} | more
            yield ask(numbers, part.format(name(metric)), keys, judge(metric), **settings)

    return check


def ratio(rows, others, metric, judge, part):
    """Every row over every other row, as a ratio held against a limit."""
    return each(rows, others, metric, judge=lambda _: judge, part=part, form=RATIO, words=CONDITION)


def jointly(rows, others, *metrics, judge, part="{}", **more):
    """All rows and all others in one item a place and metric: the best of one group against the other."""

    def check(numbers, places):
        for metric, place in product(metrics, places):
            keys = [(*place, row, metric) for row in [*rows, *others]]
            yield ask(numbers, part.format(name(metric)), keys, judge(metric), form=form(metric), **more)

    return check


def together(*checks):
    return lambda numbers, places: chain.from_iterable(check(numbers, places) for check in checks)


def at(wanted, check):
    """The check at one place where the claim's scope has it, else wherever it is asked."""
    return lambda numbers, places: check(numbers, [wanted] if wanted in places else places)


def on(datasets, check):
    return lambda numbers, places: check(numbers, [place for place in places if place[0] in datasets])


def aside(check):
    """Evidence only: the verdict does not rest on it."""
    return lambda numbers, places: (replace(item, aside=True) for item in check(numbers, places))


def steps(names):
    """Neighbours in the paper's order: a claim that something grows is asked step by step."""
    return list(zip(names, list(names)[1:], strict=False))


def concordance(rows, cause, effect):
    """Of every two rows, the one with more of the cause is better in the effect."""

    def judge(cause_a, effect_a, cause_b, effect_b):
        gaps = advantage(cause, cause_a, cause_b), advantage(effect, effect_a, effect_b)
        return joined([told(gap) for gap in gaps], gaps[0].sign * gaps[1].sign, max)

    def check(numbers, places):
        for place, pair in product(places, combinations(rows, 2)):
            keys = [(*place, row, metric) for row in pair for metric in (cause, effect)]
            yield ask(numbers, f"more {name(cause)}, better {name(effect)}", keys, judge)

    return check
