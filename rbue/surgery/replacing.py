"""Replace every rectifier call of a traceable network by its own stochastic layer.

A trace lists all calls in execution order, of modules and of functions, and also several calls of one module: ResNet-18
has 17 rectifier calls, though each block has only one `self.relu`. The caller's network is not changed. The new network
shares its parameters and their names.
"""

import copy
import functools
import operator
import warnings
from collections import Counter
from typing import Literal

from torch import fx, nn

from rbue.errors import UserError, one_of
from rbue.layers import Dropout, DropReLU, StochasticLayer
from rbue.surgery.calls import (
    aliases_of,
    graphs_of,
    image_nodes,
    image_rectifiers,
    inner_rectifier,
    is_closed_function,
    is_relu,
    modules_called,
    name_of,
    names_rectifier,
    overwrites,
    read_after,
    reads_later,
    rectifiers,
    refuse_hidden,
    warn_of_hooks,
)
from rbue.surgery.wiring import call, copy_for, finish, need_stochastic, wire
from rbue.tracing import trace


def randomize(
    network: nn.Module,
    layer: StochasticLayer | None = None,
    *,
    q: float | None = None,
    position: Literal["all", "first", "last"] = "all",
) -> fx.GraphModule:
    """Return a new network, traced from `network`, with DropReLU(q) in place of its rectifiers. The two share weights.

    `layer` is another stochastic layer to use instead, such as RReLU(). `position` says which rectifiers become random:
    all, or only the first or last in execution order. Other activations stay as they are, and a warning names them.
    """
    if (layer is None) == (q is None):
        raise UserError("randomize needs either q, the probability of keeping a rectifier, or a layer such as RReLU()")
    recipe = layer if q is None else DropReLU(q)
    need_stochastic(recipe)
    if isinstance(recipe, Dropout):
        way_out = "rbue.add_dropout(network, layer, 'relu') puts it after them"
        raise UserError(f"Dropout does not rectify, so it cannot replace rectifiers: {way_out}")
    graph = trace(network)
    refuse_hidden(graph)
    warn_of_others(graph)
    chosen = choose_position(position, need_rectifiers(of_images(graph), network))
    warn_of_hooks(graph, network, chosen)
    for node in chosen:
        replace(graph, node, copy_for(graph, recipe))
    return wire(finish(graph))


def of_images(graph):
    """Return the rectifiers of images. Those of weights stay as they are, and a warning says so."""
    chosen = image_rectifiers(graph)
    left = [n.name for n in rectifiers(graph) if n not in chosen]
    for node in modules_called(graph, nn.Module):
        inside = graphs_of(graph, graph.get_submodule(node.target))
        left += [node.name] if any(set(rectifiers(each)) - set(image_rectifiers(each)) for each in inside) else []
    if left:
        told = "rectifiers of weights stay as they are, since only those of images become random"
        warnings.warn(f"{told}: {', '.join(left)}", stacklevel=3)
    return chosen


def choose_position(position, nodes):
    places = {"all": slice(None), "first": slice(0, 1), "last": slice(-1, None)}
    one_of(places, position=position)
    return nodes[places[position]]


OTHERS: tuple[type[nn.Module], ...] = (nn.ReLU6, nn.Hardswish, nn.Hardtanh, nn.SiLU, nn.GELU, nn.LeakyReLU, nn.PReLU)
OTHERS += (nn.ELU, nn.Mish, nn.Softplus, nn.SELU, nn.CELU, nn.GLU, nn.RReLU, nn.Threshold, nn.Tanh)
OTHERS += (nn.Softsign, nn.LogSigmoid, nn.Hardshrink, nn.Softshrink, nn.Tanhshrink)
OTHER_CALLS = {"relu6", "hardswish", "hardtanh", "silu", "gelu", "leaky_relu", "prelu", "elu", "mish", "softplus"}
OTHER_CALLS |= {"selu", "celu", "glu", "rrelu", "threshold", "tanh", "clamp", "clamp_min", "clip"}
OTHER_CALLS |= {"softsign", "logsigmoid", "hardshrink", "softshrink", "tanhshrink", "heaviside"}
COMPARED = {"where": "where(x > 0, x, y)"}  # rectifiers that are written as a comparison
COMPARED |= dict.fromkeys(("mul", "multiply", "imul"), "x * (x > 0)")
COMPARED |= {"masked_fill": "x.masked_fill(x < 0, y)"}
BOUNDS = {"clamp", "clamp_min", "clip"}
EXTREMES = {"max", "maximum", "fmax", "min", "minimum", "fmin"}  # of a tensor and a constant, such as zeros
CONSTANTS = {"zeros", "zeros_like", "new_zeros", "full", "full_like", "new_full", "tensor", "as_tensor"}
CASTS = {"float", "double", "half", "bfloat16", "int", "long", "to", "type", "type_as"}  # of a mask
CASTS |= {"invert", "bitwise_not", "logical_not"}


