"""Draw a folder of images to play with: discs and squares of random colour, size and place. Yours may be photographs.

python examples/own_images/make_images.py data/shapes
"""

import random
import sys
from pathlib import Path

from PIL import Image, ImageDraw

COUNTS = {"train": 200, "test": 50}  # of each class


def draw_image(kind, chance):
    """One shape on a 48 × 40 background."""
    image = Image.new("RGB", (48, 40), tuple(chance.randrange(256) for _ in range(3)))
    left, top, side = chance.randrange(4, 24), chance.randrange(2, 16), chance.randrange(10, 22)
    pen, box = ImageDraw.Draw(image), (left, top, left + side, top + side)
    (pen.ellipse if kind == "disc" else pen.rectangle)(box, fill=tuple(chance.randrange(256) for _ in range(3)))
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
