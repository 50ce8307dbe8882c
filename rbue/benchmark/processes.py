"""What is measured in processes of its own: how long a start takes, and how long a dataset takes to read."""

import json
import os
import subprocess
import sys
import time
from itertools import pairwise

from rbue.benchmark.measure import make_data, make_run, make_step
from rbue.errors import UserError
from rbue.runs import devices, places
from rbue.training import capture
from rbue.training.step import Images

SCRIPT = places.SCRIPTS / "benchmark.py"


def output_of(words, **place):
    """Run Python in a new process and return what it prints. If it fails, its last line of stderr is the error."""
    child = subprocess.run([sys.executable, *words], capture_output=True, text=True, **place)
    if child.returncode:
        ended = f"a process of its own ended with exit status {child.returncode}"
        raise UserError([ended, *child.stderr.strip().splitlines()][-1].removeprefix("refused: "))
    print(child.stderr, end="", file=sys.stderr)  # its warnings
    return child.stdout


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


def with_own_caches(folder):
    """Return the variables of a process that compiles into `folder`. Only Python's bytecode is there already, as for an
    installed package."""
    env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": f"{folder}/triton"}
    env |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
    modules = "import torch._inductor.compile_fx, torch._inductor.select_algorithm"
    for first in ([SCRIPT, "--help"], ["-c", modules]):
        output_of(first, env=env)
    return env


def started(arch, dataset, env):
    """Start a process and return the seconds of each phase until its first step."""
    began = time.time()
    times = json.loads(output_of([SCRIPT, "--first-step", arch, "--dataset", dataset], env=env))
    return dict(zip(times, (b - a for a, b in pairwise([began, *times.values()])), strict=True))


def first_step(arch, dataset):
    """Print when each phase of a start ended, as JSON. This is what the new process does."""
    times = {"imports": time.time()}
    device, data = devices.choose("auto"), make_data(dataset)
    images = Images(data, 4, device)
    times["data"] = time.time()
    step = make_step(make_run(f"dataset={dataset}", f"arch={arch}"), images, data.classes, device)
    times["network"] = time.time()
    advance, _ = capture.accelerate([step], device)
    times["compiling and capturing"] = time.time()
    advance()
    devices.synchronize(device)
    print(json.dumps(times | {"step": time.time()}))
