"""What the calls in a traced network do: rectify, draw noise, work in place, share memory or ask for a shape."""

import inspect
import re
import warnings
from contextlib import suppress

import torch
from torch import fx, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from rbue.errors import UserError
from rbue.layers import StochasticLayer
from rbue.tracer import OPERATORS, Tracer
from rbue.tracing import DROPOUTS, callers, functions_of, in_mode, is_dropout, names_in, restored

FUNCTIONAL = {F.relu, torch.relu, "relu", torch.ops.aten.relu, torch.ops.aten.relu.default}
FUNCTIONAL |= {F.relu_, torch.relu_, "relu_", torch.ops.aten.relu_, torch.ops.aten.relu_.default}


def modules_called(graph, kinds):
    """Return the nodes that call a module of one of these classes, in execution order."""
    calls = (n for n in graph.graph.nodes if n.op == "call_module")
    return [n for n in calls if isinstance(graph.get_submodule(n.target), kinds)]


def rectifiers(graph):
    """Return the nodes that apply nn.ReLU, F.relu, torch.relu, x.relu() or an in-place form, in execution order."""
    by_module = {n for n in modules_called(graph, nn.ReLU) if is_relu(graph.get_submodule(n.target))}
    by_module |= {n for n in modules_called(graph, nn.Module) if n not in by_module and inner_rectifier(graph, n)}
    return [n for n in graph.graph.nodes if n in by_module or calls_rectifier(n)]


def is_relu(module):
    """Return whether a module is torch's nn.ReLU. A subclass may compute something else."""
    return parametrize.type_before_parametrizations(module) is nn.ReLU


def calls_rectifier(node):
    """Return whether a node calls a function or method that rectifies. The target of a module is only its name."""
    return node.op in ("call_function", "call_method") and node.target in FUNCTIONAL


def image_rectifiers(graph):
    """Return the rectifiers whose input depends on the images, and not on weights alone."""
    of_images = image_nodes(graph)
    return [n for n in rectifiers(graph) if n in of_images]


def image_nodes(graph):
    """Return the nodes whose values depend on the network's arguments, also through what is written in place."""
    found = set()
    for node in graph.graph.nodes:
        if node.op == "placeholder" or found & set(values_used(node)):
            found |= aliases_of(graph, node) if overwrites(graph, node) else {node}
    return found


LIKE = {"to", "type", "type_as", "expand", "expand_as", "view_as", "reshape_as"}  # others only give a type or a shape


def values_used(node):
    """Return the inputs whose values a node uses, and not only their shape, type or device."""
    name = name_of(node)
    if asks_shape(node) or name.startswith("new_") or name.endswith("_like"):
        return []
    return node.all_input_nodes[:1] if name in LIKE else node.all_input_nodes


def is_own(module):
    """Return whether a module is neither torch's nor ours. torch replaces the class of a parametrized one."""
    return not parametrize.type_before_parametrizations(module).__module__.startswith(("torch.nn", "rbue."))


def inner_rectifier(graph, node):
    """Return the path of the only nn.ReLU of images inside a module that is not traced into because it depends on its
    mode, such as timm's BatchNormAct2d. Return None if there is none, or if the number of its calls is not known."""
    inside = graphs_of(graph, graph.get_submodule(node.target))
    closed = graph.graph.find_nodes(op="call_module", target=node.target)
    found = {(call.op, call.target) for each in inside for call in image_rectifiers(each)}
    every = max((sum((n.op, n.target) in found for n in rectifiers(each)) for each in inside), default=0)
    once = len(inside) == 2 and len(closed) == len(found) == every == 1
    return next((path for op, path in found if op == "call_module"), None) if once else None


def graphs_of(graph, module):
    """Return the graphs, in training and in evaluation mode, of a module that is not traced into: those that torch.fx
    can trace. torch's own modules and ours have none. `finish` forgets them."""
    opened = graph.meta.setdefault("opened", {})
    if module not in opened:
        modes = (True, False) if is_own(module) else ()
        opened[module] = [found for mode in modes if (found := open_module(module, mode))]
    return opened[module]


