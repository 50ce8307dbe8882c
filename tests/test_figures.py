"""The figures show what was measured: exact numbers, separate sources, the same bytes every time."""

import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from commands import call, call_without_torch
from made_up import DIGITS, TYPES, analysed, corrupted, layer, only, read, read_records, result, sampled, write
from matplotlib.colors import to_hex

from rbue import methods
from rbue.evaluation import analysis
from rbue.report import figures, records, rows
from rbue.report.claims.numbers import our_frames
from rbue.report.figures import (
    activations,
    behaviours,
    beyond,
    corruptions,
    diversity,
    draw,
    framework,
    left_out,
    posterior,
    reliability,
    samples,
    style,
    variance,
)
from rbue.report.rows import ROWS

SIX = ["Single", "MC-Dropout(0.5)", "Deep Ensemble(4)", "SVI", "MC-RReLU", "MC-DropReLU(0.95)"]


def numbers_of(results, row, severity, metric):
    frame = corruptions.five_numbers(corruptions.load(only(results)))
    return frame[(frame.row == row) & (frame.severity == severity) & (frame.metric == metric)].iloc[0]


# --- corruptions ------------------------------------------------------------------------------------------------------


def test_a_box_is_quartiles_over_types_and_its_whiskers_are_the_extremes():
    box = numbers_of([corrupted("Single")], "Single", 2, "accuracy")
    assert [box["min"], box.q1, box["median"], box.q3, box["max"]] == pytest.approx([85, 87, 89, 91, 93])
    assert (box.types, box.n) == (5, 1)


def test_severity_zero_is_the_clean_test_set():
    box = numbers_of([corrupted("Single", ece=0.04)], "Single", 0, "ece")
    assert box["min"] == box["median"] == box["max"] == pytest.approx(0.04)


def test_a_box_is_the_mean_over_the_boxes_of_the_seeds():
    both = [corrupted("SVI", seed=seed, accuracy=accuracy) for seed, accuracy in enumerate((0.9, 0.8))]
    box = numbers_of(both, "SVI", 1, "accuracy")
    assert box["median"] == pytest.approx(85 - 3) and box.n == 2


def test_the_figures_median_over_corruptions_is_that_of_the_claims():
    """Two seeds whose types are in another order: the median of the means differs from the mean of the medians."""
    rng, types = np.random.default_rng(0), [f"type{k}" for k in range(19)]
    runs = [corrupted("Single", types=types, seed=seed) for seed in (0, 1)]
    for level in (level for run in runs for levels in run["corruptions"]["types"].values() for level in levels):
        level["ece"] = rng.random()
    cells = our_frames(read(runs))["fast"].set_index("metric").value
    for severity in range(1, 6):
        assert numbers_of(runs, "Single", severity, "ece")["median"] == pytest.approx(cells[f"ece@{severity}"])


def test_every_method_is_summarised_over_the_types_that_all_have():
    mixed = [corrupted("Single"), corrupted("SVI", types=TYPES[:3])]
    frame = corruptions.five_numbers(corruptions.load(only(mixed)))
    assert set(frame.types[frame.severity > 0]) == {3}


def test_mce_divides_by_single_type_by_type():
    cells = corruptions.seed_means(corruptions.load(only([corrupted("Single"), corrupted("SVI", step=0.02)])))
    means = corruptions.averages(cells).set_index("row")
    single, svi = ([25 + 15 * step * k for k in range(1, 6)] for step in (1, 2))  # errors summed over severities
    assert pytest.approx(sum(svi) / 25) == means.mean_error.SVI
    assert pytest.approx(sum(svi) / sum(single)) == means.error_ratio.SVI
    assert pytest.approx(100 * np.mean(np.divide(svi, single))) == means.mce.SVI
    assert means.mce.Single == pytest.approx(100)


def test_without_single_there_is_no_ratio():
    means = corruptions.averages(corruptions.seed_means(corruptions.load(only([corrupted("SVI")]))))
    assert means.mce.isna().all() and means.error_ratio.isna().all() and means.mean_error.notna().all()


def test_a_type_on_which_single_makes_no_error_leaves_mce_empty():
    perfect, other = corrupted("Single", accuracy=1, step=0), corrupted("SVI")
    means = corruptions.averages(corruptions.seed_means(corruptions.load(only([perfect, other]))))
    assert means.mce.isna().all()


def trained(run, loss, name="net-seed0"):
    return run | {"trainings": [{"name": name, "loss": loss}]}


@pytest.mark.parametrize(
    ("clean", "named"),
    [
        ([], False),
        ([trained(result("SVI"), 0.2)], False),
        ([trained(result("SVI"), 0.3)], True),
        ([trained(result("SVI"), None)], False),
        ([trained(result("SVI"), 0.3, "net-seed7")], False),
    ],
    ids=["no clean run", "same loss", "another loss", "unknown loss", "another seed"],
)
def test_a_row_with_clean_results_of_another_training_is_named(clean, named):
    runs = [trained(result("Single"), 0.1), trained(corrupted("Single"), 0.1), trained(corrupted("SVI"), 0.2)]
    [grid] = corruptions.grids(only(runs + clean))
    assert (
        grid.notes[1:]
        == ["Some clean results of these rows come from other trainings with the same seeds: SVI."] * named
    )


