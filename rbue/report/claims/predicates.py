"""The table of claims: the scope of each, how strictly it is judged, and its checks, the same for the paper and us."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rbue.report.claims import special
from rbue.report.claims.checks import (
    CONDITION,
    agree,
    aside,
    at,
    at_least,
    at_most,
    best_of_first,
    better,
    each,
    exactly,
    jointly,
    on,
    on_par,
    ratio,
    significantly_better,
    silent,
    together,
    unaffected,
    where_measured,
    within,
)
from rbue.report.claims.numbers import BLOCK
from rbue.report.claims.rules import balance, degree, each_part, every
from rbue.report.claims.scopes import (
    ALL_LAYERS,
    BASELINES,
    C10,
    C10_DENSE,
    CIFAR,
    DE,
    DIVERSE,
    DROPOUT,
    DROPRELU,
    EVERYWHERE,
    FIRST,
    LAST,
    P2,
    P5,
    Q8,
    Q9,
    Q85,
    Q95,
    QUALITY,
    RRELU,
    SHIFTED,
    SHIFTED_ECE,
    SHIFTED_SCORES,
    SINGLE,
    SVI,
    TINY,
    TINY_DENSE,
    VARIED,
)
from rbue.report.claims.special import SAME_TIME
from rbue.report.rows import DATASETS, PROPOSED

SLIGHTLY, MUCH_FASTER = 1.1, 2  # 'slightly slower', 'much faster'
FOUR_TIMES, COMPETITIVE = 3.6, 0.8  # 'four times' to within a tenth; 'competitive' means four fifths of it


@dataclass(frozen=True)
class Predicate:
    scope: list
    rule: Callable
    check: Callable
    transfers: bool = True  # False: the claim is about these datasets or networks only
    ours: bool = True  # False: it asks whether the paper's tables are consistent


PAIR = each([Q8], [P2], "ece")
PAR = jointly(PROPOSED, [DE], *QUALITY, judge=on_par, part="best {} on par with Deep Ensemble", words=CONDITION)
FASTER = ratio([DE], PROPOSED, "time", at_least(MUCH_FASTER), "Deep Ensemble training at least 2 times as long")
SMALLER = ratio([DE], PROPOSED, "parameters", at_least(FOUR_TIMES), "Deep Ensemble having at least 3.6 times the {}")


def claim(scope, rule, *checks, **more):
    return Predicate(scope, rule, together(*checks), **more)


def best_of(rows, others, *metrics, part):
    """Compare the best of some rows with the best of others."""
    return jointly(rows, others, *metrics, judge=partial(best_of_first, len(rows)), part=part)


def ordered(first, second, rest, metrics, judge=better):
    """Check that the first row is ahead of the second, and the second ahead of all the rest."""
    top = each([first], [second], *metrics, judge=judge, part=f"{first}'s {{}} larger than {second}'s")
    return together(top, each([second], rest, *metrics, judge=judge, part=f"{second}'s {{}} larger than the others'"))


def slower(rows, who):
    return ratio(rows, DROPOUT, "time", at_most(SLIGHTLY), f"{who} training at most 1.1 times as long as MC-Dropout")


def competitive(metric):
    return ratio([Q8, Q95, RRELU], [DE], metric, at_least(COMPETITIVE), "{} at least 0.8 times Deep Ensemble's")


def on_cifar(check):
    return aside(on(["cifar10", "cifar100"], check))


def in_blocks(rows, dropout, *metrics, who=""):
    """Compare with dropout in every block, where this is measured: the paper does not say where its dropout is."""
    part = who + "{}, with dropout in every block"
    return aside(where_measured(each(rows, [row + BLOCK for row in dropout], *metrics, part=part)))


def by_dataset(*rows):
    """Compare accuracy with Single's, dataset by dataset."""
    checks = [on([d], each(rows, [SINGLE], "accuracy", part=f"{DATASETS[d]} {{}}")) for d in DATASETS]
    return aside(together(*checks))


# --- Section 3.4 ------------------------------------------------------------------------------------------------------

THEORY = {
    "T4": claim([C10], every, special.spread_of_slopes),
    "T5": claim(
        EVERYWHERE,
        each_part,
        PAIR,
        at(C10, each([Q8], [P2], *DIVERSE)),
        on_cifar(each([Q8], [P2], "accuracy", part="on CIFAR {}")),
        in_blocks([Q8], [P2], *DIVERSE, "ece"),
    ),
    "T6": claim([C10], every, each([Q8], [Q95], *DIVERSE), each([Q95], [RRELU], *DIVERSE)),
}

