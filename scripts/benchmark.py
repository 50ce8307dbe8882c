"""Measure how fast the suite is, as ratios measured side by side in one run, on any hardware.

python scripts/benchmark.py                      # = make benchmark; a CPU measures the small network only
python scripts/benchmark.py --only layers        # one part; `reading` only runs if it is named
python scripts/benchmark.py --archs vgg13        # other networks; training and packing are measured for all of them
python scripts/benchmark.py --only training packing --dataset tinyimagenet    # with images of 64 × 64 pixels
python scripts/benchmark.py --only reading --dataset tinyimagenet    # the first and the second start on real files

Images are random bytes of CIFAR-10's shape or another dataset's, since the speed does not depend on their content. fp32
is PyTorch's default: convolutions use TF32 if the GPU can. Each number is the median of several repeats after a
warm-up. The table is written to results/benchmarks/<hardware>.json, .pdf and .svg.
"""

import argparse
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import cached_property, partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs from a clone, without an install
gc.set_threshold(10_000)  # as train.py does

import numpy as np
import torch
from hydra import compose
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from rbue import methods, networks, surgery
from rbue.cli import one_sentence_errors
from rbue.data import DATASETS, Data
from rbue.data.corruptions import SEVERITIES, TYPES, corrupt
from rbue.errors import UserError
from rbue.evaluation import evaluator
from rbue.layers import DropReLU, RReLU, Stem, StochasticLayer
from rbue.runs import devices, places, provenance, results
from rbue.runs.compose import own_hydra, parse, register_once
from rbue.training import capture
from rbue.training.step import Images, Step

PARTS = ("training", "packing", "layers", "prediction", "corruptions", "start")
EVERY = ("training", "packing")  # the parts that are measured for all networks
IMAGES = 50_000
TESTS = 10_000 if torch.cuda.is_available() else 500


class Textbook(StochasticLayer):
    """DropReLU or RReLU in the usual way: with a stored random mask, or with torch's own layer."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        if self.kind == "RReLU":
            return F.rrelu(x, training=True)
        kept = torch.bernoulli(torch.full_like(x, 0.9))
        return torch.where(x < 0, (1 - kept) * x, x)


class Plain(StochasticLayer):
    """A deterministic activation as a stochastic layer without noise: it shows what the rest costs by itself."""

    def __init__(self, activation=torch.relu):
        super().__init__()
        self.activation = activation

    def forward(self, x):
        return self.activation(x)


def make_data(classes=10, size=32):
    generator = np.random.default_rng(0)  # several times as fast as torch's, which would slow the measured start

    def images(count):
        pixels = generator.integers(256, size=(count, 3, size, size), dtype=np.uint8)
        return torch.from_numpy(pixels), torch.from_numpy(generator.integers(classes, size=count))

    return Data(*images(IMAGES), *images(TESTS), classes, torch.full((3,), 0.5), torch.full((3,), 0.25))


def make_run(*overrides):
    register_once()
    with own_hydra():
        return parse(compose("config", list(overrides)))


def seconds(functions, device, inner, repeats):
    """Median seconds per call of each function, measured in turns after a warm-up, so that a drifting clock is fair."""
    taken = [[clocked(function, device, inner) for function in functions] for _ in range(repeats + 1)]
    return [statistics.median(times[1:]) for times in zip(*taken, strict=True)]


def clocked(function, device, inner):
    devices.synchronize(device)
    start = time.perf_counter()
    for _ in range(inner):
        function()
    devices.synchronize(device)
    return (time.perf_counter() - start) / inner


@contextmanager
def pytorch_defaults():
    """Let cuDNN choose by heuristics, as in a paper's repository."""
    ours, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
    yield
    torch.backends.cudnn.benchmark = ours


