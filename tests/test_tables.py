"""The tables show what was measured: the right cells, the true n, nothing dropped silently, equal bytes every time."""

import filecmp
import json
import re
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import made_up
import pandas as pd
import pytest
from commands import call, call_without_torch
from conftest import PAPER, ROOT
from test_claims_paired import HARD, kept, right_but

from rbue.report import cells, peers, position
from rbue.report.cells import bold_agreement, paper_cells
from rbue.report.columns import MISSING, duration
from rbue.report.records import records
from rbue.report.rows import ARCHS, DATASETS, LABELS, PROPOSED, ROWS, match_row
from rbue.report.tables import BEGIN, END, csv, headline, latex, markdown, summary
from rbue.report.text import augmentation_text
from rbue.runs.compose import canonical
from rbue.runs.results import collect


def result(label, accuracy=0.95, ece=0.03, seconds=200.0, hardware="NVIDIA H200", where=(), **changes):
    """A result.json as train.py writes it, with made-up numbers."""
    made = made_up.result(label, accuracy, ece, where or ("cifar10", "matched", "resnet18"), **changes)
    return made | {
        "seconds": {"train": seconds, "evaluate": 12.0},
        "test_ms_per_image": 0.0123,
        "peak_memory_bytes": {"alone": 3 * 2**30, "evaluate": 2**30},
        "metrics": made["metrics"] | {"nll": 0.19},
        "environment": made["environment"] | {"hardware": hardware, "torch": "2.11.0"},
    }


def build(results, **only):
    return cells.build(made_up.read_records(results), PAPER, **only)


@cache
def committed():
    return records(collect(ROOT / "results" / "runs"))


@cache
def committed_tables():
    return cells.build(committed(), PAPER)


def seeds(label, *accuracies, **more):
    return [result(label, accuracy=a, seed=seed, **more) for seed, a in enumerate(accuracies)]


def table(results, dataset="cifar10"):
    return build(results, dataset=dataset)[0]


def cell(results, label, arch="resnet18"):
    found = table(results).cells
    return found[(found.row == label) & (found.arch == arch)].iloc[0]


def md_row(results, label, arch="ResNet-18"):
    section = markdown(table(results)).split(f"## {arch}\n")[1]
    line = next(line for line in section.splitlines() if line.startswith(f"| {label} "))
    return [text.strip() for text in line.strip("|").split("|")][1:]


# --- the paper's numbers ----------------------------------------------------------------------------------------------


def test_the_paper_has_ninety_cells_in_ten_rows():
    paper = paper_cells(PAPER)
    assert len(paper) == 90 and list(paper.row.unique()) == LABELS
    assert paper.groupby(["dataset", "arch"]).size().eq(10).all()


def test_the_papers_rows_have_the_hyperparameters_of_ours():
    for entry in json.loads((PAPER / "numbers.json").read_text())["main"]:
        settings = dict(ROWS)[entry["row"]]
        assert settings == {key: entry[key] for key in settings}


def test_printed_numbers_were_typed_right():
    """One cell of each table, copied from the paper's pages."""
    paper = paper_cells(PAPER).set_index(["dataset", "arch", "row"])[["accuracy", "ece", "train_hours"]]
    assert paper.loc[("cifar10", "densenet121", "Single")].tolist() == [94.20, 0.05, 2.9]
    assert paper.loc[("cifar100", "vgg13", "SVI")].tolist() == [72.12, 0.11, 1.8]
    assert paper.loc[("tinyimagenet", "resnet18", "Deep Ensemble(4)")].tolist() == [67.34, 0.05, 23.6]


def test_the_bold_rule_finds_all_nine_bold_rows_of_the_paper():
    computed = {key: computed for key, (_, computed) in bold_agreement(paper_cells(PAPER)).items()}
    assert computed == {
        ("cifar10", "vgg13"): "MC-DropReLU(0.9)",
        ("cifar10", "resnet18"): "MC-DropReLU(0.95)",
        ("cifar10", "densenet121"): "MC-DropReLU(0.95)",
        ("cifar100", "vgg13"): "MC-RReLU",
        ("cifar100", "resnet18"): "MC-DropReLU(0.95)",
        ("cifar100", "densenet121"): "MC-DropReLU(0.85)",
        ("tinyimagenet", "vgg13"): "MC-RReLU",
        ("tinyimagenet", "resnet18"): "MC-DropReLU(0.8)",
        ("tinyimagenet", "densenet121"): "MC-DropReLU(0.9)",
    }
    assert all(printed == computed for printed, computed in bold_agreement(paper_cells(PAPER)).values())


# --- which run feeds which cell ---------------------------------------------------------------------------------------


def test_a_shortened_run_is_no_result_of_the_protocol():
    short = result("Single", accuracy=0.5, epochs=2)
    assert match_row(short["config"]) == (None, {"epochs": 2})
    assert cell([short, result("Single")], "Single").n == 1
    assert cell([short, result("Single")], "Single").ours_accuracy == 95


