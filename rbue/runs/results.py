"""Run folders: one result.json per run, written atomically, read without torch."""

import errno
import json
import os
import secrets
import sys
import tempfile
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean

from rbue.errors import Failed, UserError
from rbue.runs import locks, places, provenance, schema

MAKES = f"'make demo' or '{places.COMMAND}' makes some"


def folder(run) -> Path:
    return Path(run.results_dir) / run.name


def weights_folder(run) -> Path:
    """Return the folder of a training's weights and checkpoints."""
    return Path(run.weights_dir) / run.training_name


def training_key(run):
    """Return what identifies a training in a sweep: the folder of its weights, and that of its data."""
    return weights_folder(run), run.data_dir


def folders_written(run):
    """Return the folders that a run writes into: results_dir, weights_dir, and the folders inside them."""
    own = [folder(run).parent, *(weights_folder(part).parent for part in run.trainings)]
    return dict.fromkeys([Path(run.results_dir), Path(run.weights_dir), *own])


def is_trained(run):
    return has_weights(weights_folder(run))


def has_weights(folder):
    return os.path.exists(os.path.join(folder, "weights.pt"))


@contextmanager
def find_or_lock(run):
    """Yield the finished result, or lock the run and yield None."""
    result = find(run)
    if result is None:
        check_writable(*folders_written(run))
    with locks.held(folder(run)) if result is None else nullcontext():
        yield result or find(run)


def write_failure(run, reason, details):
    """Write failed.json in place of a result; `details` is a traceback."""
    content = {"reason": reason, "config": run.identity, "traceback": details.splitlines()}
    write(folder(run) / "failed.json", content)


def failure_reason(run):
    """Return why the run failed at its last start, or None."""
    path = folder(run) / "failed.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        return json.loads(path.read_text(encoding="utf-8"))["reason"]
    return "failed.json cannot be read" if os.path.exists(path) else None


def find(run):
    """Return the run's finished result, or None."""
    name = run.name  # computed once, since a sweep may look for tens of thousands of results
    path = os.path.join(run.results_dir, name, "result.json")
    if not os.path.exists(path):  # Path.exists() raises if the folder may not be entered
        return None
    result = schema.read(path)
    if result.name != name:
        raise UserError(f"{path} is the result of {result.name}: move it away to start this run")
    return result


def write_result(run, report, trainings, cost, predictions):
    """Write the run's predictions and its result."""
    content = content_of(run, report, trainings, cost)
    try:
        checked = schema.parse(content)
    except ValueError as error:
        told = "train with another setting, such as a lower lr"
        raise UserError(f"{run.name} has no valid result ({error}): {told}") from error
    if predictions:
        with replacing(folder(run) / "predictions.npz") as file:
            predictions.save(file)
    write(folder(run) / "result.json", content)  # written last, since it marks the run as finished
    for outdated in ("failed.json", "corruptions.json"):
        (folder(run) / outdated).unlink(missing_ok=True)
    return checked


