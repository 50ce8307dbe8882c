"""The device of a run, its name, and the memory used on it."""

import ctypes
import gc
import os
import platform
import re
import resource
import tempfile
import time
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import torch

from rbue import config
from rbue.errors import UserError
from rbue.runs import locks

STATUS = Path("/proc/self/status")  # Linux only


def choose(name, per_gpu=None):
    """Return the device. `auto` is a GPU if there is one; among several GPUs, the one that this process claims."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
        if (name == "cuda") != bool(config.gpus()):  # a run's name contains its training precision
            raise UserError(
                f"device=auto is {name} here, but precision=auto assumed another device: write device={name}"
            )
    if name == "cuda" and per_gpu:
        name = claim_gpu(per_gpu)
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise UserError(f"device={name} is not available here ({why}): try device=auto") from error
    if name.startswith("cuda:"):
        torch.cuda.set_device(name)  # streams and graphs are created on the current device
    torch.backends.cudnn.benchmark = True  # shapes never change, so trying all convolution algorithms once pays off
    return torch.device(name)


@cache
def claim_gpu(per_gpu):
    """Claim one of `per_gpu` slots on a GPU until this process ends. Otherwise all processes would use the first."""
    gpus = [str(torch.cuda.get_device_properties(k).uuid) for k in range(torch.cuda.device_count())]
    folder = Path(tempfile.gettempdir()) / f"rbue-gpus-{os.getuid()}"
    places = {folder / f"{gpu}-{k}": f"cuda:{number}" for k in range(per_gpu) for number, gpu in enumerate(gpus)}
    CLAIMED.append(locks.first_free(list(places), "waiting for a place on a GPU,"))
    return places[CLAIMED[-1].folder]


CLAIMED = []  # locks that are released when the process ends


def processes_on(device, per_gpu):
    """Return how many processes use this GPU at a time. Times that are measured on a shared GPU cannot be compared."""
    return per_gpu if device.type == "cuda" and per_gpu else 1


def describe(device):
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{platform.machine()} CPU, {threads} thread{'s' if threads > 1 else ''}"


def software(device):
    """Return the versions of CUDA, cuDNN and the driver on a GPU, and None for each of them on a CPU."""
    if device.type != "cuda":
        return dict.fromkeys(("cuda", "cudnn", "driver"))
    return {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(), "driver": driver()}


def driver():
    """Return the version of NVIDIA's driver, or None if it is unknown."""
    text = ctypes.create_string_buffer(80)
    with suppress(OSError, AttributeError):
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() == 0 and nvml.nvmlSystemGetDriverVersion(text, len(text)) == 0:
            return text.value.decode()
    return None


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def measured(device):
    """Yield a dict that holds seconds, peak memory and hardware after the block."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    cost, start = {}, time.perf_counter()
    yield cost
    synchronize(device)
    cost |= {
        "seconds": time.perf_counter() - start,
        "peak_memory_bytes": peak_memory(device),
        "hardware": describe(device),
    }


def peak_memory(device):
    """Peak memory of the tensors on a GPU, or of the process on a CPU."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else host_peak()


def held(device, networks=()):
    """Memory on a GPU that is in use and that `networks` do not need, such as what earlier work left; 0 on a CPU."""
    if device.type != "cuda":
        return 0
    gc.collect()  # a step refers to itself, so the memory of an earlier training may not be free yet
    own = sum(t.nbytes for network in networks for t in network.state_dict().values())
    return torch.cuda.memory_allocated(device) - own


def host_peak():
    """Peak memory of this process in bytes. On Linux, ru_maxrss also counts the parent process; VmHWM does not."""
    if STATUS.exists() and (found := re.search(r"VmHWM:\s*(\d+) kB", STATUS.read_text(encoding="utf-8"))):
        return 1024 * int(found[1])
    scale = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
