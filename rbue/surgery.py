"""torch.fx surgery: every rectifier call of a traceable network becomes its own site of noise.

Module and functional rectifiers show up alike as call sites in execution order, also where several calls share one
module (17 sites in ResNet-18, though each block has one `self.relu`). The caller's network is left as it was; the new
one shares its parameters and their names.
"""

import copy
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.fusion import fuse_conv_bn_eval

from rbue.errors import UserError
from rbue.layers import DropReLU, GaussianWeight, StochasticLayer
from rbue.noise import Noise
from rbue.tracing import Tracer, trace, unchanged

Network = TypeVar("Network", bound=nn.Module)
IN_PLACE = {F.relu_, torch.relu_, "relu_", torch.ops.aten.relu_, torch.ops.aten.relu_.default}
FUNCTIONAL = {F.relu, torch.relu, "relu", torch.ops.aten.relu, torch.ops.aten.relu.default} | IN_PLACE


def modules_called(graph, kinds):
    """Nodes that call a module of one of these kinds, in execution order."""
    calls = (n for n in graph.graph.nodes if n.op == "call_module")
    return [n for n in calls if isinstance(graph.get_submodule(n.target), kinds)]


def rectifiers(graph):
    """Nodes that apply a rectifier, in execution order: nn.ReLU, F.relu, torch.relu, x.relu() and in-place forms."""
    by_module = set(modules_called(graph, nn.ReLU))
    by_module |= {n for n in modules_called(graph, nn.Module) if n not in by_module and inner_rectifier(graph, n)}
    return [n for n in graph.graph.nodes if n in by_module or (n.op.startswith("call") and n.target in FUNCTIONAL)]


def randomize(
    network: nn.Module,
    layer: StochasticLayer | None = None,
    *,
    q: float | None = None,
    position: Literal["all", "first", "last"] = "all",
) -> fx.GraphModule:
    """MC-DropReLU(q) of any traceable network; `layer` puts another stochastic layer, such as RReLU(), in its place.

    `position` is all, first or last: which rectifiers become random, in the order they are executed. Activations that
    are no rectifiers stay as they are, and a warning names them.
    """
    if (layer is None) == (q is None):
        raise UserError("randomize needs either q, the probability of keeping a rectifier, or a layer such as RReLU()")
    recipe = layer if q is None else DropReLU(q)
    if not isinstance(recipe, StochasticLayer):
        raise UserError(f"{type(layer).__name__} is no stochastic layer: give DropReLU(q), RReLU() or one of your own")
    graph = trace(network)
    refuse_hidden(graph)
    warn_of_others(graph)
    for node in at(position, some(rectifiers(graph), network)):
        replace(graph, node, copy.deepcopy(recipe))
    return wire(finish(graph))


def at(position, nodes):
    places = {"all": slice(None), "first": slice(0, 1), "last": slice(-1, None)}
    if position not in places:
        raise UserError(f"position={position} is not known: choose one of {', '.join(places)}")
    return nodes[places[position]]


OTHERS = (nn.ReLU6, nn.Hardswish, nn.Hardtanh, nn.SiLU, nn.GELU, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.Mish, nn.Softplus)
OTHER_CALLS: set[Any] = {F.relu6, F.hardswish, F.hardtanh, F.silu, F.gelu, F.leaky_relu, F.elu, F.mish, F.softplus}
OTHER_CALLS |= {torch.clamp_min, torch.clamp, "clamp_min", "clamp_min_", "clamp", "clamp_", F.hardtanh_}


def warn_of_others(graph):
    """Say which activations stay deterministic: a network is then random in part."""
    names = [type(graph.get_submodule(n.target)).__name__ for n in modules_called(graph, OTHERS)]
    calls = (n for n in graph.graph.nodes if n.op in ("call_function", "call_method") and n.target in OTHER_CALLS)
    names += [n.target if isinstance(n.target, str) else n.target.__name__ for n in calls]
    if names:
        counts = ", ".join(f"{count} {name}" for name, count in Counter(names).items())
        warnings.warn(f"only rectifiers become random; these activations stay as they are: {counts}", stacklevel=3)


