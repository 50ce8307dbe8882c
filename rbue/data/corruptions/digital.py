"""Brightness, contrast, saturate, JPEG, pixelate and the elastic transform."""

from functools import lru_cache

import numpy as np
import torch

from rbue.data.corruptions.exact import columns, divide, fold, gaussian, to_unit, truncate
from rbue.data.corruptions.jpeg import jpeg

# --- colour -----------------------------------------------------------------------------------------------------------


def contrast(x, c, draws):
    """Scale the distance to each channel's mean, which is summed in integers: the order of addition is irrelevant."""
    mean = divide(x.sum((2, 3), keepdim=True).double(), 255 * x[0, 0].numel())
    return truncate(((to_unit(x) - mean) * c + mean).clamp(0, 1) * 255)


def brightness(x, c, draws):
    hue, saturation, value = rgb_to_hsv(to_unit(x))
    return truncate(hsv_to_rgb(hue, saturation, (value + c).clamp(0, 1)) * 255)


def saturate(x, c, draws):
    hue, saturation, value = rgb_to_hsv(to_unit(x))
    return truncate(hsv_to_rgb(hue, (saturation * c[0] + c[1]).clamp(0, 1), value) * 255)


def rgb_to_hsv(rgb):
    """Convert as skimage does, in the same order of operations: truncation to uint8 would show a change of one bit."""
    red, green, blue = rgb.unbind(1)
    value, spread = rgb.amax(1), rgb.amax(1) - rgb.amin(1)
    hue = torch.where(red == value, (green - blue) / spread, 0)
    hue = torch.where(green == value, 2 + (blue - red) / spread, hue)
    hue = torch.where(blue == value, 4 + (red - green) / spread, hue)
    grey = spread == 0
    hue = divide(hue, 6)
    return torch.where(grey, 0, hue - hue.floor()), torch.where(grey, 0, spread / value), value


def hsv_to_rgb(hue, saturation, value):
    sector = torch.floor(hue * 6)
    part = hue * 6 - sector
    p = value * (1 - saturation)
    q = value * (1 - part * saturation)
    t = value * (1 - (1 - part) * saturation)
    options = torch.stack([value, t, p, q], 1)  # RGB per sector of the hue: vtp, qvp, pvt, pqv, tpv, vpq
    choice = torch.tensor([[0, 3, 2, 2, 1, 0], [1, 0, 0, 3, 2, 2], [2, 2, 1, 0, 0, 3]], device=hue.device)
    return options.gather(1, choice[:, sector.long() % 6].transpose(0, 1))


# --- resolution -------------------------------------------------------------------------------------------------------


def jpeg_compression(x, quality, draws):
    return jpeg(x, quality)


def pixelate(x, c, draws):
    size = x.shape[-1]
    return box_resize(box_resize(x, int(size * c)), size)


def box_resize(x, size):
    """Resize as PIL does with BOX: columns, then rows, each rounded to uint8."""
    matrix, x = _box(x.shape[-1], size, x.device), x.float()
    for _ in range(2):
        x = (columns(x, matrix) + 0.5).floor()
    return x.to(torch.uint8)


@lru_cache
def _box(size, new, device):
    """Return the matrix along one axis: each output pixel averages the one or two input pixels whose centres lie in its
    box, with equal weights."""
    scale = max(size / new, 1)
    place = np.arange(size) + 0.5 - (np.arange(new)[:, None] + 0.5) * (size / new)
    inside = (place / scale > -0.5) & (place / scale <= 0.5)
    return torch.from_numpy(inside / inside.sum(1, keepdims=True)).float().to(device)


# --- elastic ----------------------------------------------------------------------------------------------------------


def elastic_transform(x, c, draws):
    alpha, sigma, jitter = c
    size = x.shape[-1]
    corners = (2 * draws.uniform("jitter", 3, 2) - 1) * jitter
    warped = affine(x, corners.float())
    fields = gaussian(draws.field(2, size, size), sigma, 3.0, "reflect") * alpha
    across, down = fields.float().unbind(1)
    return shift(warped, across, down)


def affine(x, corners):
    """Apply OpenCV's warpAffine for the map that moves three points by `corners`. Return packed channels in units of
    1/1024 grey level.

    OpenCV rounds the source coordinate to 1/32 pixel in fixed point, and reflects at the border without repeating it.
    """
    inverse = _inverse_affine(corners, x.shape[-1])[..., None, None]
    line = torch.arange(x.shape[-1], device=x.device, dtype=torch.float64)
    steps = (inverse[:, :, 0] * line * 1024).round()
    starts = ((inverse[:, :, 1] * line[:, None] + inverse[:, :, 2]) * 1024).round() + 16
    column, row = ((steps + starts).int() >> 5).unbind(1)
    right, down = column & 31, row & 31
    return sum(
        weight * value for value, weight in _corners(pack(x), row >> 5, column >> 5, down, right, 32, "reflect101")
    )


def _inverse_affine(corners, size):
    """Return (N, 2, 3) matrices that map a destination (x, y, 1) to the x and y of its source."""
    centre, arm = size // 2, size // 3
    fixed = torch.tensor([[1, 1], [1, -1], [-1, -1]], device=corners.device) * arm + centre
    a, b, c = (fixed + corners).double().unbind(1)  # the sum is rounded to float32 first, as in the reference
    (m0, m3), (m1, m4) = divide(b - c, 2 * arm).T, divide(a - b, 2 * arm).T
    m2, m5 = (a - (torch.stack([m0 + m1, m3 + m4], 1) * (centre + arm))).T
    scale = 1 / (m0 * m4 - m1 * m3)
    n0, n1, n3, n4 = m4 * scale, -m1 * scale, -m3 * scale, m0 * scale
    rows = [n0, n1, -n0 * m2 - n1 * m5], [n3, n4, -n3 * m2 - n4 * m5]
    return torch.stack([torch.stack(row, 1) for row in rows], 1)


def shift(packed, across, down):
    """Apply scipy's map_coordinates of order 1 for a displacement field in pixels. The result is rounded to float32
    before it is truncated, as in the reference."""
    line = torch.arange(packed.shape[-1], device=packed.device)
    column, row = line + across.double(), line[:, None] + down.double()
    left, top = column.floor(), row.floor()
    right, down = column - left, row - top
    moved = sum(
        unpack(value) * weight[:, None]
        for value, weight in _corners(packed, top.int(), left.int(), down, right, 1, "reflect")
    )
    return truncate(divide(moved, 1024 * 255).float().clamp(0, 1) * 255)


def pack(x):
    """Pack three channels into one int64, 21 bits each, so that one gather and one multiplication serve all three."""
    red, green, blue = x.long().unbind(1)
    return red | green << 21 | blue << 42


def unpack(x):
    return torch.stack([(x >> by) & 0x1FFFFF for by in (0, 21, 42)], 1).double()


def _corners(x, row, column, down, right, unit, mode):
    """Yield the four neighbours of each (row, column) in (N, H, W) images, with their bilinear weights. `down` and
    `right` say how far the place is from (row, column), in parts of `unit`."""
    size, flat = x.shape[-1], x.flatten(1)
    rows = [(fold(row + i, size, mode) * size, weight) for i, weight in enumerate((unit - down, down))]
    columns = [(fold(column + i, size, mode), weight) for i, weight in enumerate((unit - right, right))]
    for start, by_row in rows:
        for place, by_column in columns:
            index = (start + place).flatten(1).long()
            yield flat.gather(1, index).view_as(x), by_row * by_column
