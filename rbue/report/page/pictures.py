"""The figures that the page shows, and those that it links to.

For each network, the page shows the figures of one protocol and links to the others. It shows the paper's figures of
all networks first, then other figures, the largest last. It links to what does not fit into ROOM letters, so that the
page stays small with any number of results.
"""

import base64
import re
from itertools import product
from zlib import crc32

from markupsafe import Markup, escape
from matplotlib.colors import to_rgb

from rbue.report.figures import grids, variance
from rbue.report.figures.style import mixed
from rbue.report.figures.svg import GREYS
from rbue.report.page.captions import GENERAL, NETWORK, headline_words, numbered_title, of_network
from rbue.report.page.markup import distinct, grid, in_common, kind_of, slug
from rbue.report.page.suite import links
from rbue.report.rows import paper_order, place_name

ROOM = 2_300_000  # letters of figures and photographs on the page
LARGE = ("samples", "variance")  # figures that are several times as large as others
PIXELS = 1.45  # on the screen, per point of a figure: text of 9 points is read at 13 pixels
FORMS = {"PDF": "pdf", "SVG": "svg", "CSV": "csv"}
COLOUR = re.compile(r'(?:fill|stroke)="(#[0-9a-f]{3,6})"')
BRIGHT = 0.18  # the luminance that has a contrast of 3.5 on the dark page


# --- one picture ------------------------------------------------------------------------------------------------------


def embedded(path, name, alt):
    """Return an SVG as part of the page, and its width. Its ids get a prefix, since other figures have the same."""
    prefix = f"s{crc32(name.encode()):x}"
    text = path.read_text(encoding="utf-8")
    width = int(re.search(r'viewBox="0 0 (\d+)', text)[1])
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    text = re.sub(r' xmlns="[^"]*"| style="background:#fff"| font-family="[^"]*"', "", text.strip())
    named = text.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1)
    return Markup(named), round(PIXELS * width)  # figures.svg has escaped its texts


def for_template(path, name, caption, alt, **more):
    """Return a figure for the template: inline SVG, or an embedded photograph."""
    found = {"id": name, "caption": caption, "alt": alt, "tags": {}, "links": [], "svg": None, "photograph": None}
    if path.suffix == ".svg":
        found["svg"], found["width"] = embedded(path, name, alt)
    else:
        found["photograph"] = f"data:image/webp;base64,{base64.b64encode(path.read_bytes()).decode()}"
    return found | more


def picture(suite, path, caption, alt, **more):
    """Return a figure of the suite with links to its files."""
    name = slug("figure", *path.relative_to(suite.folder).with_suffix("").parts[1:])
    return for_template(path, name, caption, alt, links=links(suite, path.with_suffix(""), FORMS), **more)


def too_dark(figures):
    """Return (colour, a lighter one) of the figures' colours that are hard to see on a dark page."""
    found = {code for figure in figures for code in COLOUR.findall(figure["svg"] or "")}
    coloured = sorted(code for code in found if code not in GREYS)
    return [(code, bright(code)) for code in coloured if luminance(to_rgb(code)) < BRIGHT]


def luminance(rgb):
    """Return the relative luminance, by which WCAG defines contrast."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def bright(code):
    """Mix the colour with white until it is bright enough."""
    lighter = (mixed(code, share / 20) for share in range(20))
    return next(code for code in lighter if luminance(to_rgb(code)) >= BRIGHT)


def headline(suite):
    """Return the picture on top of the page, or None if it is not drawn."""
    path = suite.figures_dir / "headline.svg"
    return picture(suite, path, *headline_words(path.with_suffix(".csv"))) if path.exists() else None


def benchmark_picture(path, hardware):
    drawn = path.with_suffix(".svg")
    if not drawn.exists():
        return None
    caption = f"**{hardware}**: speed-up over the row that the table names, on a logarithmic axis."
    return for_template(drawn, slug("figure speed", path.stem), caption, "Horizontal bars of the table's speed-ups.")


# --- the figures that need no run, and those of each network ----------------------------------------------------------


def method(suite):
    """Return what needs no run: the layers, their variance, the corrupted images, and a table."""
    shown = [
        picture(suite, path, *words)
        for name, words in GENERAL.items()
        for kind in ("svg", "webp")
        for path in sorted({*suite.figures_dir.glob(f"{name}.{kind}"), *suite.figures_dir.glob(f"*-{name}.{kind}")})
    ]
    return {"pictures": shown, "tables": [grid(variance.over_q_grid(variance.over_q()), "table-variance-over-q")]}


def chosen(suite):
    """Return the networks under the protocol that stands for them, in the paper's order."""
    best = [n for n in suite.networks if n.protocol == suite.best(n.dataset, n.arch)]
    return sorted(best, key=lambda n: paper_order((n.dataset, n.arch)))


def within_room(suite, others):
    """Return {path: picture} of what the page shows beside the other figures: kind by kind, while there is room."""
    found, left = {}, ROOM - sum(len(figure["svg"] or figure["photograph"]) for figure in others)
    kinds, shown = [*(stem for stem in NETWORK if stem not in LARGE), *LARGE], chosen(suite)
    for stem, network in product(kinds, shown):
        path = network.folder(suite.figures_dir) / f"{stem}.svg"
        figure = path.exists() and picture(suite, path, *of_network(stem, network), tags=tags_of(network))
        if figure and len(figure["svg"]) <= left:
            found[path] = figure
            left -= len(figure["svg"])
    return found


def tags_of(network):
    return {"dataset": network.dataset, "network": network.arch, "protocol": network.protocol}


def networks(suite, others, common):
    """Return one part per network: its figures and tables, and links to what has no room beside the other figures."""
    shown = within_room(suite, others)
    return [network_part(suite, network, shown, common) for network in chosen(suite)]


def common_notes(suite):
    """Return {kind of table: the notes that it has with every network}."""
    return in_common([(kind_of(each), each.notes) for network in chosen(suite) for each in grids(network)])


def network_part(suite, network, shown, common):
    folder, place = network.folder(suite.figures_dir), (network.protocol, network.dataset, network.arch)
    tags, paths = tags_of(network), [folder / f"{stem}.svg" for stem in NETWORK]
    tables = grids(network)  # of corrupted images, there is one per source
    names = distinct(slug("table", *place, kind_of(each)) for each in tables)
    found = [
        grid(each, name, common, tags=tags) | {"caption": numbered_title(each)}
        for each, name in zip(tables, names, strict=True)
    ]
    same = [n for n in suite.networks if (n.dataset, n.arch) == (network.dataset, network.arch)]
    return {
        "id": slug("network", network.dataset, network.arch),
        "title": place_name(network.dataset, network.arch),
        "protocol": network.protocol,
        "tags": {key: tags[key] for key in ("dataset", "network")},
        "pictures": [shown[path] for path in paths if path in shown],
        "tables": found,
        "linked": [each for n in same if (each := linked(suite, n, shown))],
    }


def linked(suite, network, shown):
    """Return a protocol's name and links to its figures that are not on the page, or None."""
    paths = [network.folder(suite.figures_dir) / f"{stem}.svg" for stem in NETWORK]
    paths = [path for path in paths if path.exists() and path not in shown]
    return (network.protocol, [(p.stem, p.relative_to(suite.folder).as_posix()) for p in paths]) if paths else None
