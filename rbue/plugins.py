"""Plugins: packages of your own that add methods, networks, datasets and their YAML (docs/extending.md).

A package is found by its entry point in the group `rbue.plugins`, or because the user names it: `plugins=my_package` on
the command line, or the environment variable RBUE_PLUGINS. Importing it registers what it adds. Its folder `conf` is
searched for YAML files, and so is the folder that `--config-dir` or the variable RBUE_CONFIG_DIR names.
"""

import os
import shlex
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from rbue.errors import UserError, describe

PLUGINS, CONFIG_DIR = "RBUE_PLUGINS", "RBUE_CONFIG_DIR"


def load():
    """Import every plugin once and return the modules."""
    return [imported(name) for name in dict.fromkeys([*installed(), *named()])]


@cache
def installed():
    """Return the names of the modules that installed packages offer as plugins."""
    return sorted(entry.module for entry in entry_points(group="rbue.plugins"))


def named():
    """Return the names of the modules that the user names as plugins."""
    return [name.strip() for name in os.environ.get(PLUGINS, "").split(",") if name.strip()]


@cache
def imported(name):
    try:
        return import_module(name)
    except UserError as error:  # it says what to do
        way_out = f", or uninstall {name}" if name in installed() else ""
        raise UserError(f"the plugin {name} cannot be imported: {error}{way_out}") from error
    except (Exception, SystemExit) as error:  # a plugin's code may raise anything
        absent = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
        way_out = "is it installed, or its folder on PYTHONPATH?" if absent else "correct its code"
        way_out = "uninstall it or fix it" if name in installed() else way_out
        raise UserError(f"the plugin {name} cannot be imported ({describe(error)}): {way_out}") from error


def folders():
    """Return the folders of YAML files, without the suite's own."""
    inside = [Path(place) / "conf" for module in load() for place in places(module)]
    return [folder for folder in inside if folder.is_dir()] + config_dir()


def places(module):
    """Return the folder of a package, or the folder that holds a single-file module."""
    file = getattr(module, "__file__", None)
    return getattr(module, "__path__", None) or ([Path(file).parent] if file else [])


def config_dir():
    folder = os.environ.get(CONFIG_DIR)
    if folder and not Path(folder).is_dir():
        raise UserError(f"--config-dir {folder} is not a folder: name one that holds folders such as method or arch")
    return [Path(folder).absolute()] if folder else []


def words():
    """Return the words of a train.py command that name the same plugins and the same folder of YAML."""
    names, folder = named(), os.environ.get(CONFIG_DIR)
    listed = f"[{','.join(names)}]" if len(names) > 1 else "".join(names)
    found = [f"plugins={listed}"] if names else []
    return [*found, f"--config-dir {shlex.quote(folder)}"] if folder else found


def choose(names=(), folder=None):
    """Import the plugins and use the folder of YAML, in this process and in those that it starts."""
    if names:
        os.environ[PLUGINS] = ",".join(dict.fromkeys([*named(), *names]))
    if folder:
        os.environ[CONFIG_DIR] = os.path.abspath(folder)
    load()
