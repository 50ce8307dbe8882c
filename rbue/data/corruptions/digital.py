"""Brightness, contrast, saturate, JPEG, pixelate and the elastic transform."""

from functools import lru_cache

import numpy as np
import torch

from rbue.data.corruptions.exact import columns, divide, fold, gaussian, to_unit, truncate
from rbue.data.corruptions.jpeg import jpeg

# --- colour -----------------------------------------------------------------------------------------------------------


def contrast(x, c, draws):
    """The mean from integers, so that it does not depend on an order of addition."""
    mean = divide(x.sum((2, 3), keepdim=True).double(), 255 * x[0, 0].numel())
    return truncate(((to_unit(x) - mean) * c + mean).clamp(0, 1) * 255)


def brightness(x, c, draws):
    hue, saturation, value = rgb_to_hsv(to_unit(x))
    return truncate(hsv_to_rgb(hue, saturation, (value + c).clamp(0, 1)) * 255)


def saturate(x, c, draws):
    hue, saturation, value = rgb_to_hsv(to_unit(x))
    return truncate(hsv_to_rgb(hue, (saturation * c[0] + c[1]).clamp(0, 1), value) * 255)


def rgb_to_hsv(rgb):
    """skimage's formulas in skimage's order of operations: truncation shows a difference in the last bit."""
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
    options = torch.stack([value, t, p, q], 1)  # by sector: vtp, qvp, pvt, pqv, tpv, vpq
    choice = torch.tensor([[0, 3, 2, 2, 1, 0], [1, 0, 0, 3, 2, 2], [2, 2, 1, 0, 0, 3]], device=hue.device)
    return options.gather(1, choice[:, sector.long() % 6].transpose(0, 1))


# --- resolution -------------------------------------------------------------------------------------------------------


def jpeg_compression(x, quality, draws):
    return jpeg(x, quality)


def pixelate(x, c, draws):
    size = x.shape[-1]
    return box_resize(box_resize(x, int(size * c)), size)


def box_resize(x, size):
    """PIL's resize with BOX: columns, then rows, each rounded to uint8."""
    matrix, x = _box(x.shape[-1], size, x.device), x.float()
    for _ in range(2):
        x = (columns(x, matrix) + 0.5).floor()
    return x.to(torch.uint8)


@lru_cache
def _box(size, new, device):
    """Each output pixel averages the input pixels whose centres its box holds: one or two, never a part of one."""
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
    """OpenCV's warpAffine by the map that moves three corners: packed channels in units of 1 / 1024 grey level.

    OpenCV rounds the source coordinate to 1/32 pixel in fixed point, and mirrors the border without repeating it.
    """
    inverse = _inverse_affine(corners, x.shape[-1])[..., None, None]
    line = torch.arange(x.shape[-1], device=x.device, dtype=torch.float64)
    steps = (inverse[:, :, 0] * line * 1024).round()
    starts = ((inverse[:, :, 1] * line[:, None] + inverse[:, :, 2]) * 1024).round() + 16
    column, row = ((steps + starts).int() >> 5).unbind(1)
    right, down = column & 31, row & 31
    return sum(
        weight * value
        for value, weight in _corners(pack(x), row >> 5, column >> 5, 32 - down, down, 32 - right, right, "reflect101")
    )


def _inverse_affine(corners, size):
    """(N, 2, 3): x and y of the source for a destination (x, y, 1)."""
    centre, arm = size // 2, size // 3
    fixed = torch.tensor([[1, 1], [1, -1], [-1, -1]], device=corners.device) * arm + centre
    a, b, c = (fixed + corners).double().unbind(1)  # float32 corners, as the reference's
    (m0, m3), (m1, m4) = divide(b - c, 2 * arm).T, divide(a - b, 2 * arm).T
    m2, m5 = (a - (torch.stack([m0 + m1, m3 + m4], 1) * (centre + arm))).T
    scale = 1 / (m0 * m4 - m1 * m3)
    n0, n1, n3, n4 = m4 * scale, -m1 * scale, -m3 * scale, m0 * scale
    rows = [n0, n1, -n0 * m2 - n1 * m5], [n3, n4, -n3 * m2 - n4 * m5]
    return torch.stack([torch.stack(row, 1) for row in rows], 1)


def shift(packed, across, down):
    """scipy's map_coordinates of order 1 by a field in pixels; the truncation goes by way of float32, as there."""
    line = torch.arange(packed.shape[-1], device=packed.device)
    column, row = line + across.double(), line[:, None] + down.double()
    left, top = column.floor(), row.floor()
    right, down = column - left, row - top
    moved = sum(
        unpack(value) * weight[:, None]
        for value, weight in _corners(packed, top.int(), left.int(), 1 - down, down, 1 - right, right, "reflect")
    )
    return truncate(divide(moved, 1024 * 255).float().clamp(0, 1) * 255)


def pack(x):
    """Three channels in one int64, 21 bits each: one gather and one multiplication serve all three."""
    red, green, blue = x.long().unbind(1)
    return red | green << 21 | blue << 42


def unpack(x):
    return torch.stack([(x >> by) & 0x1FFFFF for by in (0, 21, 42)], 1).double()


def _corners(x, row, column, up, down, left, right, mode):
    """The four neighbours of each (row, column) of (N, H, W) images, with their weights."""
    size, flat = x.shape[-1], x.flatten(1)
    rows = [(fold(row + i, size, mode) * size, weight) for i, weight in enumerate((up, down))]
    columns = [(fold(column + i, size, mode), weight) for i, weight in enumerate((left, right))]
    for start, by_row in rows:
        for place, by_column in columns:
            index = (start + place).flatten(1).long()
            yield flat.gather(1, index).view_as(x), by_row * by_column
