"""Errors as sentences: whatever Hydra, OmegaConf or we refuse is one line on stderr and a non-zero exit."""

import os
import re
import sys
import traceback
from contextlib import contextmanager
from dataclasses import fields

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf.errors import OmegaConfBaseException

from rbue import config, results
from rbue.config import Refused

# Hydra then raises instead of printing several lines of its own; the user's own wish is handed on to other processes.
WANTS_TRACEBACK = os.environ.setdefault("RBUE_FULL_ERROR", os.environ.get("HYDRA_FULL_ERROR", "0")) == "1"
os.environ["HYDRA_FULL_ERROR"] = "1"
GROUPS = ("method", "dataset", "arch", "protocol", "sweep", "launch")
EXTRAS = {"joblib": "joblib", "ray": "ray", "submitit_slurm": "slurm", "submitit_local": "slurm"}


class Failed(Refused):
    """What began and could not go on. `details` is the traceback as text: the error itself would keep its tensors."""

    def __init__(self, sentence, details=""):
        super().__init__(sentence)
        self.details = details


@contextmanager
def one_sentence_errors():
    """Around the command and around each job; HYDRA_FULL_ERROR=1 in the environment brings the traceback back."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit("interrupted: the same command goes on from the last checkpoint")
    except (HydraException, OmegaConfBaseException) as error:
        if WANTS_TRACEBACK or in_multirun():
            raise  # one job's refusal does not end the others: the sweeper counts them when all are through
        sys.exit(f"{'failed' if isinstance(error, Failed) else 'refused'}: {sentence(error, sys.argv[1:])}")
    except OSError as error:  # outside of a job, such as a folder that may not be entered
        if WANTS_TRACEBACK:
            raise
        sys.exit(f"failed: {sentence(error)}")
    except ValueError as error:
        if WANTS_TRACEBACK or not str(error).startswith("Config group override"):  # Hydra's, for arch=1 or arch=true
            raise
        words = [word for word in sys.argv[1:] if word.partition("=")[0] in ("", *GROUPS)]
        sys.exit(f"refused: {' '.join(words)}: a choice is a name, not a number; python train.py --help lists them")


def for_hydra(words):
    """In a sweep a method's knob becomes a choice of one: Hydra composes other words with the default method first. And
    -m may stand anywhere."""
    if not {"-m", "--multirun"} & set(words):
        return words
    words = [words[0], "-m", *(word for word in words[1:] if word not in ("-m", "--multirun"))]
    shared = {f.name for f in fields(config.Run)}
    knobs = {f.name for schema in config.SCHEMAS.values() for f in fields(schema)} - shared
    knob = re.compile(rf"({'|'.join(knobs)})=([\w.+-]+)")
    return [knob.sub(r"\1=choice(\2)", word) if knob.fullmatch(word) else word for word in words]


def in_multirun():
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def bars():
    """What tqdm takes as `disable`: bars on a terminal, none where several processes would share it."""
    return True if in_multirun() and HydraConfig.get().runtime.choices.launch != "packed" else None


def parse(cfg):
    """The job's Run; a sweep is many of them, which Hydra makes only if asked to."""
    name = HydraConfig.get().runtime.choices.get("sweep")
    if name and not in_multirun():
        raise Refused(f"sweep={name} is many runs: python train.py -m sweep={name} starts them")
    return config.parse(cfg)


@contextmanager
def failures_kept(run):
    """A job's failure goes into its folder. What is refused before anything began leaves nothing, but in a sweep."""
    try:
        yield
    except Exception as error:
        if WANTS_TRACEBACK or (isinstance(error, Refused) and not isinstance(error, Failed) and not in_multirun()):
            raise
        raise keep_failure(run, failure(error), told=not in_multirun()) from None


def failure(error):
    """Any error as a sentence, with its traceback as text."""
    if WANTS_TRACEBACK:
        raise error
    if isinstance(error, Failed):
        return error
    return Failed(sentence(error), "".join(traceback.format_exception(error)))


def keep_failure(run, failed, told=False):
    """Leaves failed.json in the run's folder, and says so on the console unless somebody else will."""
    try:
        results.fail(run, str(failed), failed.details)
    except Refused as why:  # a full disk must not hide what went wrong
        print(f"failed: {why}", file=sys.stderr)
    if not told:
        print(f"failed: {run.name}: {failed}", file=sys.stderr, flush=True)
    return failed


def sentence(error, arguments=()):
    """What is wrong and the way out, in one line."""
    if isinstance(error, Refused):
        return str(error)
    if type(error).__name__ == "OutOfMemoryError":
        return out_of_memory(error, "lower eval_batch=, which changes no result")
    if not isinstance(error, (HydraException, OmegaConfBaseException)):
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    text = f"{error}\n{error.__cause__ or ''}".strip()
    if isinstance(error, OverrideParseException):
        why = text.splitlines()[0]
        return f"'{error.override}' cannot be read as key=value ({why}): python train.py --help shows how to write it"
    if isinstance(error, MissingConfigException) and error.options is not None:
        return missing_choice(error)
    if key := re.match(r"Could not override '(hydra\.[^']+)'", text):
        return f"'{key[1]}' is no setting of Hydra or of this launcher: python train.py --cfg hydra shows them"
    if key := re.match(r"Could not override '([^']+)'", text):
        method = next((a for a in reversed(arguments) if a.startswith("method=")), "method=single")
        return f"{method} has no setting '{key[1]}': python train.py --help lists the knobs of each method"
    if override := re.match(r"Error merging override (.*)\n(.*)", text):
        return f"{override[1]}: {override[2]}"
    return re.sub(r"\s*\n\s*", "; ", text.split("\nSee https", 1)[0].strip())


def missing_choice(error):
    group, _, name = error.missing_cfg_file.rpartition("/")
    if group.endswith("hydra/launcher") and name in EXTRAS:
        return f"launch={EXTRAS[name]} needs a package that is not installed: pip install -e '.[{EXTRAS[name]}]'"
    return f"{group}={name} is not known: choose one of {', '.join(error.options)}"


def out_of_memory(error, way_out):
    """How much there was, how much more was asked for, and what to lower."""
    text = " ".join(str(error).split())
    asked = re.search(r"allocate ([\d.]+ \w+)", text)
    held = re.search(r"capacity of ([\d.]+ \w+) of which ([\d.]+ \w+)", text)
    asked = f" when {asked[1]} more were asked for" if asked else ""
    held = f"{held[2]} of its {held[1]} were free" if held else "no memory was left"
    return f"the GPU is too small for this: {held}{asked}; {way_out}"
