"""The ledger agrees with the numbers: the paper's as computed by hand, ours with errors, missing cells named."""

import random
import re
from itertools import product

import made_up
import numpy as np
import pytest
from commands import call, call_without_torch
from conftest import PAPER, ROOT

from rbue.report import claims
from rbue.report.claims import algebra, markdown
from rbue.report.claims import numbers as claimed
from rbue.report.claims.ledger import load, on_ours
from rbue.report.claims.numbers import PAPERS_IMAGES, Numbers, paper_frame
from rbue.report.claims.predicates import PREDICATES
from rbue.report.claims.rules import PAPERS, decide
from rbue.report.claims.scopes import C10, DE, EVERYWHERE, P2, P5, Q8, Q95, RRELU, SINGLE, SVI, TINY_DENSE
from rbue.report.claims.text import judged, short, shown
from rbue.report.claims.values import Value, binomial
from rbue.report.rows import LABELS, PROPOSED
from rbue.report.verdict import BEGIN, END, in_full
from rbue.report.verdict import build as answer
from rbue.runs.results import collect

CLAIMS = load(PAPER)
A14 = "| [A14](#a14) | (implied) Every variant of RBUE has a better ECE than a single softmax network |"
LEDGER = {entry.id: entry for entry in claims.build([], PAPER)}

# Where the rule decides otherwise than the hand, each with a note in claims.json.
DIFFER = dict.fromkeys(["P1", "P5", "P7", "D5", "D6"], "undecided") | {"A2": "holds", "P9": "holds", "B3": "partly"}


# --- the paper's own numbers ------------------------------------------------------------------------------------------


def test_there_are_58_claims_and_each_is_decided_one_way():
    assert len({claim["id"] for claim in CLAIMS}) == len(CLAIMS) == 58
    computed = PREDICATES.keys() | algebra.ALGEBRA.keys()
    assert computed <= {claim["id"] for claim in CLAIMS}
    for claim in CLAIMS:
        assert claim["decided_from"] in ("numbers", "algebra", "reading"), claim["id"]
        assert (claim["id"] in computed) or claim["decided_from"] == "reading", claim["id"]
        assert claim["where"] and claim["decided_by"] and (claim.get("why") or claim["evidence"])


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim["id"])
def test_the_verdict_on_the_papers_numbers_is_the_one_by_hand(claim):
    verdict = LEDGER[claim["id"]].paper
    assert verdict.status == DIFFER.get(claim["id"], claim["verdict"])
    assert verdict.status in ("holds", "partly", "does not hold", "undecided") and verdict.why.endswith(".")


def test_every_verdict_that_differs_has_a_note():
    assert {claim["id"] for claim in CLAIMS if "note" in claim} >= DIFFER.keys()


