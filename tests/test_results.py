import json

import made_up
import pytest
from conftest import compose_run

from rbue.errors import UserError
from rbue.runs import results


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    results.write(path, {"a": 1})
    monkeypatch.setattr(results.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(UserError, match=r"could not be written \(disk full\): any previous file is kept"):
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


def test_a_result_copied_into_another_runs_folder_does_not_replace_the_original(tmp_path, capsys):
    """The misplaced copy comes first in the order of paths."""
    for folder in ("a", "b"):
        results.write(tmp_path / folder / "result.json", made_up.result("Single") | {"name": "b"})
    assert [found.folder for found in results.collect(tmp_path)] == [str(tmp_path / "b")]
    said = f"left out: {tmp_path / 'a' / 'result.json'} is a copy of {tmp_path / 'b' / 'result.json'}"
    assert said in capsys.readouterr().err
