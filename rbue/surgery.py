"""torch.fx surgery: replace every rectifier call of a traceable network by its own stochastic layer.

A trace lists all calls in execution order, of modules and of functions, and also several calls of one module: ResNet-18
has 17 rectifier calls, though each block has only one `self.relu`. The caller's network is not changed. The new network
shares its parameters and their names.
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

from rbue.errors import UserError, one_of
from rbue.layers import Dropout, DropReLU, GaussianWeight, Stem, StochasticLayer
from rbue.noise import Noise
from rbue.tracing import DROPOUTS, Tracer, caller, names_used, restored, trace

Network = TypeVar("Network", bound=nn.Module)
FUNCTIONAL = {F.relu, torch.relu, "relu", torch.ops.aten.relu, torch.ops.aten.relu.default}
FUNCTIONAL |= {F.relu_, torch.relu_, "relu_", torch.ops.aten.relu_, torch.ops.aten.relu_.default}


def modules_called(graph, kinds):
    """Return the nodes that call a module of one of these classes, in execution order."""
    calls = (n for n in graph.graph.nodes if n.op == "call_module")
    return [n for n in calls if isinstance(graph.get_submodule(n.target), kinds)]


def rectifiers(graph):
    """Return the nodes that apply nn.ReLU, F.relu, torch.relu, x.relu() or an in-place form, in execution order."""
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
    """Return a copy of a traceable network with DropReLU(q) in place of its rectifiers.

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
    chosen = choose_position(position, need_rectifiers(rectifiers(graph), network))
    warn_of_hooks(graph, network, chosen)
    for node in chosen:
        replace(graph, node, copy_for(graph, recipe))
    return wire(finish(graph))


def need_stochastic(layer):
    if not isinstance(layer, StochasticLayer):
        what = f"{type(layer).__module__}.{type(layer).__name__}" if isinstance(layer, nn.Module) else repr(layer)
        ours = "rbue.DropReLU(q), rbue.RReLU(), rbue.Dropout(p) or one of your own"
        raise UserError(f"{what} is not a stochastic layer: use {ours}")


def choose_position(position, nodes):
    places = {"all": slice(None), "first": slice(0, 1), "last": slice(-1, None)}
    if position not in places:
        raise UserError(f"position={position} is not known: choose one of {', '.join(places)}")
    return nodes[places[position]]


OTHERS: tuple[type[nn.Module], ...] = (nn.ReLU6, nn.Hardswish, nn.Hardtanh, nn.SiLU, nn.GELU, nn.LeakyReLU, nn.PReLU)
OTHERS += (nn.ELU, nn.Mish, nn.Softplus, nn.SELU, nn.CELU, nn.GLU, nn.RReLU, nn.Threshold, nn.Tanh)
OTHER_CALLS: set[Any] = {F.relu6, F.hardswish, F.hardtanh, F.silu, F.gelu, F.leaky_relu, F.elu, F.mish, F.softplus}
OTHER_CALLS |= {F.selu, F.celu, F.glu, F.rrelu, F.threshold, F.prelu, F.tanh, torch.tanh, "tanh", torch.maximum}
OTHER_CALLS |= {torch.clamp_min, torch.clamp, "clamp_min", "clamp_min_", "clamp", "clamp_", F.hardtanh_}


def warn_of_others(graph):
    """Warn about activations that are not rectifiers, since they stay deterministic."""
    names = [type(graph.get_submodule(n.target)).__name__ for n in modules_called(graph, OTHERS)]
    calls = (n for n in graph.graph.nodes if n.op in ("call_function", "call_method") and n.target in OTHER_CALLS)
    names += [n.target if isinstance(n.target, str) else n.target.__name__ for n in calls]
    if names:
        counts = ", ".join(f"{count} {name}" for name, count in Counter(names).items())
        warnings.warn(f"only rectifiers become random; these activations stay as they are: {counts}", stacklevel=3)


def refuse_hidden(graph):
    """Refuse a module that cannot be traced into and contains rectifiers: they would silently stay deterministic."""
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
    if isinstance(module, nn.ReLU) or getattr(module, "activation", None) in (F.relu, torch.relu):
        return True
    if type(module).__module__.startswith(("torch.nn", "rbue.")):
        return False
    inside = open_module(module)
    return bool(rectifiers(inside) if inside else {"relu", "relu_"} & names_used(module))


