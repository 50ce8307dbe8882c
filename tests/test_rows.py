"""Which row of the paper's tables, or of a user's own method, a run belongs to."""

import json

import made_up
import pandas as pd
import pytest
from hydra import compose, initialize_config_dir

from rbue.report import records, rows
from rbue.report.rows import LABELS, ROWS, cell_identity, match_row
from rbue.runs.compose import CONF, canonical, composed


@pytest.mark.parametrize("method", ["mc_dropout", "svi", "dropreLU"])
def test_the_short_way_to_a_config_is_the_one_hydra_takes(method):
    assert canonical("tinyimagenet", "fast", method) == composed("tinyimagenet", "fast", method)


def test_rows_can_be_asked_for_inside_a_running_hydra_application():
    with initialize_config_dir(str(CONF), version_base=None):
        assert canonical("digits", "demo", "rrelu").dataset == "digits"
        assert compose("config", ["protocol=fast"]).protocol == "fast"  # the outer Hydra application continues


def test_a_protocol_is_explained_by_its_config():
    text = rows.protocol_text("paper", {"tinyimagenet", "cifar10", "my_photos"})
    assert text == "`paper` (200 epochs, 150 on TinyImageNet, weight decay 0.0001)"
    assert rows.protocol_text("mine", {"cifar10"}) == "`mine`"


@pytest.mark.parametrize("label", LABELS)
def test_a_run_of_a_row_is_placed_in_it_at_any_seed_and_precision(label):
    config = cell_identity("cifar100", "paper", "vgg13", label) | {"seed": 7, "precision": "bf16"}
    assert match_row(json.loads(json.dumps(config))) == (label, {})


def test_a_key_the_run_does_not_have_is_a_difference():
    config = cell_identity("cifar10", "paper", "vgg13", "Single")
    assert match_row({k: v for k, v in config.items() if k != "crop"}) == (None, {"crop": "absent"})


def test_every_row_is_legal_for_every_dataset_of_the_paper():
    for dataset in rows.DATASETS:
        for label, settings in ROWS:
            assert cell_identity(dataset, "paper", "vgg13", label)["method"] == settings["method"], label


def test_fewer_samples_are_for_corrupted_sets_alone():
    few = made_up.result("SVI", samples=20)["config"]
    assert match_row(few | {"corruptions": "generated"}) == (None, {"samples": 20})
    assert match_row(made_up.corrupted("SVI", samples=20)["config"]) == ("SVI", {})


def test_another_place_of_dropout_is_a_row():
    config = cell_identity("cifar10", "paper", "resnet18", "MC-Dropout(0.2)")
    assert match_row(config | {"placement": "block"}) == ("MC-Dropout(0.2) in every block", {})
    assert match_row(config | {"placement": "conv", "p": 0.3}) == ("MC-Dropout(0.3), placement=conv", {})
    assert match_row(config | {"placement": "block", "epochs": 2}) == (None, {"placement": "block", "epochs": 2})
    assert match_row({k: v for k, v in config.items() if k != "placement"}) == (None, {"placement": "absent"})


def test_another_value_of_the_hyperparameter_is_a_row_and_no_other_setting_is():
    config = cell_identity("cifar10", "paper", "vgg13", "MC-DropReLU(0.8)")
    assert match_row(config | {"q": 0.7, "position": "last"}) == ("MC-DropReLU(0.7)", {})
    assert match_row(config | {"q": 1.0}) == ("MC-DropReLU(1)", {})
    assert match_row(config | {"q": 0.80000001}) == ("MC-DropReLU(0.80000001)", {})  # not the paper's 0.8
    assert match_row(config | {"q": 0.7, "epochs": 2}) == (None, {"q": 0.7, "epochs": 2})
    ensemble = cell_identity("cifar10", "paper", "vgg13", "Deep Ensemble(4)")
    assert match_row(ensemble | {"members": 8}) == ("Deep Ensemble(8)", {})


def test_a_position_sets_no_row_apart_and_is_named_beside_what_does():
    config = cell_identity("digits", "demo", "small", "MC-RReLU") | {"position": "last"}
    assert match_row(config) == ("MC-RReLU", {})
    assert match_row(config | {"epochs": 2}) == (None, {"epochs": 2, "position": "last"})


def test_a_result_without_its_hyperparameter_is_no_row():
    config = canonical("digits", "demo", "mc_dropout").identity | {"arch": "small"}
    del config["p"]
    assert rows.match_row(config)[0] is None and rows.match_row(config)[1]["p"] == "absent"


def test_every_setting_of_a_method_of_ones_own_is_a_row():
    usual = canonical("digits", "demo", "rrelu")
    config = usual.identity | {"arch": "small"}
    near = [rows.own_row(config | {"l": value, "u": None}, usual) for value in (0.05, 0.050001)]
    assert near == [("rrelu(l=0.05, u=None)", {}), ("rrelu(l=0.050001, u=None)", {})]  # position is the default
    assert rows.own_row(config, usual) == ("rrelu", {})
    assert rows.own_row(config | {"epochs": 2}, usual) == (None, {"epochs": 2})


def test_rows_of_other_methods_come_last_and_by_the_values_of_their_hyperparameters(monkeypatch):
    monkeypatch.setattr(records, "match_row", lambda config: (f"{config['method']}({config.get('s')})", {}))
    made = [made_up.result("Single")] * 5
    hyperparameters = [("b", {"s": 10}), ("b", {"s": "x"}), ("b", {"s": 9.5}), ("a", {}), ("svi", {})]
    found = [
        run | {"name": str(k), "config": run["config"] | {"method": method} | own}
        for k, (run, (method, own)) in enumerate(zip(made, hyperparameters, strict=True))
    ]
    assert list(made_up.read_records(found).row) == ["svi(None)", "a(None)", "b(9.5)", "b(10)", "b(x)"]
    assert rows.in_order(["b(s=10)", "SVI", "a", "Single", "a"]) == ["Single", "SVI", "b(s=10)", "a"]


# --- over seeds -------------------------------------------------------------------------------------------------------


def over_seeds(*runs):
    frame = pd.DataFrame(runs, columns=["row", "seed", "a", "b"])
    return records.over_seeds(frame, ["row"], ["a", "b"]).set_index("row")


def test_a_network_evaluated_twice_is_one_seed():
    found = over_seeds(("x", 0, 1.0, 1.0), ("x", 0, 3.0, 1.0), ("x", 1, 4.0, 1.0)).loc["x"]
    assert (found.n, found.ours_a, found.std_a) == (2, 3.0, pytest.approx(2**0.5))


def test_a_run_without_a_value_empties_its_cell_and_no_other():
    found = over_seeds(("x", 0, None, 1.0), ("x", 1, 2.0, 1.0), ("y", 0, 5.0, None))
    assert list(found.n) == [2, 1] and found.ours_b.x == 1 and found.ours_a.y == 5
    assert found.loc["x", ["ours_a", "std_a"]].isna().all() and pd.isna(found.ours_b.y)


def test_without_runs_there_is_an_empty_frame_with_all_columns():
    nothing = made_up.read_records([])
    assert list(nothing) == records.COLUMNS and records.over_seeds(nothing, ["row"], ["ece"]).empty


def test_the_number_of_test_images_comes_from_the_clean_runs_where_a_corrupted_one_lacks_it():
    old = {key: value for key, value in made_up.corrupted("SVI").items() if key != "images"}
    alone, both = (made_up.read_records(runs) for runs in ([old], [old, made_up.result("Single") | {"images": 360}]))
    assert alone.images.isna().all() and list(both.images) == [360, 360]
