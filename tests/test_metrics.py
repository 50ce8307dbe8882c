import math

import pytest
import torch

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


@pytest.mark.parametrize("bins", [1, 7, 30])
@pytest.mark.parametrize("sharpness", [0.3, 3, 30])
def test_ece_agrees_with_a_brute_force_loop(bins, sharpness):
    generator = torch.Generator().manual_seed(bins)
    probs = (sharpness * torch.randn(500, 10, generator=generator, dtype=torch.float64)).softmax(1)
    labels = torch.randint(10, (500,), generator=generator)
    assert metrics.ece(probs, labels, bins) == pytest.approx(brute_force_ece(probs, labels, bins), abs=1e-12)


def test_a_confidence_of_exactly_one_falls_into_the_last_bin():
    probs = torch.tensor([[1.0, 0.0], [0.99, 0.01]])
    assert metrics.ece(probs, torch.tensor([0, 1])) == pytest.approx(abs(1 - 1.99) / 2)  # one bin holds both


def test_a_bins_right_edge_belongs_to_it():
    probs = torch.tensor([[0.5, 0.5], [0.45, 0.55]], dtype=torch.float64)
    assert metrics.ece(probs, torch.tensor([0, 0]), bins=2) == pytest.approx((0.5 + 0.55) / 2)  # two bins, one each


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
    assert 80 < metrics.nll(torch.tensor([[1.0, 0.0]]), torch.tensor([1])) < 100


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


def test_diversity_is_symmetric_with_a_zero_diagonal():
    samples = torch.randn(4, 30, 5, generator=torch.Generator().manual_seed(2)).softmax(-1)
    measured = metrics.diversity(samples)
    for matrix in (torch.tensor(measured[name]) for name in ("jsd", "dis")):
        assert torch.allclose(matrix, matrix.T)
        assert matrix.diagonal().abs().max() < 1e-12
        assert (matrix + torch.eye(4) > 0).all()
