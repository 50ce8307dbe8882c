import json

import made_up
import pytest
from conftest import compose_run

from rbue.errors import UserError
from rbue.runs import places, results


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    results.write(path, {"a": 1})
    monkeypatch.setattr(results.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(UserError, match=r"could not be written \(disk full\): what was there before is kept"):
        results.write(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1} and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 99}'])
def test_a_foreign_result_is_named_and_left_alone(text, tmp_path):
    run = compose_run(f"results_dir={tmp_path}")
    path = results.folder(run) / "result.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(UserError, match="move it away to redo it"):
        results.find(run)
    assert path.read_text() == text


@pytest.mark.parametrize("other", ["half a fi", {"format": 2, "name": "a"}, None])
def test_collecting_names_what_it_leaves_out(other, tmp_path, capsys):
    """A copy of a result would count as another seed."""
    whole = made_up.result("Single")
    results.write(tmp_path / "a" / "result.json", whole)
    results.write(tmp_path / "A copy" / "a" / "result.json", other or whole)
    assert [found.name for found in results.collect(tmp_path)] == [whole["name"]]
    assert f"left out: {tmp_path / 'A copy' / 'a' / 'result.json'} is" in capsys.readouterr().err


def test_the_environment_names_what_a_number_depends_on():
    known = results.environment()
    assert known["torch"] and known["python"] and known["hydra-core"]


def test_the_code_of_a_step_is_known_by_what_it_does(monkeypatch, tmp_path):
    for name in ("noise.py", "training/step.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
    monkeypatch.setattr(results, "STEP", ["noise", "training/step"])
    monkeypatch.setattr(places, "PACKAGE", tmp_path)

    def code(noise):
        (tmp_path / "noise.py").write_text(noise)
        (tmp_path / "training" / "step.py").write_text("class Step:\n    pass\n")
        return results.step_code.__wrapped__()

    plain = code("def draw(x):\n    return x + 1\n")
    assert code('"""Noise."""\n\n\ndef draw(x):\n    """Draw."""\n    return (x + 1)  # one more\n') == plain
    assert code("def draw(x):\n    return x + 2\n") != plain


def test_the_code_of_a_step_names_files_that_exist():
    assert len(results.step_code()) == 10 and results.step_code() == results.step_code()


def test_an_installed_package_and_a_machine_without_git_know_no_commit(monkeypatch):
    """A repository around the installed package is somebody else's."""
    monkeypatch.delenv("RBUE_COMMIT", raising=False)
    monkeypatch.setattr(places, "INSTALLED", True)
    assert results.environment()["commit"] is None
    monkeypatch.setattr(places, "INSTALLED", False)
    monkeypatch.setenv("PATH", "")
    assert results.environment()["commit"] is None
