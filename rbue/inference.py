"""Monte-Carlo prediction: what no noise reaches once a batch, the rest once a sample (Section 3.3)."""

from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import fx
from tqdm import tqdm

from rbue import devices, engine, metrics, noise, surgery
from rbue.config import at_least
from rbue.data import augment
from rbue.layers import Site
from rbue.methods import METHODS


@dataclass(frozen=True)
class Prediction:
    """Probabilities (samples, images, classes) and what the paper derives from them."""

    samples: torch.Tensor

    @property
    def mean(self):
        """Predictive distribution: the mean over samples."""
        return self.samples.mean(0)

    @property
    def entropy(self):
        """Predictive uncertainty: the entropy of the mean, in nats, one number an image."""
        return metrics.entropy(self.mean)


def predict(network, images, samples=100, *, seed=0, batch=500):
    """`samples` stochastic passes over images. Sample k of a seed is the same numbers every time, in any batch size."""
    at_least(1, samples=samples, batch=batch)
    done = []
    with sampling(network):
        for first in range(0, len(images), batch):
            x = images[first : first + batch]
            rows = torch.arange(first, first + len(x), device=x.device)
            done.append(torch.cat(list(draws([network], x, rows, samples, seed, batch))))
    return Prediction(torch.cat(done, 1))


@contextmanager
def sampling(network):
    """Batch-norm in eval mode and no gradients; the sites of noise stay random. Modes are put back as they were."""
    sites = [m for m in network.modules() if isinstance(m, Site)]
    if any(site.noise.sites == 0 for site in sites):
        surgery.wire(network)  # a network written by hand with our layers
    modes = {m: m.training for m in network.modules()}
    try:
        with torch.no_grad():
            yield network.eval()
    finally:
        for module, mode in modes.items():
            module.training = mode


def draws(networks, x, rows, samples, seed, stack):
    """Probabilities of one batch, a few samples at a time: (samples of this pass, images, classes)."""
    for network in networks:
        if noise.of(network).sites == 0:
            yield network(x).float().softmax(-1)[None]
        elif isinstance(network, fx.GraphModule):
            yield from stacked(network, x, rows, samples, seed, max(1, stack // len(x)))
        else:
            yield from one_by_one(network, x, rows, samples, seed)


def stacked(network, x, rows, samples, seed, at_once):
    """Several samples share a pass as a larger batch, behind the part that no noise reaches."""
    once, every = surgery.split_at_noise(network)
    given = once(x)
    for first in range(0, samples, at_once):
        ks = torch.arange(first, min(first + at_once, samples), device=x.device)
        with noise.counted(network, seed + noise.TEST, ks.repeat_interleave(len(x)), rows.repeat(len(ks))):
            logits = every(*[t.repeat(len(ks), *[1] * (t.dim() - 1)) for t in given])
        yield logits.float().softmax(-1).view(len(ks), len(x), -1)


def one_by_one(network, x, rows, samples, seed):
    """For noise in the weights, which all images of a pass share, and for networks that are not traced."""
    for k in range(samples):
        with noise.counted(network, seed + noise.TEST, k, rows):
            yield network(x).float().softmax(-1)[None]


def test(run, networks, data, device):
    """Mean probabilities (images, classes) of the run's networks on its test images, and what they cost."""
    images = data.test_images.to(device).permute(0, 2, 3, 1)
    mean, std = data.mean.to(device), data.std.to(device)
    samples = METHODS[run.method].samples(run)
    with devices.measured(device) as cost, engine.autocast(run, device):
        probs = evaluate(networks, images, lambda x: augment.normalise(x, mean, std), samples, run.seed, run.eval_batch)
    cost |= {"passes": samples, "ms_per_image": 1000 * cost["seconds"] / len(images), "engine": "eager"}
    return probs, cost | {"precision": "bf16" if engine.reduced(run, device) else "fp32"}


def evaluate(networks, images, prepare, samples, seed, batch):
    """Mean probabilities over the networks' samples, on the CPU; `prepare` makes images what a network takes."""
    means = []
    with torch.inference_mode(), tqdm(total=len(images), desc="evaluation", unit="image", disable=None) as bar:
        for first in range(0, len(images), batch):
            x = prepare(images[first : first + batch])
            rows = torch.arange(first, first + len(x), device=x.device)
            total = sum(probs.sum(0) for probs in draws(networks, x, rows, samples, seed, batch))
            means.append((total / total.sum(1, keepdim=True)).cpu())
            bar.update(len(x))
    return torch.cat(means)
