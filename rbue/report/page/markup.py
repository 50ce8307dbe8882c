"""From text and columns to what the templates print: our subset of Markdown, and tables with values to sort by."""

import re

from markupsafe import Markup, escape

from rbue.report.columns import MISSING

SYMBOLS = {r"\le": "≤", r"\ge": "≥", r"\sum": "Σ", r"\epsilon": "ε", r"\times": "×", r"\alpha": "α", r"\%": "%"}


def inline(text):
    """Convert our subset of Markdown (**bold**, *emphasis* and `code`) to HTML, escaped."""
    text = re.sub(r"`(.+?)`", r"<code>\1</code>", str(escape(text)))
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", text)
    return Markup(re.sub(r"(?<![\w*])\*([^*\s][^*]*?)\*(?!\w)", r"<em>\1</em>", text))


def plain(text):
    return re.sub(r"[*`]", "", text)


def without_tex(text):
    """Return a quotation as the paper's PDF shows it: symbols instead of commands, no dollars."""
    text = re.sub(r"\\(?:textbf|textit|emph|cite|text)\{([^}]*)\}", r"\1", text)
    for command, symbol in SYMBOLS.items():
        text = re.sub(re.escape(command) + r"(?![a-zA-Z])", symbol, text)
    return re.sub(r"\s+", " ", re.sub(r"[$&~]|\\\\", "", text)).strip()


def slug(*names):
    """Return an id from names: it stays the same as long as they do."""
    return "-".join(re.sub(r"[^A-Za-z0-9]+", "-", str(name)).strip("-") for name in names).lower()


def distinct(names):
    """Number the second and each further of equal ids, so that every id stands for one place on the page."""
    names = list(names)
    return [f"{name}-{n + 1}" if (n := names[:k].count(name)) else name for k, name in enumerate(names)]


# --- tables -----------------------------------------------------------------------------------------------------------


def header(column):
    kind = " ".join(filter(None, [column.side, None if column.value else "words"]))
    return {"group": column.group.replace(", %", ",\u00a0%"), "name": column.name, "kind": kind}


def body_cell(column, cell):
    text, value = column.shown(cell), column.number(cell)
    kinds = [column.side, text == MISSING and "missing", None if column.value else "words"]
    return {"text": text, "kind": " ".join(filter(None, kinds)), "value": sort_value(text, value)}


def sort_value(text, value):
    """Return the number by which the page sorts a cell, in few digits; None if it has none, if its text is this
    number, in the same unit, or if its text begins with exactly this number."""
    if value is None or (PLAIN.fullmatch(text) and text == f"{value:.{len(text.partition('.')[2])}f}"):
        return None
    digits = f"{value:.10g}" if float(value).is_integer() else f"{value:.6g}"
    first = FIRST.match(plain(text))
    return None if first and float(first[0]) == float(digits) else digits


PLAIN = re.compile(r"\d+(\.\d+)?")  # a text that page.js reads as a number
FIRST = re.compile(rf"[+-]?{PLAIN.pattern}")  # what page.js reads of a text that begins with a number


def table(columns, cells, caption, name, **more):
    """Return a table for the template. A row's name sorts by its position, which is the paper's order.

    `name` is its id. `more`: links to files, notes below, tags to filter by, wide if its lines wrap.
    """
    named, *rest = columns
    rows = [{"name": named.shown(cell), "cells": [body_cell(column, cell) for column in rest]} for cell in cells]
    given = {"links": [], "notes": [], "tags": {}, "wide": False, "folded": unmeasured(rows)} | more
    return {"id": name, "caption": caption, "head": [header(column) for column in columns], "rows": rows} | given


def unmeasured(rows):
    """Whether the table has cells for our numbers, and all of them are empty."""
    ours = [cell["text"] for row in rows for cell in row["cells"] if "ours" in cell["kind"].split()]
    return bool(ours) and set(ours) == {MISSING}


def grid(found, name, **more):
    """Return a Grid as a table with its notes."""
    return table(found.columns, found.cells, found.title, name, notes=[" ".join(found.notes)], **more)
