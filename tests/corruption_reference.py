"""Plain definitions of the 19 corruptions, one image at a time, with numpy, scipy, OpenCV, skimage and PIL.

Each is f(image, c, draw): a uint8 (H, W, 3) array, the constants of one severity, and a source of random numbers. With
numpy's generator (`Numpy`) they draw as hendrycks/robustness does. With `Replay` they use the draws of the batched
versions, so that the two can be compared pixel by pixel.
"""

from io import BytesIO

import cv2
import numpy as np
import torch
from PIL import Image
from scipy import ndimage
from skimage import color, util

from rbue.data.corruptions import weather


class Numpy:
    """Draws from numpy's generator."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def normal(self, stream, shape):
        return self.rng.normal(size=shape)

    def uniform(self, stream, shape):
        return self.rng.uniform(size=shape)

    def below(self, stream, n, shape):
        return self.rng.integers(0, n, shape)

    def field(self, shape):
        return self.rng.uniform(-1, 1, shape)


class Replay:
    """The batched generator's draws for image `row`."""

    def __init__(self, draws, row):
        self.draws, self.row = draws, row

    def normal(self, stream, shape):
        return self.draws.normal(stream, *shape)[self.row].numpy()

    def uniform(self, stream, shape):
        return self.draws.uniform(stream, *shape)[self.row].numpy()

    def below(self, stream, n, shape):
        return self.draws.below(stream, torch.as_tensor(n), *shape)[self.row].numpy()

    def field(self, shape):
        return self.draws.field(*shape)[self.row].numpy()


def gaussian(x, sigma, truncate=4.0, mode="nearest"):
    """skimage.filters.gaussian with channels last."""
    sigmas = (sigma, sigma, 0) if x.ndim == 3 else (sigma, sigma)
    return ndimage.gaussian_filter(np.asarray(x, float), sigmas, mode=mode, truncate=truncate)


# --- noise ------------------------------------------------------------------------------------------------------------


def gaussian_noise(x, c, draw):
    x = x / 255.0
    return np.clip(x + c * draw.normal("byte", x.shape), 0, 1) * 255


def shot_noise(x, c, draw):
    return np.clip(draw.rng.poisson(x / 255.0 * c) / c, 0, 1) * 255


def impulse_noise(x, c, draw):
    return util.random_noise(x / 255.0, mode="s&p", amount=c, rng=draw.rng) * 255


def speckle_noise(x, c, draw):
    x = x / 255.0
    return np.clip(x + x * c * draw.normal("byte", x.shape), 0, 1) * 255


# --- blur -------------------------------------------------------------------------------------------------------------


def gaussian_blur(x, c, draw):
    return np.clip(gaussian(x / 255.0, c), 0, 1) * 255


def glass_blur(x, c, draw):
    sigma, reach, iterations = c
    size = len(x)
    x = np.uint8(gaussian(x / 255.0, sigma) * 255)
    shifts = draw.below("shift", 2 * reach, (iterations, 2, size, size)) - reach
    for step in range(iterations):
        for h in range(size - reach, reach, -1):
            for w in range(size - reach, reach, -1):
                dx, dy = shifts[step, :, h, w]
                x[h, w], x[h + dy, w + dx] = x[h + dy, w + dx], x[h, w]  # views: the second copies back the first
    return np.clip(gaussian(x / 255.0, sigma), 0, 1) * 255


def defocus_blur(x, c, draw):
    radius, alias = c
    line = np.arange(-8, 9)
    disk = np.float32(line[:, None] ** 2 + line**2 <= radius**2)
    kernel = cv2.GaussianBlur(disk / disk.sum(), (3, 3), alias)
    return np.clip(cv2.filter2D(x / 255.0, -1, kernel), 0, 1) * 255