COUNTED_BY_HAND = [
    ("T5", "ECE 6 win / 2 tie / 1 loss of 9"),
    ("T5", "on CIFAR accuracy 0 win / 0 tie / 6 loss of 6"),
    ("A1", "row by row ECE 0 win / 11 tie / 19 loss of 30"),
    ("A1", "row by row accuracy 0 win / 0 tie / 30 loss of 30"),
    ("A1", "best ECE on par with Deep Ensemble: 4 yes / 2 no of 6"),
    ("A1", "(-1.35 to -0.80 pp)"),
    ("A2", "accuracy better than the best other baseline's 5 win / 0 tie / 1 loss of 6"),
    ("A2", "ECE better than the best other baseline's 6 win / 0 tie / 0 loss of 6"),
    ("A3", "accuracy 17 win / 1 tie / 30 loss of 48"),
    ("A3", "ECE 23 win / 22 tie / 3 loss of 48"),
    ("A3", "training time 0 win / 0 tie / 48 loss of 48"),
    ("A3", "better in both accuracy and ECE: 11 yes / 37 no of 48"),
    ("A3", "loss of 24 (-0.93 to +0.33 pp), beyond rounding and noise 0 / 21 / 3"),  # 3 of 24 are significantly worse
    ("A3", "loss of 24 (-0.010 to +0.000), beyond rounding and noise 0 / 24 / 0"),  # no ECE difference exceeds rounding
    ("A4", "4 yes / 2 no of 6"),
    ("A5", "ECE 3 win / 2 tie / 1 loss of 6"),
    ("A8", "(1.00× to 1.07×)"),
    ("A8", "(1.05× to 1.39×)"),
    ("A9", "45 yes of 45 (2.41×"),
    ("A11", "(1.00× to 1.66×)"),
    ("A12", "CIFAR-10 accuracy 2 win / 0 tie / 13 loss of 15 (-0.68"),
    ("A12", "CIFAR-100 accuracy 7 win / 0 tie / 8 loss of 15"),
    ("A12", "TinyImageNet accuracy 15 win / 0 tie / 0 loss of 15"),
    ("A13", "accuracy better than SVI's 44 win / 0 tie / 1 loss of 45"),
    ("A13", "ECE better than SVI's 41 win / 4 tie / 0 loss of 45"),
    ("A13", "on CIFAR alone accuracy better than MC-Dropout's 21 win / 1 tie / 38 loss of 60"),
    ("A14", "ECE 45 win / 0 tie / 0 loss of 45"),
    ("A15", "at most as many test passes as Deep Ensemble: 45 no of 45 (25.00×)"),
    ("B1", "accuracy on par with Deep Ensemble: 2 no of 2 (-2.45 to -1.69 pp)"),
    ("B2", "accuracy: 4 yes / 6 unclear of 10 (-0.19 to +3.19 pp)"),  # of 5 beyond 1.96 errors, 4 survive Holm
    ("B2", "(-0.050 to +0.000)"),
    ("B4", "(2.41×"),
    ("B5", "ECE 3 win / 0 tie / 0 loss of 3 (-0.050 to -0.010), beyond rounding and noise 1 / 2 / 0"),
    ("B7", "than on CIFAR-10 +0.053"),  # (.11 + .08 + .03) / 3 - .02
    ("D3", "MC-RReLU's Mean-JSD 1 win / 0 tie / 1 loss of 2"),
    ("D5", "Spearman's correlation of Mean-JSD and ECE over seven rows -0.50 (unclear)"),
    ("D6", "SVI's Max-DIS within 3 SE of Mean-DIS 5.1 SE (unclear)"),
    ("D6", "every other row's Max-DIS within 3 SE of Mean-DIS: 6 yes of 6 (0.0 SE to 2.1 SE)"),
    ("P3", "6 yes / 1 unclear of 7"),
    ("P4", "same training time 0.92× (no)"),
    ("P5", "accuracy 20 win / 0 tie / 16 loss of 36"),
    ("P5", "ECE 7 win / 12 tie / 17 loss of 36"),
    ("P6", "accuracy on par with Deep Ensemble -0.80 pp (no)"),
    ("P8", "accuracy between the two: 22 yes / 14 no of 36"),
    ("P9", "accuracy 8 win / 0 tie / 1 loss of 9"),
    ("X8", "6 no of 30"),  # four DropReLU rows and SVI of DenseNet-121, SVI of VGG-13
]


@pytest.mark.parametrize(("claim", "count"), COUNTED_BY_HAND, ids=lambda value: value if len(value) < 4 else "")
def test_the_code_counts_what_was_counted_by_hand(claim, count):
    assert count in LEDGER[claim].paper.evidence


def test_two_networks_decide_about_the_spread_of_the_ece_and_are_named():
    values = Numbers.of(paper_frame(PAPER)).values
    for left, evidence in (
        (("vgg13", "resnet18"), ", with VGG-13 and ResNet-18 +0.075 (yes)"),  # (.11 + .08) / 2 - .02
        (("vgg13",), ""),
    ):
        known = {key: value for key, value in values.items() if key[1] in left}
        verdict = on_ours({"id": "B7"}, {"matched": Numbers(known, dict.fromkeys(known, 1))})["matched"]
        assert verdict.evidence.endswith(evidence) and bool(verdict.evidence) == bool(evidence)


