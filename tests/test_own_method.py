"""The method of docs/extending.md, in a package of its own: it trains, and stands in the table and the figures."""

import os
import re
import tomllib

import pytest
from commands import start
from conftest import PAPER, ROOT

from rbue.methods import METHODS


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder that holds the package of docs/extending.md, and two finished runs."""
    assert "grelu" not in METHODS, "the suite itself has method=grelu now: rename the method of docs/extending.md"
    folder = tmp_path_factory.mktemp("work")
    whole = r"```(?:python|yaml)\n((?:# @package _global_\n)?# (my_methods/\S+): [^\n]*\n.*?)```"
    blocks = re.findall(whole, DOCS, re.DOTALL)  # as a reader copies them
    assert [path for _, path in blocks] == ["my_methods/__init__.py", "my_methods/conf/method/grelu.yaml"]
    for lines, path in blocks:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(lines)
    (folder / "my_methods/conf/protocol").mkdir()
    (folder / "my_methods/conf/protocol/quick.yaml").write_text(QUICK)
    words = ["method=grelu,dropreLU", "dataset=digits", "arch=small", "protocol=quick"]
    command("train.py", "-m", "plugins=my_methods", *words, cwd=folder)
    return folder


QUICK = "# @package _global_\ndefaults: [demo, _self_]\nprotocol: quick\nepochs: 1\n"
DOCS = (ROOT / "docs" / "extending.md").read_text()


def command(script, *words, cwd):
    done = start(ROOT / script, *words, cwd=cwd, path=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


OPTIONS = ("--plugin", "my_methods", "--paper", str(PAPER))


def test_the_installed_package_has_its_yaml(work):
    (block,) = re.findall(r"```toml\n(.*?)```", DOCS, re.DOTALL)
    patterns = tomllib.loads(block)["tool"]["setuptools"]["package-data"]["my_methods"]
    packed = {path for pattern in patterns for path in (work / "my_methods").glob(pattern)}
    assert packed == {path for path in work.rglob("*.yaml") if "my_methods" in path.parts}


def test_it_is_a_row_of_the_table_below_the_papers(work):
    assert "grelu(s=0.3)" in command("scripts/tables.py", "--print", *OPTIONS, cwd=work)
    text = (work / "results/tables/quick/digits.md").read_text()
    rows = re.findall(r"^\| (\S+) ", text.split("##")[1], re.MULTILINE)
    assert rows[-1] == "grelu(s=0.3)" and len(rows) == 12  # after the header and the paper's ten rows
    assert "1 of 10 cells measured (small 1/10)" in text and "not in this table" not in text
    assert "grelu(s=0.3)" in (work / "results/tables/quick/digits.tex").read_text()


def test_it_can_be_compared_with_a_row_of_the_paper(work):
    (block,) = re.findall(r"```python\n(from rbue import plugins\n.*?)```", DOCS, re.DOTALL)
    done = start("-c", block, cwd=work, path=f"{work}{os.pathsep}{ROOT}")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"quick +digits +small +(\w+)", done.stdout) == ["accuracy", "ece"]


def test_it_is_in_the_figures(work):
    command("scripts/figures.py", *OPTIONS, cwd=work)
    folder = work / "results/figures/quick/digits/small"
    for name in ("diversity", "diversity-matrices", "reliability", "samples", "behaviours", "twins"):
        assert "grelu" in (folder / f"{name}.csv").read_text(), name
