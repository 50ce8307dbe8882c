"""How figures look: one text size, one ink, a look per row; and the headline figure."""

import re

import numpy as np
import pandas as pd
import pytest
from commands import call
from conftest import PAPER
from made_up import analysed, corrupted, only, read_records, result, whole_suite, write
from matplotlib.colors import to_hex
from matplotlib.text import Text

from rbue.report import figures
from rbue.report.figures import (
    FIGURES,
    behaviours,
    corruptions,
    diversity,
    draw,
    frames,
    framework,
    headline,
    posterior,
    reliability,
    samples,
    style,
    variance,
)
from rbue.report.figures.svg import svg
from rbue.report.rows import ARCHS, DATASETS, LABELS, ROWS

MATCHED = ("cifar10", "matched", "resnet18")
DRAWING = (behaviours, corruptions, diversity, framework, headline, posterior, style, variance)


@pytest.fixture(scope="module")
def drawn():
    """Every figure of a whole suite by its name, before it is saved."""
    figures = {}

    def keep(figure, path, *_, **__):
        figures[path.name] = figure
        return []

    with pytest.MonkeyPatch.context() as patch:
        for module in DRAWING:
            patch.setattr(module, "save", keep, raising=False)
            for name in ("write_forms", "write_grid"):
                patch.setattr(module, name, lambda *_: [], raising=False)
        patch.setitem(FIGURES, "tables of twins, temperature and OOD images", lambda *_: [])
        draw(only(whole_suite(MATCHED)), "out")
        headline.draw(read_records(whole_suite(MATCHED)), PAPER, "out")
    return figures


def texts(figure):
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]


def labels(figure):
    """The labels of all lines and areas in the figure's panels."""
    artists = [artist for axis in figure.axes for artist in (*axis.lines, *axis.collections)]
    return {artist.get_label() for artist in artists if not artist.get_label().startswith("_")}


# --- all figures ------------------------------------------------------------------------------------------------------


def test_a_whole_suite_draws_every_figure(drawn):
    assert len(drawn) == 12 and {"headline", "samples", "rejection", "posterior", "diversity-jsd"} <= set(drawn)


def test_all_text_has_one_size(drawn):
    assert {text.get_fontsize() for figure in drawn.values() for text in texts(figure)} == {style.TEXT}


def test_text_has_the_ink_of_the_style_except_on_coloured_cells(drawn):
    on_cells = {diversity.ON_PALE.lower(), "#ffffff"}
    for name, figure in drawn.items():
        inks = {to_hex(text.get_color()) for text in texts(figure)}
        assert inks <= {style.INK} | (on_cells if name.startswith("diversity") else set()), name


def test_no_figure_is_wider_than_the_page_or_too_narrow_for_its_title(drawn):
    assert all(style.NARROW <= figure.get_figwidth() <= style.WIDTH for figure in drawn.values())


@pytest.mark.parametrize("name", ["samples", "rejection", "behaviours"])
def test_what_is_drawn_of_a_row_carries_its_name(drawn, name):
    assert labels(drawn[name]) == set(LABELS)


def test_every_row_has_its_own_look_and_every_q_its_own_marker():
    looks = [style.look_of(label, settings["method"]) for label, settings in ROWS]
    assert len({look["color"] for look in looks}) == len(ROWS)
    q = [look["marker"] for look, (_, settings) in zip(looks, ROWS, strict=True) if settings["method"] == "dropreLU"]
    assert len(set(q)) == 4


def test_other_rows_of_a_method_differ_from_each_other_and_from_the_papers():
    rows = [(label, settings["method"]) for label, settings in ROWS]
    rows += [(f"Deep Ensemble({members})", "deep_ensemble") for members in (2, 8)]
    rows += [(f"own(s={s})", "own") for s in (1, 2, 3)]
    looks = style.lines_of(rows)
    assert len({look["color"] for look in looks.values()}) == len(rows)
    assert all(looks[row]["color"] == style.look_of(row, method)["color"] for row, method in rows[: len(ROWS)])
    (alone,) = style.lines_of([("own(s=1)", "own")]).values()
    assert alone["color"] == style.COLOURS["own"] and alone["marker"] == style.MARKERS["own"]


