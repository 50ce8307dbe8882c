"""Errors as sentences: whatever Hydra, OmegaConf or we refuse is one line on stderr and a non-zero exit."""

import os
import re
import sys
from contextlib import contextmanager

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf.errors import OmegaConfBaseException

from rbue.config import Refused

WANTS_TRACEBACK = os.environ.get("HYDRA_FULL_ERROR") == "1"
os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises instead of printing several lines of its own


@contextmanager
def one_sentence_errors():
    """Around the command and around each job; HYDRA_FULL_ERROR=1 in the environment brings the traceback back."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit("interrupted: the same command goes on from the last checkpoint")
    except (HydraException, OmegaConfBaseException) as error:
        if WANTS_TRACEBACK or in_multirun():
            raise  # one job's refusal does not end the others: the launcher reports it when all are through
        sys.exit(f"refused: {sentence(error, sys.argv[1:])}")


def in_multirun():
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def sentence(error, arguments=()):
    """What is wrong and the way out, in one line."""
    if isinstance(error, Refused):
        return str(error)
    text = f"{error}\n{error.__cause__ or ''}".strip()
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, name = error.missing_cfg_file.rpartition("/")
        return f"{group}={name} is not known: choose one of {', '.join(error.options)}"
    if key := re.match(r"Could not override '([^']+)'", text):
        method = next((a for a in reversed(arguments) if a.startswith("method=")), "method=single")
        return f"{method} has no setting '{key[1]}': python train.py --help lists the knobs of each method"
    if override := re.match(r"Error merging override (.*)\n(.*)", text):
        return f"{override[1]}: {override[2]}"
    return re.sub(r"\s*\n\s*", "; ", text.split("\nSee https", 1)[0].strip())
