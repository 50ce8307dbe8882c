import math
from itertools import combinations
from types import SimpleNamespace

import pytest
import torch
from conftest import compose_run

from rbue import metrics


def brute_force_ece(probs, labels, bins):
    total = 0.0
    for m in range(1, bins + 1):
        members = []
        for row, label in zip(probs.tolist(), labels.tolist(), strict=True):
            confidence = max(row)
            if (m - 1) / bins < confidence <= m / bins:
                members.append((confidence, row.index(confidence) == label))
        if members:
            conf, acc = (sum(column) / len(members) for column in zip(*members, strict=True))
            total += len(members) / len(labels) * abs(acc - conf)
    return total


def test_the_default_number_of_bins_is_that_of_the_suite():
    probs, labels = predictions(1000)
    default = compose_run().bins
    assert metrics.ece(probs, labels) == metrics.ece(probs, labels, default) != metrics.ece(probs, labels, default + 1)
    assert len(metrics.reliability(probs, labels)["count"]) == default
    assert metrics.score(probs, labels)["ece"] == metrics.ece(probs, labels)


@pytest.mark.parametrize("bins", [1, 7, 30])
@pytest.mark.parametrize("sharpness", [0.3, 3, 30])
def test_ece_agrees_with_a_brute_force_loop(bins, sharpness):
    generator = torch.Generator().manual_seed(bins)
    probs = (sharpness * torch.randn(500, 10, generator=generator, dtype=torch.float64)).softmax(1)
    labels = torch.randint(10, (500,), generator=generator)
    assert metrics.ece(probs, labels, bins) == pytest.approx(brute_force_ece(probs, labels, bins), abs=1e-12)


def test_a_confidence_of_exactly_one_falls_into_the_last_bin():
    probs = torch.tensor([[1.0, 0.0], [0.99, 0.01]])
    assert metrics.ece(probs, torch.tensor([0, 1])) == pytest.approx(abs(1 - 1.99) / 2)  # one bin holds both images


def test_a_bins_right_edge_belongs_to_it():
    probs = torch.tensor([[0.5, 0.5], [0.45, 0.55]], dtype=torch.float64)
    assert metrics.ece(probs, torch.tensor([0, 0]), bins=2) == pytest.approx((0.5 + 0.55) / 2)  # one image per bin


def test_ties_go_to_the_lower_class():
    assert metrics.accuracy(torch.tensor([[0.5, 0.5]]), torch.tensor([0])) == 1


def test_a_perfect_prediction_scores_perfectly():
    scores = metrics.score(torch.eye(4), torch.arange(4))
    assert scores == {"accuracy": 1, "ece": 0, "nll": 0, "brier": 0, "entropy": 0}


def test_a_uniform_prediction_has_the_entropy_of_its_classes():
    probs, labels = torch.full((6, 10), 0.1), torch.arange(6)
    assert metrics.entropy(probs)[0].item() == pytest.approx(math.log(10), rel=1e-6)
    assert metrics.nll(probs, labels) == pytest.approx(math.log(10), rel=1e-6)
    assert metrics.brier(probs, labels) == pytest.approx(0.9, rel=1e-6)


def test_a_certain_mistake_costs_a_finite_nll():
    assert 700 < metrics.nll(torch.tensor([[1.0, 0.0]]), torch.tensor([1])) < 710


def test_divergence_of_certain_opposites_is_log_two_and_of_equals_zero():
    p, q = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    assert metrics.jsd(p, q).item() == pytest.approx(math.log(2))
    assert metrics.jsd(p, p) == 0
    assert metrics.disagreement(p, q) == 1 and metrics.disagreement(p, p) == 0


def test_divergence_agrees_with_its_definition_by_kl():
    p, q = (torch.randn(50, 6, generator=torch.Generator().manual_seed(s)).double().softmax(1) for s in (0, 1))
    m = (p + q) / 2
    kl = [(a * (a / m).log()).sum(1).mean() for a in (p, q)]
    assert metrics.jsd(p, q).mean().item() == pytest.approx((sum(kl) / 2).item())


def test_divergence_of_nearly_equal_predictions_does_not_drown_in_rounding():
    p = torch.tensor([[0.5, 0.3, 0.2]])
    q = torch.tensor([[0.5001, 0.2999, 0.2]])
    expected = ((p.double() - q.double()) ** 2 / p).sum().item() / 8  # Fisher's approximation
    assert metrics.jsd(p, q).item() == pytest.approx(expected, rel=1e-3)


