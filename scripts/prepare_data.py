"""Find, download and verify a dataset before the first run needs it.

python scripts/prepare_data.py cifar10 --data-dir data
python scripts/prepare_data.py mine --config-dir my_conf    # your own images in data/mine (docs/datasets.md)
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs without an install

from rbue.cli import one_sentence_errors, parse_with_plugins
from rbue.data import load
from rbue.errors import UserError
from rbue.runs.compose import size_of


def describe(dataset, data):
    height, width = data.train_images.shape[2:]
    counts = f"{len(data.train_images):,} training and {len(data.test_images):,} test images"
    mean, std = (" ".join(f"{x:.4f}" for x in stat.tolist()) for stat in (data.mean, data.std))
    return f"{dataset}: {counts}, {width} × {height}, {data.classes} classes ({data.source})\nmean {mean}, std {std}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="cifar10, cifar100, tinyimagenet, digits, or the name of your own dataset")
    parser.add_argument("--data-dir", default="data", help="folder of the datasets (default: %(default)s)")
    parser.add_argument("--size", type=int, help="pixels per side of your own images (default: size in the YAML)")
    with one_sentence_errors():
        args = parse_with_plugins(parser, None)
        if args.dataset.endswith("_c"):
            clean = args.dataset.removesuffix("_c")
            raise UserError(f"{args.dataset} needs no preparation of its own: prepare {clean} instead")
        data = load(args.dataset, args.data_dir, size_of(args.dataset, args.size))
        print(describe(args.dataset, data))


if __name__ == "__main__":
    main()
