"""The parts of the benchmark. Each adds the rows of one group: the baseline, then ours with its ratio."""

import tempfile
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import torch

from rbue import networks, surgery
from rbue.benchmark.baselines import (
    Plain,
    PlainLoop,
    Textbook,
    package_corruptions,
    plain_network,
    predict_in_passes,
    pytorch_defaults,
)
from rbue.benchmark.processes import read_once, started, with_own_caches
from rbue.data import DATASETS
from rbue.data.corruptions import SEVERITIES, corrupt
from rbue.errors import UserError
from rbue.evaluation import evaluator
from rbue.layers import DropReLU, RReLU
from rbue.runs import devices
from rbue.training import capture

# --- training ---------------------------------------------------------------------------------------------------------


def training(bench, arch):
    """Compare our training step with the usual loop.

    With its data on the device, this loop and our step take turns: it waits for the CPU, whose speed varies.
    """
    plain, held = "plain loop: fp32, eager, DataLoader", "the same loop, data on the device"
    group, before, common = bench.group(arch, "train"), bench.held, {"flops": bench.flops(arch)}
    inner = min(bench.inner, 20)
    loop = PlainLoop(arch, bench.data, bench.device, bench.batch)
    with pytorch_defaults():
        bench.row(group, plain, loop.from_loader, bench.batch, inner, before, **common)
    loop.batches.close()  # its workers must not compete with the next measurement
    usual = pytorch_defaults()(loop.from_device)
    with devices.measured(bench.device) as cost:
        usual()
    settings = common | {"against": plain, "peak_memory_bytes": cost["peak_memory_bytes"] - before}
    ours = trained(bench, "ours", arch, 1, against=held, **common)
    bench.race(group, bench.batch, [(held, usual, settings), ours], inner)


def packing(bench, arch):
    """Compare a step of four models at once with a step of one."""
    flops = bench.flops(arch)
    one = trained(bench, "one model", arch, 1, flops=flops)
    four = trained(bench, "four models", arch, 4, flops=flops, against="one model")
    bench.race(bench.group(arch, "packed"), bench.batch, [one, four])


def layers(bench, arch):
    """Compare training steps with stochastic layers, ours and textbook ones, with a step with ReLU."""
    kinds = {
        "ReLU": None,
        "DropReLU, textbook (torch.bernoulli)": Textbook("DropReLU"),
        "DropReLU": DropReLU(0.9),
        "RReLU, textbook (F.rrelu)": Textbook("RReLU"),
        "RReLU": RReLU(),
        "LeakyReLU: RReLU without its noise": Plain(RReLU().deterministic()),
    }
    runners = [trained(bench, name, arch, 1, kind, against="ReLU" if kind else None) for name, kind in kinds.items()]
    bench.race(bench.group(arch, "layers"), bench.batch, runners)


def trained(bench, name, arch, models, layer=None, **settings):
    """Return a runner for one step of `models` networks. Its memory is the warm-up's: a replay allocates none. That of
    several captured networks is unknown: they warm up one after the other, but a replay needs the memory of all.
    Eager networks have no warm-up, so they train one step."""
    _, before = bench.images, bench.held  # the first contestant creates the images, which all of them use
    with devices.measured(bench.device) as cost:
        steps = [bench.step(bench.run(f"arch={arch}", f"seed={seed}"), layer) for seed in range(models)]
        function, how = capture.accelerate(steps, bench.device)
        if how == "eager":
            function()
    peak = cost["peak_memory_bytes"] - before if models == 1 or how == "eager" else None
    settings |= {"engine": how, "peak_memory_bytes": peak}
    return name, function, settings | {"images": models * bench.batch}


# --- prediction -------------------------------------------------------------------------------------------------------

PASSES = 5  # of the baseline, whose time grows with their number


def prediction(bench, arch, samples=100):
    """Compare our samples with as many passes of all layers: with noise everywhere, and in the last layer."""
    group, images = bench.group(arch, "predict"), len(bench.data.test_images)
    for where, position in (("everywhere", "all"), ("before the classifier", "last")):
        plain, noise, relu = contestants(bench, arch, position)
        base = f"{samples} fp32 eager passes, noise {where}"
        with pytorch_defaults():
            work = partial(predict_in_passes, plain, bench.pictures, PASSES)
            bench.row(group, base, work, images, inner=1, scale=samples / PASSES, before=bench.held)
        names = {f"ours, ReLU in place of noise {where}": relu, f"ours, noise {where}": noise}
        runners = [predicted(bench, name, network, samples, base) for name, network in names.items()]
        bench.race(group, images, runners, inner=1)


