"""The command line: report errors as one line on stderr with a non-zero exit, and prepare the arguments for Hydra."""

import argparse
import os
import re
import signal
import sys
import threading
import warnings
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from traceback import extract_tb

from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from rbue import plugins, progress
from rbue.config import own_settings
from rbue.errors import Failed, UserError, failure, wants_traceback
from rbue.methods import METHODS
from rbue.processes import end_with
from rbue.runs import compose, results
from rbue.runs.messages import sentence
from rbue.runs.places import COMMAND, PACKAGE, PAPER

JOBS = "RBUE_JOBS"  # the variable in which a sweep tells its processes how many jobs it has
SWEEP = "RBUE_SWEEP"  # the variable in which a sweep tells its processes its own process number
CONTINUES = "the same command continues from the last checkpoint, or starts again if there is none"
GROUPS = ("method", "dataset", "arch", "protocol", "sweep", "launch")


def prepare_hydra():
    """Make Hydra raise its errors instead of printing them. The user's own HYDRA_FULL_ERROR is kept for other
    processes under another name."""
    os.environ.setdefault("RBUE_FULL_ERROR", os.environ.get("HYDRA_FULL_ERROR", "0"))
    os.environ["HYDRA_FULL_ERROR"] = "1"


@contextmanager
def one_sentence_errors(after_interrupt="start the same command again"):
    """Turn an error into one line and a non-zero exit. If HYDRA_FULL_ERROR=1 is set, show the traceback instead."""
    with suppress(AttributeError):  # the streams of notebooks have no reconfigure
        sys.stdout.reconfigure(errors="replace")  # a terminal without UTF-8 shows ? for ±
    try:
        with progress.outliving_readers(), plain_warnings():
            yield
    except KeyboardInterrupt:
        sys.exit(f"interrupted: {after_interrupt}")
    except Exception as error:
        line = None if wants_traceback() else one_line(error)
        if line is None:
            raise
        sys.exit(line)


@contextmanager
def plain_warnings():
    """Inside, show the suite's own warnings as sentences, without the line of code that they come from."""
    usual = warnings.formatwarning

    def as_sentence(message, category, filename, *place):
        own = Path(filename).resolve().is_relative_to(PACKAGE)
        return f"warning: {message}\n" if own else usual(message, category, filename, *place)

    warnings.formatwarning = as_sentence
    try:
        yield
    finally:
        warnings.formatwarning = usual


@contextmanager
def told_signals():
    """Inside, a signal that ends the process says first what to do next. Handlers of others stay."""
    ending = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    in_main = threading.current_thread() is threading.main_thread()  # Python allows handlers only there
    told = [number for number in ending if in_main and signal.getsignal(number) == signal.SIG_DFL]
    for number in told:
        signal.signal(number, tell_and_end)
    try:
        yield
    finally:
        for number in told:
            signal.signal(number, signal.SIG_DFL)


def tell_and_end(number, frame):
    line = f"ended by {signal.Signals(number).name}: {CONTINUES}\n"
    with suppress(OSError):  # a closed terminal, which sends SIGHUP, cannot be written to
        os.write(2, line.encode())  # the signal may have interrupted a print, which cannot be entered twice
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def one_line(error):
    """Return the line about an error. It is None for an error that must be raised: one of other code, and a refused job
    of a sweep, which must not end the others, since the sweeper counts the failures at the end."""
    if isinstance(error, (UserError, HydraException, OmegaConfBaseException)):
        kind = "failed" if isinstance(error, Failed) else "refused"
        return None if in_multirun() else f"{kind}: {sentence(error, sys.argv[1:])}"
    if isinstance(error, YAMLError):
        return f"refused: a YAML file cannot be read: {' '.join(str(error).split())}"
    if isinstance(error, (AssertionError, AttributeError)):
        return line_about_network(error)
    if isinstance(error, OSError):  # outside of a job, for example no permission to enter a folder
        return f"failed: {sentence(error)}"
    return line_about_value(error) if isinstance(error, ValueError) and not in_multirun() else None


def line_about_network(error):
    """Return the line about OmegaConf's error for a setting inside of `network: null`, or None for any other error."""
    words = [word for word in sys.argv[1:] if word.lstrip("+").startswith("network")]
    if not words or "omegaconf" not in extract_tb(error.__traceback__)[-1].filename:
        return None
    way_out = "write an arch of your own with `network:` in its YAML (docs/extending.md)"
    return f"refused: {' '.join(words)}: the YAML of this arch has no `network:` to change; {way_out}"


def line_about_value(error):
    """Return the line about a ValueError of Hydra or OmegaConf, or None for any other: it is an error of the code."""
    if not {"hydra", "omegaconf"} & {*Path(extract_tb(error.__traceback__)[-1].filename).parts}:
        return None
    if not str(error).startswith("Config group override"):  # for arch=1 or arch=true
        return f"refused: {' '.join(str(error).split())}: {COMMAND} --help shows valid commands"
    words = [word for word in sys.argv[1:] if word.lstrip("+~").partition("=")[0] in ("", *GROUPS)]
    return f"refused: {' '.join(words)}: a choice is a name, not a number; {COMMAND} --help lists them"


def take_plugins(words):
    """Import the plugins that `plugins=...` names, note the folder of --config-dir, and return the other arguments.

    Plugins must be imported before Hydra composes, and they are not a setting of a run.
    """
    given = [word.removeprefix("plugins=") for word in words if word.startswith("plugins=")]
    folder = hydra_parser().parse_known_args(words)[0].config_dir
    plugins.choose([name.strip() for one in given for name in one.strip("[]").split(",")], folder)
    return [word for word in words if not word.startswith("plugins=")]


