"""All ten rows of one table: trained (several at once on a GPU), evaluated, printed.

python scripts/rows.py dataset=digits arch=small protocol=demo     # no download, no GPU, minutes
python scripts/rows.py arch=resnet18 protocol=fast seed=0          # any key of train.py; Ctrl-C and again: it resumes
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
from rbue.report.rows import ROWS, own_hydra, register_once
from train import experiment


def compose_rows(settings):
    """One run a row, checked before the first is trained."""
    register_once()
    with own_hydra():
        rows = [[f"{key}={value}" for key, value in row.items()] for _, row in ROWS]
        return [config.parse(compose("config", [*settings, *row])) for row in rows]


def main(settings):
    runs = compose_rows(settings)
    first, missing = runs[0], [run for run in runs if results.find(run) is None]
    if missing:
        results.check_writable(first.results_dir, first.weights_dir)
        members = [member for run in missing for member in METHODS[run.method].trainings(run)]
        training.trained(members, data.load(first.trained_on, first.data_dir), devices.choose(first.device))
    for (label, _), run in zip(ROWS, runs, strict=True):
        print(f"{label:18} {results.summary(results.find(run) or experiment(run))}", flush=True)
    tables = Path(first.results_dir).parent / "tables"
    only = ["--dataset", first.dataset, "--protocol", first.protocol]
    command = [
        sys.executable,
        ROOT / "scripts" / "tables.py",
        "--results",
        first.results_dir,
        "--out",
        tables,
        "--print",
    ]
    subprocess.run([*command, *only], check=True)


if __name__ == "__main__":
    with one_sentence_errors():
        print(__doc__) if {"-h", "--help"} & set(sys.argv) else main(sys.argv[1:])
