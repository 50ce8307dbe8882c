"""Corruption evaluation: every corruption type at every severity (Sections 4.2 and 4.3)."""

import json
import warnings

from tqdm import tqdm

from rbue import metrics
from rbue.data import corrupted
from rbue.data.corruptions import TYPES
from rbue.errors import UserError
from rbue.progress import bars
from rbue.runs import results


def sets(run, data):
    """Return the corrupted test sets, or None for a clean dataset. Called before training to refuse early."""
    return None if run.corruptions == "none" else corrupted.sets(run, data)


def report(run, test, sets):
    """Score each corrupted test set; {} for a clean dataset. A killed run resumes after the last set that it scored."""
    if sets is None:
        return {}
    path = results.folder(run) / "corruptions.json"
    done = load_progress(path, {"source": sets.source, "weights": test.weights})
    with tqdm(sets.cells, desc=f"{run.name} {sets.source}", unit="set", disable=bars()) as bar:
        for name, severity in bar:
            if name not in done["skipped"] and severity > len(done.get(part(name), {}).get(name, [])):
                bar.set_postfix_str(f"{name} {severity}")
                evaluate_cell(done, name, severity, run, sets, test)
                results.write(path, done)
    return {"corruptions": {key: value for key, value in done.items() if key != "weights"}}


def load_progress(path, tested):
    """Return the scores that an earlier start of this run stored, if it tested the same weights on the same images."""
    try:
        done = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"types": {}}
        scores = {"types": done["types"]} | ({"own": done["own"]} if "own" in done else {})
        kept = scores if all(done.get(key) == value for key, value in tested.items()) else {"types": {}}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} cannot be read ({error}): move it away to test all of its sets again") from error
    return {**tested, **kept, "skipped": {}}  # types that were missing then may be on disk now


def part(name):
    """Return where a type is stored: the 19 types of the paper's box plots, or the user's own."""
    return "types" if name in TYPES else "own"


def evaluate_cell(done, name, severity, run, sets, test):
    """Score one test set. A type that is not available here (frost without its textures) is skipped with its reason."""
    try:
        images, labels = sets.read(name, severity, test.device)
    except UserError as sentence:
        if sets.source != "generated":
            raise  # the user must repair a damaged download, so it is not skipped
        done["skipped"][name] = str(sentence)
        if part(name) == "own":
            warnings.warn(f"your corruption {name} is left out: {sentence}", stacklevel=2)
        return
    evaluated, _ = test(images, quiet=True)
    scores = metrics.score(evaluated.mean, labels.cpu(), run.bins, own=False)
    cell = {"severity": severity} | {key: scores[key] for key in ("accuracy", "ece", "nll", "brier")}
    done.setdefault(part(name), {}).setdefault(name, []).append(cell)