def test_what_only_a_figure_shows_is_undecided_and_names_the_cells():
    assert LEDGER["F3"].paper.missing == "CIFAR-10 DenseNet-121: ECE under corruption of all 6 rows"


def test_claims_by_reading_are_marked_and_give_their_reason():
    found = shown(LEDGER["X3"].paper)
    assert judged(found).startswith("**does not hold** (by reading). The winner drew a number from U(3, 8)")
    assert "Xu et al. 2015" in found["numbers"]


# --- when two numbers differ ------------------------------------------------------------------------------------------


def test_a_printed_win_has_to_clear_the_rounding_of_both_sides():
    def ece(mean):
        return Value(mean, half=0.005)

    assert (ece(0.04) - ece(0.03)).sign == 1  # rounding keeps order
    assert (ece(0.03) - ece(0.03)).sign == 0
    assert (Value(63.0, half=0.5) - Value(63.39, half=0.005)).sign == 0  # .63 is not 63.00
    assert (ece(0.04) - ece(0.03)).beyond == 0  # the true difference may be nearly zero
    assert (ece(0.05) - ece(0.03)).beyond == 1


def test_a_measured_win_has_to_exceed_two_standard_errors_of_the_difference():
    assert (Value(95.5, se=0.2) - Value(95.0, se=0.2)).sign == 0
    assert (Value(95.6, se=0.2) - Value(95.0, se=0.2)).sign == 1
    assert 100 * binomial(0.95, 10_000) == pytest.approx(0.218, abs=1e-3)


def test_the_papers_test_sets_have_the_size_of_the_data():
    from rbue.data.sources import DATASETS

    assert {DATASETS[name].test for name in ("cifar10", "cifar100", "tinyimagenet")} == {PAPERS_IMAGES}


# --- our results ------------------------------------------------------------------------------------------------------


def build(results):
    return claims.build(made_up.read(results), PAPER)


def our_frames(results):
    return claimed.our_frames(made_up.read(results))


def result(
    label,
    place=C10,
    protocol="matched",
    accuracy=0.95,
    ece=0.03,
    seconds=200.0,
    hardware="H200",
    images=10_000,
    **changes,
):
    """A made-up result, whose costs are those of its number of members."""
    dataset, arch = place
    members = 4 if label == LABELS[3] else 1
    return made_up.result(label, accuracy, ece, (dataset, protocol, arch), **changes) | {
        "seconds": {"train": seconds * members, "evaluate": 1.0},
        "images": images,
        "parameters": 1000 * members * (2 if label == SVI else 1),
        "trainings": members * [{"hardware": hardware, "engine": "captured"}],
        "environment": {"hardware": hardware, "engine": "eager" if label in (SINGLE, LABELS[3]) else "captured"},
    }


def diverse(label, jsd, dis, **more):
    """A result with four samples whose pairs all differ by the same amount."""
    matrices = {"jsd": jsd, "dis": dis}
    off_diagonal = {n: [[v * (i != j) for j in range(4)] for i in range(4)] for n, v in matrices.items()}
    return result(label, **more) | {"diversity": off_diagonal}


def renamed(content, **settings):
    """The same with another config and name. The suite refuses a run of such settings."""
    return content | {"name": f"{content['name']}-again", "config": content["config"] | settings}


def corrupted(label, eces, types=19, source="generated", **more):
    levels = [{"severity": s, "accuracy": 0.8 - s / 20, "ece": e, "nll": 1.0} for s, e in enumerate(eces, 1)]
    levels_of = {f"type {i}": levels for i in range(types)}
    return result(label, **more) | {"corruptions": {"source": source, "types": levels_of}}


def ours(claim, results, protocol="matched"):
    """The verdict on one claim, without the other 57."""
    numbers = {name: Numbers.of(frame) for name, frame in our_frames(results).items()}
    return on_ours({"id": claim}, numbers)[protocol]


