"""The verdict follows the numbers: the paper's own, made-up ones, and none."""

import re
from dataclasses import replace
from statistics import fmean

import made_up
import numpy as np
import pytest
from conftest import PAPER, ROOT

from rbue.report import verdict
from rbue.report.bootstrap import Sampling, Scatter
from rbue.report.claims.numbers import BLOCK, Numbers, our_frames, paper_frame
from rbue.report.claims.scopes import P2, P5, Q9, Q95, SVI
from rbue.report.claims.values import Value
from rbue.report.figures import headline
from rbue.report.records import records
from rbue.report.rows import LABELS, PROPOSED
from rbue.report.verdict import NO, PARTLY, UNKNOWN, YES
from rbue.report.verdict.answers import IN_ACCURACY, IN_ECE, WORSE_IN_ACCURACY, WORSE_IN_ECE, answer_per_metric
from rbue.report.verdict.cost import inference_cost
from rbue.report.verdict.evidence import ENSEMBLE, SINGLE, Evidence, corrupted_passes, costs, gather, scores
from rbue.report.verdict.quality import baseline, beside_printed, signed
from rbue.runs.compose import canonical
from rbue.runs.results import collect

PRINTED = Numbers.of(paper_frame(PAPER))
OWN = "own", "net"  # a dataset and a network that the paper does not have
ERRORS = {"accuracy": 0.2, "ece": 0.002}
BASELINES, CORRUPTION = (
    ("Single", "MC-Dropout (dropout before the classifier)", "SVI"),
    "better calibrated under corruption than baselines",
)
DIVERSE = "more diverse than MC-Dropout"


def measured(change=lambda key, value: value):
    """The printed numbers as if they were measured, with a standard error, after `change`."""
    values = {key: Value(change(key, value.mean), se=ERRORS.get(key[3], 0.0)) for key, value in PRINTED.values.items()}
    return Evidence(replace(PRINTED, values=values), PRINTED)


def test_a_difference_that_rounds_to_zero_has_no_minus_sign():
    assert [signed(number, ".2f") for number in (-0.001, 0.0, -0.01)] == ["+0.00", "+0.00", "−0.01"]


def test_a_mean_of_printed_numbers_halfway_between_two_digits_is_rounded_up():
    places = [("cifar10", "vgg13"), ("cifar10", "resnet18")]
    for two, mean in (((0.065, 0.09), "0.078"), ((0.075, 0.09), "0.083")):
        values = {(*place, SVI, "ece"): Value(value) for place, value in zip(places, two, strict=True)}
        numbers = Numbers(values, {})
        assert beside_printed(SVI, [SVI], places, Evidence(numbers, numbers)).endswith(f"and {mean} in the paper. ")


def answers(evidence):
    return {finding.short: finding.answer for finding in verdict.findings(evidence)}


def about(short, evidence):
    return next(finding for finding in verdict.findings(evidence) if finding.short == short)


def shift(accuracy=0.0, ece=0.0):
    """Make the variants of RBUE better or worse than they are printed."""
    gains = {"accuracy": accuracy, "ece": ece}
    return measured(lambda key, value: value + (gains.get(key[3], 0) if key[2] in PROPOSED else 0))


def test_the_papers_own_numbers_are_reproduced_and_say_what_they_say():
    found = {finding.claim: finding for finding in verdict.findings(measured())}
    same = found["Are the printed numbers reproduced?"]
    assert same.answer == YES and "in 90 of 90 measured cells" in same.sentence
    ensemble = found["Is RBUE on par with Deep Ensemble?"]
    assert ensemble.answer == NO and "shows a lower accuracy (−1.29" in ensemble.sentence
    training = found["Is it cheap to train?"]
    assert training.answer == YES and "takes 1.21 times as long as training Single" in training.sentence
    assert found["Is it cheap at test time?"].answer == UNKNOWN  # the paper prints no test times


def test_the_verdict_says_which_differences_count_as_agreement():
    """With a standard error of 0.2 on our side, the binomial one on the paper's, and rounding."""
    sentence = verdict.findings(measured())[0].sentence
    errors = [
        np.hypot(0.2, value.se) for key, value in PRINTED.values.items() if key[3] == "accuracy" and key[2] in LABELS
    ]
    low, high = (0.005 + 1.96 * error for error in (min(errors), max(errors)))
    assert f"This allows {low:.2f} to {high:.2f} percentage points of accuracy" in sentence


def with_scatter(between):
    """The printed numbers as ours, 0.6 points better, as means over two seeds whose variance is known."""
    found = measured(lambda key, value: value + 0.6 * (key[3] == "accuracy"))
    scatter = Scatter(between, 0.0, 1000)
    samplings = {row: Sampling(np.zeros(2), seeds={scatter: 1 / (8 if row == ENSEMBLE else 2)}) for row in LABELS}
    values = {key: replace(value, sampling=samplings.get(key[2])) for key, value in found.ours.values.items()}
    return replace(found, ours=replace(found.ours, values=values, n=dict.fromkeys(values, 2)))


