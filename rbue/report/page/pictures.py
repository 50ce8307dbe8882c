"""The figures: their files, captions with the paper's numbers, and alternative texts for readers who cannot see them.

For each network, the page shows the figures of one protocol and links to the others. It shows the paper's figures of
all networks first, then other figures, the largest last. It links to what does not fit into ROOM letters, so that the
page stays small with any number of results.
"""

import base64
import re
from itertools import product
from zlib import crc32

import pandas as pd
from markupsafe import Markup, escape
from matplotlib.colors import to_rgb

from rbue.report.figures import grids, variance
from rbue.report.figures.style import mixed
from rbue.report.figures.svg import GREYS
from rbue.report.page.markup import distinct, grid, slug
from rbue.report.page.suite import links
from rbue.report.rows import paper_order
from rbue.report.text import arch_name, dataset_name

ROOM = 2_300_000  # letters of figures and photographs on the page
LARGE = ("samples", "variance")  # figures that are several times as large as others
PIXELS = 1.45  # on the screen, per point of a figure: text of 9 points is read at 13 pixels
FORMS = {"PDF": "pdf", "SVG": "svg", "CSV": "csv"}
COLOUR = re.compile(r'(?:fill|stroke)="(#[0-9a-f]{3,6})"')
BRIGHT = 0.18  # the luminance that has a contrast of 3.5 on the dark page
SOURCES = {  # of corrupted images → how a caption names them
    "generated": "images generated here",
    "official": "official images",
    "unverified": "unverified images, which have the official layout but another md5",
}
PRINTED = {  # file name → {dataset: the paper's figure}, and the network that it shows
    **{f"corruptions-{source}": ({"cifar10": 5, "tinyimagenet": 7}, "densenet121") for source in SOURCES},
    **{f"corruptions-{source}-ece": ({"cifar10": 6, "tinyimagenet": 8}, "densenet121") for source in SOURCES},
    "diversity-jsd": ({"cifar10": 9}, "resnet18"),
    "diversity-dis": ({"cifar10": 10}, "resnet18"),
    "behaviours": ({"cifar10": 11}, "resnet18"),
}

GENERAL = {  # file name, with or without a dataset's prefix → (caption, alternative text)
    "activations": (
        "**Figure 1: three activations** (Section 3.2): eight draws of each, computed by the suite's own layers.",
        "ReLU is zero left of the origin; DropReLU is either ReLU or the identity; RReLU has slopes between one eighth "
        "and one third.",
    ),
    "activations-network": (
        "**Figure 2: a network with random activations** (Section 3.2): each unit draws its own.",
        "Two small networks; with DropReLU some units are straight lines, with RReLU all bend by different slopes.",
    ),
    "variance": (
        "**Variance over q** (Section 3.4): the exact formula, a simulation, the paper's formula, and dropout on the "
        "same inputs. The paper's proof adds the variances of two terms that depend on the same random variable, and "
        "omits their covariance.",
        "Left, curves over q: the simulation lies on the exact curve, dropout's curve lies above it, and the paper's "
        "formula far above both. Right, bars at q = 0.8: two terms add up to the paper's value, and their covariance "
        "reduces it to the exact one.",
    ),
    "shot_noise": (
        "**Figure 4: shot noise** at severities 0 to 5 (Section 4.1), on test images.",
        "Four test images, grainier from left to right.",
    ),
    "corruptions": (
        "**All corruption types** at severities 1 to 5, on one test image.",
        "A sheet of one test image under every corruption type, severity growing from left to right.",
    ),
}


def under_corruption(source):
    """Return the captions and alternative texts of the two figures of one source."""
    return {
        f"corruptions-{source}": (
            "**Under corruption** (Sections 4.2, 4.3): boxes are quartiles over the types, whiskers minimum and "
            f"maximum; {SOURCES[source]}.",
            "Accuracy falls and ECE rises with severity; a box for each method and severity.",
        ),
        f"corruptions-{source}-ece": (
            f"**Median ECE** over the types (Sections 4.2, 4.3); {SOURCES[source]}.",
            "One curve of median ECE by severity for each method.",
        ),
    }