def open_module(module):
    """Return the graph of a module by itself, in its current mode, or None if it cannot be traced."""
    try:
        with restored(module):
            return fx.GraphModule(module, Tracer().trace(module))
    except Exception:  # a module's own code may raise anything if it gets a proxy
        return None


def inner_rectifier(graph, node):
    """Return the path of the only nn.ReLU inside a module that is not traced into because it depends on its mode, such
    as timm's BatchNormAct2d. Return None if there is none, or if the number of its calls is not known."""
    module = graph.get_submodule(node.target)
    if type(module).__module__.startswith(("torch.nn", "rbue.")) or not (inside := open_module(module)):
        return None
    calls, closed = rectifiers(inside), graph.graph.find_nodes(op="call_module", target=node.target)
    return calls[0].target if len(calls) == len(closed) == 1 and calls[0].op == "call_module" else None


def warn_of_hooks(graph, network, nodes):
    """Say which forward hooks have no effect in the new network: those of the network and of replaced rectifiers."""
    replaced = [graph.get_submodule(n.target) for n in nodes if n.op == "call_module"]
    names = ", ".join(sorted({type(m).__name__ for m in (network, *replaced) if has_hooks(m)}))
    if names:
        warnings.warn(f"forward hooks have no effect in the new network, but there are some: {names}", stacklevel=3)


def has_hooks(module):
    return bool(module._forward_hooks or module._forward_pre_hooks)


def need_rectifiers(nodes, network):
    if not nodes and any(isinstance(m, StochasticLayer) for m in network.modules()):
        raise UserError(f"{type(network).__name__} is already random: start from the original network")
    if not nodes:
        why = f"{type(network).__name__} calls no nn.ReLU or F.relu, so there is nothing to make random"
        raise UserError(f"{why}; MC-Dropout needs none (rbue.add_dropout, method=mc_dropout)")
    return nodes


def replace(graph, node, layer):
    """Replace a rectifier by the layer. After an in-place rectifier, all later users of its input read its output."""
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
    """Replace the only rectifier of a module that is not traced into. The caller's own module is not changed."""
    module = graph.get_submodule(node.target)
    graph.add_submodule(node.target, with_layer(module, inner_rectifier(graph, node), layer))


def with_layer(module, path, layer):
    """Return a shallow copy of the module with the layer at `path`. Parameters and buffers stay shared."""
    name, _, rest = path.partition(".")
    shallow = copy.copy(module)
    inner = with_layer(module._modules[name], rest, layer) if rest else layer
    shallow._modules = module._modules | {name: inner}
    return shallow


def overwrites(graph, node):
    """Return whether a node works in place on its first input, as x.relu_() and x += y do."""
    if node.op == "call_module":
        return bool(getattr(graph.get_submodule(node.target), "inplace", False))
    name = name_of(node)
    by_name = name in IN_PLACE_CALLS or re.fullmatch(r"[a-z0-9]\w*[a-z0-9]_", name)
    by_position = node.target in FUNCTIONAL and len(node.args) > 1 and node.args[1]
    return node.op.startswith("call") and bool(by_name or node.kwargs.get("inplace", by_position))


IN_PLACE_CALLS = {"iadd", "isub", "imul", "itruediv", "setitem", "__setitem__"}


def name_of(node):
    """Return the name of the function, method or attribute that a node uses."""
    if node.target is getattr:
        return node.args[1]
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name.partition(".")[0]  # aten's names go on with the overload, as in view.default