@pytest.mark.parametrize(("between", "agree"), [(0.04, 0), (0.09, 81), (0.2, 81), (0.3, 90)])
def test_cells_that_agree_are_also_counted_by_the_noise_of_seeds_alone(between, agree):
    """Our mean over two seeds and the paper's one: the error is √(between · 3/2), an ensemble's √(between · 3/8)."""
    sentence = verdict.findings(with_scatter(between))[0].sentence
    then = NO if agree < 45 else YES
    told = f"once, the accuracy agrees in {agree} cells and the ECE in 90; by this rule, the answer is “{then}”"
    assert told in sentence
    assert "noise of seeds" not in verdict.findings(measured())[0].sentence  # without predictions, it is not known


def test_better_rows_change_the_answers_and_worse_rows_change_them_back():
    def compared(**gains):
        found = answers(shift(**gains))
        return {found[short] for short in ("on par with Deep Ensemble", *(f"better than {row}" for row in BASELINES))}

    assert compared(accuracy=5, ece=-0.05) == {YES}
    assert compared(accuracy=-5, ece=0.05) == {NO}
    assert compared(accuracy=5, ece=0.05) == {WORSE_IN_ECE}
    assert compared(accuracy=-5, ece=-0.05) == {WORSE_IN_ACCURACY}
    assert verdict.findings(shift(accuracy=5))[0].answer == PARTLY  # half of the rows keep the printed numbers


def test_one_metric_alone_says_whether_the_other_one_is_worse():
    found = [answer_per_metric(accuracy, ece) for accuracy in (1, 0, -1) for ece in (1, 0, -1)]
    assert found == [YES, IN_ACCURACY, WORSE_IN_ECE, IN_ECE, NO, NO, WORSE_IN_ACCURACY, NO, NO]


def test_differences_that_holms_correction_undoes_are_named_below_the_table():
    """One p-value of 0.04 of eight: alone it counts, among eight it does not. Then seven of 0 and it again count."""
    chance = Value(0.2, se=0.2 / 2.054)
    sure = {f"ECE compared with {row}": Value(1.0, se=0.01) for row in "abcdefg"}
    doubtful = {f"ECE compared with {row}": Value(0.0, se=0.01) for row in "abcdefg"}
    said = "with Holm's correction for all 8, chance may explain 1 of them, accuracy compared with Single."
    assert legend_of(doubtful | {"accuracy compared with Single": chance}).endswith(said)
    assert "chance may explain" not in legend_of(sure | {"accuracy compared with Single": chance})
    assert said in verdict.in_full([finding_with(doubtful | {"accuracy compared with Single": chance})])


def test_what_chance_may_explain_does_not_decide_an_answer():
    found = shift(accuracy=5, ece=-0.05)
    assert answers(found)[f"better than {SINGLE}"] == YES
    lost = [f"accuracy compared with {SINGLE}", f"ECE compared with {SINGLE}"]
    careful = baseline(SINGLE, [SINGLE], replace(found, by_chance=lost))
    assert careful.answer == NO and careful.brief.count("(may be chance)") == 2


@pytest.mark.parametrize("variants", [[], PROPOSED[:1]])
def test_answers_exist_without_dropout_before_the_classifier(variants):
    """MC-Dropout is measured in every block alone, and no variant of RBUE or one."""
    found = in_blocks(90, 0.01, 1.0)
    kept = {k: v for k, v in found.ours.values.items() if k[2].endswith(BLOCK) or k[2] in variants}
    only = replace(found, ours=Numbers(kept, dict.fromkeys(kept, 1)))
    found = {finding.short: finding for finding in verdict.findings(only)}
    dropout = found[f"better than {BASELINES[1]}"]
    assert dropout.brief.startswith("With dropout in every block") and ("the variants" in dropout.brief) == bool(
        variants
    )
    assert found[DIVERSE].answer == (NO if variants else UNKNOWN)


def test_a_result_without_its_number_of_passes_has_no_test_time():
    found = measured()
    kept = {key: value for key, value in found.ours.values.items() if key[3] != "passes"}
    assert inference_cost(replace(found, ours=Numbers(kept, found.ours.n))).answer == UNKNOWN


def finding_with(gaps):
    return verdict.Finding("Is it better?", "better", NO, "It is not", "nothing", gaps, ())


def legend_of(gaps):
    return "\n".join(verdict.legend([finding_with(gaps)]))


def in_blocks(accuracy, ece, mean_jsd):
    """The printed numbers as ours, and those of MC-Dropout with dropout in every block of one network."""
    found, scores = measured(), {"accuracy": accuracy, "ece": ece, "mean_jsd": mean_jsd}
    more = {("cifar10", "resnet18", row + BLOCK, m): Value(value) for row in (P2, P5) for m, value in scores.items()}
    return replace(found, ours=Numbers(found.ours.values | more, found.ours.n | dict.fromkeys(more, 2)))


def test_dropout_in_every_block_is_told_where_it_is_measured():
    printed = [PRINTED.values["cifar10", "resnet18", row, "accuracy"].mean for row in PROPOSED]
    told = f"MC-Dropout(0.5) 90.00 % and ECE 0.010, the variants {min(printed):.2f} to {max(printed):.2f} % and ECE"
    found = {finding.short: finding for finding in verdict.findings(in_blocks(90, 0.01, 1.0))}
    dropout, diverse = found[f"better than {BASELINES[1]}"], found[DIVERSE]
    where = "ith dropout in every block on CIFAR-10 with ResNet-18"
    for text in (dropout.sentence, dropout.brief):
        assert f"{where}, n = 1 to 2: MC-Dropout(0.2) 90.00 %" in text and told in text
    assert f"{where} alone, n = 1 to 2: 0.0 for MC-RReLU" in diverse.brief and diverse.answer == PARTLY
    assert where not in verdict.in_full(verdict.findings(measured()))