def refuse_hidden(graph):
    """Refuse a module that is not opened and hides rectifiers, which would stay as they are, unnoticed."""
    seen = set(rectifiers(graph))
    for node in (n for n in modules_called(graph, nn.Module) if n not in seen):
        closed = graph.get_submodule(node.target)
        if any(map(hides_rectifier, closed.modules())):
            raise UserError(
                f"{node.target} is a {type(closed).__name__}, whose rectifiers torch.fx does not see: make it with "
                "activation=rbue.DropReLU(q) where it takes one, or write it out in layers of your own"
            )


def hides_rectifier(module):
    if isinstance(module, (nn.RNN, nn.RNNCell)):
        return module.nonlinearity == "relu"
    return isinstance(module, nn.ReLU) or getattr(module, "activation", None) in (F.relu, torch.relu)


def inner_rectifier(graph, node):
    """The path of the one nn.ReLU inside a module that is not opened because it depends on its mode, as in timm's
    BatchNormAct2d; None where there is none, or where it cannot be told how often it is called."""
    module = graph.get_submodule(node.target)
    if type(module).__module__.startswith("torch.nn") or isinstance(module, StochasticLayer):
        return None
    try:
        with unchanged(module):
            inside = fx.GraphModule(module, Tracer().trace(module))
    except Exception:  # what it does cannot be seen: `refuse_hidden` has the last word
        return None
    calls, closed = rectifiers(inside), graph.graph.find_nodes(op="call_module", target=node.target)
    return calls[0].target if len(calls) == len(closed) == 1 and calls[0].op == "call_module" else None


def some(nodes, network):
    if not nodes and any(isinstance(m, StochasticLayer) for m in network.modules()):
        raise UserError(f"{type(network).__name__} is random already: start again from the network it was made of")
    if not nodes:
        raise UserError(f"{type(network).__name__} calls no nn.ReLU or F.relu, so there is nothing to make random")
    return nodes


def replace(graph, node, layer):
    """Put the layer in the rectifier's place. Behind an in-place rectifier, later users of its input see its output."""
    if node.op == "call_module" and not isinstance(graph.get_submodule(node.target), nn.ReLU):
        return replace_inside(graph, node, layer)
    source = node.args[0] if node.args else node.kwargs["input"]
    new = call(graph, node, layer, source)
    node.replace_all_uses_with(new)
    if overwrites(graph, node):
        refuse_views(graph, source, new)
        order = {n: k for k, n in enumerate(graph.graph.nodes)}
        for user in [u for u in source.users if order[u] > order[new]]:
            user.replace_input_with(source, new)
    graph.graph.erase_node(node)


def replace_inside(graph, node, layer):
    """The same for the one rectifier of a module that is not opened; the caller's own module stays as it is."""
    path, module = inner_rectifier(graph, node), copy.copy(graph.get_submodule(node.target))
    parents = path.split(".")[:-1]
    owner = module
    owner._modules = dict(owner._modules)
    for name in parents:
        owner._modules[name] = copy.copy(owner._modules[name])
        owner = owner._modules[name]
        owner._modules = dict(owner._modules)
    owner._modules[path.split(".")[-1]] = layer
    graph.add_submodule(node.target, module)


def overwrites(graph, node):
    if node.op == "call_module":
        return graph.get_submodule(node.target).inplace
    return node.target in IN_PLACE or bool(node.kwargs.get("inplace", len(node.args) > 1 and node.args[1]))


VIEWS = {"view", "view_as", "reshape", "flatten", "unflatten", "transpose", "permute", "squeeze", "unsqueeze"}
VIEWS |= {"expand", "chunk", "split", "narrow", "getitem"}


def is_view(graph, node):
    """Whether a node may give the memory of its input under another shape."""
    if node.op == "call_module":
        return isinstance(graph.get_submodule(node.target), (nn.Flatten, nn.Unflatten, nn.Identity))
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return node.op in ("call_method", "call_function") and name in VIEWS