def test_runs_outside_the_rows_are_counted_and_named_with_what_differs():
    runs = [result("Single", epochs=2), result("MC-DropReLU(0.9)", crop=2), result("MC-RReLU", u=0.5)]
    page = markdown(table(runs))
    assert "3 runs are not in this table" in page and "0 of 30 cells measured" in page
    for run, why in zip(runs, ["(epochs=2)", "(crop=2)", "(u=0.5)"], strict=True):
        assert f"`{run['name']}` {why}" in page
    assert "epochs=2" in latex(table(runs)) and "epochs=2" in summary(table(runs))


def test_another_value_of_a_papers_method_is_a_row_below_the_papers():
    found = [*seeds("MC-DropReLU(0.9)", 0.91, 0.92, q=0.7), result("MC-Dropout(0.2)", p=0.3), result("Single")]
    shown = table(found)
    assert list(shown.cells.row.unique()) == [*LABELS, "MC-Dropout(0.3)", "MC-DropReLU(0.7)"]
    assert cell(found, "MC-DropReLU(0.7)").n == 2 and "not in this table" not in markdown(shown)
    assert shown.measured == 1 and "| MC-DropReLU(0.7) " not in headline([shown])


def test_a_row_that_is_not_in_the_paper_is_shown_only_for_networks_that_have_it():
    shown = markdown(table([result("MC-DropReLU(0.9)", q=0.7), result("Single")]))
    networks = shown.partition("## Parameters")[0].split("## ")
    assert [part.count("| MC-DropReLU(0.7) ") for part in networks] == [0, 0, 1, 0]  # VGG-13, ResNet-18, DenseNet-121


def test_a_position_run_is_no_longer_listed_as_left_out_but_another_change_is():
    runs = [result("MC-DropReLU(0.8)", position="last"), result("MC-DropReLU(0.8)", position="last", epochs=2)]
    page = markdown(table(runs))
    assert "1 run is not in this table" in page and "epochs=2, position=last" in page


def test_a_run_of_a_protocol_that_is_gone_is_still_named():
    gone = result("Single")
    gone["config"] |= {"protocol": "forgotten"}
    assert "protocol=forgotten" in markdown(table([gone]))


def test_corrupted_test_sets_are_not_for_these_tables():
    corrupted = result("Single")
    corrupted["config"] |= {"dataset": "cifar10_c"}
    assert build([corrupted]) == []


# --- what a cell says -------------------------------------------------------------------------------------------------


def test_mean_std_and_n_over_seeds():
    runs = seeds("Single", 0.94, 0.95, 0.96)
    assert cell(runs, "Single").n == 3
    assert cell(runs, "Single").ours_accuracy == pytest.approx(95)
    assert cell(runs, "Single").std_accuracy == pytest.approx(1)  # ddof=1; ddof=0 would be 0.816
    assert md_row(runs, "Single")[:3] == ["95.01", "95.00 ± 1.00 (3)", "-0.01"]


def test_a_row_whose_networks_were_trained_in_two_precisions_says_so():
    both = [result("Single", accuracy, precision=p) for accuracy, p in ((0.94, "bf16"), (0.96, "fp32"))]
    other = result("SVI", precision="bf16")
    told = "Networks trained in bf16 and fp32 are averaged, also if they have the same seed"
    assert cell(both, "Single").n == 1 and f"- {told}.\n" in markdown(table(both))
    assert f"- {told}: ResNet-18 (Single).\n" in markdown(table([*both, other]))
    assert "averaged, also" not in markdown(table([both[0], other]))


def test_one_seed_prints_no_spread_and_says_so():
    row = md_row([result("SVI", accuracy=0.9442, ece=0.036)], "SVI")
    times = ["1.9 h", "3 min 20 s", "34×", "1.12×", "–"]
    assert row == ["94.42", "94.42 (1)", "+0.00", "0.04", "0.036 (1)", "-0.004", *times]


def test_time_is_a_ratio_to_single_on_the_same_hardware_only():
    runs = [result("Single", seconds=100), result("SVI", seconds=150), result("MC-RReLU", seconds=990, hardware="CPU")]
    assert cell(runs, "SVI").ours_time_ratio == pytest.approx(1.5)
    assert pd.isna(cell(runs, "MC-RReLU").ours_time_ratio)
    assert md_row(runs, "MC-RReLU")[-4:] == ["16 min 30 s", "7×", "1.12×", MISSING]


def test_only_as_many_epochs_as_the_papers_are_so_many_times_faster():
    short = ("cifar10", "fast", "resnet18")
    assert md_row([result("Single", seconds=30, where=short)], "Single")[-4:-2] == ["1.7 h", "30.0 s"]
    assert "took the paper" not in markdown(table([result("Single", seconds=30, where=short)]))


def test_the_notes_speak_of_faster_only_where_the_column_is():
    full, short = (
        markdown(table([result("Single", where=("tinyimagenet", p, "vgg13"))], "tinyimagenet"))
        for p in ("matched", "fast")
    )
    assert "`speed-up` is their ratio to ours" in full and "speed-up" not in short
    assert "compare only the ratios to Single" in short


