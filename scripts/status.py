"""Which cells are done, running, failed (and why) or missing, and how long the rest may take.

python scripts/status.py                                 # the tables of which results/runs holds anything
python scripts/status.py sweep=table1 seed=0,1,2         # any words of `python train.py -m`
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs from a clone, without an install

from rbue import sweeps
from rbue.cli import one_sentence_errors
from rbue.config import Refused


def main(words):
    folder = dict(word.split("=", 1) for word in words if "=" in word).get("results_dir", "results/runs").strip("'\"")
    asked = any(not word.startswith(("results_dir=", "weights_dir=")) for word in words)
    runs = sweeps.runs_of(words) if asked else list(begun(folder, words))
    print(sweeps.table(runs) if runs else f"{folder} holds no result yet: python train.py -m sweep=demo makes some")


def begun(folder, words):
    for line in sweeps.begun(folder):
        try:
            yield from sweeps.runs_of([*line, *words])
        except Refused as why:  # a result of another version, with names that are gone
            print(f"left out: {' '.join(line)}: {why}", file=sys.stderr)


if __name__ == "__main__":
    with one_sentence_errors():
        print(__doc__) if {"-h", "--help"} & set(sys.argv) else main(sys.argv[1:])
