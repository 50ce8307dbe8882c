"""From arguments such as `method=dropreLU` to a checked Run, by Hydra, conf/ and the methods' schemas. No torch."""

import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import cache

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf

from rbue import plugins
from rbue.config import NAMED, Run, gpus, own_settings
from rbue.errors import UserError
from rbue.methods import METHODS
from rbue.runs.messages import no_setting, not_registered, one_sentence
from rbue.runs.places import COMMAND, CONF


@dataclass
class Union:
    """The settings of a sweep: `grids` are lines as on the command line, `clean` are lines for clean datasets only, and
    `also` has further lines by dataset."""

    _target_: str = "hydra_plugins.rbue_sweeper.UnionSweeper"
    grids: list[str] = field(default_factory=list)
    clean: list[str] = field(default_factory=list)
    also: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Packed:
    _target_: str = "hydra_plugins.rbue_launcher.PackedLauncher"


def register():
    """Register every method's schema, our sweeper and launcher, and the resolvers of conf/ with Hydra."""
    plugins.load()
    check_files()
    store = ConfigStore.instance().store
    for name, schema in METHODS.items():
        store(group="hydra/schema", name=name, node=schema, package="_global_")
    store(group="hydra/sweeper", name="union", node=Union)
    store(group="hydra/launcher", name="packed", node=Packed)
    OmegaConf.register_new_resolver("hyperparameters", hyperparameters, replace=True)
    OmegaConf.register_new_resolver("command", lambda: COMMAND, replace=True)
    OmegaConf.register_new_resolver("gpus", gpus, replace=True)
    OmegaConf.register_new_resolver("places", lambda per_gpu: gpus() * (per_gpu or 1) or os.cpu_count(), replace=True)
    OmegaConf.register_new_resolver("gpu_share", lambda per_gpu: 1 / (per_gpu or 1) if gpus() else 0, replace=True)


def check_files():
    """Refuse a method without a YAML file, and a YAML file that is hidden by another one or has a wrong name."""
    for name, schema in METHODS.items():
        if not file_of("method", name):
            registered = f"{schema.__module__} registers method={name}"
            way_out = f"write conf/method/{name}.yaml in its package, and list it in package-data if you install it"
            raise UserError(f"{registered}, which has no YAML: {way_out}")
    protocol, dataset = (OmegaConf.load(CONF / name).keys() for name in ("protocol/paper.yaml", "dataset/cifar10.yaml"))
    later = {"launch": protocol | dataset, "dataset": protocol, "arch": protocol, "method": Run.__dataclass_fields__}
    for path in (path for folder in (CONF, *plugins.folders()) for path in folder.glob("*/*.yaml")):
        first = file_of(path.parent.name, path.stem)
        if not first.samefile(path):
            raise UserError(f"{path} would never be read, since {first} has the same name: rename one of the two")
        content = OmegaConf.load(path) if path.parent.name in {*NAMED, *later} else {}
        if path.parent.name in NAMED and (path.parent.name != "method" or path.stem in METHODS):
            check_name(path, content)  # the other files of methods are presets: a method with other values
        refuse_ignored(path, content, later.get(path.parent.name, ()))


def check_name(path, content):
    """Refuse a YAML file that gives another name than its own, under which its runs would be stored. A dataset's file
    without a name would train on the dataset in its defaults."""
    group = path.parent.name
    said, what = content.get(group), "network" if group == "arch" else group
    if str(said) != path.stem:  # YAML reads 2024 as a number
        wrong = f"names its {what} {group}={said}" if said else f"does not name its {what}"
        raise UserError(f"{path} {wrong}: write the line '{group}: {path.stem}' into it")


def refuse_ignored(path, content, later):
    """Refuse a line that has no effect, since files that come later in the list of conf/config.yaml set the same."""
    group = path.parent.name
    if wrong := [key for key in content if key in later and key != group]:
        why = f"{path} has the line '{wrong[0]}: ...', which has no effect in a {group}'s YAML"
        raise UserError(f"{why}: write it into a protocol's YAML")


def file_of(group, name):
    """Return the YAML file of group=name, from the suite's own folder or a plugin's, or None."""
    paths = (folder / group / f"{name}.yaml" for folder in (CONF, *plugins.folders()))
    return next((path for path in paths if path.exists()), None)


def hyperparameters():
    """Return one line per method that has settings of its own, for --help."""
    own = {name: own_settings(schema) for name, schema in METHODS.items()}
    return "\n".join(f"  {name}: {', '.join(names)}" for name, names in own.items() if names)


register_once = cache(register)


def parse(cfg) -> Run:
    """Turn a composed config into a checked, typed Run, or refuse it."""
    plugins.load()  # the processes of other launchers start here
    if cfg.method not in METHODS:
        raise UserError(not_registered(cfg.method))
    if unknown := [key for key in cfg if key not in METHODS[cfg.method].__dataclass_fields__]:
        raise UserError(no_setting(cfg.method, unknown[0]))
    if OmegaConf.get_type(cfg) is dict:
        path, line = file_of("method", cfg.method), f"defaults: [/hydra/schema/{cfg.method}, _self_]"
        raise UserError(f"{path} has no schema, so its values are not checked: write the line '{line}' into it")
    return OmegaConf.to_object(cfg)


@contextmanager
def own_hydra():
    """Initialise Hydra with conf/ inside. A running Hydra application is set aside, since a process has only one."""
    register_once()
    outer, GlobalHydra.instance().hydra = GlobalHydra.instance().hydra, None
    try:
        with initialize_config_dir(str(CONF), version_base=None):
            yield
    finally:
        GlobalHydra.instance().hydra = outer


@cache
def composed(dataset, protocol, method):
    """Return the Run that Hydra composes from the three choices, or None if conf/ lacks one of them, or if one has a
    mistake or does not fit the others. Then one line says so, since its results belong to no row."""
    choices = {"dataset": dataset, "protocol": protocol, "method": method}
    if method not in METHODS or not all(file_of(group, name) for group, name in choices.items()):
        return None
    words = [f"{group}={name}" for group, name in choices.items()]
    try:
        with one_sentence(), own_hydra():
            return parse(compose("config", words))
    except UserError as error:
        print(f"{' '.join(words)} has no rows, since it cannot be composed: {error}", file=sys.stderr)
        return None


def size_of(dataset, given=None):
    """Return the given size, else the `size` in a dataset's YAML, else None."""
    if given is not None:
        return given
    with one_sentence(), own_hydra():
        return compose("config", [f"dataset={dataset}"]).size if file_of("dataset", dataset) else None


@cache
def network_of(arch):
    """Return the `network` setting in the YAML file of an arch, or None if there is no setting or no file."""
    with own_hydra(), suppress(HydraException):
        network = compose("config", [f"arch={arch}"]).network
        return network and OmegaConf.to_container(network)
    return None


def on_arch(run, arch):
    """Return the run with another network."""
    return replace(run, arch=arch, network=network_of(arch))


@cache
def canonical(dataset, protocol, method):
    """Return the same as `composed` with fewer compositions: each takes 0.1 s, and the full suite needs 54.

    In conf/config.yaml, dataset and protocol come after the method and override it, so a method's file decides only its
    own hyperparameters. So these are composed once, and all other settings are taken from Single. A test checks that
    this gives the same Run.
    """
    shared, own = composed(dataset, protocol, "single"), composed("cifar10", "paper", method)
    if shared is None or own is None:
        return None
    return replace(own, **{f.name: getattr(shared, f.name) for f in fields(Run) if f.name != "method"})