def take_plugins_of_completion():
    """Do the same for shell completion: the shell passes the line to complete in an environment variable."""
    if line := os.environ.get("COMP_LINE"):
        take_plugins(line.split())
        os.environ["COMP_LINE"] = re.sub(r"\bplugins=\S+ ", "", line)


def parser_of_results(doc, out, what, paper="numbers.json"):
    """Return the parser of a script that reads finished runs and the paper's numbers and writes `what` to `out`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", default="results/runs", help="folder of finished runs (default: %(default)s)")
    parser.add_argument("--out", default=out, help=f"{what} (default: %(default)s)")
    parser.add_argument("--paper", default=PAPER, help=f"folder of {paper} (default: the suite's own)")
    return parser


def parse_with_plugins(parser, argv):
    """Parse the arguments of a script, with the options that name plugins, which all scripts share."""
    parser.add_argument("--plugin", action="append", default=[], help="a package of your own; may be repeated")
    parser.add_argument("--config-dir", help="another folder of YAML files, with subfolders such as method, arch")
    args = parser.parse_intermixed_args(argv)
    plugins.choose(args.plugin, args.config_dir)
    return args


def refuse_unknown_filter(found, **wanted):
    """Refuse a name, such as that of --dataset, that neither the results nor the YAML files of the group have."""
    for group, name in wanted.items():
        known = {result.config[group] for result in found}
        if name is not None and name not in known and not compose.file_of(group, name):
            there = ", ".join(sorted(known)) or "nothing"
            raise UserError(f"--{group} {name} is not known: the results are of {there}")


def hydra_parser():
    """Return Hydra's parser of options, which refuses in one sentence instead of eight lines of usage."""
    parser = get_args_parser()

    def refuse(message):
        unknown = message.startswith("unrecognized")
        raise UserError(message + (": write settings without dashes, such as seed=0" if unknown else ""))

    parser.error = refuse
    return parser


def for_hydra(words):
    """Rewrite the arguments for Hydra, which allows settings on one side of the options only: put the options last.
    Refuse an option that Hydra does not know."""
    words = list(map(Word, words))
    given = hydra_parser().parse_intermixed_args(words)
    refuse_lists(given.overrides)
    settings = set(map(id, given.overrides))
    options = [str(word) for word in words if id(word) not in settings]
    return [*map(as_choice if given.multirun else str, given.overrides), *options]


def refuse_lists(words):
    """Refuse dataset=[a,b], of which Hydra would use the last name alone, and any other choice in brackets."""
    for word in words:
        group, _, value = word.lstrip("+~").partition("=")
        if group in GROUPS and value.lstrip().startswith("["):
            raise UserError(f"{word} is a list: write one name, or several as in -m dataset=cifar10,cifar100")


class Word(str):
    """One word of the command line. Each is an object of its own, since an option's value may equal a setting."""


def as_choice(word):
    """Write a hyperparameter of a method as a choice of one value. In a sweep, Hydra would try a plain q=0.9 on the
    default method first, which has no q."""
    own = {name for schema in METHODS.values() for name in own_settings(schema)}
    setting = re.fullmatch(rf"({'|'.join(own)})=([\w.+-]+)", word)
    return f"{setting[1]}=choice({setting[2]})" if setting else str(word)


def in_multirun():
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def parse(cfg):
    """Return the job's Run. Refuse a sweep or a launcher without -m: Hydra would ignore them."""
    progress.hide(in_multirun() and HydraConfig.get().runtime.choices.launch != "packed")  # jobs share one terminal
    choices = HydraConfig.get().runtime.choices
    name, launch = choices.get("sweep"), choices.launch
    if name and not in_multirun():
        raise UserError(f"sweep={name} is many runs: {COMMAND} -m sweep={name} starts them")
    if launch != "packed" and not in_multirun():
        raise UserError(f"launch={launch} starts jobs only with -m: {COMMAND} -m launch={launch} ...")
    return compose.parse(cfg)


@cache
def end_with_sweep():
    """Make a worker of joblib end as by SIGTERM when its sweep has ended, even by SIGKILL. Otherwise it would finish
    its job, and then keep its memory and its place on a GPU."""
    if in_multirun() and HydraConfig.get().runtime.choices["hydra/launcher"] == "joblib":
        sweep = int(os.environ[SWEEP])
        if sweep != os.getpid():  # with one worker, joblib runs the jobs in the process of the sweep
            end_with(sweep, lambda: os.kill(os.getpid(), signal.SIGTERM))


def announce(run):
    """Say in a sweep which job this is."""
    if in_multirun():
        of_all = f" of {os.environ[JOBS]}" if JOBS in os.environ else ""  # a cluster may pass on no variables
        print(f"job {HydraConfig.get().job.num + 1}{of_all}: {run.name}", flush=True)


@contextmanager
def failures_kept(run):
    """Write a job's failure into its folder. A refusal is written only in a sweep, since otherwise the user sees it."""
    try:
        yield
    except Exception as error:
        refused = isinstance(error, UserError) and not isinstance(error, Failed)
        if wants_traceback() or (refused and not in_multirun()):
            raise
        raise keep_failure(run, failure(error), told=not in_multirun()) from None


def keep_failure(run, failed, told=False):
    """Write failed.json into the run's folder, and print the reason unless `told`."""
    try:
        results.write_failure(run, str(failed), failed.details)
        if failed.details:
            failed = Failed(f"{failed} (traceback: {results.folder(run) / 'failed.json'})", failed.details)
    except UserError as why:  # if the disk is full, the first error must still be reported
        print(f"failed: {why}", file=sys.stderr)
    if not told:
        print(f"failed: {run.name}: {failed}", file=sys.stderr, flush=True)
    return failed
