"""From a drawn figure to a small SVG for the page: each mark knows its row and its values.

    svg(figure)  # the text of the file; the same figure gives the same text

It is a renderer of matplotlib, so the code that draws the PDF draws this too. Its files are a tenth of those of
matplotlib's own SVG: coordinates have one decimal, ticks and grid lines of an axis are one path, and attributes that
marks share are on their group. Further:

- a row's marks carry data-row and its legend entry data-key, so that a page can hide the row;
- a point, a bar or a cell has a <title> with its row and its values, which browsers show on hover; of many points,
  all have the same title, which names their row;
- nothing is painted behind it, and greys are one of sixteen (#000, #111, … #fff), so that a page can invert them.
  A coloured cell and the text on it have the class `on`: their colours must stay.
"""

import base64
from dataclasses import dataclass, field
from io import BytesIO
from itertools import groupby
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from matplotlib.backend_bases import RendererBase
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.patches import Patch
from matplotlib.path import Path
from matplotlib.transforms import Affine2D, Bbox
from PIL import Image

from rbue.report.figures.marks import Marks

POINTS_PER_INCH = 72
COMMANDS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C", Path.CLOSEPOLY: "Z"}
SHARED = {"fill", "stroke", "stroke-width", "fill-opacity", "stroke-opacity", "font-size", "text-anchor", "class"}
ANCHORS = {"center": ("middle", 0.5), "right": ("end", 1.0)}
WHITE = "background:#fff"  # of the file by itself; the page overrides it
CIRCLE = Path.unit_circle()
CROWDED = 60  # points of one row: more are too close to point at, and their titles would be most of the file
GREYS = ["#" + 3 * f"{level:x}" for level in range(16)]  # from black to white


# --- elements ---------------------------------------------------------------------------------------------------------


@dataclass
class Element:
    """An SVG element. `title` is what a browser shows on hover."""

    tag: str
    attributes: dict = field(default_factory=dict)
    children: list = field(default_factory=list)
    text: str = ""
    title: str = ""

    def __str__(self):
        given = "".join(f" {name}={quoteattr(str(value))}" for name, value in self.attributes.items())
        title = f"<title>{escape(self.title)}</title>" if self.title else ""
        inside = title + escape(self.text) + "".join(map(str, self.children))
        return f"<{self.tag}{given}>{inside}</{self.tag}>" if inside else f"<{self.tag}{given}/>"


def group(children, attributes=None):
    """Return a group that has the attributes which all its children share."""
    shared = set.intersection(*(set(child.attributes.items()) for child in children)) if len(children) > 1 else set()
    common = {name: value for name, value in sorted(shared) if name in SHARED}
    for child in children:
        child.attributes = {name: value for name, value in child.attributes.items() if name not in common}
    return Element("g", common | (attributes or {}), children)


def merged(children):
    """Join the paths that look the same: the ticks or the grid lines of an axis. Texts stay as they are."""
    paths = {}
    for path in (child for child in children if child.tag == "path"):
        look = tuple((name, value) for name, value in path.attributes.items() if name != "d")
        paths.setdefault(look, []).append(path.attributes["d"])
    texts = [child for child in children if child.tag != "path"]
    return [Element("path", dict(look) | {"d": "".join(parts)}) for look, parts in paths.items()] + bundled(texts)


def bundled(children):
    """Put three or more texts in a row into a group, which has what they share."""
    found = []
    for tag, run in groupby(children, key=lambda child: child.tag):
        run = list(run)
        found += [group(run)] if tag == "text" and len(run) > 2 else run
    return found


# --- numbers and colours ----------------------------------------------------------------------------------------------


def short(value, digits=1):
    """Format a number in as few letters as possible: 3, -.5, 12.3."""
    text = f"{value:.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    text = text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text
    return "0" if text == "-0" else text


def joined(numbers):
    """Join coordinates; a minus sign separates as well as a space does."""
    return " ".join(map(short, numbers)).replace(" -", "-")


def hex_code(rgb):
    """Return the colour's shortest code. Greys become one of sixteen."""
    red, green, blue = (round(255 * part) for part in rgb[:3])
    if red == green == blue:
        return GREYS[round(red / 17)]
    code = to_hex(rgb[:3])
    return f"#{code[1::2]}" if code[1::2] == code[2::2] else code


def path_text(segments):
    """Return the `d` of a path; a horizontal or vertical line needs one number."""
    parts, at = [], (None, None)
    for points, code in segments:
        new = tuple(map(short, points[-2:]))
        if code == Path.LINETO and at in (new, (new[0], at[1]), (at[0], new[1])):
            parts.append("" if new == at else f"H{new[0]}" if new[1] == at[1] else f"V{new[1]}")
        else:
            parts.append(COMMANDS[code] + ("" if code == Path.CLOSEPOLY else joined(points)))
        at = (None, None) if code == Path.CLOSEPOLY else new
    return "".join(parts) if len(parts) > 1 else ""


