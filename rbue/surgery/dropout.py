"""Insert dropout, or another layer, where the placement says."""

from torch import fx, nn

from rbue.errors import UserError, one_of
from rbue.layers import Dropout, DropReLU, GaussianWeight, RReLU, StochasticLayer
from rbue.surgery.calls import modules_called, name_of, rectifiers, refuse_hidden, warn_of_hooks
from rbue.surgery.wiring import call, copy_for, finish, need_stochastic, wire
from rbue.tracing import caller, trace

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def add_dropout(network: nn.Module, layer: StochasticLayer, placement: str) -> fx.GraphModule:
    """Return a copy of the network with `layer` inserted at the placement, which the paper does not specify.

    last: on the input of the last linear layer, also where other layers read this input. If the network returns several
    tensors, this is the layer that the first one comes from.
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
    """Return the input of the last layer with weights that the first output depends on. It must be an nn.Linear."""
    linear = modules_called(graph, nn.Linear)
    if not linear:
        raise UserError(
            "this placement needs an nn.Linear, but the network has none: choose placement=relu or placement=conv"
        )
    (output,) = graph.graph.find_nodes(op="output")
    leading = leading_to(output.all_input_nodes[0])
    last = [n for n in graph.graph.nodes if n in leading and weighs(graph, n)][-1:]
    if not set(last) <= set(linear):
        told = f"this placement needs an nn.Linear as the last layer with weights, but here it is {last[0].name}"
        raise UserError(f"{told}: put rbue.Dropout(p) before it by hand, or choose another placement")
    return [n.all_input_nodes[0] for n in last]


def leading_to(node):
    """Return a node and all those that its value is computed from."""
    leading, queue = {node}, [node]
    while queue:
        queue += (new := set(queue.pop().all_input_nodes) - leading)
        leading |= new
    return leading


WEIGHTED = (nn.Linear, nn.Bilinear, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase, *CONVOLUTIONS)
PRODUCTS = {"linear", "bilinear", "matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm", "einsum", "tensordot"}
PRODUCTS |= {"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}


def weighs(graph, node):
    """Return whether a node adds its inputs up with weights, as a linear layer does. Normalisation does not."""
    if node.op == "call_module":
        return any(isinstance(part, WEIGHTED) for part in graph.get_submodule(node.target).modules())
    return node.op.startswith("call") and name_of(node) in PRODUCTS


def last_of_each_block(graph):
    last = {caller(n, skip=nn.Sequential): n for n in rectifiers(graph)}
    return [n for block, n in last.items() if block] or before_last_linear(graph)


PLACEMENTS = {
    "last": before_last_linear,
    "block": last_of_each_block,
    "conv": lambda graph: modules_called(graph, CONVOLUTIONS),
    "relu": rectifiers,
}
