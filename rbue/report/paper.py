"""The paper's numbers and claims, as typed from its pages into results/paper."""

import json
from pathlib import Path


def read_paper(paper_dir, name):
    """Return the content of numbers.json, claims.json or explained.json; `name` comes without its suffix."""
    return json.loads((Path(paper_dir) / f"{name}.json").read_text(encoding="utf-8"))