def test_a_comparison_names_the_variants_with_the_lowest_and_the_highest_accuracy():
    gains = {"MC-RReLU": -1, "MC-DropReLU(0.9)": 2}
    flat = measured(lambda key, value: 90 + gains.get(key[2], 0) if key[3] == "accuracy" else value)
    for row in BASELINES:
        sentence = about(f"better than {row}", flat).sentence
        assert "accuracy ranges from −1.00 for MC-RReLU to +2.00 for MC-DropReLU(0.9), that in ECE from " in sentence


def test_a_comparison_names_the_variants_with_the_lowest_and_the_highest_ece():
    gains = {"MC-RReLU": 0.01, "MC-DropReLU(0.9)": -0.02}
    flat = measured(lambda key, value: 0.05 + gains.get(key[2], 0) if key[3] == "ece" else value)
    for row in BASELINES:
        sentence = about(f"better than {row}", flat).sentence
        assert "that in ECE from −0.020 for MC-DropReLU(0.9) to +0.010 for MC-RReLU. " in sentence


@pytest.mark.parametrize(("accuracy", "ece", "counts"), [(9, -0.5, (90, 0)), (-9, 0.5, (0, 90)), (9, 0.5, (0, 0))])
def test_wins_and_losses_in_both_metrics_are_counted(accuracy, ece, counts):
    sentence = about(f"better than {BASELINES[1]}", shift(accuracy, ece)).sentence
    won, lost = counts
    assert "each variant with MC-Dropout(0.2) or MC-Dropout(0.5) on each network. Of these 90 comparisons" in sentence
    told = f"better in both metrics in {won} and worse in both in {lost}"
    assert sentence.endswith(f"{told} (after Holm's correction)")


def test_a_baseline_is_shown_with_the_ece_that_the_paper_prints_for_it():
    better = measured(lambda key, value: 0.01 if key[2:] == ("SVI", "ece") else value)
    printed = np.mean([value.mean for key, value in PRINTED.values.items() if key[2:] == ("SVI", "ece")])
    found = {finding.claim: finding for finding in verdict.findings(better)}
    text = f"The mean ECE of SVI is 0.010 in these cells and {printed:.3f} in the paper."
    assert (
        text in found["Is it better than SVI?"].sentence
        and "of SVI" not in found["Is it better than MC-Dropout?"].sentence
    )


def test_a_gap_within_the_noise_is_called_so():
    gap = Value(0.1, se=0.2)
    assert verdict.compare({"accuracy": gap}) == (
        "no measurable difference in accuracy (+0.10 [−0.29, +0.49] percentage points)"
    )
    close = verdict.compare({"accuracy": Value(-0.188, se=0.0936)})  # −0.00 would hide on which side of zero it ends
    assert close == "a lower accuracy (−0.188 [−0.371, −0.005] percentage points)"
    better = verdict.compare({"ece": Value(0.02, se=0.001)})  # positive is better, so the ECE is lower
    assert better == "a lower ECE (−0.020 [−0.022, −0.018])"


def test_the_only_network_behind_an_answer_is_named():
    alone = {key: value for key, value in measured().ours.values.items() if key[:2] == ("cifar10", "resnet18")}
    finding = about("on par with Deep Ensemble", Evidence(Numbers(alone, PRINTED.n), PRINTED))
    assert "mean over CIFAR-10 with ResNet-18 alone, n = 1" in finding.sentence


FAST = "`fast` (30 epochs, weight decay 0.0005)"


def test_the_verdict_says_which_measured_cells_it_leaves_out():
    full = [made_up.result(row, where=("cifar10", "matched", "resnet18")) for row in ("Single", "SVI")]
    short = [made_up.result(row, where=("cifar10", "fast", arch)) for row, arch in (("Single", "resnet18"),)]
    both, whole = (verdict.build(made_up.read(runs), PAPER)[0].sentence for runs in ([*full, *short], full))
    assert whole.startswith("With the training protocol `matched` (200 epochs, weight decay 0.0005), our ")
    assert both == whole and "leave out" not in whole  # the same cell under a second protocol adds nothing
    short += [made_up.result(row, where=("cifar10", "fast", "densenet121")) for row in ("Single", "SVI")]
    sentence = verdict.build(made_up.read([*full, *short]), PAPER)[0].sentence
    added = "All answers about clean images leave out the 2 cells that are measured only with protocol"
    assert sentence == f"{whole}. {added} {FAST}: CIFAR-10 DenseNet-121"


def about_corruption(**rows_of):
    """Return the answer about corruption from runs named as `matched_resnet18=rows`."""
    runs = [
        made_up.corrupted(row, types=range(19), where=("cifar10", *place.split("_")))
        for place, rows in rows_of.items()
        for row in rows
    ]
    return {f.short: f.sentence for f in verdict.build(made_up.read(runs), PAPER)}[CORRUPTION]