def test_a_training_that_two_rows_share_counts_once():
    member = {"name": "a", "seconds": 100.0}
    runs = [
        result("Single") | {"trainings": [member]},
        result("Deep Ensemble(4)") | {"trainings": [member, {"name": "b", "seconds": 80.0}]},
    ]
    cost = "This table needed 2 trainings. They took 3 min 00 s in total, without compilation."
    assert f"{cost} In the paper, one training of each row takes 8.5 h in total." in markdown(table(runs))
    one = "This table needed 1 training. It took 1 min 40 s, without compilation."
    assert one in markdown(table(runs[:1]))


def test_a_cell_far_from_the_papers_has_a_reason_or_says_that_there_is_none():
    near, far = result("Single", accuracy=0.9495, ece=0.03), result("MC-RReLU", accuracy=0.90, ece=0.03)
    assert "Far from" not in markdown(table([near]))
    where = "Far from the paper's number (points: percentage points): ResNet-18 MC-RReLU"
    note = f"{where}: accuracy -4.68 points. Not explained."
    assert note in markdown(table([near, far]))
    known = markdown(table([result("SVI", accuracy=0.90, ece=0.3, where=("cifar10", "matched", "resnet18"))]))
    assert "ResNet-18 SVI: accuracy -4.42 points, ECE +0.260. The paper gives no settings of its SVI" in known


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_reason_states_as_many_epochs_as_the_paper_does_for_this_dataset(dataset):
    text = markdown(table([result("Single", accuracy=0.3, where=(dataset, "fast", "vgg13"))], dataset))
    stated = canonical(dataset, "paper", "single").epochs
    assert f"We trained for 30 epochs, the paper for {stated}." in text


def test_many_cells_far_from_the_papers_are_counted_instead_of_listed():
    archs = ("vgg13", "resnet18", "densenet121")
    runs = [result(label, 0.5, where=("cifar10", "paper", arch)) for arch in archs for label in LABELS]
    (note,) = [line for line in markdown(table(runs)).splitlines() if "accuracy of" in line]
    printed = "-46.12 points to -42.80 points"  # 96.12 and 92.80; two rows have reasons of their own
    told = f"VGG-13, ResNet-18, DenseNet-121: accuracy of 28 rows ({printed}) and ECE of 4 rows (-0.020)"
    assert f": {told}. Not explained." in note


def test_an_underscore_in_a_rows_name_is_text_in_latex():
    run = replace(canonical("cifar10", "matched", "ivon"), arch="resnet18", hess_rate=0.1)
    text = latex(table([result("Single") | {"name": run.name, "config": run.identity}]))
    assert text.count(r"IVON(hess\_rate=0.1) &") == 2 and "hess_rate" not in text


def test_the_readme_has_one_table_of_five_columns_and_a_short_protocol_only_until_a_table_is_whole():
    short = ("cifar10", "fast", "resnet18")
    few, all_rows = [result("Single", where=short), result("Single")], [result(label) for label in LABELS]
    other = result("SVI", where=("cifar10", "matched", "vgg13"))
    text = headline(build([*few, other]))
    (header,) = [line for line in text.splitlines() if line.startswith("| Method")]
    assert header.count("|") == 6 and "`matched`" in header and "`fast`" not in header
    (counts,) = re.findall(r"^\| CIFAR-10 +\|(.*)\|$", text, re.M)
    link = "[`matched`](results/tables/matched/cifar10.md)"
    short_link = link.replace("matched", "fast")
    assert [count.strip() for count in counts.split("|")] == [f"1 {link}", f"1 {link}, 1 {short_link}"]
    assert "`fast`" not in headline(build([few[0], *all_rows]))


def test_the_readme_lists_networks_in_the_papers_order_and_says_when_all_are_measured():
    places = [(dataset, "fast", arch) for dataset in DATASETS for arch in ARCHS]
    runs = [result(label, where=place) for place in reversed(places) for label in LABELS]
    whole, lacking = headline(build(runs)), headline(build(runs[:-1]))
    short = "cells of the paper are measured, none of them with the paper's number of epochs"
    assert (
        f"All 90 {short}. Number of measured rows (out of 10) per protocol. A protocol with few epochs is not " in whole
    )
    assert "Measured so far: 89 of the paper's 90 cells, none of them" in lacking
    longer = [result(label, where=(*place[:1], "matched", place[2])) for place in places[1:3] for label in LABELS]
    assert "Measured so far: 89 of the paper's 90 cells, 20 of them with" in headline(build([*runs[:-1], *longer]))
    assert "Measured so far: 20 of the paper's 90 cells." in headline(build(longer))
    small = result("Single", where=("tinyimagenet", "fast", "small"))  # a network that is not in the paper
    assert "Measured so far: 89 of the paper's 90 cells, none" in headline(build([*runs[:-1], small]))
    head, _, *lines = [[text.strip() for text in line.split("|")[1:-1]] for line in whole.splitlines()[-5:]]
    assert head == ["", *ARCHS.values()] and [line[0] for line in lines] == [*DATASETS.values()]
    for name, *counts in lines:
        (dataset,) = [key for key, value in DATASETS.items() if value == name]
        assert counts == [f"10 [`fast`](results/tables/fast/{dataset}.md)"] * 3
    small_only = headline(build([small])).splitlines()[-1]
    apart = headline(build([result("Single", where=("cifar100", "matched", "vgg13")), result("SVI", where=places[1])]))
    assert [line.split("|")[1].strip() for line in apart.splitlines()[-2:]] == ["CIFAR-10", "CIFAR-100"]
    assert [name.strip() for name in apart.splitlines()[-4].split("|")[2:-1]] == ["VGG-13", "ResNet-18"]
    assert small_only.split("|")[2].strip() == "1 [`fast`](results/tables/fast/tinyimagenet.md)"


