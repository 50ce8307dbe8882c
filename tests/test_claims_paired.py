"""Claims on rows that share their test images: paired over images, and corrected for many comparisons."""

from dataclasses import replace

import made_up
import numpy as np
import pytest
from scipy import stats
from test_claims import our_frames, ours, result

from rbue.report.bootstrap import Sampling, Scatter
from rbue.report.claims.checks import CONDITION, aside, each, on_par, unaffected
from rbue.report.claims.numbers import Numbers
from rbue.report.claims.predicates import PREDICATES
from rbue.report.claims.rules import decide, degree, every
from rbue.report.claims.scopes import C10, DE, Q8, Q95
from rbue.report.claims.text import shown
from rbue.report.claims.values import Value, binomial, holm
from rbue.runs.predictions import Predictions, ece
from rbue.runs.schema import read


def kept(folder, entry, right, confidence=0.95):
    """The same result, read back with predictions that are correct on these images."""
    label = np.arange(len(right)) % 10
    columns = {"label": label, "predicted": np.where(right, label, (label + 1) % 10)}
    columns |= dict.fromkeys(("entropy", "sample_entropy"), np.zeros(len(right)))
    columns |= {"brier": np.full(len(right), entry["metrics"]["brier"])}
    sure = np.full(len(right), confidence)
    stored = Predictions(**columns, confidence=sure, true_probability=np.where(right, sure, 0.01))
    own = {"accuracy": float(right.mean()), "ece": float(ece(stored))}
    path = made_up.write(folder, [entry | {"metrics": entry["metrics"] | own}])
    with open(path / entry["name"] / "predictions.npz", "wb") as file:
        stored.save(file)
    return read(path / entry["name"] / "result.json")


def right_but(*wrong, images=10_000):
    right = np.ones(images, bool)
    for images_of in wrong:
        right[images_of] = False
    return right


HARD = slice(0, 500)  # every network is wrong on these


def better_and_worse(folder):
    """A run of q = 0.95 that is right on 60 images where one of q = 0.8 is wrong, and wrong on 20: +0.40 pp."""
    right = {Q95: right_but(slice(0, 440), slice(1000, 1020)), Q8: right_but(HARD)}
    return [kept(folder / label, result(label), images) for label, images in right.items()]


def test_what_is_a_tie_unpaired_is_told_apart_on_the_same_images(tmp_path):
    runs = better_and_worse(tmp_path)
    paired, unpaired = ours("P9", runs), ours("P9", [replace(run, folder=None) for run in runs])
    assert "0 win / 1 tie / 0 loss of 1 (+0.40 pp)" in unpaired.evidence and unpaired.judged == "unpaired"
    assert "1 win / 0 tie / 0 loss of 1 (+0.40 pp)" in paired.evidence and paired.judged == "paired over images"
    assert shown(paired)["numbers"].endswith("n = 1, paired over images")
    mixed = ours("P9", [runs[0], replace(runs[1], folder=None)])
    assert mixed.evidence == unpaired.evidence and mixed.judged == "unpaired"


def test_the_paired_error_is_that_of_the_images_that_differ(tmp_path):
    runs = better_and_worse(tmp_path)
    numbers = Numbers.of(our_frames(runs)["matched"])
    gap = numbers.values[(*C10, Q95, "accuracy")] - numbers.values[(*C10, Q8, "accuracy")]
    assert gap.error == pytest.approx(100 * np.sqrt(80) / 10_000, rel=0.05)
    assert gap.p == pytest.approx(2 * stats.norm.sf(gap.mean / gap.error))


def test_seeds_that_scatter_count_when_paired_too(tmp_path):
    """Only the seed varies: q = 0.95 is correct on 9,400, 9,500 and 9,600 images."""
    own = [right_but(slice(0, n)) for n in (600, 500, 400)]
    runs = [kept(tmp_path / str(k), result(Q95, seed=k), right) for k, right in enumerate(own)]
    runs += [kept(tmp_path / f"q{k}", result(Q8, seed=k), right_but(slice(0, 580))) for k in range(3)]
    numbers = Numbers.of(our_frames(runs)["matched"])
    gap = numbers.values[(*C10, Q95, "accuracy")] - numbers.values[(*C10, Q8, "accuracy")]
    assert gap.error == pytest.approx(1 / np.sqrt(3), rel=0.05)  # half the variance on each side: both vary alike
    assert gap.sampling.freedom == pytest.approx(4, rel=0.1)
    assert list(gap.sampling.seeds.values()) == [pytest.approx(2 / 3)]
    assert (gap.sign, ours("P9", runs).seeds) == (0, "n = 3")


