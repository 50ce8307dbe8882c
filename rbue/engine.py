"""One training step as a function of device tensors alone, so that a GPU can replay it without Python.

Step count, order of the images, learning rate and noise are tensors on the device: a captured graph that held their
Python values would replay stale ones.
"""

import gc
import logging
import time
from contextlib import contextmanager, nullcontext
from statistics import median

import torch
from torch import fx
from torch.nn import functional as F
from torch.nn.utils import parametrize

from rbue import devices, noise, surgery
from rbue.data import augment
from rbue.ivon import Ivon

log = logging.getLogger(__name__)


def autocast(run, device):
    return torch.autocast(device.type, torch.bfloat16) if run.precision == "bf16" else nullcontext()


class Cast(torch.nn.Module):
    """A network under autocast, for one whose parameters must stay in float32."""

    def __init__(self, network, dtype):
        super().__init__()
        self.network, self.dtype = network, dtype

    def forward(self, x):
        with torch.autocast(x.device.type, self.dtype, enabled=self.dtype != torch.float32):
            return self.network(x)


class Images:
    """The training set on the device, shared by every training there."""

    def __init__(self, data, crop, device):
        self.padded = augment.pad(data.train_images.to(device), crop)
        self.labels = data.train_labels.to(device)
        self.mean, self.std = data.mean.to(device), data.std.to(device)


def learning_rates(run, steps):
    """The rate of every step (Section 4.1.2: divided by ten at fractions of training; or one rise and fall)."""
    done = torch.arange(steps, dtype=torch.float64) / steps
    rise = (done / run.warmup).clamp(max=1) if run.warmup else torch.ones_like(done)
    if run.schedule == "linear":
        return run.lr * torch.minimum(rise, (1 - done) / (1 - run.warmup + 1e-12))
    drops = sum((done >= drop - 1e-9).double() for drop in run.lr_drops)
    return run.lr * rise * 0.1**drops


def optimizers(network, run, lr):
    """SGD for everything but random weights with an optimizer of their own: Adam may learn their deviations, Ivon has
    both. A random weight has its prior instead of weight decay."""
    posteriors = surgery.posteriors(network)
    means, rhos = [mu for mu, _ in posteriors], [site.rho for _, site in posteriors if hasattr(site, "rho")]
    by_adam = rhos if rhos and run.rho_optimizer == "adam" else []
    by_ivon = [] if rhos else posteriors
    random = {id(parameter) for parameter in means + rhos}
    plain = [p for p in network.parameters() if id(p) not in random]
    by_sgd = [] if by_ivon else means if by_adam else means + rhos
    groups = [{"params": plain}, {"params": by_sgd, "weight_decay": 0.0}]
    common = {"momentum": run.momentum, "nesterov": run.momentum > 0, "weight_decay": run.weight_decay, "fused": True}
    made = [torch.optim.SGD([g for g in groups if g["params"]], lr=lr, **common)]
    if by_adam:
        made.append(torch.optim.Adam(by_adam, lr=run.rho_lr, fused=True, capturable=lr.is_cuda))
    if by_ivon:
        made.append(Ivon(by_ivon, lr, run.momentum, 1 - run.hess_rate, run.hess_init))
    return made