def test_a_missing_cell_prints_a_dash_beside_the_papers_number():
    row = md_row([result("Single")], "MC-Dropout(0.5)", "DenseNet-121")
    assert row == ["94.16", "–", "–", "0.04", "–", "–", "3.4 h", "–", "–", "1.17×", "–"]
    assert "1 of 30 cells measured" in markdown(table([result("Single")]))


def test_a_value_that_one_seed_lacks_empties_the_cell_rather_than_averaging_the_others():
    runs = seeds("Single", 0.94, 0.95)
    runs[0]["test_ms_per_image"], runs[0]["environment"]["hardware"] = None, "RTX 3090"
    assert pd.isna(cell(runs, "Single").ours_test_ms_per_image)
    assert cell(runs, "Single").ours_parameters == 11173962


def test_times_of_a_seed_that_shared_the_gpu_are_those_of_the_other_seeds_and_a_note_says_so():
    note = "Where the time of a seed is unknown, the mean of the other seeds of its row is used"
    single, svi = packed("Single", 50.0, 100.0, code="one"), packed("SVI", 50.0, 120.0, code="one")
    shared = packed("SVI", 30.0, None, code="two") | {"config": svi["config"] | {"seed": 1}, "name": "later"}
    shared["test_ms_per_image"] = None
    found = cell([single, svi, shared], "SVI")
    assert (found.ours_train_seconds, found.ours_test_ms_per_image, found.n) == (120, svi["test_ms_per_image"], 2)
    assert found.ours_time_ratio == pytest.approx(1.2)
    text = markdown(table([single, svi, shared]))
    assert f"{note}: ResNet-18 (SVI)." in text and "equal share" not in text and "Test time is unknown" not in text
    assert note not in markdown(table([single, svi]))
    svi["environment"]["precision"] = "float32"  # then its test time is another one
    svi["trainings"][0]["hardware"] = "RTX 3090"
    apart = cell([single, svi, shared], "SVI")
    assert pd.isna(apart.ours_test_ms_per_image) and apart.ours_train_seconds == (120 + 30) / 2
    assert "equal share" in markdown(table([single, svi, shared]))


def test_the_peak_memory_of_one_seed_stands_for_seeds_that_shared_the_gpu():
    alone, shared = seeds("Single", 0.94, 0.95)
    alone["peak_memory_bytes"]["alone"] = 7
    shared["peak_memory_bytes"]["alone"], shared["trainings"] = None, [{"packed": 4}]
    alone["trainings"] = [{"packed": 1}]
    runs = [alone, shared, packed("SVI", 50.0, alone=None)]
    assert cell(runs, "Single").ours_peak_train_bytes == 7 and pd.isna(cell(runs, "SVI").ours_peak_train_bytes)
    assert "one network alone: ResNet-18 (SVI)." in markdown(table(runs))
    shared["environment"]["precision"] = "float32"
    assert pd.isna(cell(runs, "Single").ours_peak_train_bytes)
    shared["environment"]["precision"], shared["trainings"][0]["code"] = alone["environment"]["precision"], "another"
    assert pd.isna(cell(runs, "Single").ours_peak_train_bytes)


def test_ours_is_bold_only_when_all_proposed_rows_are_there():
    eces = dict(zip(PROPOSED, [0.03, 0.021, 0.024, 0.04, 0.05], strict=True))
    runs = [result(label, ece=ece, accuracy=0.9 + i / 1000) for i, (label, ece) in enumerate(eces.items())]
    assert table(runs).cells.query("ours_bold").row.tolist() == ["MC-DropReLU(0.85)"]  # .021 and .024 both print .02
    assert md_row(runs, "MC-DropReLU(0.85)")[1] == "**90.20 (1)**"
    assert not table(runs[1:]).cells.ours_bold.any()


def packed(label, seconds, alone, **record):
    made = result(label, seconds=seconds)
    made["peak_memory_bytes"]["alone"] = None
    return made | {"trainings": [{"packed": 4} | record], "seconds": made["seconds"] | {"alone": alone}}


