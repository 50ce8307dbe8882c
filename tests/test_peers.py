"""Our baselines beside those of other projects: the file of their numbers, and the table."""

import json
from math import isnan

import made_up
import pytest
from commands import call
from conftest import PAPER

from rbue.report import peers
from rbue.report.columns import MISSING
from rbue.report.rows import ARCHS, DATASETS, PROPOSED, ROWS

CONTENT = json.loads((PAPER / "peers.json").read_text(encoding="utf-8"))
MATCHED = ("cifar10", "matched", "resnet18")


def built(*runs):
    return peers.build(made_up.read_records(runs), PAPER)


def beside(frame, project="MarioProjects/ensemble_analysis", row="Single"):
    """The cell of CIFAR-10 with ResNet-18 of one project."""
    here = (frame.dataset == "cifar10") & (frame.arch == "resnet18") & (frame.project == project) & (frame.row == row)
    (cell,) = frame[here].to_dict("records")
    return cell


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", CONTENT["rows"], ids=lambda row: f"{row['dataset']}-{row['method']}-{row['project']}")
def test_every_row_names_a_baseline_of_the_suite_and_a_source(row):
    assert row["dataset"] in DATASETS and row["arch"] in ARCHS
    assert row["row"] in dict(ROWS) and row["row"] not in PROPOSED
    assert row["project"] in CONTENT["projects"]
    accuracy, ece = (peers.mean(row[score]) for score in peers.SCORES)
    assert 50 < accuracy < 100 and (isnan(ece) or 0 < ece < 0.2)


def test_every_project_has_rows_a_file_and_a_protocol_and_none_has_a_path_of_a_machine():
    assert {row["project"] for row in CONTENT["rows"]} == set(CONTENT["projects"])
    for name, project in CONTENT["projects"].items():
        assert name.count("/") == 1 and set(project) == {"file", "protocol"}
        assert not project["file"].startswith("/") and not project["protocol"].endswith(".")


# --- the table --------------------------------------------------------------------------------------------------------


def test_a_cell_has_their_mean_over_seeds_our_mean_and_the_papers_number():
    cell = beside(built(*(made_up.result("Single", a, 0.03, MATCHED, seed=k) for k, a in enumerate((0.95, 0.952)))))
    assert cell["their_accuracy"] == pytest.approx(95.328) and cell["their_ece"] == pytest.approx(0.0215472)
    assert cell["ours_accuracy"] == pytest.approx(95.1) and cell["n"] == 2
    assert cell["paper_accuracy"] == 95.01 and cell["protocol"] == "matched"


def test_the_fullest_protocol_stands_beside_them():
    fast, matched = made_up.result("Single", 0.94), made_up.result("Single", 0.95, where=MATCHED)
    assert beside(built(fast))["protocol"] == "fast"
    assert beside(built(fast, matched))["ours_accuracy"] == pytest.approx(95)


def test_rows_without_our_results_have_dashes_and_stay():
    frame = built(made_up.result("Single", where=MATCHED))
    assert len(frame) == len(CONTENT["rows"])
    ours = [line[4] for line in peers.rows(frame)[1:] if line[:3] == ["CIFAR-100 with VGG-13", "Single", "Single"]]
    assert ours == [MISSING]
    assert frame.n.sum() == sum(
        (r["dataset"], r["arch"], r["row"]) == ("cifar10", "resnet18", "Single") for r in CONTENT["rows"]
    )


def test_the_answer_is_computed_from_the_single_rows():
    text = peers.answer(built(made_up.result("Single", 0.96, 0.03, MATCHED), made_up.result("SVI", 0.5, 0.5, MATCHED)))
    assert "by +0.67 to +3.28 points of accuracy (4 comparisons; median +1.96)" in text
    assert "and −0.027 to +0.008 of ECE (2 comparisons). In 1 of these 2, our ECE is nearer" in text
    assert "only rough agreement can be expected" in text


def test_without_a_single_row_the_answer_says_so():
    assert "None of our Single rows" in peers.answer(built(made_up.result("SVI", where=MATCHED)))


def test_a_published_accuracy_without_ece_alone_is_compared_in_accuracy_alone():
    text = peers.answer(built(made_up.result("Single", 0.74, 0.1, ("cifar100", "matched", "vgg13"))))
    assert "by +2.00 points of accuracy (1 comparison;" in text and "ECE" not in text


def test_the_notes_name_every_source_and_our_protocols():
    notes = " ".join(peers.notes(built(made_up.result("Single", where=MATCHED))))
    assert all(f"https://github.com/{name}," in notes for name in CONTENT["projects"])
    assert "Our `matched`: SGD, 200 epochs, weight decay 0.0005, 30 ECE bins." in notes and "`fast`" not in notes


def test_the_latex_is_balanced_ascii():
    text = peers.latex(built(made_up.result("Single", where=MATCHED)))
    assert text.isascii() and text.count("{") == text.count("}")
    assert {line.count(" & ") for line in text.splitlines() if line.endswith(r"\\")} == {len(peers.COLUMNS) - 1}


def test_the_command_writes_the_table_only_beside_results_that_compare(tmp_path):
    for name, where in (("near", MATCHED), ("far", made_up.DIGITS)):
        runs, out = made_up.write(tmp_path / name, [made_up.result("Single", where=where)]), tmp_path / f"{name}-out"
        call("scripts/tables.py", "--results", runs, "--out", out)
        assert sorted(path.suffix for path in out.glob("peers.*")) == (
            [".csv", ".md", ".tex"] if name == "near" else []
        )
