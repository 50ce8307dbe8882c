"""Insert dropout, or another layer, where the placement says."""

from torch import fx, nn

from rbue.errors import UserError, one_of
from rbue.layers import Dropout, DropReLU, GaussianWeight, RReLU, StochasticLayer
from rbue.surgery.calls import modules_called, rectifiers, refuse_hidden, warn_of_hooks
from rbue.surgery.wiring import call, copy_for, finish, need_stochastic, wire
from rbue.tracing import caller, trace


def add_dropout(network: nn.Module, layer: StochasticLayer, placement: str) -> fx.GraphModule:
    """Return a copy of the network with `layer` inserted at the placement, which the paper does not specify.

    last: on the input of the last linear layer, also where other layers read this input.
    relu, conv: after every rectifier, after every convolution.
    block: after the last rectifier of every submodule that has one (each residual block, each dense layer). For a
    network without such submodules, such as VGG, this is the same as last.
    """
    one_of(PLACEMENTS, placement=placement)
    need_stochastic(layer)
    graph = trace(network)
    if placement in ("relu", "block"):
        refuse_random(graph, placement)
    if placement == "relu":
        refuse_hidden(graph)
    nodes = PLACEMENTS[placement](graph)
    if not nodes:
        raise UserError(f"{type(network).__name__} has no place for dropout with placement={placement}: use last")
    warn_of_hooks(graph, network)
    for node in nodes:
        follow(graph, node, copy_for(graph, layer))
    return wire(finish(graph))


def refuse_random(graph, placement):
    """Refuse a network whose rectifiers are random already: the placement would not find them. A layer of the user's
    own may stand in place of a rectifier or behind one, so it counts only if no rectifier is left."""
    layers = [m for m in graph.modules() if isinstance(m, StochasticLayer)]
    own = [m for m in layers if not isinstance(m, (Dropout, GaussianWeight))]
    if any(isinstance(m, (DropReLU, RReLU)) for m in own) or (own and not rectifiers(graph)):
        way_out = f"rbue.randomize(rbue.add_dropout(network, layer, '{placement}'), q=0.9)"
        raise UserError(f"rectifiers of the network are random already: add dropout first, as in {way_out}")


def follow(graph, node, layer):
    new = call(graph, node, layer, node)
    node.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)


def before_last_linear(graph):
    linear = modules_called(graph, nn.Linear)
    if not linear:
        raise UserError(
            "this placement needs an nn.Linear, but the network has none: choose placement=relu or placement=conv"
        )
    return linear[-1].all_input_nodes[:1]


def last_of_each_block(graph):
    last = {caller(n, skip=nn.Sequential): n for n in rectifiers(graph)}
    return [n for block, n in last.items() if block] or before_last_linear(graph)


PLACEMENTS = {
    "last": before_last_linear,
    "block": last_of_each_block,
    "conv": lambda graph: modules_called(graph, nn.Conv2d),
    "relu": rectifiers,
}