def test_the_papers_six_methods_stand_side_by_side_with_the_q_of_the_paper_or_the_nearest():
    everything = [corrupted(label) for label, _ in ROWS]
    frame = corruptions.load(only(everything))
    assert list(corruptions.six(frame, "cifar10").row.unique()) == SIX
    assert "MC-DropReLU(0.9)" in set(corruptions.six(frame, "tinyimagenet").row)
    fewer = corruptions.load(only([corrupted("MC-DropReLU(0.8)"), corrupted("MC-DropReLU(0.85)")]))
    assert set(corruptions.six(fewer, "cifar10").row) == {"MC-DropReLU(0.85)"}


def test_dropout_in_every_block_stands_beside_the_papers_row_of_the_same_p():
    both = [corrupted("MC-Dropout(0.5)", placement="block"), corrupted("MC-Dropout(0.5)"), corrupted("Single")]
    frame = corruptions.load(only(both))
    rows = ["Single", "MC-Dropout(0.5)", "MC-Dropout(0.5) in every block"]
    assert list(corruptions.six(frame, "cifar10").row.unique()) == rows


def test_generated_and_official_images_are_never_mixed(tmp_path):
    both = [corrupted("Single"), corrupted("Single", source="official", accuracy=0.5), corrupted("SVI")]
    files = {path.name: path for path in corruptions.draw(only(both), tmp_path)}
    assert {"corruptions-generated.pdf", "corruptions-official.pdf"} <= set(files)
    assert "SVI" not in files["corruptions-official.csv"].read_text()
    first = files["corruptions-official.csv"].read_text().splitlines()[1]
    assert first == "Single,single,0,accuracy,50,50,50,50,50,1,1"


def test_the_same_images_asked_for_in_two_ways_are_one_seed():
    """corruptions=auto and corruptions=generated are two runs of one network on the same images."""
    again = corrupted("Single")
    again["config"]["corruptions"], again["name"] = "generated", "another"
    assert numbers_of([corrupted("Single"), again], "Single", 3, "ece").n == 1


def test_titles_say_the_source_and_the_numbers_of_types_seeds_and_samples():
    network = only([corrupted("Single"), corrupted("SVI", seed=1, samples=20), corrupted("SVI", seed=2)])
    frame = corruptions.load(network)
    numbers = corruptions.five_numbers(frame)
    title = corruptions.caption(network, "generated", frame, numbers)
    what = "5 of 19 types, generated, 1 to 2 seeds, 20 to 100 samples"
    assert title == f"CIFAR-10-C, ResNet-18, protocol fast\n{what}"


def test_the_title_counts_the_samples_of_what_is_drawn_alone(tmp_path, monkeypatch):
    titles = []
    monkeypatch.setattr(corruptions, "box_plots", lambda numbers, title: titles.append(title))
    monkeypatch.setattr(style, "save", lambda *_: [])
    monkeypatch.setattr(corruptions, "median_curves", lambda *_: None)
    runs = [corrupted("Single"), corrupted("MC-DropReLU(0.8)"), corrupted("MC-DropReLU(0.95)", samples=20)]
    corruptions.draw(only(runs), tmp_path)
    assert titles[0].endswith("1 seed, 20 samples")


def test_members_of_a_users_own_ensemble_are_no_samples(monkeypatch):
    """A method says that it ignores `samples`: its passes are its members."""
    network = only([corrupted("Deep Ensemble(4)"), corrupted("SVI", samples=20)])
    monkeypatch.setitem(methods.METHODS, "own_ensemble", methods.METHODS["deep_ensemble"])
    frame = corruptions.load(network).replace({"method": {"deep_ensemble": "own_ensemble"}})
    title = corruptions.caption(network, "generated", frame, corruptions.five_numbers(frame))
    assert title.endswith("1 seed, 20 samples")


def without_optional_scores(content):
    """A corrupted result without the numbers that an older version did not store."""
    for level in (level for levels in content["corruptions"]["types"].values() for level in levels):
        del level["nll"]
    return content | {"passes": None, "metrics": {"accuracy": 0.9, "ece": 0.1}}


def test_corrupted_results_without_nll_and_passes_are_drawn(tmp_path):
    network = only([without_optional_scores(corrupted("MC-RReLU"))])
    assert "corruptions-generated.svg" in {path.name for path in corruptions.draw(network, tmp_path)}
    (grid,) = corruptions.grids(network)
    assert "sample" not in grid.title and grid.rows[1][5] == "–"  # the mean NLL