def test_a_claim_is_reproduced_when_every_cell_is_there_and_wins():
    eces = {SINGLE: 0.06} | dict.fromkeys(PROPOSED, 0.03)
    runs = [result(label, place, ece=ece) for place, (label, ece) in product(EVERYWHERE, eces.items())]
    verdict = ours("A14", runs)
    assert (verdict.status, verdict.missing, verdict.seeds) == ("reproduced", "", "n = 1")
    assert verdict.evidence == "ECE 45 win / 0 tie / 0 loss of 45 (-0.030)"
    assert verdict.why == "ECE: 45 of 45 for it (-0.030)."


def test_a_counterexample_decides_whatever_is_still_missing():
    verdict = ours("A14", [result(SINGLE, ece=0.03), result(Q8, ece=0.06)])
    assert verdict.status == "not reproduced" and "1 loss of 1 (+0.030), 44 missing" in verdict.evidence
    assert "CIFAR-10 ResNet-18: 4 of 6 rows" in verdict.missing


def test_without_a_counterexample_it_is_not_tested_and_says_what_there_is():
    verdict = ours("A14", [result(SINGLE, ece=0.06), result(Q8, ece=0.03)])
    assert (verdict.status, verdict.so_far) == ("not tested", "reproduced")
    assert "CIFAR-100, TinyImageNet" in verdict.missing
    assert verdict.why == "Only 1 of 45 comparisons have numbers: 1 of 1 for it."
    assert judged(shown(verdict)).startswith("**not tested** (so far reproduced). Only")
    assert "0 loss of 1 (-0.030), 44 missing" in shown(verdict)["numbers"]


def test_a_difference_within_noise_is_a_tie():
    verdict = ours("P6", [result(Q95, accuracy=0.9530), result(P2, accuracy=0.95), result(P5, accuracy=0.951)])
    assert "accuracy better than MC-Dropout's 0 win / 2 tie / 0 loss of 2 (+0.20 to +0.30 pp)" in verdict.evidence


def test_seeds_that_scatter_make_the_error_larger_and_are_counted():
    runs = [result(Q95, accuracy=a, seed=seed) for seed, a in enumerate((0.93, 0.95, 0.97))]
    frame = our_frames([*runs, result(P2)])["matched"]
    cell = frame[(frame.row == Q95) & (frame.metric == "accuracy")].iloc[0]
    assert cell.n == 3 and cell.value == pytest.approx(95)
    assert cell.se == pytest.approx(np.hypot(2 / np.sqrt(3), 0.218), rel=0.01)
    assert ours("P6", [*runs, result(P2)]).seeds == "n = 1 to 3"


def test_a_network_evaluated_twice_is_one_seed():
    twice = [result(Q95), renamed(result(Q95), corruptions="generated")]
    frame = our_frames(twice)["matched"]
    assert (frame.n == 1).all()


def test_of_two_corrupted_evaluations_the_one_with_more_samples_counts():
    few, many = (
        made_up.corrupted(
            "SVI", types=range(19), accuracy=accuracy, samples=n, where=("cifar10", "matched", "resnet18")
        )
        for n, accuracy in ((20, 0.8), (100, 0.9))
    )
    alone, both = (our_frames(runs)["matched"].set_index("metric").value for runs in ([many], [few, many]))
    assert "accuracy@1" in alone.index and alone.equals(both)
    assert not our_frames([few])["matched"].set_index("metric").value.equals(alone)


def test_without_the_number_of_test_images_nothing_is_told_apart():
    """Our own dataset has its own number of images."""
    known, unknown = (our_frames([result(SINGLE, images=n)])["matched"].set_index("metric").se for n in (100, None))
    assert known["accuracy"] == pytest.approx(100 * binomial(0.95, 100)) and np.isnan(unknown["accuracy"])
    assert (Value(99.0, se=unknown["accuracy"]) - Value(50.0)).sign == 0


def test_the_results_behind_a_cell_are_beside_it():
    runs = claimed.our_runs(made_up.read([result(Q8, seed=s) for s in (0, 1)] + [result(Q8, position="last")]))
    behind = runs.groupby("row").result.apply(lambda results: [r.config["seed"] for r in results])
    assert dict(behind) == {Q8: [0, 1], f"{Q8}@all": [0, 1], f"{Q8}@last": [0]}


