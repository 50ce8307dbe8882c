"""Which row of the paper's tables, or of a method of one's own, a run belongs to."""

import json

import pytest
from hydra import compose, initialize_config_dir

from rbue.report import rows
from rbue.report.rows import LABELS, ROWS, canonical, cell_identity, composed, place


@pytest.mark.parametrize("method", ["mc_dropout", "svi", "dropreLU"])
def test_the_short_way_to_a_config_is_the_one_hydra_takes(method):
    assert canonical("tinyimagenet", "fast", method) == composed("tinyimagenet", "fast", method)


def test_rows_can_be_asked_for_inside_a_running_hydra_application():
    with initialize_config_dir(str(rows.CONF), version_base=None):
        assert canonical("digits", "demo", "rrelu").dataset == "digits"
        assert compose("config", ["protocol=fast"]).protocol == "fast"  # the outer one goes on


@pytest.mark.parametrize("label", LABELS)
def test_a_run_of_a_row_is_placed_in_it_at_any_seed(label):
    config = cell_identity("cifar100", "paper", "vgg13", dict(ROWS)[label]) | {"seed": 7}
    assert place(json.loads(json.dumps(config))) == (label, {})


def test_a_key_the_run_does_not_have_is_a_difference():
    config = cell_identity("cifar10", "paper", "vgg13", {"method": "single"})
    assert place({k: v for k, v in config.items() if k != "crop"}) == (None, {"crop": "absent"})


def test_every_row_is_legal_for_every_dataset_of_the_paper():
    for dataset in rows.DATASETS:
        for label, settings in ROWS:
            assert cell_identity(dataset, "paper", "vgg13", settings)["method"] == settings["method"], label


def test_every_setting_of_a_method_of_ones_own_is_a_row():
    usual = canonical("digits", "demo", "rrelu")
    config = usual.identity | {"arch": "small"}
    near = [rows.own_row(config | {"l": value, "u": None}, usual) for value in (0.05, 0.050001)]
    assert near == [("rrelu(l=0.05, u=None, position=all)", {}), ("rrelu(l=0.050001, u=None, position=all)", {})]
    assert rows.own_row(config | {"epochs": 2}, usual) == (None, {"epochs": 2})


def test_rows_of_other_methods_come_last_and_by_number():
    assert rows.in_order(["b(s=10)", "b(s=9.5)", "a", "SVI", "Single"]) == ["Single", "SVI", "a", "b(s=9.5)", "b(s=10)"]


def test_the_position_table_is_of_the_papers_methods(monkeypatch):
    config = cell_identity("digits", "demo", "small", dict(ROWS)["MC-RReLU"]) | {"position": "last"}
    assert rows.position_row(config) == "MC-RReLU"
    monkeypatch.setattr(rows, "METHODS", ["single"])
    assert rows.position_row(config) is None