def test_the_answer_about_corruption_uses_the_networks_of_other_protocols():
    rows, more = ("Single", "MC-RReLU"), ("Single", "MC-RReLU", "SVI")
    told = about_corruption(matched_resnet18=rows, fast_resnet18=more, fast_densenet121=rows)
    where = f"CIFAR-10 with DenseNet-121 and protocol {FAST}"
    assert told.startswith("On CIFAR-10 with ResNet-18, 1 of 5 variants are measured")
    assert f"Deep Ensemble(4), SVI. On {where}, where 1 of 5 variants are measured, the best variant's" in told
    assert "not used" not in told and "SVI's" not in told  # ResNet-18 counts with `matched` only
    assert about_corruption(matched_resnet18=rows, fast_densenet121=more).startswith(f"On {where}, 1 of 5 variants")


def test_the_answer_about_corruption_names_the_networks_that_it_does_not_use():
    told = about_corruption(matched_resnet18=("Single", "MC-RReLU"), fast_densenet121=("Single", "SVI"))
    added = f". Measured, but not used here, with protocol {FAST}: CIFAR-10 DenseNet-121"
    assert told.endswith(f"Deep Ensemble(4), SVI{added}")


def test_the_answer_about_corruption_names_the_networks_that_lack_a_type():
    runs = [
        made_up.corrupted(row, types=range(types), where=("cifar10", "matched", arch))
        for row in ("Single", "MC-RReLU")
        for arch, types in (("resnet18", 19), ("densenet121", 18))
    ]
    found = {f.short: f.sentence for f in verdict.build(made_up.read(runs), PAPER)}
    added = "Runs that lack some of the 19 types are not used (CIFAR-10 DenseNet-121: Single, MC-RReLU)"
    assert found[CORRUPTION].endswith(f"Deep Ensemble(4), SVI. {added}")


def test_only_incomplete_runs_under_corruption_are_told_too_and_only_those_that_would_count():
    where = {"where": ("cifar10", "matched", "resnet18")}
    runs = [made_up.corrupted(row, types=range(18), **where) for row in ("Single", "MC-RReLU", "MC-Dropout(0.2)")]
    runs += [made_up.corrupted("MC-DropReLU(0.8)", types=range(18), position="last", **where)]
    runs += [made_up.result("Single", **where)]
    found = {f.short: f for f in verdict.build(made_up.read(runs), PAPER)}[CORRUPTION]
    added = "Runs that lack some of the 19 types are not used (CIFAR-10 ResNet-18: Single, MC-RReLU)"
    assert found.answer == UNKNOWN and found.sentence.endswith(f"that this needs. {added}")
    again = made_up.corrupted("Single", types=range(19), seed=1, **where)
    found = {f.short: f for f in verdict.build(made_up.read([*runs, again]), PAPER)}
    assert found[CORRUPTION].sentence.endswith("(CIFAR-10 ResNet-18: MC-RReLU)")


def test_under_corruption_a_network_of_the_user_counts_only_alone():
    small, papers = (
        corrupted({"Single": 0.1, "MC-RReLU": ece}, arch) for ece, arch in ((0.2, "small"), (0.05, "vgg13"))
    )
    assert about(CORRUPTION, small).answer == NO
    values = small.ours.values | papers.ours.values
    finding = about(CORRUPTION, Evidence(Numbers(values, dict.fromkeys(values, 1)), PRINTED))
    assert finding.answer == YES and "small" not in finding.sentence


def test_a_network_of_the_user_changes_no_answer_about_the_paper():
    """On the user's network, the variants have other scores than on the paper's."""

    def of_user(numbers):
        own = {(*OWN, *key[2:]): value for key, value in numbers.items() if key[:2] == ("cifar10", "resnet18")}
        return {key: value * 3 if key[2] in PROPOSED else value for key, value in own.items()}

    def with_more(evidence, ece):
        places, cost = evidence.ours.places, {"test_ms_per_image": ece, "ece": ece, "tempered_ece": ece}
        cost |= {"hardware": "", "uncompiled": False}
        costs = {(*place, row): cost for place in places for row in LABELS}
        return replace(evidence, costs=costs, scores={p: {row: {"nll": ece, "n": 1} for row in LABELS} for p in places})

    paper = with_more(measured(), 0.1)
    own = with_more(replace(paper, ours=Numbers(of_user(paper.ours.values), of_user(paper.ours.n))), 0.3)
    ours = Numbers(paper.ours.values | own.ours.values, paper.ours.n | own.ours.n)
    both = replace(paper, ours=ours, costs=paper.costs | own.costs, scores=paper.scores | own.scores)
    assert verdict.findings(both) == verdict.findings(paper)
    assert "mean over own with net alone" in about("better than Single", own).sentence
    known = {key: value for key, value in paper.ours.values.items() if key[2] != PROPOSED[-1]}
    fewer, more = (replace(both, ours=Numbers(known | others, ours.n)) for others in ({}, own.ours.values))
    assert verdict.inference_cost(more) == verdict.inference_cost(fewer)


def test_nothing_measured_is_no_verdict():
    assert set(answers(Evidence(Numbers({}, {}), PRINTED)).values()) == {UNKNOWN}
    assert verdict.build([], PAPER) == []


def with_costs(ms, uncompiled=lambda place, row: False):
    costs = {
        (*place, row): {"hardware": "GPU", "uncompiled": uncompiled(place, row), "test_ms_per_image": ms.get(row, 1.0)}
        for place in PRINTED.places
        for row in LABELS
    }
    return replace(measured(), costs=costs)


