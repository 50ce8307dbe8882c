"""Many training steps as one CUDA graph: each step compiled, all of them captured side by side and replayed."""

import gc
import logging
import time
from contextlib import contextmanager
from statistics import median

import torch
from torch import fx
from torch.nn.utils import parametrize

from rbue.runs import devices

log = logging.getLogger(__name__)


def accelerate(steps, device, wanted="auto"):
    """Return one function that makes all steps, and how it runs: captured on a GPU, eager elsewhere."""
    if device.type == "cuda" and wanted == "auto":
        try:
            return capture(steps, device), "captured"
        except Exception as error:  # compilers fail in many ways, and none of them is worth losing the run
            warn_fallback(error)
            for step in steps:
                step.compiled_objective, step.compiled_prepare = step.objective, step.prepare
    return lambda: [step() for step in steps], "eager"


def warn_fallback(error):
    """One line for the user; the whole story at the debug level."""
    why = " ".join(str(error).split())[:300]
    log.warning("compiling or capturing failed (%s), so this runs eagerly", why)
    log.debug("what failed", exc_info=error)


def capture(steps, device):
    """Compiles each step and captures them as one CUDA graph, each on a stream of its own: small networks overlap.

    The compiler's cache leaves out what has a backward pass of its own, as the random layers do, unless it is told.
    """
    torch._dynamo.reset()  # code of earlier trainings counts against a limit of recompilations
    share_code([step.network for step in steps])
    limit = torch._dynamo.config.patch(recompile_limit=4 * len(steps) + 8)
    with limit, torch._functorch.config.patch(autograd_cache_allow_custom_autograd_functions=True):
        for step in steps:
            step.compiled_objective, step.compiled_prepare = compiled(step.objective), compiled(step.prepare)
        return graph_of(steps, device).replay


def compiled(function):
    """Many small kernels, as the casts of weights and gradients, are put together into a few; noise is drawn again in
    every kernel that needs it, where the compiler's own limit would have it pass through memory."""
    options = {"combo_kernels": True, "realize_opcount_threshold": 60}
    return torch.compile(function, dynamic=False, fullgraph=True, options=options)


def share_code(networks):
    """Modules of equal code become one class, so that what is compiled for one network serves all.

    torch makes a class of its own for every traced network and for every module with random weights. The graphs must
    not be recompiled after: that would change the code of the others.
    """
    classes = {}
    for module in (m for network in networks for m in network.modules()):
        if isinstance(module, fx.GraphModule):
            module.__class__ = classes.setdefault(module.code, type(module))
        elif parametrize.is_parametrized(module):
            code = parametrize.type_before_parametrizations(module), *module.parametrizations
            module.__class__ = classes.setdefault(code, type(module))


def graph_of(steps, device):
    streams = [torch.cuda.Stream(device) for _ in steps]
    with restoring(steps):
        for _ in range(3):
            side_by_side(steps, streams)
        torch.cuda.synchronize(device)
        gc.collect()  # what compiling left alive of the first pass's autograd graph belongs to another stream
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            side_by_side(steps, streams)
    graph.steps = steps  # it reads and writes their tensors, which must live as long
    return graph


def seconds_alone(step, device, replay=None, replays=50, warm_up=1.0):
    """Of one step with the GPU to itself: the time that packed networks share compares none of them. The first second
    warms up and does not count."""
    replay = replay or graph_of([step], device).replay

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


def side_by_side(steps, streams):
    here = torch.cuda.current_stream()
    for step, stream in zip(steps, streams, strict=True):
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            step()
    for stream in streams:
        here.wait_stream(stream)


@contextmanager
def restoring(steps):
    """Undoes what the steps inside change: warming up must not train. New optimizer state starts at zero."""
    with torch.no_grad():  # a copy with a history would tie the parameters' gradients to this stream
        before = {id(t): t.clone() for step in steps for t in step.tensors()}
    try:
        yield
    finally:  # also where capturing fails and the training goes on eagerly
        with torch.no_grad():
            for tensor in (t for step in steps for t in step.tensors()):
                tensor.copy_(before[id(tensor)]) if id(tensor) in before else tensor.zero_()
