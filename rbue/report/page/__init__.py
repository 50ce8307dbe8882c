"""The page: every table, figure and claim in one HTML file that can be read without a network, a server or a script.

    html = build(collect("results/runs"), "results/paper", "results/figures", "results/benchmarks")

The page holds the files that `make figures` drew, so it has the same bytes on every machine. Modules: suite (what it is
built from), tables, pictures, captions, verdicts and origins (its parts as plain data), markup (text and tables as
HTML). The folder templates has its frame, its style and its script.
"""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rbue.report import verdict
from rbue.report.figures.svg import GREYS
from rbue.report.page import markup, origins, pictures, tables, verdicts
from rbue.report.page.suite import Suite
from rbue.runs.places import COMMAND

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
TEMPLATES.filters |= {"inline": markup.inline, "plain": markup.plain, "tex": markup.without_tex}


def build(results, paper_dir, figures_dir, benchmarks_dir):
    """Return the page, which opens with the verdict."""
    suite = Suite.of(results, paper_dir, figures_dir, benchmarks_dir)
    headline, method, speed = pictures.headline(suite), pictures.method(suite), origins.speed(suite)
    others = [f for f in (headline, *method["pictures"], *(bars for _, bars in speed)) if f]
    table_notes, network_notes = tables.common_notes(suite), pictures.common_notes(suite)
    networks = pictures.networks(suite, others, network_notes)
    drawn = others + [f for part in networks for f in part["pictures"]]
    parts = {
        "in_short": verdict.in_short(suite.findings),
        "verdict": verdicts.opening(suite.findings),
        "numbers": verdict.legend(suite.findings),
        "reading": verdict.READING,
        "headline": headline,
        "too_dark": pictures.too_dark(drawn),
        "counts": origins.counts(suite),
        "filters": suite.filters() | {"verdict": verdicts.choices(suite)},
        "rows": suite.rows(),
        "greys": GREYS,
        "protocols": origins.protocols(suite),
        "tables": tables.by_dataset(suite, table_notes),
        "table_notes": markup.groups(table_notes),
        "positions": tables.positions(suite),
        "others": tables.others(suite),
        "unmeasured": tables.unmeasured(suite),
        "method": method,
        "networks": networks,
        "network_notes": markup.groups(network_notes),
        "claims": verdicts.section(suite),
        "coverage": origins.coverage(suite),
        "speed": speed,
        "runs": origins.runs(suite),
        "command": COMMAND,
    }
    return TEMPLATES.get_template("page.html").render(parts, kinds=sorted(markup.kinds(parts)))
