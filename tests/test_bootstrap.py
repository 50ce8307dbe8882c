"""Paired intervals cover what they should, over images and over seeds, in simulations with fixed seeds."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from rbue.report.bootstrap import RESAMPLES, Sampling, Scatter, mean_of, pool, replicates, scatter_of, weights
from rbue.report.claims.values import Value
from rbue.runs import predictions as kept

METRICS = ("accuracy", "ece", "nll")
IMAGES = 200


def network(rng, skill, trust, seeds=0.2):
    """One training of a method: its skill varies from seed to seed."""
    return SimpleNamespace(skill=skill + seeds * rng.standard_normal(), trust=trust)


class Stored(SimpleNamespace):
    """What is stored of each image's prediction, as in rbue.runs.predictions."""

    loss = foreign_entropy = None


def draw_images(rng, images=IMAGES):
    """The difficulty of each image: a common part, and a part for each of two methods."""
    return rng.standard_normal((3, images)) * [[1.5], [0.5], [0.5]]


def predict(rng, network, images, method=1):
    """Predict with a network's own chance on each image. Its confidence is calibrated if trust = 1."""
    ease = network.skill + images[0] + images[method] + 0.7 * rng.standard_normal(images.shape[1])
    right = rng.random(images.shape[1]) < 1 / (1 + np.exp(-ease))
    confidence = 0.1 + 0.9 / (1 + np.exp(-network.trust * ease))
    truth = np.where(right, confidence, 0.3 * (1 - confidence))
    label = np.zeros(images.shape[1], int)
    return Stored(label=label, predicted=label + ~right, confidence=confidence, true_probability=truth)


def metrics_of(p):
    return {"accuracy": kept.correct(p).mean(), "ece": kept.ece(p), "nll": kept.loss(p).mean()}


def of_seeds(predictions):
    """{metric: (value of each seed, Sampling of each seed)}."""
    values, drawn = [metrics_of(p) for p in predictions], [replicates(p) for p in predictions]
    return {metric: ([v[metric] for v in values], [d[metric] for d in drawn]) for metric in METRICS}


def difference(rng, ours, theirs, third=()):
    """{metric: ours - theirs}, means over seeds. All methods with several seeds tell how seeds vary."""
    images = draw_images(rng)
    methods = [
        of_seeds([predict(rng, n, images, min(k, 2)) for n in each])
        for k, each in enumerate((ours, theirs, third), 1)
        if each
    ]
    return {metric: gap_of(*(each[metric] for each in methods)) for metric in METRICS}


def gap_of(ours, theirs, *others):
    several = [scatter_of(*each) for each in (ours, theirs, *others) if len(each[0]) > 1]
    sides = []
    for values, samplings in (ours, theirs):
        seeds = {pool(several): 1 / len(values)} if several else {}
        sides.append(Value(np.mean(values), sampling=replace(mean_of(samplings), seeds=seeds)))
    return sides[0] - sides[1]


def coverage(differences):
    """The share of intervals that contain the mean over all simulations."""
    truth = np.mean([gap.mean for gap in differences])
    return np.mean([abs(gap.mean - truth) <= gap.reach for gap in differences])


def test_replicates_of_an_auroc_vary_as_that_of_resampled_images():
    """To first order, which suffices for hundreds of images. Two networks share their images, so they are paired."""
    rng = np.random.default_rng(0)
    ease = rng.standard_normal(400), rng.standard_normal(300) + 1
    found, entropies = [], []
    for _ in range(2):
        entropy, foreign = (np.round(side + 0.5 * rng.standard_normal(len(side)), 1) for side in ease)  # with ties
        prediction = predict(rng, network(rng, 1.0, 1.0), draw_images(rng, 400))
        prediction.entropy, prediction.foreign_entropy = entropy, foreign
        found.append(replicates(prediction)["auroc"])
        entropies.append((entropy, foreign))
    chosen = [[rng.integers(len(side), size=len(side)) for side in ease] for _ in range(1000)]
    drawn = np.array([[kept.auroc(one[a], two[b]) for one, two in entropies] for a, b in chosen])
    assert found[0].error == pytest.approx(drawn[:, 0].std(), rel=0.08)
    assert (found[0] + found[1] * -1).error == pytest.approx((drawn[:, 0] - drawn[:, 1]).std(), rel=0.08)