def test_a_test_time_that_is_missing_has_a_reason():
    timed, untimed = result("Single"), result("SVI") | {"test_ms_per_image": None}
    assert "Test time is unknown" not in markdown(table([timed]))
    note = "Test time is unknown, since other processes used the GPU or since it was not measured: ResNet-18 (SVI)."
    assert note in markdown(table([timed, untimed]))


def test_networks_packed_on_one_gpu_compare_by_their_time_alone():
    known = [packed("Single", 50.0, alone=120.0), packed("SVI", 50.0, alone=150.0)]
    assert cell(known, "SVI").ours_train_seconds == 150 and cell(known, "SVI").ours_time_ratio == pytest.approx(1.25)
    assert "measured alone on the GPU" in markdown(table(known)) and "equal share" not in markdown(table(known))
    assert pd.isna(cell(known, "SVI").ours_peak_train_bytes)
    hidden = "Peak memory is unknown, since it was not measured for one network alone."
    assert hidden in markdown(table(known))
    assert "one network alone: ResNet-18 (Single, SVI)." in markdown(table([*known, result("MC-RReLU")]))
    shares = [packed("Single", 50.0, alone=None), packed("SVI", 50.0, alone=None)]
    assert cell(shares, "SVI").ours_train_seconds == 50 and pd.isna(cell(shares, "SVI").ours_time_ratio)
    assert "equal share" in markdown(table(shares))


def test_a_ratio_of_two_versions_of_the_code_says_so():
    note = "The ratio to Single's time compares two versions of the code"
    single, rest = packed("Single", 50.0, 120.0, code="one"), packed("MC-RReLU", 50.0, 121.0, code="one")
    assert note not in markdown(table([single, rest]))
    older = packed("SVI", 50.0, 150.0, code="two")
    assert f"{note}: ResNet-18 (SVI)." in markdown(table([single, rest, older]))


def test_seeds_timed_with_singles_code_stand_for_the_others_of_their_row():
    single, svi = packed("Single", 50.0, 100.0, code="one"), packed("SVI", 50.0, 120.0, code="one")
    later = packed("SVI", 50.0, 150.0, code="two") | {"config": svi["config"] | {"seed": 1}, "name": "later"}
    assert cell([single, svi, later], "SVI").ours_time_ratio == pytest.approx(1.2)
    assert cell([single, svi, later], "SVI").n == 2 and cell([single, later], "SVI").ours_time_ratio == pytest.approx(
        1.5
    )
    assert "two versions of the code" not in markdown(table([single, svi, later]))


def test_a_run_outside_the_rows_stands_for_no_other_run():
    single, svi = packed("Single", 50.0, 100.0, code="one"), packed("SVI", 50.0, 120.0, code="one")
    other = packed("MC-Dropout(0.5)", 50.0, 150.0, code="two")
    apart = [run | {"config": run["config"] | {"epochs": 7}} for run in (svi, other)]
    found = made_up.read_records([single, *apart]).set_index("method")
    assert found.row.notna().sum() == 1 and found.time_ratio[["svi", "mc_dropout"]].tolist() == pytest.approx(
        [1.2, 1.5]
    )
    assert found.other_code[["svi", "mc_dropout"]].tolist() == [False, True]


def test_times_of_a_cpu_which_may_be_busy_have_no_ratio():
    runs = [result(label, seconds=9.0, hardware="x86_64 CPU, 2 threads") for label in ("Single", "SVI")]
    assert cell(runs, "SVI").ours_train_seconds == 9 and pd.isna(cell(runs, "SVI").ours_time_ratio)
    assert "Training time on a CPU depends on other programs" in markdown(table(runs))
    assert "depends on other programs" not in markdown(table([result("Single")]))


def test_times_compare_where_the_networks_were_trained_not_where_they_were_tested():
    single = packed("Single", 6000.0, 6000.0, packed=1, hardware="RTX 3090")
    here, there = (packed("SVI", 200.0, 200.0, packed=1, hardware=name) for name in ("NVIDIA H200", "RTX 3090"))
    assert pd.isna(cell([single, here], "SVI").ours_time_ratio)
    assert cell([single, there], "SVI").ours_time_ratio == pytest.approx(1 / 30)
    assert "GPU to itself" not in markdown(table([single, there]))  # this is the time of the whole training itself


def test_durations_read_as_people_say_them():
    said = {9.96: "10.0 s", 59.96: "60.0 s", 203.1: "3 min 23 s", 3599.4: "59 min 59 s", 6120: "1.70 h"}
    assert {seconds: duration(seconds) for seconds in said} == said


# --- which tables there are -------------------------------------------------------------------------------------------


def test_one_of_the_papers_datasets_brings_the_papers_other_two():
    tables = build([result("Single")])
    assert [(t.protocol, t.dataset) for t in tables] == [("matched", dataset) for dataset in DATASETS]
    assert tables[2].measured == 0 and "| 62.82 |" in re.sub(" +", " ", markdown(tables[2]))


