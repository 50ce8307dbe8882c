"""Gaussian weights in place of fixed ones."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from rbue.errors import UserError
from rbue.layers import GaussianWeight
from rbue.surgery.wiring import wire


def bayes(network: nn.Module, weight: Callable[..., GaussianWeight], **settings: Any) -> nn.Module:
    """Return a copy of the network in which each parameter of convolutions and linear layers is a Gaussian
    `weight(mean, **settings)`. Batch-norm and frozen parameters stay deterministic."""
    if computed := [name for name, m in network.named_modules() if parametrize.is_parametrized(m)]:
        raise UserError(
            f"the weights of {computed[0]} are computed, as by weight_norm: only plain weights can be random"
        )
    network = copy.deepcopy(network)
    made: dict[Tensor, GaussianWeight] = {}
    for module in [m for m in network.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]:
        for name, mu in [(name, p) for name, p in module.named_parameters(recurse=False) if p.requires_grad]:
            made[mu] = made.get(mu) or weight(mu.detach(), **settings)  # layers that share it share its draw of a pass
            parametrize.register_parametrization(module, name, made[mu], unsafe=True)
    if not made:
        raise UserError("no weight can be random: the network has no convolution or linear layer to train")
    return wire(network)


def posteriors(network: nn.Module) -> list[tuple[Tensor, GaussianWeight]]:
    """Return (mean, GaussianWeight) of every parameter that `bayes` made random, once also if layers share it."""
    lists = [m for m in network.modules() if isinstance(m, parametrize.ParametrizationList)]
    return list({m.original: (m.original, m[0]) for m in lists if isinstance(m[0], GaussianWeight)}.values())


def kl(network: nn.Module) -> Tensor:
    """Return the KL divergence of posterior and prior, summed over all random weights, in nats."""
    return torch.stack([weight.kl(mu) for mu, weight in posteriors(network)]).sum()


def plain_parameters(network: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that `bayes` left deterministic."""
    random = {id(p) for mu, weight in posteriors(network) for p in (mu, *weight.parameters())}
    return [p for p in network.parameters() if id(p) not in random]
