"""Faults from outside: memory, disk, other programs' files. Each gives one sentence; nothing is overwritten or lost."""

import dataclasses
import errno
import json
import os
import weakref
from pathlib import Path
from types import SimpleNamespace

import made_up
import pytest
import torch
from conftest import files_at_most

from hydra_plugins import rbue_launcher
from rbue import cli, config, training
from rbue.errors import UserError, failure
from rbue.evaluation import evaluator
from rbue.runs import locks, results, schema, sweeps
from rbue.training import capture, checkpoints, loop, packs
from rbue.training.step import Images

CPU = torch.device("cpu")
OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 139.81 GiB of which 1.25 GiB is "
    "free. Including non-PyTorch memory, this process has 138.50 GiB memory in use."
)


def raising(error):
    def call(*_, **__):
        raise error

    return call


def test_a_gpu_too_small_for_a_pack_says_what_to_lower(digits_run, few_digits, monkeypatch):
    monkeypatch.setattr(loop, "train_epoch", raising(torch.OutOfMemoryError(OUT_OF_MEMORY)))
    with pytest.raises(UserError) as refused:
        loop.fit([digits_run(f"seed={k}") for k in range(3)], few_digits, CPU)
    assert str(refused.value) == (
        "the GPU has too little free memory: 1.25 GiB of its 139.81 GiB were free when 2.50 GiB more were asked for; "
        "lower pack=3, which changes no result"
    )


@pytest.mark.parametrize("error", [torch.OutOfMemoryError(OUT_OF_MEMORY), PermissionError(13, "no", "weights.pt")])
def test_weights_are_not_blamed_for_too_little_memory_or_rights(error, tmp_path, monkeypatch):
    """The advice to move them away would cost a training."""
    torch.save({}, tmp_path / "weights.pt")
    monkeypatch.setattr(torch, "load", raising(error))
    with pytest.raises(type(error)):
        checkpoints.load_file(tmp_path / "weights.pt", CPU)


def test_a_checkpoint_that_may_not_be_read_ends_no_other_run(digits_run, monkeypatch):
    """Its steps are asked for before any run starts. Resuming it then fails in its own job."""
    run = digits_run()
    path = results.weights_folder(run) / "checkpoint.pt"
    path.parent.mkdir(parents=True)
    torch.save({"step": {"count": 3}}, path)
    assert checkpoints.steps_done(run) == 3
    monkeypatch.setattr(torch, "load", raising(PermissionError(13, "Permission denied", str(path))))
    assert checkpoints.steps_done(run) == 0