def test_the_digits_have_a_table_of_their_own_without_the_papers_columns():
    runs = [result(label, where=("digits", "demo", "small"), hardware="CPU") for label in LABELS]
    (digits,) = build(runs)
    assert digits.archs == ["small"] and digits.measured == 10
    assert "paper |" not in markdown(digits) and "paper &" not in latex(digits)


def test_the_notes_name_protocol_hardware_and_commit():
    run = result("Single", precision="bf16")
    page = markdown(table([run]))
    assert "weight decay 0.0005" in page and "the paper states weight decay 0.0001" in page
    assert "NVIDIA H200 (bf16, torch 2.11.0); commit `0123456789`" in page
    halved = run | {"environment": run["environment"] | {"precision": "float16"}}
    assert "NVIDIA H200 (trained in bf16, tested in fp16, torch 2.11.0)" in markdown(table([halved]))


def test_the_notes_say_in_words_what_the_paper_states():
    note = markdown(table([result("Single", where=("cifar10", "fast", "resnet18"))]))
    stated = "the paper states 200 epochs, learning rate 0.1 divided by ten at 45, 67.5, 90 % of training, weight decay"
    assert f"; {stated} 0.0001.\n" in note


def test_the_notes_name_the_rows_that_were_not_compiled_at_test_time():
    made = [result(row) for row in ("Single", "MC-RReLU")]
    compiled, eager = (
        [one | {"environment": one["environment"] | {"engine": engine}} for one in made]
        for engine in ("captured", "eager")
    )
    note = "At test time, the network was not compiled, which makes a pass slower"
    assert note not in markdown(table(compiled)) and f"{note}.\n" in markdown(table(eager))
    assert f"{note}: ResNet-18 (Single).\n" in markdown(table([eager[0], compiled[1]]))


def test_the_notes_say_what_the_paper_does_not_state():
    cifar, tiny = (
        markdown(table([result("Single", where=(dataset, "paper", "resnet18"))], dataset))
        for dataset in ("cifar10", "tinyimagenet")
    )
    used = "random crops after padding by 4 pixels and random flips, 100 samples, 30 ECE bins; as the paper states"
    silent = "The paper names no augmentation for TinyImageNet"
    assert f"{used}.\n" in cifar and silent not in cifar
    assert f"{used}, except for the augmentation.\n" in tiny and silent in tiny


@pytest.mark.parametrize(
    ("crop", "flip", "told"),
    [(0, True, "random flips"), (0, False, "no augmentation"), (2, False, "random crops after padding by 2 pixels")],
)
def test_the_augmentation_is_told_in_words(crop, flip, told):
    assert augmentation_text(SimpleNamespace(crop=crop, flip=flip)) == told


def test_a_note_about_most_rows_of_a_network_names_the_others():
    runs = [result(label) for label in LABELS[:6]]
    for run in runs[1:]:
        run["peak_memory_bytes"] = None
    assert "one network alone: ResNet-18 (all measured rows but Single).\n" in markdown(table(runs))


def test_the_terminal_summary_is_aligned_and_has_ten_rows():
    runs = [result(label, where=("digits", "demo", "small")) for label in LABELS[:9]]
    lines = summary(table(runs, "digits")).splitlines()
    body = [line for line in lines if line.startswith(tuple(LABELS))]
    assert len(body) == 10 and len({len(line) for line in body}) == 1
    assert " ".join(body[0].split()) == "Single 95.00 (1) 0.030 (1) 0.190 (1) 3 min 20 s 1.00× 0.0123 11,173,962"
    assert body[9].split() == ["MC-DropReLU(0.95)", *[MISSING] * 7]


# --- LaTeX, CSV, files ------------------------------------------------------------------------------------------------