def test_without_times_the_answer_names_what_they_need():
    finding = about("cheap at test time", measured())
    assert finding.answer == UNKNOWN and finding.sentence.startswith(verdict.NO_TIMES[1])
    assert verdict.NO_TIMES[1].endswith("with times from a GPU")


@pytest.mark.parametrize(("ensemble", "expected"), [(0.5, NO), (2.0, YES)])
def test_test_time_is_compared_with_deep_ensembles(ensemble, expected):
    finding = about("cheap at test time", with_costs({ENSEMBLE: ensemble}))
    assert finding.answer == expected and f"takes {1 / ensemble:.1f} times as long" in finding.sentence
    assert "compiled" not in finding.sentence


def test_test_times_of_compiled_and_other_passes_are_compared_only_if_there_is_no_better_pair():
    cells = len(PRINTED.places) * len(PROPOSED)
    finding = about("cheap at test time", with_costs({ENSEMBLE: 0.5}, lambda _, row: row == ENSEMBLE))
    told = "were compiled. If all passes took equally long, 100 passes would take 25 times as long as 4"
    variants = f"This favours the variants, since only the passes of the variants {told}"
    assert f"(median of {cells} cells, range 2.0). {variants}" in finding.sentence
    other = about("cheap at test time", with_costs({ENSEMBLE: 0.5}, lambda _, row: row != ENSEMBLE))
    assert f"This favours Deep Ensemble(4), since only the passes of Deep Ensemble(4) {told}" in other.sentence
    first = PRINTED.places[0]
    mixed = with_costs({ENSEMBLE: 0.5}, lambda place, row: row == ENSEMBLE and place != first)
    assert f"(median of {len(PROPOSED)} cells" in about("cheap at test time", mixed).sentence
    assert "compiled" not in about("cheap at test time", mixed).sentence


def corrupted(ece, arch="resnet18"):
    """Median ECEs per row, equal at all severities."""
    values = {("cifar10", arch, row, f"ece@{s}"): Value(value) for row, value in ece.items() for s in range(1, 6)}
    return Evidence(Numbers(values, dict.fromkeys(values, 1)), PRINTED)


def test_corruption_counts_severities():
    rows = {"Single": 0.3, "MC-Dropout(0.5)": 0.2, "Deep Ensemble(4)": 0.1, "MC-RReLU": 0.15}
    finding = about(CORRUPTION, corrupted(rows))
    assert finding.answer == PARTLY
    told = (
        "lower than Single's and MC-Dropout(0.5)'s at all 5 severities; it is at no severity lower than Deep Ensemble"
    )
    assert f"is {told}(4)'s. " in finding.sentence
    assert "Not measured there: SVI" in finding.sentence
    assert "(n = 1)" in finding.sentence
    seeds = {key: 3 if key[2] == "Single" else 1 for key in corrupted(rows).ours.values}
    several = replace(corrupted(rows), ours=Numbers(corrupted(rows).ours.values, seeds))
    assert "(n = 1; baselines: n = 1 to 3)" in about(CORRUPTION, several).sentence
    fewer = replace(corrupted(rows), corrupted_passes={("cifar10", "resnet18"): [20.0], ("cifar10", "vgg13"): [9.0]})
    assert "1 of 5 variants are measured (n = 1; 20 passes)" in about(CORRUPTION, fewer).sentence
    assert about(CORRUPTION, corrupted(rows | {"MC-RReLU": 0.05})).answer == YES
    in_blocks = about(CORRUPTION, corrupted(rows | {"MC-RReLU": 0.05, P5 + BLOCK: 0.01}))
    assert (
        in_blocks.answer == PARTLY
        and "at no severity lower than that of MC-Dropout(0.5) in every block" in in_blocks.sentence
    )
    assert about(CORRUPTION, corrupted(rows | {"MC-RReLU": 0.5})).answer == NO


def test_a_second_network_with_other_rows_takes_no_answer_away():
    most = corrupted({"Single": 0.3, "Deep Ensemble(4)": 0.1, "MC-RReLU": 0.15, "MC-DropReLU(0.95)": 0.2})
    begun = corrupted({"Single": 0.2, "MC-Dropout(0.5)": 0.2, "MC-DropReLU(0.9)": 0.1}, "vgg13")
    values = most.ours.values | begun.ours.values
    finding = about(CORRUPTION, Evidence(Numbers(values, dict.fromkeys(values, 1)), PRINTED))
    assert finding.sentence.startswith("On CIFAR-10 with ResNet-18, 2 of 5 variants are measured")
    added = "lower than Single's and MC-Dropout(0.5)'s at all 5 severities"
    added = f"On CIFAR-10 with VGG-13, where 1 of 5 variants are measured, the best variant's median ECE is {added}"
    assert finding.sentence.endswith(f"Not measured there: MC-Dropout(0.5), SVI. {added}")


def test_every_network_under_corruption_counts_for_the_answer():
    rows = {"Single": 0.3, "Deep Ensemble(4)": 0.2, "MC-RReLU": 0.1}
    assert about(CORRUPTION, corrupted(rows)).answer == YES
    values = corrupted(rows).ours.values | corrupted({"Single": 0.1, "MC-RReLU": 0.2}, "densenet121").ours.values
    assert about(CORRUPTION, Evidence(Numbers(values, dict.fromkeys(values, 1)), PRINTED)).answer == PARTLY


