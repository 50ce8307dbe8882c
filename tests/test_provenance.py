"""Where a number comes from."""

from rbue.runs import places, provenance


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