def circle(path, transform, place, look):
    """Return a mark at a place of the page as a circle, or None if it has another shape."""
    if not np.array_equal(path.codes, CIRCLE.codes):
        return None
    radius, (x, y) = np.abs(path.vertices).max() * np.hypot(*transform.get_matrix()[:2, 0]), map(short, place)
    return Element("circle", {"cx": x, "cy": y, "r": short(radius, 2)} | look)


def webp(pixels):
    """Return pixels as the address of an embedded image."""
    buffer = BytesIO()
    Image.fromarray(pixels).convert("RGB").save(buffer, "webp", quality=85, method=6)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"


# --- the renderer -----------------------------------------------------------------------------------------------------


def svg(figure):
    """Return the figure as SVG, without its background and its panels'."""
    figure.set_dpi(POINTS_PER_INCH)
    for drawn in (figure, *figure.axes):
        drawn.patch.set_visible(False)
    renderer = Renderer(figure)
    figure.draw(renderer)
    return renderer.finish()


class Renderer(RendererBase):
    """Draws into elements. `frames` are matplotlib's open groups: their elements, and the artist that is drawn."""

    def __init__(self, figure):
        super().__init__()
        self.size = tuple(figure.bbox.size)
        self.flip = Affine2D().scale(1, -1).translate(0, self.size[1])
        self.marks, self.shapes, self.definitions = Marks(figure), {}, []
        self.frames, self.in_axis = [([], None)], False

    def finish(self):
        """Return the whole file."""
        shapes = [Element("path", {"id": name, "d": d}) for d, name in self.shapes.items()]
        definitions = [Element("defs", {}, shapes + self.definitions)] if shapes or self.definitions else []
        size = " ".join(short(length, 0) for length in self.size)
        outer = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {size}", "fill": "none", "style": WHITE}
        fonts = {"font-family": "DejaVu Sans, Verdana, sans-serif", "stroke-linejoin": "round"}
        return f"{Element('svg', outer | fonts, definitions + bundled(self.frames[0][0]))}\n"

    def get_canvas_width_height(self):
        return self.size

    def option_image_nocomposite(self):
        return True

    # --- groups ---

    @property
    def artist(self):
        return self.frames[-1][1]

    def put(self, *elements):
        self.frames[-1][0].extend(elements)

    def open_group(self, s, gid=None):
        self.in_axis |= s == "matplotlib.axis"
        self.frames.append(([], self.marks.artists.get(gid)))

    def close_group(self, s):
        """Wrap what was drawn if it is an axis or has a row; give it to the group around it."""
        children, artist = self.frames.pop()
        tags = self.marks.tags(artist)
        if s == "matplotlib.axis":
            self.in_axis, children = False, merged(children)
        self.put(*([group(children, tags)] if tags and children else children))

    # --- paths ---

    def look(self, gc, face=None):
        """Return the attributes of a path. What is transparent is not painted."""
        found = paint("fill", gc, face) if face is not None else {}
        if gc.get_linewidth() > 0:
            found |= paint("stroke", gc, gc.get_rgb())
        if "stroke" in found:
            found["stroke-width"] = short(gc.get_linewidth(), 2)
            dashes = gc.get_dashes()[1]
            found |= {"stroke-dasharray": " ".join(map(short, dashes))} if dashes is not None else {}
        return found

    def draw_path(self, gc, path, transform, rgbFace=None):
        look, artist = self.look(gc, rgbFace), self.artist
        if isinstance(artist, PathCollection):
            self.draw_point(gc, path, transform, look)
        elif look and (d := path_text(self.segments(gc, path, transform, "fill" in look))):
            title = self.marks.patch(artist) if isinstance(artist, Patch) else ""
            self.put(Element("path", {"d": d} | look, title=title))
            self.draw_hatch(gc, d)

    def segments(self, gc, path, transform, filled):
        box = gc.get_clip_rectangle()
        box = box and box.transformed(self.flip)
        box = box and Bbox([box.min, box.max])  # the flip has exchanged its corners
        return clipped((transform + self.flip).transform_path(path), box, filled)

    def draw_point(self, gc, path, transform, look):
        """Draw one point of a scatter plot, unless it is out of sight."""
        at = transform.transform((0, 0))
        if look and not hidden(gc, at):
            point = self.marker(path, transform + Affine2D().translate(*-at), look, at)
            point.title = self.marks.point(self.artist, at)
            self.put(point)

    def draw_markers(self, gc, marker_path, marker_trans, path, trans, rgbFace=None):
        look, places = self.look(gc, rgbFace), [p[-2:] for p, _ in path.iter_segments(trans, simplify=False)]
        places = [place for place in places if not hidden(gc, place)]
        if self.in_axis:
            shape = [marker_path.iter_segments(marker_trans + Affine2D().translate(*p) + self.flip) for p in places]
            self.put(*(Element("path", {"d": path_text(each)} | look) for each in shape))
        elif places:
            drawn = group([self.marker(marker_path, marker_trans, look, place) for place in places])
            self.put(self.titled(drawn, places))

    def titled(self, drawn, places):
        """Give each marker of a group its values as title; many markers share one, which names their row."""
        if len(places) > CROWDED:
            drawn.title = self.marks.named(self.artist)
        else:
            for marker, place in zip(drawn.children, places, strict=True):
                marker.title = self.marks.point(self.artist, place)
        return drawn

    def marker(self, path, transform, look, place):
        place = self.flip.transform(place)
        if drawn := circle(path, transform, place, look):
            return drawn
        upside, (x, y) = transform + Affine2D().scale(1, -1), map(short, place)
        name = self.shapes.setdefault(path_text(path.iter_segments(upside)), f"m{len(self.shapes)}")
        return Element("use", {"href": f"#{name}", "x": x, "y": y} | look)

    def draw_hatch(self, gc, d):
        if gc.get_hatch():
            name, side = f"h{len(self.definitions)}", POINTS_PER_INCH
            lines = path_text(gc.get_hatch_path().iter_segments(Affine2D().scale(side)))
            stroke = {"stroke": hex_code(gc.get_hatch_color()), "stroke-width": short(gc.get_hatch_linewidth())}
            tile = {"id": name, "width": side, "height": side, "patternUnits": "userSpaceOnUse"}
            self.definitions.append(Element("pattern", tile, [Element("path", {"d": lines} | stroke)]))
            self.put(Element("path", {"d": d, "fill": f"url(#{name})"}))

    # --- cells and photographs ---

    def draw_quad_mesh(self, *_, **__):
        """Draw a matrix as cells."""
        mesh = self.artist
        values, colours, corners = mesh.get_array(), mesh.to_rgba(mesh.get_array()), mesh.get_coordinates()
        for i, j in zip(*np.nonzero(~np.ma.getmaskarray(values)), strict=True):
            ends = corners[i, j], corners[i + 1, j + 1]
            look = {"fill": hex_code(colours[i, j]), "class": "on"}
            title = self.marks.cell(mesh, *np.mean(ends, 0), values[i, j])
            self.put(Element("rect", rectangle(self.to_page(mesh, ends)) | look, title=title))

    def draw_image(self, gc, x, y, im, transform=None):
        """Draw a photograph's own pixels rather than the resampled ones."""
        artist = self.marks.artists[gc.get_url()]
        left, right, bottom, top = artist.get_extent()
        box = rectangle(self.to_page(artist, [(left, top), (right, bottom)]))
        pixels = {"href": webp(artist.to_rgba(artist.get_array(), bytes=True)), "style": "image-rendering:pixelated"}
        self.put(Element("image", box | pixels | {"preserveAspectRatio": "none"}))

    def to_page(self, artist, points):
        return self.flip.transform(artist.axes.transData.transform(points))

    # --- text ---

    def draw_text(self, gc, x, y, s, prop, angle, ismath=False, mtext=None):
        """Write text as text, anchored as it was aligned, so that another font moves it little."""
        if ismath:
            return super().draw_text(gc, x, y, s, prop, angle, ismath, mtext)
        width, artist = self.get_text_width_height_descent(s, prop, ismath)[0], self.artist
        anchor, share = ANCHORS.get("center" if angle else artist.get_horizontalalignment(), ("", 0))
        way = np.deg2rad(angle)
        x, y = x + share * width * np.cos(way), y - share * width * np.sin(way)
        turned = {"transform": f"translate({joined((x, y))})rotate({short(-angle)})"}
        look = turned if angle else {"x": short(x), "y": short(y)}
        look |= paint("fill", gc, gc.get_rgb())
        look |= {"font-size": short(prop.get_size_in_points())} | ({"text-anchor": anchor} if anchor else {})
        look |= {"class": "on"} if self.marks.on_colour(artist) else {}
        self.put(Element("text", look, text=s))


