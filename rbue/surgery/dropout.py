"""Insert dropout, or another layer, where the placement says."""

from torch import fx, nn

from rbue.errors import UserError, one_of
from rbue.layers import Dropout, DropReLU, GaussianWeight, RReLU, StochasticLayer
from rbue.surgery.calls import (
    aliases_of,
    image_nodes,
    image_rectifiers,
    is_own,
    modules_called,
    name_of,
    overwrites,
    read_after,
    rectifiers,
    refuse_hidden,
    warn_of_hooks,
)
from rbue.surgery.wiring import call, copy_for, finish, need_stochastic, wire
from rbue.tracing import caller, trace

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def add_dropout(network: nn.Module, layer: StochasticLayer, placement: str) -> fx.GraphModule:
    """Return a new network with `layer` inserted at the placement, which the paper does not specify. It shares its
    weights with `network`.

    last: on the input of the last layer with weights, which must be linear, also where other layers read this input.
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
    if overwrites(graph, node):
        read_after(graph, node.all_input_nodes[0], new)


def before_last_linear(graph):
    """Return the input of the last layer with weights. It must be linear: an nn.Linear, or a product with weights. Of
    several outputs, that one counts which the layers of all others lead to, such as the logits beside the features."""
    (output,) = graph.graph.find_nodes(op="output")
    last = [last_with_weights(graph, leading_to(graph, node)) for node in output.all_input_nodes]
    ends = {node for node in last if node}
    final = [node for node in ends if ends <= leading_to(graph, node)]
    if ends and not final:
        raise UserError(f"placement=last needs one last layer, but there are {len(ends)}: {RETURN_ONE}")
    source = linear_input(graph, final[0]) if final else None
    if source is None:
        here = f"here it is {final[0].name}" if final else "here is none"
        told = f"placement=last needs a linear layer as the last one with weights, but {here}"
        raise UserError(f"{told}: put rbue.Dropout(p) into the network by hand, or choose another placement")
    return [source]


RETURN_ONE = "wrap the network in a module that returns its logits alone"


def leading_to(graph, node):
    """Return a node and all those that its value may be computed from, also through what is written in place."""
    leading, queue = {node}, [node]
    while queue:
        node = queue.pop()
        writers = {u for alias in aliases_of(graph, node) for u in alias.users if overwrites(graph, u)}
        queue += (new := (set(node.all_input_nodes) | writers) - leading)
        leading |= new
    return leading


WEIGHTED = (nn.Linear, nn.Bilinear, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase, *CONVOLUTIONS)
LINEAR = {"linear", "matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm", "einsum", "tensordot"}
NOT_LINEAR = {"bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}


def last_with_weights(graph, nodes):
    """Return the last of the nodes that adds values up with weights, or None. Normalisation and attention over images
    have none: both factors of a product would depend on the images."""
    of_images, last = image_nodes(graph), None
    for node in (n for n in graph.graph.nodes if n in nodes and n in of_images):
        if node.op == "call_module":
            parts = list(graph.get_submodule(node.target).modules())
            weighs = any(isinstance(part, WEIGHTED) or (is_own(part) and has_matrix(part)) for part in parts)
        else:
            weighs = name_of(node) in LINEAR | NOT_LINEAR and not of_images >= set(node.all_input_nodes)
        last = node if weighs and node.op.startswith("call") else last
    return last


def has_matrix(module):
    return any(parameter.dim() > 1 for parameter in module.parameters(recurse=False))


def linear_input(graph, node):
    """Return what a linear layer, or a product with weights, gets from the images; None if the node is neither."""
    if node.op == "call_module":
        return node.all_input_nodes[0] if isinstance(graph.get_submodule(node.target), nn.Linear) else None
    sources = [n for n in node.all_input_nodes if n in image_nodes(graph)]
    return sources[0] if name_of(node) in LINEAR and len(sources) == 1 else None


def last_of_each_block(graph):
    last = {caller(n, skip=nn.Sequential): n for n in image_rectifiers(graph)}
    return [n for block, n in last.items() if block] or before_last_linear(graph)


PLACEMENTS = {
    "last": before_last_linear,
    "block": last_of_each_block,
    "conv": lambda graph: modules_called(graph, CONVOLUTIONS),
    "relu": image_rectifiers,
}