def contestants(bench, arch, position):
    """Return the plain network with textbook noise, ours with our noise, and ours with ReLU in the place of noise."""
    classes = bench.data.classes
    pairs = (
        (plain_network(arch, classes), Textbook("DropReLU")),
        (networks.build(arch, classes), DropReLU(0.9)),
        (networks.build(arch, classes), Plain()),
    )
    return [surgery.randomize(network, layer, position=position).to(bench.device).eval() for network, layer in pairs]


def predicted(bench, name, network, samples, against):
    """Return a runner that predicts all test images with our evaluator."""
    run, before = bench.run(f"samples={samples}", "method=dropreLU"), bench.held
    batch = evaluator.batch_size(run, bench.device)
    with devices.measured(bench.device) as cost, torch.no_grad():
        images = bench.pictures().to(evaluator.precision_of(run, bench.device))
        draw_samples, how = evaluator.fast(network, run, images[:batch], images.dtype)

    @torch.no_grad()
    def work():
        evaluator.evaluate([draw_samples], images, lambda x: x, batch)

    return name, work, {"against": against, "engine": how, "peak_memory_bytes": cost["peak_memory_bytes"] - before}


# --- images -----------------------------------------------------------------------------------------------------------


def corruptions(bench, _):
    """Compare our corruptions with the imagecorruptions package on one core, for the types it can still make."""
    if find_spec("imagecorruptions") is None:
        print("corruptions: no package to compare with: pip install -e '.[frost]'")
        return
    group, plain, before = bench.group("corruptions"), "imagecorruptions, one core", bench.held
    count = 5_000 if bench.gpu else 500
    images, index = bench.data.train_images[:count].to(bench.device), torch.arange(count, device=bench.device)
    theirs, types = package_corruptions(bench.data.train_images[:5])
    ours, same = partial(corrupt_all, images, index, types), f"ours, the same {len(types)} types"
    common = {"images": 5 * len(types), "inner": 1, "before": before}  # one image at every type and severity
    bench.row(group, plain, theirs, scale=1 / 5, **common)
    bench.row(group, same, ours, scale=1 / count, against=plain, **common)


def corrupt_all(images, index, types):
    for name, severity in product(types, SEVERITIES):
        corrupt(images, name, severity, index)


def reading(bench, _):
    """Measure how long real files take to read, each time in a new process: the first time, when images may have to
    be decoded, and the second time."""
    name, source = bench.dataset, DATASETS[bench.dataset]
    folder = bench.data_dir.resolve() / name
    if not (folder / source.layout).is_dir():
        raise UserError(f"{folder} holds no {source.layout}: make data DATASET={name} fetches it")
    with tempfile.TemporaryDirectory() as scratch:  # so that stored arrays are neither used nor replaced
        place = Path(scratch, name)
        place.mkdir()
        (place / source.layout).symlink_to(folder / source.layout)
        for row, against in (("first start", None), ("second start", "first start")):
            taken, peak = read_once(name, scratch)
            images = source.train + source.test
            bench.add(f"{name} reading", row, taken, images, against=against, peak_memory_bytes=peak)


# --- start ------------------------------------------------------------------------------------------------------------


def start(bench, arch):
    """Measure seconds from the start of Python to the end of the first training step, each in a new process."""
    with tempfile.TemporaryDirectory() as cache:
        env = with_own_caches(cache)
        add_start(bench, arch, "cold", [started(arch, bench.dataset, env)])
        add_start(bench, arch, "warm compile cache", [started(arch, bench.dataset, env) for _ in range(3)])


def add_start(bench, arch, name, starts):
    """Add a row with the phases of the median start."""
    starts = sorted(starts, key=lambda phases: sum(phases.values()))
    every, phases = [sum(phases.values()) for phases in starts], starts[len(starts) // 2]
    group = bench.group(arch, "start")
    row = {"group": group, "name": f"to the first step, {name}", "ms": 1000 * sum(phases.values())}
    bench.rows.append(row | {"seconds": phases, "repeats": every})
    phase_times = ", ".join(f"{phase} {spent:.1f}" for phase, spent in phases.items())
    print(f"{group}, {name}: {' '.join(f'{s:.1f}' for s in every)} s (the median: {phase_times})", flush=True)


PARTS = {part.__name__: part for part in (training, packing, layers, prediction, corruptions, start, reading)}
USUAL = [name for name in PARTS if name != "reading"]  # it needs real files, so it only runs if it is named
FOR_ALL_NETWORKS = ("training", "packing")  # the other parts are measured for the first network
