"""The page is complete, readable without a script and without a network, and works in a real browser."""

import re
from html import unescape
from html.parser import HTMLParser
from types import SimpleNamespace

import chromium
import pytest
from commands import call, call_without_torch
from conftest import PAPER, ROOT
from made_up import DIGITS, analysed, corrupted, only, read, read_records, result, whole_suite, write
from matplotlib.figure import Figure

from rbue.report import cells, claims, verdict
from rbue.report import page as pages
from rbue.report.columns import (
    METHOD,
    count,
    decimals,
    duration,
    memory,
    milliseconds,
    number,
    seeded,
    signed,
    times,
    words,
)
from rbue.report.figures import draw, draw_general, grids, headline, left_out, networks
from rbue.report.page import pictures, tables
from rbue.report.page.markup import in_common, inline, sort_values, table, without_tex
from rbue.report.rows import ARCHS, DATASETS, LABELS
from rbue.report.text import announced
from rbue.runs.places import COMMAND
from rbue.runs.results import collect

VOID = {"meta", "link", "img", "input", "br", "wbr"}


def build(results, figures, benchmarks):
    return pages.build(read(results), PAPER, figures, benchmarks)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of a complete made-up suite on the digits, with figures (but empty PDFs), and a run on CIFAR-10."""
    folder = tmp_path_factory.mktemp("page")
    results = [*whole_suite(), result("Single")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda figure, file, **more: None)
        draw(only(whole_suite()), folder / "figures")
        draw_general(folder / "figures")
    path = folder / "report.html"
    path.write_text(build(results, folder / "figures", ROOT / "results" / "benchmarks"), encoding="utf-8")
    return path


class Outline(HTMLParser):
    """Check that elements are closed in order, and collect them."""

    def __init__(self):
        super().__init__()
        self.open, self.found = [], []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes <{self.open[-1] if self.open else 'nothing'}>"
        self.open.pop()


def outline(text):
    parser = Outline()
    parser.feed(text)
    assert parser.open == []
    return parser.found


# --- the file ---------------------------------------------------------------------------------------------------------


def test_the_page_is_well_formed_and_nothing_in_it_comes_from_elsewhere(page):
    found = outline(page.read_text())
    assert all(a["src"].startswith("data:") for _, a in found if "src" in a)
    assert not re.search(r"url\((?!#)|@import", page.read_text())
    addresses = [a["href"] for _, a in found if "href" in a]
    assert {a for a in addresses if "://" in a} == {"https://arxiv.org/abs/2107.07197"}
    names = [a["id"] for _, a in found if "id" in a]
    assert len(names) == len(set(names)) and {a[1:] for a in addresses if a.startswith("#")} <= set(names)
    files = {a for a in addresses if not a.startswith(("#", "data:", "https:"))}
    assert files and all((page.parent / name).exists() for name in files)


def test_it_has_every_row_table_claim_and_figure(page):
    text = page.read_text()
    drawn = [*page.parent.rglob("*.svg"), *(ROOT / "results" / "benchmarks").glob("*.svg")]
    assert text.count("<figure") == text.count("<svg") == len(drawn)
    assert re.search(".*?".join(f'scope="row">{re.escape(label)}<' for label in LABELS), text, re.S)  # in this order
    assert text.count('id="claim-') == 58
    for heading in (
        "What is measured",
        "Table 6: ",
        "As Tables 4 and 5, diversity:",
        "One pass instead of many",
        "Out-of-distribution images",
    ):
        assert heading in text
    assert "NVIDIA H200" in text and "0123456789" in text  # hardware and commit of each number


def test_a_whole_suite_leaves_no_figure_and_no_table_empty(page):
    network = only(whole_suite())
    pictures = [path.read_text() for path in page.parent.rglob("*.svg")]
    assert len(pictures) == 12 and all(text.count("<title>") + text.count("<path") > 10 for text in pictures)
    assert len(grids(network)) == 6 and left_out(read_records(whole_suite())) == []


def test_pictures_have_words_and_tables_have_captions_and_headers(page):
    found = outline(page.read_text())
    assert all(len(a["aria-label"]) > 20 for tag, a in found if tag == "svg")
    assert all(a["aria-label"] for _, a in found if a.get("role") == "group")
    tables = [tag for tag, _ in found].count("table")
    assert tables == [tag for tag, _ in found].count("caption") > 10
    assert all(a.get("scope") in ("col", "row") for tag, a in found if tag == "th")


def test_the_page_opens_with_the_verdict(tmp_path, monkeypatch):
    said = "It is 1 < 2 **lower**"
    found = [verdict.Finding("On par?", "on par", "no", f"{said}, with n = 1", said, {}, ("A1",))]
    found.append(verdict.Finding("Fast?", "fast", "not measured", "no GPU has measured it", "", {}, ()))
    monkeypatch.setattr(verdict, "build", lambda *_: found)
    text = pages.build([], PAPER, tmp_path, tmp_path)
    assert '<h2>On par? <span class="badge bad">no</span></h2>' in text
    shown = "It is 1 &lt; 2 <strong>lower</strong>"
    assert f"<p>{shown}. <span" in text and '<a href="#claim-a1">A1</a>' in text
    assert f"<details><summary>Details</summary><p>{shown}, with n = 1.</p></details>" in text
    assert "<p>No GPU has measured it.</p>" in text and text.count("<summary>Details</summary>") == 1
    assert 'id="claim-a1"' in text and text.index("On par?") < text.index('id="tables"')


def test_captions_name_the_papers_numbers_only_where_there_are_some(tmp_path):
    analysed_rows = [analysed(row, where=DIGITS) for row in ("Single", "MC-DropReLU(0.95)")]
    results = [result("Single", where=("cifar10", "matched", arch)) for arch in ("resnet18", "own_net")]
    expected = {
        "digits": (analysed_rows, "<strong>Calibration and test time</strong>: ECE against test time"),
        "cifar10": (results, "printed ones</strong>: our accuracy and ECE minus"),
        "both": ([*results, *analysed_rows], "printed ones.</strong> Left: our accuracy and ECE minus"),
    }
    for name, (found, caption) in expected.items():
        headline.draw(read_records(found), PAPER, tmp_path / name)
        assert caption in build(found, tmp_path / name, tmp_path), name
    text = build([*results, *analysed_rows], tmp_path, tmp_path)
    captions = set(re.findall("with [^<]*?: [^<]*numbers[^<]*(?=, protocol)", text))
    papers = "with ResNet-18: the paper&#39;s numbers and ours"
    assert captions == {papers, "with own_net: our numbers", "with small: our numbers"}


def test_each_protocol_is_explained_before_the_first_table(tmp_path):
    runs = [result("Single", where=("cifar10", p, "resnet18")) for p in ("paper", "matched", "fast")]
    before = build(runs, tmp_path, tmp_path).split("<table>")[0]
    assert re.findall(r"<dt><code>(\w+)</code></dt>", before) == ["paper", "matched", "fast"]
    assert "200 epochs, weight decay 0.0005" in before and "30 epochs" in before
    both = build([*runs, result("Single", where=("tinyimagenet", "matched", "vgg13"))], tmp_path, tmp_path)
    assert "200 epochs, 150 on TinyImageNet, weight decay 0.0005" in both.split("<table>")[0]


def test_the_only_network_left_is_one_network_and_a_short_training_is_told_below_table_6(tmp_path):
    places = [(dataset, "fast", arch) for dataset in DATASETS for arch in ARCHS][1:]
    runs = [result("Single", where=place) for place in places]
    runs += [result("MC-DropReLU(0.8)", where=places[-1], position=position) for position in ("all", "last")]
    text = build(runs, tmp_path, tmp_path)
    assert "The paper's numbers for 1 network not measured yet" in text
    assert "On TinyImageNet, we trained for 30 epochs, the paper for 150." in text


def test_of_two_protocols_one_is_shown_and_the_other_linked(tmp_path):
    runs = [result(row, where=("cifar10", "matched", "resnet18")) for row in ("Single", "SVI")]
    runs += [result("Single", where=("cifar10", "fast", "resnet18"))]
    for network in networks(read_records(runs)):
        path = network.folder(tmp_path / "figures") / "behaviours.svg"
        path.parent.mkdir(parents=True)
        path.write_text('<svg viewBox="0 0 9 9"></svg>')
    text = build(runs, tmp_path / "figures", tmp_path)
    assert 'id="figure-matched-cifar10-resnet18-behaviours"' in text and "<strong>Figure 11: space of" in text
    assert '<a href="figures/fast/cifar10/resnet18/behaviours.svg">behaviours</a>' in text


def test_the_protocol_with_the_most_rows_of_the_paper_stands_for_a_network(tmp_path):
    few = [result("Single", where=("cifar10", "matched", "densenet121"))]
    many = [result(row, where=("cifar10", "fast", "densenet121")) for row in ("Single", "SVI")]
    text = build([*few, *many], tmp_path, tmp_path)
    assert "CIFAR-10 with DenseNet-121, protocol <code>fast</code></h3>" in text
    assert text.index('id="table-cifar10-densenet121-fast"') < text.index('id="table-cifar10-densenet121-matched"')


def test_large_figures_get_room_last(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "ROOM", 150)
    folder = tmp_path / "figures/fast/cifar10/resnet18"
    folder.mkdir(parents=True)
    for name in ("variance", "samples", "rejection"):
        (folder / f"{name}.svg").write_text('<svg viewBox="0 0 9 9"></svg>')
    monkeypatch.setattr(pictures, "embedded", lambda path, *words: ("x" * 70, 9))
    text = build([result("Single")], tmp_path / "figures", tmp_path)
    assert re.findall(r'<figure class="item" id="[\w-]+-(\w+)"', text) == ["samples", "rejection"]
    assert 'href="figures/fast/cifar10/resnet18/variance.svg"' in text


def test_what_has_no_room_is_linked(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "ROOM", 0)
    path = tmp_path / "figures/fast/cifar10/resnet18/behaviours.svg"
    path.parent.mkdir(parents=True)
    path.write_text('<svg viewBox="0 0 9 9"></svg>')
    text = build([result("Single")], tmp_path / "figures", tmp_path)
    assert "<figure" not in text and 'href="figures/fast/cifar10/resnet18/behaviours.svg"' in text


def test_the_coverage_counts_cells_of_the_paper_and_says_protocol_and_seeds(tmp_path):
    runs = [result("Single"), result("Single", seed=1), result("SVI"), result("SVI", where=DIGITS)]
    text = build(runs, tmp_path, tmp_path)
    assert "<strong>2 of 90</strong>" in text and "2 of the paper's 90 cells" in unescape(text)
    assert "<td>fast 2</td>" in text and "<td>demo 1</td>" in text


def test_one_network_under_two_protocols_stands_side_by_side(tmp_path):
    scores = {"paper": 0.94, "matched": 0.95}
    runs = [result("Single", where=("cifar10", p, "resnet18"), accuracy=a) for p, a in scores.items()]
    text = build(runs, tmp_path, tmp_path)
    head, body = text.split("ResNet-18: by protocol")[-1].split("<tbody>")[:2]
    line = body.split("</tr>")[0]
    assert '<th scope="col" class="paper">Accuracy,\u00a0%<small>printed</small></th>' in head
    assert '<th scope="col" class="ours">Accuracy,\u00a0%<small>ours, <code>paper</code></small></th>' in head
    assert re.findall(r">([\d.]+)[^<]*</td>", line)[:3] == ["95.01", "95.00", "94.00"]


def test_without_results_the_page_still_shows_the_paper(tmp_path):
    text = build([], tmp_path, tmp_path)
    outline(text)
    assert "No network is measured on clean test images yet" in text and "0 of 90" in text and "95.32" in text
    assert f"<code>{COMMAND}</code> makes such results" in text


def test_the_cards_count_only_claims_that_numbers_or_algebra_decide(tmp_path):
    papers = [entry for entry in claims.build([], PAPER) if entry.id != "T6"]  # T6 is ours
    text, decided = build([], tmp_path, tmp_path), [e.paper for e in papers if e.paper.by != "reading"]
    held, refuted = (sum(p.status == status for p in decided) for status in ("holds", "does not hold"))
    assert len(decided) < 58 and f"<strong>{held} of {len(decided)}</strong>" in text
    card = f"<strong>{refuted} of {len(decided)}</strong> <span>claims are refuted by"
    assert card in text


def test_a_table_with_nothing_of_ours_is_folded():
    columns = [METHOD, number("paper", "ECE", "paper", decimals(2), side="paper")]
    columns.append(number("ours", "ECE", "ours", decimals(2), side="ours"))
    empty, full = {"row": "a", "paper": 0.1, "ours": None}, {"row": "b", "paper": 0.1, "ours": 0.2}
    assert table(columns, [empty], "A", "a")["folded"] and not table(columns, [empty, full], "A", "a")["folded"]
    assert not table(columns[:2], [empty], "A", "a")["folded"]
    assert "not measured yet</summary>" in rendered(columns, [empty]) and "</details>" in rendered(columns, [empty])


def test_figures_of_every_source_of_corrupted_images_have_words(tmp_path):
    stems = [f"corruptions-{source}{ece}" for source in ("generated", "official", "unverified") for ece in ("", "-ece")]
    path = tmp_path / "figures/fast/cifar10/resnet18"
    path.mkdir(parents=True)
    for stem in stems:
        (path / f"{stem}.svg").write_text('<svg viewBox="0 0 9 9"></svg>')
    text = build([result("Single")], tmp_path / "figures", tmp_path)
    assert all(f'id="figure-fast-cifar10-resnet18-{stem}"' in text for stem in stems)
    assert text.count("unverified images, which") == 2 and text.count("As Figure 5") == 3 == text.count("As Figure 6")


def test_the_tables_of_two_sources_have_an_id_each(tmp_path):
    text = build([corrupted("Single", source=source) for source in ("generated", "official")], tmp_path, tmp_path)
    names = re.findall(r'id="(table-[^"]*under-corruption[^"]*)"', text)
    assert len(names) == len(set(names)) == 2


def test_the_same_results_give_the_same_page_without_torch(tmp_path):
    write(tmp_path / "runs", whole_suite()[:3])
    files = [tmp_path / name / "report.html" for name in ("a", "b")]
    for file, run in zip(files, (call, call_without_torch), strict=True):
        run("scripts/report.py", "--results", tmp_path / "runs", "--out", file)
    first, second = (file.read_text() for file in files)
    assert first == second and str(tmp_path) not in first


def test_a_page_in_another_folder_says_that_it_has_no_figures(tmp_path):
    write(tmp_path / "runs", whole_suite()[:3])
    words = ["--results", tmp_path / "runs", "--out", tmp_path / "report.html"]
    told = f"It has no figures, since there is no {tmp_path / 'figures'}"
    assert told in call("scripts/report.py", *words).stdout
    (tmp_path / "figures").mkdir()
    assert told not in call("scripts/report.py", *words).stdout


def test_the_committed_page_is_what_the_committed_results_give():
    """Run `make figures report` after every new result to keep this true."""
    committed = ROOT / "results"
    built = pages.build(collect(committed / "runs"), PAPER, committed / "figures", committed / "benchmarks")
    assert (committed / "report.html").read_text() == built, "results/report.html is stale: run 'make report'"
    drawn = sum(map(len, re.findall(r"<svg.*?</svg>|data:image/webp[^\"]*", built, re.S)))
    assert len(built.encode()) < 3e6
    assert drawn < pictures.ROOM and len(built) - drawn < 0.7e6  # so that it stays below 3 MB with all cells


# --- its parts --------------------------------------------------------------------------------------------------------


def test_text_is_escaped_before_it_is_marked_up():
    assert inline("a < b, `x<y` and **q**") == "a &lt; b, <code>x&lt;y</code> and <strong>q</strong>"
    cell = {"row": "<b>", "where": '"&'}
    text = rendered([METHOD, words("where", "Where")], [cell])
    assert "&lt;b&gt;" in text and "&#34;&amp;" in text


def test_a_quotation_reads_as_in_the_papers_pdf():
    assert without_tex(r"when $q \le 1-p$, the \textbf{variance}") == "when q ≤ 1-p, the variance"


def rendered(columns, cells):
    return str(pages.TEMPLATES.get_template("parts.html").module.table(table(columns, cells, "caption", "name")))


def test_a_column_knows_its_group():
    columns, _ = announced(cells.build(read_records([result("Single")]), PAPER)[0])
    headers = [(column.group, column.name) for column in columns]
    assert headers[:4] == [("Method", ""), *(("VGG-13", n) for n in ("parameters", "peak memory", "test ms/image"))]


def test_cells_sort_by_their_numbers_whatever_is_shown():
    cell = {"row": "a", "ours_ece": 0.0312, "n": 1, "time": 5400, "size": 2**31, "ours_bold": True, "where": "fast 1"}
    columns = [
        METHOD,
        seeded("ece", "ECE", "ours", decimals(2), bold="ours_bold"),
        number("time", "Time", "", duration),
    ]
    columns += [number("size", "Memory", "", memory), words("where", "Where")]
    text = rendered(columns, [cell, cell | {"ours_ece": 0.0331}])
    assert re.findall(r"<td[^>]*>.*?</td>", text)[:5] == [
        '<td data-value="0.0312"><strong>0.03 (1)</strong></td>',
        '<td data-value="5400">1.50 h</td>',
        '<td data-value="2147483648">2.00 GiB</td>',
        "<td>fast 1</td>",
        '<td data-value="0.0331"><strong>0.03 (1)</strong></td>',
    ]


def test_a_number_alone_is_sorted_by_its_text_unless_its_unit_differs():
    columns = [METHOD, number("hours", "Hours", "", decimals(1)), number("elements", "Elements", "", count)]
    columns.append(number("size", "MB", "", lambda size: f"{size / 1e6:.0f}"))
    text = rendered(columns, [{"row": "a", "hours": 1.23456789, "elements": 65536, "size": 767_000_000}])
    cells = ["<td>1.2</td>", "<td>65,536</td>", '<td data-value="767000000">767</td>']
    assert re.findall(r"<td[^>]*>.*?</td>", text) == cells


def test_a_text_that_begins_with_its_number_is_sorted_by_it_unless_another_begins_alike():
    columns = [METHOD, seeded("ece", "ECE", "", decimals(2), bold="best"), number("gap", "Gap", "", signed(1))]
    columns += [number("ratio", "Ratio", "", times), number("seconds", "Time", "", duration)]
    cell = {"row": "a", "ours_ece": 0.501, "n": 1, "best": True, "gap": -0.5, "ratio": 1.004, "seconds": 122.0}
    cells = ["<td><strong>0.50 (1)</strong></td>", "<td>-0.5</td>", "<td>1.00×</td>"]
    cells.append('<td data-value="122">2 min 02 s</td>')
    assert re.findall(r"<td[^>]*>.*?</td>", rendered(columns, [cell])) == cells
    other = {"n": 3, "std_ece": 0.1, "ours_ece": 0.499, "best": False, "ratio": 1.5}
    cells[0] = '<td data-value="0.501"><strong>0.50 (1)</strong></td>'
    cells += ['<td data-value="0.499">0.50 ± 0.10 (3)</td>', "<td>-0.5</td>", "<td>1.50×</td>", cells[-1]]
    assert re.findall(r"<td[^>]*>.*?</td>", rendered(columns, [cell, cell | other])) == cells
    assert sort_values(["-0", "0", "1"], [-0.2, 0.3, 0.9]) == ["-0.2", "0.3", None]


def test_what_all_runs_share_is_said_once(tmp_path):
    runs = [result("Single", seed=seed) for seed in (0, 1)]
    text = build(runs, tmp_path, tmp_path)
    assert "The same for all runs: hardware NVIDIA H200, precision bf16, torch 2.11." in text
    assert ">Hardware</th>" not in text and ">Precision</th>" not in text
    runs[1]["environment"] = runs[1]["environment"] | {"hardware": "NVIDIA B200"}
    text = build(runs, tmp_path, tmp_path)
    assert "The same for all runs: precision bf16, torch 2.11." in text
    assert ">Hardware</th>" in text and "<td>NVIDIA B200</td>" in text


def test_what_all_tables_of_a_kind_say_is_said_once(tmp_path):
    runs = [analysed("Single", where=("cifar10", "matched", arch)) for arch in ("vgg13", "resnet18")]
    text = build([*runs, result("Single", where=("cifar10", "fast", "vgg13"))], tmp_path, tmp_path)
    assert text.count("<code>diff</code> is ours − paper.") == text.count("One temperature divides") == 1
    assert re.search('id="notes-tables".*?<h4>All tables</h4><ul>.*?<code>diff</code> is ours', text, re.S)
    scaling = "<h4>Before and after temperature scaling</h4><ul><li>One temperature divides"
    assert scaling in text.split('id="notes-networks"')[1].split("</details>")[0]
    tables = re.split('id="table-[^"]*-before-and-after-temperature-scaling"', text)[1:]
    below = [table.split("</table>")[1].split("<table>")[0] for table in tables]
    link = '<a href="#notes-before-and-after-temperature-scaling">How to read this table</a>'
    assert len(below) == 2 and all(link in each for each in below)
    for protocol in ("matched", "fast"):  # what a table alone says stays with it
        assert text.count(f"Protocol <code>{protocol}</code>: ") == 1
        assert f"<h4>Protocol <code>{protocol}</code></h4><ul><li>Protocol <code>{protocol}</code>: " in text


def test_what_not_all_tables_of_a_kind_say_stays_with_each():
    noted = [("A", ["x", "y"]), ("A", ["y", "x"]), ("A", ["x"]), ("B", ["z", "z"]), ("C", ["u"]), ("C", ["v"])]
    assert in_common(noted) == {"A": ["x"]}


def test_what_one_table_alone_says_stays_below_it(page):
    (table,) = page.read_text().split('-before-and-after-temperature-scaling"')[1:]
    assert '<p class="note">One temperature divides' in table.split("</table>")[1].split("<table>")[0]


def test_what_is_missing_has_no_value_to_sort_by():
    columns = [METHOD, number("ours", "ECE", "ours", decimals(2), side="ours")]
    assert "<td></td>" in rendered(columns, [{"row": "a", "ours": None}])  # page.css shows a dash


def test_a_dataset_with_rows_of_a_users_own_method_alone_has_a_table(tmp_path):
    runs = read_records([result("MC-RReLU", where=DIGITS)])
    runs["row"] = "own(s=1)"
    suite = SimpleNamespace(tables=cells.build(runs, PAPER), best=lambda *_: "demo", compared={}, folder=tmp_path)
    (digits,) = tables.by_dataset(suite, tables.common_notes(suite))
    assert [row["name"] for row in digits["networks"][0]["main"]["rows"]][-1] == "own(s=1)"


# --- in a browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(page, tmp_path_factory):
    if chromium.BINARY is None:
        pytest.skip("no Chromium here")
    with chromium.Chromium(tmp_path_factory.mktemp("profile")) as browser:
        browser.resize(1280)
        browser.open(page)
        yield browser


def test_it_opens_from_disk_without_an_error_or_a_further_request(browser, page):
    assert browser.of("Runtime.exceptionThrown") == browser.of("Log.entryAdded") == []
    assert browser.of("Runtime.consoleAPICalled") == []
    asked = [event["request"]["url"] for event in browser.of("Network.requestWillBeSent")]
    assert [url for url in asked if not url.startswith("data:")] == [page.as_uri()]
    assert browser.ask("[...document.images].every(i => i.complete && i.naturalWidth > 0)")


def choose(browser, what, value):
    browser.ask(f"document.querySelector('#choose-{what}').value = '{value}'")


def visible(browser, selector):
    """Count what is not hidden. A figure out of sight is not laid out, so its marks are asked for their style too."""
    shown = "e.checkVisibility() && getComputedStyle(e).display != 'none'"
    return browser.ask(f"[...document.querySelectorAll('{selector}')].filter(e => {shown}).length")


def visible_cells(browser, kind):
    """Count the visible cells of columns of this kind."""
    head = "c.closest('table').tHead.rows[0].cells[c.cellIndex]"
    cells = f"[...document.querySelectorAll('td')].filter(c => {head}.classList.contains('{kind}'))"
    return browser.ask(f"{cells}.filter(c => c.checkVisibility()).length")


def test_the_switch_shows_the_papers_columns_or_ours(browser):
    paper, ours = (visible_cells(browser, side) for side in ("paper", "ours"))
    heads = [visible(browser, f"th.{side}") for side in ("paper", "ours")]
    assert paper > 0 and ours > 0 and min(heads) > 0
    choose(browser, "columns", "paper")
    assert (visible_cells(browser, "paper"), visible_cells(browser, "ours")) == (paper, 0)
    assert [visible(browser, f"th.{side}") for side in ("paper", "ours")] == [heads[0], 0]
    choose(browser, "columns", "ours")
    assert (visible_cells(browser, "paper"), visible_cells(browser, "ours")) == (0, ours)
    assert [visible(browser, f"th.{side}") for side in ("paper", "ours")] == [0, heads[1]]
    choose(browser, "columns", "")


def test_cells_look_as_the_heads_of_their_columns_say(browser):
    cells = "[...document.querySelectorAll('td')].map(c => [c.closest('table').tHead.rows[0].cells[c.cellIndex], c])"
    looks = "[h.classList.contains('words'), getComputedStyle(c).textAlign]"
    found = browser.ask(f"{cells}.map(([h, c]) => {looks})")
    assert {tuple(look) for look in found} == {(True, "left"), (False, "right")}
    dashes = browser.ask("[...document.querySelectorAll('td:empty')].map(c => getComputedStyle(c, '::before').content)")
    assert set(dashes) == {'"–"'}


def test_every_table_and_figure_has_a_link_to_itself(browser):
    places = "[...document.querySelectorAll('.item:not(section)')]"
    assert browser.ask(f"{places}.length") > 50
    assert browser.ask(f"{places}.every(e => e.querySelectorAll(`.here[href='#${{e.id}}']`).length === 1)")


@pytest.mark.parametrize(("what", "value"), [("dataset", "digits"), ("network", "small"), ("protocol", "demo")])
def test_a_filter_hides_what_is_of_another_kind(browser, what, value):
    mine, others = f'[data-{what}="{value}"]', f'[data-{what}]:not([data-{what}="{value}"])'
    before = visible(browser, mine), visible(browser, others)
    assert before[0] > 5 and before[1] > 0
    choose(browser, what, value)
    assert (visible(browser, mine), visible(browser, others)) == (before[0], 0)
    choose(browser, what, "")


def test_the_legend_switches_rows_in_all_figures_or_in_one(browser):
    """The list of rows acts on all figures, by the style alone; a figure's own legend acts on that figure."""
    marks = '[data-row="SVI"]'
    shown = visible(browser, marks)
    labels = "[...document.querySelectorAll('.filters label')]"
    box = f"{labels}.find(label => label.textContent.trim() === 'SVI').querySelector('input')"
    browser.ask(f"{box}.click()")
    assert shown > 10 and visible(browser, marks) == 0 and visible(browser, '[data-row="Single"]') > 0
    browser.ask(f"{box}.click()")
    click = "document.querySelector('[id$=-samples] [data-key=SVI]').dispatchEvent(new MouseEvent('click'))"
    browser.ask(click)
    assert 0 < visible(browser, marks) < shown
    browser.ask(click)
    assert visible(browser, marks) == shown


