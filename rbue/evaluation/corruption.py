"""Testing under distribution shift: every corruption at every severity (Sections 4.2 and 4.3)."""

import json

from tqdm import tqdm

from rbue import metrics
from rbue.data import corrupted
from rbue.data.corruptions import TYPES
from rbue.errors import UserError
from rbue.progress import bars
from rbue.runs import results


def sets(run, data):
    """The corrupted test sets, None for a clean dataset; asked for before a training, it is refused before it."""
    return None if run.corruptions == "none" else corrupted.sets(run, data)


def report(run, test, sets):
    """Scores of each corrupted set; nothing for a clean dataset. Goes on at the cell a killed run had reached."""
    if sets is None:
        return {}
    path = results.folder(run) / "corruptions.json"
    done = begun(path, sets.source)
    with tqdm(sets.cells, desc=f"{run.name} {sets.source}", unit="set", disable=bars()) as bar:
        for name, severity in bar:
            if name not in done["skipped"] and severity > len(done.get(part(name), {}).get(name, [])):
                bar.set_postfix_str(f"{name} {severity}")
                add(done, name, severity, run, sets, test)
                results.write(path, done)
    return {"corruptions": done}


def begun(path, source):
    """What an earlier start of this run left, if it tested the same images."""
    try:
        done = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        same = done.get("source") == source
        kept = {"types": done["types"] if same else {}} | ({"own": done["own"]} if same and "own" in done else {})
    except (ValueError, KeyError, AttributeError) as error:
        raise UserError(f"{path} cannot be read ({error}): move it away to test all of its sets again") from error
    return {"source": source, **kept, "skipped": {}}  # what was missing then may be here now


def part(name):
    """The 19 types of the paper's box plots stay among themselves: a user's own are kept beside them."""
    return "types" if name in TYPES else "own"


def add(done, name, severity, run, sets, test):
    """One cell. A type that cannot be had here (frost without its textures) is left out with its reason."""
    try:
        images, labels = sets.read(name, severity, test.device)
    except UserError as sentence:
        if sets.source == "official":
            raise  # a damaged download is mended, not left out
        done["skipped"][name] = str(sentence)
        return
    evaluated, _ = test(images, quiet=True)
    scores = metrics.score(evaluated.mean, labels.cpu(), run.bins)
    cell = {"severity": severity} | {key: scores[key] for key in ("accuracy", "ece", "nll", "brier")}
    done.setdefault(part(name), {}).setdefault(name, []).append(cell)
