"""Named columns, from which Markdown, LaTeX, the terminal and the page render the same table."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from rbue.progress import padded

MISSING = "–"


@dataclass(frozen=True)
class Column:
    """A column of a table. Its header is a group and a name: `Accuracy, %` over `paper`, `ours` and `diff`."""

    key: str
    group: str
    name: str
    text: Callable  # the text of a cell, which is a dict
    value: Callable | None = None  # the number by which the page sorts; None for text
    side: str | None = None  # paper or ours, for the page's switch of columns
    bold: str | None = None  # the key of the flag that makes a cell bold

    def shown(self, cell):
        return strong(self.text(cell), self.bold and cell[self.bold])

    def number(self, cell):
        """Return the cell's number, or None if it has none."""
        value = self.value(cell) if self.value else None
        return None if absent(value) else value

    def of(self, part, group, name):
        """Return this column for one part of a cell that holds several, under another header."""
        value = self.value and (lambda cell: self.value(cell[part]))
        header = {"key": f"{self.key}@{part}", "group": group, "name": name, "bold": None}
        return replace(self, **header, text=lambda cell: self.shown(cell[part]), value=value)


def absent(value):
    """Whether a value is None or NaN. pandas.isna would slow down every start of train.py."""
    return value is None or value != value


def strong(text, is_bold):
    return f"**{text}**" if is_bold and text != MISSING else text


# --- one number -> text -----------------------------------------------------------------------------------------------


def shown(text):
    """Make a formatter print a missing value as –."""
    return lambda value: MISSING if absent(value) else text(value)


def decimals(digits):
    return shown(f"{{:.{digits}f}}".format)


def signed(digits):
    return shown(lambda value: f"{round(value, digits) + 0.0:+.{digits}f}")  # + 0.0 avoids "-0.00"


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
    """Format as `8.1 s` or `3 min 05 s`; from one hour on in hours, as in the paper."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{seconds / 3600:.2f} h"


def from_to(values, text=str):
    """Format the smallest and the largest value as `1 to 3`, or as `1` if both look the same."""
    values = list(values)
    return " to ".join(dict.fromkeys(text(end) for end in (min(values), max(values))))


def with_spread(cell, metric, text):
    """Format as `94.60 ± 0.20 (3)`. One seed has no ±; the number of seeds is always shown."""
    if absent(cell[f"ours_{metric}"]):
        return MISSING
    spread = f" ± {text(cell[f'std_{metric}'])}" if cell["n"] > 1 else ""
    return f"{text(cell[f'ours_{metric}'])}{spread} ({cell['n']})"


# --- kinds of columns -------------------------------------------------------------------------------------------------


def words(key, group, name="", text=None):
    """Make a column of text. It shows the cell's value under `key`, unless `text` formats the cell."""
    return Column(key, group, name, text or (lambda cell: cell[key]))


def number(key, group, name, text, **more):
    """Make a column of one number of a cell."""
    return Column(key, group, name, lambda cell: text(cell[key]), lambda cell: cell[key], **more)


def seeded(metric, group, name, text, **more):
    """Make a column of our mean over seeds with its standard deviation."""
    key = f"ours_{metric}"
    return Column(key, group, name, lambda cell: with_spread(cell, metric, text), lambda cell: cell[key], **more)


METHOD = words("row", "Method")


# --- tables -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grid:
    """A table with the notes below it. Its first column names the rows."""

    title: str
    columns: list
    cells: list  # dicts
    notes: tuple = ()

    @property
    def rows(self):
        return grid(self.columns, self.cells)

    def markdown(self):
        notes = " ".join([*self.notes, "Built by `make figures`: do not edit."])
        return f"# {self.title}\n\n{pipe(self.rows)}\n\n{notes}\n"


def grid(columns, cells, full=False):
    """Return header and rows as text. A group is named once (`ECE: paper`, `ours`), or in every column if `full`."""
    before = [None, *(column.group for column in columns)]
    opens = [full or column.group != group for column, group in zip(columns, before, strict=False)]
    heads = [header(column) if opened else column.name for column, opened in zip(columns, opens, strict=True)]
    return [heads, *([column.shown(cell) for column in columns] for cell in cells)]


def header(column):
    return ": ".join(filter(None, [column.group, column.name]))


def pipe(rows):
    """Return a Markdown table whose columns are padded, so that its source is readable too. A name of the user's own
    may hold a |, which would begin another column."""
    head, *lines = padded([[text.replace("|", r"\|") for text in row] for row in rows])
    rule = "|".join("-" * (len(text) + 1) + ":" if i else ":" + "-" * (len(text) + 1) for i, text in enumerate(head))
    head, *lines = (f"| {' | '.join(line)} |" for line in (head, *lines))
    return "\n".join([head, f"|{rule}|", *lines])
