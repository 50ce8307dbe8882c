"""Turning errors of Hydra and OmegaConf into one sentence each."""

import re
from contextlib import contextmanager
from difflib import get_close_matches

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rbue.config import Run, own_settings
from rbue.errors import UserError, describe
from rbue.methods import METHODS
from rbue.runs.places import COMMAND, CONF

EXTRAS = {"joblib": "joblib", "ray": "ray", "submitit_slurm": "slurm", "submitit_local": "slurm"}


@contextmanager
def one_sentence(arguments=()):
    """Turn errors of Hydra and OmegaConf inside into a UserError about the command-line arguments."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(sentence(error, arguments)) from error


def sentence(error, arguments=()):
    """Say in one line what is wrong and what to do. `arguments` are the command-line arguments behind the error."""
    if not isinstance(error, (HydraException, OmegaConfBaseException)):
        return describe(error)
    text = f"{error}\n{error.__cause__ or ''}".strip()
    if isinstance(error, OverrideParseException):
        if error.override and error.override.strip(",") != error.override:
            return f"'{error.override}' is a part of a list: write its values without spaces, such as seed=0,1"
        return f"'{error.override}' cannot be read as key=value ({text.splitlines()[0]}): {written(error.override)}"
    if file := re.search(r"In '([^']+)'.*Cannot convert 'DictConfig' to string", text, re.DOTALL):
        return f"{file[1]}.yaml lacks its first line '# @package _global_'"
    if line := re.match(r"In '([^']+)': \w+ raised while composing config:\n(.*)\n\s*full_key: (\S+)", text):
        return wrong_line(*line.groups())
    if word := re.match(r"(?:Ambiguous value for argument|Sweep parameters) '(.+?)'(?:\n| requires)", text):
        return sweep_without_m(word[1])
    if isinstance(error, MissingConfigException) and error.options is not None:
        return missing_choice(error)
    if name := re.search(r"Could not load 'hydra/schema/([^']+)'", text):
        return not_registered(name[1])
    if key := re.match(r"Could not override '(hydra\.[^']+)'", text):
        return f"'{key[1]}' is not a setting of Hydra or of this launcher: {COMMAND} --cfg hydra shows them"
    if key := re.match(r"Could not override '([^']+)'", text):
        method = next((a for a in reversed(arguments) if a.startswith("method=")), "method=single")
        return no_setting(method.removeprefix("method="), key[1])
    if key := re.search(r"missing mandatory value: (\w+)", text):
        return no_value(key[1], arguments)
    if override := re.match(r"Error merging override (.*)\n([\s\S]*)", text):
        return wrong_value(*override.groups())
    return re.sub(r"\s*\n\s*", "; ", text.split("\nSee https", 1)[0].strip())


NUMBERS = {"Integer": "a whole number", "Float": "a number"}
NEEDED = {  # words of OmegaConf → what the setting must be
    "full_key: network\n": "must name a class and its arguments, as in an arch's YAML (docs/extending.md)",
    "Dict[": "must be a dictionary, such as {{name:value}}",
    "=List[float]": "must be a list of numbers, such as [0.5,0.9]",
    "=List[int]": "must be a list of whole numbers, such as [1,2]",
    "is not Optional": "is no value: this setting needs one",
    "is not a ListConfig": "must be a list, such as [{value}]",
    "is not a valid bool": "must be true or false",
    "to string": "must be one text",
}


def wrong_value(word, why):
    """Say of which kind a value must be, and how to write several: 0-3 and [0,1] are not lists of choices."""
    key, _, value = word.partition("=")
    kind = re.search(r"could not be converted to (Integer|Float)", why)
    if not kind or ("=List[" in why and "." not in key):  # lr_drops=[a], but not lr_drops.0=a
        needed = next((text.format(value=value) for words, text in NEEDED.items() if words in why), None)
        return f"{word} {needed}" if needed else f"{word}: {why.splitlines()[0]}"
    several = re.fullmatch(r"\[.*\]|\d+ *(-|\.\.|:| ) *\d+", value)
    return f"{word} is not {NUMBERS[kind[1]]}" + (f": write several values as in -m {key}=1,2" if several else "")


def wrong_line(file, why, key):
    """Say which line of a YAML file is wrong, and name the setting that is most like an unknown one."""
    if not why.startswith("Key '"):
        return f"{file}.yaml has a wrong value of {key} ({why}): correct this line"
    near = most_similar(key, Run.__dataclass_fields__)
    hint = f"did you mean {near}?" if near else f"{COMMAND} --cfg job shows all settings of a run"
    return f"{file}.yaml has the line '{key}: ...', which is not a setting: {hint}"


def no_value(key, arguments):
    """Say which file lacks a setting: the user's own protocol or dataset, if those of the suite set it, or a method."""
    chosen = dict(word.partition("=")[::2] for word in arguments)
    for group, usual in {"protocol": "paper", "dataset": "cifar10"}.items():
        if key in OmegaConf.load(CONF / group / f"{usual}.yaml"):
            file = f"{group}/{chosen[group]}.yaml" if group in chosen else f"the {group}'s YAML"
            way_out = f"write the line '{key}: ...' into {file}, or inherit it with 'defaults: [{usual}, _self_]'"
            return f"{key} has no value: {way_out}"
    return f"{key} has no value: write the line '{key}: ...' into the method's YAML"


def written(word):
    """Say how to write an argument that Hydra cannot read: signs such as ~ or ü must be inside of quotes."""
    setting = re.fullmatch(r"([\w.]+)=([^'\"\[\]{},]+)", word)
    return f"""write '{setting[1]}="{setting[2]}"'""" if setting else f"{COMMAND} --help shows how to write it"


def sweep_without_m(word):
    override = OverridesParser.create().parse_override(word)
    count = len(list(override.sweep_iterator()))
    return f"{override.key_or_group} has {count} values: add -m to run {'both' if count == 2 else 'all'}"


def not_registered(method):
    way_out = "name the package that registers it, as in plugins=my_package"
    return f"method={method} is named in a YAML, but no package registers it: {way_out}"


def no_setting(method, key):
    """Say that a method has no such setting, and name the nearest one, or the method's own."""
    schema = METHODS.get(method, Run)
    own = ", ".join(own_settings(schema)) or "no settings of its own"
    own = " and ".join(own.rsplit(", ", 1))
    near = most_similar(key, [*schema.__dataclass_fields__, "sweep", "launch"])
    of_another = any(key in own_settings(other) for other in METHODS.values())
    where = "--help lists those of each method" if of_another else "--cfg job shows all settings of a run"
    hint = f"did you mean {near}?" if near else f"it has {own}; {COMMAND} {where}"
    return f"method={method} has no setting '{key}': {hint}"


def most_similar(name, known):
    """Return the known name that is most like this one, whether in capitals or not, or None if none is like it."""
    spelled = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), spelled, n=1, cutoff=0.7)
    return spelled[near[0]] if near else None


def missing_choice(error):
    group, _, name = error.missing_cfg_file.rpartition("/")
    if group.endswith("hydra/launcher") and name in EXTRAS:
        return f"launch={EXTRAS[name]} needs a package that is not installed: pip install -e '.[{EXTRAS[name]}]'"
    near = most_similar(name, error.options)
    hint = f"; did you mean {near}?" if near else ""
    if group == "dataset":
        hint += f"; your own images need dataset/{name}.yaml in the folder of --config-dir (docs/datasets.md)"
    return f"{group}={name} is not known: choose one of {', '.join(error.options)}{hint}"