def test_a_long_name_stays_inside_the_figure_and_whole_on_the_page():
    figure, axis = style.canvas(style.NARROW, 3)
    names = [f"{'a' * 150}(s={s})" for s in (1, 2)]
    lines = [axis.plot([0, 1], label=name)[0] for name in names]
    style.legend_below(figure, lines, names, 4)
    legend = figure.legends[0]
    assert legend.get_window_extent().width <= figure.bbox.width
    assert len({text.get_text() for text in legend.texts}) == 2  # its end tells the two apart
    assert set(re.findall('data-key="([^"]*)"', svg(figure))) == set(names)
    assert max(map(len, style.narrow(names[0]).splitlines())) <= 24


def test_shades_of_one_method_darken_with_its_hyperparameter():
    for method in ("mc_dropout", "dropreLU"):
        rows = [label for label, settings in ROWS if settings["method"] == method]
        light = [sum(int(style.ROW_COLOURS[row][k : k + 2], 16) for k in (1, 3, 5)) for row in rows]
        assert light == sorted(light, reverse=True)


# --- single figures ---------------------------------------------------------------------------------------------------


def test_the_dotted_line_is_named_only_where_it_is_drawn():
    alone = samples.curves(samples.load(only([analysed("SVI")])))
    beside = samples.curves(samples.load(only([analysed("SVI"), result("Single")])))
    assert samples.dotted_text(alone) == "" and "Single" in samples.dotted_text(beside)


def test_errors_of_a_point_come_from_images_and_from_seeds():
    one = frames.with_errors(only([result("SVI", accuracy=0.9)]).clean, ["row"]).iloc[0]
    assert (one.se_accuracy, one.se_ece) == pytest.approx((0.3, 0.003))  # √(0.9·0.1/10000)
    two = only([result("SVI", accuracy=accuracy, seed=seed) for seed, accuracy in enumerate((0.89, 0.91))])
    both = frames.with_errors(two.clean, ["row"]).iloc[0]
    assert both.se_accuracy == pytest.approx(np.hypot(0.3, both.std_accuracy / 2**0.5), abs=2e-3)


def test_rejection_shows_the_error_on_a_logarithmic_axis(drawn):
    axes = drawn["rejection"].axes
    assert [axis.get_yscale() for axis in axes] == ["log", "log"]
    single = next(line for line in axes[1].lines if line.get_label() == "Single")
    assert list(single.get_ydata()) == pytest.approx([5, 3, 0])


def test_proposed_rows_share_a_panel_with_single_and_deep_ensemble_for_comparison():
    curve = reliability.rejection(reliability.load(only([analysed(label) for label in LABELS]), "rejection"))
    others, proposed = reliability.split(curve).values()
    assert others == LABELS[:5] and proposed == ["Single", "Deep Ensemble(4)", *LABELS[5:]]
    assert list(reliability.split(curve[curve.row == "SVI"]).values()) == [["SVI"]]


def test_the_lowest_panel_of_each_column_has_a_label(drawn):
    """Ten diagrams in two lines of five, and three in a line of two and one below."""
    labels = [axis.get_xlabel() for axis in drawn["reliability"].axes]
    assert labels == [""] * 5 + ["Confidence"] * 5
    axes = style.panel_grid(3, 2, 3, 2, 1)[1]
    style.label_below(axes, 3, "x")
    assert [axis.get_xlabel() for axis in axes.flat] == ["", "x", "x", ""]


def test_the_posterior_counts_whole_layers_and_names_a_start_only_if_one_is_known(drawn):
    named = [text.get_text() for text in drawn["posterior"].legends[0].texts]
    left = drawn["posterior"].axes[0]
    assert "at the start" in named and all(tick == int(tick) for tick in left.get_xticks())
    unknown = pd.DataFrame({"ours_start": [float("nan")]})
    assert "at the start" not in posterior.legend_parts(unknown)[1]


