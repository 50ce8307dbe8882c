"""Measure functions in turns, and collect the rows of the benchmark's table."""

import statistics
import time
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from hydra import compose

from rbue import methods, networks, surgery
from rbue.data import DATASETS, Data
from rbue.runs import devices, provenance
from rbue.runs.compose import own_hydra, parse
from rbue.training.step import Images, Step

IMAGES = 50_000
TESTS = 10_000 if torch.cuda.is_available() else 500


def make_data(dataset):
    """Return random images of a dataset's shape."""
    classes, size = DATASETS[dataset].classes, DATASETS[dataset].size
    generator = np.random.default_rng(0)  # several times as fast as torch's, which would slow the measured start

    def images(count):
        pixels = generator.integers(256, size=(count, 3, size, size), dtype=np.uint8)
        return torch.from_numpy(pixels), torch.from_numpy(generator.integers(classes, size=count))

    return Data(*images(IMAGES), *images(TESTS), classes, torch.full((3,), 0.5), torch.full((3,), 0.25))


def make_run(*overrides):
    with own_hydra():
        return parse(compose("config", list(overrides)))


def make_step(run, images, classes, device, layer=None):
    """Return a training step that is ready to run. If `layer` is given, it takes the place of all rectifiers."""
    network = methods.build(run, classes, IMAGES)
    network = surgery.randomize(network, layer) if layer else network
    step = Step(run, network, images, device)
    step.shuffle(0)
    return step


def seconds(functions, device, inner, repeats):
    """Return the median seconds per call of each function. They are measured in turns after a warm-up, so that changes
    of the clock rate affect all of them."""
    taken = [[clocked(function, device, inner) for function in functions] for _ in range(repeats + 1)]
    return [statistics.median(times[1:]) for times in zip(*taken, strict=True)]


def clocked(function, device, inner):
    devices.synchronize(device)
    start = time.perf_counter()
    for _ in range(inner):
        function()
    devices.synchronize(device)
    return (time.perf_counter() - start) / inner


def matmul_rate(device):
    """Measure the hardware's limit by a large matrix product: bf16 on a GPU, fp32 on a CPU."""
    size, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / seconds([lambda: a @ b], device, 10, 3)[0]


def flops_of(arch, size):
    """Floating-point operations of one forward pass of one image."""
    from torch.utils.flop_counter import FlopCounterMode  # imported here, so that it does not slow the start

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        networks.build(arch, 10).eval()(torch.zeros(1, 3, size, size))
    return counter.get_total_flops()


class Bench:
    """Measure, and collect the rows of the table."""

    def __init__(self, device, quick, dataset="cifar10", data_dir="data"):
        self.device, self.dataset, self.size = device, dataset, DATASETS[dataset].size
        self.data_dir = Path(data_dir)
        self.batch = self.run().batch
        self.inner, self.repeats = (3, 3) if quick else (100, 5)
        self.gpu, self.rows, self.limit = device.type == "cuda", [], matmul_rate(device)

    @cached_property
    def data(self):
        return make_data(self.dataset)

    @cached_property
    def images(self):
        return Images(self.data, 4, self.device)

    @property
    def held(self):
        """Bytes on the GPU now; they do not count for the next contestant."""
        return torch.cuda.memory_allocated() if self.gpu else 0

    def pictures(self):
        """Return the test images on the device, in fp32."""
        return self.data.test_images.to(self.device).float().div(255)

    def run(self, *words):
        return make_run(f"dataset={self.dataset}", *words)

    def step(self, run, layer=None):
        return make_step(run, self.images, self.data.classes, self.device, layer)

    def group(self, *words):
        """Return the name of a group of rows, with the size of the images before the last word if it is not CIFAR's."""
        size = [] if self.size == 32 else [f"{self.size}x{self.size}"]
        return " ".join([*words[:-1], *size, words[-1]])

    def flops(self, arch):
        return 3 * flops_of(arch, self.size)

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

    def content(self):
        """Return the measured rows, each with its origin, since the file may also hold groups of earlier runs."""
        environment = provenance.at_start() | devices.software(self.device)
        source = {"matmul_flops": self.limit} | {key: environment[key] for key in ("commit", "changed", "torch")}
        rows = [row | source for row in self.rows]
        return {"hardware": devices.describe(self.device), "environment": environment, "rows": rows}
