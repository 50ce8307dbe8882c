"""The same sweep gives the same metrics with every installed launcher, and a job that is told to end is requeued."""

import importlib.util
import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
import torch
from commands import begin, call, start
from conftest import ROOT

from hydra_plugins.rbue_launcher import PackedLauncher
from rbue.data import load_for, read_once, sources
from rbue.runs import devices
from rbue.runs.results import collect

WORDS = ["dataset=digits", "arch=small", "protocol=demo", "epochs=1", "samples=2"]
HALF_WRONG = ["sweep=position", "position=last", "lr=0.1,1e30", "warmup=0", "schedule=step", "epochs=8"]
EXTRA = {"joblib": ["hydra.launcher.n_jobs=2"], "ray": ["hydra.launcher.ray.init.num_cpus=2"]}
PLUGIN = {"joblib": "joblib", "slurm_local": "submitit", "ray": "ray"}


def installed(launch):
    return importlib.util.find_spec("hydra_plugins") and importlib.util.find_spec(
        f"hydra_plugins.hydra_{PLUGIN[launch]}_launcher"
    )


def needs(launch):
    return pytest.param(launch, marks=pytest.mark.skipif(not installed(launch), reason=f"{launch} is not installed"))


def train(folder, *words):
    return begin(ROOT / "train.py", "-m", *WORDS, *words, cwd=folder)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    call("train.py", "-m", *WORDS, *HALF_WRONG, cwd=folder)
    return metrics(folder)


def metrics(folder):
    return {result.name: result.metrics for result in collect(folder / "results")}


def test_a_sweep_reads_a_dataset_once_and_keeps_only_the_last(monkeypatch, digits_run, digits):
    read, runs = [], [digits_run(f"seed={seed}") for seed in (0, 1)]
    monkeypatch.setattr(sources, "load", lambda *arguments: read.append(arguments) or digits)
    monkeypatch.setattr(PackedLauncher, "launch_all", lambda *_: [load_for(run) for run in runs])
    first, second = PackedLauncher().launch([], 0)
    assert first is second is digits and len(read) == 1
    with read_once():
        for run in (runs[0], digits_run("data_dir=elsewhere"), runs[1]):
            load_for(run)
    assert len(read) == 4
    for run in runs:
        load_for(run)
    assert len(read) == 6


@pytest.mark.parametrize("launch", [needs(launch) for launch in EXTRA])
def test_every_launcher_gives_the_same_metrics_and_counts_what_failed(launch, packed, tmp_path):
    check_half(train(tmp_path, *HALF_WRONG, f"launch={launch}", *EXTRA[launch]), packed, tmp_path)


def check_half(sweeping, packed, folder):
    """Wait for a sweep of which one job succeeds, and compare its metrics."""
    _, err = sweeping.communicate(timeout=600)
    assert sweeping.returncode != 0 and "1 of 2 jobs failed" in err and "Traceback" not in err
    assert metrics(folder) == packed and len(packed) == 1
    (failed,) = folder.rglob("failed.json")
    assert "lower lr=1e+30" in json.loads(failed.read_text())["reason"]


@pytest.mark.parametrize("launch", [needs("slurm_local")])
def test_a_job_told_to_end_keeps_a_checkpoint_and_is_queued_again_to_the_same_metrics(launch, packed, tmp_path):
    sweeping = train(tmp_path, *HALF_WRONG, "launch=slurm_local", "checkpoint_every=100")
    logs = tmp_path / "outputs" / "multirun" / ".submitit"
    wait_for(lambda: any("epoch 1/8" in path.read_text() for path in logs.rglob("*.err")))
    (log,) = (path for path in logs.rglob("*.err") if "epoch 1/8" in path.read_text())
    (task,) = children(int(log.name.split("_")[0]))
    os.kill(task, signal.SIGUSR2)
    check_half(sweeping, packed, tmp_path)
    assert "Requeued job" in "".join(path.read_text() for path in logs.rglob("*.out"))
    epochs = re.findall(r"epoch (\d+)/8", "".join(path.read_text() for path in logs.rglob("*.err")))
    assert epochs == [*map(str, range(1, 9))]  # no epoch was trained twice