def test_latex_is_balanced_ascii_and_has_the_papers_columns():
    runs = [*seeds("Single", 0.94, 0.951), result("Single", epochs=2), *(result(label) for label in PROPOSED)]
    text = latex(table(runs))
    code = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert text.isascii() and code.count("{") == code.count("}")
    begun, ended = (re.findall(rf"\\{word}{{(.+?)}}", code) for word in ("begin", "end"))
    assert begun == ["table*", "tabular"] * 2 and ended == ["tabular", "table*"] * 2
    lines = [line for line in code.splitlines() if line.endswith(r"\\")]
    assert {line.count(" & ") + 6 * line.count("multicolumn") // 3 for line in lines} == {9}
    assert r"\textbf{95.32 ($-$0.32)}" in code and r"94.55 $\pm$ 0.78 (2)" in code


def test_the_csv_reads_back_as_the_cells():
    built = table(seeds("Single", 0.94, 0.951))
    back = pd.read_csv(StringIO(csv(built)))
    pd.testing.assert_frame_equal(back, built.cells, check_dtype=False)
    assert len(back) == 30 and back.diff_accuracy.dropna().tolist() == pytest.approx([-0.46])


def test_the_command_writes_the_same_bytes_twice_without_torch_or_paths(tmp_path):
    runs = [*seeds("Single", 0.94, 0.951), result("SVI"), result("SVI", epochs=2)]
    here, there = (made_up.write(tmp_path / name, order) for name, order in (("a", runs), ("b", reversed(runs))))
    said = call_without_torch("scripts/tables.py", "--results", here, "--out", tmp_path / "one", "--print")
    call("scripts/tables.py", "--results", there, "--out", tmp_path / "two")
    files = sorted(p.relative_to(tmp_path / "one") for p in (tmp_path / "one").rglob("*.*"))
    assert [str(f) for f in files[:3]] == ["matched/cifar10.csv", "matched/cifar10.md", "matched/cifar10.tex"]
    assert filecmp.cmpfiles(tmp_path / "one", tmp_path / "two", files, shallow=False) == (files, [], [])
    assert not any(str(tmp_path) in (tmp_path / "one" / f).read_text() for f in files)
    assert "94.55 ± 0.78 (2)" in said


@pytest.mark.parametrize(
    ("name", "file"), [("tables", "out/a"), ("figures", "out/a"), ("claims", "out"), ("report", "out")]
)
def test_a_misspelt_folder_of_results_overwrites_nothing(name, file, tmp_path):
    made_up.write(tmp_path / "results/runs", [result("Single")])
    out = tmp_path / file
    out.parent.mkdir(exist_ok=True)
    out.write_text("as it was")
    for words in (["--results", tmp_path / "rums"], ["--paper", tmp_path / "nope"], ["--out", "/dev/null/x"]):
        into = [] if "--out" in words else ["--out", tmp_path / "out"]
        done = call(f"scripts/{name}.py", *into, *words, cwd=tmp_path)
        assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith(("refused: ", "failed: "))
        assert "Traceback" not in done.stderr and out.read_text() == "as it was"


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("name", ["tables", "figures", "claims", "report"])
def test_a_folder_without_a_readable_result_overwrites_nothing(name, damaged, tmp_path):
    runs, out = tmp_path / "runs", tmp_path / "out"
    runs.mkdir()
    if damaged:
        (runs / "result.json").write_text("[")
    out.write_text("as it was")
    done = call(f"scripts/{name}.py", "--results", runs, "--out", out)
    said = f"refused: {runs} holds no result that can be read, so nothing is written: 'make demo' or "
    assert done.returncode == 1 and done.stdout == "" and done.stderr.splitlines()[-1].startswith(said)
    assert len(done.stderr.splitlines()) == 1 + damaged and out.read_text() == "as it was"


UNWRITTEN, WAY_OUT = "could not be written", "any previous file is kept; make the folder writable or choose another one"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("tables --readme {}/nope.md", "{}/nope.md cannot be used: No such file or directory"),
        ("claims --readme {}", "{} cannot be used: Is a directory"),
        ("tables --paper {}", "{}/numbers.json cannot be used: No such file or directory"),
        ("activations --out /dev/null/x", f"/dev/null/x/activations.pdf {UNWRITTEN} (Not a directory): {WAY_OUT}"),
        ("figures --out /dev/null", f"/dev/null/variance.pdf {UNWRITTEN} (File exists): {WAY_OUT}"),
    ],
)
def test_a_path_that_cannot_be_used_is_named_without_the_name_of_pythons_error(line, says, tmp_path):
    made_up.write(tmp_path / "results/runs", [result("Single")])
    script, *words = line.format(tmp_path).split()
    done = call(f"scripts/{script}.py", *words, cwd=tmp_path)
    assert done.returncode == 1 and done.stderr == f"failed: {says.format(tmp_path)}\n"


def own_and_papers(folder):
    """Results of the paper's Single, of a method of one's own, and of a dataset and a protocol of one's own."""
    method, place = (result("Single") | {"name": f"own/{name}"} for name in ("method", "place"))
    method["config"] = method["config"] | {"method": "own", "strength": 2}
    place["config"] = place["config"] | {"dataset": "mine", "protocol": "quick"}
    return made_up.write(folder, [result("Single"), method, place])


@pytest.mark.parametrize("script", ["tables", "figures", "claims", "report"])
def test_results_whose_package_or_yaml_is_not_found_are_named_in_one_sentence(script, tmp_path):
    runs = own_and_papers(tmp_path / "runs")
    done = call(f"scripts/{script}.py", "--results", runs, "--out", tmp_path / "out")
    told = "left out: 2 results of dataset=mine, method=own, protocol=quick, whose package or YAML file is not found"
    assert done.returncode == 0 and done.stderr == f"{told}: name it with --plugin or --config-dir\n"
    assert "setting differs" not in done.stdout


@pytest.mark.parametrize("metric", ["accuracy", "ece"])
def test_a_result_that_does_not_fit_its_predictions_is_named(metric, tmp_path):
    read = kept(tmp_path / "runs", result("Single"), right_but(HARD))
    path = Path(read.folder) / "result.json"
    changed = json.loads(path.read_text())
    changed["metrics"][metric] = 0.99
    path.write_text(json.dumps(changed))
    done = call("scripts/tables.py", "--results", tmp_path / "runs", "--out", tmp_path / "tables")
    told = f"not used: the predictions {path.parent}/predictions.npz do not belong to this result, since their {metric}"
    assert done.returncode == 0 and done.stderr.startswith(told) and done.stderr.count("\n") == 1


