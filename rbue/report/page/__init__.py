"""The page: every table, figure and claim in one HTML file that needs no network, no server and no script to be read.

    html = build(collect("results/runs"), "results/paper", "results/figures", "results/benchmarks")

Figures are the files that `make figures` drew, so the page has the same bytes wherever it is built. page.html is its
frame, page.css its looks, page.js its sorting; html makes elements, sections the content, pictures the captions.
"""

from pathlib import Path
from string import Template

from rbue.report.page import sections
from rbue.report.page.html import element
from rbue.report.page.sections import Suite

HERE = Path(__file__).parent


def build(results, paper_dir, figures_dir, benchmarks_dir):
    suite = Suite.of(results, paper_dir, figures_dir, benchmarks_dir)
    parts = {name: (title, render(suite)) for name, (title, render) in sections.SECTIONS.items()}
    parts = {name: (title, content) for name, (title, content) in parts.items() if content}
    links = [element("li", element("a", title, href=f"#{name}")) for name, (title, _) in parts.items()]
    return Template((HERE / "page.html").read_text(encoding="utf-8")).substitute(
        style=(HERE / "page.css").read_text(encoding="utf-8"),
        script=(HERE / "page.js").read_text(encoding="utf-8"),
        cards=sections.cards(suite),
        contents=element("ul", *links),
        sections="\n".join(
            element("section", element("h2", title, id=name), content) for name, (title, content) in parts.items()
        ),
    )
