"""All ten rows of one table: trained (several at once on a GPU), evaluated, printed. For a corrupted dataset the six
methods of the paper's box plots, whose networks are those of the clean one.

python scripts/rows.py dataset=digits arch=small protocol=demo     # no download, no GPU, minutes
python scripts/rows.py arch=resnet18 protocol=fast seed=0          # any key of train.py; Ctrl-C and again: it resumes
python scripts/rows.py dataset=cifar10_c arch=resnet18             # 19 corruptions at 5 severities
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # runs from a clone, without an install

from hydra import compose

from rbue import config, data, devices, results, training
from rbue.cli import one_sentence_errors
from rbue.methods import METHODS
from rbue.report.rows import ROWS, SIX, own_hydra, register_once
from train import experiment


def compose_rows(settings):
    """One run a row, checked before the first is trained."""
    register_once()
    with own_hydra():
        rows = [(label, [f"{key}={value}" for key, value in row.items()]) for label, row in ROWS]
        runs = {label: config.parse(compose("config", [*settings, *row])) for label, row in rows}
    corrupted = next(iter(runs.values())).corruptions != "none"
    return {label: run for label, run in runs.items() if label in SIX or not corrupted}


def main(settings):
    runs = compose_rows(settings)
    first, missing = next(iter(runs.values())), [run for run in runs.values() if results.find(run) is None]
    if missing:
        results.check_writable(first.results_dir, first.weights_dir)
        images, device = data.load(first.trained_on, first.data_dir), devices.choose(first.device)
        for pack in training.packs([member for run in missing for member in members(run)], device):
            training.fit(pack, images, device)
            finish(runs)
    finish(runs)
    show(first)


def members(run):
    return METHODS[run.method].trainings(run)


def finish(runs):
    """Evaluates the rows whose networks are trained: a cell is on disk as soon as it can be."""
    for label in [label for label, run in runs.items() if all(map(training.is_trained, members(run)))]:
        run = runs.pop(label)
        print(f"{label:18} {results.summary(results.find(run) or experiment(run))}", flush=True)


def show(run):
    """The table of a clean dataset; what corruption does is a figure."""
    if run.corruptions != "none":
        return
    tables = Path(run.results_dir).parent / "tables"
    command = [sys.executable, ROOT / "scripts" / "tables.py", "--results", run.results_dir, "--out", tables, "--print"]
    subprocess.run([*command, "--dataset", run.dataset, "--protocol", run.protocol], check=True)


if __name__ == "__main__":
    with one_sentence_errors():
        print(__doc__) if {"-h", "--help"} & set(sys.argv) else main(sys.argv[1:])