def test_without_its_yaml_a_table_is_not_written(tmp_path):
    before = tmp_path / "tables/quick/mine.md"
    before.parent.mkdir(parents=True)
    before.write_text("whole")
    runs = own_and_papers(tmp_path / "runs")
    call("scripts/tables.py", "--results", runs, "--out", tmp_path / "tables")
    assert before.read_text() == "whole" and [path.name for path in before.parent.iterdir()] == ["mine.md"]
    done = call("scripts/tables.py", "--results", runs / "own", "--out", tmp_path / "other")
    assert done.stderr.startswith("refused: there is nothing but 2 results of dataset=mine, method=own, protocol=quick")
    assert done.returncode == 1 and not (tmp_path / "other").exists()


def test_a_dataset_without_results_has_no_tables(tmp_path):
    done = call("scripts/tables.py", "--dataset", "digits", "--out", tmp_path)
    assert done.returncode == 1 and "holds no such results" in done.stderr and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("tables --dataset cifer10", "--dataset cifer10 is not known: the results are of cifar10"),
        (
            "tables --dataset cifar10_c",
            "--dataset cifar10_c has no table in the paper: "
            "'python scripts/figures.py --dataset cifar10' draws its box plots",
        ),
        ("figures --arch resnet-18", "--arch resnet-18 is not known: the results are of resnet18"),
        ("corruption_sheet --image 360", "image=360 must lie in [0, 359]"),
        ("prepare_data digits --size -3", "size=-3 must be at least 1"),
        ("prepare_data mine_c", "mine_c needs no preparation of its own: prepare mine instead"),
    ],
)
def test_a_misspelt_word_of_a_script_is_one_sentence(line, says, tmp_path):
    made_up.write(tmp_path / "results/runs", [result("Single")])
    script, *words = line.split()
    done = call(f"scripts/{script}.py", *words, cwd=tmp_path)
    assert done.returncode == 1 and done.stderr == f"refused: {says}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_the_committed_tables_are_what_the_committed_results_give():
    """Run `make tables` after every new result to keep this true."""
    folder = ROOT / "results" / "tables"
    tables = {(t.protocol, t.dataset): t for t in committed_tables()}
    positions = position.build(committed(), PAPER)
    known = {*tables, *((protocol, "position") for protocol in positions), ("tables", "peers")}
    for path in sorted(folder.rglob("*.md")):
        assert (path.parent.name, path.stem) in known, f"{path.name} has no results any more: delete it"
    for protocol, rows in positions.items():
        for suffix, render in position.FORMS.items():
            path = folder / protocol / f"position.{suffix}"
            assert path.exists() and path.read_text() == render(protocol, rows), f"{path} is stale: run 'make tables'"
    for (protocol, dataset), built in tables.items():
        for suffix, render in (("md", markdown), ("tex", latex), ("csv", csv)):
            path = folder / protocol / f"{dataset}.{suffix}"
            assert path.exists() and path.read_text() == render(built), f"{path.name} is stale: run 'make tables'"
    beside = peers.build(committed(), PAPER)
    for suffix, render in peers.FORMS.items():
        assert (folder / f"peers.{suffix}").read_text() == render(beside), "peers is stale: run 'make tables'"


@pytest.mark.parametrize(
    ("text", "results", "says"),
    [
        (f"a\n{BEGIN}\nb\n{END}\nc", "", "holds no result that can be read"),
        ("no marks", ROOT / "results/runs", "has no place for this text"),
        (f"a\n{END}\nb\n{BEGIN}\nc", ROOT / "results/runs", "has no place for this text"),
    ],
)
def test_a_readme_is_left_alone_without_results_or_a_place_for_them(text, results, says, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(text)
    done = call("scripts/tables.py", "--results", tmp_path / results, "--out", tmp_path, "--readme", readme)
    assert readme.read_text() == text and "Traceback" not in done.stderr
    assert done.returncode and says in done.stderr


def test_the_readmes_table_is_the_built_one():
    text = (ROOT / "README.md").read_text()
    shown = text.split(BEGIN)[1].split(END)[0].strip()
    assert shown == headline(committed_tables()), "run 'make tables'"


def test_the_readme_says_that_something_is_not_measured_only_until_it_is():
    runs, readme = committed(), (ROOT / "README.md").read_text()
    assert ("TinyImageNet is not measured" in readme) != ("tinyimagenet" in set(runs.dataset))
    densenet = runs[(runs.arch == "densenet121") & runs.row.isin(LABELS)]
    assert ("DenseNet-121 is measured only with 30 epochs" in readme) == (set(densenet.protocol) == {"fast"})
    missing = set(LABELS) - set(densenet[densenet.dataset == "cifar100"].row)
    assert ("on CIFAR-100 without SVI" in readme) == (missing == {"SVI"})