class Step:
    """Call it to train one batch. `sums` gathers loss, correct predictions and KL until somebody zeroes it."""

    def __init__(self, run, network, images, device):
        self.run, self.images, self.device = run, images, device
        self.network = network.to(device, memory_format=torch.channels_last).train()
        self.per_epoch = max(1, len(images.labels) // run.batch)
        self.total = self.per_epoch * run.epochs
        self.count = torch.zeros(1, dtype=torch.int64, device=device)
        self.order = torch.zeros(self.per_epoch, min(run.batch, len(images.labels)), dtype=torch.int64, device=device)
        self.places = torch.arange(self.order.shape[1], device=device)
        self.rates = learning_rates(run, self.total).float().to(device)
        self.lr = torch.zeros((), device=device)
        self.parameters = list(self.network.parameters())
        self.optimizers = optimizers(self.network, run, self.lr)
        beta, rise = getattr(run, "beta", 0.0), getattr(run, "kl_warmup", 0.0) * self.total
        self.beta, self.rise = (torch.tensor(value, device=device) for value in (beta, max(rise, 1e-9)))
        self.sums = torch.zeros(3, dtype=torch.float64, device=device)
        self.noise, self.seed = noise.of(self.network), torch.tensor(run.seed, device=device)
        self.sites, self.one_site = torch.arange(self.noise.sites, device=device), torch.arange(1, device=device)
        self.compiled_objective, self.compiled_prepare = self.objective, self.prepare

    def __call__(self):
        index, keys, drawn = self.compiled_prepare(self.count)
        with noise.using(self.noise, drawn):
            total, figures = self.compiled_objective(index, keys, self.count)
            gradients = torch.autograd.grad(total, self.parameters)
        self.update(gradients)
        self.sums += figures

    def prepare(self, count):
        """Which images this step takes, and the keys of their augmentation and of the network's sites."""
        index = self.order.index_select(0, count % self.per_epoch)[0]
        keys = noise.keys(self.seed + noise.AUGMENT, count, self.places, self.one_site)[0]
        return index, keys, noise.draw(self.seed + noise.TRAIN, count, self.places, self.sites)

    def objective(self, index, keys, count):
        """What is minimised, and the figures of the curve: cross-entropy, share of correct predictions, KL."""
        chosen = augment.crop_and_flip(self.images.padded, index, keys, self.run.crop, self.run.flip)
        labels = self.images.labels[index]
        with autocast(self.run, self.device):
            logits = self.network(augment.normalise(chosen, self.images.mean, self.images.std)).float()
        loss, hits, kl = F.cross_entropy(logits, labels), (logits.argmax(1) == labels).float().mean(), self.kl()
        return loss + self.kl_weight(count) * kl, torch.stack([loss.detach(), hits, kl.detach()])

    def kl(self):
        """KL of the weights' posterior an image; zero for a network without one."""
        each = [site.kl(mu) for mu, site in surgery.posteriors(self.network)]
        return torch.stack(each).sum() / len(self.images.labels) if each else self.lr.new_zeros(())

    def kl_weight(self, count):
        """Rises from 0 to beta over the first part of training, or the prior drowns the data at the start."""
        return self.beta * (count[0] / self.rise).clamp(max=1)

    def update(self, gradients):
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        now = self.count.clamp(max=self.total - 1)  # warming up and timing run past the last step
        self.lr.copy_(self.rates.index_select(0, now)[0])
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.count += 1

    def shuffle(self, epoch):
        """A new order of the images each epoch, the same on every device; the last partial batch is left out."""
        generator = torch.Generator().manual_seed(self.run.seed * 1_000_003 + epoch)
        order = torch.randperm(len(self.images.labels), generator=generator)[: self.order.numel()]
        self.order.copy_(order.view_as(self.order))

    def state(self):
        """Everything a resumed training needs to go on as if nothing had happened."""
        return {
            "network": self.network.state_dict(),
            "optimizers": [o.state_dict() for o in self.optimizers],
            "count": self.count,
        }

    def load(self, state):
        self.network.load_state_dict(state["network"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        for group in self.optimizers[0].param_groups:
            group["lr"] = self.lr
        for group in (g for o in self.optimizers[1:] for g in o.param_groups):
            group["capturable"] = self.lr.is_cuda  # the checkpoint may come from another device
        self.count.copy_(state["count"])

    def tensors(self):
        """Everything a step changes."""
        states = [value for o in self.optimizers for state in o.state.values() for value in state.values()]
        held = [*self.network.parameters(), *self.network.buffers(), *states, self.count, self.sums, self.lr]
        return [t for t in held if torch.is_tensor(t)]


def fast(steps, device, wanted="auto"):
    """All steps as one call, and how it runs: captured on a GPU, one after the other in plain PyTorch elsewhere."""
    if device.type == "cuda" and wanted == "auto":
        try:
            return capture(steps, device), "captured"
        except Exception as error:  # compilers fail in many ways, and none of them is worth losing the run
            fell_back(error)
            for step in steps:
                step.compiled_objective, step.compiled_prepare = step.objective, step.prepare
    return lambda: [step() for step in steps], "eager"


def fell_back(error):
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
    with kept(steps):
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

    with kept([step]):
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
def kept(steps):
    """Undoes what the steps inside change: warming up must not train. New optimizer state starts at zero."""
    with torch.no_grad():  # a copy with a history would tie the parameters' gradients to this stream
        before = {id(t): t.clone() for step in steps for t in step.tensors()}
    try:
        yield
    finally:  # also where capturing fails and the training goes on eagerly
        with torch.no_grad():
            for tensor in (t for step in steps for t in step.tensors()):
                tensor.copy_(before[id(tensor)]) if id(tensor) in before else tensor.zero_()