def test_a_shortened_run_decides_nothing():
    assert our_frames([result(Q95, epochs=2)]) == {}


def test_times_of_another_machine_are_left_out():
    runs = [result(SINGLE), result(Q8), result(Q95, seconds=9.0, hardware="laptop")]
    numbers = Numbers.of(our_frames(runs)["matched"])
    assert all((*C10, row, "time") in numbers.values for row in (SINGLE, Q8))
    assert (*C10, Q95, "time") not in numbers.values
    assert (*C10, Q95, "accuracy") in numbers.values


def test_times_of_a_cpu_which_may_be_busy_are_left_out():
    runs = [result(row, hardware="x86_64 CPU, 2 threads") for row in (SINGLE, Q8)]
    numbers = Numbers.of(our_frames(runs)["matched"])
    assert (*C10, Q8, "accuracy") in numbers.values and (*C10, Q8, "time") not in numbers.values
    numbers = Numbers.of(our_frames([*runs, result(SVI, seconds=9.0)])["matched"])  # one GPU among several CPUs
    assert numbers.values[*C10, SVI, "time"].mean == 9.0


def test_diversity_comes_from_the_matrices():
    runs = [diverse(Q8, 0.017, 0.044), diverse(Q95, 0.008, 0.026), diverse(RRELU, 0.002, 0.010)]
    assert ours("T6", runs).status == "reproduced"
    assert ours("T6", [diverse(Q8, 0.001, 0.044), *runs[1:]]).status == "not reproduced"
    assert ours("T6", runs[:2]).missing == "CIFAR-10 ResNet-18: MC-RReLU"
    assert ours("T6", [*runs[:2], result(RRELU)]).missing == (
        "CIFAR-10 ResNet-18: Mean-JSD of MC-RReLU, Mean-DIS of MC-RReLU"
    )


def test_the_diversity_of_a_run_on_corrupted_images_does_not_count():
    """An ensemble has as many passes on corrupted images as on clean ones, so nothing else tells the runs apart."""
    runs = [diverse(DE, 0.02, 0.04), diverse(DE, 0.03, 0.06, place=("cifar10_c", "resnet18"))]
    assert Numbers.of(our_frames(runs)["matched"]).values[*C10, DE, "mean_jsd"].mean == pytest.approx(0.02)


def test_positions_are_rows_of_their_own():
    where = {"place": ("tinyimagenet", "densenet121")}
    runs = [diverse(Q8, 0.02, 0.1, ece=0.04, seconds=300, **where)]
    runs += [diverse(Q8, 0.01, 0.1, ece=0.06, seconds=200, position=p, **where) for p in ("first", "last")]
    assert ours("P1", runs).status == ours("P2", runs).status == "reproduced"
    runs[-1] = diverse(Q8, 0.03, 0.1, ece=0.06, position="last", **where)  # more diverse than all layers
    named = "MC-DropReLU(0.8) in all layers compared with MC-DropReLU(0.8) in the last layer on TinyImageNet"
    assert named in ours("P1", runs).why
    missing = "TinyImageNet DenseNet-121: MC-DropReLU(0.8) in the last layer"
    assert ours("P1", runs[:-1]).missing == missing


