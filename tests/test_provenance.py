"""Where a number comes from."""

import json
import subprocess
from functools import cache
from types import SimpleNamespace

import made_up
import pytest
import torch

from rbue import training
from rbue.data import sources
from rbue.main import experiment
from rbue.runs import devices, places, provenance, results


def test_the_environment_names_what_a_number_depends_on():
    known = provenance.environment()
    assert known["torch"] and known["python"] and known["hydra-core"]


def test_the_code_of_a_step_is_known_by_what_it_does(monkeypatch, tmp_path):
    for name in ("noise.py", "training/step.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
    monkeypatch.setattr(provenance, "STEP", ["noise", "training/step"])
    monkeypatch.setattr(places, "PACKAGE", tmp_path)

    def code(noise):
        (tmp_path / "noise.py").write_text(noise)
        (tmp_path / "training" / "step.py").write_text("class Step:\n    pass\n")
        return provenance.step_code.__wrapped__()

    plain = code("def draw(x):\n    return x + 1\n")
    assert code('"""Noise."""\n\n\ndef draw(x):\n    """Draw."""\n    return (x + 1)  # one more\n') == plain
    assert code("def draw(x):\n    return x + 2\n") != plain


def test_the_code_of_a_step_names_files_that_exist():
    assert all((places.PACKAGE / f"{module}.py").is_file() for module in provenance.STEP)
    assert len(provenance.step_code()) == 10


def test_an_installed_package_and_a_machine_without_git_know_no_commit(monkeypatch):
    """A repository around the installed package is somebody else's."""
    monkeypatch.delenv("RBUE_COMMIT", raising=False)
    monkeypatch.setattr(places, "INSTALLED", True)
    assert provenance.environment()["commit"] is None
    monkeypatch.setattr(places, "INSTALLED", False)
    monkeypatch.setenv("PATH", "")
    assert provenance.environment()["commit"] is None


def in_clone(folder, *command):
    named = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *named, *command], cwd=folder, capture_output=True, text=True, check=True).stdout


def test_only_a_clone_knows_whether_files_differ_from_the_commit(monkeypatch, tmp_path):
    def changed(commit=None):
        monkeypatch.setenv("RBUE_COMMIT", commit or "")
        return provenance.environment()["changed"]

    monkeypatch.setattr(places, "ROOT", tmp_path)
    monkeypatch.setattr(places, "INSTALLED", False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert changed() is None and changed("0123abc") is None  # a copy without its repository
    in_clone(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("1\n")
    (tmp_path / "results").mkdir()
    (tmp_path / "results/table").write_text("1\n")
    in_clone(tmp_path, "add", ".")
    in_clone(tmp_path, "commit", "-q", "-m", "a")
    first = in_clone(tmp_path, "rev-parse", "HEAD").strip()
    (tmp_path / "notes").write_text("not tracked\n")
    (tmp_path / "results/table").write_text("a table that was built again\n")
    assert changed() is False and changed(first) is False and changed("0123abc") is None
    (tmp_path / "a.py").write_text("2\n")
    assert changed() is True and changed(first) is True
    in_clone(tmp_path, "commit", "-q", "-a", "-m", "b")
    assert changed() is False and changed(first) is True


def test_a_result_names_the_versions_that_only_a_gpu_uses(monkeypatch):
    versions = {"cuda": "12.8", "cudnn": 91002, "driver": "570.1"}
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)
    monkeypatch.setattr(devices, "driver", lambda: "570.1")
    assert devices.software(torch.device("cuda:0")) == versions
    assert devices.software(torch.device("cpu")) == dict.fromkeys(versions)
    for known in (versions, dict.fromkeys(versions)):
        content = made_up.result("Single")
        content["environment"] |= known | {"changed": None}
        (row,) = made_up.read_records([content]).to_dict("records")
        assert known.items() <= vars(row["result"].environment).items() and row["commit"] == "`0123456789`"


@pytest.mark.parametrize(("code", "known"), [(0, "570.1"), (9, None), (None, None)])
def test_the_driver_is_what_nvidias_library_says_if_there_is_one(code, known, monkeypatch):
    def library(_):
        if code is None:
            raise OSError("libnvidia-ml.so.1: cannot open shared object file")
        return SimpleNamespace(nvmlInit_v2=lambda: code, nvmlSystemGetDriverVersion=write)

    def write(text, size):
        text.value = b"570.1"
        return code

    monkeypatch.setattr(devices.ctypes, "CDLL", library)
    assert devices.driver() == known


def test_a_run_on_a_cpu_writes_null_for_what_a_gpu_uses(digits_run, few_digits, monkeypatch):
    monkeypatch.setattr(sources, "load", lambda *_: few_digits)
    run = digits_run("epochs=1")
    experiment(run)
    written = json.loads((results.folder(run) / "result.json").read_text())["environment"]
    assert [written[key] for key in ("cuda", "cudnn", "driver")] == [None] * 3


def test_a_result_names_the_commit_at_the_start_of_its_job(digits_run, few_digits, monkeypatch):
    def train_during_a_commit(*arguments):
        monkeypatch.setenv("RBUE_COMMIT", "later")
        return load_or_train(*arguments)

    load_or_train, run = training.load_or_train, digits_run("epochs=1")
    monkeypatch.setattr(sources, "load", lambda *_: few_digits)
    monkeypatch.setattr(training, "load_or_train", train_during_a_commit)
    monkeypatch.setattr(provenance, "at_start", cache(provenance.environment))
    monkeypatch.setenv("RBUE_COMMIT", "first")
    experiment(run)
    assert json.loads((results.folder(run) / "result.json").read_text())["environment"]["commit"] == "first"
