"""Evaluator: predicts test images with a run's networks, compiled and captured as CUDA graphs if possible."""

import copy
import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Any

import torch
from torch import Tensor, fx, nn
from tqdm import tqdm

from rbue import metrics, noise, surgery
from rbue.config import Run
from rbue.data import augment
from rbue.errors import UserError, memory_error
from rbue.progress import bars
from rbue.runs import devices
from rbue.sampling import probabilities, sampler
from rbue.training import capture

# the numbers of samples at which metrics are recorded, besides the number of all samples
COUNTS = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 1000)
REFIT = 5000  # training images from which batch-norm statistics are recomputed
DIVERSE = 4  # samples that are compared pairwise (Section 4.4)
REPEATS, SHORT = 9, 2.0  # `timed` evaluates at most this often, and stops after this many seconds


class Cast(torch.nn.Module):
    """A network under autocast, whose parameters stay in float32."""

    def __init__(self, network, dtype):
        super().__init__()
        self.network, self.dtype = network, dtype

    def forward(self, x):
        with torch.autocast(x.device.type, self.dtype, enabled=self.dtype != torch.float32):
            return self.network(x)


class Refitted:
    """A sampler with one pass per sample that uses batch-norm statistics of that sample's own weights, as SWAG does.

    Running statistics are averages over the weight samples of training, so they fit no single sample.
    """

    def __init__(self, network, samples, seed, batches):
        self.network, self.seed = copy.deepcopy(network), seed
        self.norms = [m for m in self.network.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
        self.statistics = [self.fit(k, batches) for k in range(samples)]

    def draw(self, k, x, rows):
        with noise.counted(self.network, self.seed + noise.TEST, k, rows):
            return probabilities(self.network(x.clone()))  # a forward may overwrite its input

    def fit(self, k, batches):
        for number, x in enumerate(batches, 1):
            for norm in self.norms:
                norm.train().momentum = 1 / number  # so the statistics are the plain mean over all batches
            self.draw(k, x, torch.arange(len(x), device=x.device))
        return [(norm.eval().running_mean.clone(), norm.running_var.clone()) for norm in self.norms]

    def __call__(self, x, rows):
        for k, statistics in enumerate(self.statistics):
            for norm, (mean, variance) in zip(self.norms, statistics, strict=True):
                norm.running_mean.copy_(mean)
                norm.running_var.copy_(variance)
            yield self.draw(k, x, rows)[None]


class Captured:
    """A sampler that replays one sample as a CUDA graph. Sample number, rows and features are tensors that the graph
    reads at each replay. A network without noise has one sample. Samplers that take turns may share a memory `pool`."""

    def __init__(self, network, samples, seed, x, pool=None):
        torch._dynamo.reset()  # code compiled for earlier networks counts towards the limit of recompilations
        self.noise, self.seed = noise.of(network), torch.tensor(seed + noise.TEST, device=x.device)
        self.samples = samples if self.noise.sites else 1
        self.once, every = compiled_parts(network)
        self.given = [t.clone() for t in self.once(x)]
        self.rows = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        self.k = torch.zeros(1, dtype=torch.int64, device=x.device)

        def compute(*given):
            # the network may overwrite its inputs; the compiler removes copies that are not needed
            return probabilities(every(*(t.clone() for t in given)))

        self.compute = torch.compile(compute, dynamic=False)
        self.draw = torch.compile(noise.draw_keys, dynamic=False)
        self.sites = torch.arange(self.noise.sites, device=x.device)
        self.graph = self.captured(pool)

    def captured(self, pool):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.sample()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            self.probs = self.sample()
        return graph

    def sample(self):
        with self.drawn():
            probs = self.compute(*self.given)
        self.k += 1
        return probs

    def drawn(self):
        if not self.noise.sites:
            return nullcontext()
        return noise.using(self.noise, self.draw(self.seed, self.k, self.rows, self.sites), self.k)

    def __call__(self, x, rows):
        count = len(x)
        filled = torch.arange(len(self.rows), device=x.device).clamp(max=count - 1)  # pads the last batch
        for held, value in zip(self.given, self.once(x[filled]), strict=True):
            held.copy_(value)
        self.rows.copy_(rows[filled])
        self.k.zero_()
        for _ in range(self.samples):
            self.graph.replay()
            yield self.probs[None, :count]


def compiled_parts(network):
    """Return the part that is computed once per batch, compiled, and the part that is computed once per sample."""
    if not isinstance(network, fx.GraphModule) or not noise.of(network).sites:
        return lambda x: (x,), network
    once, every = surgery.split_at_noise(network)
    return torch.compile(once, dynamic=False), every


class Evaluator:
    """A run's networks, prepared for the device once. It can be called with any number of test sets."""

    def __init__(self, run: Run, networks: Sequence[nn.Module], data: Any, device: torch.device) -> None:
        self.device, self.batch = device, min(batch_size(run, device), len(data.test_images))
        self.shared_gpu = devices.processes_on(device, run.per_gpu) > 1
        self.mean, self.std = data.mean.to(device), data.std.to(device)
        self.dtype = precision_of(run, device)
        self.weights = weights_hash(networks)
        self.held = devices.held(device, networks)
        with devices.measured(device) as setup, torch.no_grad():
            images = nhwc(data.test_images[: self.batch], device)
            first = self.prepare(images)
            refit = self.refitting(data) if run.refit_batchnorm else None
            pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
            self.draws, how = zip(*(fast(n, run, first, self.dtype, refit, pool) for n in networks), strict=True)
            self.warm_up(images)
        precision = str(self.dtype).removeprefix("torch.")
        passes = max(run.passes if noise.of(networks[0]).sites else 1, len(networks))
        self.about = {"passes": passes, "engine": how[0], "precision": precision, "setup_seconds": setup["seconds"]}
        self.about["software"] = devices.software(device)
        self.peak = setup["peak_memory_bytes"]

    def warm_up(self, images: Tensor) -> None:
        """Evaluate one batch on a GPU: the choice of convolutions and the loading of each kernel at its first use must
        not count as time per image."""
        if self.device.type == "cuda":
            evaluate(self.draws, images, self.prepare, self.batch, quiet=True)

    def refitting(self, data: Any) -> list[Tensor]:
        """Return batches of evenly spaced training images, from which batch-norm statistics are recomputed."""
        chosen = data.train_images[:: max(1, len(data.train_images) // REFIT)][:REFIT]
        return [self.prepare(x) for x in nhwc(chosen, self.device).split(min(self.batch, 500))]

    def prepare(self, x: Tensor) -> Tensor:
        return augment.normalise(x, self.mean, self.std).to(self.dtype)

    def __call__(
        self, images: Tensor, quiet: bool = False, most: int | None = None
    ) -> tuple["Evaluated", dict[str, Any]]:
        """Predict uint8 images (N, 3, H, W), with at most `most` passes. Return the predictions, and the time and
        memory that they took."""
        images = nhwc(images, self.device)
        with devices.measured(self.device) as cost, torch.no_grad():
            evaluated = evaluate(self.draws, images, self.prepare, self.batch, quiet, most)
        self.refuse_not_finite(evaluated)
        peak = max(self.peak, cost["peak_memory_bytes"]) - self.held  # replaying a CUDA graph allocates no memory
        rate = {"images": len(images), "peak_memory_bytes": peak}
        return evaluated, cost | rate | self.about

    def refuse_not_finite(self, evaluated: "Evaluated") -> None:
        """Refuse predictions that are NaN. Weights that are not finite were refused before."""
        if wrong := int((~evaluated.mean.isfinite().all(1)).sum()):
            overflow = "float16 ends at 65504; precision=fp32 trains and tests in float32"
            way_out = overflow if self.dtype == torch.float16 else "lower lr, or fix the network"
            told = f"the prediction is NaN for {wrong} of {len(evaluated.mean)} images, and the weights are finite"
            raise UserError(f"{told}: {way_out}; this is another run")

    def timed(self, images: Tensor, quiet: bool = False) -> tuple["Evaluated", dict[str, Any]]:
        """Predict images as a call does, with the milliseconds per image of all passes and of the first one. They are
        None if other processes use the GPU. The first pass is timed only if passes are captured one by one: it may cost
        more than the others, since layers before the first noise are computed once."""
        evaluated, cost = self(images, quiet)
        one_by_one = cost["engine"] == "captured" and cost["passes"] > 1
        ms = None if self.shared_gpu else self.milliseconds(images, [cost["seconds"]])
        first = None if self.shared_gpu or not one_by_one else self.milliseconds(images, [], most=1)
        return evaluated, cost | {"ms_per_image": ms, "first_ms_per_image": first}

    def milliseconds(self, images: Tensor, times: list[float], most: int | None = None) -> float:
        """Return the milliseconds per image. They are the median of several evaluations if these are short: on a GPU,
        the time of a single one of 50 ms varies by a factor of four. One of 190 ms took 130 ms when it was repeated.
        `times` are those already measured."""
        while not times or (len(times) < REPEATS and sum(times) < SHORT):
            times = [*times, self(images, quiet=True, most=most)[1]["seconds"]]
        return 1000 * median(times) / len(images)


def weights_hash(networks):
    """Return a hash of all parameters and buffers: scores of other weights must not be taken for these networks'."""
    found = hashlib.sha256()
    for tensor in (tensor for network in networks for tensor in network.state_dict().values()):
        found.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()[:16]


def nhwc(images, device):
    return images.to(device).permute(0, 2, 3, 1)


def precision_of(run, device):
    """Return fp16 on a GPU if the training used bf16: at test time the range of fp16 suffices, and it has three more
    bits of precision."""
    return torch.float16 if device.type == "cuda" and run.precision == "bf16" else torch.float32


def batch_size(run, device):
    return run.eval_batch or (2000 if device.type == "cuda" else 250)


def fast(network, run, x, dtype, refit=None, pool=None):
    """Return a sampler for the test set, and its engine. On a GPU, batch-norm is folded, the precision is fp16, and the
    network is captured if possible: with noise or without, so that the test times of all methods can be compared.
    torch.OutOfMemoryError is raised: smaller batches are faster than eager passes."""
    if x.is_cuda:
        network = compact(network, dtype)
    if refit and noise.of(network).sites:
        return Refitted(network, run.passes, run.seed, refit), "eager"
    if x.is_cuda and run.engine == "auto":
        try:
            return Captured(network, run.passes, run.seed, x, pool), "captured"
        except Exception as error:  # compilers fail in many ways, and the run can go on without one
            if short_of_memory := memory_error(error):
                raise short_of_memory from None
            capture.warn_fallback(error)
    return sampler(network, run.passes, run.seed, len(x)), "eager"


def compact(network, dtype):
    """Return a copy with batch-norm folded into convolutions, in the given precision and channels-last memory."""
    network = copy.deepcopy(network).eval()
    if surgery.posteriors(network):
        return Cast(network, dtype)  # its weights are sampled in float32 and rounded afterwards
    return surgery.fold(network).to(dtype=dtype, memory_format=torch.channels_last)


@dataclass(frozen=True)
class Evaluated:
    """Mean probabilities (images, classes), the mean entropy of the samples (images), the probabilities of the first
    few samples, and the means over the first k samples for some k."""

    mean: Tensor
    sample_entropy: Tensor
    first: Tensor
    by_count: dict[int, Tensor]


def evaluate(draws, images, prepare, batch, quiet=False, most=None):
    """Run every sampler on all images, or only the first `most` passes. Results are on the CPU. `prepare` turns uint8
    images into a network's input.

    `quiet` is for a caller that shows its own progress bar.
    """
    parts = []
    with tqdm(total=len(images), desc="evaluation", unit="image", disable=quiet or bars()) as bar:
        for first in range(0, len(images), batch):
            x = prepare(images[first : first + batch])
            parts.append(evaluate_batch(draws, x, torch.arange(first, first + len(x), device=x.device), most))
            bar.update(len(x))
    by_count = {k: torch.cat([part.by_count[k] for part in parts]) for k in parts[0].by_count}
    mean, spread = (torch.cat([getattr(part, name) for part in parts]) for name in ("mean", "sample_entropy"))
    return Evaluated(mean, spread, torch.cat([part.first for part in parts], 1), by_count)


def evaluate_batch(draws, x, rows, most=None):
    total, entropies, first, by_count = 0, 0, [], {}
    for k, probs in enumerate(islice((p for draw in draws for s in draw(x, rows) for p in s), most), 1):
        total, entropies = total + probs, entropies + metrics.entropy(probs)
        if k <= DIVERSE:
            first.append(probs.clone())
        if k in COUNTS:
            by_count[k] = (total / k).cpu()
    mean = (total / k).cpu()
    return Evaluated(mean, (entropies / k).cpu(), torch.stack(first).cpu(), by_count | {k: mean})