def test_svi_under_corruption_is_compared_once_it_is_measured():
    finding = about(CORRUPTION, corrupted({"Single": 0.3, "SVI": 0.1, "MC-RReLU": 0.2}))
    assert finding.answer == PARTLY and "at no severity lower than SVI's" in finding.sentence
    assert "0.100 for SVI" in finding.sentence and "Not measured there: MC-Dropout(0.5), Deep" in finding.sentence


@pytest.mark.parametrize(("trained", "tested", "known"), [("H200", "CPU", False), ("CPU", "H200", True)])
def test_a_test_time_of_a_cpu_is_no_cost_wherever_the_network_was_trained(trained, tested, known):
    run = made_up.result(SINGLE) | {"trainings": [{"hardware": trained}]}
    run["environment"] = run["environment"] | {"hardware": tested}
    assert bool(costs(made_up.read_records([run]))) == known


def test_passes_on_corrupted_images_are_counted_by_network():
    vgg = made_up.corrupted("MC-DropReLU(0.95)", where=("cifar10", "fast", "vgg13")) | {"passes": 9}
    known = made_up.corrupted("MC-RReLU") | {"passes": 20}
    unknown = made_up.corrupted("MC-DropReLU(0.9)") | {"passes": None}
    fewer = made_up.corrupted("MC-RReLU", samples=7) | {"passes": 7}  # the evaluation with most passes counts
    found = corrupted_passes(made_up.read_records([vgg, known, unknown, fewer, made_up.corrupted("SVI")]))
    passes = {("cifar10", "resnet18"): [20], ("cifar10", "vgg13"): [9]}
    assert {place: list(each) for place, each in found.items()} == passes


def test_networks_that_are_random_in_one_layer_do_not_count_as_tested_on_corrupted_images():
    whole = made_up.corrupted("MC-RReLU", types=range(19)) | {"passes": 20}
    last = made_up.corrupted("MC-DropReLU(0.8)", types=range(19), position="last") | {"passes": 5}
    elsewhere = made_up.corrupted("MC-DropReLU(0.8)", where=("cifar10", "paper", "vgg13"), position="last")
    results = made_up.read([whole, last, elsewhere])
    found = gather(results, PAPER, our_frames(results))
    assert [list(each) for each in found.corrupted_passes.values()] == [[20]] and not found.unused_corrupted


def test_a_divergence_of_zero_is_no_base_of_a_ratio():
    rows = {"MC-Dropout(0.5)": 0.0, "MC-RReLU": 0.1}
    values = {("cifar10", "resnet18", row, "mean_jsd"): Value(jsd) for row, jsd in rows.items()}
    assert about(DIVERSE, Evidence(Numbers(values, dict.fromkeys(values, 1)), PRINTED)).answer == UNKNOWN


RANKED = ("Which method has the lowest NLL?", "Which method detects out-of-distribution images best?")


def scored(nll, auroc=None):
    """Results of the rows of Tables 1-3 on one network, with these scores and otherwise 1.0 and 0.5."""
    found = [made_up.analysed(row) for row in LABELS]
    for row, each in zip(LABELS, found, strict=True):
        each["metrics"]["nll"] = nll.get(row, 1.0)
        each["ood"] = each["ood"] | {"auroc": auroc.get(row, 0.5)} if auroc else None
    return scores(made_up.read_records(found))


def test_the_best_row_in_nll_and_ood_detection_is_named_with_its_lead():
    nll, auroc = {"SVI": 0.25, "MC-RReLU": 0.5, ENSEMBLE: 0.75}, {"MC-DropReLU(0.9)": 0.875}
    last = verdict.findings(replace(measured(), scores=scored(nll, auroc)))[-2:]
    best = ("SVI", "MC-DropReLU(0.9)")
    assert [(finding.claim, finding.answer) for finding in last] == list(zip(RANKED, best, strict=True))
    assert last[0].sentence == (
        "Over CIFAR-10 with ResNet-18 alone, the mean NLL of SVI is 0.250 (−0.750 against Single, −0.500 against Deep "
        "Ensemble(4)); it is the best in 1 of 1 (n = 1). The best variant of RBUE, MC-RReLU, has 0.500 (−0.500 against "
        "Single, −0.250 against Deep Ensemble(4))"
    )
    third = verdict.findings(replace(measured(), scores=scored({ENSEMBLE: 0.25, "SVI": 0.5, "MC-RReLU": 0.75})))[-1]
    assert "(n = 1). The best method that trains one network, SVI, has 0.500 (−0.500" in third.sentence
    assert ". The best variant of RBUE, MC-RReLU, has 0.750 (" in third.sentence
    assert "0.875 (+0.375 against Single, +0.375 against Deep" in last[1].sentence
    assert "best variant" not in last[1].sentence  # it is the best of all
    assert [finding.brief for finding in last] == [
        "NLL of SVI 0.250; MC-RReLU 0.500, Deep Ensemble(4) 0.750, Single 1.000",
        "AUROC of the entropy of MC-DropReLU(0.9) 0.875; Deep Ensemble(4) 0.500, Single 0.500",
    ]
    assert "best?\n\n**MC-DropReLU(0.9).** Over" in verdict.in_full(last)


