"""Compare the speed of the suite with plain PyTorch code, on any hardware. Both are measured in the same run.

python scripts/benchmark.py                      # = make benchmark; a CPU measures the small network only
python scripts/benchmark.py --only layers        # one part; the part `reading` runs only if it is named
python scripts/benchmark.py --archs vgg13        # other networks; training and packing are measured for all of them
python scripts/benchmark.py --only training packing --dataset tinyimagenet    # with images of 64 × 64 pixels
python scripts/benchmark.py --only reading --dataset tinyimagenet    # the first and the second start on real files

Images are random bytes, since the speed does not depend on their content. Their shape is CIFAR-10's unless --dataset
names another dataset. fp32 is PyTorch's default: convolutions use TF32 if the GPU supports it. Each number is the
median of several repeats after a warm-up. The table is written to results/benchmarks/<hardware>.json, .pdf and .svg.
"""

import argparse
import gc
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs from a clone, without an install
gc.set_threshold(10_000)  # as train.py does

import torch

from rbue import networks
from rbue.benchmark.measure import Bench
from rbue.benchmark.parts import FOR_ALL_NETWORKS, PARTS, USUAL
from rbue.benchmark.processes import first_step
from rbue.cli import one_sentence_errors
from rbue.data import DATASETS
from rbue.errors import UserError, out_of_memory
from rbue.runs import devices, provenance


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = ["resnet18", "vgg13", "densenet121"] if torch.cuda.is_available() else ["small"]
    downloaded = [name for name, source in DATASETS.items() if source.url]
    parser.add_argument(
        "--archs",
        nargs="+",
        default=usual,
        choices=list(networks.ARCHS),
        help=f"networks to measure (default: {' '.join(usual)})",
    )
    parser.add_argument(
        "--only", nargs="+", default=USUAL, choices=list(PARTS), help="parts to measure (default: all but reading)"
    )
    parser.add_argument(
        "--dataset", default="cifar10", choices=downloaded, help="dataset that sets the image size (default: cifar10)"
    )
    parser.add_argument("--data-dir", default="data", help="folder of the files that `reading` needs (default: data)")
    parser.add_argument("--quick", action="store_true", help="repeat less often, and write no file")
    parser.add_argument("--first-step", metavar="ARCH", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv=None):
    args = arguments(argv)
    if args.first_step:
        return first_step(args.first_step, args.dataset)
    provenance.at_start()
    device = devices.choose("auto")
    bench = Bench(device, args.quick or device.type == "cpu", args.dataset, args.data_dir)
    for part in args.only:
        for arch in args.archs if part in FOR_ALL_NETWORKS else args.archs[:1]:
            began = time.perf_counter()
            measure(part, bench, arch)
            print(f"({part}, {arch}: {time.perf_counter() - began:.0f} s)", flush=True)
            content, message = save(bench.content(), args.quick)
    from rbue.report.benchmark import table

    print(f"\n{table(content)}\n\n{message}")


def measure(part, bench, arch):
    try:
        PARTS[part](bench, arch)
    except torch.OutOfMemoryError as error:
        way_out = f"end other programs that use it, or leave {arch} out of --archs"
        raise UserError(out_of_memory(error, way_out)) from error


def save(content, quick):
    """Save after every part, so that an interruption loses one part at most."""
    if quick:
        return content, "--quick writes no file"
    from rbue.report.benchmark import store  # imported here, since matplotlib would slow the measured start

    content, path = store(content, "results/benchmarks")
    return content, f"wrote {path} and its figure"


if __name__ == "__main__":
    with one_sentence_errors():
        main()