def paint(kind, gc, rgb):
    """Return the attributes of a fill or a stroke; none if it is invisible."""
    alpha = gc.get_alpha() if gc.get_forced_alpha() else rgb[3] if len(rgb) > 3 else 1
    if alpha == 0:
        return {}
    return {kind: hex_code(rgb)} | ({f"{kind}-opacity": short(alpha, 2)} if alpha < 1 else {})


def hidden(gc, place):
    """Whether a point is outside the panel that it is drawn in."""
    box = gc.get_clip_rectangle()
    return not np.isfinite(place).all() or (bool(box) and not box.padded(0.5).contains(*place))


def clipped(path, box, filled):
    """Return the segments of a path within the panel. A filled shape stays closed."""
    if box is None:
        return path.iter_segments(simplify=False)
    if filled and not holds(box, path):
        path = path.clip_to_bbox(box)
    return path.iter_segments(clip=None if filled else box.padded(0.1).extents, simplify=False)


def holds(box, path):
    inner, outer = path.get_extents(), box.padded(0.1)
    return outer.contains(inner.x0, inner.y0) and outer.contains(inner.x1, inner.y1)


def rectangle(corners):
    (left, top), (right, bottom) = np.min(corners, axis=0), np.max(corners, axis=0)
    return {"x": short(left), "y": short(top), "width": short(right - left, 2), "height": short(bottom - top, 2)}