def refuse_views(graph, source, new):
    """Refuse an in-place rectifier whose memory is read under another name after it: the new layer writes elsewhere."""
    order = {n: k for k, n in enumerate(graph.graph.nodes)}
    aliases, queue = {source}, [source]
    while queue:
        node = queue.pop()
        near = [u for u in node.users if is_view(graph, u)] + (node.all_input_nodes if is_view(graph, node) else [])
        queue += [n for n in near if n not in aliases]
        aliases |= set(near)
    before = {n for n in aliases if order[n] < order[new]}
    for name in (n for n in before - {source} for u in n.users if order[u] > order[new] and not asks_shape(u)):
        raise UserError(
            f"a rectifier works in place on memory that {name} reads after it: let it not work in place there"
        )


def call(graph, node, layer, source):
    """A call of `layer` right behind `node`."""
    name = f"{type(layer).__name__.lower()}_{sum(isinstance(m, StochasticLayer) for m in graph.modules())}"
    graph.add_submodule(name, layer)
    with graph.graph.inserting_after(node):
        return graph.graph.call_module(name, (source,))


def follow(graph, node, layer):
    new = call(graph, node, layer, node)
    node.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)


def add_dropout(network: nn.Module, layer: StochasticLayer, placement: str) -> fx.GraphModule:
    """Dropout where the placement says: the paper does not.

    last: before the last linear layer. relu, conv: behind every rectifier, every convolution.
    block: behind the last rectifier of every submodule that has one (each residual block, each dense layer);
    a network without such submodules, as VGG, has its classifier only: the same as last.
    """
    graph = trace(network)
    for node in PLACEMENTS[placement](graph):
        follow(graph, node, copy.deepcopy(layer))
    return wire(finish(graph))


def before_last_linear(graph):
    linear = modules_called(graph, nn.Linear)
    if not linear:
        raise UserError("this placement is before the last nn.Linear, and there is none: take placement=relu or conv")
    return [linear[-1].args[0]]


def last_of_each_block(graph):
    last = {owner(n): n for n in rectifiers(graph)}
    return [n for block, n in last.items() if block] or before_last_linear(graph)


def owner(node):
    """The path of the innermost module that made this call; "" for the network itself and its plain sequences."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    callers = stack[:-1] if node.op == "call_module" else stack
    return next((path for path, kind in reversed(callers) if not issubclass(kind, nn.Sequential)), "")


PLACEMENTS = {
    "last": before_last_linear,
    "block": last_of_each_block,
    "conv": lambda graph: modules_called(graph, nn.Conv2d),
    "relu": rectifiers,
}


def bayes(network: nn.Module, weight: Callable[..., GaussianWeight], **settings: Any) -> nn.Module:
    """A Gaussian `weight(mean, **settings)` in place of every convolution's and linear layer's own parameters;
    batch-norm stays deterministic."""
    network = copy.deepcopy(network)
    for module in [m for m in network.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]:
        for name, mu in list(module.named_parameters(recurse=False)):
            parametrize.register_parametrization(module, name, weight(mu.detach(), **settings), unsafe=True)
    return wire(network)


def posteriors(network: nn.Module) -> list[tuple[Tensor, GaussianWeight]]:
    """(mean, GaussianWeight) of every parameter that `bayes` made random."""
    lists = [m for m in network.modules() if isinstance(m, parametrize.ParametrizationList)]
    return [(m.original, m[0]) for m in lists if isinstance(m[0], GaussianWeight)]


def kl(network: nn.Module) -> Tensor:
    """KL divergence between posterior and prior, summed over all random weights, in nats."""
    return torch.stack([weight.kl(mu) for mu, weight in posteriors(network)]).sum()


def plain_parameters(network: nn.Module) -> list[nn.Parameter]:
    """The parameters that `bayes` left deterministic."""
    random = {id(p) for mu, weight in posteriors(network) for p in (mu, *weight.parameters())}
    return [p for p in network.parameters() if id(p) not in random]


def deterministic(network: nn.Module) -> nn.Module:
    """The same weights in one pass without noise: every stochastic layer gives way to its mean."""
    network = copy.deepcopy(network)
    for module in [m for m in network.modules() if parametrize.is_parametrized(m)]:
        settle(module)
    for name, module in list(network.named_modules()):
        if isinstance(module, StochasticLayer):
            network.set_submodule(name, module.deterministic())
    return network


def settle(module):
    """Its weights become their posterior means. torch's own removal would change the class, which copies share."""
    means = {name: chain.original for name, chain in module.parametrizations.items()}
    module.__class__ = parametrize.type_before_parametrizations(module)
    del module.parametrizations
    for name, mean in means.items():
        module.register_parameter(name, mean)


