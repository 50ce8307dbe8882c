"""Text is UTF-8 wherever the suite runs, also where the system's own encoding is another one."""

import ast
import os
import subprocess
import sys

import pytest
from conftest import ROOT
from made_up import whole_suite, write

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
FILES = [p for folder in ("rbue", "scripts", "hydra_plugins") for p in sorted((ROOT / folder).rglob("*.py"))]


def opens_text(call):
    """Whether a call opens a text file: Image.open and tarfile.open do not, nor do modes with a b."""
    name, owner = getattr(call.func, "attr", getattr(call.func, "id", None)), getattr(call.func, "value", None)
    if name == "open":
        binary = any(isinstance(word, ast.Constant) and "b" in str(word.value) for word in call.args[-1:])
        return not binary and getattr(owner, "id", None) not in ("Image", "tarfile", "os")
    return name in ("read_text", "write_text") and owner is not None  # a Path's, not our own read_text


def test_every_opened_text_file_says_its_encoding():
    silent = []
    for path in FILES:
        for call in (n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Call)):
            if opens_text(call) and "encoding" not in {keyword.arg for keyword in call.keywords}:
                silent.append(f"{path.relative_to(ROOT)}:{call.lineno}")
    assert not silent


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return write(tmp_path_factory.mktemp("runs"), whole_suite()[:2])


@pytest.mark.parametrize(("script", "out"), [("report", "report.html"), ("tables", "tables")])
def test_reports_are_written_where_the_system_knows_ascii_alone(runs, tmp_path, script, out):
    command = [sys.executable, f"scripts/{script}.py", "--results", runs, "--out", tmp_path / out]
    command += ["--print"] if script == "tables" else []
    subprocess.run(command, cwd=ROOT, env=os.environ | ASCII, check=True)
    written = tmp_path / out if script == "report" else tmp_path / "tables" / "demo" / "digits.md"
    assert "–" in written.read_text(encoding="utf-8")
