"""Checks that only one claim needs, named after their question."""

from functools import partial
from itertools import combinations, pairwise, permutations, product
from math import inf

import numpy as np
import pandas as pd

from rbue.report.bootstrap import mean_of
from rbue.report.claims.checks import (
    CONDITION,
    RATIO,
    advantage,
    agree,
    ask,
    better,
    each,
    form,
    inside,
    joined,
    name,
    outcome_of,
    within,
)
from rbue.report.claims.evidence import listed
from rbue.report.claims.numbers import BLOCK, SEVERITIES
from rbue.report.claims.scopes import (
    C10,
    DE,
    DIVERSE,
    DROPOUT,
    DROPRELU,
    P2,
    P5,
    Q8,
    Q9,
    Q95,
    QUALITY,
    SHIFTED,
    SINGLE,
    SVI,
    VARIED,
)
from rbue.report.claims.values import LEVEL
from rbue.report.rows import ARCHS, DATASETS, LABELS

SAME_TIME = 0.05  # training times vary this much anyway
COEFFICIENT = {Q8: 0.16, Q95: 0.0475, P2: 0.16, P5: 0.25}  # q(1-q) and p(1-p): no q has a larger one than a p


def spread_of_slopes(numbers, places):
    """T4: across the two methods, a larger coefficient q(1-q) or p(1-p) should give a larger divergence.

    Where dropout was also measured in every block, this is asked there too. One p has one coefficient in both
    placements, so its divergence should be the same.
    """
    part = "a larger q(1-q) or p(1-p) giving a larger {}"
    yield from larger_coefficients(numbers, places, "", part)
    blocks = [place for place in places if all((*place, row + BLOCK, "mean_jsd") in numbers.values for row in DROPOUT)]
    yield from larger_coefficients(numbers, blocks, BLOCK, f"{part}, with dropout in every block")
    for place, row in product(blocks, DROPOUT):
        keys = [(*place, row + BLOCK, "mean_jsd"), (*place, row, "mean_jsd")]
        part = "the same p giving the same Mean-JSD, with dropout in every block and before the classifier"
        yield ask(numbers, part, keys, agree, form=form("mean_jsd"), words=CONDITION)


def larger_coefficients(numbers, places, placement, part):
    for q, p in product((Q8, Q95), DROPOUT):
        if COEFFICIENT[p] > COEFFICIENT[q]:  # they are equal for q = 0.8 and p = 0.2
            yield from each([p + placement], [q], "mean_jsd", part=part)(numbers, places)


def best_q(numbers, places):
    """A4: the named q wins in accuracy or ECE against the other three, and loses in neither."""

    def judge(*cells):
        found = [better(metric, *cells[4 * i : 4 * i + 4]) for i, metric in enumerate(QUALITY)]
        outcomes = [each["outcome"] for each in found]
        outcome = -1 if min(outcomes) < 0 else max(outcomes)
        decisive = [each for each in found if each["outcome"] == outcome]
        return joined(decisive, outcome, lambda ps: 2 * min(ps))  # two chances to win, or to lose

    for place in places:
        chosen = Q9 if place[1] == "vgg13" else Q95
        rows = [chosen, *(q for q in DROPRELU if q != chosen)]
        keys = [(*place, row, metric) for metric in QUALITY for row in rows]
        yield ask(numbers, "the named q as the best of four", keys, judge, words=CONDITION)


def better_in_both(numbers, places):
    """A3, as additional evidence: pairs that win in accuracy and in ECE."""

    def judge(*cells):
        wins = [better(metric, *cells[2 * i : 2 * i + 2])["outcome"] > 0 for i, metric in enumerate(QUALITY)]
        return {"outcome": 1 if all(wins) else -1}

    for place, q, p in product(places, DROPRELU, DROPOUT):
        keys = [(*place, row, metric) for metric in QUALITY for row in (q, p)]
        yield ask(numbers, "better in both accuracy and ECE", keys, judge, words=CONDITION)


