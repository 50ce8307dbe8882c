"""torch.fx graphs of arbitrary networks. Unlike plain torch.fx graphs, they follow train() and eval()."""

import copy
import inspect
import traceback
import warnings
from contextlib import contextmanager
from itertools import compress, zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel

from rbue.errors import UserError, first_line
from rbue.tracer import OPERATORS, Tracer, autocast_depth, contexts, made_by


def trace(network: nn.Module) -> fx.GraphModule:
    """Return the network as a graph that follows train() and eval() as the original does.

    A graph contains only the branches of the mode in which it was traced. So both modes are traced and compared, and a
    module whose code depends on the mode, such as stochastic depth, is not traced into. Neither is one that opens
    torch.no_grad or torch.autocast, that has a backward pass of its own, or that draws random numbers in Python, whose
    values would be fixed. Arguments after the first whose default is None, a bool or a string keep this default.
    """
    need_module(network)
    refuse_wrapped(network)
    refuse_uninitialized(network)
    if any(asks_type(function) for module in network.modules() for function in functions_of(module)):
        return trace_all(network, buffers=False)  # a stand-in for a buffer would be no tensor
    try:
        return trace_all(network, buffers=True)
    except UserError:
        return trace_all(network, buffers=False)  # forward may need the value of a buffer, as in `if self.flag:`


def trace_all(network, buffers):
    """Return the graph of all modules that can be traced into. It reads buffers, or keeps their values."""
    whole = set()
    while True:
        try:
            traced = [trace_in_mode(network, mode, whole, buffers) for mode in (True, False)]
        except UserError:
            if whole >= (small := small_mode_readers(network)):
                raise
            whole |= small  # one of these may be the reason why tracing failed
            continue
        (training, written, drawing), (evaluation, _, also_drawing) = traced
        found = (drawing | also_drawing) or mode_dependent(network, training, evaluation)
        if "" in found or (found and found <= whole):
            refuse_mode(network)
        found = found or inside_contexts(network, training)
        if not found:
            refuse_written(network, written)
            warn_of_own_train(network, training)
            warn_of_types(network, training)
            warn_of_autocast(network, training)
            return in_modes_of(network, thaw_dropout(training, evaluation))
        whole |= found


def need_module(network: Any) -> None:
    if not isinstance(network, nn.Module):
        raise UserError(f"the network is a {type(network).__name__}: pass a torch.nn.Module, such as resnet18()")