def warn_of_others(graph):
    """Warn about activations that are not rectifiers, or not seen as such, since they stay deterministic."""
    if counts := others(graph):
        counts = ", ".join(f"{count} {name}" for name, count in counts.items())
        warnings.warn(f"only rectifiers become random; these activations stay as they are: {counts}", stacklevel=3)


def others(graph):
    """Count the activations of images, other than rectifiers."""
    of_images = image_nodes(graph)
    called = [graph.get_submodule(n.target) for n in modules_called(graph, nn.Module) if n in of_images]
    calls = [n for n in graph.graph.nodes if n in of_images and n.op in ("call_function", "call_method")]
    found = Counter(name for name in map(other_activation, calls) if name)
    return sum((others_inside(graph, module) for module in called), Counter()) + found


def others_inside(graph, module):
    """Count those of a module that is not traced into. If its graphs are known, a call in both of them counts once."""
    if isinstance(module, OTHERS):
        return Counter([type(module).__name__])
    if isinstance(module, StochasticLayer):
        return Counter()
    if inside := graphs_of(graph, module):
        return functools.reduce(operator.or_, map(others, inside))
    return sum((others_inside(graph, child) for child in module.children()), Counter())


def other_activation(node):
    """Return the name of the activation that a node calls, in place or not, or None."""
    name = name_of(node).strip("_")
    if name in COMPARED and compares_itself(node):
        return COMPARED[name]
    if is_closed_function(node.target) and names_rectifier(node.target):
        return f"{name}(), which torch.fx does not trace"
    if name in BOUNDS and keeps_positive(node):
        return None
    if name in EXTREMES:
        constant = [n for n in node.all_input_nodes if n.op == "get_attr" or name_of(n) in CONSTANTS]
        return name if constant and len(node.all_input_nodes) == 2 else None
    return name if name in OTHER_CALLS else None


def keeps_positive(node):
    """Return whether a node only bounds its input from below by a positive number, as v.clamp(min=1e-5) does."""
    given = dict(zip(("input", "min", "max"), node.args, strict=False)) | node.kwargs
    return given.get("max") is None and isinstance(given.get("min"), int | float) and given["min"] > 0


def compares_itself(node):
    """Return whether an input of a node is a comparison of another one, as in x * (x > 0) and x * (x > 0).float()."""
    inputs = set(node.all_input_nodes)
    masks = inputs | {source for n in inputs if name_of(n) in CASTS for source in n.all_input_nodes[:1]}
    return any(name_of(mask) in {"gt", "ge", "lt", "le"} and inputs & set(mask.all_input_nodes) for mask in masks)


def need_rectifiers(nodes, network):
    if not nodes and any(isinstance(m, StochasticLayer) for m in network.modules()):
        raise UserError(f"{type(network).__name__} is already random: start from the original network")
    if not nodes:
        why = f"{type(network).__name__} calls no nn.ReLU or F.relu, so there is nothing to make random"
        raise UserError(f"{why}; dropout needs none: rbue.add_dropout in your code, or method=mc_dropout in the suite")
    return nodes


def replace(graph, node, layer):
    """Replace a rectifier by the layer. After an in-place rectifier, all later users of its input read its output."""
    if node.op == "call_module" and not is_relu(graph.get_submodule(node.target)):
        return replace_inside(graph, node, layer)
    source = node.args[0] if node.args else node.kwargs["input"]
    new = call(graph, node, layer, source)
    node.replace_all_uses_with(new)
    if overwrites(graph, node):
        read_after(graph, source, new)
    graph.graph.erase_node(node)


def replace_inside(graph, node, layer):
    """Replace the only rectifier of a module that is not traced into. The caller's own module is not changed."""
    module, path = graph.get_submodule(node.target), inner_rectifier(graph, node)
    if reads_later(graph, node.all_input_nodes[0], node):
        for inside in graphs_of(graph, module):
            refuse_overwritten_input(inside, path, node.target)
    graph.add_submodule(node.target, with_layer(module, path, layer))


def refuse_overwritten_input(inside, path, name):
    """Refuse an in-place rectifier of a module's own input that is read later: the layer does not write there."""
    given = set(inside.graph.find_nodes(op="placeholder"))
    for rectifier in inside.graph.find_nodes(op="call_module", target=path):
        if overwrites(inside, rectifier) and given & aliases_of(inside, rectifier.all_input_nodes[0], but=rectifier):
            raise UserError(f"{name} overwrites its input by an in-place rectifier: use inplace=False there")


def with_layer(module, path, layer):
    """Return a shallow copy of the module with the layer at `path`. Parameters and buffers stay shared."""
    name, _, rest = path.partition(".")
    shallow = copy.copy(module)
    inner = with_layer(module._modules[name], rest, layer) if rest else layer
    shallow._modules = module._modules | {name: inner}
    return shallow
