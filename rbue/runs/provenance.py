"""Where a number comes from: the commit, the versions of what it was computed with, the code of a training step and of
the user's own method and network."""

import ast
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from inspect import getsource
from textwrap import dedent

from rbue import config, methods
from rbue.runs import places


def environment():
    """What a number depends on besides its config. RBUE_COMMIT names the commit of a copy without its repository: then
    nobody knows whether files were changed. Files under results/ do not count, since no number depends on them."""
    commit = os.environ.get("RBUE_COMMIT") or _git("rev-parse", "HEAD")
    changes = _git("diff", "--name-only", commit, "--", ".", ":(exclude)results") if commit else None
    return {
        "commit": commit,
        "changed": None if changes is None else bool(changes),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        **{name: package_version(name) for name in ("torch", "torchvision", "numpy", "hydra-core")},
    }


@cache
def at_start():
    """Return the environment of this process's first job, which asks before it trains: commits may follow meanwhile."""
    return environment()


STEP = ["noise", "layers", "networks", "data/augment", "training/step", "training/capture"]


@cache
def step_code():
    """Return a hash of the code that decides the time of a training step and that all methods share. Training times of
    two commits compare if it is equal."""
    modules = [(places.PACKAGE / f"{module}.py").read_text(encoding="utf-8") for module in STEP]
    return hash_of(*modules, *(dedent(getsource(part)) for part in (config.Run.optimizers, config.Run.sgd)))


def own_code(run):
    """Return {module: hash} of the user's own files that define the run's method and network."""
    found = {}
    for name in dict.fromkeys([methods.METHODS[run.method].__module__, network_module(run)]):
        if name.partition(".")[0] not in ("", "rbue", "torch", "torchvision"):
            with suppress(OSError, TypeError, KeyError):  # a module without a file, as in a notebook
                found[name] = hash_of(getsource(sys.modules[name]))
    return found


def network_module(run):
    """Return the name of the module that defines the run's network, '' if it cannot be found."""
    if run.network is None:
        return methods.origin(run)
    from hydra.utils import get_object

    with suppress(Exception):  # a module of the user's may raise anything; building the network says what is wrong
        return get_object(run.network["_target_"]).__module__
    return ""


def changed_code(run, stored):
    """Return the names of the user's own files that have changed since a training stored their hashes."""
    now = own_code(run) if stored else {}
    return [name for name in (stored or {}) | now if now.get(name) != stored.get(name)]


def hash_of(*sources):
    """Return a hash of Python code without comments, docstrings and formatting."""
    return hashlib.sha256(repr([structure(ast.parse(source)) for source in sources]).encode()).hexdigest()[:10]


def structure(part):
    """Return Python code as nested tuples, without comments, docstrings and formatting. They are the same in every
    version of Python, unlike the texts of `ast.unparse` and `ast.dump`."""
    if isinstance(part, list):
        return [*map(structure, part)]
    if not isinstance(part, ast.AST):
        return part
    found = {name: value for name, value in ast.iter_fields(part) if value not in (None, [])}
    if isinstance(part, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(part) is not None:
        found["body"] = part.body[1:]
    return type(part).__name__, {name: structure(value) for name, value in found.items()}


def _git(*command):
    """What git says of the clone. An installed package has none, and may lie inside somebody else's repository."""
    if places.INSTALLED or not shutil.which("git"):
        return None
    done = subprocess.run(["git", *command], cwd=places.ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def package_version(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return None
