"""Text in, HTML out: elements, our little Markdown, tables with sortable values, pictures inside the page."""

import base64
import re
import struct
from html import escape
from itertools import count
from pathlib import Path

from rbue.report.text import MISSING

FOLLOWERS = {"ours", "diff", "twin", "after", "foreign"}  # headers that go on the group before them
KINDS = {"paper": "paper", "ours": "ours", "diff": "ours"}  # what the page's switch shows and hides
UNITS = {"s": 1, "min": 60, "h": 3600, "MiB": 1, "GiB": 1024}


def element(tag, *children, **attributes):
    """Children are HTML already; class_ and for_ are class and for; None leaves an attribute out."""
    given = [(name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items() if value is not None]
    opening = " ".join([tag, *(f'{name}="{escape(str(value))}"' for name, value in given)])
    return f"<{opening}>{''.join(children)}</{tag}>"


def inline(text):
    """Our little Markdown, **bold**, *stress* and `code`, escaped."""
    text = re.sub(r"`(.+?)`", r"<code>\1</code>", escape(str(text), quote=False))
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", text)
    return re.sub(r"(?<![\w*])\*([^*\s][^*]*?)\*(?!\w)", r"<em>\1</em>", text)


def paragraphs(texts):
    return "".join(element("p", inline(text)) for text in texts)


def bullets(texts, **attributes):
    return element("ul", *(element("li", inline(text)) for text in texts), **attributes)


# --- tables -----------------------------------------------------------------------------------------------------------


def columns(header):
    """(group, name) of each column: `ECE: paper`, `ours` are ("ECE", "paper"), ("ECE", "ours")."""
    found, group = [], ""
    for text in header:
        if text in FOLLOWERS:
            found.append((group, text))
        else:
            group, _, name = text.partition(": ")
            found.append((group, name))
    return found


def sort_value(text):
    """The number a cell is sorted by, durations in seconds; None for words and for what is missing."""
    text = text.replace("*", "").replace("−", "-").replace(",", "")
    parts = re.findall(r"([\d.]+) (min|s|h|MiB|GiB)\b", text)
    if parts:
        return sum(float(value) * UNITS[unit] for value, unit in parts)
    number = re.match(r"[-+]?\d+\.?\d*", text)
    return float(number[0]) if number else None


def head_cell(group, name):
    return element("th", inline(group), element("small", inline(name)) if name else "", scope="col", class_=KINDS.get(name))


def body_cell(text, name):
    value = sort_value(text)
    classes = " ".join(filter(None, [KINDS.get(name), "missing" if text == MISSING else None])) or None
    return element("td", inline(text), class_=classes, data_value=None if value is None else f"{value:g}")


def row_cell(text, place):
    """Sorted by the paper's order, which is where it stands."""
    return element("th", inline(text), scope="row", data_value=place)


def table(rows, caption):
    """A table in a frame that scrolls by itself: the page never does sideways."""
    header, *body = rows
    names = columns(header)
    place = count()
    lines = [
        element("tr", row_cell(first, next(place)), *(body_cell(t, n) for t, (_, n) in zip(rest, names[1:], strict=True)))
        for first, *rest in body
    ]
    inner = element("caption", inline(caption))
    inner += element("thead", element("tr", *(head_cell(*column) for column in names)))
    inner += element("tbody", *lines)
    return element("div", element("table", inner), class_="scroll", tabindex="0", role="region", aria_label=plain(caption))


def plain(text):
    return re.sub(r"[*`]", "", text)


def grid(found):
    """A Grid with the sentences beneath it."""
    return element("div", table(found.rows, found.title), element("p", inline(" ".join(found.notes)), class_="note"))


# --- the rest ---------------------------------------------------------------------------------------------------------


def picture(path, caption, alt):
    """The file itself, inside the page; its size keeps the text in place while it loads."""
    content = Path(path).read_bytes()
    width, height = struct.unpack(">II", content[16:24])
    source = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    image = f'<img src="{source}" width="{width}" height="{height}" alt="{escape(alt)}">'
    return element("figure", image, element("figcaption", inline(caption)))


def details(summary, *content):
    return element("details", element("summary", inline(summary)), *content)


def section(name, title, *content):
    return element("section", element("h2", escape(title), id=name), *content)