def test_a_claim_measured_only_elsewhere_is_not_tested_but_asked_there():
    """The paper's corruption figures use DenseNet-121; ours may use ResNet-18."""
    eces = {LABELS[3]: 0.05, RRELU: 0.10, Q95: 0.10, SINGLE: 0.2, P5: 0.2, SVI: 0.2}
    runs = [corrupted(label, [ece * s for s in range(1, 6)]) for label, ece in eces.items()]
    for claim in ("F2", "F3"):
        verdict = ours(claim, runs)
        assert verdict.status == "not tested" and verdict.missing == "everything on CIFAR-10 DenseNet-121"
        assert (verdict.elsewhere.status, verdict.elsewhere.where) == ("reproduced", "CIFAR-10 ResNet-18")
    assert ours("F3", runs).why.startswith(
        "Nothing is measured on CIFAR-10 DenseNet-121. On CIFAR-10 ResNet-18, it is reproduced. It holds for "
    )
    assert short(ours("F3", runs)) == "not tested (elsewhere reproduced)"
    few = ours("F3", [run for run in runs if run["config"]["method"] != "svi" and run["config"].get("p") != 0.5])
    assert "On CIFAR-10 ResNet-18, too little is measured (so far reproduced). Only 25 of 55 comparisons" in few.why
    assert short(few) == "not tested (elsewhere so far reproduced)"
    assert ours("F1", runs).elsewhere.status == "not reproduced"  # it says 'consistently', and is not on par once
    jsd = {Q8: 0.02, Q95: 0.02, RRELU: 0.002, P2: 0.01, P5: 0.01}
    partly = ours("D3", [diverse(label, value, 0.04, place=("cifar10", "vgg13")) for label, value in jsd.items()])
    assert "On CIFAR-10 VGG-13, it is partly reproduced. It holds for MC-DropReLU's Mean-JSD" in partly.why


def test_a_claim_whose_own_network_has_other_rows_is_not_called_unmeasured():
    eces = {LABELS[3]: 0.05, RRELU: 0.10, Q95: 0.10, SINGLE: 0.2, P5: 0.2, SVI: 0.2}
    runs = [corrupted(label, [ece * s for s in range(1, 6)]) for label, ece in eces.items()]
    verdict = ours("F3", [*runs, result(SINGLE, ("cifar10", "densenet121"))])
    assert verdict.why.startswith("On CIFAR-10 DenseNet-121, no comparison has all its numbers. On CIFAR-10 ResNet-18,")
    assert verdict.missing == "CIFAR-10 DenseNet-121: 5 of 6 rows, ECE under corruption of Single"


def test_a_claim_with_one_side_of_a_comparison_is_not_called_unmeasured():
    """B8 compares VGG-13 with two networks. B7 needs all ten rows of two networks on two datasets."""
    vgg = result(SINGLE, ("tinyimagenet", "vgg13"))
    assert ours("B8", [vgg]).why == ours("B7", [vgg]).why == "No comparison has all its numbers."
    assert ours("B8", [vgg]).missing == "TinyImageNet ResNet-18/DenseNet-121: Single"
    assert ours("B8", [result(SVI, ("tinyimagenet", "vgg13"))]).why == "None of it is measured."


def test_results_without_an_answer_leave_the_readme_as_it_is(tmp_path):
    made_up.write(tmp_path / "runs", [made_up.result("Single", epochs=2)])
    readme = tmp_path / "README.md"
    readme.write_text(text := f"a\n{BEGIN}\nb\n{END}\nc")
    done = call("scripts/claims.py", "--results", tmp_path / "runs", "--out", tmp_path / "x.md", "--readme", readme)
    assert done.returncode and "keeps its own" in done.stderr and readme.read_text() == text


def test_medians_are_over_all_19_corruptions_or_not_at_all():
    assert ours("F3", [corrupted(SINGLE, [0.1] * 5, types=18), corrupted(Q95, [0.1] * 5)]).elsewhere is None


def test_scores_on_images_of_two_sources_are_not_compared():
    """Two rows on generated images, one on official ones. On another dataset, all are official and stay."""
    runs = [corrupted(row, [0.1] * 5) for row in (Q95, SINGLE)]
    runs += [corrupted(RRELU, [0.1] * 5, source="official")]
    runs += [corrupted(RRELU, [0.1] * 5, source="official", place=TINY_DENSE)]
    values = Numbers.of(our_frames(runs)["matched"]).values
    shifted = [(place, row) for place in (C10, TINY_DENSE) for row in LABELS if (*place, row, "ece@1") in values]
    assert shifted == [(C10, SINGLE), (C10, Q95), (TINY_DENSE, RRELU)]
    assert (*C10, RRELU, "ece") in values  # its clean numbers count