def test_many_layers_are_dots_in_a_wide_panel():
    deep = analysed("MC-DropReLU(0.8)")
    deep["variance"] = [deep["variance"][0] | {"site": k, "name": f"relu_{k}"} for k in range(variance.MANY + 1)]
    figure = variance.layers_figure(variance.layers(variance.load(only([deep]))), "title")
    assert {line.get_linestyle() for line in figure.axes[0].lines} == {"None"}
    assert figure.get_figwidth() == style.WIDTH


# --- the headline -----------------------------------------------------------------------------------------------------


def compared(*results):
    return headline.compared(read_records(results), PAPER)


def test_the_headline_shows_the_difference_from_print_and_whether_noise_explains_it():
    near, far = result("Single", 0.9511, 0.04, where=MATCHED), result("SVI", 0.90, 0.006, where=MATCHED)
    cells = compared(near, far).set_index("row")
    assert cells.diff_accuracy.to_dict() == pytest.approx({"Single": 0.1, "SVI": -4.42})
    noise = 100 * (0.95 * 0.05 / 10_000) ** 0.5  # of either side
    assert cells.half_accuracy.to_dict()["Single"] == pytest.approx(0.005 + 1.96 * 2**0.5 * noise, abs=0.01)
    for metric in ("accuracy", "ece"):
        assert headline.agree(cells, metric).to_dict() == {"Single": True, "SVI": False}


def test_the_headline_compares_whole_schedules_only_and_one_protocol_per_network():
    paper, matched = (result("Single", where=("cifar10", name, "resnet18")) for name in ("paper", "matched"))
    short = result("Single", where=("cifar10", "fast", "vgg13"))
    assert compared(paper, matched, short)[["protocol", "arch"]].to_numpy().tolist() == [["matched", "resnet18"]]
    fuller = compared(paper, matched, result("SVI", where=("cifar10", "paper", "resnet18")))
    assert set(fuller.protocol) == {"paper"} and len(fuller) == 2
    assert compared(short).empty


def test_the_cost_has_samples_members_the_network_without_noise_and_temperature_scaling():
    rows = ("Deep Ensemble(4)", "SVI", "MC-DropReLU(0.95)")
    frame = headline.costs(only([analysed("Single", 0.95), *map(analysed, rows)]))
    kinds = frame.groupby("row").kind.unique().map(list).to_dict()
    assert kinds["Single"] == ["samples", "temperature"] and kinds["MC-DropReLU(0.95)"] == ["samples", "twin"]
    assert kinds["SVI"] == kinds["Deep Ensemble(4)"] == ["samples"]
    scaled = frame[frame.kind == "temperature"].iloc[0]
    assert (scaled.ours_ece, scaled.ours_ms) == pytest.approx((0.01, 0.3))  # scaling costs no time
    assert frame[frame.kind == "twin"].ours_ms.tolist() == pytest.approx([0.003])


def test_each_curve_of_the_cost_has_its_own_colour_and_the_variants_are_solid():
    labels = ["Single", "MC-Dropout(0.5)", "MC-DropReLU(0.95)"]
    blocks = [analysed(f"MC-Dropout({p})", placement="block") for p in (0.2, 0.5)]
    network = only([*(analysed(label, *([0.95] if label == "Single" else [])) for label in labels), *blocks])
    looks = headline.curve_looks(headline.costs(network), ("cifar10", "resnet18"))
    assert len({look["color"] for look in looks.values()} | {style.ROW_COLOURS["MC-Dropout(0.2)"]}) == 6
    assert (
        looks["MC-Dropout(0.5) in every block"]["color"] == style.look_of("MC-Dropout(0.5) in every block", "")["color"]
    )
    lines = {row: look["linestyle"] for row, look in looks.items()}
    assert lines["Single"] == "none" and lines["MC-DropReLU(0.95)"] == "-"
    assert {line for row, line in lines.items() if "Dropout" in row} == {"--"}