VIEWS = {"view", "view_as", "reshape", "reshape_as", "flatten", "ravel", "unflatten", "squeeze", "unsqueeze"}
VIEWS |= {"transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "t", "T", "mT", "H", "mH", "adjoint"}
VIEWS |= {"chunk", "split", "split_with_sizes", "tensor_split", "hsplit", "vsplit", "dsplit", "unbind", "getitem"}
VIEWS |= {"select", "narrow", "diagonal", "as_strided", "unfold", "expand", "expand_as", "broadcast_to"}
VIEWS |= {"detach", "data", "real", "imag", "conj", "view_as_real", "view_as_complex"}
# these return their input if there is nothing to change
VIEWS |= {"contiguous", "to", "type", "type_as", "float", "double", "half", "bfloat16", "cpu", "cuda"}
VIEW_MODULES = (nn.Flatten, nn.Unflatten, nn.Identity, *DROPOUTS.values())  # dropout returns its input in eval mode


def viewed(graph, node):
    """Return the node whose memory a node's output may share, or None."""
    if node.op == "call_module":
        shares = isinstance(graph.get_submodule(node.target), VIEW_MODULES)
    else:
        shares = node.op.startswith("call") and name_of(node) in VIEWS
    return node.all_input_nodes[0] if shares or overwrites(graph, node) else None


def refuse_views(graph, source, new):
    """Refuse an in-place rectifier if a view of its memory is read after it: the new layer does not write there."""
    order = {n: k for k, n in enumerate(graph.graph.nodes)}
    aliases, queue = {None, source}, [source]
    while queue:
        node = queue.pop()
        near = {viewed(graph, node), *(u for u in node.users if viewed(graph, u) is node)} - aliases
        queue += near
        aliases |= near
    before = {n for n in aliases - {None, source} if order[n] < order[new]}
    for name in (n for n in before for u in n.users if order[u] > order[new] and not asks_shape(u)):
        raise UserError(f"an in-place rectifier overwrites memory that {name} reads later: use inplace=False there")


def copy_for(graph, layer):
    """Return a copy of the layer on the network's device and in its mode."""
    return copy.deepcopy(layer).train(graph.training).to(device_of(graph))


def device_of(network: nn.Module) -> torch.device | None:
    """Return the network's device, or None, which moves nothing, for a network without parameters and buffers."""
    return next((t.device for group in (network.parameters(), network.buffers()) for t in group), None)


def call(graph, node, layer, source):
    """Insert a call of `layer` directly after `node` and return it."""
    name = f"{type(layer).__name__.lower()}_{sum(isinstance(m, StochasticLayer) for m in graph.modules())}"
    graph.add_submodule(name, layer)
    with graph.graph.inserting_after(node):
        return graph.graph.call_module(name, (source,))


def follow(graph, node, layer):
    new = call(graph, node, layer, node)
    node.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)


def add_dropout(network: nn.Module, layer: StochasticLayer, placement: str) -> fx.GraphModule:
    """Return a copy of the network with `layer` inserted at the placement, which the paper does not specify.

    last: before the last linear layer.
    relu, conv: after every rectifier, after every convolution.
    block: after the last rectifier of every submodule that has one (each residual block, each dense layer). For a
    network without such submodules, such as VGG, this is the same as last.
    """
    one_of(PLACEMENTS, placement=placement)
    need_stochastic(layer)
    graph = trace(network)
    if placement == "relu":
        refuse_hidden(graph)
    nodes = PLACEMENTS[placement](graph)
    if not nodes:
        raise UserError(f"{type(network).__name__} has no place for dropout with placement={placement}: use last")
    for node in nodes:
        follow(graph, node, copy_for(graph, layer))
    return wire(finish(graph))


def before_last_linear(graph):
    linear = modules_called(graph, nn.Linear)
    if not linear:
        raise UserError(
            "this placement needs an nn.Linear, but the network has none: choose placement=relu or placement=conv"
        )
    return [linear[-1].args[0]]


def last_of_each_block(graph):
    last = {caller(n, skip=nn.Sequential): n for n in rectifiers(graph)}
    return [n for block, n in last.items() if block] or before_last_linear(graph)


PLACEMENTS = {
    "last": before_last_linear,
    "block": last_of_each_block,
    "conv": lambda graph: modules_called(graph, nn.Conv2d),
    "relu": rectifiers,
}


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


def deterministic(network: nn.Module) -> nn.Module:
    """Return the deterministic network: a copy in which every stochastic layer is replaced by its mean."""
    if isinstance(network, StochasticLayer):
        return network.deterministic()
    network = copy.deepcopy(network)
    for module in [m for m in network.modules() if parametrize.is_parametrized(m) and is_ours(m)]:
        use_means(module)
    means = {module: module.deterministic() for module in network.modules() if isinstance(module, StochasticLayer)}
    for name, module in list(network.named_modules(remove_duplicate=False)):  # one layer may be in several places
        if module in means:
            network.set_submodule(name, means[module])
    return network


def is_ours(module):
    """Return whether a module's parametrizations are Gaussian weights. Others, such as spectral_norm, must stay."""
    return all(isinstance(step, GaussianWeight) for chain in module.parametrizations.values() for step in chain)


