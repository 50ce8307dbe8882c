"""The page is complete, readable without a script and without a network, and works in a real browser."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import chromium
import numpy as np
import pytest
from commands import call
from made_up import DIGITS, read, read_records, result, whole_suite, write
from PIL import Image

from rbue.report import cells
from rbue.report import page as pages
from rbue.report.columns import METHOD, decimals, duration, memory, number, seeded, words
from rbue.report.figures import draw, draw_general, grids, left_out, networks
from rbue.report.page.html import element, inline, table
from rbue.report.rows import LABELS
from rbue.report.text import announced
from rbue.runs.results import collect

ROOT = Path(__file__).resolve().parents[1]
PAPER = ROOT / "results" / "paper"
VOID = {"meta", "link", "img", "input", "br"}


def build(results, figures, benchmarks):
    return pages.build(read(results), PAPER, figures, benchmarks)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of a complete made-up suite on the digits, with its figures."""
    folder = tmp_path_factory.mktemp("page")
    results = whole_suite()
    for network in networks(read_records(results)):
        draw(network, PAPER, folder / "figures")
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

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes <{self.open[-1] if self.open else 'nothing'}>"
        self.open.pop()


def outline(text):
    parser = Outline()
    parser.feed(text)
    assert parser.open == []
    return parser.found


def inked(path):
    """The share of a picture's pixels that are not white."""
    return (np.asarray(Image.open(path).convert("L")) < 250).mean()


# --- the file ---------------------------------------------------------------------------------------------------------


def test_the_page_is_well_formed_and_nothing_in_it_comes_from_elsewhere(page):
    found = outline(page.read_text())
    addresses = [a[key] for _, a in found for key in ("src", "href") if key in a]
    assert addresses and all(address.startswith(("data:", "#")) for address in addresses)
    assert not re.search(r"url\(|@import|https?://", page.read_text())
    names = [a["id"] for _, a in found if "id" in a]
    assert len(names) == len(set(names)) and {a[1:] for a in addresses if a.startswith("#")} <= set(names)


def test_it_has_every_row_table_claim_and_figure(page):
    text = page.read_text()
    drawn = [*page.parent.rglob("*.png"), *(ROOT / "results" / "benchmarks").glob("*.png")]
    assert text.count("<figure>") == len(drawn)
    assert all(f'scope="row" data-value="{place}">{label}<' in text for place, label in enumerate(LABELS))
    assert text.count('class="is-') == 58 and "T1" in text and "Where the proof goes wrong" not in text
    for heading in ("Coverage", "Table 6 of the paper", "Diversity:", "One pass instead of many", "Images from"):
        assert heading in text
    assert "NVIDIA H200" in text and "0123456789" in text  # hardware and commit of each number


def test_a_whole_suite_leaves_no_figure_and_no_table_empty(page):
    (network,) = networks(read_records(whole_suite()))
    pictures = list(page.parent.rglob("*.png"))
    assert len(pictures) == 12 and all(inked(path) > 0.01 for path in pictures)
    assert len(grids(network, PAPER)) == 6 and left_out(read_records(whole_suite())) == []


def test_pictures_have_words_and_tables_have_captions_and_headers(page):
    found = outline(page.read_text())
    assert all(len(a["alt"]) > 20 for tag, a in found if tag == "img")
    tables = [tag for tag, _ in found].count("table")
    assert tables == [tag for tag, _ in found].count("caption") > 10
    assert all(a.get("scope") in ("col", "row") for tag, a in found if tag == "th")


def test_the_coverage_counts_cells_of_the_paper_and_says_protocol_and_seeds(tmp_path):
    runs = [result("Single"), result("Single", seed=1), result("SVI"), result("SVI", where=DIGITS)]
    text = build(runs, tmp_path, tmp_path)
    assert "<strong>2 of 90</strong>" in text and "2 of the paper's 90 cells" in text
    assert '<td class="words">fast 2</td>' in text and '<td class="words">demo 1</td>' in text


def test_one_network_under_two_protocols_stands_side_by_side(tmp_path):
    scores = {"paper": 0.94, "matched": 0.95}
    runs = [result("Single", where=("cifar10", p, "resnet18"), accuracy=a) for p, a in scores.items()]
    text = build(runs, tmp_path, tmp_path)
    head, body = text.split("ResNet-18: by protocol")[-1].split("<tbody>")[:2]
    line = body.split("</tr>")[0]
    assert '<th scope="col" class="paper">Accuracy, %<small>printed</small></th>' in head
    assert '<th scope="col" class="ours">Accuracy, %<small>ours, <code>paper</code></small></th>' in head
    assert re.findall(r">([\d.]+)[^<]*</td>", line)[:3] == ["95.01", "95.00", "94.00"]


def test_without_results_the_page_still_shows_the_paper(tmp_path):
    text = build([], tmp_path, tmp_path)
    outline(text)
    assert "Nothing is measured yet" in text and "0 of 90" in text and "95.32" in text


