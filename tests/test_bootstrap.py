"""Paired intervals cover what they should, over images and over seeds, in simulations with fixed seeds."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from rbue.report.bootstrap import RESAMPLES, Sampling, over_seeds, replicates, weights
from rbue.report.claims.values import Value
from rbue.runs import predictions as kept

METRICS = ("accuracy", "ece", "nll")
IMAGES = 200


def network(rng, skill, trust, seeds=0.2):
    """One training of a method: its skill varies from seed to seed."""
    return SimpleNamespace(skill=skill + seeds * rng.standard_normal(), trust=trust)


class Stored(SimpleNamespace):
    """What is stored of each image's prediction, as in rbue.runs.predictions."""

    loss = None


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


def measured(predictions):
    """{metric: Value} of the mean over seeds."""
    p = [{"accuracy": kept.correct(p).mean(), "ece": kept.ece(p), "nll": kept.loss(p).mean()} for p in predictions]
    drawn = [replicates(each) for each in predictions]
    values = {metric: [each[metric] for each in p] for metric in METRICS}
    sampled = {metric: over_seeds(values[metric], [each[metric] for each in drawn]) for metric in METRICS}
    return {metric: Value(np.mean(values[metric]), sampling=sampled[metric]) for metric in METRICS}


def difference(rng, ours, theirs):
    images = draw_images(rng)
    sides = [measured([predict(rng, n, images, k) for n in side]) for k, side in ((1, ours), (2, theirs))]
    return {metric: sides[0][metric] - sides[1][metric] for metric in METRICS}


def coverage(differences):
    """The share of intervals that contain the mean over all simulations."""
    truth = np.mean([gap.mean for gap in differences])
    return np.mean([abs(gap.mean - truth) <= gap.reach for gap in differences])


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
    sides = [[[network(rng, **method) for _ in range(seeds)] for method in METHODS] for _ in range(250)]
    found = [difference(rng, *networks) for networks in sides]
    for metric in METRICS:
        assert coverage([each[metric] for each in found]) >= 0.93, metric


def test_a_side_with_one_seed_is_lent_the_scatter_of_the_other():
    """The usual case: four seeds of Single, one of every other row. Both sides vary equally."""
    rng = np.random.default_rng(4)
    seeds = [({"skill": 1.0, "trust": 1.0}, 1), ({"skill": 1.0, "trust": 1.7}, 4)]
    sides = [[[network(rng, **method, seeds=0.6) for _ in range(n)] for method, n in seeds] for _ in range(250)]
    gaps = [difference(rng, *networks)["accuracy"] for networks in sides]
    truth, seeds_left_out = np.mean([g.mean for g in gaps]), [1.96 * g.sampling.draws.std() for g in gaps]
    assert coverage(gaps) >= 0.9
    assert np.mean([abs(g.mean - truth) <= reach for g, reach in zip(gaps, seeds_left_out, strict=True)]) < 0.8


def test_seeds_that_are_not_independent_count_as_one():
    rng = np.random.default_rng(5)
    drawn = [Sampling(rng.standard_normal(1000)) for _ in range(2)]
    together = over_seeds([1, 3], drawn, independent=False)
    assert together.lent == 0 and together.variance == pytest.approx(together.draws.var(ddof=1))
    other = over_seeds([1, 3], drawn)
    assert (together + other * -1).lent == pytest.approx(other.parts[-1].excess) and other.parts[-1].excess > 0


def test_one_seed_a_side_does_not_cover_the_methods_unless_it_is_told_how_seeds_vary():
    """This is why the ledger states it."""
    rng = np.random.default_rng(1)
    far = [[[network(rng, **method, seeds=0.6)] for method in METHODS] for _ in range(200)]
    gaps = [difference(rng, *networks)["accuracy"] for networks in far]
    assert coverage(gaps) < 0.85
    truth, images = np.mean([gap.mean for gap in gaps]), np.mean([gap.sampling.variance for gap in gaps])
    excess = (np.var([gap.mean for gap in gaps], ddof=1) - images) / 2  # of each side
    errors = [gap.sampling.with_usual(excess).error_over_seeds for gap in gaps]
    held = [abs(gap.mean - truth) <= 1.96 * error for gap, error in zip(gaps, errors, strict=True)]
    assert 0.92 <= np.mean(held) <= 0.98


def test_the_usual_scatter_is_what_the_other_side_lends():
    rng = np.random.default_rng(6)
    several = over_seeds([1, 3], [Sampling(rng.standard_normal(1000)) for _ in range(2)])
    one = over_seeds([1], [Sampling(rng.standard_normal(1000))]).with_usual(several.excess)
    gap = one + several * -1
    assert gap.lent > 0 and gap.error_over_seeds == pytest.approx(gap.error)
    assert one.error_over_seeds == pytest.approx(np.sqrt(one.variance + several.excess))


def test_two_seeds_that_are_resampled_as_images_are_would_not_cover():
    """The spread of two values is small by chance too often: the t quantile corrects for it."""
    rng = np.random.default_rng(2)
    sides = [[[network(rng, **method, seeds=0.6) for _ in range(2)] for method in METHODS] for _ in range(200)]
    gaps = [difference(rng, *networks)["accuracy"] for networks in sides]
    truth = np.mean([gap.mean for gap in gaps])
    assert np.mean([abs(gap.mean - truth) <= 1.96 * np.std(gap.sampling.draws) for gap in gaps]) < 0.7
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
    mean = over_seeds([1, 3], [Sampling(draws[:, 0]), Sampling(draws[:, 1])])
    assert mean.draws.var(ddof=1) == pytest.approx(0.5, abs=0.02)  # all of it belongs to single networks
    assert mean.variance == pytest.approx(1, abs=0.02)  # (3 - 1)² / 2 / 2: the seeds contain it already
    assert mean.freedom == pytest.approx(1, abs=0.05)
    alike = over_seeds([2, 2], [Sampling(draws[:, 0]), Sampling(draws[:, 0])])
    assert alike.variance == pytest.approx(1) and alike.freedom == np.inf
