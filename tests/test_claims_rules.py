"""Verdicts on made-up numbers with a known answer: what a share is, what depends on what, and what chance explains."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats
from test_claims import PAPER, corrupted, diverse, our_frames, ours, result

from rbue.report.claims import build, cards
from rbue.report.claims.checks import CONDITION, Item, each, inside, significantly_better, unaffected
from rbue.report.claims.numbers import Numbers
from rbue.report.claims.predicates import PREDICATES
from rbue.report.claims.rules import PAPERS, balance, decide, degree, each_part, every, sign_flip_p
from rbue.report.claims.scopes import C10, DE, EVERYWHERE, P2, P5, Q8, Q9, Q85, Q95, RRELU, SINGLE, SVI, VARIED
from rbue.report.claims.special import near, rank_correlation
from rbue.report.claims.values import Value
from rbue.report.rows import PROPOSED


def items(outcomes, part="part", cells=()):
    """Made-up comparisons, each in a cell of its own unless cells are named."""
    names = cells or range(len(outcomes))
    return [Item(part, keys=(("made up", str(cell)),), outcome=o) for cell, o in zip(names, outcomes, strict=True)]


# --- shares -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "outcomes", "verdict"),
    [
        (every, [1, 1, 1], "holds"),
        (every, [1, 0, 1], "partly"),
        (every, [1, 1, -1], "does not hold"),
        (every, [0, 0], "undecided"),
        (each_part, [1, 1], "holds"),
        (degree, [1, 1, -1], "partly"),
        (degree, [0, -1], "does not hold"),
        (degree, [1, -1] + [0] * 22, "undecided"),  # one win and one loss are not a substantial share
        (degree, [1] + [-1] * 19, "does not hold"),
        (degree, [1] * 8 + [-1], "holds"),
        (degree, [1] * 3 + [-1], "partly"),  # exactly three quarters for it
        (degree, [1] + [-1] * 3, "partly"),
        (degree, [1] * 3 + [0] * 13, "undecided"),
        (degree, [1] + [0] * 3, "partly"),  # exactly a quarter for it
        (degree, [-1] + [0] * 3, "does not hold"),  # exactly a quarter against it
        (degree, [-1] + [0] * 4, "undecided"),
    ],
)
def test_partly_is_a_substantial_share(rule, outcomes, verdict):
    assert rule({"part": items(outcomes)}) == verdict


def test_a_claim_with_one_half_true_and_one_half_false_holds_partly():
    assert each_part({"ECE": items([1, 1]), "diversity": items([-1])}) == "partly"
    parts = {"a": items([-1] * 3), "b": items([0] * 3), "c": items([0] * 3), "d": items([1, 0, 0])}
    assert each_part(parts) == "does not hold"  # a third of one part of four is not partly
    assert balance({"accuracy": items([1] * 9), "ECE": items([-1] * 9)}) == "partly"
    half, open_ = items([1, 0]), items([0, 0])  # a part that holds partly, and one that is undecided
    assert each_part({"a": half, "b": open_}) == "partly"  # a quarter for it
    assert each_part({"a": half, "b": open_, "c": open_}) == "undecided"
    assert each_part({"a": items([-1]), "b": half, "c": open_, "d": open_, "e": open_}) == "does not hold"  # 1.5 of 5
    assert every({"ECE": items([1, 1]), "diversity": items([-1])}) == "does not hold"
    assert every({"ECE": items([1, 0, 0, 0]), "accuracy": items([0] * 4)}) == "undecided"  # one of eight is not partly


def test_parts_weigh_the_same_however_many_comparisons_they_have():
    """A1 on our runs: one of three in ECE, none in accuracy. Many training times must not outvote accuracy."""
    assert degree({"accuracy": items([0, -1, -1]), "ECE": items([1, -1, -1])}) == "does not hold"
    assert degree({"time": items([1] * 45), "accuracy": items([-1] * 9)}) == "partly"


def test_too_little_of_the_scope_is_not_tested():
    """A6 with 22 of 24 comparisons missing, one for it and one against it."""
    missing = [Item("part", keys=(("made up", "x", "row", "ece"),), missing=(("made up", "x", "row", "ece"),))]
    verdict = decide(
        items([1, -1]) + missing * 22, degree, Numbers({}, dict.fromkeys([("made up", "0"), ("made up", "1")], 1))
    )
    assert (verdict.status, verdict.so_far) == ("not tested", "partly")
    assert verdict.why == "Only 2 of 24 comparisons have numbers: 1 of 2 for it, 1 against it."


def test_the_part_with_too_few_numbers_is_named_if_most_of_the_claim_has_some():
    key = ("made up", "x", "row", "time")
    missing = [Item("training time", keys=(key,), missing=(key,))]
    found = items([1] * 8, "accuracy") + items([0], "training time")
    numbers = Numbers({}, {item.keys[0]: 1 for item in found})
    assert decide(found + missing * 2, degree, numbers).why == (
        "Fewer than half of the comparisons have numbers for training time (1 of 3). So far: 8 of 9 for it, 1 inside "
        "the noise."
    )
    assert decide(found[:8] + missing, degree, numbers).why.startswith(
        "Fewer than half of the comparisons have numbers for training time (0 of 1)."
    )


def test_a_claim_is_not_reproduced_by_a_small_part_that_is_complete():
    """P8: accuracy in 12 of 36 cells does not suffice, though diversity is complete."""
    places = [C10, ("cifar10", "vgg13"), ("cifar100", "resnet18")]
    accuracies = {P2: 0.900, P5: 0.901, DE: 0.990} | dict.fromkeys(PROPOSED, 0.95)
    runs = [result(row, place, accuracy=a) for place, (row, a) in product(places, accuracies.items()) if place != C10]
    diversity = {P2: 0.001, P5: 0.002, DE: 0.09}
    runs += [diverse(row, d := diversity.get(row, 0.03), d, accuracy=a) for row, a in accuracies.items()]
    verdict = ours("P8", runs)
    assert (verdict.status, verdict.so_far) == ("not tested", "reproduced")


def test_between_two_rows_means_beyond_the_noise():
    """P8: a measured accuracy near one of the ends may lie outside; a printed one may lie on an end."""
    far, near, out = (measured_between(accuracy) for accuracy in (0.95, 0.905, 0.85))
    assert [item.outcome for item in (far, near, out)] == [1, 0, -1]
    low, high = Value(0.90, half=5e-3), Value(0.99, half=5e-3)
    assert inside(low, high, low)["outcome"] == 1


def measured_between(accuracy):
    ends = {P2: 0.90, P5: 0.91, DE: 0.99}
    runs = [result(row, C10, accuracy=value) for row, value in (ends | {Q8: accuracy}).items()]
    numbers = Numbers.of(our_frames(runs)["matched"])
    return next(item for item in PREDICATES["P8"].check(numbers, [C10]) if item.keys[0] == (*C10, Q8, "accuracy"))


def test_those_against_a_claim_of_no_difference_have_their_own_range():
    """A12: three gains are against it, and no loss is. Without the range, the reader would take them for losses."""
    runs = [result(SINGLE, C10, accuracy=0.90), result(RRELU, C10, accuracy=0.899)]
    runs += [result(row, C10, accuracy=0.93 + k / 100) for k, row in enumerate((Q8, Q85, Q9))]
    assert "; those against it: +3.00 to +5.00 pp" in ours("A12", runs).why


def test_dropout_in_every_block_is_told_and_does_not_decide():
    """A5: better than dropout before the classifier, worse than dropout in every block."""
    runs = [result(Q8, C10, ece=0.02), result(P2, C10, ece=0.09)]
    block = result(P2, C10, ece=0.001, placement="block")
    alone, beside = ours("A5", runs), ours("A5", [*runs, block])
    assert beside.why == alone.why and "every block" not in alone.evidence
    assert "ECE, with dropout in every block +0.019 (loss)" in beside.evidence


def test_every_claim_that_numbers_decide_names_its_rule():
    page = {card["id"]: card["compared"] for card in cards(build([], PAPER))}
    assert page["A5"].endswith(". One counterexample is enough to fail")
    assert page["A13"].endswith(". The share of comparisons decides, counted per dataset and network")
    assert all(predicate.rule.words in page[claim] for claim, predicate in PREDICATES.items())


def test_consistently_means_every_time():
    """F1: better than MC-Dropout and SVI in every ECE, on par with Deep Ensemble in all but one of 20 comparisons."""
    eces = {DE: [0.1] * 4 + [0.05], RRELU: [0.1] * 5, Q95: [0.1] * 4 + [0.05], P5: [0.3] * 5, SVI: [0.3] * 5}
    found = ours("F1", [corrupted(row, values) for row, values in eces.items()]).elsewhere
    assert found.status == "not reproduced"
    assert found.why == (  # only what fails decides
        "RBUE on par with Deep Ensemble: 19 of 20 for it, 1 against it; against it is MC-RReLU compared with Deep "
        "Ensemble(4) on CIFAR-10 ResNet-18."
    )


# --- what depends on what ---------------------------------------------------------------------------------------------


def test_comparisons_of_one_cell_are_not_independent():
    """P5: 24 wins and 12 losses of 36 look like no chance, but they are six cells against three."""
    cells = [cell for cell in range(9) for _ in range(4)]
    outcomes = [1 if cell < 6 else -1 for cell in cells]
    assert stats.binomtest(24, 36).pvalue < 0.07 and sum(outcomes) > 1.96 * 6  # what the old test asked
    assert balance({"part": items(outcomes, cells=cells)}) == "undecided"
    assert balance({"part": items([1] * 36, cells=cells)}) == "holds"
    assert balance({"part": items([-1] * 36, cells=cells)}) == "does not hold"
    assert balance({"part": items([1] * 12, cells=cells[:12])}) == "undecided"  # three cells can always agree by chance
    measured = [replace(item, p=0.001) for item in items(outcomes, cells=cells)]
    assert balance({"part": measured}) == "partly" and balance({"part": measured[:12]}) == "holds"  # each tested alone


def measured(outcomes, part="part", cells=()):
    return [replace(item, p=0.001) for item in items(outcomes, part, cells)]


def test_one_win_in_every_cell_is_not_better_in_general():
    """Four cells with one win and nine ties each: a tenth is for the claim, not every cell."""
    cells = [cell for cell in range(4) for _ in range(10)]
    assert balance({"part": measured(([1] + [0] * 9) * 4, cells=cells)}) == "undecided"
    assert balance({"part": measured(([1] * 3 + [0] * 7) * 4, cells=cells)}) == "partly"
    assert balance({"part": measured(([1] * 8 + [0] * 2) * 4, cells=cells)}) == "holds"
    assert balance({"part": measured(([-1] * 3 + [1] + [0] * 6) * 4, cells=cells)}) == "does not hold"


def test_cells_weigh_the_same_however_many_comparisons_they_have():
    assert balance({"part": measured([1] * 9 + [0], cells=[0] * 9 + [1])}) == "partly"


def test_missing_cells_of_a_measured_claim_are_graded_as_measured():
    """Two cells against the claim and three missing: if these were for it, it would hold in part."""
    found = measured([-1, -1])
    missing = [
        Item("part", keys=(key,), missing=(key,)) for key in [("made up", str(k), "row", "ece") for k in (2, 3, 4)]
    ]
    verdict = decide(found + missing, balance, Numbers({}, {item.keys[0]: 1 for item in found}))
    assert (verdict.status, verdict.so_far) == ("not tested", "not reproduced")


def test_the_sign_flip_test_by_hand():
    assert sign_flip_p([1] * 9) == 2 / 512 and sign_flip_p([1, 1, 1]) == 2 / 8
    assert sign_flip_p([3, 1]) == 2 / 4 and sign_flip_p([2, -1]) == 1.0 and sign_flip_p([0, 0]) == 1.0


def test_weights_that_are_drawn_once_per_pass_make_binomial_errors_too_small():
    """D6: 5 binomial errors decide for a row with noise per image, and say nothing about SVI."""
    mean, far, close = Value(0.03, se=0.002), Value(0.04, se=0.002), Value(0.034, se=0.002)
    assert [near(False)(mean, other)["outcome"] for other in (far, close)] == [-1, 1]
    assert [near(True)(mean, other)["outcome"] for other in (far, close)] == [0, 1]


def test_the_error_of_a_disagreement_is_at_least_the_spread_of_its_pairs():
    run = diverse(SVI, 0.01, 0.03)
    alike = our_frames([run])["matched"].set_index("metric").se["mean_dis"]
    run["diversity"]["dis"][0][1] = run["diversity"]["dis"][1][0] = 0.09
    apart = our_frames([run])["matched"].set_index("metric").se["mean_dis"]
    assert alike == pytest.approx(np.sqrt(0.03 * 0.97 / 10_000)) and apart == pytest.approx(0.06 / np.sqrt(6))


def test_the_placement_of_dropout_is_part_of_the_question():
    """T4: in every block the order fits the coefficients. Before the classifier, the same p has no diversity."""
    runs = [diverse(Q8, 0.012, 0.04), diverse(Q95, 0.008, 0.03)]
    last = [diverse(P2, 0.001, 0.01), diverse(P5, 0.002, 0.01)]
    block = [diverse(P2, 0.017, 0.04, placement="block"), diverse(P5, 0.028, 0.07, placement="block")]
    alone = ours("T4", runs + block)
    assert (alone.status, alone.so_far) == ("not tested", "reproduced")
    both = ours("T4", runs + last + block)
    assert both.status == "not reproduced" and "(2 of 2 against it, +0.0160 to +0.0260)" in both.why


# --- what chance explains ---------------------------------------------------------------------------------------------


def test_a_rank_correlation_has_to_be_significant():
    """D5: -0.25 over seven rows is chance, -1 is not."""
    jsd = [7, 6, 5, 4, 3, 2, 1]
    assert rank_correlation(jsd, [1, 2, 3, 4, 5, 6, 7]) == (-1.0, 2 / 5040)
    weak = [3, 5, 2, 6, 1, 7, 4]
    found, p = rank_correlation(jsd, weak)
    assert found == pytest.approx(stats.spearmanr(jsd, weak).statistic) and p > 0.5
    assert rank_correlation(jsd, [1] * 7) == (None, 1.0)


@pytest.mark.parametrize(
    ("eces", "status"), [([1, 2, 3, 4, 5, 6, 7], "reproduced"), ([3, 5, 2, 6, 1, 7, 4], "unclear")]
)
def test_seven_rows_decide_if_chance_does_not_explain_them(eces, status):
    rows = zip(VARIED, eces, strict=True)
    runs = [diverse(row, 0.01 * (7 - k), 0.03, ece=0.01 * ece) for k, (row, ece) in enumerate(rows)]
    verdict = ours("D5", runs)
    assert verdict.status == status and "Spearman" in verdict.why
    assert ours("D5", runs[:6]).status == "not tested"


def printed(gap, count=45):
    """Printed accuracies that differ by `gap` standard errors in every cell."""
    places = [("made up", str(k)) for k in range(count)]
    values = {(*place, row, "accuracy"): Value(95 + m, 0.005, 0.2) for place in places for row, m in gap.items()}
    return Numbers(values, dict.fromkeys(values, 1)), places


def test_printed_differences_beyond_noise_are_corrected_for_their_number_too():
    """2.2 standard errors 45 times: by chance one of 45 would exceed 1.96, and none has to be real."""
    numbers, places = printed({Q8: 2.2 * np.hypot(0.2, 0.2), SINGLE: 0})
    same = each([Q8], [SINGLE], "accuracy", judge=unaffected, words=CONDITION)
    assert "45 unclear of 45" in decide(same(numbers, places), every, numbers, words=PAPERS).evidence
    better = each([Q8], [SINGLE], "accuracy", judge=significantly_better, words=CONDITION)
    assert "45 unclear of 45" in decide(better(numbers, places), every, numbers, words=PAPERS).evidence
    numbers, places = printed({Q8: 4 * np.hypot(0.2, 0.2), SINGLE: 0})
    assert decide(better(numbers, places), every, numbers, words=PAPERS).status == "holds"
    assert decide(same(numbers, places), every, numbers, words=PAPERS).status == "does not hold"


# --- times ------------------------------------------------------------------------------------------------------------


def timed(row, seconds, commit, **more):
    run = result(row, seconds=seconds, **more)
    return run | {"environment": run["environment"] | {"commit": commit}}


def test_times_of_two_versions_of_the_code_do_not_compare():
    """A11: MC-RReLU took 11 % longer with older code than Single with newer code."""
    old, new = [timed(RRELU, 222, "older"), timed(SINGLE, 200, "newer")], [timed(Q95, 201, "newer")]
    verdict = ours("A11", old + new)
    assert "1 yes of 1 (1.00×), 44 missing" in verdict.evidence and verdict.status == "not tested"
    assert "training time with the same code of MC-RReLU" in verdict.missing
    assert ours("A11", [timed(RRELU, 222, "newer"), *old[1:]]).status == "not reproduced"


def test_two_rows_compare_if_one_version_timed_both():
    """A11: two versions timed Single, and each of the two other rows shares another one with it."""
    singles = [timed(SINGLE, 200, "older"), *(timed(SINGLE, 300, "newer", seed=k) for k in (1, 2))]
    runs = [*singles, timed(RRELU, 202, "older"), timed(Q95, 306, "newer")]
    assert "2 yes of 2 (1.01× to 1.02×)" in ours("A11", runs).evidence
    assert "1 yes of 1 (1.02×)" in ours("A11", runs[1:]).evidence


def test_times_of_two_commits_compare_if_the_code_of_a_step_is_the_same():
    def coded(row, seconds, commit, code):
        return timed(row, seconds, commit) | {"trainings": [{"code": code, "hardware": "NVIDIA H200"}]}

    single, later = coded(SINGLE, 200, "older", "one"), coded(Q95, 201, "newer", "one")
    assert "1 yes of 1 (1.00×)" in ours("A11", [single, later]).evidence
    assert "yes" not in ours("A11", [single, coded(Q95, 201, "newer", "two")]).evidence
    torch = later | {"environment": later["environment"] | {"torch": "2.12"}}
    assert "yes" not in ours("A11", [single, torch]).evidence


def test_a_ratio_of_times_needs_one_version_in_each_place_only():
    """P3 compares MC-DropReLU over Single on one network with that on the next."""
    first = [timed(Q95, 202, "a"), timed(SINGLE, 200, "a")]
    dense = {"place": ("cifar10", "densenet121")}
    second = [timed(Q95, 600, "b", **dense), timed(SINGLE, 400, "b", **dense)]
    assert "1 yes of 1, 6 missing" in ours("P3", first + second).evidence
    second = [timed(Q95, 600, "b", **dense), timed(SINGLE, 400, "a", **dense)]
    assert "yes" not in ours("P3", first + second).evidence


def test_seeds_of_a_cell_are_timed_by_one_version():
    runs = [timed(Q95, s, c, seed=k) for k, (s, c) in enumerate([(300, "old"), (200, "new"), (202, "new")])]
    numbers = Numbers.of(our_frames(runs)["matched"])
    time = numbers.values[*C10, Q95, "time"]
    assert time.mean == pytest.approx(201) and [other.mean for other in time.also] == [300]
    assert [numbers.n[*C10, Q95, metric] for metric in ("time", "accuracy")] == [2, 3]


# --- the rules as the claims use them ---------------------------------------------------------------------------------


def test_claims_that_say_all_are_strict():
    assert all(PREDICATES[claim].rule is every for claim in ("A3", "A5", "A14", "F1", "F3", "B6"))


def test_half_of_the_cells_suffice_and_the_rest_is_named():
    places = EVERYWHERE[:5]
    runs = [result(row, place, ece=0.06 if row == SINGLE else 0.03) for place in places for row in [SINGLE, *PROPOSED]]
    verdict = ours("A14", runs)
    assert verdict.status == "reproduced" and verdict.why.endswith("; 25 of 45 comparisons have numbers.")
    assert "TinyImageNet" in verdict.missing