def test_the_same_results_give_the_same_page_without_torch(tmp_path):
    write(tmp_path / "runs", whole_suite()[:3])
    code = "import sys; sys.path.insert(0, 'scripts'); import report; report.main(); assert 'torch' not in sys.modules"
    files = [tmp_path / name / "report.html" for name in ("a", "b")]
    there, here = (["--results", str(tmp_path / "runs"), "--out", str(file)] for file in files)
    subprocess.run([sys.executable, "-c", code, *there], cwd=ROOT, capture_output=True, check=True)
    call("scripts/report.py", *here)
    first, second = (file.read_text() for file in files)
    assert first == second and str(tmp_path) not in first


def test_the_committed_page_is_what_the_committed_results_give():
    """Run `make figures report` after every new result to keep this true."""
    committed = ROOT / "results"
    built = pages.build(collect(committed / "runs"), PAPER, committed / "figures", committed / "benchmarks")
    assert (committed / "report.html").read_text() == built, "results/report.html is stale: run 'make report'"
    assert len(built) < 6e6


# --- its parts --------------------------------------------------------------------------------------------------------


def test_text_is_escaped_before_it_is_marked_up():
    assert inline("a < b, `x<y` and **q**") == "a &lt; b, <code>x&lt;y</code> and <strong>q</strong>"
    assert element("a", "x", href='"&', title=None) == '<a href="&quot;&amp;">x</a>'


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
    text = table(columns, [cell], "caption")
    assert re.findall(r"<td[^>]*>.*?</td>", text) == [
        '<td data-value="0.0312"><strong>0.03 (1)</strong></td>',
        '<td data-value="5400">1.50 h</td>',
        '<td data-value="2147483648">2.00 GiB</td>',
        '<td class="words">fast 1</td>',
    ]


def test_what_is_missing_has_no_value_to_sort_by():
    columns = [METHOD, number("ours", "ECE", "ours", decimals(2), side="ours")]
    assert '<td class="ours missing">–</td>' in table(columns, [{"row": "a", "ours": None}], "ECE")


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


def test_the_switch_shows_the_papers_columns_or_ours(browser):
    visible = "[...document.querySelectorAll('{}')].filter(e => e.offsetParent).length"
    paper, ours = browser.ask(visible.format("td.paper")), browser.ask(visible.format("td.ours"))
    assert paper > 0 and ours > 0
    browser.ask("document.getElementById('view-paper').click()")
    assert (browser.ask(visible.format("td.paper")), browser.ask(visible.format("td.ours"))) == (paper, 0)
    browser.ask("document.getElementById('view-ours').click()")
    assert (browser.ask(visible.format("td.paper")), browser.ask(visible.format("td.ours"))) == (0, ours)
    browser.ask("document.getElementById('view-both').click()")


def test_a_click_on_a_header_sorts_down_then_up_and_keeps_the_missing_last(browser):
    browser.ask("window.t = [...document.querySelectorAll('table')].find(t => t.innerText.startsWith('Table 6'))")
    browser.ask("window.b = [...t.tHead.rows[0].cells].findIndex(c => c.textContent.startsWith('ECEours'))")
    column = "[...t.tBodies[0].rows].map(r => r.cells[b].textContent)"
    before = browser.ask(column)
    browser.ask("t.tHead.rows[0].cells[b].querySelector('button').click()")
    assert browser.ask("t.tHead.rows[0].cells[b].ariaSort") == "ascending"
    assert browser.ask(column) == sorted(before, key=lambda text: (text == "–", text))
    browser.ask("t.tHead.rows[0].cells[b].querySelector('button').click()")
    assert browser.ask("t.tHead.rows[0].cells[b].ariaSort") == "descending" and browser.ask(column)[-1] == "–"


def test_claims_are_filtered_by_their_verdict(browser):
    browser.ask("document.getElementById('verdict-refuted').click()")
    items = "[...document.querySelectorAll('.claims > li')].filter(e => e.offsetParent)"
    shown = browser.ask(f"{items}.map(e => e.className)")
    assert shown and set(shown) == {"is-refuted"}
    browser.ask("document.getElementById('verdict-all').click()")


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_never_scrolls_sideways(browser, width):
    browser.resize(width)
    assert browser.ask("document.documentElement.scrollWidth") <= width
    browser.ask("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert browser.ask("document.documentElement.scrollWidth") <= width


def test_it_reads_without_a_script(browser, page):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(page)
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.ask("document.querySelectorAll('thead button').length") == 0
    assert browser.ask("document.querySelector('.claims').innerText").count("paper: ") == 58


def test_dark_where_the_reader_wants_dark(browser):
    def background(scheme):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        return sum(map(int, re.findall(r"\d+", browser.ask("getComputedStyle(document.body).backgroundColor"))))

    assert background("light") > 600 and background("dark") < 150