def content_of(run, report, trainings, cost):
    """Return what a result holds: config, scores, cost and environment."""
    seconds = {"train": over("seconds", trainings), "alone": over("alone", trainings), "evaluate": cost["seconds"]}
    peaks = {"alone": over("alone_peak_memory_bytes", trainings, max), "evaluate": cost["peak_memory_bytes"]}
    environment = provenance.at_start() | {key: cost[key] for key in ("hardware", "precision", "engine")}
    return {
        "format": schema.FORMAT,
        "name": run.name,
        "config": run.identity,
        **report,
        "seconds": seconds,
        "test_ms_per_image": cost["ms_per_image"],
        "first_ms_per_image": cost["first_ms_per_image"],
        "images": cost["images"],
        "passes": cost["passes"],
        "parameters": sum(t["parameters"] for t in trainings),
        "peak_memory_bytes": peaks,
        "trainings": list(trainings),
        "environment": environment | cost["software"],
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def over(key, trainings, combine=sum):
    """Combine a value over a run's trainings; None if one is unknown."""
    values = [t.get(key) for t in trainings]
    return None if None in values else combine(values)


def lacking(result):
    """Return the names of the loaded plugins' metrics that a result lacks."""
    own = getattr(sys.modules.get("rbue.metrics"), "OWN", {})  # a plugin has imported it, or else there are none
    return [name for name in own if name not in result.metrics]


def summary(result):
    """One line for the console: scores, times, hardware and precision."""
    shown = corrupted_scores(result.corruptions) if result.corruptions else clean_scores(result)
    seconds, where = result.seconds, result.environment
    per_set = " per test set" if result.corruptions else ""
    times = f"training {seconds.train:.1f} s  evaluation {seconds.evaluate:.1f} s{per_set}"
    return f"{shown}  {times}  tested on {where.hardware} in {where.precision}"


def clean_scores(result):
    scores, images = result.metrics, "held-out" if result.config.get("holdout") else "test"
    nll = f"  NLL {scores['nll']:.4f}" if "nll" in scores else ""
    return f"{images} accuracy {scores['accuracy']:.2%}  ECE {scores['ece']:.4f}{nll}"


def corrupted_scores(corruptions):
    """The means over all corruptions and severities, a user's own corruptions included."""
    if not corruptions.levels:
        return "no corrupted images tested"
    accuracy, ece = (mean(getattr(level, score) for level in corruptions.levels) for score in ("accuracy", "ece"))
    return f"mean of {len(corruptions.levels)} corrupted test sets: accuracy {accuracy:.2%}  ECE {ece:.4f}"


def collect(results_dir):
    """Return all finished results below a folder, sorted by depth and path."""
    return list(read_all(results_dir))


def collect_some(results_dir):
    """Return the same, or refuse a folder without results, from which nothing must be built: a page that is there would
    be replaced by an empty one."""
    if found := collect(results_dir):
        return found
    raise UserError(f"{results_dir} holds no result that can be read, so nothing is written: {MAKES}")


def read_all(results_dir):
    """Yield the same, so that not all must fit into memory. An unreadable result is reported and left out, and so is a
    copy deeper down, which is not a second seed."""
    if not os.path.isdir(results_dir):
        raise UserError(f"{results_dir} is not a folder, so it holds no results: {MAKES}")
    kept: dict[str, Path] = {}
    for path in sorted(Path(results_dir).rglob("result.json"), key=lambda path: (len(path.parts), path.parts)):
        try:
            result = schema.read(path)
            if original := kept.get(result.name) or in_its_folder(result, path, results_dir):
                raise UserError(f"{path} is a copy of {original}")
        except UserError as sentence:
            print(f"left out: {sentence}", file=sys.stderr)
        else:
            kept[result.name] = path
            yield result


def in_its_folder(result, path, results_dir):
    """Return the file in the folder of the result's own name if `path` is another one."""
    own = Path(results_dir) / result.name / "result.json"
    return own if own != path and own.exists() else None


def write(path, content):
    """Write text or bytes as they are, and anything else as JSON."""
    if not isinstance(content, bytes):
        content = (content if isinstance(content, str) else json.dumps(content, indent=1) + "\n").encode()
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path):
    """Yield a file that replaces `path` atomically: readers see the old or the new one, a full disk keeps the old."""
    path = Path(path)
    part = path.with_name(f".{path.name}-{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "xb") as file:  # unlike a file of tempfile, it follows the user's umask
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            why = f"{path} could not be written ({error.strerror or error})"
            raise Failed(f"{why}: any previous file is kept; {way_out(error)}") from error
        raise


def way_out(error):
    """Say what helps against an error of the disk."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return "free some space, then run the same command" if full else "make the folder writable or choose another one"


def check_writable(*folders):
    """Refuse, before training, a folder that cannot be written. Nothing that is created here stays."""
    for wanted in map(Path, folders):
        existing = next(p for p in [wanted.absolute(), *wanted.absolute().parents] if os.path.exists(p))
        try:
            tempfile.TemporaryFile(dir=existing).close()
        except OSError as error:
            raise UserError(f"{wanted} cannot be written ({error.strerror}): choose another folder") from error
