"""JPEG compression: libjpeg on a CPU, and a batched computation of the same bytes on a GPU.

Huffman coding, the serial part of JPEG, is lossless. So a GPU computes only the lossy part: YCbCr, chroma subsampling,
integer DCT and quantisation, and their inverses. A test compares the result with libjpeg byte for byte.
"""

from functools import lru_cache
from io import BytesIO

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

LUMA = """16 11 10 16 24 40 51 61 12 12 14 19 26 58 60 55 14 13 16 24 40 57 69 56 14 17 22 29 51 87 80 62
          18 22 37 56 68 109 103 77 24 35 55 64 81 104 113 92 49 64 78 87 103 121 120 101 72 92 95 98 112 100 103 99"""
CHROMA = """17 18 24 47 99 99 99 99 18 21 26 66 99 99 99 99 24 26 56 99 99 99 99 99 47 66 99 99 99 99 99 99
            99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99 99"""


def jpeg(x, quality):
    return codec(x, quality) if x.device.type == "cpu" else batched(x, quality)


def codec(x, quality):
    """Encode and decode with PIL's libjpeg, one image at a time, as the reference does."""
    return torch.stack([_through_pil(image, quality) for image in x.movedim(1, -1).numpy()])


def _through_pil(image, quality):
    file = BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return torch.from_numpy(np.array(Image.open(file))).movedim(-1, 0)


def batched(x, quality):
    """Compute the same bytes without encoding. Height and width must be multiples of 16."""
    red, green, blue = x.int().unbind(1)
    luma = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
    chroma = torch.stack([32768 * blue - 11059 * red - 21709 * green, 32768 * red - 27439 * green - 5329 * blue], 1)
    chroma = _halved((chroma + (128 << 16) + 32767) >> 16)
    luma, chroma = (_quantised(part, table, quality) for part, table in ((luma, LUMA), (chroma, CHROMA)))
    cb, cr = (_doubled(chroma) - 128).unbind(1)
    red = luma + ((91881 * cr + 32768) >> 16)
    green = luma + ((-22554 * cb - 46802 * cr + 32768) >> 16)
    blue = luma + ((116130 * cb + 32768) >> 16)
    return torch.stack([red, green, blue], 1).clamp(0, 255).to(torch.uint8)


def _halved(x):
    """Return the means of 2x2 pixels. As in libjpeg, halves round down in even columns and up in odd ones."""
    total = x[..., ::2, ::2] + x[..., ::2, 1::2] + x[..., 1::2, ::2] + x[..., 1::2, 1::2]
    return (total + 1 + torch.arange(total.shape[-1], device=x.device) % 2) >> 2


def _doubled(x):
    """Upsample as libjpeg's "fancy upsampling": 3/4 of the nearest pixel plus 1/4 of the next, with repeated edges."""
    wide = F.pad(x.float(), (1, 1, 1, 1), mode="replicate").int()
    rows = torch.stack([3 * wide[..., 1:-1, :] + wide[..., :-2, :], 3 * wide[..., 1:-1, :] + wide[..., 2:, :]], -2)
    rows = rows.flatten(-3, -2)
    left, right = 3 * rows[..., 1:-1] + rows[..., :-2] + 8, 3 * rows[..., 1:-1] + rows[..., 2:] + 7
    return torch.stack([left >> 4, right >> 4], -1).flatten(-2)


def _quantised(x, table, quality):
    """Apply the integer DCT to 8x8 blocks, quantise the coefficients, and transform them back."""
    *lead, height, width = x.shape
    step = _steps(table, quality, x.device)
    blocks = (x - 128).view(*lead, height // 8, 8, width // 8, 8).transpose(-3, -2).double()
    dct = _dct(x.device)
    spectrum = _shifted(_shifted(blocks @ dct.T, 11).mT @ dct.T, 15).mT
    level = torch.floor((spectrum.abs() + 4 * step) / (8 * step)) * spectrum.sign()  # the DCT is scaled by 8
    blocks = _shifted(_shifted((level * step).mT @ dct, 11).mT @ dct, 18)
    return blocks.transpose(-3, -2).reshape(x.shape).int().add(128).clamp(0, 255)


def _shifted(x, by):
    """Return x / 2**by, rounded with halves up; this is exact in float64."""
    return torch.floor(x * 2.0**-by + 0.5)


@lru_cache
def _steps(table, quality, device):
    """Return the standard quantisation table, scaled by the quality as in libjpeg."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    base = np.array(table.split(), dtype=np.int64).reshape(8, 8)
    return torch.from_numpy(((base * scale + 50) // 100).clip(1, 255)).double().to(device)


@lru_cache
def _dct(device):
    """Return libjpeg's accurate integer DCT with 13 fractional bits as one matrix: its butterflies, multiplied out."""
    sums, differences = np.hstack([np.eye(4), np.eye(4)[:, ::-1]]), np.hstack([np.eye(4), -np.eye(4)[:, ::-1]])
    whole, wide, narrow = 8192, (10703, 10704), 4433  # cosine constants; libjpeg rounds the second in two ways
    even = [
        [whole, whole, whole, whole],
        [wide[0], narrow, -narrow, -wide[0]],
        [whole, -whole, -whole, whole],
        [narrow, -wide[1], wide[1], -narrow],
    ]
    t7, t6, t5, t4 = np.eye(4)
    all_four = 9633 * np.ones(4)
    odd = [
        12299 * t7 - 7373 * (t4 + t7) - 3196 * (t5 + t7) + all_four,
        25172 * t6 - 20995 * (t5 + t6) - 16069 * (t4 + t6) + all_four,
        16819 * t5 - 20995 * (t5 + t6) - 3196 * (t5 + t7) + all_four,
        2446 * t4 - 7373 * (t4 + t7) - 16069 * (t4 + t6) + all_four,
    ]
    matrix = np.empty((8, 8))
    matrix[::2], matrix[1::2] = np.array(even) @ sums, np.array(odd) @ differences
    return torch.from_numpy(matrix).to(device)
