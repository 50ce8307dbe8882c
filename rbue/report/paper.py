"""The paper's numbers and claims, as typed from its pages into results/paper."""

import json
from pathlib import Path

PAPERS_IMAGES = 10_000  # in each of its test sets
HALF = {"accuracy": 0.005, "ece": 0.005, "time": 0.05, "jsd": 0.0005, "dis": 0.0005}  # half of the last printed digit
CORRUPTIONS = 19  # types, each at five severities


def read_paper(paper_dir, name):
    """Return the content of numbers.json, claims.json or explained.json; `name` comes without its suffix."""
    return json.loads((Path(paper_dir) / f"{name}.json").read_text(encoding="utf-8"))
