"""Two rows are compared as the claims compare them, and the rows may be the user's own."""

import made_up
import pytest
from test_claims import our_frames, result
from test_claims_paired import HARD, better_and_worse, kept, right_but

from rbue.errors import UserError
from rbue.report.claims.numbers import Numbers
from rbue.report.claims.scopes import C10, Q8, Q95
from rbue.report.compare import compare
from rbue.runs.results import collect


def test_a_comparison_is_paired_and_agrees_with_the_claims(tmp_path):
    runs = better_and_worse(tmp_path)
    accuracy, ece = compare(runs, Q95, Q8).itertuples()
    assert (accuracy.metric, ece.metric) == ("accuracy", "ece") and accuracy.judged == "paired"
    values = Numbers.of(our_frames(runs)[accuracy.protocol]).values
    place = accuracy.dataset, accuracy.arch
    gap = values[*place, Q95, "accuracy"] - values[*place, Q8, "accuracy"]
    assert accuracy.difference == pytest.approx(0.4) and 0 < accuracy.low < 0.4 < accuracy.high
    assert (accuracy.low, accuracy.p) == (gap.mean - gap.reach, gap.p) and place == C10


def test_a_comparison_says_whether_its_interval_covers_seeds(tmp_path):
    assert set(compare(better_and_worse(tmp_path), Q95, Q8).over) == {"images"}
    kept(tmp_path / "again", result(Q8, seed=1), right_but(slice(0, 400)))
    assert set(compare(collect(tmp_path), Q95, Q8).over) == {"images and seeds"}


def test_an_unpaired_comparison_covers_seeds_if_a_row_has_several():
    runs = made_up.read([result("Single"), result("SVI"), result("SVI", seed=1)])
    assert set(compare(runs, "SVI", "Single").over) == {"images and seeds"}
    assert set(compare(runs[:2], "SVI", "Single").over) == {"images"}


def test_rows_that_share_no_network_are_named_with_their_networks():
    runs = [result("SVI"), result("Single", place=("cifar100", "vgg13"))]
    said = r"SVI on CIFAR-10 with ResNet-18 \(matched\), Single on CIFAR-100 with VGG-13 \(matched\)"
    with pytest.raises(UserError, match=said):
        compare(made_up.read(runs), "SVI", "Single")


def test_a_row_is_not_compared_with_itself():
    with pytest.raises(UserError, match="row and other are both SVI: name two rows"):
        compare(made_up.read([result("SVI")]), "SVI", "SVI")


def test_the_users_own_row_can_be_compared(tmp_path, digits_run):
    run = digits_run("method=ivon")
    own = made_up.result("Single", where=made_up.DIGITS)
    own |= {"name": run.name, "config": run.identity | {"samples": run.samples}}
    single = made_up.result("Single", where=made_up.DIGITS)
    kept(tmp_path / "own", own, right_but(slice(0, 400)))
    kept(tmp_path / "single", single, right_but(HARD))
    found = compare(collect(tmp_path), "IVON", "Single")
    assert found.difference[0] == pytest.approx(1.0) and list(found.n) == [1, 1]


def test_another_value_of_a_papers_method_can_be_compared(tmp_path):
    kept(tmp_path / "other", result(Q8, q=0.7), right_but(slice(0, 400)))
    kept(tmp_path / "papers", result(Q8), right_but(HARD))
    found = compare(collect(tmp_path), "MC-DropReLU(0.7)", Q8)
    assert found.difference[0] == pytest.approx(1.0) and found.judged[0] == "paired"


def test_an_unknown_row_is_refused_with_those_that_are_there():
    with pytest.raises(UserError, match=r"no result is of the row Single2: the rows are Single$"):
        compare(made_up.read([result("Single")]), "Single2", "Single")


def test_a_refusal_names_a_result_whose_settings_are_those_of_no_row():
    runs = made_up.read([result("Single", epochs=2), result("SVI")])
    with pytest.raises(UserError, match=r"the rows are SVI; 1 result is of no row, such as \S+ \(epochs=2\)$"):
        compare(runs, "SVI", "Single")
    with pytest.raises(UserError, match=r"the row SVI: there are no rows; 1 result is of no row"):
        compare(made_up.read([result("Single", epochs=2)]), "SVI", "Single")


def test_results_that_are_not_known_are_named_and_the_refusal_mentions_them(capsys):
    own = result("Single") | {"name": "mine"}
    own["config"] = own["config"] | {"dataset": "mine"}
    with pytest.raises(UserError, match=r"the rows are SVI, but some results are left out \(see above\)$"):
        compare(made_up.read([own, result("SVI")]), "SVI", "Single")
    told = "left out: 1 result of dataset=mine, whose package or YAML file is not found: name it with rbue.plugins."
    assert capsys.readouterr().err.startswith(told)
    with pytest.raises(UserError, match="there is nothing but 1 result of dataset=mine, whose"):
        compare(made_up.read([own]), "SVI", "Single")
