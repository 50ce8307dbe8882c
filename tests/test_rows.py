"""The command behind `make demo`: ten rows, each evaluated as soon as its networks are trained."""

import subprocess
import sys

from conftest import ROOT

from rbue.report.rows import LABELS, SIX
from rbue.results import collect


def rows(folder, *settings):
    paths = [f"results_dir={folder}/runs", f"weights_dir={folder}/weights", f"data_dir={folder}/data"]
    command = [sys.executable, str(ROOT / "scripts" / "rows.py"), "arch=small", "protocol=demo", *paths, *settings]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def test_all_ten_rows_share_their_trainings_and_are_skipped_the_second_time(tmp_path):
    done = rows(tmp_path, "dataset=digits", "epochs=1", "samples=2")
    assert done.returncode == 0, done.stderr
    assert [line[:18].strip() for line in done.stdout.splitlines()[:10]] == LABELS
    assert len(collect(tmp_path / "runs")) == 10
    assert len(list(tmp_path.glob("weights/digits/small/*/weights.pt"))) == 12  # the ensemble's first is Single's
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.json")}
    assert rows(tmp_path, "dataset=digits", "epochs=1", "samples=2").returncode == 0
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.json")}


def test_a_wrong_setting_is_refused_before_the_first_row(tmp_path):
    done = rows(tmp_path, "dataset=digits", "samples=0")
    assert done.returncode != 0 and done.stderr.strip() == "refused: samples=0 must be at least 1"
    assert not list(tmp_path.iterdir())


def test_the_box_plots_take_one_row_a_method():
    assert SIX == ["Single", "MC-Dropout(0.5)", "Deep Ensemble(4)", "SVI", "MC-RReLU", "MC-DropReLU(0.95)"]
