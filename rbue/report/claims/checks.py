"""The comparisons that claims consist of.

A check is a function (numbers, places) -> Items, where a place is a (dataset, network) pair. An Item is one comparison:
+1 if it holds, -1 if it does not, 0 if the numbers cannot tell, None if a cell is missing. A judge turns the cells of
one comparison into an outcome. If the cells are noisy, it also returns the p-value of their difference and the outcome
`otherwise`, which counts if chance may explain the difference.
"""

from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product

from rbue.report.claims.numbers import kind
from rbue.report.claims.values import Value, of_one_origin

VERSUS, CONDITION = ("win", "tie", "loss"), ("yes", "unclear", "no")
BETTER = {"accuracy": 1, "ece": -1, "time": -1, "jsd": 1, "dis": 1}  # +1: higher is better, -1: lower is better
NAMES = {"accuracy": "accuracy", "ece": "ECE", "time": "training time"}
NAMES |= {"mean_jsd": "Mean-JSD", "max_jsd": "Max-JSD", "mean_dis": "Mean-DIS", "max_dis": "Max-DIS"}
NAMES |= {"passes": "test passes", "parameters": "parameters"}
RATIO = "{:.2f}×"
SHOWN = {"accuracy": "{:+z.2f} pp", "ece": "{:+z.3f}", "jsd": "{:+z.4f}", "dis": "{:+z.4f}", "time": RATIO}
COARSE = {"accuracy": 1.5, "ece": 0.015}  # with a larger error, two numbers cannot be called the same


@dataclass(frozen=True)
class Item:
    part: str
    keys: tuple = ()
    outcome: int | None = None
    beyond: int | None = None  # the outcome beyond rounding and test noise together
    shown: float | None = None  # the printed difference or ratio
    form: str = "{}"
    words: tuple = VERSUS
    coarse: bool = False  # the error is so large that a tie is no agreement
    aside: bool = False  # printed as evidence, but not part of the verdict
    missing: tuple = ()
    p: float | None = None  # None: no noise is involved
    otherwise: int = 0
    judged: str = ""  # paired or unpaired
    undone: bool = False  # after Holm's correction over the claim's comparisons, chance may explain the difference

    @property
    def cell(self):
        """The dataset and the network that the comparison is about."""
        return self.keys[0][:2]

    @property
    def by_chance(self):
        beyond = None if self.beyond is None else self.otherwise
        return replace(self, outcome=self.otherwise, beyond=beyond, undone=self.outcome != self.otherwise)


def group_by(values, key):
    """Return {key of a value: the values with this key}, in order of appearance."""
    groups = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def ask(numbers, part, keys, judge, clocks=None, **more):
    """Return one comparison, or an Item with the cells that are missing for it.

    `clocks` are groups of keys whose times are compared with each other; by default all are.
    """
    missing = tuple(key for key in keys if key not in numbers.values)
    if missing:
        return Item(part, tuple(keys), missing=missing, **more)
    values = {key: numbers.values[key] for key in keys}
    for times in ([key for key in group if key[3] == "time"] for group in clocks or [keys]):
        alike = of_one_origin([values[key] for key in times])
        if alike is None:
            return Item(part, tuple(keys), missing=tuple(times), **more)
        values |= dict(zip(times, alike, strict=True))
    return replace(Item(part, tuple(keys), **more), **judge(*(values[key] for key in keys)))


def name(metric):
    base, _, severity = metric.partition("@")
    return NAMES[base] + (f" at severity {severity}" if severity else "")


def form(metric):
    return SHOWN.get(kind(metric), "{}")


# --- judges -----------------------------------------------------------------------------------------------------------


def outcome_of(gap, **more):
    """Return the outcome of a difference: its sign and its p-value."""
    return {"outcome": gap.sign, "p": gap.p, "judged": gap.judged, **more}


def advantage(metric, a, b):
    """How much better a is than b."""
    return (a - b) * BETTER[kind(metric)]


def quotient(a, b):
    """Return a/b for display. It is None if b is 0, such as the disagreement of four equal samples."""
    return a.mean / b.mean if b.mean else None


def best(metric, values):
    return max(values, key=lambda value: value.mean * BETTER[kind(metric)])


def is_coarse(metric, gap):
    """Whether the error could hide a relevant difference: with few test images, everything is on par."""
    return gap.reach > COARSE.get(kind(metric), float("inf"))


def better(metric, own, *others):
    """Judge whether the first cell is better than the best of the others."""
    rival = best(metric, others)
    gap = advantage(metric, own, rival)
    shown = quotient(own, rival) if metric == "time" else own.mean - rival.mean
    return outcome_of(gap, beyond=gap.beyond, shown=shown, coarse=is_coarse(metric, gap))


def significantly_better(metric, own, *others):
    """Judge like `better`, but only a difference beyond rounding and noise counts, for the claim or against it."""
    found = better(metric, own, *others)
    return found | {"outcome": found["beyond"], "p": (own - best(metric, others)).chance}