def test_a_mark_says_its_row_and_its_values(browser):
    titles = browser.ask(
        "[...document.querySelectorAll('[id$=-samples] [data-row=SVI] title')].map(t => t.textContent)"
    )
    assert any(re.fullmatch(r"SVI\nPasses \d+\nAccuracy \(%\) [\d.]+", title) for title in titles)


def test_the_search_keeps_what_has_all_words_and_opens_it(browser):
    browser.ask("search.value = 'space BEHAVIOURS'; search.dispatchEvent(new Event('input'))")
    found = browser.ask("[...document.querySelectorAll('.item')].filter(e => e.checkVisibility()).map(e => e.id)")
    assert any(name.endswith("-behaviours") for name in found) and len(found) < 12
    assert browser.ask("document.getElementById('found').textContent").startswith(f"{len(found)} of ")
    browser.ask("search.value = ''; search.dispatchEvent(new Event('input'))")


def test_a_click_on_a_header_sorts_down_then_up_and_keeps_the_missing_last(browser):
    browser.ask("window.t = [...document.querySelectorAll('table')].find(t => t.innerText.startsWith('Table 6'))")
    browser.ask("window.b = [...t.tHead.rows[0].cells].findIndex(c => c.textContent.startsWith('ECEours'))")
    column = "[...t.tBodies[0].rows].map(r => r.cells[b].textContent)"
    before = browser.ask(column)
    browser.ask("t.tHead.rows[0].cells[b].querySelector('button').click()")
    assert browser.ask("t.tHead.rows[0].cells[b].ariaSort") == "ascending"
    assert browser.ask(column) == sorted(before, key=lambda text: (text == "", text))
    browser.ask("t.tHead.rows[0].cells[b].querySelector('button').click()")
    assert browser.ask("t.tHead.rows[0].cells[b].ariaSort") == "descending" and browser.ask(column)[-1] == ""
    browser.ask("t.tHead.rows[0].cells[0].querySelector('button').click()")
    assert browser.ask(column) == before  # names sort in the paper's order