def test_single_without_nll_stands_beside_sampled_rows(tmp_path):
    singles = [result("Single", seed=seed) | {"metrics": {"accuracy": 0.9, "ece": 0.1}} for seed in (0, 1)]
    paths = samples.draw(only([*singles, sampled("MC-RReLU", 0.9, 0.91)]), tmp_path)
    assert "samples.svg" in {path.name for path in paths}


def test_runs_that_share_no_type_are_not_compared(tmp_path):
    network = only([corrupted("Single", types=["fog"]), corrupted("SVI", types=["snow"])])
    assert corruptions.draw(network, tmp_path) == corruptions.grids(network) == []


def test_of_two_corrupted_evaluations_of_one_network_the_one_with_more_samples_is_drawn():
    few, many = (corrupted("SVI", accuracy=accuracy, samples=n) for n, accuracy in ((20, 0.8), (100, 0.9)))
    for runs in ([few, many], [many, few]):
        frame = corruptions.load(only(runs))
        assert set(frame.passes) == {100} and frame[frame.severity == 0].accuracy.item() == 90


# --- diversity, behaviours, samples -----------------------------------------------------------------------------------


def test_mean_and_max_are_over_the_six_pairs_and_stand_beside_the_papers():
    network = only([sampled("Deep Ensemble(4)", 0.9), sampled("MC-DropReLU(0.9)", 0.9)])
    table = diversity.table(diversity.load(network), diversity.paper_rows(network)).set_index("row")
    ours = table.loc["Deep Ensemble(4)"]
    assert (ours.ours_mean_jsd, ours.ours_max_jsd, ours.ours_max_dis) == pytest.approx((0.005, 0.007, 0.07))
    assert (ours.paper_mean_jsd, ours.paper_max_dis, ours.n) == (0.02, 0.045, 1)
    assert table.n["SVI"] == 0 and table.paper_mean_jsd.notna().sum() == 7


def test_the_papers_diversity_is_of_resnet18_only():
    network = only([sampled("SVI", 0.9, where=("cifar10", "fast", "vgg13"))])
    assert diversity.paper_rows(network).empty


def test_samples_that_never_differ_still_have_a_figure(tmp_path):
    quiet = sampled("MC-RReLU", 0.9) | {"diversity": {"jsd": [[0] * 4] * 4, "dis": [[0] * 4] * 4}}
    assert tmp_path / "diversity-dis.svg" in diversity.draw(only([quiet]), tmp_path)


def test_behaviours_are_means_over_seeds_with_the_papers_points():
    network = only([result("MC-DropReLU(0.8)", seed=0, accuracy=0.9), result("MC-DropReLU(0.8)", seed=1, accuracy=0.8)])
    (point,) = behaviours.points(network.clean).itertuples()
    assert (point.accuracy, point.q, point.n) == (pytest.approx(85), 0.8, 2)
    assert len(behaviours.paper_points(network)) == 10


def test_another_q_is_a_point_and_other_changes_are_named_instead():
    results = [result("MC-DropReLU(0.8)", q=0.5), result("MC-DropReLU(0.8)", q=0.5, epochs=2)]
    assert list(only(results).runs.row) == ["MC-DropReLU(0.5)"]
    assert [text.partition(" ")[2] for text in left_out(read_records(results))] == ["(epochs=2, q=0.5)"]


def test_a_point_far_from_all_others_does_not_decide_the_frame():
    frame = behaviours.points(only([result(label, accuracy=0.9) for label in SIX]).clean)
    assert style.framed(frame.accuracy, "accuracy").all()
    frame.loc[0, "accuracy"] = 20
    assert list(style.framed(frame.accuracy, "accuracy")) == [False] + [True] * 5


def test_a_point_far_from_the_papers_points_is_in_the_space_of_behaviours():
    network = only([result("Single", accuracy=0.6)])
    frame = pd.concat([behaviours.points(network.clean), behaviours.paper_points(network)], ignore_index=True)
    assert not style.framed(frame.accuracy, "accuracy")[0]
    assert behaviours.shown(frame).all()


def test_curves_have_only_the_counts_that_all_seeds_have():
    network = only([sampled("SVI", 0.8, 0.9, seed=0), sampled("SVI", 0.6, seed=1), result("Single")])
    curves = samples.curves(samples.load(network)).set_index("row")
    assert curves.loc["SVI"].ours_accuracy == pytest.approx(70) and curves.loc["SVI"].n == 2
    assert curves.loc["Single"].samples == 1


def test_a_pass_costs_its_share_of_the_whole_evaluation():
    network = only([sampled("SVI", 0.8, 0.9), result("Single"), sampled("Deep Ensemble(4)", 0.9, 0.91)])
    ms = samples.curves(samples.load(network)).groupby("row").ours_ms.apply(list)
    assert ms["SVI"] == pytest.approx([0.003, 0.006])  # 0.3 ms for a hundred samples
    assert ms["Single"] == pytest.approx([0.3]) and ms["Deep Ensemble(4)"] == pytest.approx([0.075, 0.15])


