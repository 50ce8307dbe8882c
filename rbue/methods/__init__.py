"""The methods: one file each, with its hyperparameters, their legal ranges, how its network is built and what in its
training is not the usual. A file in this folder is found by being here; a package of your own uses `method` as well.
"""

import pkgutil
from dataclasses import fields
from importlib import import_module

from omegaconf import MISSING

from rbue.config import Run
from rbue.errors import UserError

METHODS: dict[str, type[Run]] = {}


def method(name: str):
    """Register the decorated subclass of Run as method=name."""

    def register(schema: type[Run]) -> type[Run]:
        known = METHODS.get(name)
        if known and (known.__module__, known.__qualname__) != (schema.__module__, schema.__qualname__):
            raise UserError(f"method={name} is defined twice: in {known.__module__} and in {schema.__module__}")
        METHODS[name] = schema
        return schema

    return register


def build(run, classes, images):
    """The run's network with the initial weights of its seed, the same on every device."""
    import torch

    from rbue import networks

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        network = networks.build(run.arch, classes)
    return run.build(network, images)


def complete(identity):
    """Add the neutral values that an identity leaves out: absent and neutral are the same setting."""
    schema = METHODS.get(identity["method"], Run)
    neutral = {f.name: f.metadata["neutral"] for f in fields(schema) if f.metadata["neutral"] is not MISSING}
    return neutral | identity


for _file in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_file.name}")