def growing_places(datasets):
    """Return (a place, a larger one): from each network to the next, then from each dataset to the next."""
    networks = [((dataset, a), (dataset, b)) for dataset in datasets for a, b in pairwise(ARCHS)]
    return networks + [((a, arch), (b, arch)) for arch in ARCHS for a, b in pairwise(datasets)]


def svi_deteriorates(numbers, places):
    """A6: SVI's gap to Single widens from each network to the next and from each dataset to the next."""
    for metric, pair in product(QUALITY, growing_places(DATASETS)):
        keys = [(*place, row, metric) for place in pair for row in (SVI, SINGLE)]
        yield ask(numbers, f"a widening gap in {name(metric)}", keys, partial(widens, metric), words=CONDITION)


def widens(metric, svi, single, next_svi, next_single):
    return outcome_of(advantage(metric, svi, single) - advantage(metric, next_svi, next_single))


def extra_time_grows(numbers, places):
    """P3: DropReLU's time relative to Single's grows from network to network and from CIFAR-10 to TinyImageNet."""
    for pair in growing_places(["cifar10", "tinyimagenet"]):
        keys = [(*place, row, "time") for place in pair for row in (Q95, SINGLE)]
        part = f"a growing ratio of {Q95}'s training time to Single's"
        yield ask(numbers, part, keys, grows, clocks=[keys[:2], keys[2:]], words=CONDITION)


def grows(own, single, next_own, next_single):
    return outcome_of(next_own / next_single - own / single)


