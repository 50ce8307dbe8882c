"""Convert stored results to the current format, and give each run's folder its current name.

python scripts/migrate.py                      # results/runs
python scripts/migrate.py --results theirs     # somebody else's runs

The suite can read results of an older format without this. After it, a finished run is found under its name and
skipped. The weights of its trainings are renamed too. A second call changes nothing.
"""

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs from a clone, without an install

from rbue.cli import one_sentence_errors
from rbue.errors import UserError
from rbue.runs import results, schema
from rbue.runs.format1 import upgrade


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default="results/runs", help="folder of runs (default: %(default)s)")
    parser.add_argument("--weights", type=Path, default="weights", help="folder of weights (default: %(default)s)")
    return parser.parse_args(argv)


def migrate(path, root, weights):
    """Rename one run's folder and rewrite its result; other files move along. Return whether it was outdated."""
    schema.read(path)  # refuses what is no result
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["format"] == schema.FORMAT:
        return False
    migrate_weights(content, weights)
    upgraded = upgrade(content)
    target = root / upgraded["name"]
    if target != path.parent:
        if target.exists():
            raise UserError(f"{path} stays as it is: {target} is there already")
        target.parent.mkdir(parents=True, exist_ok=True)
        os.rename(path.parent, target)
    results.write(target / "result.json", upgraded)
    return True


def migrate_weights(content, weights):
    """Rename the folders of the trainings behind a result, so that nothing is trained again."""
    trainings = content.get("trainings") or []
    for old, new in zip(trainings, upgrade(content)["trainings"], strict=False):
        before, after = weights / str(old.get("name")), weights / new["name"]
        if before.is_dir() and not after.exists():
            after.parent.mkdir(parents=True, exist_ok=True)
            os.rename(before, after)


def main(argv=None):
    args, renamed = arguments(argv), 0
    root = args.results
    if not root.is_dir():
        raise UserError(f"{root} is not a folder, so it holds no results")
    for path in sorted(root.rglob("result.json")):
        try:
            renamed += migrate(path, root, args.weights)
        except UserError as sentence:
            print(f"left out: {sentence}", file=sys.stderr)
    print(f"{root}: {renamed} results converted to format {schema.FORMAT}")


if __name__ == "__main__":
    with one_sentence_errors():
        main()
