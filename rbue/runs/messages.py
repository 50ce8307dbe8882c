"""Turning errors of Hydra and OmegaConf into one sentence each."""

import re

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from rbue.errors import describe
from rbue.runs.places import COMMAND

EXTRAS = {"joblib": "joblib", "ray": "ray", "submitit_slurm": "slurm", "submitit_local": "slurm"}


def sentence(error, arguments=()):
    """Say in one line what is wrong and what to do. `arguments` are the command-line arguments behind the error."""
    if not isinstance(error, (HydraException, OmegaConfBaseException)):
        return describe(error)
    text = f"{error}\n{error.__cause__ or ''}".strip()
    if isinstance(error, OverrideParseException):
        why = text.splitlines()[0]
        return f"'{error.override}' cannot be read as key=value ({why}): {COMMAND} --help shows how to write it"
    if file := re.search(r"In '([^']+)'.*Cannot convert 'DictConfig' to string", text, re.DOTALL):
        return f"{file[1]}.yaml puts its settings into a group: its first line must be '# @package _global_'"
    if isinstance(error, MissingConfigException) and error.options is not None:
        return missing_choice(error)
    if name := re.search(r"Could not load 'hydra/schema/([^']+)'", text):
        way_out = "name the package that registers it, as in plugins=my_package"
        return f"method={name[1]} stands in a YAML, but nothing registers it: {way_out}"
    if key := re.match(r"Could not override '(hydra\.[^']+)'", text):
        return f"'{key[1]}' is no setting of Hydra or of this launcher: {COMMAND} --cfg hydra shows them"
    if key := re.match(r"Could not override '([^']+)'", text):
        method = next((a for a in reversed(arguments) if a.startswith("method=")), "method=single")
        return f"{method} has no setting '{key[1]}': {COMMAND} --help lists the hyperparameters of each method"
    if override := re.match(r"Error merging override (.*)\n(.*)", text):
        return f"{override[1]}: {override[2]}"
    return re.sub(r"\s*\n\s*", "; ", text.split("\nSee https", 1)[0].strip())


def missing_choice(error):
    group, _, name = error.missing_cfg_file.rpartition("/")
    if group.endswith("hydra/launcher") and name in EXTRAS:
        return f"launch={EXTRAS[name]} needs a package that is not installed: pip install -e '.[{EXTRAS[name]}]'"
    return f"{group}={name} is not known: choose one of {', '.join(error.options)}"