def ece_spread(numbers, places):
    """B7: the largest minus the smallest ECE over the ten rows, averaged over the networks. Two of the three networks
    are enough."""

    def rows(dataset, arch):
        return [(dataset, arch, row, "ece") for row in LABELS]

    def spread(cells):
        ordered = sorted(cells, key=lambda cell: cell.mean)
        return ordered[-1] - ordered[0]

    def judge(*cells):
        groups = [spread(cells[i : i + len(LABELS)]) for i in range(0, len(cells), len(LABELS))]
        gap = mean_of(groups[len(groups) // 2 :]) - mean_of(groups[: len(groups) // 2])
        return outcome_of(gap, shown=gap.mean)

    datasets = "cifar10", "tinyimagenet"
    whole = [arch for arch in ARCHS if all(key in numbers.values for d in datasets for key in rows(d, arch))]
    asked = whole if 2 * len(whole) > len(ARCHS) else list(ARCHS)
    where = "" if len(asked) == len(ARCHS) else f", with {listed([ARCHS[arch] for arch in asked])}"
    part = f"a larger mean ECE spread on TinyImageNet than on CIFAR-10{where}"
    keys = [key for dataset in datasets for arch in asked for key in rows(dataset, arch)]
    yield ask(numbers, part, keys, judge, form="{:+.3f}", words=CONDITION)


def vgg_generalises_poorly(numbers, places):
    """B8: Single's accuracy is lower on VGG-13 than on both other networks."""
    for arch in ("resnet18", "densenet121"):
        keys = [("tinyimagenet", arch, SINGLE, "accuracy"), ("tinyimagenet", "vgg13", SINGLE, "accuracy")]
        yield ask(numbers, "accuracy higher than VGG-13's", keys, partial(better, "accuracy"), form=form("accuracy"))


def exchangeable_pairs(rows, whose):
    """D6: the largest of six disagreements is within three binomial standard errors of their mean.

    The error is binomial if every image has its own noise. SVI draws weights once per pass, and an ensemble's members
    are trained once: then images are not independent, the error is larger by an unknown factor, and nothing follows
    from a larger distance.
    """

    def check(numbers, places):
        for place, row in product(places, rows):
            keys = [(*place, row, metric) for metric in ("mean_dis", "max_dis")]
            part = f"{whose}'s Max-DIS within 3 SE of Mean-DIS"
            yield ask(numbers, part, keys, near(row in (SVI, DE)), form="{:.1f} SE", words=CONDITION)

    return check


def near(drawn_once):
    def judge(mean, largest):
        gap = largest - mean
        distance = gap.mean / mean.se if mean.se else (inf if gap.mean > 0 else 0.0)
        within_three = gap.mean - gap.half <= 3 * mean.se
        return {"outcome": 1 if within_three else 0 if drawn_once else -1, "shown": distance}

    return judge


def spearman(numbers, places):
    """D5: the rank correlation of Mean-JSD and ECE over the rows, if it is significant."""

    def judge(*cells):
        jsd, ece = ([cell.mean for cell in cells[i::2]] for i in (0, 1))
        correlation, p = rank_correlation(jsd, ece)
        sign = 0 if p > LEVEL else -1 if correlation > 0 else 1  # a lower ECE is better
        return {"outcome": sign, "shown": correlation, "p": p, "judged": ""}

    for place in places:
        keys = [(*place, row, metric) for row in VARIED for metric in ("mean_jsd", "ece")]
        part = "Spearman's correlation of Mean-JSD and ECE over seven rows"
        yield ask(numbers, part, keys, judge, form="{:+.2f}", words=CONDITION)


def concordance(numbers, places):
    """D5, as additional evidence: of each pair of rows, the one with more divergence is better calibrated."""

    def judge(jsd, ece, other_jsd, other_ece):
        gaps = advantage("mean_jsd", jsd, other_jsd), advantage("ece", ece, other_ece)
        return joined([outcome_of(gap) for gap in gaps], gaps[0].sign * gaps[1].sign, max)

    for place, pair in product(places, combinations(VARIED, 2)):
        keys = [(*place, row, metric) for row in pair for metric in ("mean_jsd", "ece")]
        yield ask(numbers, "more Mean-JSD, better ECE", keys, judge)


def rank_correlation(a, b):
    """Return Spearman's correlation and its two-sided p-value over all permutations; None and 1 if one is constant."""
    a, b = (pd.Series(values).rank().to_numpy() - (len(values) + 1) / 2 for values in (a, b))
    scale = np.sqrt((a @ a) * (b @ b))
    if not scale:
        return None, 1.0
    shuffled = np.array(list(permutations(b))) @ a / scale
    found = a @ b / scale
    return float(found), float(np.mean(np.abs(shuffled) >= abs(found) - 1e-9))


def same_cost(numbers, places):
    """X8: CIFAR-10 and CIFAR-100 have equally many images, so the same row takes the same time."""
    for arch, row in product(ARCHS, LABELS):
        keys = [(dataset, arch, row, "time") for dataset in ("cifar10", "cifar100")]
        part = "training time on CIFAR-10 within 5 % of that on CIFAR-100"
        yield ask(numbers, part, keys, within(SAME_TIME), form=RATIO, words=CONDITION)


def spans(numbers, places):
    """P8: every q lies between the worse MC-Dropout and Deep Ensemble."""
    wanted = [(place, q, "accuracy") for place in places for q in DROPRELU]
    at_tables = [C10] if C10 in places else places
    wanted += [(place, q, metric) for metric in DIVERSE for place in at_tables for q in (Q8, Q95)]
    for place, q, metric in wanted:
        keys = [(*place, row, metric) for row in (q, DE, *DROPOUT)]
        yield ask(numbers, f"{name(metric)} between the two", keys, inside, words=CONDITION)


# --- corruptions ------------------------------------------------------------------------------------------------------


def advantage_grows(numbers, places):
    """F2: the slope of (baseline's ECE - ours) over severity is positive (least squares over five points)."""
    slope = [(severity - 3) / 10 for severity in SEVERITIES]

    def judge(*cells):
        gaps = [(other - own) * weight for own, other, weight in zip(cells[:5], cells[5:], slope, strict=True)]
        total = sum(gaps[1:], gaps[0])
        return outcome_of(total, beyond=total.beyond, shown=total.mean)

    for place, own, other in product(places, SHIFTED, [P5, SVI]):
        keys = [(*place, row, f"ece@{severity}") for row in (own, other) for severity in SEVERITIES]
        yield ask(numbers, "growth of the ECE advantage per severity", keys, judge, form="{:+.4f}")