class Bench:
    """Measure, and collect the rows of the table."""

    def __init__(self, device, quick, dataset="cifar10"):
        self.device, self.dataset, self.size = device, dataset, DATASETS[dataset].size
        self.batch = self.run().batch
        self.inner, self.repeats = (3, 3) if quick else (100, 5)
        self.gpu, self.rows, self.limit = device.type == "cuda", [], matmul_rate(device)

    @cached_property
    def data(self):
        return make_data(DATASETS[self.dataset].classes, self.size)

    @cached_property
    def images(self):
        return Images(self.data, 4, self.device)

    @property
    def held(self):
        """Bytes on the GPU now; they do not count for the next contestant."""
        return torch.cuda.memory_allocated() if self.gpu else 0

    def row(self, group, name, function, images, inner=None, before=0, **settings):
        if self.gpu:
            torch.cuda.reset_peak_memory_stats()
        (taken,) = seconds([function], self.device, inner or self.inner, self.repeats)
        self.add(group, name, taken, images, peak_memory_bytes=devices.peak_memory(self.device) - before, **settings)

    def race(self, group, images, runners, inner=None):
        """Add rows of (name, function, settings), measured in turns."""
        measured = seconds([function for _, function, _ in runners], self.device, inner or self.inner, self.repeats)
        for (name, _, settings), taken in zip(runners, measured, strict=True):
            self.add(group, name, taken, settings.pop("images", images), **settings)

    def add(self, group, name, taken, images, flops=0, against=None, scale=1.0, **more):
        taken *= scale
        made = {"group": group, "name": name, "ms": 1000 * taken, "images_per_second": images / taken, **more}
        made["share_of_limit"] = flops * images / taken / self.limit if flops else None
        made["against"], made["ratio"] = against, self.ratio(group, against, images / taken)
        self.rows.append(made)
        print(f"{group:16} {name:58} {1000 * taken:10.3f} ms {images / taken:12,.0f} images/s", flush=True)

    def ratio(self, group, against, speed):
        base = next((r for r in self.rows if r["group"] == group and r["name"] == against), None)
        return speed / base["images_per_second"] if base else None

    def run(self, *words):
        return make_run(f"dataset={self.dataset}", *words)

    def group(self, *words):
        """Return the name of a group of rows, with the size of the images before the last word if it is not CIFAR's."""
        size = [] if self.size == 32 else [f"{self.size}x{self.size}"]
        return " ".join([*words[:-1], *size, words[-1]])

    def flops(self, arch):
        return 3 * flops_of(arch, self.size)

    def step(self, run, layer=None):
        network = methods.build(run, self.data.classes, IMAGES)
        network = surgery.randomize(network, layer) if layer else network
        step = Step(run, network, self.images, self.device)
        step.shuffle(0)
        return step

    def training(self, arch):
        group, flops, few = self.group(arch, "train"), self.flops(arch), min(self.inner, 20)
        plain, held = "plain loop: fp32, eager, DataLoader", "the same loop, data on the device"
        with pytorch_defaults():
            before, loop = self.held, PlainLoop(arch, self.data, self.device, self.batch)
            common = {"images": self.batch, "flops": flops, "inner": few, "before": before}
            self.row(group, plain, loop.from_loader, **common)
            loop.batches.close()  # its workers must not compete with the next measurement
            self.row(group, held, loop.from_device, against=plain, **common)
        self.race(group, self.batch, [self.trained("ours", arch, 1, flops=flops, against=held)])

    def packing(self, arch):
        flops = self.flops(arch)
        one = self.trained("one model", arch, 1, flops=flops)
        four = self.trained("four models", arch, 4, flops=flops, against="one model")
        self.race(self.group(arch, "packed"), self.batch, [one, four])

    def trained(self, name, arch, models, layer=None, **settings):
        """Return a runner for one step of `models` networks. Its memory is the warm-up's: a replay allocates none."""
        before = self.held
        with devices.measured(self.device) as cost:
            steps = [self.step(self.run(f"arch={arch}", f"seed={seed}"), layer) for seed in range(models)]
            function, how = capture.accelerate(steps, self.device)
        settings |= {"engine": how, "peak_memory_bytes": cost["peak_memory_bytes"] - before}
        return name, function, settings | {"images": models * self.batch}

    def layers(self, arch):
        made = [
            self.trained(name, arch, 1, layer, against=None if name == "ReLU" else "ReLU")
            for name, layer in (
                ("ReLU", None),
                ("DropReLU, textbook (torch.bernoulli)", Textbook("DropReLU")),
                ("DropReLU", DropReLU(0.9)),
                ("RReLU, textbook (F.rrelu)", Textbook("RReLU")),
                ("RReLU", RReLU()),
                ("LeakyReLU: RReLU without its noise", Plain(RReLU().deterministic())),
            )
        ]
        self.race(self.group(arch, "layers"), self.batch, made)

    def prediction(self, arch, samples=100):
        group, passes, classes = self.group(arch, "predict"), 5, self.data.classes
        for where, position in (("everywhere", "all"), ("before the classifier", "last")):
            made = {
                kind: surgery.randomize(network, layer, position=position).to(self.device).eval()
                for kind, network, layer in (
                    ("plain", plain_network(arch, classes), Textbook("DropReLU")),
                    ("noise", networks.build(arch, classes), DropReLU(0.9)),
                    ("relu", networks.build(arch, classes), Plain()),
                )
            }
            plain, relu = f"{samples} fp32 eager passes, noise {where}", f"ours, ReLU in place of noise {where}"
            noise = f"ours, noise {where}"
            with pytorch_defaults():
                work = partial(self.passes, made["plain"], passes)
                self.row(group, plain, work, TESTS, inner=1, scale=samples / passes, before=self.held)
            runners = [
                self.predicted(relu, made["relu"], samples, plain),
                self.predicted(noise, made["noise"], samples, plain),
            ]
            self.race(group, TESTS, runners, inner=1)

    def passes(self, network, count):
        """Predict as a paper's repository does: the whole network once per sample, fp32, batches of 500."""
        with torch.no_grad():
            for _ in range(count):
                for x in self.pictures().split(500):
                    network(x).softmax(1)

    def pictures(self):
        return self.data.test_images.to(self.device).float().div(255)

    def predicted(self, name, network, samples, against):
        """Return a runner that predicts all test images with our evaluator."""
        run, before = self.run(f"samples={samples}", "method=dropreLU"), self.held
        batch = evaluator.batch_size(run, self.device)
        with devices.measured(self.device) as cost, torch.no_grad():
            images = self.pictures().to(evaluator.precision_of(run, self.device))
            draw_samples, how = evaluator.fast(network, samples, run, images[:batch], images.dtype)

        @torch.no_grad()
        def work():
            evaluator.evaluate([draw_samples], images, lambda x: x, batch)

        return name, work, {"against": against, "engine": how, "peak_memory_bytes": cost["peak_memory_bytes"] - before}

    def corruptions(self, _):
        """Compare our corruptions with the imagecorruptions package on one core, for the types it can still make."""
        if find_spec("imagecorruptions") is None:
            print("corruptions: no package to compare with: pip install -e '.[frost]'")
            return
        group, plain, before = self.group("corruptions"), "imagecorruptions, one core", self.held
        count = 5_000 if self.gpu else 500
        images, index = self.data.train_images[:count].to(self.device), torch.arange(count, device=self.device)
        theirs, cells = packages_own(self.data.train_images[:5])
        ours = partial(corrupt_all, images, index, [cell for cell in PAIRS if cell[0] in cells])
        common = {"images": 5 * len(cells), "inner": 1, "before": before}  # one image at every type and severity
        self.row(group, plain, theirs, scale=1 / 5, **common)
        same = f"ours, the same {len(cells)} types"
        self.row(group, same, ours, scale=1 / count, against=plain, **common)

    def reading(self, data_dir):
        """Measure how long real files take to read, each time in a new process: the first time, when images may have to
        be decoded, and the second time."""
        folder, source = data_dir.resolve() / self.dataset, DATASETS[self.dataset]
        if not (folder / source.layout).is_dir():
            raise UserError(f"{folder} holds no {source.layout}: make data DATASET={self.dataset} fetches it")
        with tempfile.TemporaryDirectory() as scratch:  # so that stored arrays are neither used nor replaced
            place = Path(scratch, self.dataset)
            place.mkdir()
            (place / source.layout).symlink_to(folder / source.layout)
            group, images, first = f"{self.dataset} reading", source.train + source.test, "first start"
            for name, against in ((first, None), ("second start", first)):
                taken, peak = read_once(self.dataset, scratch)
                self.add(group, name, taken, images, against=against, peak_memory_bytes=peak)

    def start(self, arch):
        """Measure seconds from the start of Python to the end of the first training step, each in a new process.

        Python's bytecode is cached before, as for an installed package.
        """
        with tempfile.TemporaryDirectory() as cache:
            env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": f"{cache}/triton"}
            env |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{cache}/bytecode"}
            modules = "import torch._inductor.compile_fx, torch._inductor.select_algorithm"
            for first in ([__file__, "--help"], ["-c", modules]):
                output_of(first, env=env)
            self.add_start(arch, "cold", [started(arch, self.dataset, env)])
            self.add_start(arch, "warm compile cache", [started(arch, self.dataset, env) for _ in range(3)])

    def add_start(self, arch, name, starts):
        """Add a row with the phases of the median start."""
        starts = sorted(starts, key=lambda phases: sum(phases.values()))
        every, phases = [sum(phases.values()) for phases in starts], starts[len(starts) // 2]
        group = self.group(arch, "start")
        row = {"group": group, "name": f"to the first step, {name}", "ms": 1000 * sum(phases.values())}
        self.rows.append(row | {"seconds": phases, "repeats": every})
        phase_times = ", ".join(f"{phase} {spent:.1f}" for phase, spent in phases.items())
        print(f"{group}, {name}: {' '.join(f'{s:.1f}' for s in every)} s (the median: {phase_times})", flush=True)


def read_once(dataset, data_dir):
    """Read a dataset in a new process. Return the seconds without Python's imports, and the peak memory of the host."""
    code = """if True:
        import sys, time
        from rbue import cli, data
        from rbue.runs import devices
        with cli.one_sentence_errors():
            began = time.perf_counter()
            data.load(*sys.argv[1:], download=False)
            print(time.perf_counter() - began, devices.host_peak())"""
    taken, peak = output_of(["-c", code, dataset, data_dir], cwd=places.ROOT).split()[-2:]
    return float(taken), int(peak)


def output_of(words, **place):
    """Run Python in a new process and return what it prints. If it fails, its last line of stderr is the error."""
    child = subprocess.run([sys.executable, *words], capture_output=True, text=True, **place)
    if child.returncode:
        ended = f"a process of its own ended with exit status {child.returncode}"
        raise UserError([ended, *child.stderr.strip().splitlines()][-1].removeprefix("refused: "))
    print(child.stderr, end="", file=sys.stderr)  # its warnings
    return child.stdout


def started(arch, dataset, env):
    """Start a process and return the seconds of each phase until its first step."""
    began = time.time()
    times = json.loads(output_of([__file__, "--first-step", arch, "--dataset", dataset], env=env))
    return dict(zip(times, (b - a for a, b in pairwise([began, *times.values()])), strict=True))


PAIRS = [(name, severity) for name in TYPES for severity in SEVERITIES]


def corrupt_all(images, index, pairs):
    for name, severity in pairs:
        corrupt(images, name, severity, index)


def packages_own(images):
    """Return a function that makes all corruptions which the installed package can still make, and their names."""
    import cv2
    from imagecorruptions import corrupt as theirs

    cv2.setNumThreads(1)
    pictures, able = images.permute(0, 2, 3, 1).numpy(), []
    for name in TYPES:
        try:
            theirs(pictures[0], corruption_name=name, severity=1)
            able.append(name)
        except Exception as error:  # the package was written for older numpy and scikit-image
            print(f"corruptions: imagecorruptions cannot make {name} here ({type(error).__name__})")

    def run():
        for name, severity in PAIRS:
            for picture in pictures if name in able else ():
                theirs(picture, corruption_name=name, severity=severity)

    return run, able


class PlainLoop:
    """One step of the usual training loop, as in a paper's repository."""

    def __init__(self, arch, data, device, batch):
        self.device, self.network = device, plain_network(arch, data.classes).to(device)
        self.optimizer = torch.optim.SGD(self.network.parameters(), 0.1, 0.9, weight_decay=1e-4, nesterov=True)
        workers = min(8, os.cpu_count() - 1)
        loading = {"num_workers": workers, "pin_memory": device.type == "cuda", "drop_last": True}
        self.batches = self.endless(DataLoader(Pictures(data), batch, shuffle=True, **loading))
        self.x, self.y = (t.to(device) for t in next(self.batches))

    def endless(self, loader):
        while True:
            yield from loader

    def from_loader(self):
        x, y = next(self.batches)
        self.train(x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True))

    def from_device(self):
        self.train(self.x, self.y)

    def train(self, x, y):
        self.optimizer.zero_grad()
        F.cross_entropy(self.network(x), y).backward()
        self.optimizer.step()


