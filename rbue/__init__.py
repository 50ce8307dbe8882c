"""RBUE: uncertainty from random ReLUs. `randomize` a network, train it as usual, and `predict` with samples."""

from importlib import import_module
from typing import TYPE_CHECKING

from rbue.errors import UserError

if TYPE_CHECKING:
    from rbue.layers import Dropout, DropReLU, RReLU
    from rbue.sampling import Prediction, predict
    from rbue.surgery import add_dropout, deterministic, randomize

__version__ = "0.1.0"  # pyproject.toml reads it from here
__all__ = [
    "DropReLU",
    "Dropout",
    "Prediction",
    "RReLU",
    "UserError",
    "__version__",
    "add_dropout",
    "deterministic",
    "predict",
    "randomize",
]

_MODULES = {  # module → what it brings
    "rbue.layers": ("DropReLU", "Dropout", "RReLU"),
    "rbue.sampling": ("Prediction", "predict"),
    "rbue.surgery": ("add_dropout", "deterministic", "randomize"),
}


if not TYPE_CHECKING:  # a type checker takes the imports above, and reports names that are not there

    def __getattr__(name):
        """Import torch only when it is needed, since tables and shell completion do not need it."""
        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(module), name)
        raise AttributeError(f"module 'rbue' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
