"""The style of every figure: one look per row, one text size, one ink, fonts for print, reproducible files."""

import textwrap
from io import BytesIO
from pathlib import Path

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from rbue import methods
from rbue.report.figures.svg import svg
from rbue.report.rows import LABELS, METHODS
from rbue.report.tables import csv_text, write_forms


class Looks(dict):
    """A value for each of the paper's methods. Others get the remaining values: the suite's first, then plugins'."""

    def __init__(self, left, **known):
        super().__init__(known)
        self.left = left

    def __missing__(self, method):
        others = [name for name in methods.METHODS if name not in METHODS]
        return self.left[(others.index(method) if method in others else 0) % len(self.left)]


INK = "#222222"  # text, axes, grid, and what stands for no method; the page replaces it in its dark mode
TEXT = 10  # points, of all text in all figures
WIDTH = 9  # inches of a wide figure: 864 pixels, so that the page never shrinks its text
NARROW = 5  # inches of the narrowest figure, which leaves its title enough room

# The palette of Okabe and Ito, which colour-blind readers can distinguish. The paper's rows look alike in every figure.
COLOURS = Looks(
    ["#56B4E9", "#7F7F7F", "#8C6D31"],
    single=INK,
    mc_dropout="#E69F00",
    deep_ensemble="#0072B2",
    svi="#CC79A7",
    rrelu="#009E73",
    dropreLU="#D55E00",
)
# Section 4.5 draws MC-DropReLU as stars, MC-Dropout as squares and Deep Ensemble as circles.
SPARE = "h<>d"
MARKERS = Looks(SPARE, single="X", mc_dropout="s", deep_ensemble="o", svi="D", rrelu="^", dropreLU="*")
# Rows of one method: shades of its colour, darker with p and q. Each q also has its own marker.
ROW_COLOURS = {
    "MC-Dropout(0.2)": "#F0B83C",
    "MC-Dropout(0.5)": "#B37A00",
    "MC-Dropout(0.2) in every block": "#A58BC9",
    "MC-Dropout(0.5) in every block": "#6A4C93",
    "MC-DropReLU(0.8)": "#F7A889",
    "MC-DropReLU(0.85)": "#EC7446",
    "MC-DropReLU(0.9)": "#CC4A12",
    "MC-DropReLU(0.95)": "#8F2A00",
}
ROW_MARKERS = {"MC-DropReLU(0.8)": "v", "MC-DropReLU(0.85)": "P", "MC-DropReLU(0.9)": "p", "MC-DropReLU(0.95)": "*"}
SIZES = {"*": 9, "X": 6.5, "P": 6.5, "p": 6.5, "v": 6, "^": 6, "D": 5}  # a marker's width in points, for equal areas
METRICS = {"accuracy": "Accuracy (%)", "ece": "ECE", "nll": "NLL (nats)"}
NEAR = {"accuracy": 5, "ece": 0.1, "nll": 0.3}  # two values this close always share a frame

STYLE = {
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize"), TEXT),
    **dict.fromkeys(("legend.fontsize", "figure.titlesize", "figure.labelsize"), TEXT),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color", "grid.color", "hatch.color"), INK),
    "legend.frameon": False,
    "legend.handlelength": 2.8,  # long enough to show dashes
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "pdf.fonttype": 42,  # publishers refuse Type 3
}
TIMELESS = {"CreationDate": None, "Creator": None, "Producer": None}


def styled(draw):
    """Run a drawing function under STYLE, and leave the caller's settings alone."""

    def wrapped(*args, **kwargs):
        with rc_context(STYLE):
            return draw(*args, **kwargs)

    return wrapped


def canvas(width, height, mosaic=None, **grid):
    """Return a figure outside pyplot's global state, and its axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplot_mosaic(mosaic, **grid) if mosaic else figure.subplots(**grid)


def head(figure, title):
    """Write the title in lines that fit the figure's width."""
    width = int(LETTERS * figure.get_figwidth())
    figure.suptitle("\n".join(textwrap.fill(line, width) for line in title.splitlines()), x=0.01, ha="left")


def narrow(row):
    """Break a row's name before its hyperparameters, if it is too long for a panel's title."""
    return row if len(row) < 20 else "\n".join(shortened(part, 24) for part in row.replace("(", "\n(", 1).split("\n"))