# --- coverage ---------------------------------------------------------------------------------------------------------

METHODS = {"skill": 1.0, "trust": 1.0}, {"skill": 1.2, "trust": 1.7}  # one calibrated, one overconfident


def test_one_seed_a_side_covers_these_two_networks_on_other_images():
    rng = np.random.default_rng(0)
    ours, theirs = (network(rng, **method) for method in METHODS)
    found = [difference(rng, [ours], [theirs]) for _ in range(400)]
    for metric in METRICS:
        assert 0.93 <= coverage([each[metric] for each in found]) <= 0.985, metric


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_several_seeds_cover_the_methods(seeds):
    rng = np.random.default_rng(seeds)
    sides = [[[network(rng, **method) for _ in range(seeds)] for method in METHODS] for _ in range(400)]
    found = [difference(rng, *networks) for networks in sides]
    for metric in METRICS:
        assert coverage([each[metric] for each in found]) >= 0.93, metric


@pytest.mark.parametrize("counts", [(1, 4, 0), (1, 1, 4)])
def test_a_row_with_one_seed_varies_as_the_others_do(counts):
    """The usual case: four seeds of Single, one of every other row. Without the seeds, the interval is too narrow."""
    rng = np.random.default_rng(sum(counts))
    methods = {"skill": 1.0, "trust": 1.0}, {"skill": 1.0, "trust": 1.7}, {"skill": 1.1, "trust": 1.3}
    trained = list(zip(methods, counts, strict=True))
    rows = [[[network(rng, **m, seeds=0.6) for _ in range(n)] for m, n in trained] for _ in range(250)]
    gaps = [difference(rng, *networks)["accuracy"] for networks in rows]
    truth, images = np.mean([g.mean for g in gaps]), [1.96 * g.sampling.draws.std() for g in gaps]
    assert coverage(gaps) >= 0.93
    assert np.mean([abs(g.mean - truth) <= reach for g, reach in zip(gaps, images, strict=True)]) < 0.6


def test_two_seeds_need_the_t_quantile():
    """The spread of two values is small by chance too often."""
    rng = np.random.default_rng(2)
    sides = [[[network(rng, **method, seeds=0.6) for _ in range(2)] for method in METHODS] for _ in range(200)]
    gaps = [difference(rng, *networks)["accuracy"] for networks in sides]
    truth = np.mean([gap.mean for gap in gaps])
    assert np.mean([abs(gap.mean - truth) <= 1.96 * np.std(gap.sampling.draws) for gap in gaps]) < 0.7
    assert np.mean([abs(gap.mean - truth) <= 1.96 * gap.error for gap in gaps]) < 0.85
    assert coverage(gaps) > 0.93


@pytest.mark.parametrize(("ours", "theirs"), [(0.003, 0.0), (0.005, 0.005), (0.02, 0.005)])
def test_a_handful_of_images_that_differ_is_covered(ours, theirs):
    rng, label, held = np.random.default_rng(3), np.zeros(360, int), []
    for _ in range(300):
        who = rng.choice(3, size=360, p=[1 - ours - theirs, ours, theirs])
        sides = [
            Stored(label=label, predicted=who == k, confidence=0.9 + label, true_probability=label + 0.5)
            for k in (2, 1)
        ]
        a, b = (replicates(side)["accuracy"] for side in sides)
        gap = Value((who == 1).mean() - (who == 2).mean(), sampling=a + b * -1)
        held.append(abs(gap.mean - (ours - theirs)) <= gap.reach)
    assert np.mean(held) > 0.93


# --- the error itself -------------------------------------------------------------------------------------------------


def two_runs(seed=0, images=IMAGES):
    rng = np.random.default_rng(seed)
    those = draw_images(rng, images)
    return [predict(rng, SimpleNamespace(**method), those, k) for k, method in enumerate(METHODS, 1)]


@pytest.mark.parametrize("metric", METRICS)
def test_the_error_is_that_of_scipys_paired_bootstrap(metric):
    a, b = two_runs()
    columns = ("label", "predicted", "confidence", "true_probability")
    of = {"accuracy": lambda p: kept.correct(p).mean(), "ece": kept.ece, "nll": lambda p: kept.loss(p).mean()}[metric]

    def statistic(rows):
        sides = [Stored(**{name: getattr(p, name)[rows] for name in columns}) for p in (a, b)]
        return of(sides[0]) - of(sides[1])

    theirs = stats.bootstrap((np.arange(IMAGES),), statistic, vectorized=False, n_resamples=1000, method="basic", rng=0)
    ours = replicates(a)[metric] + replicates(b)[metric] * -1
    assert ours.error == pytest.approx(theirs.standard_error, rel=0.1)