def plain_network(arch, classes):
    """Build a network without our optimizations for speed."""
    network = networks.ARCHS[arch](classes)
    for stem in (m for m in network.modules() if isinstance(m, Stem)):
        stem.__class__ = torch.nn.Conv2d
    return network


class Pictures(Dataset):
    def __init__(self, data):
        from torchvision.transforms import v2 as transforms

        self.images, self.labels = data.train_images, data.train_labels
        self.transform = transforms.Compose([
            transforms.ToPILImage(), transforms.RandomCrop(data.train_images.shape[-1], 4),
            transforms.RandomHorizontalFlip(),
            transforms.ToImage(), transforms.ToDtype(torch.float32, scale=True),
            transforms.Normalize(data.mean.tolist(), data.std.tolist()),
        ])  # fmt: skip

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(self.images[index]), self.labels[index]


def flops_of(arch, size):
    """Floating-point operations of one forward pass of one image."""
    from torch.utils.flop_counter import FlopCounterMode  # imported here, so that it does not slow the start

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        networks.build(arch, 10).eval()(torch.zeros(1, 3, size, size))
    return counter.get_total_flops()


def matmul_rate(device):
    """Measure the hardware's limit by a large matrix product: bf16 on a GPU, fp32 on a CPU."""
    size, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / seconds([lambda: a @ b], device, 10, 3)[0]


