"""An inserted column appears under its own heading in every format, and moves no other value from its heading."""

import re
from io import StringIO

import made_up
import pandas as pd
import pytest
from conftest import PAPER

from rbue.report import cells, latex, page, records, tables, text
from rbue.report.columns import METHOD, Grid, decimals, grid, number, pipe, seeded
from rbue.report.rows import LABELS

AT = ("cifar10", "matched", "resnet18")
PASSES = seeded("passes", "Passes", "ours", decimals(0), side="ours")


def results():
    """Ten rows whose numbers of passes appear nowhere else."""
    made = [made_up.result(label, 0.9 + k / 100, 0.01 * k, AT) for k, label in enumerate(LABELS)]
    return [run | {"passes": 700 + k} for k, run in enumerate(made)]


def built():
    return cells.build(made_up.read_records(results()), PAPER)


# --- each format as {(row, heading): text} ----------------------------------------------------------------------------


def of_markdown(text):
    """The first table of a text; `ours`, `diff` and `speed-up` belong to the group before them."""
    lines = [[part.strip() for part in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]
    heads, group = [], ""
    for head in lines[0]:
        group, name = (group, head) if head in ("ours", "diff", "speed-up") else (*head.split(": "), "")[:2]
        heads.append((group, name))
    rows = lines[1 : 1 + len(LABELS)]
    return {(row[0], *head): text for row in rows for head, text in zip(heads[1:], row[1:], strict=True)}


def in_markdown():
    return of_markdown(tables.markdown(built()[0]).split("## ResNet-18")[1])


def in_readme():
    return of_markdown(tables.headline(built()))


def in_latex():
    """By network, since all networks have the same headings."""
    frame = latex.latex(built()[0]).split(r"\begin{tabular}")[1]
    lines = [line.removesuffix(r" \\").split(" & ") for line in frame.splitlines() if line.endswith(r"\\")]
    heads, rows = lines[1], [line for line in lines if line[0] in LABELS]
    width = (len(heads) - 1) // 3
    named = [(place // width, head) for place, head in enumerate(heads[1:])]
    return {(row[0], *head): text for row in rows for head, text in zip(named, row[1:], strict=True)}


def in_csv():
    frame = pd.read_csv(StringIO(tables.csv(built()[0])), dtype=str, keep_default_na=False).set_index("row")
    return frame[frame.arch == "resnet18"].stack(future_stack=True).to_dict()


def in_page(tmp_path):
    """With the number by which each cell sorts."""
    html = page.build(made_up.read(results()), PAPER, tmp_path, tmp_path)
    found = html.split('id="table-cifar10-resnet18-matched"')[1].split("</table>")[0]
    heads = re.findall(r"<th scope=\"col\"[^>]*>([^<]*)(?:<small>(.*?)</small>)?</th>", found)
    rows = [re.split(r"(?=<td)", row) for row in found.split("<tbody>")[1].split("</tr>")[:-1]]
    values = [(re.search(r">([^<]+)</th>", row[0])[1], row[1:]) for row in rows]
    return {(label, *head): cell for label, parts in values for head, cell in zip(heads[1:], parts, strict=True)}


@pytest.fixture
def inserted(monkeypatch):
    """Insert a column at the front, where it would shift everything that relies on column numbers."""

    def insert():
        monkeypatch.setattr(tables, "README", ("passes", *tables.README))
        for known, new in zip(lists, (PASSES, ("Passes", "", ["ours_passes"], []), "passes"), strict=True):
            known.insert(0, new)

    lists = text.BESIDE_PAPER, latex.PRINTED, records.MEASURES
    yield insert
    for known in lists:
        known.pop(0)


@pytest.mark.parametrize(
    ("form", "heading", "value"),
    [
        (in_markdown, ("Passes", "ours"), "700 (1)"),
        (in_readme, ("Passes", "ours, `matched`"), "700 (1)"),
        (in_latex, (1, "Passes"), "700 (1)"),
        (in_csv, ("ours_passes",), "700"),
        (in_page, ("Passes", "ours"), "<td>700 (1)</td>"),
    ],
)
def test_an_inserted_column_stands_under_its_own_heading_and_moves_no_other(form, heading, value, inserted, tmp_path):
    words = [tmp_path] if form is in_page else []
    before = form(*words)
    inserted()
    after = form(*words)
    assert after["Single", *heading] == value and len(before) >= len(LABELS) * 4
    assert before == {key: text for key, text in after.items() if "passes" not in str(key).lower()}
    each = {in_latex: 3, in_csv: 2}.get(form, 1)  # three networks; mean and deviation
    assert len(after) - len(before) == each * len(LABELS)


def test_the_headline_says_what_the_table_says():
    told, shown = in_readme(), in_markdown()
    for label in LABELS:
        for group in ("Accuracy, %", "ECE"):
            assert told[label, group, "printed"] == shown[label, group, "paper"]
            assert told[label, group, "ours, `matched`"] == shown[label, group, "ours"]


def test_a_group_is_named_once_or_in_full():
    columns = [METHOD, number("a", "ECE", "paper", str), number("b", "ECE", "ours", str), number("n", "n", "", str)]
    cell = {"row": "x", "a": 1, "b": 2, "n": 3}
    assert grid(columns, [cell]) == [["Method", "ECE: paper", "ours", "n"], ["x", "1", "2", "3"]]
    assert grid(columns, [], full=True) == [["Method", "ECE: paper", "ECE: ours", "n"]]
    assert Grid("t", columns, [cell]).rows == grid(columns, [cell])


def test_a_name_with_a_bar_stays_in_its_column():
    head, rule, line = pipe([["Method", "ECE"], ["mine(kind=a|b)", "0.1"]]).splitlines()
    assert line.startswith(r"| mine(kind=a\|b) |") and len(head) == len(rule) == len(line)


def test_a_name_of_the_users_own_is_no_latex():
    assert latex.tex("mine(a={'b': 1}, c=x^2_$|~)") == r"mine(a=\{'b': 1\}, c=x\^{}2\_\$$|$\~{})"
    assert latex.tex("**94.60 ± 0.20** `x_y` −1") == r"\textbf{94.60 $\pm$ 0.20} \texttt{x\_y} $-$1"
