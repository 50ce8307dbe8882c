"""Monte-Carlo prediction: what no noise reaches once per batch, the rest once per sample (Section 3.3).

A sampler is a function (images, rows) -> probabilities of one batch, a few samples at a time, each of them
(samples of this pass, images, classes): memory does not grow with the number of samples.
"""

from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import fx

from rbue import metrics, noise, surgery
from rbue.errors import UserError, at_least
from rbue.layers import StochasticLayer


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
    at_least(1, samples=samples, batch=batch, images=len(images))
    with sampling(network):
        draw = sampler(network, samples, seed, batch)
        batches = zip(images.split(batch), torch.arange(len(images), device=images.device).split(batch), strict=True)
        return Prediction(torch.cat([torch.cat(list(draw(x, rows))) for x, rows in batches], 1))


@contextmanager
def sampling(network):
    """Batch-norm in eval mode and no gradients; the sites of noise stay random. Modes are put back as they were."""
    sites = [m for m in network.modules() if isinstance(m, StochasticLayer)]
    if len({id(site.noise) for site in sites}) > 1 or any(site.noise.sites == 0 for site in sites):
        surgery.wire(network)  # put together by hand from our layers, or from several networks
    modes = {m: m.training for m in network.modules()}
    try:
        with torch.no_grad():
            yield network.eval()
    finally:
        for module, mode in modes.items():
            module.training = mode


def sampler(network, samples, seed, stack):
    """How this network is sampled: one pass without noise, else stacked or one pass a sample."""
    if noise.of(network).sites == 0:
        return lambda x, rows: [probabilities(network(x))[None]]
    if isinstance(network, fx.GraphModule):
        return Stacked(network, samples, seed, stack)
    return lambda x, rows: one_by_one(network, x, rows, samples, seed)


def probabilities(logits):
    if not torch.is_tensor(logits) or logits.dim() != 2 or logits.shape[1] < 2:
        got = tuple(logits.shape) if torch.is_tensor(logits) else type(logits).__name__
        raise UserError(
            f"a prediction needs logits (images, classes) of at least two classes, and the network gives {got}"
        )
    return logits.float().softmax(-1)


def one_by_one(network, x, rows, samples, seed):
    """For noise in the weights, which all images of a pass share, and for networks that are not traced."""
    for k in range(samples):
        with noise.counted(network, seed + noise.TEST, k, rows):
            yield probabilities(network(x))[None]


class Stacked:
    """Samples of a small batch share a pass as a larger one, behind the part that no noise reaches."""

    def __init__(self, network, samples, seed, stack):
        self.network, self.samples, self.seed, self.stack = network, samples, seed + noise.TEST, stack
        self.once, self.every = surgery.split_at_noise(network)

    def __call__(self, x, rows):
        given, at_once = self.once(x), max(1, self.stack // len(x))
        for ks in torch.arange(self.samples, device=x.device).split(at_once):
            with noise.counted(self.network, self.seed, ks.repeat_interleave(len(x)), rows.repeat(len(ks))):
                logits = self.every(*[t.repeat(len(ks), *[1] * (t.dim() - 1)) for t in given])
            yield probabilities(logits).view(len(ks), len(x), -1)