def open_module(module, mode):
    """Return the graph of a module by itself, in one mode, or None if it cannot be traced."""
    for buffers in (True, False) if "forward" not in vars(module) else ():
        with suppress(Exception):  # a module's own code may raise anything if it gets a proxy
            tracer = Tracer(buffers=buffers)
            with restored(module), in_mode(module, mode), torch.enable_grad(), tracer.watching_draws(""):
                return fx.GraphModule(module, tracer.trace(module))
    return None


def refuse_hidden(graph):
    """Refuse a module that cannot be traced into and contains rectifiers: they would silently stay deterministic."""
    seen = set(rectifiers(graph))
    for node in (n for n in modules_called(graph, nn.Module) if n not in seen):
        closed = graph.get_submodule(node.target)
        if hides_rectifier(graph, closed):
            hidden = f"{node.target} is a {type(closed).__name__}, whose rectifiers torch.fx does not see"
            raise UserError(f"{hidden}: {way_to_see(closed)}")


def way_to_see(module):
    if isinstance(module, nn.DataParallel):
        return "put its .module in its place, and wrap the new network"
    if type(module).__module__.startswith("torch."):
        return "make it with activation=rbue.DropReLU(q) where it takes one, or write it out in layers of your own"
    return (
        "move what depends on self.training or opens a context such as torch.autocast into a submodule, "
        "or put rbue.DropReLU(q) in place of the rectifiers by hand"
    )


def is_closed_function(target):
    """Return whether a node calls a Python function that is not torch's: torch.fx.wrap has kept it whole."""
    return inspect.isfunction(target) and not (target.__module__ or "").startswith("torch.")


def names_rectifier(function, seen=None):
    """Return whether the code of a Python function names a rectifier, or calls a function of its module that does."""
    seen = set() if seen is None else seen
    seen.add(function)
    names = set(names_in(function.__code__))
    inner = [function.__globals__.get(name) for name in names]
    found = {"relu", "relu_"} & names or any(isinstance(value, nn.ReLU) for value in inner)
    return bool(found) or any(names_rectifier(f, seen) for f in inner if inspect.isfunction(f) and f not in seen)


def hides_rectifier(graph, module):
    """Return whether a module that is not traced into rectifies images. If its graphs are known, they tell."""
    if isinstance(module, (nn.RNN, nn.RNNCell)):
        return module.nonlinearity == "relu"
    if isinstance(module, nn.ReLU) or getattr(module, "activation", None) in (F.relu, torch.relu):
        return True
    inside = graphs_of(graph, module)
    shown = any(map(shows_rectifier, inside))
    if shown or len(inside) == 2:
        return shown
    named = is_own(module) and any(map(names_rectifier, functions_of(module)))
    return named or any(hides_rectifier(graph, child) for child in module.children())


def shows_rectifier(graph):
    of_images = image_nodes(graph)
    closed = [n for n in modules_called(graph, nn.Module) if n in of_images]
    return bool(image_rectifiers(graph)) or any(hides_rectifier(graph, graph.get_submodule(n.target)) for n in closed)


def has_hooks(module):
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    return any(map(bool, hooks))


def warn_of_hooks(graph, network, replaced=()):
    """Say which forward and backward hooks the new network does not call: those of the network, of the modules that
    replaced nodes call, and of modules that were traced into."""
    modules = [graph.get_submodule(n.target) for n in replaced if n.op == "call_module"]
    if names := hooked(network, *modules):
        warnings.warn(f"hooks have no effect in the new network, but there are some: {names}", stacklevel=3)
    entered = {path for node in graph.graph.nodes for path, _ in callers(node) if path}
    if names := hooked(*map(network.get_submodule, entered)):
        stays = "what they did to the output while torch.fx traced it stays"
        warnings.warn(f"the new network does not call the hooks of {names}; {stays}", stacklevel=3)


def hooked(*modules):
    return ", ".join(sorted({type(m).__name__ for m in modules if has_hooks(m)}))


def is_stochastic(graph, node):
    """Return whether a node calls a stochastic layer, or a module that was not traced into and contains one."""
    inside = graph.get_submodule(node.target).modules() if node.op == "call_module" else ()
    return any(isinstance(m, StochasticLayer) for m in inside)


