"""Spatter: drops of water or mud, by batched versions of OpenCV's Canny, distance transform and equalizeHist."""

from functools import reduce

import torch
from torch.nn import functional as F

from rbue.data.corruptions.exact import divide, extend, gaussian, to_unit, truncate, window

WATER, MUD = (175, 238, 238), (63, 42, 20)
UNIT = 2**16  # one pixel of distance in OpenCV's fixed point
# The steps of OpenCV's 5x5 distance mask (KNIGHT as in chess), and the largest distance.
STRAIGHT, DIAGONAL, KNIGHT, FAR = UNIT, round(1.4 * UNIT), round(2.1969 * UNIT), 20 * UNIT


def spatter(x, c, draws):
    loc, scale, sigma, threshold, strength, muddy = c
    layer = loc + scale * gaussian(draws.normal("layer", *x.shape[2:]), sigma)
    layer = torch.where(layer < threshold, 0, layer)
    colour = to_unit(torch.tensor(MUD if muddy else WATER, device=x.device)).view(1, 3, 1, 1)
    x = to_unit(x)
    if muddy:
        cover = mud(layer > threshold, strength)
        return truncate((x * (1 - cover) + colour * cover).clamp(0, 1) * 255)
    light = water(((layer * 255).int() & 0xFF).float()) * strength  # values above 255 wrap around, as in the reference
    return truncate(((x + light * colour).clamp(0, 1) * 255).nan_to_num())


def mud(wet, sigma):
    """Return the opacity of mud: the inner part of the blurred drops."""
    cover = gaussian(wet, sigma)[:, None]
    return torch.where(cover < 0.8, 0, cover)


def water(layer):
    """Return the light in [0, 1] that water drops reflect, (N, 1, H, W), from the embossed distance to their edges.

    `layer` holds integers from 0 to 255 as float32. If no drop reflects light, the result is NaN: the reference divides
    zero by zero there, and its image becomes black.
    """
    relief = equalize(divide(box_sum(edge_distance(canny(layer, 50, 150))), 9 * UNIT).int())
    wide = extend(relief, 1, "reflect101")
    emboss = {(-1, -1): -2, (-1, 0): -1, (0, -1): -1, (0, 0): 1, (0, 1): 1, (1, 0): 1, (1, 1): 2}
    relief = sum(weight * window(wide, 1, *place) for place, weight in emboss.items()).clamp(0, 255)
    light = (layer * divide(box_sum(relief), 9).round()).double()
    return (light / light.amax((1, 2), keepdim=True))[:, None]


def box_sum(x):
    """Return the sums of 3x3 pixels: nine times OpenCV's blur."""
    wide = extend(x, 1, "reflect101")
    wide = wide[:, :-2] + wide[:, 1:-1] + wide[:, 2:]
    return wide[..., :-2] + wide[..., 1:-1] + wide[..., 2:]


def canny(x, low, high):
    """Find edges as OpenCV does: Sobel, non-maximum suppression, hysteresis."""
    wide = extend(x, 1, "nearest")
    smooth, slope = wide[:, :-2] + 2 * wide[:, 1:-1] + wide[:, 2:], wide[:, 2:] - wide[:, :-2]
    across = (smooth[..., 2:] - smooth[..., :-2]).int()
    down = (slope[..., :-2] + 2 * slope[..., 1:-1] + slope[..., 2:]).int()
    size = across.abs() + down.abs()
    edge = _thinned(size, across, down) & (size > low)
    return _grown(edge & (size > high), edge)


def _thinned(size, across, down):
    """Apply non-maximum suppression along four directions of the gradient: 13573 / 2**15 is the tangent of 22.5°."""
    wide = F.pad(size, (1, 1, 1, 1))
    slope, tangent = down.abs() << 15, across.abs() * 13573
    level = (size > window(wide, 1, 0, -1)) & (size >= window(wide, 1, 0, 1))
    steep = (size > window(wide, 1, -1, 0)) & (size >= window(wide, 1, 1, 0))
    falling = (size > window(wide, 1, -1, -1)) & (size > window(wide, 1, 1, 1))
    rising = (size > window(wide, 1, -1, 1)) & (size > window(wide, 1, 1, -1))
    slanted = torch.where((across ^ down) < 0, rising, falling)
    is_steep = slope > tangent + (across.abs() << 16)
    return torch.where(slope < tangent, level, torch.where(is_steep, steep, slanted))


def _grown(strong, edge):
    """Apply hysteresis: keep the edges that are connected to a strong edge."""
    while True:
        wide = F.pad(strong, (1, 1, 1, 1))
        wide = wide[:, :-2] | wide[:, 1:-1] | wide[:, 2:]
        grown = edge & (wide[..., :-2] | wide[..., 1:-1] | wide[..., 2:])
        if torch.equal(grown, strong):
            return strong
        strong = grown


def edge_distance(edge):
    """Return OpenCV's 5x5 chamfer distance to the nearest edge, at most FAR, by one sweep down and one up.

    All values are integers, which float32 holds exactly.
    """
    distance = torch.where(edge, 0.0, float(FAR))
    return _sweep(_sweep(distance).flip(1, 2)).flip(1, 2)


def _sweep(distance):
    """Update the rows from top to bottom: each from the two rows above it, then from left to right."""
    wide = F.pad(distance, (2, 2, 2, 0), value=FAR)
    width = distance.shape[2]
    slope = torch.arange(width, device=distance.device) * float(STRAIGHT)
    for row in range(2, wide.shape[1]):
        second, first = wide[:, row - 2], wide[:, row - 1]
        straight, diagonal = first[:, 2:-2], _least(first[:, 1:-3], first[:, 3:-1])
        knight = _least(second[:, 1:-3], second[:, 3:-1], first[:, :-4], first[:, 4:])
        best = _least(wide[:, row, 2:-2], straight + STRAIGHT, diagonal + DIAGONAL, knight + KNIGHT)
        wide[:, row, 2:-2] = (best - slope).cummin(1).values + slope
    return wide[:, 2:, 2:-2]


def _least(*tensors):
    return reduce(torch.minimum, tensors)


def equalize(x):
    """Apply OpenCV's equalizeHist, in float32, to values up to 20. A constant image stays as it is."""
    count, flat = torch.zeros(len(x), 21, device=x.device), x.flatten(1).long()
    count.scatter_add_(1, flat, torch.ones_like(flat, dtype=count.dtype))
    first = count.gather(1, (count > 0).int().argmax(1, keepdim=True))
    rest = x[0].numel() - first
    scale = torch.full_like(rest, 255) / rest  # for 255 / rest, torch would multiply by the reciprocal of rest
    table = ((count.cumsum(1) - first) * scale).round().clamp(0, 255)
    table = torch.where(rest == 0, torch.arange(21.0, device=x.device), table)
    return table.gather(1, flat).view(x.shape)
