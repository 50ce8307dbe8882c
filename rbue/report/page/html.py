"""Text in, HTML out: elements, our little Markdown, tables with sortable values, pictures inside the page."""

import base64
import re
import struct
from html import escape
from pathlib import Path

from rbue.report.text import ANNOUNCED, MISSING

# headers that go on the group before them
FOLLOWERS = {"ours", "diff", "faster", "twin", "after", "foreign", *(name for name, _ in ANNOUNCED)}
KINDS = {"paper": "paper", "printed": "paper"} | dict.fromkeys(["ours", "diff", "faster"], "ours")
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


def classes(*names):
    return " ".join(filter(None, names)) or None


def kind(name):
    """What the page's switch shows and hides."""
    return KINDS.get(name.split(",")[0])  # "ours, `matched`"


def head_cell(group, name, words):
    small = element("small", inline(name)) if name else ""
    return element("th", inline(group), small, scope="col", class_=classes(kind(name), words))


def body_cell(text, name, words):
    value, missing = sort_value(text), "missing" if text == MISSING else None
    shown = None if value is None or words else f"{value:g}"
    return element("td", inline(text), class_=classes(kind(name), missing, words), data_value=shown)


def row_cell(text, place):
    """Sorted by the paper's order, which is where it stands."""
    return element("th", inline(text), scope="row", data_value=place)


def of_words(body):
    """Of each column, "words" where it has some and no number: it reads from the left."""
    texts = [[text for text in column if text != MISSING] for column in zip(*body, strict=True)]
    return [None if not column or any(sort_value(text) is not None for text in column) else "words" for column in texts]


def table(rows, caption, wide=False):
    """A table in a frame that scrolls by itself: the page never does sideways. A wide one breaks its lines instead."""
    header, *body = rows
    names, words = columns(header), of_words(body)
    lines = [
        row_cell(line[0], place)
        + "".join(body_cell(t, n, w) for t, (_, n), w in zip(line[1:], names[1:], words[1:], strict=True))
        for place, line in enumerate(body)
    ]
    inner = element("caption", element("span", inline(caption)))
    inner += element("thead", element("tr", *(head_cell(*c, w) for c, w in zip(names, words, strict=True))))
    inner += element("tbody", *(element("tr", line) for line in lines))
    frame = {"class_": classes("scroll", wide and "wide"), "tabindex": "0", "role": "region"}
    return element("div", element("table", inner), **frame, aria_label=plain(caption))


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