def overwrites(graph, node):
    """Return whether a node works in place on its first input, as x.relu_() and x += y do."""
    if node.op == "call_module":
        return bool(getattr(graph.get_submodule(node.target), "inplace", False))
    name = name_of(node)
    by_name = name in IN_PLACE_CALLS or re.fullmatch(r"[a-z0-9]\w*[a-z0-9]_", name)
    by_position = node.target in FUNCTIONAL and len(node.args) > 1 and node.args[1]
    return node.op.startswith("call") and bool(by_name or node.kwargs.get("inplace", by_position))


IN_PLACE_CALLS = {"setitem", "__setitem__"} | {form.format(name) for form in ("i{}", "__i{}__") for name in OPERATORS}


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
VIEWS |= {"detach", "data", "real", "imag", "conj", "view_as_real", "view_as_complex", "alias", "slice"}
# these return their input if there is nothing to change
VIEWS |= {"contiguous", "to", "type", "type_as", "float", "double", "half", "bfloat16", "cpu", "cuda"}
VIEWS |= {"positive", "pos", "resolve_conj", "resolve_neg", "atleast_1d", "atleast_2d", "atleast_3d"}
VIEWS |= {"broadcast_tensors", "feature_dropout", *(function.__name__ for function in DROPOUTS)}
VIEW_MODULES = (nn.Flatten, nn.Unflatten, nn.Identity, *DROPOUTS.values())  # dropout returns its input in eval mode


def viewed(graph, node):
    """Return the node whose memory a node's output may share, or None."""
    if node.op == "call_module":
        module = graph.get_submodule(node.target)
        shares = isinstance(module, VIEW_MODULES) or returns_input(graph, module)
    else:
        shares = node.op.startswith("call") and name_of(node) in VIEWS and not always_drops(node)
    return node.all_input_nodes[0] if shares or overwrites(graph, node) else None


def returns_input(graph, module):
    """Return whether a module that is not traced into may return its input or a view of it, as stochastic depth does in
    eval mode."""
    for inside in graphs_of(graph, module):
        given = set(inside.graph.find_nodes(op="placeholder"))
        if any(aliases_of(inside, out) & given for out in inside.graph.output_node().all_input_nodes):
            return True
    return False


def always_drops(node):
    """Return whether a node calls functional dropout that is always on, such as F.dropout(x, 0.2, training=True). Its
    output is new memory. Dropout that is off, or in place, or has p = 0, returns its input."""
    if not is_dropout(node):
        return False
    given = inspect.signature(node.target).bind(*node.args, **node.kwargs)
    given.apply_defaults()
    p, training, inplace = (given.arguments[name] for name in ("p", "training", "inplace"))
    return training is True and inplace is False and isinstance(p, float) and p > 0


def aliases_of(graph, source, but=None):
    """Return the nodes whose outputs may share memory with that of `source`, and not through the node `but`."""
    aliases, queue = {source}, [source]
    while queue:
        node = queue.pop()
        near = {viewed(graph, node), *(u for u in node.users if viewed(graph, u) is node)} - aliases - {None, but}
        queue += near
        aliases |= near
    return aliases


def read_after(graph, source, new):
    """Let all users of `source` that come after `new` read `new` instead, as they read what a rectifier wrote in place.
    Refuse this rectifier if a view of its memory is read after it: the new layer does not write there."""
    order = {n: k for k, n in enumerate(graph.graph.nodes)}
    before = {n for n in aliases_of(graph, source) - {source} if order[n] < order[new]}
    if later := [n for n in before for u in n.users if order[u] > order[new] and not asks_shape(u)]:
        raise UserError(f"an in-place rectifier overwrites memory that {later[0]} reads later: use inplace=False there")
    for user in [u for u in source.users if order[u] > order[new]]:
        user.replace_input_with(source, new)


def reads_later(graph, source, node):
    """Return whether the memory of `source` is read after `node`."""
    order = {n: k for k, n in enumerate(graph.graph.nodes)}
    aliases = aliases_of(graph, source, but=node)
    return any(order[u] > order[node] and not asks_shape(u) for n in aliases for u in n.users)


def asks_shape(node):
    """Return whether a node reads no values, as x.size() and x.shape."""
    asks = {("call_method", "size"), ("call_method", "dim"), ("call_function", getattr)}
    return (node.op, node.target) in asks and name_of(node) not in VIEWS