def test_diversity_is_symmetric_with_a_zero_diagonal():
    samples = torch.randn(4, 30, 5, generator=torch.Generator().manual_seed(2)).softmax(-1)
    measured = metrics.diversity(samples)
    for matrix in (torch.tensor(measured[name]) for name in ("jsd", "dis")):
        assert torch.allclose(matrix, matrix.T)
        assert matrix.diagonal().abs().max() < 1e-12
        assert (matrix + torch.eye(4) > 0).all()


def predictions(images=500, classes=10, sharpness=2.0, seed=0):
    """Probabilities and labels drawn from them, so they are calibrated up to chance."""
    generator = torch.Generator().manual_seed(seed)
    probs = (sharpness * torch.randn(images, classes, generator=generator, dtype=torch.float64)).softmax(1)
    return probs, torch.multinomial(probs, 1, generator=generator)[:, 0]


@pytest.mark.parametrize("bins", [7, 30])
def test_the_reliability_diagram_holds_every_image_and_gives_the_ece(bins):
    probs, labels = predictions()
    bars = list(zip(*metrics.reliability(probs, labels, bins).values(), strict=True))
    assert sum(count for count, _, _ in bars) == 500
    assert all((confidence is None) == (count == 0) for count, confidence, _ in bars)
    area = sum(count / 500 * abs(accuracy - confidence) for count, confidence, accuracy in bars if count)
    assert area == pytest.approx(metrics.ece(probs, labels, bins), abs=1e-12)


def test_rejecting_the_most_uncertain_leaves_the_right_ones():
    sure = torch.linspace(0.99, 0.51, 20)  # the five least confident of twenty are wrong
    probs, labels = torch.stack([sure, 1 - sure], 1), torch.tensor([0] * 15 + [1] * 5)
    shuffled = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    curve = metrics.rejection(probs[shuffled], labels[shuffled])
    assert curve["rejected"] == pytest.approx([0.05 * k for k in range(20)])
    assert curve["accuracy"] == pytest.approx([15 / (20 - k) if k <= 5 else 1 for k in range(20)])


def test_of_a_few_images_the_surest_is_never_rejected():
    sure = torch.linspace(0.9, 0.6, 4)
    curve = metrics.rejection(torch.stack([sure, 1 - sure], 1), torch.tensor([0, 1, 1, 1]))
    assert curve["accuracy"][0] == 0.25 and curve["accuracy"][-1] == 1


@pytest.mark.parametrize("true", [0.5, 1, 3])
def test_temperature_scaling_finds_the_temperature_that_was_taken_away(true):
    probs, labels = predictions(20000)
    spoilt = (true * probs.log()).softmax(1)
    scaled = metrics.temperature(spoilt, labels)
    assert scaled["temperature"] == pytest.approx(true, rel=0.03)
    assert scaled["nll"] == pytest.approx(metrics.nll(probs, labels), abs=1e-3)
    assert scaled["ece"] < 0.015


def test_the_fitted_temperature_has_the_least_nll():
    probs, labels = predictions(300)
    best = metrics.fit_temperature(probs.log(), labels)
    at = [metrics.nll((probs.log() / t).softmax(1), labels) for t in (best, 0.98 * best, 1.02 * best)]
    assert at[0] < min(at[1:])


def test_no_image_is_scaled_by_a_temperature_fitted_to_itself():
    probs, labels = predictions(2000)
    probs[1::2] = (4 * probs[1::2].log()).softmax(1)  # every other image is four times overconfident
    scaled = metrics.temperature(probs, labels)
    assert scaled["temperature"] == pytest.approx((1 + 4) / 2, rel=0.1)
    assert scaled["nll"] > metrics.nll(probs[::2], labels[::2])  # the calibrated half got the other's temperature


def test_a_half_without_a_mistake_leaves_the_other_as_it_is():
    probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    labels = torch.tensor([0, 0, 0, 1])
    scaled = metrics.temperature(probs, labels)
    own = metrics.fit_temperature(probs[1::2].double().log(), labels[1::2])
    assert own < 0.95 and scaled["temperature"] == pytest.approx((1 + own) / 2)
    even = (probs[::2].double().log() / own).softmax(1)
    expected = (metrics.nll(even, labels[::2]) + metrics.nll(probs[1::2], labels[1::2])) / 2
    assert scaled["nll"] == pytest.approx(expected, rel=1e-6)


def test_a_probability_of_zero_in_float32_leaves_the_temperature_finite():
    probs, labels = torch.tensor([[1.0, 0.0], [0.7, 0.3]] * 20), torch.tensor([0, 0, 1, 1] * 10)
    single, double = (metrics.temperature(each, labels) for each in (probs, probs.double()))
    assert all(map(math.isfinite, single.values())) and single == pytest.approx(double)


