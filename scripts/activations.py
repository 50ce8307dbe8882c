"""Draw the random rectifiers of Section 3.2. The suite's own layers compute the curves. Needs torch.

python scripts/activations.py                                  # results/figures/activations, activations-network
python scripts/activations.py --q 0.5 --out outputs/figures    # another q
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs from a clone, without an install

import pandas as pd
import torch
from torch import nn

from rbue.cli import one_sentence_errors
from rbue.layers import DropReLU, RReLU
from rbue.report.figures.activations import UNITS, draw

DRAWS = UNITS[1] + UNITS[2]  # one draw per hidden unit in the figure of the network


def points(name, layer):
    """Return a layer's output over x, one line per draw. The seed is reset for each x, so each unit keeps its draw."""
    lines = []
    for x in torch.linspace(-2, 2, 41).tolist():
        torch.manual_seed(2)  # with this seed, two of eight draws at q = 0.8 are the identity
        y = layer(torch.full((1, DRAWS), x)).flatten()
        lines += [{"layer": name, "draw": k, "x": round(x, 6), "y": value} for k, value in enumerate(y.tolist())]
    return lines


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--q", type=float, default=0.8, help="DropReLU's q (default: %(default)s)")
    parser.add_argument(
        "--out", type=Path, default="results/figures", help="folder of the figures (default: %(default)s)"
    )
    args = parser.parse_args(argv)
    return args if 0 <= args.q <= 1 else parser.error(f"--q {args.q:g} is a probability: it must be between 0 and 1")


def main(argv=None):
    args = arguments(argv)
    layers = {"ReLU": nn.ReLU(), "DropReLU": DropReLU(args.q), "RReLU": RReLU()}
    frame = pd.DataFrame([point for name, layer in layers.items() for point in points(name, layer)])
    hyperparameters = {"q": args.q, "l": layers["RReLU"].l, "u": layers["RReLU"].u}
    for path in draw(frame, hyperparameters, args.out):
        if path.suffix == ".pdf":
            print(f"{path.with_suffix('')}.{{pdf,svg}}")


if __name__ == "__main__":
    with one_sentence_errors():
        main()