def test_figures_of_test_times_name_the_rows_that_were_not_compiled(tmp_path, monkeypatch):
    heads, made = [], {"eager": analysed("Single", 0.95), "captured": analysed("MC-DropReLU(0.95)")}
    runs = [run | {"environment": run["environment"] | {"engine": engine}} for engine, run in made.items()]
    network = only(runs)
    monkeypatch.setattr(style, "head", lambda _, text: heads.append(text))
    samples.draw(network, tmp_path)
    heads.append(headline.caption([], network, headline.costs(network)))
    drawn, shown = heads
    assert "\nnot compiled at test time, so slower: Single\n" in drawn
    assert shown.endswith("\nNot compiled, so slower: Single")


def test_the_headline_draws_what_there_is():
    digits = read_records(whole_suite())
    network = headline.best_measured(digits)
    assert network.dataset == "digits" and headline.compared(digits, PAPER).empty
    figure = headline.picture(headline.compared(digits, PAPER), network, headline.costs(network))
    assert len(figure.axes) == 1 and "digits" in figure.get_suptitle() and "NVIDIA H200" in figure.get_suptitle()
    assert headline.draw(read_records([corrupted("Single")]), PAPER, "nowhere") == []


def test_a_marker_of_the_headline_stands_for_a_network_in_all_panels(drawn):
    *left, cost = drawn["headline"].axes
    marker = headline.place_look(("cifar10", "resnet18"))["marker"]
    curves = [line for line in cost.lines if line.get_marker() not in ("+", "x")]
    assert len(curves) == 6 and {line.get_marker() for line in curves} == {marker}
    networks = [line.get_marker() for axis in left for line in axis.lines if line.get_marker() not in ("None", "")]
    assert len(networks) == 20 and set(networks) == {marker}
    colours = {bars.get_label(): bars.lines[0].get_color() for bars in left[0].containers}
    assert all(line.get_color() == colours[line.get_label()] for line in curves)


def test_nine_networks_have_a_legend_of_shapes_and_fillings_and_more_height():
    places = [(dataset, "matched", arch) for dataset in DATASETS for arch in ARCHS]
    one, nine = (compared(*(result("Single", where=place) for place in part)) for part in (places[:1], places))
    low, high = (headline.picture(cells, None, None) for cells in (one, nine))
    assert [text.get_text() for text in low.legends[0].texts] == ["VGG-13", "filled: CIFAR-10"]
    named = [text.get_text() for text in high.legends[0].texts]
    assert named[:3] == [*ARCHS.values()] and named[3:] == [
        "filled: CIFAR-10",
        "hollow: CIFAR-100",
        "half filled: TinyImageNet",
    ]
    assert high.get_figheight() > low.get_figheight()


def test_the_legend_also_names_a_network_and_a_dataset_that_are_not_the_papers():
    cells = compared(result("Single", where=MATCHED)).assign(arch="own_net", dataset="own_data")
    assert set(headline.place_handles(cells)) == {"own_net", "filled: own_data"}


def test_without_costs_the_headline_still_compares():
    records = read_records([result("Single", where=MATCHED)])
    assert headline.best_measured(records) is None
    figure = headline.picture(headline.compared(records, PAPER), None, None)
    assert [axis.get_title() for axis in figure.axes] == ["Accuracy: 1 of 1 agree", "ECE: 1 of 1 agree"]


def test_the_caption_of_the_headline_says_protocol_hardware_and_seeds(drawn):
    told = drawn["headline"].get_suptitle().replace("\n", " ")
    assert "10 of the paper's 90 cells, protocol matched, 1 seed" in told and "NVIDIA H200 (bf16)" in told


def test_the_command_draws_the_headline_unless_a_selection_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "draw", lambda *_, **__: {})
    monkeypatch.setattr(figures, "draw_general", lambda *_: [])
    runs = write(tmp_path / "runs", [result("Single", where=MATCHED)])
    words = ["scripts/figures.py", "--results", runs, "--out", tmp_path / "out"]
    call(*words, "--arch", "resnet18")
    assert not (tmp_path / "out").exists()
    assert "out: headline" in call(*words).stdout and (tmp_path / "out" / "headline.png").exists()