def wire(network: Network) -> Network:
    """Numbers the sites in execution order and gives them one source of noise."""
    sites = [m for m in network.modules() if isinstance(m, StochasticLayer)]
    shared = Noise(len(sites))
    for number, site in enumerate(sites):
        site.noise, site.site = shared, number
    return network


def finish(graph: fx.GraphModule) -> fx.GraphModule:
    graph.delete_all_unused_submodules()
    graph.graph.lint()
    graph.recompile()
    return graph


def fold(network):
    """Batch-norm that follows a convolution becomes part of it: for a network in eval mode."""
    graph = trace(network)
    for node in modules_called(graph, nn.BatchNorm2d):
        source = node.args[0]
        if source in modules_called(graph, nn.Conv2d) and len(source.users) == 1:
            convolution, norm = graph.get_submodule(source.target), graph.get_submodule(node.target)
            graph.add_submodule(source.target, fuse_conv_bn_eval(convolution, norm))
            node.replace_all_uses_with(source)
            graph.graph.erase_node(node)
    return finish(graph)


def split_at_noise(graph: fx.GraphModule, each: Sequence[str] = ()) -> tuple[fx.GraphModule, fx.GraphModule]:
    """(once, every): the part of a traced network that no noise reaches, and the rest.

    `every(*once(x))` is the network: what `once` gives is computed once and repeated for as many samples as wanted.
    Shapes are asked for anew in `every`, where the batch is larger. Of the arguments behind the first, `each` names
    those with a row for each image; both parts take the others, which are not repeated.
    """
    arguments = [n for n in graph.graph.nodes if n.op == "placeholder"]
    noisy: set[fx.Node] = set()  # reached by noise
    fixed = {n for n in arguments[1:] if n.target not in each}  # reached by no image, so not to be repeated with them
    ordered = any(overwrites_shared(graph, node) for node in graph.graph.nodes)  # then the order of all nodes matters
    for node in graph.graph.nodes:
        if (
            (ordered and node.op != "placeholder")
            or node.op == "output"
            or is_stochastic(graph, node)
            or asks_shape(node)
            or noisy & set(node.all_input_nodes)
        ):
            noisy.add(node)
        elif node.op != "placeholder" and fixed >= set(node.all_input_nodes):
            fixed.add(node)
    given = [n for n in graph.graph.nodes if n not in noisy | fixed and noisy & set(n.users)]
    once, every = fx.Graph(), fx.Graph()
    here: dict[fx.Node, fx.Node] = {}
    there = {n: every.placeholder(n.name) for n in given}
    for node in graph.graph.nodes:
        if node not in noisy:
            here[node] = once.node_copy(node, here.__getitem__)
        if node in noisy | fixed:
            there[node] = every.node_copy(node, there.__getitem__)
    once.output(tuple(here[n] for n in given))
    return fx.GraphModule(graph, once), fx.GraphModule(graph, every)


def overwrites_shared(graph, node):
    """Whether a node works in place on a value that others read too, as h.add_(y) does where h is used again."""
    if node.op == "call_module":
        in_place = getattr(graph.get_submodule(node.target), "inplace", False)
    else:
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        in_place = node.op.startswith("call") and (
            name in IN_PLACE_CALLS or re.fullmatch(r"[a-z0-9]\w*[a-z0-9]_", name)
        )
        in_place = in_place or node.kwargs.get("inplace", False)
    written = node.args[0] if node.args else None
    return bool(in_place) and isinstance(written, fx.Node) and sum(not asks_shape(u) for u in written.users) > 1


IN_PLACE_CALLS = {"iadd", "isub", "imul", "itruediv", "setitem", "__setitem__"}


def is_stochastic(graph, node):
    """A random layer, or a module that is not opened and holds one."""
    return node.op == "call_module" and any(
        isinstance(m, StochasticLayer) for m in graph.get_submodule(node.target).modules()
    )


def asks_shape(node):
    return (node.op, node.target) in {("call_method", "size"), ("call_method", "dim"), ("call_function", getattr)}