def imagemagick(x, angle, radius, sigma):
    """ImageMagick's MotionBlurImage on 8-bit pixels: every output pixel sums its taps, each clamped into the image."""
    taps = np.arange(2 * radius + 1)
    weights = np.exp(-(taps**2) / (2.0 * sigma**2))
    weights /= weights.sum()
    across = np.ceil(taps * np.cos(np.deg2rad(angle)) - 0.5).astype(int)
    down = np.ceil(taps * np.sin(np.deg2rad(angle)) - 0.5).astype(int)
    rows, columns = np.mgrid[: x.shape[0], : x.shape[1]]
    out = np.zeros(x.shape)
    for weight, dx, dy in zip(weights, across, down, strict=True):
        out += weight * x[np.clip(rows + dy, 0, len(x) - 1), np.clip(columns + dx, 0, x.shape[1] - 1)]
    return np.floor(out + 0.5)


def motion_blur(x, c, draw):
    return imagemagick(x, 90 * draw.uniform("angle", (1,))[0] - 45, *c)


def clipped_zoom(x, factor):
    size = len(x)
    inner = int(np.ceil(size / factor))
    top = (size - inner) // 2
    x = ndimage.zoom(x[top : top + inner, top : top + inner], (factor, factor, 1), order=1)
    trim = (len(x) - size) // 2
    return x[trim : trim + size, trim : trim + size]


def zoom_blur(x, c, draw):
    x = (x / 255.0).astype(np.float32)
    factors = np.arange(*c)
    total = np.zeros_like(x)
    for factor in factors:
        total += clipped_zoom(x, factor)
    return np.clip((x + total) / (len(factors) + 1), 0, 1) * 255


# --- weather ----------------------------------------------------------------------------------------------------------


def snow(x, c, draw):
    loc, scale, zoom, threshold, radius, sigma, blend = c
    x = np.float32(x) / 255
    layer = clipped_zoom(loc + scale * draw.normal("layer", x.shape[:2])[..., None], zoom)[..., 0]
    layer[layer < threshold] = 0
    layer = np.uint8(np.clip(layer, 0, 1) * 255)
    layer = imagemagick(layer, 90 * draw.uniform("angle", (1,))[0] - 135, radius, sigma)[..., None] / 255
    grey = cv2.cvtColor(x, cv2.COLOR_RGB2GRAY)[..., None]
    x = blend * x + (1 - blend) * np.maximum(x, grey * 1.5 + 0.5)
    return np.clip(x + layer + np.rot90(layer, 2), 0, 1) * 255


def frost(x, c, draw):
    name = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")[draw.below("texture", 5, (1,))[0]]
    texture = cv2.imread(str(weather._texture_folder(None) / name))
    scale = {32: 0.2, 64: 0.3}[len(x)]
    texture = cv2.resize(texture, (0, 0), fx=scale, fy=scale)
    row, column = draw.below("crop", np.array(texture.shape[:2]) - len(x), (2,))
    return np.clip(c[0] * x + c[1] * texture[row : row + len(x), column : column + len(x), ::-1], 0, 255)


def plasma(uniform, decay):
    """Diamond-square, point by point: a square's middle from its corners, an edge's middle from four sides."""
    size, wibble = len(uniform), 100.0
    field, step = np.zeros((size, size)), size
    while step >= 2:
        half = step // 2
        noise = wibble * (2 * wibble * uniform - wibble)

        def fill(row, column, sides, noise=noise):
            field[row, column] = sum(field[r % size, c % size] for r, c in sides) / 4 + noise[row, column]

        for r in range(half, size, step):
            for c in range(half, size, step):
                fill(r, c, [(r - half, c - half), (r - half, c + half), (r + half, c - half), (r + half, c + half)])
        for r in range(0, size, half):
            for c in range(half if r % step == 0 else 0, size, step):
                fill(r, c, [(r - half, c), (r + half, c), (r, c - half), (r, c + half)])
        step, wibble = half, wibble / decay
    field -= field.min()
    return field / field.max()


def fog(x, c, draw):
    x = x / 255.0
    peak = x.max()
    x = x + c[0] * plasma(draw.uniform("layer", x.shape[:2]), c[1])[..., None]
    return np.clip(x * peak / (peak + c[0]), 0, 1) * 255