COMPARED = "our accuracy and ECE minus the printed ones, one point per cell, with 95 % intervals"
COST = "ECE against test time, in milliseconds per image"
ZERO = "Points around a line at zero, which is the printed number, for accuracy and for ECE"
CROSSES = "Crosses are one pass with the noise switched off, a plus is Single after temperature scaling."
BOTH = (
    f"**Our numbers compared with the printed ones.** Left: {COMPARED}. Right: {COST}.",
    f"{ZERO}; and curves of ECE over test time, one for each method. Colours stand for rows and markers for networks "
    f"in both. {CROSSES}",
)
COMPARED_ALONE = f"**Our numbers compared with the printed ones**: {COMPARED}.", f"{ZERO}."
COST_ALONE = f"**Calibration and test time**: {COST}.", f"Curves of ECE over test time, one for each method. {CROSSES}"
NETWORK = {
    "framework": (
        "**Figure 3: how uncertainty is estimated** (Section 3.3): a real test image, its sampled predictions, their "
        "mean, and the entropy of the mean.",
        "A test image, arrows to bar charts of four stochastic passes, their mean, and a gauge of its entropy.",
    ),
    **{name: words for source in SOURCES for name, words in under_corruption(source).items()},
    "diversity-jsd": (
        "**Divergence** (Section 4.4): the Jensen–Shannon divergence between every two of four samples or members.",
        "A four by four matrix for each method; darker pairs differ more.",
    ),
    "diversity-dis": (
        "**Disagreement** (Section 4.4): the share of test images for which two samples predict different classes.",
        "A four by four matrix for each method; darker pairs disagree more.",
    ),
    "behaviours": (
        "**Space of behaviours** (Section 4.5): the bottom right corner is best. Filled points are ours, with bars of "
        "1 standard error; hollow points are the paper's, joined to ours by a thin line.",
        "Accuracy to the right against ECE upwards. Each row has a colour and a marker of its own: filled for our "
        "point, hollow for the paper's.",
    ),
    "variance": (
        "**Variance layer by layer** (Section 3.4) in the trained networks. Dropout comes after the rectifier here, as "
        "in real networks; in the paper's proof, it has the same inputs as DropReLU. DropReLU has the larger variance "
        "in layers where the negative inputs have the larger sum of squares.",
        "One panel for each q, with the variance of every layer on a logarithmic axis: the simulation lies on the "
        "exact values, the paper's formula lies above them; dropout's may lie above or below.",
    ),
    "posterior": (
        "**Posterior learned by variational inference**: the standard deviations of the weights per layer, and KL and "
        "accuracy during training. If the standard deviations stay near their initial values, the network fits the "
        "training images; if they grow, it underfits.",
        "For each method, a band of standard deviations by layer, next to a curve of KL and of training accuracy.",
    ),
    "samples": (
        "**Scores against test cost**, in passes and in milliseconds. The time of the first pass is that of the "
        "network without noise; the other passes share the remaining time equally.",
        "Panels of accuracy, ECE and NLL with one curve for each method, over the number of passes on a logarithmic "
        "axis; where times were measured, a second line of panels over milliseconds per image. A dotted line is a "
        "method that needs one pass.",
    ),
    "reliability": (
        "**Reliability**: accuracy against confidence; on the diagonal both are equal. Each dot is a bin; its area is "
        "the share of images in it.",
        "A diagram for each method; dots above the diagonal are underconfident, below it overconfident. Lines join "
        "the dots to the diagonal.",
    ),
    "rejection": (
        "**Rejection**: the error on the remaining images after the most uncertain ones are rejected, on a logarithmic "
        "axis. Single and Deep Ensemble are in both panels, for comparison.",
        "A curve for each method that falls as more images are rejected.",
    ),
}


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


