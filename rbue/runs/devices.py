"""Which device a run uses, what it is called and how much memory it took."""

import os
import platform
import resource
import tempfile
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

from rbue import config
from rbue.errors import UserError
from rbue.runs import locks


def choose(name, per_gpu=None):
    """auto takes the GPU where there is one, and of several the one on which this process has a place."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
        if (name == "cuda") != bool(config.gpus()):  # a run's name says in which precision it was trained
            raise UserError(f"device=auto is {name} here, which precision=auto did not expect: say device={name}")
    if name == "cuda" and per_gpu:
        name = place(per_gpu)
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"device={name} is not to be had here ({str(error).splitlines()[0]}): try device=auto"
        ) from error
    if name.startswith("cuda:"):
        torch.cuda.set_device(name)  # streams and graphs are made on the current one
    torch.backends.cudnn.benchmark = True  # shapes never change, so trying every convolution once pays
    return torch.device(name)


@cache
def place(per_gpu):
    """A GPU with a place left, claimed until this process ends: else all processes of a sweep would take the first."""
    gpus = [str(torch.cuda.get_device_properties(k).uuid) for k in range(torch.cuda.device_count())]
    folder = Path(tempfile.gettempdir()) / f"rbue-gpus-{os.getuid()}"
    places = {folder / f"{gpu}-{k}": f"cuda:{number}" for k in range(per_gpu) for number, gpu in enumerate(gpus)}
    CLAIMED.append(locks.first_free(list(places), "waiting for a place on a GPU,"))
    return places[CLAIMED[-1].folder]


CLAIMED = []  # locks that end with the process


def describe(device):
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def measured(device):
    """Yields a dict that holds seconds, peak memory and hardware when the block is left."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    cost, start = {}, time.perf_counter()
    yield cost
    synchronize(device)
    cost |= {"seconds": time.perf_counter() - start, "peak_memory_bytes": peak(device), "hardware": describe(device)}


def peak(device):
    """Peak memory of the GPU's tensors, or of the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    scale = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
