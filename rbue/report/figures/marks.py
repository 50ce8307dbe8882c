"""What the marks of a drawn figure stand for: their rows, and their values in words.

A mark's row is its gid or its label, if the drawing code gave it one. Otherwise it is the legend's entry that looks the
same, or the title of its panel.
"""

import numpy as np
from matplotlib.collections import Collection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.spines import Spine
from matplotlib.ticker import FixedLocator

LONGEST = 40  # letters of a panel's title that may be a name


class Marks:
    """The artists of a figure by the ids that the renderer sees, with their rows."""

    def __init__(self, figure):
        self.artists, self.rows, self.keys = {}, {}, {}
        self.panels, self.bars, self.known = len(figure.axes), {}, {}
        legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
        drawn = [entry for legend in legends for entry in zip(legend.legend_handles, legend.texts, strict=False)]
        entries = [(handle, text, text.get_gid() or text.get_text()) for handle, text in drawn]
        for handle, text, row in entries:
            self.keys[handle] = self.keys[text] = row
        for axes in figure.axes:
            self.find_rows(axes, [(handle, row) for handle, _, row in entries])
            for bars in (each for each in axes.containers if isinstance(each, BarContainer)):
                self.bars |= {bar: (bars.orientation, value) for bar, value in zip(bars, bars.datavalues, strict=True)}
        for number, artist in enumerate(figure.findobj()):
            self.artists[f"a{number}"] = artist
            artist.set_gid(f"a{number}")
            artist.set_url(f"a{number}")  # images have no group, but an address

    def find_rows(self, axes, entries):
        looks = {look(handle): row for handle, row in entries if isinstance(handle, Line2D | Patch)}
        parts = {part: given_label(whole) for whole in axes.containers for part in whole.get_children()}
        for artist in axes.get_children():
            if isinstance(artist, Line2D | Patch | Collection | AxesImage) and not isinstance(artist, Spine):
                given = artist.get_gid() or given_label(artist) or parts.get(artist)
                self.rows[artist] = given or looks.get(look(artist)) or panel_name(axes)

    def tags(self, artist):
        if key := self.keys.get(artist):
            return {"data-key": key}
        return {"data-row": row} if (row := self.rows.get(artist)) else {}

    # --- values in words ---

    def named(self, artist, *lines):
        """Return the panel, the row and further lines."""
        panel, row = panel_name(artist.axes) if self.panels > 1 else "", self.rows.get(artist) or ""
        return "\n".join(filter(None, [panel if panel != row else "", row, *lines]))

    def point(self, artist, pixel):
        """Describe a point by its coordinates."""
        if artist not in self.rows:
            return ""
        axes = artist.axes
        x, y = axes.transData.inverted().transform(pixel)
        return self.named(artist, self.value_text(axes.xaxis, x), self.value_text(axes.yaxis, y))

    def patch(self, artist):
        """Describe a bar by its value, another patch by its lowest and highest value."""
        if artist not in self.rows:
            return ""
        if artist in self.bars:
            return self.bar(artist, *self.bars[artist])
        box = artist.get_path().get_extents(artist.get_patch_transform())
        return self.named(artist, f"{self.words(artist.axes.yaxis)[0]} {box.y0:.4g} to {box.y1:.4g}".strip())

    def bar(self, artist, orientation, value):
        """Describe a bar by its place and its value."""
        axes = artist.axes
        if orientation == "horizontal":
            across, along, at = axes.yaxis, axes.xaxis, artist.get_y() + artist.get_height() / 2
        else:
            across, along, at = axes.xaxis, axes.yaxis, artist.get_x() + artist.get_width() / 2
        return self.named(artist, self.value_text(across, at), self.value_text(along, value))

    def cell(self, mesh, x, y, value):
        """Describe a cell by its line, its column and its value."""
        axes = mesh.axes
        return self.named(mesh, f"{self.tick_name(axes.yaxis, y)}, {self.tick_name(axes.xaxis, x)}: {value:.4g}")

    def value_text(self, axis, value):
        return f"{self.words(axis)[0]} {self.tick_name(axis, value)}".strip()

    def tick_name(self, axis, value):
        """Return the text of the tick at this value, or the value."""
        return self.words(axis)[1].get(round(value, 6)) or f"{value:.4g}"

    def words(self, axis):
        """Return the axis's label and its ticks' names. They are kept, since asking matplotlib takes long."""
        if axis not in self.known:
            self.known[axis] = label_of(axis), tick_names(axis)
        return self.known[axis]

    def on_colour(self, text):
        """Whether a text is written on a coloured cell, and not on an empty one or next to them."""
        if text.axes is None or text.get_transform() != text.axes.transData:
            return False
        meshes = [each for each in text.axes.collections if isinstance(each, QuadMesh)]
        return any(is_filled(mesh, *text.get_position()) for mesh in meshes)


def is_filled(mesh, x, y):
    """Whether the cell at a place of the panel has a colour."""
    lines, columns = mesh.get_coordinates()[:, 0, 1], mesh.get_coordinates()[0, :, 0]
    i, j = np.searchsorted(lines, y) - 1, np.searchsorted(columns, x) - 1
    masked = np.ma.getmaskarray(mesh.get_array())
    return 0 <= i < masked.shape[0] and 0 <= j < masked.shape[1] and not masked[i, j]


def given_label(artist):
    label = str(artist.get_label())
    return "" if label.startswith("_") else label


def look(artist):
    """Return what distinguishes a line from others. Of areas, it is their first visible colour without its opacity."""
    if isinstance(artist, Line2D):
        face = to_hex(artist.get_markerfacecolor(), keep_alpha=True)
        return to_hex(artist.get_color()), artist.get_marker(), artist.get_linestyle(), face
    if isinstance(artist, AxesImage):
        return None
    colours = np.vstack([artist.get_facecolor(), artist.get_edgecolor()])
    return next((to_hex(each) for each in colours if each[3] > 0), None)


def panel_name(axes):
    """Return the panel's title, if it is a name rather than a sentence."""
    title = " ".join(axes.get_title().split())
    return title if len(title) <= LONGEST else ""


def label_of(axis):
    """Return the first words of the axis's label; if the panel has none, of its neighbour's or the figure's."""
    which = axis.axis_name
    neighbours = getattr(axis.axes, f"get_shared_{which}_axes")().get_siblings(axis.axes)
    labels = [getattr(axes, f"get_{which}label")() for axes in (axis.axes, *neighbours)]
    shared = getattr(axis.axes.get_figure(), f"get_sup{which}label")()
    return next(filter(None, [*labels, shared]), "").split("\n")[0].split(":")[0]


def tick_names(axis):
    """Return {value: text} of the ticks that the drawing code named, or that are no numbers."""
    ticks = [(tick.get_loc(), " ".join(tick.label1.get_text().split())) for tick in axis.get_major_ticks()]
    given = isinstance(axis.get_major_locator(), FixedLocator)
    return {round(at, 6): text for at, text in ticks if text and (given or not is_number(text))}


def is_number(text):
    return text.replace("−", "-").replace(".", "", 1).lstrip("-").isdigit()
