"""New layers in a traced network: on its device, in its mode, and with one source of noise."""

import copy
from itertools import count
from numbers import Real
from typing import TypeVar

import torch
from torch import fx, nn

from rbue.errors import UserError
from rbue.layers import StochasticLayer
from rbue.noise import Noise

Network = TypeVar("Network", bound=nn.Module)


def need_stochastic(layer):
    if not isinstance(layer, StochasticLayer):
        what = f"{type(layer).__module__}.{type(layer).__name__}" if isinstance(layer, nn.Module) else repr(layer)
        ours = "rbue.DropReLU(q), rbue.RReLU(), rbue.Dropout(p) or a subclass of rbue.layers.StochasticLayer"
        ours = f"rbue.DropReLU({layer}) or rbue.Dropout({layer})" if isinstance(layer, Real) else ours
        raise UserError(f"{what} is not a stochastic layer: use {ours}")


def copy_for(graph, layer):
    """Return a copy of the layer on the network's device and in its mode."""
    return copy.deepcopy(layer).train(graph.training).to(device_of(graph))


def device_of(network: nn.Module) -> torch.device | None:
    """Return the network's device, or None, which moves nothing, for a network without parameters and buffers."""
    return next((t.device for group in (network.parameters(), network.buffers()) for t in group), None)


def call(graph, node, layer, source):
    """Insert a call of `layer` directly after `node` and return it."""
    layers = sum(isinstance(m, StochasticLayer) for m in graph.modules())
    names = (f"{type(layer).__name__.lower()}_{number}" for number in count(layers))
    name = next(name for name in names if not hasattr(graph, name))
    graph.add_submodule(name, layer)
    with graph.graph.inserting_after(node):
        return graph.graph.call_module(name, (source,))


def finish(graph: fx.GraphModule) -> fx.GraphModule:
    graph.meta.pop("opened", None)
    graph.delete_all_unused_submodules()
    graph.graph.lint()
    graph.recompile()
    return graph


def wire(network: Network) -> Network:
    """Number the stochastic layers as the network lists them, and give them one source of noise."""
    sites = [m for m in network.modules() if isinstance(m, StochasticLayer)]
    shared = Noise(len(sites))
    for number, site in enumerate(sites):
        site.noise, site.site = shared, number
    return network


def wire_if_needed(network: Network) -> Network:
    """Wire a network if it is not yet wired by itself: one that was built by hand or from several networks, or that was
    wired as a part of a larger one."""
    sites = [m for m in network.modules() if isinstance(m, StochasticLayer)]
    together = len({id(site.noise) for site in sites}) <= 1 and all(site.noise.sites == len(sites) for site in sites)
    return network if together and {site.site for site in sites} == set(range(len(sites))) else wire(network)