def first_step(arch, dataset):
    """Print when each phase of a start ended, as JSON."""
    times = {"imports": time.time()}
    device, data = devices.choose("auto"), make_data(DATASETS[dataset].classes, DATASETS[dataset].size)
    images = Images(data, 4, device)
    times["data"] = time.time()
    run = make_run(f"dataset={dataset}", f"arch={arch}")
    step = Step(run, methods.build(run, data.classes, IMAGES), images, device)
    step.shuffle(0)
    times["network"] = time.time()
    advance, _ = capture.accelerate([step], device)
    times["compiling and capturing"] = time.time()
    advance()
    devices.synchronize(device)
    print(json.dumps(times | {"step": time.time()}))


def content_of(bench):
    """Return the measured rows, each with its origin, since the file may also hold groups of earlier runs."""
    environment = provenance.environment()
    source = {"matmul_flops": bench.limit} | {key: environment[key] for key in ("commit", "changed", "torch")}
    rows = [row | source for row in bench.rows]
    return {"hardware": devices.describe(bench.device), "environment": environment, "rows": rows}


def save(content):
    """Save after every part, so that an interruption loses little. Groups that were not measured now stay."""
    from rbue.report.benchmark import draw, merged

    name = re.sub(r"[^a-z0-9]+", "-", content["hardware"].lower()).strip("-")
    path = Path("results", "benchmarks", f"{name}.json")
    before = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    content = content | {"rows": merged(before, content["rows"])}
    results.write(path, content)
    draw(content, path.with_suffix(""))
    return content, f"wrote {path} and its figure"


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    gpu = torch.cuda.is_available()
    usual = ["resnet18", "vgg13", "densenet121"] if gpu else ["small"]
    parser.add_argument("--archs", nargs="+", default=usual, choices=list(networks.ARCHS))
    parser.add_argument("--only", nargs="+", choices=[*PARTS, "reading"])
    parser.add_argument(
        "--dataset", default="cifar10", choices=[name for name, source in DATASETS.items() if source.url]
    )
    parser.add_argument("--data-dir", type=Path, default="data", help="for `reading`: the folder of real files")
    parser.add_argument("--quick", action="store_true", help="few repeats, nothing written: for a look")
    parser.add_argument("--first-step", metavar="ARCH", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.first_step:
        return first_step(args.first_step, args.dataset)
    bench = Bench(devices.choose("auto"), args.quick or not gpu, args.dataset)
    for part in args.only or PARTS:
        for arch in args.archs if part in EVERY else args.archs[:1]:
            began = time.perf_counter()
            bench.reading(args.data_dir) if part == "reading" else getattr(bench, part)(arch)
            print(f"({part}, {arch}: {time.perf_counter() - began:.0f} s)", flush=True)
            content = content_of(bench)
            content, message = (content, "quick, so nothing is written") if args.quick else save(content)
    from rbue.report.benchmark import table

    print(f"\n{table(content)}\n\n{message}")


if __name__ == "__main__":
    with one_sentence_errors():
        main()