# --- Sections 1, 3.3 and 4.2 ------------------------------------------------------------------------------------------

ACCURACY_AND_COST = {
    "A1": claim(CIFAR, degree, PAR, aside(each(PROPOSED, [DE], *QUALITY, part="row by row {}"))),
    "A2": claim(
        CIFAR, degree, best_of(PROPOSED, BASELINES, *QUALITY, part="best {} better than the best other baseline's")
    ),
    "A3": claim(
        CIFAR,
        every,
        each(DROPRELU, DROPOUT, *QUALITY, "time"),
        aside(special.better_in_both),
        aside(on(["cifar10"], each(DROPRELU, DROPOUT, *QUALITY, part="on CIFAR-10 alone {}"))),
    ),
    "A4": claim(CIFAR, degree, special.best_q, transfers=False),
    "A5": claim(CIFAR, every, PAIR, in_blocks([Q8], [P2], "ece")),
    "A6": claim(EVERYWHERE, degree, special.svi_deteriorates, transfers=False),
    "A7": claim(
        EVERYWHERE,
        each_part,
        ratio([*PROPOSED, *DROPOUT], [SINGLE], "parameters", exactly(1), "as many {} as Single"),
        ratio([DE], [*BASELINES, *PROPOSED], "parameters", exactly(4), "Deep Ensemble having 4 times the {}"),
    ),
    "A8": claim(EVERYWHERE, degree, slower([RRELU], "MC-RReLU"), slower(DROPRELU, "MC-DropReLU")),
    "A9": claim(EVERYWHERE, every, FASTER),
    "A11": claim(EVERYWHERE, every, ratio(PROPOSED, [SINGLE], "time", within(SAME_TIME), "{} within 5 % of Single's")),
    "A12": claim(
        EVERYWHERE,
        every,
        each(PROPOSED, [SINGLE], "accuracy", judge=unaffected, part="{} the same as Single's", words=CONDITION),
        by_dataset(*PROPOSED),
    ),
    "A13": claim(
        EVERYWHERE,
        balance,
        each(PROPOSED, [SVI], *QUALITY, part="{} better than SVI's"),
        each(PROPOSED, DROPOUT, *QUALITY, part="{} better than MC-Dropout's"),
        on_cifar(each(PROPOSED, DROPOUT, "accuracy", part="on CIFAR alone {} better than MC-Dropout's")),
    ),
    "A14": claim(EVERYWHERE, every, each(PROPOSED, [SINGLE], "ece")),
    "A15": claim(
        EVERYWHERE,
        degree,
        PAR,
        FASTER,
        SMALLER,
        ratio(PROPOSED, [DE], "passes", at_most(1), "at most as many {} as Deep Ensemble"),
    ),
    "A16": claim(
        EVERYWHERE,
        every,
        at(C10, each([DE], DROPOUT, *DIVERSE)),
        each([DE], DROPOUT, *QUALITY),
        in_blocks([DE], DROPOUT, *DIVERSE, *QUALITY),
    ),
    "X8": claim(CIFAR, every, special.same_cost, transfers=False),
}

# --- Section 4.2's figures and 4.3 ------------------------------------------------------------------------------------