def test_bootstrap_intervals_are_those_of_a_share():
    generator, images, share = torch.Generator().manual_seed(0), 2000, 0.2
    other = (torch.rand(images, generator=generator) < share).long()
    samples = torch.stack([torch.eye(2)[torch.zeros_like(other)], torch.eye(2)[other]])
    found, p = metrics.intervals(metrics.pairwise(samples), resamples=10_000)["mean_dis"], other.double().mean().item()
    half = 1.96 * (p * (1 - p) / images) ** 0.5
    assert found == pytest.approx([p - half, p + half], abs=0.04 * half)
    assert metrics.intervals(metrics.pairwise(samples)) == metrics.intervals(metrics.pairwise(samples))


def test_bootstrap_intervals_cover_what_was_measured():
    samples = torch.randn(4, 400, 5, generator=torch.Generator().manual_seed(2)).softmax(-1)
    found = metrics.diversity(samples)
    for name in ("jsd", "dis"):
        pairs = [found[name][i][j] for i in range(4) for j in range(i)]
        for key, value in ((f"mean_{name}", sum(pairs) / 6), (f"max_{name}_simultaneous", max(pairs))):
            low, high = found["intervals"][key]
            assert low < value < high


def test_the_interval_of_a_maximum_is_no_wider_than_all_pairs_need():
    """Of six independent normal errors, the largest is below 2.63 standard deviations with probability 95 %."""
    values, error = torch.tensor([[1.0, 2.0, 3.0, 3.5, 3.9, 4.0]]), torch.tensor([[2.0, 0.1, 0.1, 0.1, 0.5, 1.0]])
    drawn = values + error * torch.randn(20_000, 1, 6, generator=torch.Generator().manual_seed(0))
    low, high = metrics.interval_of_maximum(values, drawn)
    assert low.item() == pytest.approx(3.5 - 2.63 * 0.1, abs=0.01)
    assert high.item() == pytest.approx(4 + 2.63 * 1, abs=0.05)


def test_a_report_has_the_metrics_of_the_first_samples_if_there_are_several():
    samples, labels = (
        torch.randn(5, 30, 4, generator=torch.Generator().manual_seed(3)).softmax(-1),
        torch.arange(30) % 4,
    )
    means = {k: samples[:k].mean(0) for k in (1, 3, 5)}
    found = metrics.report(SimpleNamespace(mean=means[5], first=samples[:4], by_count=means), labels, bins=7)
    assert found["metrics"] == metrics.score(means[5], labels, bins=7)
    assert found["by_samples"]["samples"] == [1, 3, 5]
    assert found["by_samples"]["ece"] == [metrics.ece(mean, labels, bins=7) for mean in means.values()]
    assert found["diversity"] == metrics.diversity(samples[:4])
    single = metrics.report(SimpleNamespace(mean=means[1], first=samples[:1], by_count={1: means[1]}), labels)
    assert single["by_samples"] is single["diversity"] is None


def test_the_interval_of_a_maximum_does_not_fall_below_zero():
    drawn = 0.1 + torch.randn(1000, 1, 3, generator=torch.Generator().manual_seed(0))
    low, high = metrics.interval_of_maximum(torch.full((1, 3), 0.1), drawn)
    assert low == 0 and high > 1


def noisy_samples(generator, images, apart):
    """Four predictions of each image. `apart`: samples also differ in what they share over images, as SVI's do."""
    logits = torch.randn(1, images, 3, generator=generator) + torch.randn(4, images, 3, generator=generator)
    return (logits + apart * torch.tensor([-1.0, -0.5, 0.5, 1.0])[:, None, None] * torch.eye(3)[0]).softmax(-1)


@pytest.mark.parametrize("apart", [0.0, 0.5])
def test_the_interval_of_a_maximum_covers_the_largest_true_value(apart):
    """150 test sets. A percentile interval of the maximum covers 46 % where all pairs have the same truth."""
    generator, pairs = torch.Generator().manual_seed(0), list(combinations(range(4), 2))
    many, held = noisy_samples(generator, 50_000, apart), dict.fromkeys(metrics.MEASURES, 0)
    truth = {name: max(f(many[i], many[j]).mean() for i, j in pairs) for name, f in metrics.MEASURES.items()}
    for _ in range(150):
        found = metrics.intervals(metrics.pairwise(noisy_samples(generator, 100, apart)), resamples=100)
        for name in held:
            low, high = found[f"max_{name}_simultaneous"]
            held[name] += low <= truth[name] <= high
    assert min(held.values()) >= 0.93 * 150, held
