"""Count the runs that are done, running, failed or missing. Print why runs failed, and estimate the time left.

python scripts/status.py                                 # all tables that have a result in results/runs
python scripts/status.py sweep=table1 seed=0,1,2         # the overrides of any `python train.py -m`
python scripts/status.py results_dir=theirs              # results of another folder
"""

import argparse
import os
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs from a clone, without an install

from rbue.cli import one_sentence_errors, parse_with_plugins, refuse_lists, take_plugins
from rbue.config import FOLDERS
from rbue.errors import UserError
from rbue.runs import results, sweeps
from rbue.runs.places import COMMAND


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "words", nargs="*", metavar="override", help="as in `python train.py -m` (default: all tables with a result)"
    )
    parser.add_argument("--results", help="the same as results_dir=, as the other scripts name it")
    parser.add_argument("-m", "--multirun", action="store_true", help="ignored: you may copy a train.py command")
    return parse_with_plugins(parser, argv)


def main(argv=None):
    args = arguments(argv)
    words = take_plugins(args.words) + ([f"results_dir={args.results}"] if args.results else [])
    refuse_lists(words)
    folder = dict(word.split("=", 1) for word in words if "=" in word).get("results_dir", "results/runs").strip("'\"")
    folder = os.path.expanduser(folder)
    asked = any(word.partition("=")[0] not in FOLDERS for word in words)
    cells, notes = asked_cells(words) if asked else begun_cells(folder, words)
    if not cells:
        print(f"{folder} holds no result of a table yet{searched(folder)}: {COMMAND} -m sweep=demo makes some")
        return
    print("\n".join([sweeps.table(cells), *notes]))


def searched(folder):
    """Say how many results of a hyperparameter search a folder holds: they are in no table."""
    count = sum(bool(result.config.get("holdout")) for result in results.read_all(folder))
    return f" ({count} with holdout= are in no table)" if count else ""


def asked_cells(words):
    """Return the cells of a sweep. If more of them have results of the other precision, which means that they were
    trained on other hardware than this machine's, return those, and a note."""
    cells = [sweeps.cell(run) for run in sweeps.runs_of(words)]
    done = sum(one.state == "done" for one in cells)
    if done == len(cells) or any(word.startswith("precision=") for word in words):
        return cells, []
    others = [replace(one.run, precision=OTHER[one.run.precision]) for one in cells]
    if sum(map(is_finished, others)) <= done:
        return cells, []
    here, stored = cells[0].run.precision, others[0].precision
    note = f"counted with precision={stored}, which most results have; precision=auto is {here} on this machine"
    return [sweeps.cell(run) for run in others], [note]


OTHER = {"fp32": "bf16", "bf16": "fp32"}


def is_finished(run):
    return (results.folder(run) / "result.json").exists()


def begun_cells(folder, words):
    """Return the cells of every table that has a run, and notes on settings that differ from the config here."""
    finished, costs, cells, notes = [], {}, [], []
    deeper = defaultdict(set)
    for result in results.read_all(folder):
        finished.append(result.config)
        if inner := Path(result.folder).relative_to(folder).parts[:-DEPTH]:
            deeper[tuple(result.config[key] for key in ("dataset", "arch", "protocol"))].add(str(Path(folder, *inner)))
        costs[result.folder] = sweeps.Cost.of(result)
    for group, configs in sweeps.begun_tables(finished, folder).items():
        try:
            runs, taken = sweeps.rows_of(group, configs, words)
        except UserError as why:  # a result of another version, with names that no longer exist
            print(f"left out: {' '.join(group)}: {why}", file=sys.stderr)
            continue
        rows = [sweeps.cell(run, costs) for run in runs]
        cells += rows
        if all(one.state == "missing" for one in rows):
            notes.append(f"{' '.join(group)}: {why_none(folder, deeper[group])}")
        if taken:
            settings = " ".join(f"{key}={value}" for key, value in taken.items())
            notes.append(f"{' '.join(group)}: counted with {settings}, which most of its results have")
    return cells, notes


DEPTH = 3  # a run's folder is <dataset>/<arch>/<name>


def why_none(folder, deeper):
    """Say why none of a table's runs is found: they are in deeper folders, or they have other settings."""
    if deeper:
        places = ", ".join(sorted(deeper))
        return f"its runs are in {places}, where no command looks for finished runs: move what is in there to {folder}"
    way_out = "give all settings of your sweep, such as epochs=2, to count it"
    return f"the runs that are there are no rows of this table: {way_out}"


if __name__ == "__main__":
    with one_sentence_errors():
        main()