def test_the_first_pass_costs_what_the_twin_costs_and_the_others_share_the_rest():
    network = only([sampled("MC-Dropout(0.5)", 0.8, 0.9) | {"twin": {"ms_per_image": 0.102}}])  # noise only at the end
    assert samples.load(network).ms.tolist() == pytest.approx([0.102, 0.104])
    assert samples.milliseconds(network.runs.result[0], 100) == pytest.approx(0.3)
    measured = {"first_ms_per_image": 0.201, "twin": {"ms_per_image": 0.102}}
    assert samples.load(only([sampled("SVI", 0.8, 0.9) | measured])).ms.tolist() == pytest.approx([0.201, 0.202])


def test_a_first_pass_that_was_not_compiled_is_told():
    twin, first = {"twin": {"ms_per_image": 0.102}}, {"first_ms_per_image": 0.05}
    told = [samples.first_text(only([sampled("SVI", 0.8, 0.9) | more]).clean) for more in (twin, twin | first, {})]
    assert "timed without compilation" in told[0] and told[1:] == ["", ""]


def test_without_times_the_curves_are_drawn_against_passes_alone(tmp_path):
    old = [entry | {"test_ms_per_image": None} for entry in (sampled("SVI", 0.8, 0.9), result("Single"))]
    assert tmp_path / "samples.svg" in samples.draw(only(old), tmp_path)


def test_a_bootstrap_interval_stands_behind_one_seed_and_the_spread_behind_several():
    one = diversity.grid(only([analysed("SVI")])).rows
    svi = next(row for row in one if row[0] == "SVI")
    assert svi[2] == "0.0050 [0.0010, 0.0090]"
    two = diversity.grid(only([analysed("SVI", seed=seed) for seed in (0, 1)])).rows
    assert next(row for row in two if row[0] == "SVI")[2] == "0.0050 ± 0.0000"


def test_the_interval_of_a_maximum_from_an_older_version_is_not_shown():
    """It covers the truth in 58 % of simulations: tests/test_metrics.py."""
    new = analysed("SVI")
    old = new | {"diversity": new["diversity"] | {"intervals": {"mean_jsd": [0.001, 0.009], "max_jsd": [0.006, 0.009]}}}
    shown = [next(row for row in diversity.grid(only([run])).rows if row[0] == "SVI") for run in (new, old)]
    assert [row[2] for row in shown] == ["0.0050 [0.0010, 0.0090]"] * 2
    assert [row[4] for row in shown] == ["0.0070 [0.0010, 0.0090]", "0.0070"]


# --- the analysis -----------------------------------------------------------------------------------------------------


def test_reliability_pools_seeds_by_their_images():
    other = analysed("SVI", seed=1)
    other["reliability"] = {"count": [0, 60, 40], "confidence": [None, 0.6, 0.8], "accuracy": [None, 0.8, 0.8]}
    low, high = reliability.bins(reliability.load(only([analysed("SVI"), other]), "reliability")).itertuples()
    assert (low.count, low.confidence, low.accuracy) == pytest.approx((80, (20 * 0.5 + 60 * 0.6) / 80, 0.7))
    assert (high.bin, high.n) == (2, 2)


def test_the_printed_ece_is_that_of_the_bins():
    curve = reliability.bins(reliability.load(only([analysed("SVI")]), "reliability"))
    assert curve.ece.unique() == pytest.approx([0.2 * 0.1 + 0.8 * 0.05])


def test_the_printed_ece_of_several_seeds_is_their_mean():
    other = analysed("SVI", seed=1)
    other["reliability"] = {"count": [0, 20, 80], "confidence": [None, 0.5, 0.9], "accuracy": [None, 0.6, 0.85]}
    curve = reliability.bins(reliability.load(only([analysed("SVI"), other]), "reliability"))
    assert (curve.accuracy - curve.confidence).tolist() == pytest.approx([0, 0])  # the gaps of the two seeds cancel
    assert curve.ece.unique() == pytest.approx([0.06])


def test_a_rejection_curve_is_the_mean_over_seeds_in_percent():
    other = analysed("SVI", seed=1) | {"rejection": {"rejected": [0, 0.25, 0.5], "accuracy": [0.93, 0.97, 1.0]}}
    curve = reliability.rejection(reliability.load(only([analysed("SVI"), other]), "rejection"))
    assert list(curve.rejected) == [0, 25, 50] and list(curve.ours_accuracy) == pytest.approx([94, 97, 100])


def test_equal_accuracies_have_an_axis_with_plain_ticks():
    network = only([result(row, accuracy=1.0) for row in ("Single", "SVI")])
    figure = behaviours.scatter(behaviours.points(network.clean), "")
    figure.canvas.draw()
    (axis,) = figure.axes
    assert axis.xaxis.get_offset_text().get_text() == axis.yaxis.get_offset_text().get_text() == ""


