"""METHODS: how each row's network is made, and how many predictions it averages."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from rbue import archs, surgery
from rbue.ivon import IvonWeight
from rbue.layers import Dropout, DropReLU, LearnedGaussian, RReLU


@dataclass(frozen=True)
class Method:
    build: Callable  # (plain network, run, number of training images) -> the network that is trained
    samples: Callable  # run -> how many predictions are averaged


def _plain(network, run, images):
    return surgery.trace(network)  # traced like the others, so that all share one road through compiler and inference


def _svi(network, run, images):
    variance = (run.beta if run.tempered_prior else 1.0) / (images * run.weight_decay)
    return surgery.bayes(network, LearnedGaussian, sigma=run.sigma, prior=variance**0.5)


def _ivon(network, run, images):
    settings = {"images": images, "weight_decay": run.weight_decay, "hess_init": run.hess_init}
    return surgery.bayes(network, IvonWeight, **settings)


METHODS = {
    "single": Method(_plain, samples=lambda run: 1),
    "mc_dropout": Method(
        lambda net, run, images: surgery.add_dropout(net, Dropout(run.p), run.placement),
        samples=lambda run: run.samples,
    ),
    "deep_ensemble": Method(_plain, samples=lambda run: run.members),
    "svi": Method(_svi, samples=lambda run: run.samples),
    "ivon": Method(_ivon, samples=lambda run: run.samples),
    "dropreLU": Method(
        lambda net, run, images: surgery.randomize(net, DropReLU(run.q), position=run.position),
        samples=lambda run: run.samples,
    ),
    "rrelu": Method(
        lambda net, run, images: surgery.randomize(net, RReLU(run.l, run.u), position=run.position),
        samples=lambda run: run.samples,
    ),
}


def build(run, classes, images):
    """The run's network with the initial weights of its seed, the same on every device."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        network = archs.build(run.arch, classes)
    return METHODS[run.method].build(network, run, images)