@pytest.mark.parametrize(("noise", "winner"), [(0.01, "SVI"), (0.2, "no clear winner")])
def test_the_lead_of_the_best_row_has_an_interval_where_predictions_are_stored(noise, winner):
    nll, place = {"SVI": 0.25, "MC-RReLU": 0.5}, ("cifar10", "resnet18")
    drawn = Sampling(np.random.default_rng(0).normal(0, noise, 1000))
    fixed = Sampling(np.zeros(1000))
    more = {(*place, row, "nll"): Value(value, sampling=drawn if row == "SVI" else fixed) for row, value in nll.items()}
    known = replace(PRINTED, values=PRINTED.values | more)
    ranked = verdict.findings(replace(measured(), ours=known, scores=scored(nll)))[-1]
    told = re.search(r"−0\.250 \[−(0\.\d+), ([−+]0\.\d+)\] against the next best, MC-RReLU; it is the", ranked.sentence)
    assert float(told[1]) == pytest.approx(0.25 + 1.96 * noise, rel=0.1) and (told[2][0] == "+") == (noise > 0.1)
    assert ranked.answer == winner and ranked.brief.startswith("NLL of SVI 0.250, −0.250 [−0.")


def test_of_the_papers_methods_only_its_rows_can_be_the_best():
    single, ivon = made_up.result("Single"), canonical("cifar10", "fast", "ivon")
    own = single | {"name": "ivon", "config": ivon.identity | {"arch": "resnet18"}}
    found = made_up.read_records([single, own, made_up.result("MC-DropReLU(0.9)", q=0.7)])
    assert set(found.row) == {"Single", "IVON", "MC-DropReLU(0.7)"}
    assert set(scores(found)["cifar10", "resnet18"]) == {"Single", "IVON"}


def test_a_score_that_a_row_lacks_has_no_line_in_the_verdict():
    only_nll = verdict.findings(replace(measured(), scores=scored({})))
    assert RANKED[0] in {finding.claim for finding in only_nll}
    assert RANKED[1] not in {finding.claim for finding in only_nll}
    fewer = {place: {row: rows[row] for row in LABELS[:-1]} for place, rows in scored({}).items()}
    assert len(verdict.findings(replace(measured(), scores=fewer))) == len(verdict.QUESTIONS)


@pytest.fixture(scope="module")
def committed():
    return collect(ROOT / "results" / "runs")


@pytest.fixture(scope="module")
def evidence(committed):
    return gather(committed, PAPER, our_frames(committed))


def test_the_readme_opens_with_the_verdict_that_the_committed_results_give(evidence):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = text.split(verdict.BEGIN)[1].split(verdict.END)[0].strip()
    assert shown == verdict.markdown(verdict.findings(evidence)), "run 'make claims'"


def test_the_readmes_advice_follows_from_the_committed_results(committed, evidence):
    """The advice is written by hand, so new results may contradict it: then rewrite it."""
    advice = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split("**Should you use it?**")[1].split())
    runs = records(committed).query("protocol == 'matched' and not corrupted and row in @LABELS")
    scored = runs.groupby(["dataset", "arch", "row"])[["accuracy", "ece", "nll", "brier"]].mean()
    pairs = {place: rows.droplevel([0, 1]) for place, rows in scored.groupby(["dataset", "arch"])}
    complete = {place: rows for place, rows in pairs.items() if set(LABELS) <= set(rows.index)}
    assert "on all four dataset-network pairs where we measured all rows" in advice and len(complete) == 4
    for place, rows in complete.items():
        rows = rows * [1, -1, -1, -1]  # the larger the better
        assert (rows.loc[PROPOSED] < rows.loc[ENSEMBLE]).all(axis=None), place
        assert (rows.loc[PROPOSED, "ece"] < rows.loc[SVI, "ece"]).all(), place
        single, *known = evidence.values(place, [SINGLE, Q9, Q95], "accuracy")
        assert not any((value - single).sign for value in known), place

    def mean(row, kind):
        return fmean(evidence.costs[*place, row][kind] for place in complete)

    assert mean(SINGLE, "tempered_ece") < min(mean(row, "ece") for row in PROPOSED)
    assert all(mean(row, "ece_10") - mean(row, "ece") < 0.005 for row in PROPOSED)
    costs = [pair for row in PROPOSED for pair in evidence.cost_pairs("test_ms_per_image", row, ENSEMBLE)]
    assert all(one["test_ms_per_image"] > two["test_ms_per_image"] for one, two in costs)
    place, dropout = ("cifar10", "resnet18"), runs_in_blocks(committed)
    ours = {metric: [pairs[place].loc[row, metric] for row in PROPOSED] for metric in ("accuracy", "ece", "nll")}
    assert "It had a lower ECE and NLL than RBUE and was as accurate" in advice
    assert all(dropout[metric] < min(ours[metric]) for metric in ("ece", "nll"))
    assert dropout["accuracy"] > max(ours["accuracy"])
    found = " ".join((ROOT / "docs" / "findings.md").read_text(encoding="utf-8").split())
    assert (
        f"it has {dropout['accuracy']:.2f} %, an ECE of {dropout['ece']:.3f} and an NLL of {dropout['nll']:.3f} with "
        f"p = 0.2" in found
    )
    assert (
        f"The five variants of RBUE have {min(ours['accuracy']):.2f} to {max(ours['accuracy']):.2f} %, "
        f"{min(ours['ece']):.3f} to {max(ours['ece']):.3f} and {min(ours['nll']):.3f} to {max(ours['nll']):.3f}."
    ) in found