def test_a_rejection_curve_without_a_mistake_has_no_logarithmic_axis(recwarn):
    flawless = {"rejection": {"rejected": [0, 0.25, 0.5], "accuracy": [1.0, 1.0, 1.0]}}
    frame = reliability.load(only([analysed(row) | flawless for row in ("Single", "SVI")]), "rejection")
    figure = reliability.curves(reliability.rejection(frame), "")
    figure.canvas.draw()
    assert {axis.get_yscale() for axis in figure.axes} == {"linear"} and not recwarn.list


def cells_of(results, name, row):
    header, *rows = beyond.grid(only(results), name).rows
    return dict(zip(header, next(line for line in rows if line[0] == row), strict=True))


def test_a_twin_stands_beside_its_samples_with_what_they_cost():
    _, *rows = beyond.grid(only([analysed("Single"), analysed("SVI")]), "twins").rows
    assert [row[0] for row in rows] == ["SVI"]  # Single is deterministic already
    assert rows[0][1:3] == ["95.00 (1)", "94.00 (1)"] and rows[0][-1] == "100×"


def test_a_row_without_a_time_is_drawn_against_passes_and_named():
    def panels(*runs):
        figure = samples.panels(samples.curves(samples.load(only(runs))), "")
        return figure, figure._suptitle.get_text() if figure._suptitle else figure.texts[0].get_text()

    untimed = analysed("SVI") | {"test_ms_per_image": None}
    (both, told), (none, silent) = panels(analysed("MC-RReLU"), untimed), panels(untimed)
    assert [len(axis.lines) for axis in both.axes] == [2, 2, 2, 1, 1, 1] and "test time unknown: SVI" in told
    assert [len(axis.lines) for axis in none.axes] == [1, 1, 1] and "unknown" not in silent


def test_a_seed_without_a_time_has_that_of_the_other_seeds_and_the_figure_says_so():
    untimed, first = analysed("SVI", seed=1) | {"test_ms_per_image": None}, analysed("SVI")
    frame, timed = (samples.load(only(runs)) for runs in ([first, untimed], [first]))
    numbers = samples.curves(frame)
    assert list(numbers.n) == [2, 2] and list(numbers.ours_ms) == list(samples.curves(timed).ours_ms)
    assert samples.partly_timed_text(frame) == "\ntest time known for some seeds only: SVI"
    assert not samples.partly_timed_text(timed)
    assert not samples.partly_timed_text(samples.load(only([untimed])))


def test_temperature_and_foreign_images_are_tables_of_all_that_have_them():
    scaled = cells_of([analysed("SVI"), result("Single")], "temperature", "SVI")
    assert (scaled["ECE: before"], scaled["Temperature"]) == ("0.030 (1)", "1.30 (1)")
    foreign = cells_of([analysed("SVI")], "ood", "SVI")
    assert (foreign["OOD images"], foreign["AUROC"]) == ("CIFAR-100", "0.910 (1)")
    assert not [column for column in foreign if column.startswith("AUROC of")]


def test_scores_of_ood_images_that_some_run_has_are_columns():
    old, single, svi = analysed("MC-RReLU"), analysed("Single"), analysed("SVI")
    single["ood"] = single["ood"] | {"auroc_confidence": 0.9, "auroc_mutual_information": None}
    svi["ood"] = svi["ood"] | {"auroc_confidence": 0.92, "auroc_mutual_information": 0.88}
    columns = "AUROC of confidence", "AUROC of mutual information"
    runs = [old, single, svi]
    found = {row: [cells_of(runs, "ood", row)[name] for name in columns] for row in ("MC-RReLU", "Single", "SVI")}
    assert found == {"MC-RReLU": ["–", "–"], "Single": ["0.900 (1)", "–"], "SVI": ["0.920 (1)", "0.880 (1)"]}
    assert [beyond.MORE_OOD_NOTE in beyond.grid(only(some), "ood").notes for some in (runs, [old])] == [True, False]
    assert columns[1] not in cells_of([old, single], "ood", "Single")


def test_over_q_the_draws_are_on_the_exact_curve_and_far_from_the_papers():
    frame = variance.over_q()
    assert ((frame.monte_carlo - frame.closed).abs() < 4 * frame.monte_carlo_se).all()
    assert (frame.paper - frame.closed > 20 * frame.monte_carlo_se).all() and (frame.closed < frame.dropout).all()


def test_the_three_terms_of_the_proof_add_up_to_the_exact_variance():
    row = variance.over_q().set_index("q").loc[0.8]
    first, second, third = variance.terms(0.8).values()
    assert first + second == pytest.approx(row.paper) and first + second + third == pytest.approx(row.closed)