def test_what_both_sides_share_cancels():
    a, b = two_runs()
    gap = replicates(a)["accuracy"] + replicates(a)["accuracy"] * -1
    assert gap.error == pytest.approx(1 / IMAGES)  # half an image per side
    paired = replicates(a)["accuracy"] + replicates(b)["accuracy"] * -1
    assert paired.error < 0.95 * np.hypot(replicates(a)["accuracy"].error, replicates(b)["accuracy"].error)


def test_the_same_test_set_has_the_same_weights_and_another_has_others():
    labels = np.arange(50) % 7
    drawn = weights(labels)
    assert drawn.shape == (RESAMPLES, 50) and np.allclose(drawn.sum(1), 1)
    assert (weights(labels.astype(np.uint8)) == drawn).all() and (weights(labels[::-1]) != drawn).any()


def test_replicates_of_the_ece_lie_above_it_and_are_centred():
    a, _ = two_runs()
    assert abs(replicates(a)["ece"].draws.mean()) < 1e-12
    again = [
        kept.ece(Stored(**{k: v[rows] for k, v in vars(a).items()}))
        for rows in np.random.default_rng(0).integers(IMAGES, size=(50, IMAGES))
    ]
    assert np.mean(again) > kept.ece(a)


def test_seeds_by_hand():
    """Two seeds with values 1 and 3, whose replicates have variance 1 and nothing in common."""
    rng = np.random.default_rng(0)
    draws = np.linalg.qr(rng.standard_normal((1000, 3)))[0]
    draws = (draws - draws.mean(0)) / (draws - draws.mean(0)).std(0, ddof=1)
    seeds = [Sampling(draws[:, 0]), Sampling(draws[:, 1])]
    found = scatter_of([1, 3], seeds)
    assert (found.between, found.freedom) == (2, 1) and found.own == pytest.approx(1, abs=0.02)
    mean = replace(mean_of(seeds), seeds={found: 1 / 2})
    assert mean.draws.var(ddof=1) == pytest.approx(0.5, abs=0.02)  # all of it belongs to single networks
    assert mean.variance == pytest.approx(1, abs=0.02)  # (3 - 1)² / 2 / 2: the seeds contain it already
    assert mean.freedom == pytest.approx(1, abs=0.05)
    three = scatter_of([1, 2, 3], [*seeds, Sampling(draws[:, 2])])
    assert (three.between, three.freedom) == (1, 2) and three.own == pytest.approx(1, abs=0.02)
    alike = scatter_of([2, 2], [Sampling(draws[:, 0]), Sampling(draws[:, 0])])
    assert alike.excess == 0 and replace(mean, seeds={alike: 1 / 2}).freedom == np.inf


def test_an_interval_of_networks_that_agree_has_at_least_one_degree_of_freedom():
    agreeing = Scatter(between=1.0, own=2.0, freedom=3)  # less between seeds than the images explain
    assert Sampling(np.array([-1e-3, 1e-3]), seeds={agreeing: 2.0}).freedom == 1


def test_a_pool_counts_each_method_by_its_degrees_of_freedom():
    found = pool([Scatter(between=1.0, own=0.5, freedom=3), Scatter(between=5.0, own=0.1, freedom=1)])
    assert found == Scatter(between=2.0, own=pytest.approx(0.4), freedom=4) and found.excess == pytest.approx(1.6)
    one, mean_of_two = (Sampling(np.array([-1.0, 1.0]), seeds={found: weight}) for weight in (1.0, 0.5))
    gap = one + mean_of_two * -1
    assert (
        gap.seeds == {found: 1.5} and (gap * 0.5).seeds == {found: 1.5 / 4} and gap.variance == pytest.approx(1.5 * 1.6)
    )
    assert gap.freedom == pytest.approx(gap.variance**2 / (1.5 * 2.0) ** 2 * 4)  # one estimate, used twice
    assert (Sampling(np.zeros(2), added=2.0) * 0.5).variance == 0.5
