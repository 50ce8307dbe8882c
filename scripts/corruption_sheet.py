"""Draw corrupted images: shot noise at every severity, and a sheet of all types. Needs torch.

python scripts/corruption_sheet.py --dataset digits --out outputs/demo/figures      # no download
python scripts/corruption_sheet.py --dataset cifar10 --data-dir data --image 1      # another test image on the sheet

Writes <out>/<dataset>-shot_noise and <out>/<dataset>-corruptions, each as .pdf and .webp.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs from a clone, without an install

import numpy as np
import torch

from rbue.cli import one_sentence_errors, parse_with_plugins
from rbue.data import load
from rbue.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from rbue.errors import UserError, within
from rbue.report.figures.style import canvas, save, styled
from rbue.report.rows import dataset_name
from rbue.runs.compose import size_of

GAP = 2  # white pixels between images


def at_severities(images, name, index, textures):
    """Return (6, N, H, W, 3): the clean images, then severities 1 to 5 as the suite evaluates them."""
    levels = [images, *(corrupt(images, name, severity, index, textures=textures) for severity in SEVERITIES)]
    return torch.stack(levels).permute(0, 1, 3, 4, 2).numpy()


def strip(images):
    """Join images side by side with white gaps, since one picture is drawn faster than six."""
    gap = np.full((images.shape[1], GAP, 3), 255, np.uint8)
    return np.concatenate([part for image in images for part in (image, gap)][:-1], axis=1)


def column(images):
    return np.concatenate([np.pad(row, ((0, GAP), (0, 0), (0, 0)), constant_values=255) for row in images])[:-GAP]


def show(axis, picture, size, labels, title):
    axis.imshow(picture, interpolation="nearest")
    axis.set_title(title, pad=3)
    centres = [size / 2 - 0.5 + k * (size + GAP) for k in range(len(labels))]
    axis.set(xticks=centres if labels else [], xticklabels=labels, yticks=[])
    axis.tick_params(length=0, pad=2)
    axis.spines[:].set_visible(False)
    axis.grid(visible=False)


@styled
def severity_figure(args, images, count=4):
    """Draw the paper's example: a few test images with shot noise of increasing severity from left to right."""
    index = torch.arange(args.image, args.image + count) % len(images)
    levels = at_severities(images[index], "shot_noise", index, args.textures)
    figure, axis = canvas(7, 7 * count / 6 + 0.5)
    picture = column([strip(levels[:, k]) for k in range(count)])
    title = f"{dataset_name(args.dataset)}: shot noise by severity"
    show(axis, picture, images.shape[-1], ["clean", *SEVERITIES], title)
    return figure


def type_strip(images, name, index, textures):
    """Return the five severities of a type side by side, or print why it cannot be drawn and return None."""
    try:
        return strip(at_severities(images[index], name, index, textures)[1:, 0])
    except UserError as refused:
        print(f"without {name}: {refused}")
        return None


@styled
def sheet_figure(args, images):
    """Draw one strip per type with severities 1 to 5, and the clean image last."""
    index, size = torch.tensor([args.image]), images.shape[-1]
    pictures = {name: type_strip(images, name, index, args.textures) for name in CORRUPTIONS}
    drawn = {name.replace("_", " "): picture for name, picture in pictures.items() if picture is not None}
    drawn["clean"] = strip(images[index].permute(0, 2, 3, 1).numpy())
    lines = -(-len(drawn) // 2)
    figure, axes = canvas(7, 0.82 * lines + 0.5, nrows=lines, ncols=2)
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, (name, picture) in zip(axes.T.flat, drawn.items(), strict=False):
        show(axis, picture, size, [], name)
    without = [name for name, picture in pictures.items() if picture is None]
    missing = f" (without {', '.join(without)})" if without else ""
    figure.suptitle(f"{dataset_name(args.dataset)}, test image {args.image}: severities 1 to 5{missing}")
    return figure


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits", help="name of the dataset (default: %(default)s)")
    parser.add_argument("--data-dir", default="data", help="folder of the datasets (default: %(default)s)")
    parser.add_argument("--size", type=int, help="pixels per side of your own images (default: size in the YAML)")
    parser.add_argument(
        "--out", type=Path, default="results/figures", help="folder of the figures (default: %(default)s)"
    )
    parser.add_argument("--image", type=int, default=0, help="which test image is on the sheet (default: %(default)s)")
    parser.add_argument(
        "--textures", type=Path, help="folder with frost1 to frost5 (default: package imagecorruptions)"
    )
    return parse_with_plugins(parser, argv)


def main(argv=None):
    args = arguments(argv)
    images = load(args.dataset, args.data_dir, size_of(args.dataset, args.size)).test_images
    within(0, len(images) - 1, image=args.image)
    for name, figure in (("shot_noise", severity_figure), ("corruptions", sheet_figure)):
        paths = save(figure(args, images), args.out / f"{args.dataset}-{name}", photographs=True)
        print(f"{paths[0].with_suffix('')}.{{pdf,webp}}")


if __name__ == "__main__":
    with one_sentence_errors():
        main()