def refuse_wrapped(network):
    """Refuse a network inside a wrapper that torch.fx cannot trace, and say which network to pass instead."""
    way_out = None
    if isinstance(network, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        way_out = "pass its .module, and wrap the new network"
    elif isinstance(network, AveragedModel):
        way_out = "pass its .module, and average the new network"
    elif origin := made_by(network):
        way_out = f"pass the network as it was before {origin}"
    elif hasattr(network, "_orig_mod"):
        way_out = "pass the network as it was before torch.compile, and compile the new one"
    elif "forward" in vars(network):
        way_out = "its forward was replaced, which torch.fx does not see: call the network in a module of your own"
    if way_out:
        raise UserError(f"{type(network).__name__} cannot be traced by torch.fx: {way_out}")


def refuse_uninitialized(network):
    """Refuse a network with lazy buffers, as of nn.LazyBatchNorm2d. Lazy weights may get their values later."""
    lazy = next((name for name, buffer in network.named_buffers() if isinstance(buffer, nn.UninitializedBuffer)), None)
    if lazy:
        raise UserError(f"{type(network).__name__} has no {lazy} yet: run one forward pass first, as network(images)")


BY_HAND = "put rbue.DropReLU(q) in place of its rectifiers, or rbue.Dropout(p) where you want it, by hand"


def refuse_mode(network):
    way_out = f"move this into a submodule, or {BY_HAND}"
    if getattr(network, "aux_logits", False):
        # as in torchvision's GoogLeNet and Inception
        parts = [name for name, _ in network.named_children() if name.lower().startswith("aux")]
        removed = "".join(f" and network.{name} = None" for name in parts)
        way_out = f"make it with aux_logits=False, or set network.aux_logits = False{removed}"
    why = f"the forward of {type(network).__name__} differs between training and testing, or draws random numbers"
    raise UserError(f"{why}: {way_out}")


def trace_in_mode(network, mode, whole, buffers):
    """Return the network's graph in one mode, the names of attributes and buffers that its forward wrote, and the paths
    of modules that drew random numbers in Python."""
    try:
        arguments = list(inspect.signature(network.forward).parameters.values())
        known = {a.name: a.default for a in arguments[1:] if a.default is None or isinstance(a.default, (bool, str))}
        with in_mode(network, mode), restored(network) as written, torch.enable_grad():
            tracer = Tracer(whole, buffers)
            with tracer.watching_draws(""):
                graph = tracer.trace(network, known or None)
            fixed = [a.name in known for a in arguments if a.kind not in VARIABLE]
            traced = fx.GraphModule(network, remove_arguments(graph, fixed))
        refuse_frozen(network, traced)
        written += [node.args[0].target for node in graph.nodes if writes_buffer(node)]
        return traced, written, tracer.drawing
    except UserError:
        raise
    except Exception as error:  # a network's own code may raise anything if it gets a proxy
        why = f"{first_line(error)}, in {where_raised(error)}"
        raise UserError(f"{type(network).__name__} cannot be traced by torch.fx ({why}): {BY_HAND}") from error


def where_raised(error):
    """Return the file and the line of the last code on the way to an error that is neither torch's nor ours."""
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    libraries = [Path(__file__).parent, *map(Path, torch.__path__)]
    others = [place for place in places if not any(map(Path(place[0]).is_relative_to, libraries))]
    file, line = (others or places)[-1]
    return f"{Path(file).name}:{line}"


@contextmanager
def in_mode(network, mode):
    """Put every module into training or evaluation mode inside, and restore its own mode after."""
    before = {module: module.training for module in network.modules()}
    for module in before:
        module.training = mode
    try:
        yield
    finally:
        for module, own in before.items():
            module.training = own


def in_modes_of(network, graph):
    """Put the graph's modules into the network's modes. Those that tracing made are in training mode."""
    modes = {path: module.training for path, module in network.named_modules(remove_duplicate=False)}
    for path, module in graph.named_modules(remove_duplicate=False):
        module.training = modes.get(path, network.training)
    return graph


@contextmanager
def restored(network):
    """Undo what code inside does to the modules' attributes and buffers, also to lists, dicts and sets among them.
    Yield a list that then names what it wrote."""
    before = [(name, *kept) for name, module in network.named_modules() for kept in containers(module)]
    buffers = {name: (buffer, buffer.clone()) for name, buffer in network.named_buffers()}
    written = []
    try:
        yield written
    finally:
        for name, attribute, container, content in before:
            changed = changes(container, content)
            if changed and isinstance(container, list):
                container[:] = content
            elif changed:
                container.clear()
                container.update(content)
            found = [attribute] if attribute and attribute not in REGISTERED else changed
            written += [f"{name}.{key}".lstrip(".") for key in found if changed and not is_constant(key)]
        for name, (buffer, own) in buffers.items():
            if buffer.layout is torch.strided and not buffer.is_meta and not same_values(buffer, own):
                written.append(name)
                buffer.copy_(own)


REGISTERED = ("_parameters", "_buffers", "_modules")


def containers(module):
    """Return (name, container, copy of it) of the module's attributes and of each list, dict and set among them."""
    own = vars(module)
    inner = [(key, value) for key, value in own.items() if isinstance(value, (dict, list, set))]
    return [(name, value, copy.copy(value)) for name, value in [("", own), *inner]]


def changes(container, before):
    """Return the keys, or the places in a list, whose entry is another object than before."""
    now, then = entries(container), entries(before)
    return [key for key in {**then, **now} if key not in now or key not in then or now[key] is not then[key]]


def entries(container):
    """Return a container as a dict. Those of a set are told apart by identity, since tensors have no plain equality."""
    if isinstance(container, set):
        return {id(entry): entry for entry in container}
    return container if isinstance(container, dict) else dict(enumerate(container))


def is_constant(key):
    """Return whether fx made this attribute, for a tensor that forward creates."""
    return str(key).startswith("_tensor_constant")


def same_values(buffer, other):
    """Return whether two buffers are equal. NaN equals NaN."""
    return torch.equal(buffer, other) or torch.equal(buffer.nan_to_num(), other.nan_to_num())


def refuse_frozen(network, graph):
    """Refuse values that the forward computes from weights outside of the graph, which would never follow them."""
    for node in graph.graph.nodes:
        frozen = node.op == "get_attr" and is_constant(node.target) and getattr(graph, node.target)
        if torch.is_tensor(frozen) and frozen.requires_grad and not frozen.is_leaf:
            raise UserError(
                f"the forward of {type(network).__name__} computes with weights that it does not read as self.weight, "
                f"such as those in a list, which torch.fx does not see: use an nn.ParameterList, or {BY_HAND}"
            )


def writes_buffer(node):
    """Return whether a node works in place on a tensor of the network, as self.count.add_(1)."""
    name = getattr(node.target, "__name__", str(node.target))
    given = node.args[0] if node.op.startswith("call") and node.args else None
    of_network = isinstance(given, fx.Node) and given.op == "get_attr"
    return of_network and ((name.endswith("_") and not name.endswith("__")) or name in IN_PLACE_OPERATORS)


IN_PLACE_OPERATORS = {f"i{name}" for name in OPERATORS}


def refuse_written(network, written):
    """Refuse a forward that writes attributes or buffers, as a counter does: the graph would not write them."""
    if written:
        raise UserError(
            f"the forward of {type(network).__name__} changes self.{written[0]}, which the new network would not do: "
            f"change it outside of forward, or {BY_HAND}"
        )


def warn_of_own_train(network, graph):
    """Say whose own train() the graph does not call, such as one that keeps batch-norm in evaluation mode."""
    modules = modules_entered(network, graph)
    own = {type(m).__name__ for m in modules if getattr(m.train, "__func__", m.train) is not nn.Module.train}
    if own:
        names = ", ".join(sorted(own))
        warnings.warn(
            f"the new network does not call train() of {names}: to freeze batch-norm, use "
            "torchvision.ops.FrozenBatchNorm2d; what else it does, call yourself",
            stacklevel=5,
        )


def modules_entered(network, graph):
    """Return the network and its modules that were traced into."""
    entered = {path for node in graph.graph.nodes for path, _ in callers(node)} | {""}
    return [network.get_submodule(path) for path in entered]


def warn_of_types(network, graph):
    """Say whose code asks whether a value is a tensor. While torch.fx traces, the answer is no for its stand-ins."""
    modules = modules_entered(network, graph)
    if asking := sorted({type(m).__name__ for m in modules if any(map(asks_type, functions_of(m)))}):
        warnings.warn(
            f"{', '.join(asking)} may ask whether a value is a torch.Tensor, which is answered with no while torch.fx "
            "traces: compare the outputs at q=1 with those of your network",
            stacklevel=5,
        )


def asks_type(function, seen=None):
    """Return whether a function, or one of its module's that it calls, names what asks for a tensor. Code of torch and
    of torchvision does not count."""
    seen = set() if seen is None else seen
    library = (function.__module__ or "torch.").startswith(("torch.", "torchvision."))  # torch.fx names no module
    if function in seen or library:
        return False
    seen.add(function)
    names = set(names_in(function.__code__))
    inner = filter(inspect.isfunction, (function.__globals__.get(name) for name in names))
    asks = "is_tensor" in names or names >= {"isinstance", "Tensor"}
    return asks or any(asks_type(each, seen) for each in inner)


def warn_of_autocast(network, graph):
    """Say whose torch.autocast the new network does not open. It has no effect now, as it only switches autocast off,
    but it would have one inside of another autocast."""
    deeper = {caller(node) for node in graph.graph.nodes if node.meta.get("autocast", 0) > autocast_depth()}
    if names := sorted({type(network.get_submodule(path)).__name__ for path in deeper}):
        warnings.warn(
            f"the new network does not switch off autocast as {', '.join(names)} does, so it may compute there in "
            "another precision if you open autocast around it",
            stacklevel=5,
        )


def inside_contexts(network, graph):
    """Return the paths of the modules that work inside of a context which the graph would not open. Refuse the network
    if it opens one itself: the graph would train what was frozen, or compute in another precision."""
    with torch.enable_grad():
        now = contexts()
    found = {caller(node) for node in graph.graph.nodes if node.meta.get("contexts", now) != now}
    if "" in found:
        raise UserError(
            f"the forward of {type(network).__name__} opens torch.no_grad or torch.autocast, or calls a function with "
            "its own backward pass, which a traced network would not: freeze weights by requires_grad_(False), open "
            "autocast around the network, and move such a function into a module of its own"
        )
    return found


def mode_dependent(network, training, evaluation):
    """Return the paths of the modules in which the two graphs first differ, and of all modules of the same classes.

    The result is empty if the graphs are equal.
    """
    pairs = zip_longest(training.graph.nodes, evaluation.graph.nodes)
    apart = next((pair for pair in pairs if not alike(*pair)), ())
    paths = {caller(node) for node in apart if node is not None}
    reading = {path for path in paths if path and reads_mode(network.get_submodule(path))}
    kinds = {type(network.get_submodule(path)) for path in reading or paths - {""}}
    return {path for path, module in network.named_modules() if path and type(module) in kinds} or paths


def alike(node, other):
    """Return whether two nodes do the same. Tensors that forward makes are constants of the graphs: their values count,
    which differ if they depend on the mode or on chance."""
    if described(node) != described(other):
        return False
    if node.op == "get_attr" and is_constant(node.target):
        return same_values(*(getattr(each.graph.owning_module, each.target) for each in (node, other)))
    return True


def small_mode_readers(network):
    """Return the paths of modules, other than torch's, that have no children and whose code reads self.training."""
    small = {path: m for path, m in network.named_modules() if path and not list(m.children())}
    return {path for path, m in small.items() if reads_mode(m) and not type(m).__module__.startswith("torch.nn")}


def described(node):
    """Return what a node does, as text. Functional dropout counts as the same in both modes: `thaw_dropout` tells."""
    if node is None:
        return None
    if is_dropout(node):
        return node.op, str(node.target), str(node.args[:1]), rate_of(node)
    return exact(node)


def exact(node):
    return node.op, str(node.target), str(node.args), str(node.kwargs)


def caller(node, skip=()):
    """Return the path of the innermost module, of no class in `skip`, whose forward created this node; "" for the
    network itself."""
    return next((path for path, kind in reversed(callers(node)) if not issubclass(kind, skip)), "")


def callers(node):
    """Return (path, class) of the modules whose forward led to this node, the innermost last."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return stack[:-1] if node.op == "call_module" else stack


def reads_mode(module):
    """Return whether the code of a module's own functions names its mode, self.training."""
    return any("training" in names_in(function.__code__) for function in functions_of(module))


def functions_of(module):
    """Yield the functions of a module's classes, also static methods, properties and what a decorator wraps."""
    for kind in type(module).__mro__:
        for value in vars(kind).values() if kind is not nn.Module else ():
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if inspect.isfunction(function):
                yield from {function, inspect.unwrap(function)}


def names_in(code):
    """Yield the names that code uses, also inside of comprehensions and inner functions."""
    yield from code.co_names
    for inner in filter(inspect.iscode, code.co_consts):
        yield from names_in(inner)


VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)  # in a graph, they follow all others