def spatter(x, c, draw):
    loc, scale, sigma, threshold, strength, muddy = c
    x = np.float32(x) / 255
    layer = gaussian(loc + scale * draw.normal("layer", x.shape[:2]), sigma)
    layer[layer < threshold] = 0
    if muddy:
        cover = gaussian(layer > threshold, strength)
        cover[cover < 0.8] = 0
        mud = np.float32([63, 42, 20]) / 255
        return np.clip(x * (1 - cover[..., None]) + mud * cover[..., None], 0, 1) * 255
    layer = (layer * 255).astype(np.int64).astype(np.uint8)
    distance = cv2.distanceTransform(255 - cv2.Canny(layer, 50, 150), cv2.DIST_L2, 5)
    distance = cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8)
    relief = cv2.filter2D(cv2.equalizeHist(distance), cv2.CV_8U, np.float32([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]))
    light = layer * cv2.blur(relief, (3, 3)).astype(np.float32)
    with np.errstate(invalid="ignore"):
        light = light / light.max() * strength
    water = np.float32([175, 238, 238]) / 255
    return np.nan_to_num(np.clip(x + light[..., None] * water, 0, 1) * 255)


# --- digital ----------------------------------------------------------------------------------------------------------


def contrast(x, c, draw):
    x = x / 255.0
    mean = x.mean((0, 1), keepdims=True)
    return np.clip((x - mean) * c + mean, 0, 1) * 255


def brightness(x, c, draw):
    hsv = color.rgb2hsv(x / 255.0)
    hsv[..., 2] = np.clip(hsv[..., 2] + c, 0, 1)
    return np.clip(color.hsv2rgb(hsv), 0, 1) * 255


def saturate(x, c, draw):
    hsv = color.rgb2hsv(x / 255.0)
    hsv[..., 1] = np.clip(hsv[..., 1] * c[0] + c[1], 0, 1)
    return np.clip(color.hsv2rgb(hsv), 0, 1) * 255


def jpeg_compression(x, c, draw):
    file = BytesIO()
    Image.fromarray(x).save(file, "JPEG", quality=c)
    return np.array(Image.open(file))


def pixelate(x, c, draw):
    small = int(len(x) * c)
    image = Image.fromarray(x).resize((small, small), Image.Resampling.BOX)
    return np.array(image.resize((len(x), len(x)), Image.Resampling.BOX))


def warp_affine(x, matrix):
    """cv2.warpAffine as it was when the datasets were made: source coordinates rounded to 1/32 pixel, mirrored border.

    OpenCV 5 interpolates without that rounding.
    """
    size = len(x)
    inverse = cv2.invertAffineTransform(matrix)
    line = np.arange(size)
    steps = [np.rint(a * line * 1024) for a, _, _ in inverse]
    starts = [np.rint((b * line[:, None] + c) * 1024) for _, b, c in inverse]
    maps = [np.float32(((step + start).astype(int) + 16 >> 5) / 32) for step, start in zip(steps, starts, strict=True)]
    return cv2.remap(x, *maps, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)


def elastic_transform(x, c, draw, warp=warp_affine):
    alpha, sigma, jitter = c
    size = len(x)
    x = np.float32(x) / 255
    middle, arm = size // 2, size // 3
    before = np.float32([[middle + arm, middle + arm], [middle + arm, middle - arm], [middle - arm, middle - arm]])
    after = before + np.float32((2 * draw.uniform("jitter", (3, 2)) - 1) * jitter)
    x = warp(x, cv2.getAffineTransform(before, after))
    across, down = (np.float32(gaussian(field, sigma, 3.0, "reflect") * alpha) for field in draw.field((2, size, size)))
    rows, columns = np.mgrid[:size, :size]
    place = [rows + down, columns + across]
    moved = [ndimage.map_coordinates(x[..., i], place, order=1, mode="reflect") for i in range(3)]
    return np.clip(np.stack(moved, -1), 0, 1) * np.float32(255)


def reference(image, name, c, draw):
    """Apply the plain definition to one image and truncate to uint8, as in the published datasets."""
    return np.uint8(globals()[name](image, c, draw))
