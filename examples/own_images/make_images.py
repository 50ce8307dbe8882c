"""Draw a folder of example images: bright discs and squares on a dark background.

python examples/own_images/make_images.py data/shapes
"""

import random
import sys
from pathlib import Path

from PIL import Image, ImageDraw

COUNTS = {"train": 200, "test": 50}  # images per class


def draw_image(kind, chance):
    """Draw one shape on a background of 48 × 40 pixels."""
    image = Image.new("RGB", (48, 40), tuple(chance.randrange(80) for _ in range(3)))
    left, top, side = chance.randrange(6, 18), chance.randrange(2, 12), chance.randrange(18, 25)
    pen, box = ImageDraw.Draw(image), (left, top, left + side, top + side)
    (pen.ellipse if kind == "disc" else pen.rectangle)(box, fill=tuple(chance.randrange(160, 256) for _ in range(3)))
    return image


def main(folder):
    chance = random.Random(0)
    for split, count in COUNTS.items():
        for kind in ("disc", "square"):
            place = Path(folder) / split / kind
            place.mkdir(parents=True, exist_ok=True)
            for k in range(count):
                draw_image(kind, chance).save(place / f"{k:03d}.png")


if __name__ == "__main__":
    main(sys.argv[1])
