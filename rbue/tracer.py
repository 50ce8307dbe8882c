"""A torch.fx tracer that notes what a graph would lose: random draws, contexts such as no_grad, and work in place."""

import operator
import pickle
import random
from contextlib import contextmanager

import numpy as np
import torch
from torch import fx
from torch.nn.utils import parametrize

from rbue.errors import UserError
from rbue.layers import Stem, StochasticLayer


class Tracer(fx.Tracer):
    """A tracer that traces into all modules except torch's own, ours, and those whose paths are in `whole`.

    The graph reads buffers, as it reads parameters, unless `buffers` is false: then it keeps their values.
    """

    def __init__(self, whole=(), buffers=True):
        super().__init__()
        self.whole, self.proxy_buffer_attributes = whole, buffers
        self.drawing = set()  # paths of modules whose forward draws random numbers that are no nodes of the graph

    def proxy(self, node):
        return Traced(node, self)

    def is_leaf_module(self, module, name):
        """Treat a parametrized module by its original class, which torch has replaced by one of its own."""
        before = parametrize.type_before_parametrizations(module)
        users_own = before is not type(module) and not before.__module__.startswith(("torch.nn", "torch.ao.nn"))
        leaf = not users_own and super().is_leaf_module(module, name)
        leaf |= before.__module__.startswith("torchvision.transforms.")  # these ask for the type of each input
        return isinstance(module, (StochasticLayer, Stem)) or name in self.whole or leaf

    def call_module(self, module, *arguments):
        path = self.path_of_module(module)
        if self.is_leaf_module(module, path):
            return super().call_module(module, *arguments)
        if origin := made_by(module) or ("torch.compile" if is_compiled(module) else None):
            way_out = f"use the module as it was before {origin}"
            raise UserError(f"{path} is a module of {origin}, which torch.fx cannot trace: {way_out}")
        with self.watching_draws(path):
            return super().call_module(module, *arguments)

    @contextmanager
    def watching_draws(self, path):
        """Note a module that draws inside, the innermost one: the generators are put back before the outer one ends."""
        before = generators()
        try:
            yield
        finally:
            if generators() != before:
                self.drawing.add(path)
                set_generators(before)

    def create_node(self, *arguments, **more):
        node = super().create_node(*arguments, **more)
        node.meta["contexts"], node.meta["autocast"] = contexts(), autocast_depth()
        return node


def generators():
    """Return the states of the generators of torch, Python and NumPy, as bytes."""
    return pickle.dumps((torch.get_rng_state().numpy(), random.getstate(), np.random.get_state()))


def set_generators(states):
    of_torch, of_python, of_numpy = pickle.loads(states)
    torch.set_rng_state(torch.from_numpy(of_torch))
    random.setstate(of_python)
    np.random.set_state(of_numpy)


class Traced(fx.Proxy):
    """A value in a traced forward. Plain torch.fx turns y += x into y = y + x, which leaves other names and views of y
    as they were."""

    def __setitem__(self, index, value):
        raise TypeError("it cannot record an assignment to a part of a tensor, as in x[:, 0] = y")

    def __setattr__(self, name, value):
        if hasattr(torch.Tensor, name):  # others are fx's own, or a note of the forward to itself
            raise TypeError(f"it cannot record an assignment to an attribute of a tensor, as in x.{name} = y")
        super().__setattr__(name, value)


def in_place(name):
    def update(self, other):
        return self.tracer.create_proxy("call_function", getattr(operator, name), (self, other), {})

    return update


OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
for _operator in OPERATORS:
    setattr(Traced, f"__i{_operator}__", in_place(f"i{_operator}"))


def made_by(module):
    """Return torch.jit, whose modules hide their rectifiers and weights, or torch.export, whose modules stay in one
    mode, if it made this module; else None."""
    if isinstance(module, torch.jit.ScriptModule):
        return "torch.jit"
    return "torch.export" if any(kind.__module__.startswith("torch.export.") for kind in type(module).__mro__) else None


def is_compiled(module):
    """Return whether torch.compile made this module, or the module's own compile() was called."""
    return hasattr(module, "_orig_mod") or module._compiled_call_impl is not None


def hidden_by(network):
    """Return torch.jit or torch.export if it made a part of the network, which may hide random layers; else None."""
    return next(filter(None, map(made_by, network.modules())), None)


def contexts():
    """Return the state of the contexts that a forward may open, and that a graph does not open."""
    return torch.is_grad_enabled(), *(torch.is_autocast_enabled(device) for device in ("cpu", "cuda"))


def autocast_depth():
    """Return how many torch.autocast are open, also those that switch it off."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()