def test_each_column_of_numbers_sorts_by_them(browser, page, tmp_path):
    """Also if texts look alike, have other units, or have commas."""
    numbers = [0.0349, 59.97, 60.2, 1234.5, 1234.4, 99.96, 100.2, 0.0312, -0.2, 5400.0, 2.0**31, 1e6, 0.03]
    texts = {"d": decimals(2), "s": signed(1), "c": count, "t": duration, "m": memory, "ms": milliseconds}
    columns = [METHOD, *(number("value", name, "", text) for name, text in texts.items())]
    made = rendered(columns, [{"row": str(value), "value": value} for value in numbers])
    whole = page.read_text(encoding="utf-8")
    before, after = whole.split("<main", 1)[0], whole[whole.rindex("<script>") :]
    (tmp_path / "sorted.html").write_text(f"{before}<main>{made}</main>{after}", encoding="utf-8")
    browser.open(tmp_path / "sorted.html")
    rows = "[...document.querySelector('tbody').rows].map(r => Number(r.cells[0].textContent))"
    for place, name in enumerate(texts, 1):
        browser.ask(f"document.querySelectorAll('thead button')[{place}].click()")
        assert browser.ask(rows) == sorted(numbers), name
        browser.ask("document.querySelectorAll('thead button')[0].click()")
        browser.ask("document.querySelectorAll('thead button')[0].click()")  # so that the order is another one again
    browser.open(page)


