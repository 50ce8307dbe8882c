"""Run folders: one result.json a run, written whole or not at all, read without torch."""

import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rbue.config import Refused

FORMAT = 1
ROOT = Path(__file__).parent.parent


def folder(run) -> Path:
    return Path(run.results_dir) / run.name


def find(run):
    """The run's finished result, or None."""
    path = folder(run) / "result.json"
    return read(path) if path.exists() else None


def read(path):
    try:
        result = json.loads(Path(path).read_text())
        if result["format"] != FORMAT:
            raise Refused(f"{path} has format {result['format']}, this version reads {FORMAT}: move it away to redo it")
        return result
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise Refused(f"{path} is not a result of this suite ({error}): move it away to redo it") from error


def record(run, report, trainings, cost):
    """Writes the run's result: its config, what it scored, what it cost, and on what."""
    result = {
        "format": FORMAT,
        "name": run.name,
        "config": run.identity,
        **report,
        "seconds": {"train": sum(t["seconds"] for t in trainings), "evaluate": cost["seconds"]},
        "test_ms_per_image": cost["ms_per_image"],
        "passes": cost["passes"],
        "parameters": sum(t["parameters"] for t in trainings),
        "peak_memory_bytes": {
            "train": max(t["peak_memory_bytes"] for t in trainings),
            "evaluate": cost["peak_memory_bytes"],
        },
        "trainings": trainings,
        "environment": environment() | {key: cost[key] for key in ("hardware", "precision", "engine")},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write(folder(run) / "result.json", result)
    for outdated in ("failed.json", "corruptions.json"):
        (folder(run) / outdated).unlink(missing_ok=True)
    return result


def summary(result):
    """One line for the console."""
    scores, seconds = result["metrics"], result["seconds"]
    return (
        f"accuracy {scores['accuracy']:.2%}  ECE {scores['ece']:.4f}  NLL {scores['nll']:.4f}  "
        f"training {seconds['train']:.1f} s  evaluation {seconds['evaluate']:.1f} s"
    )


def collect(results_dir):
    """Every finished result below a folder, in the order of their names; an unreadable one is named and left out."""
    results = []
    for path in sorted(Path(results_dir).rglob("result.json")):
        try:
            results.append(read(path))
        except Refused as sentence:
            print(f"left out: {sentence}", file=sys.stderr)
    return results


def write(path, content):
    """Atomically: a reader sees the old file or the new one, never half of it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        file.write(content if isinstance(content, str) else json.dumps(content, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def check_writable(*folders):
    """Refuses before hours of training what would fail after them. Creates nothing that stays."""
    for wanted in map(Path, folders):
        existing = next(p for p in [wanted.absolute(), *wanted.absolute().parents] if p.exists())
        try:
            tempfile.TemporaryFile(dir=existing).close()
        except OSError as error:
            raise Refused(f"{wanted} cannot be written ({error.strerror}): choose another folder") from error


def environment():
    """What a number depends on besides its config."""
    return {
        "commit": _git("rev-parse", "HEAD") or os.environ.get("RBUE_COMMIT"),  # for copies without a repository
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        **{name: _version(name) for name in ("torch", "torchvision", "numpy", "hydra-core")},
    }


def _git(*command):
    done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return None
