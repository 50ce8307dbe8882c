"""Corruption evaluation: what a user gets, and that a killed evaluation resumes."""

import json

import pytest
import torch

from rbue import methods
from rbue.data.corrupted import Sets
from rbue.errors import UserError
from rbue.evaluation import corruption, evaluator
from rbue.runs import results

CELLS = [(name, severity) for name in ("contrast", "brightness", "frost") for severity in (1, 2)]


@pytest.fixture
def tested(digits_run, digits, monkeypatch):
    """A run on corrupted digits, an untrained network and six small sets; frost is not available."""
    run = digits_run("dataset=digits_c", "method=dropreLU", "samples=2")
    test = evaluator.Evaluator(run, [methods.build(run, 10, 1437).eval()], digits, torch.device("cpu"))
    read = []

    def reader(name, severity, device):
        read.append((name, severity))
        if name == "frost":
            raise corruption.UserError("frost needs its textures")
        return digits.test_images[:50] // severity, digits.test_labels[:50]

    monkeypatch.setattr(corruption.corrupted, "sets", lambda run, data: Sets("generated", reader, CELLS))
    return run, test, read


@pytest.mark.filterwarnings("error::UserWarning")  # frost is not a corruption of the user
def test_every_type_and_severity_is_scored_and_what_cannot_be_had_says_why(tested, digits):
    run, test, _ = tested
    report = corruption.report(run, test, corruption.sets(run, digits))["corruptions"]
    assert report["source"] == "generated"
    assert [cell["severity"] for cell in report["types"]["contrast"]] == [1, 2]
    assert set(report["types"]["contrast"][0]) == {"severity", "accuracy", "ece", "nll", "brier"}
    assert report["skipped"] == {"frost": "frost needs its textures"}


def test_a_corruption_of_the_users_own_is_not_left_out_in_silence(tested, digits):
    run, test, _ = tested

    def reader(name, severity, device):
        raise UserError("corruption darken gives torch.float32")

    sets = Sets("generated", reader, [("darken", 1), ("darken", 2)])
    with pytest.warns(UserWarning, match=r"your corruption darken is left out: corruption darken gives") as said:
        corruption.report(run, test, sets)
    assert len(said) == 1


def test_a_killed_evaluation_goes_on_at_the_cell_it_had_reached(tested, digits):
    run, test, read = tested
    whole = corruption.report(run, test, corruption.sets(run, digits))
    path = results.folder(run) / "corruptions.json"
    partial = json.loads(path.read_text())
    del partial["types"]["brightness"][1]
    results.write(path, partial)
    read.clear()
    assert corruption.report(run, test, corruption.sets(run, digits)) == whole
    assert read == [("brightness", 2), ("frost", 1)]  # a missing set is tried again, since it may exist now


def test_a_killed_evaluation_keeps_the_scores_of_the_users_own_corruptions(tested, digits):
    run, test, read = tested

    def reader(name, severity, device):
        read.append((name, severity))
        return digits.test_images[:50] // severity, digits.test_labels[:50]

    both = Sets("generated", reader, [("darken", 1), ("darken", 2), ("contrast", 1)])
    whole = corruption.report(run, test, both)
    assert [cell["severity"] for cell in whole["corruptions"]["own"]["darken"]] == [1, 2]
    read.clear()
    assert corruption.report(run, test, both) == whole and not read


@pytest.mark.parametrize("text", ["{", "[]", '{"source": "generated"}'])
def test_a_damaged_file_of_scores_is_named_and_left_alone(tested, digits, text):
    run, test, _ = tested
    path = results.folder(run) / "corruptions.json"
    results.write(path, text)
    with pytest.raises(UserError, match=r"corruptions\.json cannot be read .+: move it away"):
        corruption.report(run, test, corruption.sets(run, digits))
    assert path.read_text() == text


def test_scores_of_other_images_are_not_continued(tested, digits):
    run, test, read = tested
    results.write(results.folder(run) / "corruptions.json", {"source": "official", "types": {}, "skipped": {}})
    corruption.report(run, test, corruption.sets(run, digits))
    assert len(read) == 5


def test_scores_of_other_weights_are_not_continued(tested, digits, monkeypatch):
    run, test, read = tested
    corruption.report(run, test, corruption.sets(run, digits))
    read.clear()
    monkeypatch.setattr(test, "weights", "those of a network that was trained again")
    report = corruption.report(run, test, corruption.sets(run, digits))["corruptions"]
    assert len(read) == 5 and "weights" not in report


def test_networks_are_known_by_their_weights_and_buffers():
    networks = [torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).half() for _ in range(2)]
    hashes = {evaluator.weights_hash(networks[:1]), evaluator.weights_hash(networks)}
    networks[0][1].running_mean += 1
    assert len(hashes | {evaluator.weights_hash(networks[:1])}) == 3


def test_a_clean_dataset_has_no_corruptions(digits_run, digits):
    assert corruption.report(digits_run(), None, corruption.sets(digits_run(), digits)) == {}