@pytest.mark.parametrize(("wrong", "tells"), [((300, 400, 500, 600), False), ((450, 450, 450, 450), True)])
def test_a_difference_counts_only_if_it_exceeds_what_seeds_do(tmp_path, wrong, tells):
    """q = 0.95 and q = 0.8 have one seed each and differ by 0.40 pp. Single has four, which scatter or do not."""
    runs = better_and_worse(tmp_path)
    runs += [kept(tmp_path / str(k), result("Single", seed=k), right_but(slice(0, n))) for k, n in enumerate(wrong)]
    assert ("1 win / 0 tie / 0 loss of 1" in ours("P9", runs).evidence) == tells


def test_an_ensemble_varies_less_over_seeds_than_its_members(tmp_path):
    singles = [result("Single", seed=k) for k in range(4)]
    runs = [kept(tmp_path / str(k), each, right_but(slice(0, 300 + 100 * k))) for k, each in enumerate(singles)]
    runs += [kept(tmp_path / label, result(label), right_but(HARD)) for label in (DE, Q8)]
    cells = our_frames(runs)["matched"].set_index(["row", "metric"]).sampling
    weights = [list(cells[row, "accuracy"].seeds.values()) for row in ("Single", DE, Q8, f"{Q8}@all")]
    assert weights == [[1 / 4], [1 / 4], [1], [1]]
    scatter = next(iter(cells[Q8, "accuracy"].seeds))
    assert scatter.between == pytest.approx(5 / 3) and scatter.freedom == 3


def scatters(tmp_path, *rows, metric="accuracy", **changes):
    """{(dataset, network, row): its Scatters of a metric}, for rows (label, dataset, network, {seed: errors})."""
    runs = []
    for number, (label, dataset, arch, errors) in enumerate(rows):
        for seed, wrong in errors.items():
            entry = result(label, (dataset, arch), seed=seed, **changes)
            runs.append(kept(tmp_path / f"{number}-{seed}", entry, right_but(slice(0, wrong))))
    cells = our_frames(runs)["matched"]
    cells = cells[cells.metric == metric].set_index(["dataset", "arch", "row"])
    return cells.sampling.map(lambda sampling: sampling.seeds)


def test_all_rows_and_networks_of_a_dataset_vary_alike_and_other_datasets_by_themselves(tmp_path):
    rows = [("Single", "cifar10", "resnet18", {0: 300, 1: 400}), (Q8, "cifar10", "vgg13", {0: 300, 1: 500, 2: 400})]
    found = scatters(tmp_path, *rows, ("Single", "cifar100", "resnet18", {0: 300, 1: 900}), (Q95, *C10, {0: 400}))
    (ten, weight), (hundred, _) = (*found[*C10, Q95].items(), *found["cifar100", "resnet18", "Single"].items())
    assert weight == 1 and found["cifar10", "vgg13", Q8] == {ten: 1 / 3} and found[*C10, "Single"] == {ten: 1 / 2}
    assert ten.between == pytest.approx((0.5 * 1 + 1 * 2) / 3) and ten.freedom == 3  # variances 0.5 and 1 of 1 pp
    assert hundred.between == pytest.approx(18) and hundred.freedom == 1


def test_ensembles_tell_how_their_members_vary(tmp_path):
    found = scatters(tmp_path, (DE, *C10, {0: 400, 1: 500}))[*C10, DE]
    assert [(s.between, s.freedom, w) for s, w in found.items()] == [(pytest.approx(2), 1, 1 / 8)]


@pytest.mark.parametrize(("metric", "freedom"), [("accuracy", 4), ("ece", 3)])
def test_the_ece_of_ensembles_does_not_tell_how_one_network_varies(metric, freedom, tmp_path):
    rows = [(DE, *C10, {0: 400, 1: 500}), ("Single", *C10, {0: 300, 1: 400, 2: 500, 3: 600})]
    found = scatters(tmp_path, *rows, metric=metric)
    assert {(s.freedom, w) for s, w in found[*C10, DE].items()} == {(freedom, 1 / 8)}
    assert {(s.freedom, w) for s, w in found[*C10, "Single"].items()} == {(freedom, 1 / 4)}


@pytest.mark.parametrize(("changes", "rows"), [({}, [Q8, f"{Q8}@all"]), ({"position": "last"}, [f"{Q8}@last"])])
def test_a_row_at_one_position_counts_and_a_row_at_all_positions_counts_once(tmp_path, changes, rows):
    found = scatters(tmp_path, (Q8, *C10, {0: 400, 1: 500}), **changes)
    assert [sorted(s.freedom for s in found[*C10, row]) for row in rows] == [[1]] * len(rows) == [[1]] * len(found)