def test_of_two_sources_of_one_network_the_usual_one_counts_whatever_its_passes():
    runs = [corrupted(row, [0.1] * 5) for row in (Q95, SINGLE)]
    other = renamed(corrupted(Q95, [0.4] * 5, source="official"), corruptions="official") | {"passes": 200}
    values = Numbers.of(our_frames([*runs, other])["matched"]).values
    assert values[(*C10, Q95, "ece@1")].mean == pytest.approx(0.1)


def test_a_corrupted_test_set_brings_no_clean_numbers():
    run = corrupted(Q95, [0.1] * 5)
    run["config"] |= {"dataset": "cifar10_c", "corruptions": "generated"}
    assert set(our_frames([run])["matched"].metric) == {f"{m}@{s}" for m in ("accuracy", "ece") for s in range(1, 6)}


def test_parameters_are_counted_where_the_paper_prints_none():
    verdict = ours("A7", [result(label, place) for label, place in product(LABELS, EVERYWHERE)])
    assert verdict.status == "partly"
    # SVI has a mean and a deviation per weight
    assert "4 times the parameters: 72 yes / 9 no of 81 (2.00× to 4.00×)" in verdict.evidence


def test_few_test_images_do_not_make_everything_on_par():
    digits = ("digits", "small")
    runs = [result(label, digits, "demo", accuracy=0.97, images=360) for label in [LABELS[3], *PROPOSED]]
    verdict = ours("A1", runs, "demo").elsewhere
    assert verdict.status == "unclear" and "on par with Deep Ensemble +0.00 pp (unclear)" in verdict.evidence


def test_a_claim_the_digits_decide():
    digits = ("digits", "small")
    verdict = ours("A9", [result(label, digits, "demo") for label in [LABELS[3], *PROPOSED]], "demo")
    assert (verdict.elsewhere.status, verdict.elsewhere.where) == ("reproduced", "digits small")


def test_the_same_predicate_on_the_papers_numbers_as_ours_gives_the_same_counts():
    """The paper's table as runs on one huge test set: noise then allows the same conclusions as rounding."""
    paper = paper_frame(PAPER)
    exact = Numbers.of(paper.assign(half=0.0, se=0.0))
    for claim in ("A3", "A14", "P5", "T5"):
        predicate = PREDICATES[claim]
        verdict = decide(predicate.check(exact, predicate.scope), predicate.rule, exact, words=PAPERS)
        # Printed, P5's counts may be chance. Without any noise, every difference is real: for it here, against there.
        assert verdict.status == ("partly" if claim == "P5" else LEDGER[claim].paper.status)
        counts = re.findall(r"\d+ win / \d+ tie / \d+ loss of \d+", LEDGER[claim].paper.evidence)
        assert counts == re.findall(r"\d+ win / \d+ tie / \d+ loss of \d+", verdict.evidence)


# --- the page and the command -----------------------------------------------------------------------------------------


COUNTED = "holds 11, partly 15, does not hold 11, undecided 9"


def test_the_page_counts_at_the_top_and_has_a_section_per_claim():
    page = markdown(build([result(SINGLE)]))
    top, _, rest = page.partition("## How a verdict is made")
    assert f"| The paper's own numbers: 46 claims | {COUNTED} |" in top
    assert "| Our numbers, protocol `matched`: 42 claims | not tested 42 |" in top
    assert re.findall(r"^### (\w+) ", rest, re.M) == [claim["id"] for claim in CLAIMS]
    assert rest.count("<details>") == rest.count("</details>") == 58
    assert max(map(len, page.splitlines())) < 2000