SHIFT_AND_TINY = {
    "F1": claim(
        [C10_DENSE],
        every,
        silent(
            each(SHIFTED, [DE], *SHIFTED_SCORES, judge=on_par, part="RBUE on par with Deep Ensemble", words=CONDITION)
        ),
        silent(each(SHIFTED, [P5, SVI], *SHIFTED_SCORES, part="RBUE better than MC-Dropout and SVI")),
    ),
    "F2": claim([C10_DENSE], every, special.advantage_grows),
    "F3": claim(
        [C10_DENSE],
        every,
        each([DE], [*SHIFTED, SINGLE, P5, SVI], *SHIFTED_ECE, part="Deep Ensemble's ECE below that of all others"),
        each(SHIFTED, [SINGLE, P5, SVI], *SHIFTED_ECE, part="RBUE's ECE below that of Single, MC-Dropout and SVI"),
    ),
    "B1": claim(TINY[1:], degree, PAR, transfers=False),
    "B2": claim(
        TINY[1:],
        degree,
        *(jointly([row], DROPOUT, *QUALITY, judge=significantly_better, words=CONDITION) for row in PROPOSED),
        transfers=False,
    ),
    "B3": claim(
        TINY[:1],
        each_part,
        best_of([DE], PROPOSED, *QUALITY, part="Deep Ensemble's {} better than the best proposed"),
        best_of(DROPOUT, PROPOSED, *QUALITY, part="MC-Dropout's {} better than the best proposed"),
        transfers=False,
    ),
    "B4": claim(
        TINY,
        every,
        ratio([DE], PROPOSED, "time", at_least(FOUR_TIMES), "Deep Ensemble training at least 3.6 times as long"),
        ratio(PROPOSED, [SINGLE], "time", at_most(SLIGHTLY), "{} at most 1.1 times Single's"),
        SMALLER,
    ),
    "B5": claim(TINY, every, PAIR, transfers=False),
    "B6": claim([TINY_DENSE], every, each([Q9], [DE], *SHIFTED_ECE, part="ECE under corruption")),
    "B7": claim(EVERYWHERE, every, special.ece_spread, transfers=False),
    "B8": claim(TINY, every, special.vgg_generalises_poorly, transfers=False),
}

# --- Sections 4.4, 4.5 and 5 ------------------------------------------------------------------------------------------

DIVERSITY_AND_POSITION = {
    "D1": claim([C10], every, ordered(DE, Q8, VARIED[2:], ["mean_jsd", "max_jsd"])),
    "D2": claim([C10], every, ordered(Q8, DE, VARIED[2:], ["mean_dis", "max_dis"], judge=significantly_better)),
    "D3": claim(
        [C10],
        degree,
        each([Q8, Q95], DROPOUT, *DIVERSE, part="MC-DropReLU's {}"),
        each([RRELU], DROPOUT, *DIVERSE, part="MC-RReLU's {}"),
        in_blocks([Q8, Q95], DROPOUT, *DIVERSE, who="MC-DropReLU's "),
        in_blocks([RRELU], DROPOUT, *DIVERSE, who="MC-RReLU's "),
    ),
    "D4": claim([C10], degree, *map(competitive, DIVERSE)),
    "D5": claim([C10], every, special.spearman, aside(special.concordance)),
    "D6": claim(
        [C10],
        every,
        special.exchangeable_pairs([SVI], "SVI"),
        aside(special.exchangeable_pairs([row for row in VARIED if row != SVI], "every other row")),
        ours=False,
    ),
    "P1": claim([TINY_DENSE], each_part, each([ALL_LAYERS], [LAST, FIRST], "ece", "mean_jsd", part="all layers' {}")),
    "P2": claim([TINY_DENSE], every, each([LAST, FIRST], [ALL_LAYERS], "time", part="one layer's {}")),
    "P3": claim(EVERYWHERE, degree, special.extra_time_grows, transfers=False),
    "P4": claim(  # Table 6's 'All Layers' and Table 3's MC-DropReLU(0.8) are the same run
        [TINY_DENSE],
        every,
        each([ALL_LAYERS], [Q8], *QUALITY, judge=lambda _, *cells: agree(*cells), part="same {}", words=CONDITION),
        ratio([ALL_LAYERS], [Q8], "time", within(SAME_TIME), "same {}"),
        ours=False,
    ),
    "P5": claim(EVERYWHERE, balance, each(DROPRELU, [RRELU], *QUALITY)),
    "P6": claim(
        [C10],
        degree,
        each([Q95], DROPOUT, *QUALITY, part="{} better than MC-Dropout's"),
        each([Q95], [DE], *QUALITY, judge=on_par, part="{} on par with Deep Ensemble", words=CONDITION),
        transfers=False,
    ),
    "P7": claim(
        [C10],
        every,
        best_of([Q8, Q85, Q9, P2, P5, DE], [Q95], "ece", part="smallest other {} below q = 0.95's"),
        transfers=False,
    ),
    "P8": claim(EVERYWHERE, degree, special.spans),
    "P9": claim(EVERYWHERE, degree, each([Q95], [Q8], "accuracy")),
}

PREDICATES = THEORY | ACCURACY_AND_COST | SHIFT_AND_TINY | DIVERSITY_AND_POSITION
