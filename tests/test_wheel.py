"""The wheel gives a working suite in any folder: the library, a run, and the paper's numbers beside it in a table."""

import shutil

import pytest
from commands import start
from conftest import ROOT

SOURCES = ("rbue", "hydra_plugins", "conf", "scripts", "results/paper")
FILES = ("pyproject.toml", "setup.py", "train.py", "README.md", "LICENSE")
LIBRARY = """
import rbue, torch
network = rbue.randomize(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)), q=0.5)
print(rbue.__file__, tuple(rbue.predict(network, torch.rand(2, 4), samples=5, keep_samples=True).samples.shape))
"""


def python(*words, cwd, path=None, fails=False):
    done = start(*words, cwd=cwd, path=path)
    assert bool(done.returncode) == fails, done.stderr + done.stdout
    return done.stderr if fails else done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the wheel's content, built from a copy, since a build leaves files beside its sources."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, source)
    offline = ("--quiet", "--disable-pip-version-check", "--no-index", "--no-deps")
    python("-m", "pip", "wheel", *offline, "--no-build-isolation", "--wheel-dir", ".", ".", cwd=source)
    (wheel,) = source.glob("*.whl")
    python("-m", "pip", "install", *offline, "--target", str(target), str(wheel), cwd=source)
    return target


def test_a_wheel_trains_and_makes_a_table_from_any_folder(installed, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    library = python("-c", LIBRARY, cwd=here, path=installed)
    assert library.strip() == f"{installed / 'rbue' / '__init__.py'} (5, 2, 3)"
    words = ["method=dropreLU", "q=0.9", "dataset=digits", "arch=small", "protocol=demo", "epochs=1", "samples=2"]
    assert "wrote results/runs/digits/small/dropreLU-q0.9" in python("-m", "rbue", *words, cwd=here, path=installed)
    assert "python -m rbue --help lists" in python("-m", "rbue", "q=0.9", cwd=here, path=installed, fails=True)
    assert "  python -m rbue method=dropreLU q=0.9" in python("-m", "rbue", "--help", cwd=here, path=installed)
    python("-m", "rbue", "tables", "--results", str(here / "results/runs"), cwd=there, path=installed)
    table, papers = (there / "results/tables/demo" / f"{name}.md" for name in ("digits", "position"))
    assert "(epochs=1, samples=2)" in table.read_text(encoding="utf-8")
    assert "13.2 h" in papers.read_text(encoding="utf-8")  # of the paper's Table 6


def test_it_carries_its_type_marks_the_pages_templates_and_the_papers_numbers(installed):
    assert (installed / "rbue" / "py.typed").exists()
    names = {path.name for path in (installed / "rbue" / "report" / "page" / "templates").iterdir()}
    assert names == {"page.html", "parts.html", "page.css", "page.js"}
    numbers = "results/paper/numbers.json"
    assert (installed / "rbue" / "share" / numbers).read_bytes() == (ROOT / numbers).read_bytes()