def remove_arguments(graph, fixed):
    """Remove the arguments that were fixed to their defaults, and torch's assertions about their values. They are told
    by position, since torch.fx renames them: mask to mask_1, which may be another argument's name."""
    gone = set(compress(graph.find_nodes(op="placeholder"), fixed))
    for node in graph.nodes:
        if node.op == "call_function" and node.all_input_nodes and gone >= set(node.all_input_nodes):
            gone.add(node)
    for node in [n for n in reversed(graph.nodes) if n in gone]:
        graph.erase_node(node)
    return graph


def thaw_dropout(graph, evaluation):
    """Replace functional dropout that follows self.training by modules, which follow train() and eval().

    In F.dropout(x, p, self.training), tracing replaced self.training by a constant, which differs from that of the
    other graph. Dropout that is always on or always off has one constant and stays.
    """
    pairs = zip(list(graph.graph.nodes), list(evaluation.graph.nodes), strict=True)
    for node in [n for n, other in pairs if is_dropout(n) and exact(n) != exact(other)]:
        graph.add_submodule(f"thawed_{node.name}", DROPOUTS[node.target](rate_of(node), inplace_of(node)))
        with graph.graph.inserting_before(node):
            node.replace_all_uses_with(graph.graph.call_module(f"thawed_{node.name}", node.args[:1]))
        graph.graph.erase_node(node)
    graph.recompile()
    return graph


def is_dropout(node):
    return node.op == "call_function" and node.target in DROPOUTS


def rate_of(node):
    return node.kwargs.get("p", node.args[1] if len(node.args) > 1 else 0.5)


def inplace_of(node):
    return node.kwargs.get("inplace", node.args[3] if len(node.args) > 3 else False)


DROPOUTS = {
    F.dropout: nn.Dropout,
    F.dropout1d: nn.Dropout1d,
    F.dropout2d: nn.Dropout2d,
    F.dropout3d: nn.Dropout3d,
    F.alpha_dropout: nn.AlphaDropout,
    F.feature_alpha_dropout: nn.FeatureAlphaDropout,
}