def test_a_difference_of_unknown_error_undoes_no_other():
    assert Value(1.0, se=float("nan")).p == 1.0
    assert holm([0.2, 1.0, 0.001, 0.03]) == [False, False, True, False]


def test_ensembles_of_two_seeds_count_as_two():
    """They have no common member. The seeds of accuracy .950 and .954 have a standard deviation of .4 / √2 points."""
    runs = [result(DE, seed=seed, accuracy=0.95 + seed * 0.004) for seed in (0, 1)]
    error = our_frames(runs)["matched"].set_index("metric").se["accuracy"]
    assert error == pytest.approx(np.hypot(100 * binomial(0.952, 10_000), 0.4 / 2), rel=0.01)


def test_holms_correction_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == [True, False, False, True]  # .005 ≤ .05/4, .01 ≤ .05/3, .03 > .05/2
    assert holm([0.05, 0.0125, 0.025, 0.0166]) == [True] * 4  # each is at or below .05/1, .05/4, .05/2 and .05/3
    assert holm([0.05]) == [True] and holm([]) == []


@pytest.mark.parametrize("freedom", [1, 2, 5])
def test_an_interval_with_few_degrees_of_freedom_is_students(freedom):
    scatter = Scatter(between=4.0, own=0.0, freedom=freedom)
    value = Value(1.0, sampling=Sampling(np.zeros(2), seeds={scatter: 1.0}))
    assert value.reach == pytest.approx(2 * stats.t.ppf(0.975, freedom))
    assert replace(value, mean=value.reach).p == pytest.approx(0.05)
    assert [replace(value, mean=share * value.reach).sign for share in (-1.01, 0.99, 1.01)] == [-1, 0, 1]


def test_the_rounding_of_a_ratio_is_that_of_its_extremes():
    ratio = Value(4.0, half=0.05) / Value(2.0, half=0.05)
    assert ratio.mean == 2 and ratio.half == pytest.approx((4.05 / 1.95 - 3.95 / 2.05) / 2, rel=0.01)


def many(gap, count=20):
    """Places where q = 0.95 is better than q = 0.8 by `gap` standard errors, at one of them by ten."""
    places = [("made up", str(k)) for k in range(count)]
    means = {place: gap if k else 10 for k, place in enumerate(places)}
    values = {(*p, Q95, "accuracy"): Value(m, se=1.0) for p, m in means.items()}
    values |= {(*p, Q8, "accuracy"): Value(0.0) for p in places}
    return Numbers(values, dict.fromkeys(values, 1)), places


def scaled(numbers, factor):
    return Numbers({key: value * factor for key, value in numbers.values.items()}, numbers.n)


@pytest.mark.parametrize(("gap", "counts", "undone"), [(2.2, "1 win / 19 tie", 19), (4.0, "20 win / 0 tie", 0)])
def test_of_many_comparisons_in_a_claim_only_what_survives_the_correction_counts(gap, counts, undone):
    numbers, places = many(gap)
    verdict = decide(PREDICATES["P9"].check(numbers, places), PREDICATES["P9"].rule, numbers)
    assert counts in verdict.evidence
    assert verdict.judged == "unpaired" + (f", {undone} undone by the correction" if undone else "")


def test_where_no_difference_is_the_claim_one_that_may_be_chance_is_unclear():
    numbers, places = many(2.2)
    for judge in (on_par, unaffected):
        worse = each([Q8], [Q95], "accuracy", judge=judge, words=CONDITION)
        assert "19 unclear / 1 no of 20" in decide(worse(scaled(numbers, 0.2), places), degree, numbers).evidence


def test_where_no_difference_is_the_claim_what_is_none_without_a_correction_stays_one():
    numbers, places = many(1.5)
    for judge in (on_par, unaffected):
        worse = each([Q8], [Q95], "accuracy", judge=judge, words=CONDITION)
        assert "19 yes / 1 no of 20" in decide(worse(scaled(numbers, 0.2), places), degree, numbers).evidence
        assert "19 unclear / 1 no of 20" in decide(worse(numbers, places), degree, numbers).evidence  # large error


def test_evidence_beside_the_verdict_and_printed_numbers_are_not_corrected():
    numbers, places = many(2.2)
    beside = decide(aside(each([Q95], [Q8], "accuracy"))(numbers, places), every, numbers)
    assert "20 win" in beside.evidence and beside.judged == ""
    printed = Numbers({key: replace(v, half=0.005) for key, v in numbers.values.items()}, numbers.n)
    found = decide(each([Q95], [Q8], "accuracy")(printed, places), every, printed)
    assert "20 win" in found.evidence and found.judged == ""
