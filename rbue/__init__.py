"""RBUE: uncertainty from random rectifiers. `randomize` a network, train it as ever, `predict` with samples."""

from importlib import import_module

_FACE = {
    "randomize": "rbue.surgery",
    "predict": "rbue.sampling",
    "Prediction": "rbue.sampling",
    "DropReLU": "rbue.layers",
    "RReLU": "rbue.layers",
    "Dropout": "rbue.layers",
}
__all__ = list(_FACE)


def __getattr__(name):
    """Imports torch only when it is needed: tables and shell completion do without."""
    if name not in _FACE:
        raise AttributeError(f"module 'rbue' has no attribute {name!r}")
    return getattr(import_module(_FACE[name]), name)