def use_means(module):
    """Replace the module's random weights by their posterior means. torch's remove_parametrizations would change the
    class, which copies share."""
    means = {name: chain.original for name, chain in module.parametrizations.items()}
    module.__class__ = parametrize.type_before_parametrizations(module)
    del module.parametrizations
    for name, mean in means.items():
        module.register_parameter(name, mean)


def wire(network: Network) -> Network:
    """Number the stochastic layers in execution order and give them one source of noise."""
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


def finish(graph: fx.GraphModule) -> fx.GraphModule:
    graph.delete_all_unused_submodules()
    graph.graph.lint()
    graph.recompile()
    return graph


def fold(network):
    """Fold batch-norm into the convolution before it. This is valid only for a network in eval mode."""
    graph = trace(network)
    convolutions = used_once(graph, nn.Conv2d, Stem)
    for node, norm in used_once(graph, nn.BatchNorm2d).items():
        source = node.all_input_nodes[0]
        if source in convolutions and len(source.users) == 1 and norm.running_mean is not None:
            graph.add_submodule(source.target, fuse_conv_bn_eval(convolutions[source], norm))
            node.replace_all_uses_with(source)
            graph.graph.erase_node(node)
    return finish(graph)


def used_once(graph, *kinds):
    """Return {node: module} for the calls of modules that are called once, and whose parameters are not read elsewhere.

    The modules have exactly these classes and no hooks: subclasses, parametrizations and hooks may compute more.
    """
    called = [n.target for n in graph.graph.nodes if n.op == "call_module"]
    read = [n.target.rpartition(".")[0] for n in graph.graph.nodes if n.op == "get_attr"]
    uses = Counter(called + read)
    modules = {n: graph.get_submodule(n.target) for n in modules_called(graph, kinds)}
    return {n: m for n, m in modules.items() if uses[n.target] == 1 and type(m) in kinds and not has_hooks(m)}


def split_at_noise(graph: fx.GraphModule, each: Sequence[str] = ()) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Split a traced network into (once, every): the part that does not depend on noise, and the rest.

    `every(*once(x))` equals the network: the output of `once` is computed once per batch and repeated for all samples.
    Shapes are read again in `every`, where the batch is larger. Of the arguments after the first, `each` names those
    with one row per image. Both parts take the other arguments, which are not repeated.
    """
    noisy, fixed = find_noisy_and_fixed(graph, each)
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


def find_noisy_and_fixed(graph: fx.GraphModule, each: Sequence[str]) -> tuple[set[fx.Node], set[fx.Node]]:
    """Return the nodes that depend on noise, and those that depend on no image, which are not repeated."""
    arguments = graph.graph.find_nodes(op="placeholder")
    noisy: set[fx.Node] = set()
    fixed = {n for n in arguments[1:] if n.target not in each}
    ordered = any(overwrites_shared(graph, node) for node in graph.graph.nodes)  # then no node may be reordered
    for node in graph.graph.nodes:
        if (
            (ordered and node.op != "placeholder")
            or node.op == "output"
            or is_stochastic(graph, node)
            or asks_shape(node)
            or node.target is getattr  # in x.T, the rows are no longer the images
            or noisy & set(node.all_input_nodes)
        ):
            noisy.add(node)
        elif node.op != "placeholder" and fixed >= set(node.all_input_nodes):
            fixed.add(node)
    return noisy, fixed


def overwrites_shared(graph, node):
    """Return whether a node works in place on a value that other nodes read, as h.add_(y) if h is used again."""
    written = node.args[0] if node.args else None
    users = written.users if isinstance(written, fx.Node) else ()
    return overwrites(graph, node) and sum(not asks_shape(u) for u in users) > 1


def is_stochastic(graph, node):
    """Return whether a node calls a stochastic layer, or a module that was not traced into and contains one."""
    inside = graph.get_submodule(node.target).modules() if node.op == "call_module" else ()
    return any(isinstance(m, StochasticLayer) for m in inside)


def asks_shape(node):
    """Return whether a node reads no values, as x.size() and x.shape."""
    asks = {("call_method", "size"), ("call_method", "dim"), ("call_function", getattr)}
    return (node.op, node.target) in asks and name_of(node) not in VIEWS
