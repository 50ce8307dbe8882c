"""The benchmark's rows as a table and a figure. Ratios come first, since milliseconds depend on the hardware."""

import json
import re
import textwrap
from pathlib import Path

from rbue.progress import padded
from rbue.report.columns import MISSING, from_to, grid, number, shown, words
from rbue.report.figures.style import INK, WIDTH, canvas, plain_ticks, save, styled
from rbue.runs.results import write

GROUPS = ("train", "packed", "layers", "predict", "corruptions", "start", "reading")  # the last word of a row's group


@shown
def times(ratio):
    """Format a ratio with enough digits to show a few percent near 1."""
    digits = 3 if ratio < 2 else 2 if ratio < 100 else 0
    return f"{ratio:,.{digits}f}×"


COLUMNS = [
    words("name", "measure", text=lambda row: f"{row['group']}: {row['name']}"),
    number("ms", "ms", "", "{:,.2f}".format),
    number("images_per_second", "images/s", "", shown("{:,.0f}".format)),
    number("ratio", "speed-up", "", times),
    words("against", "compared with", text=lambda row: row["against"] or MISSING),
    number("peak_memory_bytes", "peak MB", "", shown(lambda size: f"{size / 1e6:,.0f}")),
    number("share_of_limit", "of limit", "", shown("{:.1%}".format)),
]


def cells(content):
    """Return the rows with all keys; a key that a row lacks is None."""
    return [dict.fromkeys(column.key for column in COLUMNS) | row for row in content["rows"]]


def table(content):
    left = [place for place, column in enumerate(COLUMNS) if not column.value]
    lines = ["  ".join(row) for row in padded(grid(COLUMNS, cells(content)), left)]
    return "\n".join([f"{content['hardware']}: limit {limit(content)}, the speed of a large matrix product", *lines])


def limit(content):
    """Return the rate of a large matrix product. It is a range, since rows may come from several days."""
    found = [float(f"{row['matmul_flops'] / 1e12:.3g}") for row in content["rows"]]
    return from_to(found, "{:,g}".format) + " TFLOP/s"


def merged(before, measured):
    """Replace the groups that are measured again, and keep all others."""
    groups = {row["group"] for row in measured}
    rows = [*(row for row in before if row["group"] not in groups), *measured]
    return sorted(rows, key=lambda row: GROUPS.index(row["group"].split()[-1]))


def store(content, folder):
    """Write the measured rows and their figure into the file of their hardware. Groups that were not measured now stay.

    Return the content with all groups, and the path of the file.
    """
    name = re.sub(r"[^a-z0-9]+", "-", content["hardware"].lower()).strip("-")
    path = Path(folder, f"{name}.json")
    before = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    content = content | {"rows": merged(before, content["rows"])}
    write(path, content)
    draw(content, path.with_suffix(""))
    return content, path


@styled
def draw(content, path):
    """Draw one bar per ratio, from 1 (the baseline), on a logarithmic axis: a bar to the left is slower.

    Write <path>.pdf and .svg.
    """
    rows = [row for row in content["rows"] if row.get("ratio")][::-1]
    if not rows:
        return
    figure, axis = canvas(WIDTH, 0.55 * len(rows) + 0.9)
    ratios = [row["ratio"] for row in rows]
    colours = ["#0072B2" if ratio >= 1 else "#D55E00" for ratio in ratios]
    bars = axis.barh(range(len(rows)), [ratio - 1 for ratio in ratios], left=1, color=colours, height=0.6)
    bars.datavalues = ratios  # the page shows these, not the lengths
    for place, ratio in enumerate(ratios):
        axis.annotate(times(ratio), (max(ratio, 1), place), (3, 0), textcoords="offset points", va="center")
    axis.axvline(1, color=INK, linewidth=0.8)
    least, most = min(1, *ratios), max(1, *ratios)  # bars begin at 1
    room = least / 1.1, most * 1.3 * (most / least) ** 0.1  # leaves space for the numbers
    axis.set(xscale="log", xlim=room, xlabel="times as fast", title=content["hardware"])
    axis.set_yticks(range(len(rows)), [label(row) for row in rows])
    plain_ticks(axis.xaxis)
    axis.xaxis.set_major_formatter("{x:g}×")
    axis.grid(axis="y", visible=False)
    save(figure, path)


def label(row):
    """Return what was measured and what it is compared with, in lines that leave half of the figure to the bars."""
    parts = f"{row['group']}: {row['name']}", f"over {row['against']}"
    return "\n".join(textwrap.fill(part, 56) for part in parts)