def test_the_search_finds_what_tables_say_in_common(browser):
    browser.ask("search.value = 'numbers mean seeds row brackets'; search.dispatchEvent(new Event('input'))")
    assert browser.ask("document.getElementById('notes-all-tables').checkVisibility()")  # its fold is open
    assert visible(browser, ".item:not(section)") < 12
    browser.ask("search.value = ''; search.dispatchEvent(new Event('input'))")


def test_claims_are_filtered_by_their_verdict(browser):
    choose(browser, "verdict", "paper-does-not-hold")
    cards = "[...document.querySelectorAll('.claims > li')].filter(e => e.checkVisibility())"
    shown = browser.ask(f"{cards}.map(e => e.innerText)")
    assert 0 < len(shown) < 58 and all("paper: does not hold" in text for text in shown)
    choose(browser, "verdict", "")


@pytest.mark.parametrize("width", [390, 768, 1400])
def test_the_page_never_scrolls_sideways(browser, width):
    browser.resize(width)
    assert browser.ask("document.documentElement.scrollWidth") <= width
    browser.ask("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert browser.ask("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [390, 500, 640, 900, 1400])
def test_links_and_search_do_not_overlap(browser, width):
    browser.resize(width)
    link, search = (
        browser.ask(f"document.querySelector('{part}').getBoundingClientRect().toJSON()")
        for part in ("nav a:last-child", "#search")
    )
    assert link["right"] < search["left"] or link["bottom"] <= search["top"]


