"""Test the demo's sweep under disturbances: kill it, start it twice, give it wrong arguments, use every launcher.

python scripts/chaos.py                            # everything: half an hour on two cores
python scripts/chaos.py --only wrong               # one kind: killed, twice, wrong or launchers
python scripts/chaos.py --seed 1 epochs=2          # another seed; overrides such as epochs=2 shorten all sweeps
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # runs from a clone, without an install

import torch

from rbue.runs.results import collect

# With one thread per process, sums have the same order on a busy machine.
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def command(folder, *words):
    paths = [f"{key}_dir={folder}/{key}" for key in ("results", "weights", "data")]
    return [sys.executable, str(ROOT / "train.py"), "-m", "sweep=demo", "checkpoint_every=1", *paths, *words]


def start(folder, *words):
    folder.mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(
        command(folder, *words), cwd=folder, env=ENVIRONMENT, stdout=-1, stderr=-1, text=True, start_new_session=True
    )


def finish(process):
    out, err = process.communicate()
    if process.returncode:
        print(err, file=sys.stderr)
    return process.returncode, out, err


# --- what a folder holds ----------------------------------------------------------------------------------------------


def weights(folder):
    """Return the tensors of every training. Reading all files shows that none is half-written."""
    paths = sorted((folder / "weights").rglob("*.pt"))
    loaded = {p: torch.load(p, weights_only=True, map_location="cpu") for p in paths}
    return {p.relative_to(folder): saved["network"] for p, saved in loaded.items() if p.name == "weights.pt"}


def metrics(folder):
    """Return the scores, without times and hardware."""
    return {result.name: (result.metrics, result.corruptions) for result in collect(folder / "results")}


def finished(folder):
    """Return every finished file with its inode and time, which change if it is written again."""
    paths = [p for name in ("weights.pt", "result.json") for p in folder.rglob(name)]
    return {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in paths}


def same_weights(one, other):
    one, other = weights(one), weights(other)
    return one.keys() == other.keys() and all(
        torch.equal(one[path][name], other[path][name]) for path in one for name in one[path]
    )


def readable(folder):
    """Whether no JSON file is half-written (weights() checks the other files)."""
    return all(json.loads(p.read_text(encoding="utf-8")) is not None for p in folder.rglob("*.json"))


# --- the disturbances -------------------------------------------------------------------------------------------------


def killed(calm, folder, chance, words, seconds):
    """Send SIGKILL at 20 points in time; each start resumes where the previous one was killed."""
    once = {}
    for _ in range(20):
        process = start(folder, *words)
        time.sleep(chance.uniform(2, 2 + seconds / 8))
        os.killpg(process.pid, 9)
        process.communicate()
        now = finished(folder)
        assert readable(folder) and weights(folder) is not None
        assert all(now[path] == stamp for path, stamp in once.items()), "a finished file was written again"
        once = now
    code, _, _ = finish(start(folder, *words))
    now, left = finished(folder), list(folder.rglob(".*"))
    yield "killed 20 times: the sweep ends complete", f"{len(metrics(folder))} cells", code == 0
    rewritten = sum(now[path] != stamp for path, stamp in once.items())
    yield "finished files written again", f"{rewritten} of {len(now)}", rewritten == 0
    yield "half-written files, stale locks", str(len(left)), not left
    yield "weights equal to the undisturbed sweep's, bit by bit", str(len(weights(folder))), same_weights(calm, folder)
    yield "metrics equal", str(len(metrics(folder))), metrics(calm) == metrics(folder)


def twice(calm, folder, chance, words, seconds):
    """Run two sweeps at once on one folder."""
    both = [start(folder, *words) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(finish, both))
    wrote = Counter(line for _, out, _ in ended for line in out.splitlines() if line.startswith("wrote "))
    last = re.compile(r"^(.*): epoch (\d+)/\2 ", re.M)
    trained = Counter(match[0] for _, _, err in ended for match in last.findall(err))
    yield "two sweeps at once: both exit 0", str([code for code, _, _ in ended]), all(not code for code, _, _ in ended)
    yield "cells written, each once", str(len(wrote)), set(wrote.values()) == {1} and len(wrote) == len(metrics(calm))
    yield "trainings, each once", str(len(trained)), set(trained.values()) == {1} and len(trained) == len(weights(calm))
    shares = [out.count("wrote ") for _, out, _ in ended]
    yield "metrics equal; cells of each", str(shares), metrics(calm) == metrics(folder)


def launchers(calm, folder, chance, words, seconds):
    """Run the same sweep with every installed launcher."""
    ways = {"joblib": ["hydra.launcher.n_jobs=2"], "slurm_local": [], "ray": ["hydra.launcher.ray.init.num_cpus=2"]}
    plugins = {"joblib": "joblib", "slurm_local": "submitit", "ray": "ray"}
    for launch, extra in ways.items():
        if not find_spec("hydra_plugins") or not find_spec(f"hydra_plugins.hydra_{plugins[launch]}_launcher"):
            yield f"launch={launch}", "not installed", True
            continue
        begun = time.monotonic()
        code, _, _ = finish(start(folder / launch, f"launch={launch}", *extra, *words))
        same = code == 0 and metrics(calm) == metrics(folder / launch)
        yield f"launch={launch}: the same metrics", f"{time.monotonic() - begun:.0f} s", same


# --- wrong command lines ----------------------------------------------------------------------------------------------

NUMBERS = ["seed", "epochs", "batch", "lr", "warmup", "weight_decay", "momentum", "crop", "samples", "bins", "pack"]
NAMES = ["method", "dataset", "arch", "protocol", "sweep", "launch", "schedule", "precision", "engine", "logger"]
RANGES = ["seed=-1", "epochs=0", "batch=-3", "lr=-0.1", "lr=nan", "warmup=1.5", "momentum=-1", "samples=0", "bins=0"]
RANGES += ["lr_drops=[2]", "pack=0", "eval_batch=0", "per_gpu=0", "checkpoint_every=0", "weight_decay=inf"]
RANGES += ["method=dropreLU q=-0.1", "method=dropreLU q=nan", "method=mc_dropout p=7", "method=rrelu l=0.5 u=0.1"]
RANGES += ["method=svi sigma=0", "method=svi kl_warmup=2", "method=deep_ensemble members=0"]
RANGES += ["device=tpu", "device=cuda:99", "results_dir=/dev/null/runs"]
STRANGERS = ["q=0.9", "p=0.5", "members=2", "sigma=0.1", "speed=3", "+speed=3", "method.q=1", "hydra.speed=3", "~batch"]
SYNTAX = ["epochs=[", "seed=(1", "lr={", "q==", "=3", "method='single", "lr_drops=[0.5", "++", "seed=1,", "epochs=${"]


def wrong_line(chance):
    """Return a valid command line with one wrong word: a name, a type, a range, an unknown key, or bad syntax."""
    word = chance.choice(
        [
            lambda: f"{chance.choice(NAMES)}={chance.choice(['foo', 'Single', 'resnet', 'cifar', '1', 'true'])}",
            lambda: f"{chance.choice(NUMBERS)}={chance.choice(['much', 'true', '[1]', '1e', '{a: 1}', 'null'])}",
            lambda: chance.choice(RANGES),
            lambda: chance.choice(STRANGERS),
            lambda: chance.choice(SYNTAX),
        ]
    )()
    right = chance.sample(["arch=small", "dataset=digits", "protocol=demo", "precision=fp32", "bins=15"], k=2)
    right = [r for r in right if r.split("=")[0] not in word]
    words = [*right, *(word.split(" ") if "=" in word else [word])]
    return [*(["-m", "seed=0,1"] if chance.random() < 0.4 and "seed" not in word else []), *words]


def wrong(calm, folder, chance, words, seconds):
    """Run 200 wrong command lines in empty folders."""
    lines = [wrong_line(chance) for _ in range(200)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = [fault for fault in pool.map(lambda k: judged(folder / str(k), lines[k]), range(200)) if fault]
    for fault in faults:
        print(fault, file=sys.stderr)
    yield "wrong command lines: one sentence, exit ≠ 0, nothing written", f"{200 - len(faults)} of 200", not faults


def judged(folder, words):
    """Return what is wrong with the answer to a wrong line, or None."""
    folder.mkdir(parents=True)
    run = [sys.executable, str(ROOT / "train.py"), *words]
    done = subprocess.run(run, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120)
    lines = done.stderr.strip().splitlines()
    sound = done.returncode != 0 and len(lines) == 1 and lines[0].startswith("refused: ") and not list(folder.iterdir())
    return None if sound else f"{words}: exit {done.returncode}, {lines[-1:]}, left {list(folder.iterdir())}"


# --- the command ------------------------------------------------------------------------------------------------------

STORMS = {"wrong": wrong, "killed": killed, "twice": twice, "launchers": launchers}


def main(options):
    folder = Path(options.folder or tempfile.mkdtemp(prefix="chaos-"))
    chance, chosen, calm = random.Random(options.seed), options.only or list(STORMS), folder / "calm"
    print(f"in {folder}, seed {options.seed}", flush=True)
    begun = time.monotonic()
    if set(chosen) != {"wrong"} and finish(start(calm, *options.words))[0]:
        sys.exit("failed: the undisturbed sweep ends with an error")
    seconds, rows = time.monotonic() - begun, []
    for name in chosen:
        for what, figure, sound in STORMS[name](calm, folder / name, chance, options.words, seconds):
            rows.append(sound)
            print(f"{'ok   ' if sound else 'WRONG'}  {what:62}  {figure}", flush=True)
    print(f"{sum(rows)} of {len(rows)} tests passed, {(time.monotonic() - begun) / 60:.0f} minutes")
    if not options.folder:
        shutil.rmtree(folder)
    return 0 if all(rows) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="override", help="override for every sweep, such as epochs=2")
    parser.add_argument("--only", action="append", choices=STORMS, help="one kind of test; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="seed of random choices (default: %(default)s)")
    parser.add_argument("--folder", help="work in this folder and keep it (default: a temporary one)")
    sys.exit(main(parser.parse_args()))