def best_of_first(count, metric, *cells):
    """Judge whether the best of the first `count` cells is better than the best of the others."""
    return better(metric, best(metric, cells[:count]), *cells[count:])


def on_par(metric, *cells):
    """Judge whether the best of the first cells is not worse than the last: ECE as printed, accuracy within noise.

    Accuracy is printed with more digits than 10,000 images can resolve, ECE with fewer.
    """
    compare = significantly_better if kind(metric) == "accuracy" else better
    found = compare(metric, best(metric, cells[:-1]), cells[-1])
    return same_unless(found["outcome"] < 0, found)


def same_unless(differs, found):
    """Return the outcome of a claim of no difference. It is unclear if chance or a large error may explain it."""
    outcome = -1 if differs else 0 if found.get("coarse") else 1
    return found | {"outcome": outcome, "otherwise": max(outcome, 0), "beyond": None}


def unaffected(metric, *cells):
    """Judge whether there is no difference beyond rounding and noise, in either direction."""
    found = significantly_better(metric, *cells)
    return same_unless(found["outcome"], found)


def at_most(limit):
    """Judge a ≤ limit·b."""
    return lambda a, b: outcome_of(b * limit - a, shown=quotient(a, b))


def at_least(limit):
    """Judge a ≥ limit·b."""
    return lambda a, b: outcome_of(a - b * limit, shown=quotient(a, b))


def exactly(factor):
    """Judge a = factor·b, for counts."""
    return lambda a, b: {"outcome": 1 if abs((a - b * factor).mean) < 0.5 else -1, "shown": quotient(a, b)}


def within(share):
    """Judge |a - b| ≤ share·b, for times that count as the same."""

    def judge(a, b):
        slack = b.mean * share - abs((a - b).mean)  # the share allows for the noise, so no standard error is added
        return {"outcome": Value(slack, (a - b).half).sign, "shown": quotient(a, b)}

    return judge


def agree(a, b):
    """Judge whether two numbers are the same within their errors."""
    gap = a - b
    return same_unless(gap.sign, outcome_of(gap, shown=gap.mean))


def inside(value, high, *lows):
    """Judge min(lows) ≤ value ≤ high. A printed number may also lie on an end. A measured one that is inside, but not
    beyond the noise, is unclear."""
    low = min(lows, key=lambda v: v.mean)
    worst = min(value - low, high - value, key=lambda gap: gap.mean)
    found = outcome_of(worst)
    return same_unless(worst.sign < 0, found) if worst.half else found


def joined(found, outcome, chance):
    """Join several differences into one outcome. `chance` combines their p-values: max if all must hold."""
    judged = {each["judged"] for each in found}
    ps = [each["p"] for each in found]
    joint = None if None in ps else min(1.0, chance(ps))
    return {"outcome": outcome, "p": joint, "judged": "unpaired" if "unpaired" in judged else max(judged)}


# --- checks -----------------------------------------------------------------------------------------------------------


def each(rows, others, *metrics, judge=better, part="{}", **more):
    """Compare every row with every other row: one item per pair, place and metric."""

    def check(numbers, places):
        for metric, place, row, other in product(metrics, places, rows, others):
            keys = [(*place, row, metric), (*place, other, metric)]
            settings = {"form": form(metric)} | more
            yield ask(numbers, part.format(name(metric)), keys, partial(judge, metric), **settings)

    return check


def ratio(rows, others, metric, judge, part):
    """Compare the ratio of every row to every other row with a limit."""
    return each(rows, others, metric, judge=lambda _, *cells: judge(*cells), part=part, form=RATIO, words=CONDITION)


def jointly(rows, others, *metrics, judge, part="{}", **more):
    """Compare the best of the rows with the best of the others: one item per place and metric."""

    def check(numbers, places):
        for metric, place in product(metrics, places):
            keys = [(*place, row, metric) for row in [*rows, *others]]
            yield ask(numbers, part.format(name(metric)), keys, partial(judge, metric), form=form(metric), **more)

    return check


def together(*checks):
    """Join checks into one."""
    return lambda numbers, places: chain.from_iterable(check(numbers, places) for check in checks)


def at(wanted, check):
    """Ask the check at one place if the claim's scope contains it, otherwise at all places."""
    return lambda numbers, places: check(numbers, [wanted] if wanted in places else places)


def on(datasets, check):
    return lambda numbers, places: check(numbers, [place for place in places if place[0] in datasets])


def where_measured(check):
    """Leave out what is not measured, instead of counting it as missing."""
    return lambda numbers, places: (item for item in check(numbers, places) if item.outcome is not None)


def aside(check):
    """Print the check as evidence only: the verdict does not depend on it."""
    return lambda numbers, places: (replace(item, aside=True) for item in check(numbers, places))


def silent(check):
    """Hide the differences, since accuracy and ECE share the part."""
    return lambda numbers, places: (replace(item, shown=None) for item in check(numbers, places))