def test_layers_say_how_far_the_papers_formula_is_off():
    network = only([analysed("MC-DropReLU(0.8)"), analysed("MC-DropReLU(0.95)"), analysed("SVI")])
    (grid,) = variance.grids(network)
    assert "MC-DropReLU(0.8)" in grid.title and f"first {analysis.IMAGES} test images" in grid.notes[0]
    assert grid.rows[1] == ["1 relu_0", "64", "1.6", "1.62", "3.2", "2.00×", "0.8", "2.00×"]


def test_the_page_has_no_table_of_many_layers_but_their_file_has_all(tmp_path):
    deep = analysed("MC-DropReLU(0.8)") | {"variance": [layer(site) for site in range(variance.MANY + 1)]}
    assert variance.grids(only([deep])) == []
    assert str(variance.draw(only([deep]), tmp_path)[-1].read_text()).count("relu_") == variance.MANY + 1


def test_a_layer_without_negative_inputs_has_no_ratio():
    quiet = analysed("MC-DropReLU(0.8)") | {"variance": [layer(0, negative=0.0)]}
    assert variance.grids(only([quiet]))[0].rows[1][5] == "–"


def test_the_drawn_activations_are_the_layers_own(tmp_path):
    call("scripts/activations.py", "--q", "0.5", "--out", tmp_path)
    frame = pd.read_csv(tmp_path / "activations.csv")
    assert set(activations.slopes(frame, "ReLU")) == {0} and set(activations.slopes(frame, "DropReLU")) == {0, 1}
    assert all(1 / 8 <= slope <= 1 / 3 for slope in activations.slopes(frame, "RReLU"))
    assert np.allclose(frame.y[frame.x > 0], frame.x[frame.x > 0])
    assert (tmp_path / "activations.svg").exists() and (tmp_path / "activations-network.pdf").exists()


def test_the_framework_shows_droprelu_and_the_likeliest_ten_classes():
    run = framework.load(only([analysed("SVI"), analysed("MC-DropReLU(0.9)")]))
    assert run.row == "MC-DropReLU(0.9)"
    shares = [0.001 * k for k in range(100)]
    many = replace(run.example, mean=shares, classes=[str(k) for k in range(100)], samples=[shares])
    assert framework.likeliest(many) == list(range(90, 100))
    bars = framework.numbers(run)
    assert bars[bars["pass"] == "mean"].probability.sum() == pytest.approx(1) and len(bars) == 6 * 3


# --- files ------------------------------------------------------------------------------------------------------------


def test_every_figure_is_written_as_pdf_and_svg_in_the_networks_folder(tmp_path):
    network = only([sampled("SVI", 0.8, 0.9), result("Single"), corrupted("Single"), corrupted("SVI")])
    paths = [path for figure in draw(network, tmp_path).values() for path in figure]
    assert {path.parent for path in paths} == {tmp_path / "fast" / "cifar10" / "resnet18"}
    stems = {path.stem for path in paths if path.suffix == ".pdf"}
    assert stems == {path.stem for path in paths if path.suffix == ".svg"} and len(stems) == 6
    assert all(path.stat().st_size for path in paths)


def test_corrupted_runs_alone_have_their_figures(tmp_path):
    drawn = draw(only([corrupted("MC-DropReLU(0.95)")]), tmp_path)
    assert [name for name, paths in drawn.items() if paths] == ["corruption box plots"]


def own(found, **settings):
    """The same result, from a method that is not in the paper."""
    config = {key: value for key, value in found["config"].items() if key not in ("l", "u", "position")}
    return found | {"name": f"{found['name']}-{settings}", "config": config | {"method": "own"} | settings}


@pytest.fixture
def own_method(monkeypatch):
    """As if conf/ had the method."""

    def placed(config):
        text = f"own(p={config.get('p')}, q={config.get('q')})"
        return (text, {}) if config["method"] == "own" else rows.match_row(config)

    monkeypatch.setattr(records, "match_row", placed)


def test_a_method_of_ones_own_is_drawn_whatever_its_hyperparameters_are_called(own_method, tmp_path):
    made = [analysed("MC-RReLU", where=DIGITS), corrupted("MC-RReLU", where=DIGITS)]
    settings = [{"p": "deep/wide", "q": q} for q in (3, 10, 25)]
    network = only([analysed("Single", where=DIGITS), *(own(found, **each) for each in settings for found in made)])
    draw(network, tmp_path)
    labels = [f"own(p=deep/wide, q={q})" for q in (3, 10, 25)]
    assert list(network.clean.row) == ["Single", *labels]
    assert list(diversity.shown_runs(diversity.load(network)).index) == labels
    assert set(corruptions.six(corruptions.load(network), "digits").row) == set(labels)
    points = behaviours.points(network.clean)
    assert points[["p", "q"]].isna().all(axis=None)  # they are MC-Dropout's p and MC-DropReLU's q
    (legend,) = behaviours.scatter(points, "title").legends
    assert [text.get_text() for text in legend.texts] == ["Single", *labels]


