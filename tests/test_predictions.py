"""Metrics from stored predictions equal those from probabilities: by loops, scikit-learn and torchmetrics."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ROOT
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from rbue import metrics
from rbue.evaluation import analysis
from rbue.main import experiment
from rbue.report.figures.beyond import more_scores
from rbue.runs import predictions as kept
from rbue.runs import results
from rbue.runs.predictions import Predictions
from rbue.runs.results import collect
from rbue.runs.schema import parse, read


def probabilities(images=2000, classes=10, sharpness=2.0, trust=1.0, seed=0):
    """Probabilities, and labels drawn from them; trust > 1 then makes the network overconfident."""
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(images, classes, generator=generator, dtype=torch.float64)
    return (trust * logits).softmax(1), torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]


def predictions(probs, labels, foreign=None):
    """As train.py stores them, before rounding. `foreign` are the probabilities of OOD images."""
    sides = [
        None if p is None else SimpleNamespace(mean=p, sample_entropy=metrics.entropy(p)) for p in (probs, foreign)
    ]
    return analysis.predictions(sides[0], labels, sides[1])


def told_apart(seed=0, decimals=None):
    """Entropies of test images and of OOD images, which are higher; rounded ones have ties."""
    rng = np.random.default_rng(seed)
    sides = rng.gamma(1, 1, 500), rng.gamma(3, 1, 300)
    return [side if decimals is None else side.round(decimals) for side in sides]


# --- the same as metrics.py, before and after storage -----------------------------------------------------------------


@pytest.mark.parametrize("trust", [0.5, 1, 3])
@pytest.mark.parametrize("bins", [7, 30])
def test_recomputed_metrics_are_those_of_the_probabilities(trust, bins):
    probs, labels = probabilities(trust=trust)
    expected, found = metrics.score(probs, labels, bins), kept.scores(predictions(probs, labels), bins)
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("images", [360, 10_000])
def test_stored_predictions_give_the_metrics_to_rounding(tmp_path, images):
    foreign = probabilities(images, sharpness=1.0, seed=1)[0]
    probs, labels = probabilities(images, sharpness=4.0, trust=1.5)
    with open(tmp_path / "predictions.npz", "wb") as file:
        predictions(probs, labels, foreign).save(file)
    found = kept.scores(Predictions.load(tmp_path / "predictions.npz"))
    entropies = (metrics.entropy(each).numpy() for each in (probs, foreign))
    expected = metrics.score(probs, labels) | {"auroc": kept.auroc(*entropies)}
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=2.5e-4)
    assert found["accuracy"] == expected["accuracy"]
    assert (tmp_path / "predictions.npz").stat().st_size < 200_000


def test_predictions_of_an_older_version_have_only_the_entropy_of_ood_images(tmp_path):
    new = predictions(*probabilities(50), torch.eye(10))
    with open(tmp_path / "predictions.npz", "wb") as file:
        replace(new, foreign_confidence=None, foreign_sample_entropy=None).save(file)
    old = Predictions.load(tmp_path / "predictions.npz")
    assert old.foreign_confidence is old.foreign_sample_entropy is None
    assert kept.scores(old)["auroc"] == pytest.approx(kept.scores(new)["auroc"], abs=1e-2)


def test_stored_predictions_keep_a_likelihood_that_float32_cannot_hold(tmp_path):
    probs, labels = probabilities(sharpness=50.0)[0], torch.arange(2000) % 10
    assert probs.gather(1, labels[:, None]).min() < 1e-40
    with open(tmp_path / "predictions.npz", "wb") as file:
        predictions(probs, labels).save(file)
    found = kept.scores(Predictions.load(tmp_path / "predictions.npz"))
    assert found["nll"] == pytest.approx(metrics.nll(probs, labels), rel=1e-3)
    assert predictions(*probabilities()).loss is None


def test_a_run_stores_what_gives_its_result_again(digits_run):
    run = digits_run("method=rrelu", "epochs=1", "samples=3")
    experiment(run)
    result = read(results.folder(run) / "result.json")
    found, expected = kept.scores(result.predictions), result.metrics | {"auroc": result.ood.auroc}
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=2.5e-4)
    shown = more_scores(result)  # those that are known exactly are not computed from rounded probabilities
    assert {name: shown[name] for name in ("nll", "brier", "aurc")} == {
        "nll": result.metrics["nll"],
        "brier": result.metrics["brier"],
        "aurc": found["aurc"],
    }


def test_rounding_never_moves_a_score_into_another_bin():
    edges = np.linspace(0, 1, 31)
    scores = np.concatenate([edges, edges + 1e-9, edges - 1e-9, np.random.default_rng(0).random(100_000)]).clip(0, 1)
    stored = kept.rounded(scores)
    assert (kept.bin_of(stored) == kept.bin_of(scores)).all()
    assert not (stored.view(np.uint32) % 2 ** (23 - kept.BITS)).any()  # zeroed bits, which compress well
    assert np.abs(stored - scores).max() < 1e-3 and (stored[scores > 0.01] / scores[scores > 0.01]).std() < 4e-4


def test_a_certain_mistake_costs_as_much_as_it_did():
    probs, labels = torch.tensor([[1.0, 0.0]]), torch.tensor([1])
    assert kept.scores(predictions(probs, labels))["nll"] == pytest.approx(metrics.nll(probs, labels))


# --- calibration ------------------------------------------------------------------------------------------------------


def brute_force(groups, confidence, right):
    """Σ |B|/n |acc(B) - conf(B)| over groups of images."""
    total = 0.0
    for group in set(groups):
        members = [k for k, own in enumerate(groups) if own == group]
        conf, acc = (sum(column[k] for k in members) / len(members) for column in (confidence, right))
        total += len(members) / len(groups) * abs(acc - conf)
    return total


@pytest.mark.parametrize("trust", [0.5, 2])
def test_calibration_errors_agree_with_a_brute_force_loop(trust):
    p = predictions(*probabilities(500, trust=trust))
    confidence, right = p.confidence.tolist(), (p.predicted == p.label).tolist()
    by_confidence = [math.ceil(30 * c) for c in confidence]
    order = sorted(range(500), key=confidence.__getitem__)
    equal_mass = [30 * order.index(k) // 500 for k in range(500)]
    by_class = list(zip(p.predicted.tolist(), by_confidence, strict=True))
    by_truth = [math.ceil(30 * s) for s in p.true_probability.tolist()]
    found = kept.scores(p)
    groups = {"": by_confidence, "_adaptive": equal_mass, "_classwise": by_class, "_as_printed": by_truth}
    for name, members in groups.items():
        assert found["ece" + name] == pytest.approx(brute_force(members, confidence, right), abs=1e-12), name
    assert found["ece"] <= found["ece_classwise"]


def test_ece_agrees_with_torchmetrics():
    """Without confidences of 1 or on an edge, for which torchmetrics has other bins (its issue 3510)."""
    classification = pytest.importorskip("torchmetrics.functional.classification")
    probs, labels = probabilities(trust=1.5)
    theirs = classification.multiclass_calibration_error(probs, labels, num_classes=10, n_bins=30, norm="l1")
    assert kept.ece(predictions(probs, labels)) == pytest.approx(theirs.item(), abs=1e-6)


def test_images_of_equal_confidence_are_split_by_no_edge_in_particular():
    p = predictions(torch.tensor([[0.75, 0.25]] * 8), torch.tensor([0, 0, 0, 0, 0, 0, 1, 1]))
    assert kept.ece_adaptive(p, bins=4) == pytest.approx(0)  # in the order of the images it would be 3/8


def test_the_printed_formula_is_no_calibration_error():
    """For a perfectly calibrated confidence c it is 2 mean c(1-c), less what cancels below 1/2."""
    probs, labels = probabilities(50_000, classes=2, sharpness=1.0)
    p = predictions(probs, labels)
    c = p.confidence
    assert kept.ece(p) < 0.01
    assert kept.ece_as_printed(p) == pytest.approx(2 * (c * (1 - c)).mean(), rel=0.02)  # two classes: nothing cancels
    for classes, trust in ((10, 1.0), (10, 2.0), (100, 1.5)):
        p = predictions(*probabilities(5000, classes, trust=trust))
        assert kept.ece(p) < kept.ece_as_printed(p) <= np.abs(kept.gap(p)).mean()


def test_the_printed_formula_is_not_the_one_behind_the_papers_numbers():
    """CIFAR-100, ResNet-18, Single: .070 by the usual formula, .11 in the paper, .160 to .166 as printed."""
    runs = [r for r in collect(ROOT / "results" / "runs" / "cifar100") if r.config["method"] == "single"]
    clean = [r for r in runs if (r.config["arch"], r.config["protocol"]) == ("resnet18", "matched")]
    assert len(clean) >= 4 and all(kept.ece_as_printed(r.predictions) > 0.155 for r in clean)


def small_result(folder, **more):
    content = {"format": 2, "name": "a", "metrics": {"accuracy": 1, "ece": 0}, "seconds": {"train": 1, "evaluate": 1}}
    config = {"method": "single", "dataset": "digits", "arch": "small", "protocol": "demo", "seed": 0}
    return parse(content | {"config": config, "folder": str(folder)} | more)


@pytest.mark.parametrize("content", [b"", b"no zip", "half", "ragged", "ragged ood", "foreign"])
def test_damaged_predictions_are_named_and_count_as_absent(content, tmp_path, capsys):
    path = tmp_path / "predictions.npz"
    whole = predictions(torch.eye(3), torch.arange(3), torch.eye(3)[:2])
    with path.open("wb") as file:
        wrong = {"ragged": {"entropy": whole.entropy[:2]}, "foreign": {"label": whole.label[::-1]}}
        wrong["ragged ood"] = {"foreign_entropy": whole.entropy}
        replace(whole, **wrong.get(content, {})).save(file)
    if content not in wrong:
        path.write_bytes(path.read_bytes()[:99] if content == "half" else content)
    assert small_result(tmp_path).predictions is None
    said = capsys.readouterr().err
    fault = f"the predictions {path} do not belong to this result, since their accuracy is 0.3333, but this run's is"
    assert said.startswith(f"not used: {fault if content == 'foreign' else f'{path} is damaged ('}")
    way_out = f"move {tmp_path} away and start the run again\n"
    assert said.endswith(f"; claims compare its row unpaired, with wider intervals: {way_out}")


def test_missing_predictions_are_named_unless_the_run_is_too_old_to_have_stored_any(tmp_path, capsys):
    curve = {"curve": {"loss": [1.0], "accuracy": [0.5], "kl": [0.0]}}
    shift = {"source": "generated", "types": {}}
    for more in ({}, {"trainings": [curve], "corruptions": shift}):
        assert small_result(tmp_path, **more).predictions is None and not capsys.readouterr().err
    assert small_result(tmp_path, trainings=[curve]).predictions is None
    said = capsys.readouterr().err
    assert said.startswith(f"missing: the predictions {tmp_path}/predictions.npz; claims compare its row unpaired")


# --- mistakes and OOD images ------------------------------------------------------------------------------------------


def test_aurc_is_the_mean_error_over_coverages():
    p = predictions(*probabilities(300))
    wrong = (p.predicted != p.label)[np.argsort(p.entropy)].tolist()
    assert kept.aurc(p) == pytest.approx(sum(sum(wrong[:k]) / k for k in range(1, 301)) / 300)


def test_aurc_by_hand():
    p = SimpleNamespace(entropy=np.array([0.1, 0.3, 0.3]), predicted=np.array([0, 0, 0]), label=np.array([0, 1, 0]))
    assert kept.aurc(p) == pytest.approx((0 + 1 / 4 + 1 / 3) / 3)  # the wrong image comes second as often as third


def test_the_auroc_of_mistakes_is_that_of_scikit_learn():
    p = predictions(*probabilities())
    expected = roc_auc_score(p.predicted != p.label, p.entropy)
    assert kept.scores(p)["auroc_misclassification"] == pytest.approx(expected)


def test_a_network_without_mistakes_has_no_auroc_of_them():
    probs, labels = torch.eye(3), torch.arange(3)
    assert math.isnan(kept.scores(predictions(probs, labels))["auroc_misclassification"])


@pytest.mark.parametrize("decimals", [None, 1])
def test_foreign_images_are_told_apart_as_scikit_learn_and_torchmetrics_say(decimals):
    classification = pytest.importorskip("torchmetrics.functional.classification")
    inside, outside = told_apart(decimals=decimals)
    values, truth = np.concatenate([inside, outside]), np.repeat([0, 1], [len(inside), len(outside)])
    false, found, _ = roc_curve(truth, values, drop_intermediate=False)
    assert kept.auroc(inside, outside) == pytest.approx(roc_auc_score(truth, values))
    assert kept.aupr(inside, outside) == pytest.approx(average_precision_score(truth, values))
    assert kept.fpr95(inside, outside) == pytest.approx(false[np.argmax(found >= 0.95)])
    tensors = torch.tensor(values / values.max()), torch.tensor(truth)
    assert kept.auroc(inside, outside) == pytest.approx(classification.binary_auroc(*tensors).item(), abs=1e-6)
    precision = classification.binary_average_precision(*tensors).item()
    assert kept.aupr(inside, outside) == pytest.approx(precision, abs=1e-6)


def test_fpr95_by_hand():
    outside = np.arange(100, 120)  # 19 of 20 reach 101
    assert kept.fpr95(np.array([99, 100, 101, 150]), outside) == 0.5


def test_without_foreign_images_there_is_no_score_of_them():
    p = predictions(*probabilities(50))
    assert "fpr95" not in kept.scores(p)
    more = kept.scores(predictions(*probabilities(50), torch.eye(10)))
    assert {"auroc", "aupr", "fpr95", "foreign_entropy"} <= more.keys()
