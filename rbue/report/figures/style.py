"""The style of every figure: one colour per method, fonts that survive print, reproducible files."""

import textwrap
from pathlib import Path

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rbue import methods
from rbue.report.figures.svg import svg
from rbue.report.rows import METHODS


class Looks(dict):
    """A value for each of the paper's methods. Others get the remaining values: the suite's first, then plugins'."""

    def __init__(self, left, **known):
        super().__init__(known)
        self.left = left

    def __missing__(self, method):
        others = [name for name in methods.METHODS if name not in METHODS]
        return self.left[(others.index(method) if method in others else 0) % len(self.left)]


# The palette of Okabe and Ito, which colour-blind readers can distinguish. A method has the same look in every figure.
COLOURS = Looks(
    ["#56B4E9", "#7F7F7F", "#8C6D31"],
    single="#000000",
    mc_dropout="#E69F00",
    deep_ensemble="#0072B2",
    svi="#CC79A7",
    rrelu="#009E73",
    dropreLU="#D55E00",
)
# Section 4.5 draws MC-DropReLU as stars, MC-Dropout as squares and Deep Ensemble as circles.
MARKERS = Looks("Pvhd", single="X", mc_dropout="s", deep_ensemble="o", svi="D", rrelu="^", dropreLU="*")
METRICS = {"accuracy": "Accuracy (%)", "ece": "ECE", "nll": "NLL (nats)"}
NEAR = {"accuracy": 5, "ece": 0.03, "nll": 0.3}  # two values this close always share a frame

STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "figure.titlesize": 10,
    "legend.frameon": False,
    "legend.handlelength": 2.8,  # long enough to show dashes
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
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
    """Return a figure outside pyplot's global state, and its axes. 7 inches is the text width of a page."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplot_mosaic(mosaic, **grid) if mosaic else figure.subplots(**grid)


def head(figure, title):
    figure.suptitle(fitted(title, figure))


def fitted(text, figure):
    """Break the text into lines that fit the figure's width."""
    return "\n".join(textwrap.fill(line, int(LETTERS * figure.get_figwidth())) for line in text.splitlines())


def narrow(row):
    """Wrap a row's name for a panel's title: the paper's longest name fits into one line."""
    return textwrap.fill(row, 19)


LETTERS = 14  # per inch, at the title's size


def panel_grid(count, most, width, height, margin, **more):
    """Return a grid of `count` panels, at most `most` per line; the rest of the last line stays empty."""
    lines = -(-count // most)
    columns = -(-count // lines)
    size = width * columns, height * lines + margin
    figure, axes = canvas(*size, nrows=lines, ncols=columns, squeeze=False, **more)
    for axis in axes.flat[count:]:
        axis.set_axis_off()
    return figure, axes


def save(figure, path, photographs=False):
    """Write a PDF for print and a picture for the page, an SVG or, of photographs, a WebP. Return their paths.

    Neither has a timestamp or a version, so that the same figure gives the same bytes.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    pdf, picture = (path.parent / f"{path.name}.{suffix}" for suffix in ("pdf", "webp" if photographs else "svg"))
    with rc_context(STYLE):  # fonts are embedded here
        for _ in range(2):  # the first layout resizes the axes and thus their ticks; the second measures those
            figure.draw_without_rendering()
        figure.set_layout_engine(None)  # both files share one layout, which halves the time
        figure.savefig(pdf, dpi=200, metadata=TIMELESS)
        if photographs:
            figure.savefig(picture, dpi=115, pil_kwargs={"quality": 75, "method": 6})
        else:
            write_text(svg(figure), picture)
    return [pdf, picture]


def write_csv(frame, path):
    """Write a CSV with ten digits, so that two machines write the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False, float_format="%.10g", lineterminator="\n")
    return path


def write_text(text, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def legend_below(figure, handles, labels, columns):
    """Place the legend outside the axes; use fewer columns if the figure is too narrow."""
    handles, labels = list(handles), list(labels)
    for fewer in range(columns, 0, -1):
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=fewer)
        if legend.get_window_extent().width <= figure.bbox.width or fewer == 1:
            return
        legend.remove()


def framed(values, metric):
    """Whether values share the frame. Beyond Tukey's outer fence, one value would squeeze all others into a corner."""
    low, high = values.quantile(0.25), values.quantile(0.75)
    reach = max(3 * (high - low), NEAR[metric])
    return values.between(low - reach, high + reach)


def limits(values):
    margin = 0.08 * max(values.max() - values.min(), 1e-3)
    return values.min() - margin, values.max() + margin


def line_style(position, count):
    """Rows of one method share its colour: the last is solid and filled, the others are dashed and hollow."""
    return ["-", "--", "-.", ":"][(count - 1 - position) % 4]


def lines_of(rows):
    """Return {row: keywords for plot} for (row, method) pairs in order."""
    of_method = {method: [row for row, m in rows if m == method] for _, method in rows}
    return {
        row: {
            "color": COLOURS[method],
            "marker": MARKERS[method],
            "linestyle": line_style(of_method[method].index(row), len(of_method[method])),
            "markersize": 7 if MARKERS[method] == "*" else 4,
            "markerfacecolor": COLOURS[method] if row == of_method[method][-1] else "white",
        }
        for row, method in rows
    }
