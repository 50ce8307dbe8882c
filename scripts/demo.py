"""All ten rows of the paper's tables on scikit-learn's digits: trained, evaluated, printed. No download, no GPU.

python scripts/demo.py                       # = make demo; what is finished is skipped, so it resumes after Ctrl-C
python scripts/demo.py seed=1 epochs=5       # any key of train.py
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # runs from a clone, without an install

from hydra import compose
from tqdm import tqdm

from rbue import config, results
from rbue.cli import one_sentence_errors
from rbue.report.rows import ROWS, own_hydra, register_once
from train import experiment

OUT = Path("outputs/demo")
SETTINGS = ["dataset=digits", "arch=small", "protocol=demo", f"results_dir={OUT}/runs", f"weights_dir={OUT}/weights"]


def runs(extra):
    """One run a row, checked before the first is trained."""
    register_once()
    with own_hydra():
        for _, row in ROWS:
            yield config.parse(compose("config", [*SETTINGS, *(f"{k}={v}" for k, v in row.items()), *extra]))


def main(extra):
    with tqdm(list(runs(extra)), desc="ten rows", unit="row", disable=None) as bar:
        for (label, _), run in zip(ROWS, bar, strict=True):
            result = results.find(run) or experiment(run)
            tqdm.write(f"{label:18} {results.summary(result)}", file=sys.stdout)
    tables = ["--results", OUT / "runs", "--out", OUT / "tables", "--dataset", "digits", "--print"]
    subprocess.run([sys.executable, ROOT / "scripts" / "tables.py", *tables], check=True)


if __name__ == "__main__":
    with one_sentence_errors():
        main(sys.argv[1:])