@pytest.mark.parametrize("launch", [needs("joblib")])
def test_the_workers_of_a_sweep_told_to_end_keep_a_checkpoint_and_end_too(launch, tmp_path):
    words = ["launch=joblib", "hydra.launcher.n_jobs=2", "seed=0,1", "epochs=2000", "checkpoint_every=10000"]
    sweeping = train(tmp_path, *words)
    wait_for(lambda: len(list(tmp_path.rglob("curve.csv"))) == 2)  # both workers have trained an epoch
    workers = [pid for pid in children(sweeping.pid) if b"LokyProcess" in command(pid)]
    sweeping.terminate()
    sweeping.wait(timeout=60)
    try:
        assert len(workers) == 2
        wait_for(lambda: not any(b"LokyProcess" in command(pid) for pid in workers), 60)
    finally:
        for pid in workers:
            if b"LokyProcess" in command(pid):
                os.kill(pid, signal.SIGKILL)
        said = sweeping.communicate()[1]
    assert "ended by SIGTERM: the same command continues from the last checkpoint" in said
    assert len(list(tmp_path.rglob("checkpoint.pt"))) == 2


def command(process):
    """Return a process's command line; empty if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def wait_for(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def children(process):
    return [int(p) for p in open(f"/proc/{process}/task/{process}/children").read().split()]


def test_a_sweep_uses_and_names_the_code_of_its_start(tmp_path):
    code = """if True:
        import os, runpy, sys
        from rbue import training

        def train_during_a_commit(runs, train=training.train_in_packs):
            os.environ["RBUE_COMMIT"] = "later"
            print("loaded:", {f"rbue.evaluation.{name}" for name in ("analysis", "evaluator")} <= {*sys.modules})
            yield from train(runs)

        os.environ["RBUE_COMMIT"], training.train_in_packs = "first", train_during_a_commit
        sys.argv.pop(0)
        runpy.run_path(sys.argv[0], run_name="__main__")"""
    done = start("-c", code, ROOT / "train.py", "-m", *WORDS, cwd=tmp_path)
    assert done.returncode == 0 and "loaded: True" in done.stdout, done.stdout + done.stderr
    assert [result.environment.commit for result in collect(tmp_path / "results")] == ["first"]


def test_a_launcher_that_is_not_installed_is_named_with_the_way_to_it(tmp_path):
    missing = [launch for launch in ("joblib", "ray") if not installed(launch)]
    if not missing:
        pytest.skip("all launchers are installed")
    done = call("train.py", "-m", *WORDS, f"launch={missing[0]}", cwd=tmp_path)
    assert done.returncode != 0 and f"pip install -e '.[{missing[0]}]'" in done.stderr
    assert not list(tmp_path.iterdir())


def test_processes_share_the_gpus_of_a_machine_by_places(tmp_path):
    """Five processes, two GPUs with two slots each: four get a slot, the fifth waits until one of them ends."""
    code = (
        "import sys, time, tempfile; from types import SimpleNamespace as S\n"
        "cuda = S(device_count=lambda: 2, get_device_properties=lambda k: S(uuid=f'gpu{k}'))\n"
        "sys.modules['torch'] = S(cuda=cuda)  # torch itself takes seconds in each process\n"
        "from rbue.runs import devices\n"
        f"tempfile.tempdir = {str(tmp_path)!r}\n"
        "print(devices.claim_gpu(2), flush=True); time.sleep(300)"
    )
    five = [begin("-c", code) for _ in range(4)]
    got = [process.stdout.readline().strip() for process in five]
    assert sorted(got) == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]
    last = begin("-c", code)
    assert last.stderr.readline().startswith("waiting for a place on a GPU,")
    five[1].kill()
    assert last.stdout.readline().strip() == got[1]
    for process in [*five, last]:
        process.kill()
        process.communicate()


def test_without_a_gpu_no_place_is_claimed():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert devices.choose("auto", per_gpu=1).type == "cpu"


def test_the_config_of_slurm_asks_to_be_queued_again(tmp_path):
    if not installed("slurm_local"):
        pytest.skip("submitit is not installed")
    words = ["launch=slurm", "--cfg", "hydra", "--package", "hydra.launcher"]
    shown = call("train.py", *words, cwd=tmp_path).stdout
    assert "max_num_timeout: 20" in shown and json.dumps(True) in shown.split("requeue: ")[1]