def picture(suite, path, caption, alt, **more):
    """Return a figure for the template: inline SVG, or an embedded photograph."""
    name = slug("figure", *path.relative_to(suite.folder).with_suffix("").parts[1:])
    found = {"id": name, "caption": caption, "alt": alt, "tags": {}, "svg": None, "photograph": None, "width": 0}
    if path.suffix == ".svg":
        found["svg"], found["width"] = embedded(path, name, alt)
    else:
        found["photograph"] = f"data:image/webp;base64,{base64.b64encode(path.read_bytes()).decode()}"
    return found | {"links": links(suite, path.with_suffix(""), FORMS)} | more


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


def headline_words(path):
    """Return the caption and the alternative text of what is drawn: the comparison, the costs, or both."""
    if not path.exists():
        return BOTH
    kinds = set(pd.read_csv(path).kind)
    if "printed" not in kinds:
        return COST_ALONE
    return BOTH if len(kinds) > 1 else COMPARED_ALONE


def benchmark_picture(path, hardware):
    drawn = path.with_suffix(".svg")
    if not drawn.exists():
        return None
    caption = f"**{hardware}**: speed-up over the row that the table names, on a logarithmic axis."
    alt = "Horizontal bars of the table's speed-ups."
    svg, width = embedded(drawn, slug("speed", path.stem), alt)
    found = {"id": slug("figure speed", path.stem), "svg": svg, "width": width, "photograph": None, "links": []}
    return found | {"caption": caption, "alt": alt, "tags": {}}


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


def numbered(stem, network):
    """Return `Figure 9: ` if the paper has this figure; `As Figure 9, for VGG-13: ` if it shows another network."""
    numbers, arch = PRINTED.get(stem, ({}, ""))
    number = numbers.get(network.dataset) or next(iter(numbers.values()), None)
    if number is None:
        return ""
    if network.dataset in numbers and network.arch == arch:
        return f"Figure {number}: "
    return f"As Figure {number}, for {dataset_name(network.dataset)} with {arch_name(network.arch)}: "


def numbered_title(found):
    """Return the table's title with the paper's number, if the paper has such a table."""
    kind, _, rest = found.title.partition(":")
    printed = "" if any(column.side == "paper" for column in found.columns) else "As "
    return f"{printed}Tables 4 and 5, diversity:{rest}" if kind == "Diversity" else found.title


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
        figure = network_picture(suite, path, network) if path.exists() else None
        if figure and len(figure["svg"]) <= left:
            found[path] = figure
            left -= len(figure["svg"])
    return found


def network_picture(suite, path, network):
    caption, alt = NETWORK[path.stem]
    words = capital(numbered(path.stem, network), caption), f"{network.title()}. {alt}"
    return picture(suite, path, *words, tags=tags_of(network))


def tags_of(network):
    return {"dataset": network.dataset, "network": network.arch, "protocol": network.protocol}


def networks(suite, others):
    """Return one part per network: its figures and tables, and links to what has no room beside the other figures."""
    shown = within_room(suite, others)
    return [network_part(suite, network, shown) for network in chosen(suite)]


def network_part(suite, network, shown):
    folder, place = network.folder(suite.figures_dir), (network.protocol, network.dataset, network.arch)
    tags, paths = tags_of(network), [folder / f"{stem}.svg" for stem in NETWORK]
    tables = grids(network)  # of corrupted images, there is one per source
    names = distinct(slug("table", *place, each.title.split(":")[0]) for each in tables)
    found = [
        grid(each, name, tags=tags) | {"caption": numbered_title(each)}
        for each, name in zip(tables, names, strict=True)
    ]
    same = [n for n in suite.networks if (n.dataset, n.arch) == (network.dataset, network.arch)]
    return {
        "id": slug("network", network.dataset, network.arch),
        "title": f"{dataset_name(network.dataset)} with {arch_name(network.arch)}",
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


def capital(number, caption):
    """Put the paper's number before the caption's title: `**Figure 9: divergence** (Section 4.4)`."""
    return f"**{number}{caption[2].lower()}{caption[3:]}" if number else caption
