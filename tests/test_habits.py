"""The files that other programs read: how to cite the suite, how to check a commit, what the CI runs."""

import os
import tomllib

import yaml
from conftest import ROOT


def read(name):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_citation_has_what_its_format_asks_for_and_names_the_suite_and_the_paper():
    citation = read("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    (paper,) = citation["references"]
    assert {"type", "title", "authors"} <= set(paper) and all("family-names" in author for author in paper["authors"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["authors"] == project["authors"] and citation["license"] == project["license"]
    assert paper["url"] == project["urls"]["Paper"]


def test_every_commit_is_checked_by_ruff_as_the_tests_check_it():
    (local,) = read(".pre-commit-config.yaml")["repos"]
    assert [hook["entry"].split()[:2] for hook in local["hooks"]] == [
        [".venv/bin/ruff", w] for w in ("check", "format")
    ]


def test_the_workflow_runs_the_ci_on_the_oldest_python_and_a_new_one():
    workflow = read(".github/workflows/ci.yml")
    assert workflow[True] == ["push", "pull_request"]  # YAML 1.1 reads the word "on" as true
    job = workflow["jobs"]["test"]
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.13"]
    assert job["strategy"]["matrix"]["include"] == [{"python": "3.13", "torch": "torch torchvision"}]
    assert job["steps"][-2] == {"if": "matrix.torch", "run": 'echo "TORCH=${{ matrix.torch }}" >> "$GITHUB_ENV"'}
    assert job["steps"][-1] == {"run": ".ci/run"} and os.access(ROOT / ".ci/run", os.X_OK)
