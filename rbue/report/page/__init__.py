"""The page: every table, figure and claim in one HTML file that can be read without a network, a server or a script.

    html = build(collect("results/runs"), "results/paper", "results/figures", "results/benchmarks")

The page embeds the files that `make figures` drew, so it has the same bytes on every machine. page.html is its frame,
page.css its style, page.js its sorting. html.py makes elements, sections.py the content, pictures.py the captions.
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