def test_rows_of_ones_own_method_have_different_colours(own_method):
    made = [analysed("MC-RReLU", where=DIGITS), corrupted("MC-RReLU", where=DIGITS)]
    network = only([own(found, p="deep", q=q) for q in (3, 10, 25) for found in made])
    bins, rejected = (reliability.load(network, what) for what in ("reliability", "rejection"))
    severities = corruptions.five_numbers(corruptions.load(network))
    legends = [
        behaviours.scatter(behaviours.points(network.clean), "").legends[0],
        samples.panels(samples.curves(samples.load(network)), "").legends[0],
        reliability.curves(reliability.rejection(rejected), "").legends[0],
        corruptions.median_curves(severities, "").legends[0],
    ]
    for legend in legends:
        looks = [(handle.get_color(), handle.get_marker()) for handle in legend.legend_handles]
        assert len({colour for colour, _ in looks}) == len({marker for _, marker in looks}) == 3
    dots = [axis.collections[-1].get_facecolor() for axis in reliability.diagrams(reliability.bins(bins), "").axes[:3]]
    boxes = corruptions.box_plots(severities, "").legends[0].legend_handles
    assert len({to_hex(found[0]) for found in dots}) == len({to_hex(box.get_edgecolor()) for box in boxes}) == 3


def test_a_result_without_ones_own_corruption_does_not_hide_that_of_another():
    own, older, other = (corrupted("SVI", samples=passes) | {"passes": passes} for passes in (20, 100, 200))
    levels = [{"severity": severity, "accuracy": 0.9, "ece": 0.1} for severity in range(1, 6)]
    own["corruptions"] = own["corruptions"] | {"own": {"posterize": levels}}
    other["corruptions"] = other["corruptions"] | {"own": {"solarize": levels}}
    assert list(beyond.own_corruptions(only([own, older])).corruption) == ["posterize"]
    assert sorted(beyond.own_corruptions(only([own, older, other])).corruption) == ["posterize", "solarize"]


def test_the_framework_names_classes_with_spaces_and_leaves_out_the_middle_of_long_names():
    run = framework.load(only([analysed("SVI")]))
    run["example"] = replace(run.example, label="lawn_mower", classes=["lawn_mower", "a" * 80, "frog"])
    titles = [axis.get_title() for axis in framework.diagram(run, "").axes]
    assert "Test image 7:\nlawn mower" in titles and "Mean of all passes:\nlawn mower, 50%" in titles
    assert framework.readable("a" * 80) == f"{'a' * 12}…{'a' * 11}"


def test_long_names_of_classes_leave_the_frameworks_panels_their_room():
    run = framework.load(only([analysed("SVI")]))
    run["example"] = replace(run.example, classes=["European_fire_salamander", "Christmas_stocking", "frog"])
    figure = framework.diagram(run, "")
    figure.draw_without_rendering()
    mean = next(axis for axis in figure.axes if axis.get_ylabel() == "Probability")
    label, panel = mean.yaxis.label.get_window_extent(), mean.get_window_extent()
    assert label.y0 > (panel.y0 + panel.y1) / 2 + 5  # arrows end in the middle of the panel


def test_the_framework_counts_the_passes_it_shows(monkeypatch, tmp_path):
    titles = []
    monkeypatch.setattr(framework, "head", lambda figure, title: titles.append(title))
    several, single = analysed("SVI"), analysed("Single")
    single["example"] = single["example"] | {"samples": single["example"]["samples"][:1]}
    assert framework.draw(only([single]), tmp_path) == []  # there is nothing to average
    framework.draw(only([single, several]), tmp_path)
    (title,) = titles
    assert ": SVI, " in title


def test_results_of_the_first_version_still_draw_what_they_have(tmp_path):
    drawn = draw(only([result("Single"), sampled("SVI", 0.9, 0.91)]), tmp_path)
    known = ["diversity matrices", "space of behaviours", "metrics against samples"]
    assert [name for name, paths in drawn.items() if paths] == known


