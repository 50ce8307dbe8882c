"""The constants of the 19 corruptions: one tuple of five severities per type, in the official order of the types.

They are from hendrycks/robustness at 8190fe3, ImageNet-C/create_c: CIFAR from make_cifar_c.py (32x32), TINY from
make_tinyimagenet_c.py (64x64). The comments in CIFAR say what the numbers mean.
"""

CIFAR = {
    # standard deviation, for pixels in [0, 1]
    "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.1),
    # photons c of a white pixel: poisson(x * c) / c
    "shot_noise": (500, 250, 100, 75, 50),
    # fraction of bytes that become salt or pepper
    "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),
    # radius of the disk, sigma of the Gaussian that smooths the disk
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    # sigma, largest shift in pixels, iterations
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    # radius, sigma of ImageMagick's motion blur; angle U(-45, 45)
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    # start, stop, step of np.arange, whose rounding errors give 7, 12, 16, 21, 26 zooms
    "zoom_blur": ((1.0, 1.06, 0.01), (1.0, 1.11, 0.01), (1.0, 1.16, 0.01), (1.0, 1.21, 0.01), (1.0, 1.26, 0.01)),
    # loc, scale, zoom, threshold, motion radius, motion sigma, blend; angle U(-135, -45)
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    # weight of the image, weight of the frost
    "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    # strength, decay of the plasma fractal's roughness
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    # added to V of HSV
    "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),
    # factor of the distance to each channel's mean
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
    # alpha, sigma, jitter of the affine map's corners, all in pixels
    "elastic_transform": ((0, 0, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92), (3.2, 1.28, 1.6), (3.2, 0.96, 0.96)),
    # the smaller size, as a fraction of the image size
    "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),
    # JPEG quality
    "jpeg_compression": (80, 65, 58, 50, 40),
    # sigma: x + x * N(0, c)
    "speckle_noise": (0.06, 0.1, 0.12, 0.16, 0.2),
    # sigma
    "gaussian_blur": (0.4, 0.6, 0.7, 0.8, 1),
    # loc, scale, sigma, threshold, strength (water) or second sigma (mud), 0 water / 1 mud
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    # a, b: S of HSV becomes a * S + b
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
}

TINY = {
    "gaussian_noise": (0.04, 0.08, 0.12, 0.15, 0.18),
    "shot_noise": (250, 100, 50, 30, 15),
    "impulse_noise": (0.01, 0.02, 0.05, 0.08, 0.14),
    "defocus_blur": ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
    "glass_blur": ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
    "motion_blur": ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
    "zoom_blur": ((1.0, 1.06, 0.01), (1.0, 1.11, 0.01), (1.0, 1.16, 0.01), (1.0, 1.21, 0.01), (1.0, 1.26, 0.01)),
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.8),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.8),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
    ),
    "frost": ((1, 0.3), (0.9, 0.4), (0.8, 0.45), (0.75, 0.5), (0.7, 0.55)),
    "fog": ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
    "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),
    "contrast": (0.4, 0.3, 0.2, 0.1, 0.05),
    "elastic_transform": ((0, 0, 5.12), (3.2, 19.2, 3.84), (6.4, 5.12, 3.84), (6.4, 1.92, 1.92), (10.24, 1.92, 1.28)),
    "pixelate": (0.9, 0.8, 0.7, 0.6, 0.5),
    "jpeg_compression": (65, 58, 50, 40, 25),
    "speckle_noise": (0.15, 0.2, 0.25, 0.3, 0.35),
    "gaussian_blur": (0.5, 0.75, 1, 1.25, 1.5),
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.6, 0),
        (0.65, 0.1, 0.8, 0.7, 0.6, 0),
        (0.65, 0.3, 1, 0.69, 0.6, 0),
        (0.65, 0.1, 0.7, 0.68, 0.6, 1),
        (0.65, 0.1, 0.5, 0.67, 0.6, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
}

TYPES = tuple(CIFAR)  # the main 15, then the extra 4
CONSTANTS = {32: CIFAR, 64: TINY}  # by pixels per side
FROST_SCALE = {32: 0.2, 64: 0.3}  # by which the frost textures are resized before they are cropped
