"""From text and columns to what the templates print: our subset of Markdown, notes, and tables that can be sorted."""

import re
from collections import defaultdict

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


def in_common(noted):
    """Return {kind: what all tables of this kind say} for each kind that has several tables, from (kind, notes)."""
    kinds = defaultdict(list)
    for kind, notes in noted:
        kinds[kind].append(notes)
    said = {kind: [n for n in each[0] if all(n in other for other in each)] for kind, each in kinds.items() if each[1:]}
    return {kind: notes for kind, notes in said.items() if notes}


def own(notes, said):
    """Return the notes that are not said in common."""
    return [note for note in notes if note not in said]


def groups(common):
    """Return what is said in common for the templates: one part per kind of table, with an id to link to."""
    return [{"id": slug("notes", kind), "title": kind, "notes": notes} for kind, notes in common.items()]


# --- tables -----------------------------------------------------------------------------------------------------------


def header(column):
    kind = " ".join(filter(None, [column.side, None if column.value else "words"]))
    return {"group": column.group.replace(", %", ",\u00a0%"), "name": column.name, "kind": kind}


def kinds(part):
    """Return (number of a column, kind) of all tables in a part of the page, for its style: cells have no class."""
    match part:
        case {"head": list(heads)}:
            return {(k, kind) for k, head in enumerate(heads, 1) for kind in head["kind"].split()}
        case dict():
            return kinds(list(part.values()))
        case list() | tuple():
            return set().union(*map(kinds, part))
    return set()


def body_cells(column, cells):
    """Return a column's cells. One without a number is empty: the style shows it as –."""
    texts = [column.shown(cell) for cell in cells]
    values = sort_values(map(plain, texts), map(column.number, cells))
    return [{"text": "" if t == MISSING else t, "value": value} for t, value in zip(texts, values, strict=True)]


def sort_values(texts, values):
    """Return the number by which the page sorts each cell of a column, in few digits. It is None where the text is
    enough: it begins with this number, rounded, and all cells that begin with the same have the same number."""
    numbers = [(first_number(text), value, few_digits(value)) for text, value in zip(texts, values, strict=True)]
    alike = defaultdict(set)
    for first, _, digits in numbers:
        alike[first and float(first)].add(digits)
    return [
        None if is_rounded(first, value) and len(alike[float(first)]) == 1 else digits
        for first, value, digits in numbers
    ]


FIRST = re.compile(r"[+-]?\d+(\.\d+)?")  # what page.js reads of a text that begins with a number


def first_number(text):
    found = FIRST.match(text.replace(",", ""))
    return found and found[0]


def few_digits(value):
    return None if value is None else f"{value:.10g}" if float(value).is_integer() else f"{value:.6g}"


def is_rounded(first, value):
    """Whether a text that begins with `first` shows this value in the same unit."""
    return bool(first) and value is not None and float(first) == round(float(value), len(first.partition(".")[2]))


def table(columns, cells, caption, name, **more):
    """Return a table for the template. A row's name sorts by its position, which is the paper's order.

    `name` is its id. `more`: links to files, notes below, tags to filter by, wide if its lines wrap.
    """
    named, *rest = columns
    lines = zip(cells, *(body_cells(column, cells) for column in rest), strict=True)
    rows = [{"name": named.shown(cell), "cells": line} for cell, *line in lines]
    given = {"links": [], "notes": [], "tags": {}, "wide": False, "folded": unmeasured(columns, cells)} | more
    return {"id": name, "caption": caption, "head": [header(column) for column in columns], "rows": rows} | given


def unmeasured(columns, cells):
    """Whether the table has cells for our numbers, and all of them are empty."""
    return {column.text(cell) for column in columns if column.side == "ours" for cell in cells} == {MISSING}


def kind_of(found):
    return found.title.split(":")[0]


def grid(found, name, common=None, **more):
    """Return a Grid as a table with its notes; if its kind says some of them in common, with a link to them."""
    kind = kind_of(found)
    said = (common or {}).get(kind, [])
    links = [("How to read this table", f"#{slug('notes', kind)}")] if said else []
    notes = own(found.notes, said)
    notes = [" ".join(notes)] if notes else []
    return table(found.columns, found.cells, found.title, name, notes=notes, links=links, **more)
