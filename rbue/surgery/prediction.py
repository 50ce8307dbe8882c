"""What prediction makes of a random network: its mean, fewer batch-norms, and the part that no noise reaches."""

import copy
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary

from torch import fx, nn
from torch.nn.utils import parametrize
from torch.nn.utils.fusion import fuse_conv_bn_eval

from rbue.errors import UserError
from rbue.layers import GaussianWeight, Stem, StochasticLayer
from rbue.surgery.calls import aliases_of, asks_shape, has_hooks, is_stochastic, modules_called, overwrites
from rbue.surgery.wiring import finish
from rbue.tracer import hidden_by
from rbue.tracing import need_module, trace


def deterministic(network: nn.Module) -> nn.Module:
    """Return the deterministic network: a copy in which every stochastic layer is replaced by its mean."""
    need_module(network)
    if isinstance(network, nn.parallel.DistributedDataParallel):  # it remembers buffers that a copy does not have
        raise UserError("DistributedDataParallel cannot be copied without noise: pass its .module")
    if origin := hidden_by(network):
        raise UserError(f"{origin} hides random layers, which would stay: pass the network as it was before {origin}")
    if isinstance(network, StochasticLayer):
        return mean_of(network)
    network = copy.deepcopy(network)
    for module in [m for m in network.modules() if parametrize.is_parametrized(m) and is_ours(m)]:
        use_means(module)
    means = {module: mean_of(module) for module in network.modules() if isinstance(module, StochasticLayer)}
    for name, module in list(network.named_modules(remove_duplicate=False)):  # one layer may be in several places
        if module in means:
            network.set_submodule(name, means[module])
    return network


def mean_of(layer):
    try:
        return layer.deterministic().train(layer.training)
    except NotImplementedError as error:
        lacks = f"{type(layer).__name__} has no method deterministic()"
        raise UserError(f"{lacks}: write one that returns the layer without noise") from error


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


Parts = tuple[fx.GraphModule, fx.GraphModule]
SPLIT: WeakKeyDictionary[fx.GraphModule, tuple[Any, Parts]] = WeakKeyDictionary()


def parts_of(graph: fx.GraphModule, each: Sequence[str]) -> Parts:
    """Split a network like `split_at_noise`, but only if it is another one than in the last call: torch.fx never frees
    the code of a graph, so memory would grow with every prediction."""
    state = what_split_depends_on(graph, each)
    if graph not in SPLIT or SPLIT[graph][0] != state:
        SPLIT[graph] = state, split_at_noise(graph, each)
    graph.meta.pop("opened", None)  # it would be saved with the network
    return SPLIT[graph][1]


def what_split_depends_on(graph: fx.GraphModule, each: Sequence[str]) -> Any:
    """Return the code, its division, and the modules and tensors that it reads. The parts hold these, so that no other
    object can get the same id. No node is returned: it would hold the network."""
    divided = [[n.name for n in graph.graph.nodes if n in part] for part in find_noisy_and_fixed(graph, each)]
    read = [n.target for n in graph.graph.nodes if n.op in ("call_module", "get_attr")]
    return graph.code, divided, [id(attrgetter(target)(graph)) for target in read]


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
    """Return whether a node works in place on memory that other nodes read, as h.add_(y) if h or a view of it is used
    again."""
    written = node.kwargs.get("out") or (node.all_input_nodes[0] if overwrites(graph, node) else None)
    if not isinstance(written, fx.Node):
        return False
    aliases = aliases_of(graph, written, but=node)
    return any(not asks_shape(u) for n in aliases for u in n.users if u is not node and u not in aliases)