@pytest.mark.parametrize("width", [390, 1280])
def test_long_names_of_a_user_do_not_make_it_scroll_sideways(browser, page, tmp_path, width):
    long = page.read_text(encoding="utf-8").replace("digits", "d" * 150).replace("SVI", "s" * 150)
    (tmp_path / "long.html").write_text(long, encoding="utf-8")
    browser.resize(width)
    browser.open(tmp_path / "long.html")
    browser.ask("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert browser.ask("document.documentElement.scrollWidth") <= width


def test_a_phone_shows_the_whole_navigation_and_no_heading_behind_it(browser, page):
    browser.resize(390)
    browser.open(page)
    ends = browser.ask("[...document.querySelectorAll('nav a')].map(a => a.getBoundingClientRect().right)")
    assert len(ends) == 5 and max(ends) <= 390
    room = browser.ask("parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop)")
    assert browser.ask("document.querySelector('.bar').offsetHeight") <= room


def test_it_reads_without_a_script(browser, page):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(page)
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.ask("document.querySelectorAll('thead button').length") == 0
    assert browser.ask("document.querySelector('.claims').innerText").count("\npaper: ") == 58
    assert browser.ask("document.getElementById('search').checkVisibility()") is False  # it would do nothing
    choose(browser, "verdict", "paper-holds")  # filters and the list of rows need no script
    assert 0 < visible(browser, ".claims > li") < 58
    choose(browser, "verdict", "")


def test_dark_where_the_reader_wants_dark_also_in_figures(browser):
    def colours(scheme):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        page = browser.ask("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", page))), browser.ask(
            "getComputedStyle(document.querySelector('.plot text')).fill"
        )

    paper, ink = colours("light")
    assert paper > 600 and ink == "rgb(34, 34, 34)"  # the figures' ink
    paper, ink = colours("dark")
    assert paper < 150 and sum(map(float, re.findall(r"[\d.]+", ink))) > 2.2  # a mixed colour counts from 0 to 1
