"""From text to HTML: elements, our subset of Markdown, tables with sortable values, embedded pictures."""

import base64
import re
import struct
from html import escape
from pathlib import Path

from rbue.report.columns import MISSING


def element(tag, *children, **attributes):
    """Return an element. Children are HTML already; class_ and for_ mean class and for; None omits an attribute."""
    given = [(name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items() if value is not None]
    opening = " ".join([tag, *(f'{name}="{escape(str(value))}"' for name, value in given)])
    return f"<{opening}>{''.join(children)}</{tag}>"


def inline(text):
    """Convert our subset of Markdown (**bold**, *emphasis* and `code`) to HTML, escaped."""
    text = re.sub(r"`(.+?)`", r"<code>\1</code>", escape(str(text), quote=False))
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", text)
    return re.sub(r"(?<![\w*])\*([^*\s][^*]*?)\*(?!\w)", r"<em>\1</em>", text)


def paragraphs(texts):
    return "".join(element("p", inline(text)) for text in texts)


def bullets(texts, **attributes):
    return element("ul", *(element("li", inline(text)) for text in texts), **attributes)


# --- tables -----------------------------------------------------------------------------------------------------------


def classes(*names):
    return " ".join(filter(None, names)) or None


def head_cell(column):
    small = element("small", inline(column.name)) if column.name else ""
    reads_from_left = None if column.value else "words"
    return element("th", inline(column.group), small, scope="col", class_=classes(column.side, reads_from_left))


def body_cell(column, cell):
    text, value = column.shown(cell), column.number(cell)
    kind = classes(column.side, text == MISSING and "missing", None if column.value else "words")
    return element("td", inline(text), class_=kind, data_value=None if value is None else f"{value:.10g}")


def row_cell(text, place):
    """Return a row's name cell. It sorts by its position, which is the paper's order."""
    return element("th", inline(text), scope="row", data_value=place)


def table(columns, cells, caption, wide=False):
    """Return a table that scrolls in a frame, so the page never scrolls sideways. A wide table wraps its lines."""
    named, *rest = columns
    lines = [
        row_cell(named.shown(cell), place) + "".join(body_cell(column, cell) for column in rest)
        for place, cell in enumerate(cells)
    ]
    inner = element("caption", element("span", inline(caption)))
    inner += element("thead", element("tr", *map(head_cell, columns)))
    inner += element("tbody", *(element("tr", line) for line in lines))
    frame = {"class_": classes("scroll", wide and "wide"), "tabindex": "0", "role": "region"}
    return element("div", element("table", inner), **frame, aria_label=plain(caption))


def plain(text):
    return re.sub(r"[*`]", "", text)


def grid(found):
    """Return a Grid with the notes below it."""
    notes = element("p", inline(" ".join(found.notes)), class_="note")
    return element("div", table(found.columns, found.cells, found.title), notes)


# --- pictures and details ---------------------------------------------------------------------------------------------


def picture(path, caption, alt):
    """Embed the image file. Its stated size keeps the text in place while the page loads."""
    content = Path(path).read_bytes()
    width, height = struct.unpack(">II", content[16:24])
    source = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    image = f'<img src="{source}" width="{width}" height="{height}" alt="{escape(alt)}">'
    return element("figure", image, element("figcaption", inline(caption)))


def details(summary, *content):
    return element("details", element("summary", inline(summary)), *content)
