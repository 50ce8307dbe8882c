"""Which room of the suite may import which: arrows point down only."""

import ast

import pytest
from commands import start
from conftest import ROOT

# From the bottom up: a room imports from itself and from the rooms above it in this list.
ROOMS = [
    "errors progress",
    "noise",
    "layers metrics",
    "tracer",
    "ivon networks tracing",
    "surgery",
    "sampling",
    "config",
    "methods",
    "plugins",
    "processes",
    "data",
    "runs",
    "training",
    "evaluation",
    "cli",
    "main",
    "__main__",
    "benchmark report",
]
LEVEL = {name: level for level, names in enumerate(ROOMS) for name in names.split()}
LIBRARY = ["errors", "noise", "layers", "ivon", "metrics", "networks", "tracer", "tracing", "surgery", "sampling"]
FILES = sorted((ROOT / "rbue").glob("**/*.py"))


def room(module):
    """The room of rbue.a.b is a. The package itself belongs to no room: it is the public interface."""
    return [*module.split("."), ""][1]


def imports(path):
    """The rooms that a file imports, anywhere in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rbue":
            found |= {f"{node.module}.{name.name}" if node.module == "rbue" else node.module for name in node.names}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names if name.name.split(".")[0] == "rbue"}
    return {room(module) for module in found} - {""}


def own_room(path):
    return path.relative_to(ROOT / "rbue").parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", [p for p in FILES if p.parent.name != "rbue" or p.stem != "__init__"], ids=str)
def test_arrows_point_down(path):
    here = own_room(path)
    assert here in LEVEL, f"{here} is a new room: give it a place in ROOMS"
    upwards = {other for other in imports(path) - {here} if LEVEL[other] >= LEVEL[here]}
    assert not upwards


def modules_after(code):
    """The names in sys.modules after running the code in a fresh process, and its environment variables."""
    text = f"import os, sys; before = dict(os.environ)\n{code}\nprint(*sys.modules)\nprint(before == dict(os.environ))"
    names, same = start("-c", text).stdout.strip().splitlines()[-2:]
    return set(names.split()), same == "True"


PREDICT = """
import torch, rbue
network = rbue.randomize(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)), q=0.9)
rbue.predict(network, torch.randn(5, 4), samples=3)
"""


def test_the_library_imports_nothing_of_the_suite_and_sets_no_variable():
    modules, same_environment = modules_after(PREDICT)
    suite = {name for name in modules if name.startswith("rbue.") and room(name) not in LIBRARY}
    assert not suite and same_environment
    assert not {"hydra", "omegaconf", "pandas", "matplotlib", "torchvision"} & modules


def test_tables_and_shell_completion_do_without_torch():
    modules, _ = modules_after("import rbue.main, rbue.runs.sweeps, rbue.report.tables")
    assert "torch" not in modules