def shortened(name, most=40):
    """Leave out the middle of a long name: its ends distinguish rows."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[1 - most // 2 :]}"


LETTERS = 13.5  # per inch


def panel_grid(count, most, width, height, margin, **more):
    """Return a grid of `count` panels, at most `most` per line; the rest of the last line stays empty."""
    lines = -(-count // most)
    columns = -(-count // lines)
    size = max(width * columns, NARROW), height * lines + margin
    figure, axes = canvas(*size, nrows=lines, ncols=columns, squeeze=False, **more)
    figure.get_layout_engine().set(h_pad=0.08)  # inches: room between a panel's numbers and the next title
    for axis in axes.flat[count:]:
        axis.set_axis_off()
    return figure, axes


def label_below(axes, count, text):
    """Label the lowest panel of each column of a grid, of which the last line may be incomplete."""
    for axis in axes.flat[max(0, count - axes.shape[1]) : count]:
        axis.set_xlabel(text)
        axis.tick_params(labelbottom=True)


def save(figure, path, numbers=None, photographs=False, readme=False):
    """Write a PDF for print and a picture for the page, an SVG or, of photographs, a WebP. Return their paths.

    `numbers`, a frame, are written as CSV. `readme` adds a PNG, since the page's SVG takes its colours from the page.
    No file has a timestamp or a version, so that the same figure gives the same bytes.
    """
    with rc_context(STYLE):  # fonts are embedded here
        for _ in range(2):  # the first layout resizes the axes and thus their ticks; the second measures those
            figure.draw_without_rendering()
        figure.set_layout_engine(None)  # both files share one layout, which halves the time
        forms = {"pdf": printed(figure, "pdf", dpi=200, metadata=TIMELESS)}
        if photographs:
            forms["webp"] = printed(figure, "webp", dpi=115, pil_kwargs={"quality": 75, "method": 6})
        else:
            forms["svg"] = svg(figure)
        if readme:
            forms["png"] = printed(figure, "png", dpi=150, metadata={"Software": None})
    return write_forms(Path(path), forms | ({} if numbers is None else {"csv": csv_text(numbers)}))


def printed(figure, kind, **options):
    """Return the bytes of a picture, so that its file is written at once: an interrupt leaves the one before whole."""
    file = BytesIO()
    figure.savefig(file, format=kind, **options)
    return file.getvalue()


def legend_below(figure, handles, labels, columns):
    """Place the legend outside the axes, in fewer columns if the figure is narrow. A text's id is the whole name."""
    handles, labels = list(handles), list(labels)
    for fewer in range(columns, 0, -1):
        legend = figure.legend(handles, map(shortened, labels), loc="outside lower center", ncols=fewer)
        for text, label in zip(legend.texts, labels, strict=True):
            text.set_gid(label)
        if legend.get_window_extent().width <= figure.bbox.width or fewer == 1:
            return
        legend.remove()


def framed(values, metric):
    """Whether values share the frame. Beyond Tukey's outer fence, one value would squeeze all others into a corner."""
    low, high = values.quantile(0.25), values.quantile(0.75)
    reach = max(3 * (high - low), NEAR[metric])
    return values.between(low - reach, high + reach)


def limits(values, metric):
    """Return the ends of an axis. If all values are equal, a tiny frame would have ticks such as 1e-5 + 100."""
    span = values.max() - values.min()
    margin = 0.08 * max(span, 1e-3) if span else 0.08 * NEAR[metric]
    return values.min() - margin, values.max() + margin


def plain_ticks(along, steps=None):
    """Put plain numbers at these steps of each decade of a logarithmic axis, and nothing between them."""
    low, high = along.get_view_interval()
    steps = steps or ((1, 3) if high > 10 * low else (1, 2, 3, 4, 6))
    along.set_major_locator(LogLocator(subs=steps, numticks=8))
    along.set_major_formatter("{x:g}")
    along.set_minor_locator(NullLocator())


def band(axis, x, mean, std, look):
    """Draw one standard deviation each way as an area; a row with one seed has none."""
    if std.notna().any():
        shade = {"color": look["color"], "alpha": 0.15, "linewidth": 0, "label": look["label"]}
        axis.fill_between(x, mean - std, mean + std, **shade)


def look_of(row, method):
    """Return {colour, marker, its size} of a row: for the paper's rows, the same in every figure."""
    return look(ROW_COLOURS.get(row, COLOURS[method]), ROW_MARKERS.get(row, MARKERS[method]))


def look(colour, marker):
    return {"color": colour, "marker": marker, "markersize": SIZES.get(marker, 5.5)}


def lines_of(rows):
    """Return {row: keywords for plot} for (row, method) pairs in order. Each row has its own look."""
    rows = list(rows)
    others = {method: [row for row, its in rows if its == method and row not in LABELS] for _, method in rows}
    looks = {row: look_of(row, method) for row, method in rows}
    for method, found in others.items():
        for row, shade in zip(found, shades(method, len(found)), strict=True):
            looks[row] = shade | {"color": ROW_COLOURS.get(row, shade["color"])}
    return {row: looks[row] | {"label": row} for row, _ in rows}


def shades(method, count):
    """Return the looks of a method's rows that are not in the paper, each darker than the one before.

    For a method of the paper, all are lighter than its colour, which its own row has.
    """
    if method in METHODS:
        return [look(mixed(COLOURS[method], 0.6 * (1 - k / count)), SPARE[k % len(SPARE)]) for k in range(count)]
    first, last = SPARE.index(MARKERS[method]), max(1, count - 1)
    shares = [0.4 - 0.8 * k / last if count > 1 else 0 for k in range(count)]
    return [look(mixed(COLOURS[method], s), SPARE[(first + k) % len(SPARE)]) for k, s in enumerate(shares)]


def mixed(colour, share):
    """Mix a colour with white, or with black if the share is negative."""
    return to_hex([part + abs(share) * ((share > 0) - part) for part in to_rgb(colour)]) if share else colour
