"""Shared by the tests: runs composed as on the command line, and a tiny dataset."""

import copy
import dataclasses
import gc
import hashlib
import os
import resource
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path

# Before torch is imported, and for all processes that tests start: sums have one order, and small networks are as fast.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # each of the compiler's own processes would import torch

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

ROOT = Path(__file__).resolve().parents[1]
PAPER = ROOT / "results" / "paper"
sys.path.insert(0, str(ROOT))

from rbue.errors import UserError  # noqa: E402
from rbue.runs import results  # noqa: E402
from rbue.runs.compose import parse, register  # noqa: E402


def load_each_text_once(load=yaml.load):
    """Every command reads the same seventy YAML files: keep what a text says, and give each reader its own copy."""
    known = {}

    def loaded(stream, Loader):
        text = stream if isinstance(stream, (str, bytes)) else stream.read()
        key = text, Loader.__name__  # OmegaConf makes a new class of this name for each file
        if key not in known:
            if text is not stream:
                stream.seek(0)  # an error names the file
            known[key] = load(stream, Loader)
        return copy.deepcopy(known[key])

    return loaded


yaml.load = load_each_text_once()
register()


GROUPS = ("method=", "dataset=", "arch=", "protocol=")


def pytest_collection_finish():
    """Collect garbage less often, as train.py does, and never search the million objects that torch keeps alive."""
    gc.freeze()
    gc.set_threshold(10_000)


def compose_run(*overrides):
    """Compose a run. Tests that choose the same groups share a composition, which takes 0.1 s, and replace its settings
    by their own."""
    groups = [word for word in overrides if word.startswith(GROUPS)]
    settings = OmegaConf.from_dotlist([word for word in overrides if word not in groups])
    return parse(OmegaConf.merge(composed(*groups), settings))


@cache
def composed(*overrides):
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose("config", overrides=list(overrides))


def refused(call, *args, **kwargs):
    """The sentence with which a call is refused."""
    with pytest.raises(UserError) as refusal:
        call(*args, **kwargs)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def make_step(run, data, device="cpu"):
    """The training step of a run, ready for the first batch."""
    import torch

    from rbue.training.checkpoints import build
    from rbue.training.step import Images, Step

    device, network = torch.device(device), build(run, data)
    step = Step(run, network, Images(data, run.crop, device), device)
    step.shuffle(0)
    return step


@contextmanager
def files_at_most(size):
    """Simulate a full disk by the system's limit on file sizes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def have_same_weights(*runs):
    """Whether two trained runs have the same weights, to the bit."""
    import torch

    one, other = (torch.load(results.weights_folder(run) / "weights.pt", weights_only=True)["network"] for run in runs)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def digits_run(tmp_path):
    """A short run on the digits whose files stay in the test's folder."""

    def make(*overrides):
        paths = [f"results_dir={tmp_path}/results", f"weights_dir={tmp_path}/weights"]
        return compose_run("dataset=digits", "arch=small", "protocol=demo", *paths, *overrides)

    return make


@pytest.fixture(scope="session")
def digits():
    from rbue.data import load

    return load("digits", "nowhere")  # they need no files


@pytest.fixture(scope="session")
def few_digits(digits):
    """256 training images, so four steps per epoch."""
    return dataclasses.replace(digits, train_images=digits.train_images[:256], train_labels=digits.train_labels[:256])


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


@pytest.fixture
def declare_official(monkeypatch):
    """Take the files of a folder for the official ones: their md5 are those of the official archive."""
    from rbue.data import corrupted

    def declare(folder, dataset="cifar10"):
        md5 = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in folder.glob("*.npy")}
        changed = dataclasses.replace(corrupted.OFFICIAL[dataset], md5=md5)
        monkeypatch.setitem(corrupted.OFFICIAL, dataset, changed)

    return declare