def test_the_index_has_one_linked_line_per_claim_with_the_verdicts_under_the_first_protocol():
    runs = [result(SINGLE, ece=0.06), result(Q8, ece=0.03), result(SINGLE, protocol="fast")]
    page = markdown(build(runs))
    lines = page.partition("| Id | Claim | Paper | Ours, `matched` |\n")[2].partition("\n\n")[0].splitlines()[1:]
    assert [line.split("](#")[0] for line in lines] == [f"| [{claim['id']}" for claim in CLAIMS]
    assert all(line.count(" | ") == 3 and f'<a id="{line.split("#")[1].split(")")[0]}"></a>' in page for line in lines)
    assert f"{A14} holds | not tested (so far reproduced) |" in lines
    assert any(line.endswith("| does not hold (by reading) | – |") for line in lines)
    assert "| Id | Claim | Paper | Ours |" in markdown(list(LEDGER.values()))


def test_the_index_adds_the_verdict_of_another_protocol_if_the_first_does_not_test_the_claim():
    short = [result(row, ece=ece, protocol="fast") for row, ece in ((SINGLE, 0.03), (Q8, 0.06))]
    page = markdown(build([result(SINGLE), *short]))
    assert f"{A14} holds | not tested; `fast`: not reproduced |" in page
    both = markdown(build([result(SINGLE, ece=0.03), result(Q8, ece=0.06), *short]))
    assert f"{A14} holds | not reproduced |" in both


def test_a_card_has_the_papers_words_and_one_verdict_with_its_reason_per_side():
    cards = {card["id"]: card for card in claims.cards(build([result(SINGLE, ece=0.03), result(Q8, ece=0.06)]))}
    card = cards["A14"]
    assert card["quote"] is None and card["where"] == "Implied in 4.2; Tables 1 to 3"
    assert (card["paper"]["verdict"], card["paper"]["why"]) == ("holds", "ECE: 45 of 45 for it (-0.090 to -0.010).")
    (side,) = card["ours"]
    assert (side["protocol"], side["verdict"]) == ("matched", "not reproduced")
    assert side["why"] == "ECE (+0.030) is against it; 1 of 45 comparisons have numbers."
    assert "1 loss of 1 (+0.030), 44 missing" in side["numbers"] and side["numbers"].endswith("n = 1, unpaired")
    assert cards["X3"]["ours"] == [] and cards["X3"]["quote"].startswith("Suggested by the NDSB")


def test_every_quote_is_on_the_page_word_by_word():
    page = markdown(list(LEDGER.values()))
    quotes = [claim["quote"] for claim in CLAIMS if "quote" in claim]
    assert len(quotes) == 52 and all(quote in page for quote in quotes)


def test_a_shorter_training_than_the_papers_is_named_beside_its_verdicts():
    short, full = (markdown(build([result(SINGLE, protocol=p)])) for p in ("fast", "matched"))
    assert "Protocol `fast` trains for 30 epochs, the paper for 200 (TinyImageNet 150)" in short
    assert "the paper for 200" not in full


def test_the_command_writes_the_same_bytes_twice_without_torch_or_paths(tmp_path):
    runs = [result(SINGLE, seed=s, accuracy=0.94 + s / 100) for s in range(2)] + [diverse(Q8, 0.01, 0.03)]
    folder = made_up.write(tmp_path / "a", runs)
    said = call_without_torch("scripts/claims.py", "--results", folder, "--out", tmp_path / "one.md", "--print")
    page = (tmp_path / "one.md").read_text()
    random.Random(0).shuffle(runs)
    assert page == markdown(build(runs), in_full(answer(made_up.read(runs), PAPER)))
    assert str(tmp_path) not in page and str(ROOT) not in page
    assert COUNTED in said


def test_nothing_measured_leaves_the_papers_verdicts():
    page = markdown(list(LEDGER.values()))
    assert "Our numbers" not in page and "17 win / 1 tie / 30 loss of 48" in page


def test_the_committed_page_is_what_the_committed_results_give():
    """Run `make claims` after every new result to keep this true."""
    committed = ROOT / "results" / "claims.md"
    if not committed.exists():
        pytest.skip("no page committed yet")
    runs = collect(ROOT / "results" / "runs")
    built = markdown(claims.build(runs, PAPER), in_full(answer(runs, PAPER)))
    assert committed.read_text() == built, "run 'make claims'"
