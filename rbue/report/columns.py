"""Named columns: Markdown, LaTeX, the terminal and the page render a table from the same ones."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from rbue.progress import padded

MISSING = "–"


@dataclass(frozen=True)
class Column:
    """Group and name are the header: `Accuracy, %` over `paper`, `ours` and `diff`."""

    key: str
    group: str
    name: str
    text: Callable  # what is shown of a cell, which is a dict
    value: Callable | None = None  # the number that a page sorts by; None for words
    side: str | None = None  # paper or ours, for the page's switch
    bold: str | None = None  # the cell's flag

    def shown(self, cell):
        return strong(self.text(cell), self.bold and cell[self.bold])

    def number(self, cell):
        """The value, or None where the cell has none."""
        value = self.value(cell) if self.value else None
        return None if absent(value) else value

    def of(self, part, group, name):
        """The same column of one part of a cell that holds several, under another header."""
        value = self.value and (lambda cell: self.value(cell[part]))
        header = {"key": f"{self.key}@{part}", "group": group, "name": name, "bold": None}
        return replace(self, **header, text=lambda cell: self.shown(cell[part]), value=value)


def absent(value):
    """None or NaN; pandas, which knows it too, would slow down every start of train.py."""
    return value is None or value != value


def strong(text, is_bold):
    return f"**{text}**" if is_bold and text != MISSING else text


# --- one number -> text -----------------------------------------------------------------------------------------------


def shown(text):
    """A formatter that prints a missing value as –."""
    return lambda value: MISSING if absent(value) else text(value)


def decimals(digits):
    return shown(f"{{:.{digits}f}}".format)


def signed(digits):
    return shown(lambda value: f"{round(value, digits) + 0.0:+.{digits}f}")  # + 0.0: no "-0.00"


hours = shown("{:.1f} h".format)
times = shown("{:.2f}×".format)
count = shown("{:,.0f}".format)


@shown
def milliseconds(value):
    return f"{value:#.3g}" if value < 100 else f"{value:.0f}"


@shown
def memory(size):
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


@shown
def duration(seconds):
    """The two units a reader would say; the paper's own hours from one hour up."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{seconds / 3600:.2f} h"


def with_spread(cell, metric, text):
    """`94.60 ± 0.20 (3)`; one seed has no ±, and n is always there."""
    if absent(cell[f"ours_{metric}"]):
        return MISSING
    spread = f" ± {text(cell[f'std_{metric}'])}" if cell["n"] > 1 else ""
    return f"{text(cell[f'ours_{metric}'])}{spread} ({cell['n']})"


# --- kinds of columns -------------------------------------------------------------------------------------------------


def words(key, group, name="", text=None):
    """Without numbers; shows what the cell has under its key, unless `text` says it otherwise."""
    return Column(key, group, name, text or (lambda cell: cell[key]))


def number(key, group, name, text, **more):
    """One number of a cell."""
    return Column(key, group, name, lambda cell: text(cell[key]), lambda cell: cell[key], **more)


def seeded(metric, group, name, text, **more):
    """Our mean over seeds with its spread."""
    key = f"ours_{metric}"
    return Column(key, group, name, lambda cell: with_spread(cell, metric, text), lambda cell: cell[key], **more)


METHOD = words("row", "Method")


# --- tables -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grid:
    """A table and the sentences beneath. Its first column names the rows."""

    title: str
    columns: list
    cells: list  # of dicts
    notes: tuple = ()

    @property
    def rows(self):
        return grid(self.columns, self.cells)

    def markdown(self):
        notes = " ".join([*self.notes, "Built by `make figures`: do not edit."])
        return f"# {self.title}\n\n{pipe(self.rows)}\n\n{notes}\n"


def grid(columns, cells, full=False):
    """Header and rows as text. A group is named once, `ECE: paper`, `ours`, or in full before each of its columns."""
    before = [None, *(column.group for column in columns)]
    opens = [full or column.group != group for column, group in zip(columns, before, strict=False)]
    heads = [header(column) if opened else column.name for column, opened in zip(columns, opens, strict=True)]
    return [heads, *([column.shown(cell) for column in columns] for cell in cells)]


def header(column):
    return ": ".join(filter(None, [column.group, column.name]))


def pipe(rows):
    """A Markdown table, padded so that the source reads as well as the rendered page."""
    head, *lines = padded(rows)
    rule = "|".join("-" * (len(text) + 1) + ":" if i else ":" + "-" * (len(text) + 1) for i, text in enumerate(head))
    head, *lines = (f"| {' | '.join(line)} |" for line in (head, *lines))
    return "\n".join([head, f"|{rule}|", *lines])