def test_two_runs_write_the_same_bytes(tmp_path):
    network = only([result("Single"), result("SVI")])
    first, second = (behaviours.draw(network, tmp_path / name) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert not any(stamp in first[0].read_bytes() for stamp in (b"CreationDate", b"matplotlib"))


def test_an_interrupt_while_a_figure_is_drawn_leaves_the_one_before(tmp_path, monkeypatch):
    network = only([result("Single"), result("SVI")])
    drawn = behaviours.draw(network, tmp_path)
    before = {path: path.read_bytes() for path in drawn}

    def interrupted(self, file, **_):
        file.write(b"%PDF")
        raise KeyboardInterrupt

    monkeypatch.setattr(style.Figure, "savefig", interrupted)
    with pytest.raises(KeyboardInterrupt):
        behaviours.draw(network, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("panels", [1, 4])
def test_the_legend_is_not_wider_than_the_figure(panels):
    network = only([analysed(f"MC-DropReLU({q})") for q in (0.8, 0.85, 0.9, 0.95)[:panels]])
    figure = variance.layers_figure(variance.layers(variance.load(network)), "title")
    assert figure.legends[-1].get_window_extent().width <= figure.bbox.width
    assert len(figure.legends) == 1 and len(figure.legends[0].texts) == 4


def test_every_method_has_its_own_colour():
    assert set(style.COLOURS) == {settings["method"] for _, settings in ROWS}
    assert len(set(style.COLOURS.values())) == len(style.COLOURS)


def test_the_command_needs_no_torch_and_says_what_is_missing_and_what_makes_it(tmp_path):
    runs = write(tmp_path / "runs", [result("Single")])
    said = call_without_torch("scripts/figures.py", "--results", runs, "--out", tmp_path / "out")
    assert "resnet18: behaviours" in said
    (line,) = [
        line for line in said.splitlines() if line.startswith("  Not drawn yet, since no result here has the data")
    ]
    command = "python train.py -m sweep=rows dataset={} arch=resnet18 protocol=fast results_dir=" + str(runs)
    assert f": corruption box plots ('{command.format('cifar10_c')}' makes it); diversity matrices, framework" in line
    assert f" and OOD images ('{command.format('cifar10')}' makes them); add the data_dir= and weights_dir=" in line


def test_the_command_that_makes_a_figure_names_the_users_plugins_and_yaml(monkeypatch):
    network = only([result("Single")])
    monkeypatch.setenv("RBUE_PLUGINS", "mine")
    assert " -m plugins=mine sweep=rows dataset=cifar10 " in figures.makes("space of behaviours", network)
    monkeypatch.setenv("RBUE_PLUGINS", "mine,yours")
    monkeypatch.setenv("RBUE_CONFIG_DIR", "/my conf")
    command = figures.makes("space of behaviours", network)
    assert " -m plugins=[mine,yours] --config-dir '/my conf' sweep=rows " in command


def test_without_results_for_a_figure_the_command_says_so_and_names_those_that_are_in_none(tmp_path):
    runs = write(tmp_path / "runs", [result("Single", epochs=2)])
    done = call("scripts/figures.py", "--results", runs, "--out", tmp_path / "out")
    assert done.returncode == 1 and f"refused: {runs} holds no results for a figure: 'make demo'" in done.stderr
    assert done.stdout.startswith("Not in any figure") and not (tmp_path / "out").exists()


def test_a_corrupted_dataset_is_drawn_with_its_clean_one_and_other_datasets_are_not_named(tmp_path):
    others = [result("Single", epochs=2), result("Single", dataset="cifar100", seed=1, epochs=2)]
    runs = write(tmp_path / "runs", [result("Single"), *others])
    done = call("scripts/figures.py", "--results", runs, "--out", tmp_path / "out", "--dataset", "cifar10_c")
    assert "cifar10/resnet18: behaviours" in done.stdout and done.stdout.count("(epochs=2)") == 1


def drawn_by(network, out):
    network.folder(out).mkdir(parents=True)
    (network.folder(out) / "process").write_text(str(os.getpid()))
    return {"process": [network.folder(out) / "process.pdf"]}


def test_other_processes_draw_several_networks_and_the_lines_keep_their_order(tmp_path, monkeypatch):
    runs, archs = tmp_path / "runs", ("densenet121", "resnet18", "vgg13")
    write(runs, [result("Single", where=("cifar10", "fast", arch)) for arch in archs])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(figures, "draw", drawn_by)
    done = call("scripts/figures.py", "--results", runs, "--out", tmp_path / "out", "--dataset", "cifar10")
    assert [line.rpartition("/")[2] for line in done.stdout.splitlines()[1:]] == [f"{arch}: process" for arch in archs]
    processes = {path.read_text() for path in tmp_path.rglob("process")}
    assert 1 <= len(processes) <= 2 and str(os.getpid()) not in processes


def test_the_posterior_shows_each_weight_and_every_epoch_over_seeds():
    runs = [analysed("SVI", seed=seed) for seed in (0, 1)]
    runs[1]["posterior"][0]["sigma"][2] = 0.012
    frame = posterior.load(only(runs))
    spread, course = posterior.layers(frame), posterior.curves(frame)
    assert list(spread.name) == ["conv.weight", "fc.weight"] and set(spread.n) == {2}  # a bias has no distribution
    assert spread.ours_q50.tolist() == pytest.approx([0.010, 0.010]) and set(spread.ours_start) == {0.007}
    assert course.ours_kl.tolist() == [640, 620, 600]
    assert course.ours_accuracy.tolist() == pytest.approx([0.3, 0.6, 0.9])
    assert posterior.load(only([analysed("Single")])).empty
