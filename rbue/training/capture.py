"""Training steps of several networks as one CUDA graph: each is compiled, all are captured together and replayed."""

import gc
import logging
import time
from contextlib import contextmanager
from statistics import median

import torch
from torch import fx
from torch.nn.utils import parametrize

from rbue.errors import memory_error
from rbue.runs import devices

log = logging.getLogger(__name__)


def accelerate(steps, device, wanted="auto"):
    """Return a function that runs all steps once, and how it does so: captured on a GPU, eager elsewhere.

    torch.OutOfMemoryError is raised: a smaller pack is faster than eager steps, and `fit` tells the user.
    """
    if device.type == "cuda" and wanted == "auto":
        try:
            return capture(steps, device), "captured"
        except Exception as error:  # compilers fail in many ways, and none of them is a reason to lose the run
            if short_of_memory := memory_error(error):
                raise short_of_memory from None
            warn_fallback(error)
            for step in steps:
                step.compiled_objective, step.compiled_prepare = step.objective, step.prepare
    return lambda: [step() for step in steps], "eager"


def warn_fallback(error):
    """Warn the user in one line; log the traceback at the debug level."""
    why = " ".join(str(error).split())[:300]
    log.warning("compiling or capturing failed (%s), so this runs eagerly", why)
    log.debug("what failed", exc_info=error)


def capture(steps, device):
    """Compile each step and capture all as one CUDA graph, each on its own stream, so that small networks overlap.

    By default the compiler does not cache a custom autograd function, and the stochastic layers are such functions.
    """
    torch._dynamo.reset()  # code compiled for earlier trainings counts towards the limit of recompilations
    share_code([step.network for step in steps])
    limit = torch._dynamo.config.patch(recompile_limit=4 * len(steps) + 8)
    with limit, torch._functorch.config.patch(autograd_cache_allow_custom_autograd_functions=True):
        for step in steps:
            step.compiled_objective, step.compiled_prepare = compile_step(step.objective), compile_step(step.prepare)
        return capture_graph(steps, device).replay


def compile_step(function):
    """Compile a function so that many small kernels, such as casts of weights and gradients, are fused into a few.

    Each kernel recomputes the noise that it needs. With the compiler's default limit, noise would go through memory.
    """
    options = {"combo_kernels": True, "realize_opcount_threshold": 60}
    return torch.compile(function, dynamic=False, fullgraph=True, options=options)


def share_code(networks):
    """Give modules with equal code the same class, so that code compiled for one network serves all networks.

    torch makes a new class for every traced network and for every module with random weights. Do not recompile these
    graphs afterwards: that would change the code of the other networks.
    """
    classes = {}
    for module in (m for network in networks for m in network.modules()):
        if isinstance(module, fx.GraphModule):
            module.__class__ = classes.setdefault(module.code, type(module))
        elif parametrize.is_parametrized(module):
            code = parametrize.type_before_parametrizations(module), *module.parametrizations
            module.__class__ = classes.setdefault(code, type(module))


def capture_graph(steps, device):
    """Return a CUDA graph of all steps. The weights stay as they were."""
    streams = [torch.cuda.Stream(device) for _ in steps]
    with restoring(steps):
        for _ in range(3):
            run_side_by_side(steps, streams)
        torch.cuda.synchronize(device)
        gc.collect()  # compiling keeps parts of the first pass's autograd graph alive, which belong to another stream
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run_side_by_side(steps, streams)
    graph.steps = steps  # the graph reads and writes their tensors, so they must live as long as it does
    return graph


def seconds_alone(step, device, replay=None, replays=50, warm_up=1.0):
    """Return the seconds per step of one network that has the GPU to itself: shared time cannot be compared.

    The first second warms the GPU up and does not count.
    """
    replay = replay or capture_graph([step], device).replay

    def timed():
        with devices.measured(device) as cost:
            for _ in range(replays):
                replay()
        return cost["seconds"] / replays

    with restoring([step]):
        warm = time.perf_counter() + warm_up
        while time.perf_counter() < warm:
            timed()
        return median(timed() for _ in range(5))


def run_side_by_side(steps, streams):
    """Run each step on its own stream, and wait for all of them."""
    here = torch.cuda.current_stream()
    for step, stream in zip(steps, streams, strict=True):
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            step()
    for stream in streams:
        here.wait_stream(stream)


@contextmanager
def restoring(steps):
    """Undo the changes that the steps make inside: a warm-up must not train. New optimizer state is set to zero."""
    with torch.no_grad():  # a copy with an autograd history would tie the parameters' gradients to this stream
        before = {id(t): t.clone() for step in steps for t in step.tensors()}
    try:
        yield
    finally:  # also if capturing fails and the training goes on eagerly
        with torch.no_grad():
            for tensor in (t for step in steps for t in step.tensors()):
                tensor.copy_(before[id(tensor)]) if id(tensor) in before else tensor.zero_()
