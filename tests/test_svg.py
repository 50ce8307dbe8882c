"""A figure's SVG is small, and its marks say which row they are and what they show."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from rbue.report.figures.style import canvas
from rbue.report.figures.svg import CROWDED, hex_code, short, svg

SVG = "{http://www.w3.org/2000/svg}"


def tree(figure):
    return ET.fromstring(svg(figure))


def titles(root, row):
    return [title.text for mark in root.iter() if mark.get("data-row") == row for title in mark.iter(f"{SVG}title")]


def test_a_point_has_its_row_and_its_values():
    figure, axis = canvas(4, 3)
    axis.plot([1, 2, 30], [0.25, 0.5, 1], marker="s", label="SVI")
    axis.set(xlabel="Passes: samples or members", ylabel="ECE", xlim=(0, 10))
    assert titles(tree(figure), "SVI") == ["SVI\nPasses 1\nECE 0.25", "SVI\nPasses 2\nECE 0.5"]  # 30 is out of sight


def test_many_points_share_a_title_that_names_their_row():
    figure, (left, right) = canvas(6, 3, ncols=2)
    left.plot(range(CROWDED + 1), range(CROWDED + 1), "s", label="SVI")
    right.plot(range(CROWDED), range(CROWDED), "s", label="Single")
    left.set_title("exact")
    root = tree(figure)
    assert titles(root, "SVI") == ["exact\nSVI"] and len(titles(root, "Single")) == CROWDED


def test_a_mark_without_a_label_has_the_row_of_the_legend_entry_that_looks_the_same():
    figure, axis = canvas(4, 3)
    (line,) = axis.plot([1, 2], [1, 2], "o--", color="#0072B2")
    axis.plot([1, 2], [2, 1], "o-", color="#0072B2")
    axis.fill_between([1, 2], [0, 1], [2, 3], color="#0072B2", alpha=0.2)
    figure.legend([line], ["SVI"])
    root = tree(figure)
    assert titles(root, "SVI") == ["SVI\n1\n1", "SVI\n2\n2"]
    assert [mark.get("data-key") for mark in root.iter() if mark.get("data-key")] == ["SVI", "SVI"]  # line and text


def test_a_mark_has_the_row_that_the_drawing_code_gave_it():
    figure, axis = canvas(4, 3)
    axis.scatter([1, 2], [3, 4], s=[10, 20], gid="MC-RReLU")
    assert titles(tree(figure), "MC-RReLU") == ["MC-RReLU\n1\n3", "MC-RReLU\n2\n4"]


def test_bars_and_cells_have_their_values_and_the_names_of_their_ticks():
    figure, (left, right) = canvas(6, 3, ncols=2)
    left.bar([0, 1], [0.25, 0.75], label="mean")
    left.set_xticks([0, 1], ["cat", "dog"])
    right.pcolormesh(np.ma.masked_equal([[0, 2], [3, 0]], 0))
    right.text(1.5, 0.5, "2", color="black")
    right.text(0.5, 0.5, "0", color="black")
    right.set_xticks([0.5, 1.5], [1, 2])
    right.set_yticks([0.5, 1.5], [1, 2])
    right.set_title("SVI")
    root = tree(figure)
    assert titles(root, "mean")[1] == "mean\ndog\n0.75"
    assert titles(root, "SVI") == ["SVI\n1, 2: 2", "SVI\n2, 1: 3"]
    on = [mark for mark in root.iter() if mark.get("class") == "on"]
    assert [mark.text for mark in on if mark.tag == f"{SVG}text"] == ["2"]  # its colour must stay on a dark page


def test_a_line_that_only_shares_a_boxs_colour_is_not_of_its_row():
    figure, axis = canvas(4, 3)
    box = axis.add_patch(Rectangle((0, 0), 1, 1, color="red"))
    axis.axvline(0.5, color="red")
    axis.legend([box], ["Single"])
    assert len([mark for mark in tree(figure).iter() if mark.get("data-row") == "Single"]) == 1


def test_a_point_and_its_error_bar_have_the_label_of_both():
    figure, axis = canvas(4, 3)
    axis.plot([0, 1], [0, 1], color="red", label="exact")
    axis.errorbar([0.5], [0.5], [0.1], color="red", marker="o", linestyle="none", label="simulated")
    rows = [mark.get("data-row") for mark in tree(figure).iter() if mark.get("data-row")]
    assert sorted(rows) == ["exact", "simulated", "simulated"]


def test_what_leaves_the_panel_is_cut():
    figure, axis = canvas(4, 3)
    axis.fill_between([0, 1], [-100, -100], [100, 100], color="red", label="band")
    axis.plot([0, 1], [-100, 100], label="line")
    axis.set(ylim=(0, 1), xlim=(0, 1))
    paths = [mark.get("d") for row in tree(figure).iter() if row.get("data-row") for mark in row.iter(f"{SVG}path")]
    numbers = [float(n) for d in paths for n in d.replace("-", " -").translate(str.maketrans("MLHVZ", "     ")).split()]
    assert len(paths) == 2 and min(numbers) >= 0 and max(numbers) <= 4 * 72


def test_the_same_figure_gives_the_same_text_without_a_background():
    def drawn():
        figure, axis = canvas(4, 3)
        axis.plot([1, 2], [1, 2], "*")
        axis.set_title("1 < 2 & 3")
        return svg(figure)

    assert drawn() == drawn() and "1 &lt; 2 &amp; 3" in drawn() and len(drawn()) < 5000
    assert 'fill="#fff"' not in drawn() and "<rect" not in drawn()


@pytest.mark.parametrize(("value", "text"), [(0.04, "0"), (-0.04, "0"), (0.5, ".5"), (-0.5, "-.5"), (10, "10")])
def test_numbers_are_short(value, text):
    assert short(value) == text


def test_greys_are_one_of_sixteen():
    assert [hex_code(rgb) for rgb in ((0, 0, 0), (0.87,) * 3, (1, 1, 1), (1, 0, 0))] == ["#000", "#ddd", "#fff", "#f00"]
