"""Table 6: the position of the stochastic rectifiers, the paper's number beside ours."""

from math import isnan

import made_up
import pytest
from conftest import PAPER

from rbue.report import position
from rbue.report.columns import MISSING


def result(label, seconds=200.0, **more):
    return made_up.result(label, **more) | {"seconds": {"train": seconds, "evaluate": 12.0}}


def positions(*runs):
    """{position: cell} of the last network of the table, and its grid."""
    (cells,) = position.build(made_up.read_records(runs), PAPER).values()
    return {cell["position"]: cell for cell in cells.to_dict("records")[-3:]}, position.rows(cells)


Q8, HERE = "MC-DropReLU(0.8)", {"where": ("digits", "demo", "small")}


def test_the_papers_position_table_stands_first_and_ours_beneath_it():
    everywhere, last = result(Q8, seconds=200, **HERE), result(Q8, seconds=150, ece=0.06, position="last", **HERE)
    cells, grid = positions(everywhere, last)
    assert [row[0] for row in grid[1:4]] == [f"TinyImageNet, DenseNet-121, {Q8}: {p} layer{s}" for p, s in PLACES]
    assert [row[1] for row in grid[1:4]] == ["63"] * 3 and [row[3] for row in grid[1:4]] == ["0.04", "0.06", "0.06"]
    assert cells["last"]["ours_time_ratio"] == 0.75 and cells["last"]["ours_ece"] == 0.06
    assert cells["first"]["n"] == 0 and grid[-1][1:] == [MISSING] * 9


@pytest.mark.parametrize(("protocol", "epochs"), [("fast", 30), ("matched", 150)])
def test_a_shorter_training_than_the_papers_is_told(protocol, epochs):
    where = {"where": ("tinyimagenet", protocol, "densenet121")}
    (cells,) = position.build(made_up.read_records([result(Q8, **where)] * 2), PAPER).values()
    assert "epochs" not in position.markdown(protocol, cells)  # nothing to compare is measured
    runs = [result(Q8, **where), result(Q8, position="last", **where)]
    (cells,) = position.build(made_up.read_records(runs), PAPER).values()
    told = [f(protocol, cells) for f in (position.markdown, position.latex)]
    short = f"On TinyImageNet, we trained for {epochs} epochs, the paper for 150."
    assert all((short in text) == (epochs < 150) for text in told)


def test_full_schedules_come_first():
    runs = [result(Q8, where=("tinyimagenet", name, "densenet121")) for name in ("fast", "paper", "matched")]
    assert list(position.build(made_up.read_records(runs), PAPER)) == ["matched", "paper", "fast"]


def test_a_seed_without_a_time_of_its_own_leaves_no_ratio_of_the_others():
    runs = [result(Q8, seed=seed, **HERE) for seed in (0, 1)]
    last = [result(Q8, seed=seed, seconds=150, position="last", **HERE) for seed in (0, 1)]
    assert positions(*runs, *last)[0]["last"]["ours_time_ratio"] == 0.75
    last[1] |= {"trainings": [{"packed": 4, "hardware": "NVIDIA H200"}]}  # only an equal share of the time is known
    cells, _ = positions(*runs, *last)
    assert cells["last"]["n"] == 2 and isnan(cells["last"]["ours_time_ratio"])


def test_times_of_two_versions_of_the_code_have_no_ratio():
    trained = {code: {"trainings": [{"hardware": "NVIDIA H200", "code": code}]} for code in ("old", "new")}
    everywhere, last = result(Q8, **HERE), result(Q8, seconds=150, position="last", **HERE)
    cells, _ = positions(everywhere | trained["new"], last | trained["new"])
    assert cells["last"]["ours_time_ratio"] == 0.75
    cells, _ = positions(everywhere | trained["old"], last | trained["new"])
    assert isnan(cells["last"]["ours_time_ratio"]) and cells["last"]["ours_train_seconds"] == 150


PLACES = [("all", "s"), ("last", ""), ("first", "")]


def test_a_network_measured_at_one_position_alone_is_not_compared():
    _, grid = positions(result(Q8, **HERE), result("Single", **HERE))
    assert len(grid) == 4


def test_the_position_tables_latex_is_balanced_ascii():
    runs = [result(Q8, **HERE), result(Q8, position="last", **HERE)]
    (cells,) = position.build(made_up.read_records(runs), PAPER).values()
    text = position.latex("demo", cells)
    assert text.isascii() and text.count("{") == text.count("}")
    assert {line.count(" & ") for line in text.splitlines() if line.endswith(r"\\")} == {9}