@pytest.mark.parametrize("at_once", [True, False])
def test_a_pack_too_large_to_capture_is_refused_and_its_checkpoints_stay(at_once, digits_run, few_digits, monkeypatch):
    runs = [digits_run(f"seed={k}", "epochs=2", "checkpoint_every=1") for k in range(2)]
    files, accelerate, held = [results.weights_folder(run) / "checkpoint.pt" for run in runs], capture.accelerate, []

    def too_large(steps, device):
        held.extend(map(weakref.ref, steps))
        try:
            with capture.restoring(steps):
                steps[0]()
                raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        finally:
            if not at_once:
                raise RuntimeError("operation failed due to a previous error during capture")

    with monkeypatch.context() as patched:
        patched.setattr(loop.Training, "save_weights", raising(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            loop.fit(runs, few_digits, CPU)
    before = [path.read_bytes() for path in files]
    with monkeypatch.context() as patched:
        patched.setattr(capture, "capture", too_large)
        patched.setattr(capture, "accelerate", lambda steps, *_: accelerate(steps, torch.device("cuda")))
        failed = packs.fit_or_fail(runs, few_digits, CPU)
    assert [run.training_name for run in runs] == list(failed)
    assert all(str(error).endswith("asked for; lower pack=2, which changes no result") for error in failed.values())
    assert [path.read_bytes() for path in files] == before
    monkeypatch.setattr(loop, "Images", lambda *all: held.append([step() for step in held]) or Images(*all))
    assert not packs.fit_or_fail(runs, few_digits, CPU) and all(map(results.is_trained, runs))
    assert held[2:] == [[None, None]]  # their memory was free before the next pack


@pytest.mark.parametrize(
    "error, full", [(ZeroDivisionError(), "1"), (KeyboardInterrupt(), "0")], ids=["seen", "interrupt"]
)
def test_a_training_swallows_no_interrupt_and_no_error_that_the_user_wants_to_see(error, full, digits_run, monkeypatch):
    monkeypatch.setenv("RBUE_FULL_ERROR", full)
    monkeypatch.setattr(packs, "fit", raising(error))
    with pytest.raises(type(error)) as raised:
        packs.fit_or_fail([digits_run()], None, CPU)
    assert raised.value is error


def test_an_unexpected_error_of_a_pack_is_kept_for_each_of_its_runs_and_raised_by_its_job(
    digits_run, few_digits, monkeypatch
):
    monkeypatch.setattr(packs, "fit", raising(ZeroDivisionError("by a plugin")))
    runs = [digits_run(f"seed={k}") for k in range(2)]
    failed = packs.fit_or_fail(runs, few_digits, CPU)
    assert list(failed) == [run.training_name for run in runs]
    assert all("raise error\nZeroDivisionError: by a plugin" in why.details for why in failed.values())
    with pytest.raises(cli.Failed, match="ZeroDivisionError: by a plugin"):
        training.load_or_train(runs, few_digits, CPU)


def test_a_gpu_too_small_for_the_evaluation_says_what_to_lower(digits_run):
    run = digits_run()
    with pytest.raises(cli.Failed, match=r"2\.50 GiB more were asked for; lower eval_batch="), cli.failures_kept(run):
        raise torch.OutOfMemoryError(OUT_OF_MEMORY)
    kept = json.loads((results.folder(run) / "failed.json").read_text())
    assert "lower eval_batch" in kept["reason"] and any("OutOfMemoryError" in line for line in kept["traceback"])


def test_a_batch_too_large_to_capture_ends_the_evaluation(digits_run, few_digits, monkeypatch):
    def too_large(*_):
        try:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(evaluator, "Captured", too_large)
    run = digits_run("method=dropreLU")
    with pytest.raises(torch.OutOfMemoryError):
        evaluator.fast(checkpoints.build(run, few_digits), run, SimpleNamespace(is_cuda=True), torch.float32)


def test_a_full_disk_keeps_the_checkpoint_before_it(digits_run, few_digits, monkeypatch):
    run = digits_run("epochs=3", "checkpoint_every=1")
    epoch = loop.train_epoch
    held = []

    def disk_fills_in_epoch_one(group, advance, number, bar, stop):
        if number == 1:
            held.append((results.weights_folder(run) / "checkpoint.pt").read_bytes())
            held.append(files_at_most(20_000))
            held[1].__enter__()
        return epoch(group, advance, number, bar, stop)

    monkeypatch.setattr(loop, "train_epoch", disk_fills_in_epoch_one)
    try:
        with pytest.raises(UserError, match=r"checkpoint.pt could not be written \(.*\): any previous file is kept"):
            training.load_or_train([run], few_digits, CPU)
    finally:
        held[1].__exit__(None, None, None)
    assert (results.weights_folder(run) / "checkpoint.pt").read_bytes() == held[0]
    assert sorted(p.name for p in results.weights_folder(run).iterdir()) == ["checkpoint.pt", "curve.csv"]
    monkeypatch.setattr(loop, "train_epoch", epoch)
    _, (record,) = training.load_or_train([run], few_digits, CPU)
    assert record["epoch"] == 3


@pytest.mark.parametrize(
    ("number", "way_out"),
    [
        (errno.ENOSPC, "free some space, then run the same command"),
        (errno.EROFS, "make the folder writable or choose another one"),
    ],
)
def test_a_disk_that_takes_no_file_is_a_failure_with_a_way_out(number, way_out, tmp_path, monkeypatch):
    monkeypatch.setattr(results.os, "fsync", raising(OSError(number, os.strerror(number))))
    with pytest.raises(cli.Failed) as failed:
        results.write(tmp_path / "a.json", {})
    told = f"a.json could not be written ({os.strerror(number)}): any previous file is kept; {way_out}"
    assert str(failed.value) == f"{tmp_path}/{told}"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("umask, mode", [(0o002, 0o664), (0o077, 0o600)])
def test_files_follow_the_umask_of_the_user(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        results.write(tmp_path / "a.json", {})
    finally:
        os.umask(before)
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("kind", ["results", "weights"])
def test_a_folder_that_cannot_be_written_is_named_before_the_training(kind, digits_run, tmp_path):
    (tmp_path / kind).mkdir()
    (tmp_path / kind / "digits").touch()  # a file blocks the folder's name
    said = rf"{kind}/digits/small cannot be written \(Not a directory\)"
    with pytest.raises(UserError, match=said), results.find_or_lock(digits_run()):
        pass


FOREIGN = {
    "another network": {"step": {"network": {}, "optimizers": [], "count": 1}},
    "no checkpoint": {"a": 1},
    "a list": [1],
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_checkpoint_that_is_not_ours_is_named_and_left_alone(kind, digits_run, few_digits):
    run, other = digits_run("epochs=1"), digits_run("epochs=1", "seed=1")
    path = results.weights_folder(run) / "checkpoint.pt"
    checkpoints.save(path, FOREIGN[kind])
    before = path.read_bytes()
    failed = loop.fit([run, other], few_digits, CPU)
    assert list(failed) == [run.training_name] and results.is_trained(other)
    assert f"{path} is not of this training" in str(failed[run.training_name])
    assert path.read_bytes() == before


def test_code_in_a_checkpoint_is_not_run(digits_run, few_digits, tmp_path):
    class Evil:
        def __reduce__(self):
            return Path.touch, (tmp_path / "touched",)

    run = digits_run("epochs=1")
    results.weights_folder(run).mkdir(parents=True)
    torch.save({"step": Evil()}, results.weights_folder(run) / "checkpoint.pt")
    with pytest.raises(UserError, match=r"checkpoint.pt cannot be read"):
        training.load_or_train([run], few_digits, CPU)
    assert not (tmp_path / "touched").exists()


def test_a_result_of_another_version_is_a_failed_cell_and_stays(digits_run):
    run = digits_run()
    results.write(results.folder(run) / "result.json", {"format": 99})
    told = sweeps.table([sweeps.cell(run)])
    assert "has format 99, this version reads" in told and told.splitlines()[1].split()[3:8] == [*"10010"]
    with pytest.raises(UserError, match="has format 99"), cli.failures_kept(run), results.find_or_lock(run):
        pass
    assert json.loads((results.folder(run) / "result.json").read_text()) == {"format": 99}


def test_a_result_that_lacks_its_parts_is_a_failed_cell_beside_others(digits_run):
    run = digits_run()
    results.write(results.folder(run) / "result.json", {"format": schema.FORMAT})
    cells = [sweeps.cell(each) for each in (run, digits_run("seed=1"))]
    assert "is not a result of this suite (no name)" in sweeps.table(cells)


def test_any_error_in_a_sweep_leaves_its_traceback_in_the_runs_folder(digits_run, monkeypatch, capsys):
    monkeypatch.setattr(cli, "in_multirun", lambda: True)
    run = digits_run()
    with pytest.raises(cli.Failed, match="ZeroDivisionError: division by zero"), cli.failures_kept(run):
        1 / 0  # noqa: B018
    kept = json.loads((results.folder(run) / "failed.json").read_text())
    assert any("test_faults.py" in line for line in kept["traceback"])
    where = f"(traceback: {results.folder(run)}/failed.json)"
    assert capsys.readouterr().err == f"failed: {run.name}: ZeroDivisionError: division by zero {where}\n"
    assert kept["reason"] == "ZeroDivisionError: division by zero"
    assert sweeps.cell(run).state == "failed"


def test_what_is_refused_before_it_began_leaves_nothing(digits_run, tmp_path):
    run = digits_run("device=cuda:99")
    with pytest.raises(UserError), cli.failures_kept(run), results.find_or_lock(run):
        raise UserError("device=cuda:99 is not available here")
    assert not list(tmp_path.iterdir())


def test_the_time_left_is_the_pace_of_the_cells_done(digits_run):
    done = digits_run()
    runs = [done, digits_run("seed=1"), digits_run("method=deep_ensemble", "members=3"), digits_run("arch=vgg13")]
    content = made_up.result("Single", where=made_up.DIGITS) | {"seconds": {"train": 10.0, "evaluate": 1.0}}
    results.write(results.folder(done) / "result.json", content)
    checkpoints.save(results.weights_folder(done) / "weights.pt", {})
    cells = [sweeps.cell(run) for run in runs]
    pace = sweeps.Pace.of(cells)
    assert sweeps.seconds_left(cells[:2], pace) == 11  # one training, one evaluation
    assert sweeps.seconds_left(cells[:3], pace) == 22  # seeds 1 and 2 are trained once for both, two evaluations
    assert sweeps.seconds_left(cells, pace) is None  # no result for that architecture
    assert [sweeps.duration(s) for s in (30, 600, 8000, 200_000, None)] == ["30 s", "10 min", "2 h", "2 days", "–"]


def test_the_time_left_counts_every_corrupted_test_set():
    content = made_up.corrupted("Single", types=["fog", "snow"]) | {"seconds": {"train": 10.0, "evaluate": 1.0}}
    (result,) = made_up.read([content])
    assert len(result.corruptions.levels) == 10
    assert sweeps.Cost.of(result) == sweeps.Cost(10.0, 11.0)  # the clean test set and ten corrupted ones
    assert "evaluation 1.0 s per test set" in results.summary(result)


def test_the_time_left_of_many_cells_takes_no_second_look_at_their_names(digits_run, monkeypatch):
    both = digits_run(), digits_run("method=deep_ensemble", "members=2")
    cells, named = [sweeps.cell(run.with_seed(seed)) for run in both for seed in range(2)], []
    pace = sweeps.Pace({("digits", "small", "demo"): 10.0}, {("digits", "small", "demo"): 1.0})
    monkeypatch.setattr(config, "name_of", named.append)
    assert sweeps.seconds_left(cells, pace) == 4 * 10 + 4 and not named  # seeds 0 to 3 are trained once


def test_a_run_with_another_seed_is_checked_and_is_the_run_of_that_seed(digits_run):
    run = digits_run()
    assert run.with_seed(7) == digits_run("seed=7") and run.seed == 0
    with pytest.raises(UserError, match="seed=-1 must lie in"):
        run.with_seed(-1)


def test_tensorboard_shows_the_curve(digits_run, few_digits):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = digits_run("epochs=2", "logger=tensorboard")
    training.load_or_train([run], few_digits, CPU)
    events = reader.EventAccumulator(str(results.weights_folder(run))).Reload()
    rows = [line.split(",") for line in (results.weights_folder(run) / "curve.csv").read_text().splitlines()]
    assert [e.value for e in events.Scalars("loss")] == pytest.approx([float(row[1]) for row in rows[1:]])
    assert [e.step for e in events.Scalars("loss")] == [1, 2]


def test_tensorboard_that_is_not_installed_is_named(digits_run, monkeypatch):
    monkeypatch.setattr("rbue.config.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[tensorboard\]'"):
        digits_run("logger=tensorboard")


# --- files of other runs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["weights.pt", "checkpoint.pt"])
def test_weights_and_checkpoints_of_another_run_are_refused(name, digits_run, few_digits):
    theirs, ours = (digits_run("epochs=1", f"seed={k}") for k in range(2))
    training.load_or_train([theirs], few_digits, CPU)
    saved = checkpoints.load_file(results.weights_folder(theirs) / "weights.pt", CPU)
    checkpoints.save(results.weights_folder(ours) / name, saved)
    with pytest.raises(UserError, match=rf"{name} is of another run \(seed=0\): move it away to train again"):
        training.load_or_train([ours], few_digits, CPU)


def test_weights_with_a_wrong_bit_are_refused(digits_run, few_digits):
    run = digits_run("epochs=1")
    training.load_or_train([run], few_digits, CPU)
    path = results.weights_folder(run) / "weights.pt"
    content = bytearray(path.read_bytes())
    place = content.index(checkpoints.load_file(path, CPU)["network"]["11.weight"].numpy().tobytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"weights\.pt cannot be read \(BadZipFile\): move it away to train again"):
        training.load_or_train([run], few_digits, CPU)


@pytest.mark.parametrize("name", ["weights.pt", "checkpoint.pt"])
def test_weights_of_other_images_of_the_same_name_are_refused(name, digits_run, few_digits):
    run = digits_run("epochs=1")
    training.load_or_train([run], few_digits, CPU)
    folder = results.weights_folder(run)
    (folder / "weights.pt").rename(folder / name)
    others = dataclasses.replace(few_digits, train_labels=few_digits.train_labels.roll(1))
    said = rf"{name} was trained on other images of digits .*: give the new images another name"
    with pytest.raises(UserError, match=said):
        training.load_or_train([run], others, CPU)


def test_an_ensembles_trained_members_are_checked_before_the_others_are_trained(digits_run, few_digits):
    members = digits_run("method=deep_ensemble", "members=2", "epochs=1").trainings
    training.load_or_train(members[:1], few_digits, CPU)
    others = dataclasses.replace(few_digits, train_labels=few_digits.train_labels.roll(1))
    with pytest.raises(UserError, match=r"weights\.pt was trained on other images of digits"):
        training.load_or_train(members, others, CPU)
    assert [results.is_trained(run) for run in members] == [True, False]


def test_weights_that_are_not_finite_are_refused(digits_run, few_digits):
    run = digits_run("epochs=1")
    training.load_or_train([run], few_digits, CPU)
    path = results.weights_folder(run) / "weights.pt"
    saved = checkpoints.load_file(path, CPU)
    next(iter(saved["network"].values())).fill_(torch.nan)
    checkpoints.save(path, saved)
    with pytest.raises(UserError, match=r"weights\.pt holds weights that are not finite"):
        training.load_or_train([run], few_digits, CPU)


@pytest.mark.parametrize(
    ("dtype", "way_out"),
    [(torch.float32, "lower lr, or fix the network"), (torch.float16, "precision=fp32 trains and tests in float32")],
)
def test_predictions_that_are_not_finite_are_not_blamed_on_the_weights(dtype, way_out, digits_run, few_digits):
    run = digits_run()
    network = checkpoints.build(run, few_digits).eval()
    torch.nn.init.constant_(network.get_submodule("11").weight, 3e38)  # finite, and its products are not
    test = evaluator.Evaluator(run, [network], few_digits, CPU)
    test.dtype = dtype
    test.prepare = lambda x: x.permute(0, 3, 1, 2) / 255
    with pytest.raises(UserError, match=f"NaN for 3 of 3 images, and the weights are finite: .*{way_out}"):
        test(few_digits.test_images[:3])


def test_the_result_of_another_run_is_refused(digits_run):
    theirs, ours = (digits_run(f"seed={k}") for k in range(2))
    made = made_up.result("Single", where=("digits", "demo", "small"))
    results.write(results.folder(ours) / "result.json", made | {"name": theirs.name, "config": theirs.identity})
    with pytest.raises(UserError, match=r"is the result of .*seed0.*: move it away"):
        results.find(ours)


def test_a_lock_that_a_full_disk_refuses_is_not_held(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "print", raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))), raising=False)
    with pytest.raises(UserError, match="No space left on device") as refused:
        locks.try_lock(tmp_path / "run")
    assert locks.holder(tmp_path / "run") is None, refused  # the error, which is kept, holds no lock


# --- locks ------------------------------------------------------------------------------------------------------------


def test_a_lock_that_links_nowhere_is_refused(tmp_path):
    (tmp_path / ".lock").symlink_to(tmp_path / "gone" / "lock")
    with pytest.raises(locks.Closed, match="cannot be locked"):
        locks.try_lock(tmp_path)


def test_a_stale_lock_of_another_user_blocks_nobody(tmp_path, monkeypatch):
    def only_read(path, mode="r", **options):
        if mode != "r":
            raise PermissionError(errno.EACCES, "Permission denied")
        return open(path, mode, **options)

    (tmp_path / ".lock").write_text("process 1 on another machine")
    monkeypatch.setattr(locks, "open", only_read, raising=False)
    lock = locks.try_lock(tmp_path)
    assert lock and locks.try_lock(tmp_path) is None and locks.holder(tmp_path)
    lock.release()
    assert not locks.holder(tmp_path)
    monkeypatch.setattr(locks.os, "access", lambda *_: False)
    (tmp_path / ".lock").touch()
    with pytest.raises(locks.Closed, match="Permission denied"):
        locks.try_lock(tmp_path)


def test_a_thousand_missing_trainings_take_few_open_files(digits_run, monkeypatch):
    first, held = digits_run(), []
    runs = [dataclasses.replace(first, seed=k) for k in range(1000)]
    monkeypatch.setattr(locks, "try_lock", lambda folder: held.append(folder) or locks.Lock(folder, None, []))
    monkeypatch.setattr(locks.Lock, "release", lambda self: None)
    with packs.acquire(next(packs.packs(runs, torch.device("cuda"))), {}) as own:
        assert [run.seed for run in own] == [0, 1, 2, 3] and len(held) == 4


def test_a_thousand_missing_trainings_are_each_looked_up_a_few_times(digits_run, monkeypatch):
    """If each pack looked up all of them, this would be a quarter of a million times."""
    first, trained, lookups = digits_run(), set(), []
    runs = [first.with_seed(seed) for seed in range(1000)]
    monkeypatch.setattr(packs, "is_trained", lambda run: lookups.append(run) or run.seed in trained)
    monkeypatch.setattr(packs, "fit", lambda pack, data, device: trained.update(run.seed for run in pack) or {})
    yielded = list(packs.train_missing(runs, None, torch.device("cuda")))
    assert trained == {*range(1000)} and len(yielded) == 250 and len(lookups) < 5 * len(runs)


def test_a_training_that_another_process_advances_leaves_its_pack(digits_run, monkeypatch):
    """The trainings of a pack step together, so they must stand at the same step."""
    runs, steps, trained, fitted = [digits_run(f"seed={seed}") for seed in range(4)], {}, set(), []

    def fit(pack, data, device):
        fitted.append([run.seed for run in pack])
        trained.update(fitted[-1])
        steps[3] = 8  # as if another process had trained seed 3 and was killed
        return {}

    monkeypatch.setattr(packs, "is_trained", lambda run: run.seed in trained)
    monkeypatch.setattr(packs, "steps_done", lambda run: steps.get(run.seed, 0))
    monkeypatch.setattr(packs, "fit", fit)
    list(packs.train_missing([dataclasses.replace(run, pack=2) for run in runs], None, torch.device("cuda")))
    assert fitted == [[0, 1], [2], [3]]


def test_a_training_that_cannot_be_locked_is_told_before_the_next_is_trained(digits_run, monkeypatch):
    runs = [digits_run(f"seed={seed}") for seed in range(2)]
    weights = results.weights_folder(runs[0])
    weights.parent.mkdir(parents=True)
    weights.touch()  # a file blocks the folder's name
    monkeypatch.setattr(packs, "fit", lambda *_: pytest.fail("trained before the failure was told"))
    assert list(next(packs.train_missing(runs, None, torch.device("cpu")))) == [runs[0].training_name]


def test_a_job_of_another_process_is_not_failed_by_this_ones_training(digits_run, monkeypatch):
    run = digits_run()
    launcher = rbue_launcher.PackedLauncher.__new__(rbue_launcher.PackedLauncher)
    launcher.waiting, launcher.total, launcher.ended = {}, 1, []
    monkeypatch.setattr(rbue_launcher.BasicLauncher, "launch", lambda self, jobs, first: ["waited for"])
    failed, one = {results.training_key(run): failure(ValueError("no"))}, sweeps.Cell(run, "missing")
    lock = locks.try_lock(results.folder(run))
    assert launcher.run_one(0, [], one, failed) == "waited for"
    assert not (results.folder(run) / "failed.json").exists()
    lock.release()
    assert launcher.run_one(0, [], one, failed).status.name == "FAILED"


def test_a_training_that_cannot_be_locked_stops_no_other(digits_run, monkeypatch):
    runs, trained, lock = [digits_run(f"seed={seed}") for seed in range(3)], set(), locks.try_lock

    def closed_for_seed_one(folder):
        if folder == results.weights_folder(runs[1]):
            raise locks.Closed(folder, OSError(30, "Read-only file system"))
        return lock(folder)

    monkeypatch.setattr(locks, "try_lock", closed_for_seed_one)
    monkeypatch.setattr(packs, "is_trained", lambda run: run.seed in trained)
    monkeypatch.setattr(packs, "fit", lambda pack, data, device: trained.update(run.seed for run in pack) or {})
    *_, failed = packs.train_missing(runs, None, torch.device("cpu"))
    assert trained == {0, 2} and list(failed) == [runs[1].training_name]
    assert "Read-only file system" in str(failed[runs[1].training_name])


def test_a_crop_that_is_too_large_fails_no_training_with_another_crop(digits_run, monkeypatch):
    runs, trained = [digits_run("crop=40"), digits_run("crop=4"), digits_run("crop=4", "batch=2000")], []
    monkeypatch.setattr(packs, "is_trained", trained.__contains__)
    monkeypatch.setattr(packs, "fit", lambda pack, data, device: trained.extend(pack) or {})
    *_, failed = packs.train_in_packs(runs)
    assert trained == [runs[1]] and set(failed) == {results.training_key(run) for run in (runs[0], runs[2])}
    corrupted = [digits_run("dataset=digits_c", "corruptions=generated", f"crop={crop}") for crop in (4, 40)]
    assert list(rbue_launcher.without_sets(dict(enumerate(corrupted)))) == [1]


def test_a_folder_without_data_fails_no_training_on_another_folder(digits_run, digits, monkeypatch, tmp_path):
    runs = [digits_run(f"data_dir={tmp_path}/{name}", f"weights_dir={tmp_path}/{name}") for name in ("empty", "full")]

    def load_for(run):
        if run.data_dir.endswith("empty"):
            raise UserError("no images")
        return digits

    trained = []
    monkeypatch.setattr(packs.datasets, "load_for", load_for)
    monkeypatch.setattr(packs, "is_trained", trained.__contains__)
    monkeypatch.setattr(packs, "fit", lambda pack, data, device: trained.extend(pack) or {})
    *_, failed = packs.train_in_packs(runs)
    assert trained == runs[1:] and list(failed) == [results.training_key(runs[0])]
    waiting = dict(enumerate(([], sweeps.Cell(run, "missing")) for run in runs))
    assert list(rbue_launcher.ready_jobs(waiting, failed)) == [0]