def runs_in_blocks(committed):
    return (
        records(committed)
        .query("protocol == 'matched' and not corrupted and row == 'MC-Dropout(0.2) in every block'")
        .iloc[0]
    )


@pytest.mark.parametrize("arch", ["vgg13", "resnet18"])
@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_the_readmes_advice_on_ood_images_follows_from_the_committed_results(dataset, arch, evidence):
    auroc = {row: cell["auroc"] for row, cell in evidence.scores[dataset, arch].items() if row in LABELS}
    assert max(auroc, key=auroc.get) == ENSEMBLE
    if dataset == "cifar10":
        assert all(auroc[SINGLE] < auroc[row] < auroc[SVI] for row in PROPOSED)
    else:
        assert all(abs(auroc[row] - auroc[SINGLE]) < 0.015 for row in [SVI, *PROPOSED])


def test_the_headline_figure_counts_as_the_verdict_does(committed, evidence):
    sentence = verdict.findings(evidence)[0].sentence
    cells = headline.compared(records(committed), PAPER)
    accuracy, ece = (headline.agree(cells, metric).sum() for metric in ("accuracy", "ece"))
    assert f"in {accuracy} of {len(cells)} measured cells" in sentence and f"our ECE in {ece}." in sentence


def test_a_table_has_one_line_per_question_with_a_link_to_all_that_is_known():
    found = verdict.findings(measured())
    text, full = verdict.markdown(found), verdict.in_full(found)
    lines = [line for line in text.splitlines() if line.startswith("| [")]
    for line, finding in zip(lines, found, strict=True):
        assert line.startswith(f"| [{finding.claim}](results/claims.md#{finding.address}) | **")
        assert f'<a id="{finding.address}"></a>\n\n### {finding.claim}\n\n**' in full and finding.sentence in full
    assert "| **No** | Best variant: accuracy −1.29 [" in lines[1]
    assert "| **Not measured** | No network has all the rows that this needs, with times" in lines[6]
    assert text.startswith(
        "**RBUE is better than Single, better than MC-Dropout (dropout before the classifier), better than SVI and "
        "cheap to train. It is not"
    )
    assert "We did not measure whether it is cheap at test time or better calibrated under corruption" in text
    assert (
        "### Is RBUE on par with Deep Ensemble?\n\n**No.** Compared" in full
        and "Claims: [A15](#a15), [A1](#a1)." in full
    )


def test_the_numbers_in_the_table_are_those_of_the_details():
    rows = {"Single": 0.3, "MC-Dropout(0.5)": 0.2, "Deep Ensemble(4)": 0.1, "MC-RReLU": 0.15, "MC-DropReLU(0.9)": 0.14}
    found = [*verdict.findings(with_costs({ENSEMBLE: 0.5})), about(CORRUPTION, corrupted(rows))]
    found.append(verdict.findings(with_scatter(0.09))[0])
    briefs = [finding for finding in found if finding.brief]
    assert len(briefs) == len(verdict.QUESTIONS) + 1
    for finding in briefs:
        numbers = re.findall(r"[−+]?\d+(?:\.\d+)?", finding.brief)
        assert numbers and not [number for number in numbers if number not in finding.sentence], finding.brief
    assert briefs[-2].brief == (
        "median ECE at severity 5 on CIFAR-10 with ResNet-18 (n = 1): MC-RReLU 0.150, MC-DropReLU(0.9) 0.140, "
        "Single 0.300, MC-Dropout(0.5) 0.200, Deep Ensemble(4) 0.100"
    )
    assert briefs[-1].brief.endswith("; by a stricter rule, in 81 and 90 (then the answer is “yes”)")


def test_every_link_of_the_readme_into_the_page_of_claims_has_a_target():
    readme, page = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "results/claims.md"))
    links = re.findall(r"\(results/claims\.md#([^)]+)\)", readme)
    assert len(links) >= len(verdict.QUESTIONS) and not [link for link in links if f'<a id="{link}"></a>' not in page]


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ((YES, NO, PARTLY), "RBUE is fast. It is not good. Only in some comparisons, it is cheap"),
        (
            (NO, PARTLY, UNKNOWN),
            "RBUE is not fast. Only in some comparisons, it is good. We did not measure whether it is cheap",
        ),
        ((PARTLY, PARTLY, PARTLY), "Only in some comparisons, RBUE is fast, good and cheap"),
        ((IN_ECE, IN_ECE, NO), "RBUE is not cheap. It is fast and good in ECE, but not in accuracy"),
        ((IN_ACCURACY, YES, YES), "RBUE is good and cheap. It is fast in accuracy, but not in ECE"),
        (
            (WORSE_IN_ECE, IN_ECE, YES),
            "RBUE is cheap. It is good in ECE, but not in accuracy. It is fast in accuracy, but worse in ECE",
        ),
    ],
)
def test_the_first_sentence_in_short_names_rbue(answers, text):
    words = zip(("fast", "good", "cheap"), answers, strict=True)
    assert verdict.in_short([verdict.Finding("", short, answer, "", "", {}, ()) for short, answer in words]) == text
