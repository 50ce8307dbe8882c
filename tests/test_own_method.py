"""The README's own method in a copy of the suite: it trains, and appears in the table and the figures."""

import re
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

PARTS = ("rbue", "conf", "hydra_plugins", "scripts", "train.py", "results/paper")


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """A copy of the suite with the README's code in place, and one finished run."""
    copy = tmp_path_factory.mktemp("suite")
    for part in PARTS:
        put = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        put(ROOT / part, copy / part)
    blocks = re.findall(r"```(?:python|yaml)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    places = re.findall(r"^# ((?:rbue|conf)/\S+): .*\n((?:(?!# (?:rbue|conf)/).*\n)*)", "".join(blocks), re.MULTILINE)
    assert len(places) == 2
    for path, lines in places:
        with (copy / path).open("a") as file:
            file.write("\n" + lines if path.endswith("py") else lines)
    command("train.py", "method=grelu", "dataset=digits", "arch=small", "protocol=demo", cwd=copy)
    return copy


def command(*words, cwd):
    done = subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_a_row_of_the_table_below_the_papers(suite):
    assert "grelu(s=0.3)" in command("scripts/tables.py", "--print", cwd=suite)
    text = (suite / "results/tables/demo/digits.md").read_text()
    rows = re.findall(r"^\| (\S+) ", text.split("##")[1], re.MULTILINE)
    assert rows[-1] == "grelu(s=0.3)" and len(rows) == 12  # after the header and the paper's ten rows
    assert "0 of 10 cells measured (small 0/10)" in text and "not in this table" not in text
    assert "grelu(s=0.3)" in (suite / "results/tables/demo/digits.tex").read_text()


def test_it_is_in_the_figures(suite):
    command("scripts/figures.py", cwd=suite)
    folder = suite / "results/figures/demo/digits/small"
    for name in ("diversity", "diversity-matrices", "reliability", "samples", "behaviours", "twins"):
        assert "grelu" in (folder / f"{name}.csv").read_text(), name
