"""Unions of grids, and what happens if a job fails, if two sweeps share a folder, or if a sweep is told to stop."""

import json
import os
import signal
import time
from collections import Counter
from functools import cache
from itertools import count
from subprocess import CompletedProcess

import made_up
import pytest
import torch
from commands import begin, call
from conftest import ROOT, have_same_weights

from hydra_plugins import rbue_launcher
from rbue import data, training
from rbue.errors import UserError
from rbue.report.figures import corruptions
from rbue.report.records import records
from rbue.report.rows import LABELS, ROWS, match_row
from rbue.runs import locks, results, sweeps
from rbue.training import checkpoints, loop, packs
from rbue.training import step as steps

CPU = torch.device("cpu")
TINY = ["dataset=digits", "arch=small", "protocol=demo", "epochs=1", "samples=2"]


def runs(line):
    return sweeps.runs_of(line.split())


@cache
def rows(dataset, arch, protocol):
    """The runs of a table, which tests share, since composing them takes seconds."""
    return runs(f"sweep=rows results_dir=there dataset={dataset} arch={arch} protocol={protocol}")


def train(folder, *words):
    return begin(ROOT / "train.py", *words, cwd=folder)


def status(*words, cwd):
    done = call("scripts/status.py", *words, cwd=cwd)
    assert done.returncode == 0
    return done.stdout.splitlines(), done.stderr.splitlines()


def sweep(folder, *words):
    return call("train.py", "-m", *words, cwd=folder)


def test_rows_are_the_ten_of_a_table_and_the_six_of_the_box_plots():
    assert {match_row(run.identity)[0] for run in rows("tinyimagenet", "densenet121", "paper")} == set(LABELS)
    corrupted = rows("cifar10_c", "vgg13", "matched")
    not_drawn = {"MC-Dropout(0.2)", "MC-DropReLU(0.8)", "MC-DropReLU(0.85)", "MC-DropReLU(0.9)"}
    wanted = [settings for label, settings in ROWS if label not in not_drawn]
    assert len(corrupted) == len(wanted) == 6
    assert all(any(s.items() <= run.identity.items() for run in corrupted) for s in wanted)


def test_rows_on_corrupted_tinyimagenet_hold_the_q_of_figures_7_and_8():
    shown = rows("tinyimagenet_c", "vgg13", "paper")
    drawn = corruptions.SIX | {"dropreLU": corruptions.Q["tinyimagenet"]}
    assert {run.method for run in shown} == drawn.keys()
    assert [run.q for run in shown if run.method == "dropreLU"] == [0.95, drawn["dropreLU"]]


def test_a_sweep_over_folders_of_data_that_would_write_one_result_is_refused():
    with pytest.raises(UserError, match="data_dir=a and data_dir=b would write the same results/runs/digits/small/sin"):
        runs("dataset=digits arch=small protocol=demo method=single data_dir=a,b")
    assert len(runs("dataset=digits arch=small protocol=demo data_dir=a,b results_dir=${data_dir}/runs")) == 2


@pytest.mark.parametrize(
    "line, cells",
    [
        ("sweep=table2 arch=vgg13 seed=0,1", 20),  # words of the command line override and multiply
        ("sweep=position", 3),
        ("sweep=space", 7),
        ("sweep=figures", 6 + 7 + 7),
        ("sweep=demo", 10 + 6 + 2),  # position=all is one of the ten rows
        ("sweep=rows,position arch=densenet121 dataset=tinyimagenet", 10 + 2),
        ("method=dropreLU q=0.8,0.9,0.80", 2),
    ],
)
def test_a_union_holds_each_run_once(line, cells):
    assert len(runs(line)) == cells


@pytest.mark.parametrize("line", ["method=dropreLU q=0.8,0.9", "sweep=position results_dir=r/${seed}"])
def test_seeds_that_share_a_composition_are_what_they_are_alone(line):
    alone = [run for seed in (3, 4) for run in runs(f"{line} seed={seed}")]
    together = runs(f"{line} seed=3,4")
    assert sorted(map(repr, together)) == sorted(map(repr, alone)) and len(together) >= 4


@pytest.mark.parametrize(
    "line, sentence",
    [
        ("sweep=table9", "sweep=table9 is not known: choose one of all, demo, figures, position, rows, space, svi"),
        ("sweep=rows dataset=digits q=0.9", "method=single has no setting 'q'"),
        (
            "sweep=rows dataset=digits method=single",
            "sweep=rows has the line 'method=mc_dropout p=0.5', and method=single has no setting 'p': "
            "leave out method=single or sweep=rows",
        ),
        ("sweep=position q=0.8,1.5", "q=1.5 must lie in [0, 1]"),
        ("sweep=position q=1.5", "q=1.5 must lie in [0, 1]"),
        ("method=mc_dropout,single p=much", "p=much is not a number"),
        ("sweep=demo launch=moon", "launch=moon is not known: choose one of"),
    ],
)
def test_an_illegal_line_is_refused_before_the_first_job(line, sentence, tmp_path):
    done = sweep(tmp_path, *line.split())
    assert done.returncode != 0 and sentence in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_sweep_without_m_says_how_it_is_started(tmp_path):
    done = call("train.py", "sweep=table1", cwd=tmp_path)
    said = "refused: sweep=table1 is many runs: python train.py -m sweep=table1 starts them"
    assert done.returncode != 0 and done.stderr.strip() == said


def test_a_launcher_without_m_says_how_it_is_started(tmp_path):
    """Hydra would ignore it and train here, perhaps on the login node of a cluster."""
    done = call("train.py", *TINY, "launch=slurm", cwd=tmp_path)
    said = "refused: launch=slurm starts jobs only with -m: python train.py -m launch=slurm ..."
    assert done.returncode != 0 and done.stderr.strip() == said and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("grid", "words", "said"),
    [
        ("sweep=loop dataset=digits", ["sweep=loop"], "sweep=loop is a line of itself: change its YAML file"),
        ("dataset=digits", ["sweep=loop", "sweep=demo"], "write several as sweep=loop,demo"),
    ],
)
def test_a_sweep_that_names_itself_or_another_one_is_refused(grid, words, said, tmp_path):
    path = tmp_path / "conf" / "sweep" / "loop.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(f"# @package hydra.sweeper\ngrids: ['{grid}']\n")
    done = call("train.py", "--config-dir", "conf", "-m", *words, cwd=tmp_path)
    assert done.returncode != 0 and said in done.stderr and len(done.stderr.splitlines()) == 1


SHARING = [*TINY, "method=single,deep_ensemble"]  # Single is the ensemble's first member


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A folder in which two processes did the same sweep at once, and what both said."""
    folder = tmp_path_factory.mktemp("swept")
    other = train(folder, "-m", *SHARING)
    while not list(folder.rglob(".lock")):  # until it trains
        assert other.poll() is None, other.communicate()
        time.sleep(0.05)
    mine = sweep(folder, *SHARING)
    said = other.communicate(timeout=600)
    return folder, mine, CompletedProcess(other.args, other.returncode, *said)


def test_two_sweeps_at_once_do_each_cell_once_and_both_succeed(swept):
    folder, *both = swept
    assert [one.returncode for one in both] == [0, 0], both
    wrote = Counter(line for one in both for line in one.stdout.splitlines() if line.startswith("wrote "))
    ended = Counter(line.split(":")[0] for one in both for line in one.stderr.splitlines() if "epoch 1/1" in line)
    assert len(wrote) == 2 and set(wrote.values()) == {1}
    assert len(ended) == 4 and set(ended.values()) == {1}
    assert not list(folder.rglob(".*"))


def test_a_sweep_trains_what_is_shared_once_and_skips_what_is_done(swept):
    folder, *both = swept
    assert len(results.collect(folder / "results")) == 2
    assert len(list(folder.glob("weights/digits/small/*/weights.pt"))) == 4
    for one in both:
        assert one.stdout.splitlines()[-1].split() == ["digits", "small", "demo", "2", "2", "0", "0", "0", "0", "s"]
    rows, note = status(cwd=folder)[0][1:]
    assert rows.split()[:8] == ["digits", "small", "demo", "10", "0", "0", "0", "10"]  # epochs=1 is no row of a table
    assert note.startswith("digits small demo: the runs that are there are no rows of this table: give all")
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*.json")}
    again = sweep(folder, *SHARING)
    assert again.returncode == 0 and again.stderr == ""
    assert before == {p: p.stat().st_mtime_ns for p in folder.rglob("*.json")}


def test_one_failure_is_kept_and_told_and_the_others_go_on(tmp_path):
    done = sweep(tmp_path, *TINY, "lr=1e30,0.1,2e30", "schedule=step", "warmup=0")
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "2 of 3 jobs failed: the same command tries only these again" in done.stderr
    assert "3 of 3 jobs ended\n" in done.stdout
    assert len([line for line in done.stderr.splitlines() if line.startswith("failed: ")]) == 2
    assert len(results.collect(tmp_path / "results")) == 1
    failed = [json.loads(p.read_text()) for p in tmp_path.rglob("failed.json")]
    assert sorted(f["config"]["lr"] for f in failed) == [1e30, 2e30]
    assert all(f"lower lr={f['config']['lr']}" in f["reason"] for f in failed)
    assert [line.split()[3:8] for line in done.stdout.splitlines()[-3:-2]] == [["3", "1", "0", "2", "0"]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results", "weights"]  # the folders that are settings


def test_a_folder_that_cannot_be_locked_fails_its_own_job_alone(tmp_path):
    name = results.weights_folder(runs(" ".join([*TINY, "seed=0"]))[0])
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()  # a file blocks the folder's name
    done = sweep(tmp_path, *TINY, "seed=0,1")
    assert done.returncode != 0 and f"{name} cannot be locked (File exists): choose another folder" in done.stderr
    assert "1 of 2 jobs failed" in done.stderr and len(results.collect(tmp_path / "results")) == 1


def digits_result(label="Single", **changes):
    return made_up.result(label, where=made_up.DIGITS, **changes)


def test_a_sweep_trains_no_further_members_of_an_ensemble_whose_first_it_refuses(tmp_path):
    words = [*TINY, "method=deep_ensemble", "members=2"]
    first, second = runs(f"{' '.join(words)} weights_dir={tmp_path}/weights")[0].trainings
    checkpoints.save(results.weights_folder(first) / "weights.pt", {"identity": second.training_identity})
    done = sweep(tmp_path, *words, "seed=0,5")
    assert "weights.pt is of another run (seed=1): move it away" in done.stdout + done.stderr
    assert "1 of 2 jobs failed" in done.stderr and not results.is_trained(second)
    assert len(results.collect(tmp_path / "results")) == 1  # seed=5 has other members


def test_status_refuses_a_list_as_a_sweep_does(tmp_path):
    done = call("scripts/status.py", "dataset=[cifar10,digits]", cwd=tmp_path)
    assert done.returncode != 0 and "dataset=[cifar10,digits] is a list: write one name" in done.stderr


def test_status_takes_the_words_of_a_sweep_as_they_are(tmp_path):
    assert status("-m", *TINY, "seed=0,1", cwd=tmp_path) == status(*TINY, "seed=0,1", cwd=tmp_path)


def test_status_leaves_out_what_it_does_not_know(tmp_path):
    gone, broken = digits_result(seed=1), digits_result(seed=2)
    gone["config"]["arch"] = "gone"
    made_up.write(tmp_path / "found", [digits_result(), gone, broken | {"seconds": None}])
    wrong = {"config": broken["config"] | {"dataset": ["digits"]}}
    results.write(tmp_path / "found/digits/small/odd/failed.json", wrong)
    said, refused = status("results_dir=found", cwd=tmp_path)
    assert "is not a result of this suite (seconds is None, not an object)" in refused[0]
    assert refused[1].startswith("left out: digits gone demo: arch=gone is not known") and len(refused) == 2
    assert [line.split()[:5] for line in said[1:]] == [["digits", "small", "demo", "10", "1"]]


def test_status_says_that_no_run_is_a_row(tmp_path):
    made_up.write(tmp_path / "found", [digits_result(seed=seed, epochs=2) for seed in range(2)])
    said, _ = status("results_dir=found", cwd=tmp_path)
    assert said[1].split()[3:5] == ["20", "0"]
    assert said[2].startswith("digits small demo: the runs that are there are no rows of this table: give all")
    made_up.write(tmp_path / "found", [digits_result()])
    assert len(status("results_dir=found", cwd=tmp_path)[0]) == 2


def test_status_counts_the_results_of_a_search_which_are_in_no_table(tmp_path):
    made_up.write(tmp_path / "found", [digits_result(seed=seed, holdout=300) for seed in range(2)])
    ((said,), _) = status("results_dir=found", cwd=tmp_path)
    assert said.startswith("found holds no result of a table yet (2 with holdout= are in no table): ")


def test_status_names_the_folder_of_results_as_the_other_scripts_do(tmp_path):
    made_up.write(tmp_path / "found", [digits_result()])
    said = status("--results", "found", cwd=tmp_path)
    assert said == status("results_dir=found", cwd=tmp_path) and said[0][1].split()[4] == "1"


def test_status_refuses_a_missing_folder_unless_it_is_asked_for_a_sweep_that_has_not_begun(tmp_path):
    done = call("scripts/status.py", "--results", tmp_path / "none")
    assert done.returncode == 1 and done.stderr.startswith(f"refused: {tmp_path}/none is not a folder, so it holds no")
    (said,), _ = status("--results", tmp_path, cwd=tmp_path)
    assert said.startswith(f"{tmp_path} holds no result of a table yet: ")
    assert status("--results", tmp_path / "none", *TINY, cwd=tmp_path)[0][1].split()[3:8] == ["1", "0", "0", "0", "1"]


def test_status_says_that_runs_are_in_a_deeper_folder(tmp_path):
    made_up.write(tmp_path / "found" / "theirs", [digits_result()])
    said, _ = status("results_dir=found", cwd=tmp_path)
    assert said[2].startswith("digits small demo: its runs are in found/theirs, where no command looks for")
    assert said[2].endswith(": move what is in there to found")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_status_of_a_sweep_finds_results_from_other_hardware(tmp_path, precision):
    made_up.write(tmp_path, [digits_result(seed=seed, precision=precision) for seed in range(2)])
    words = ["dataset=digits", "arch=small", "protocol=demo", "seed=0,1,2", "device=cpu", f"results_dir={tmp_path}"]
    said, _ = status(*words, cwd=tmp_path)
    assert said[1].split()[3:5] == ["3", "2"]
    assert ("counted with precision=bf16, which most results have" in said[-1]) == (precision == "bf16")
    asked, _ = status(*words, "precision=fp32", cwd=tmp_path)
    assert asked[1].split()[4] == ("2" if precision == "fp32" else "0")


def begun_runs(contents, folder):
    ((group, configs),) = sweeps.begun_tables([each.config for each in made_up.read(contents)], folder).items()
    return sweeps.rows_of(group, configs)


def test_status_does_not_ask_all_rows_for_the_seeds_of_an_ensembles_members(tmp_path):
    def seeds(contents):
        return sorted({run.seed for run in begun_runs(contents, tmp_path)[0]})

    single, ensemble = [digits_result(seed=seed) for seed in range(3)], digits_result("Deep Ensemble(4)")
    assert seeds(single) == [0, 1, 2] and seeds([*single, ensemble]) == [0]
    assert seeds([*single, ensemble, digits_result("SVI", seed=2)]) == [0, 2]


def test_a_failed_run_is_begun_too(tmp_path):
    results.write(tmp_path / "digits/small/a/failed.json", {"config": digits_result()["config"], "reason": "x"})
    assert list(sweeps.begun_tables([], tmp_path)) == [("digits", "small", "demo")]


@pytest.mark.parametrize(
    "group",
    [
        ("tinyimagenet", "densenet121", "paper"),
        ("cifar10_c", "vgg13", "matched"),
        ("tinyimagenet_c", "vgg13", "paper"),
        ("digits", "small", "demo"),
    ],
)
def test_the_short_way_to_a_tables_runs_is_the_one_of_a_sweep(group):
    assert sweeps.table_runs(*group, ("results_dir=there",)) == rows(*group)


def test_settings_in_which_all_results_differ_alike_are_taken_over(tmp_path):
    rows = {"SVI": {"sigma": 0.01}, "MC-DropReLU(0.9)": {}, "Single": {}}
    alike = [digits_result(row, precision="bf16", **changes) for row, changes in rows.items()]
    found, taken = begun_runs(alike, tmp_path)
    assert taken == {"precision": "bf16"}  # another sigma is no row of the tables
    assert {run.name for run in found} >= {content["name"] for content in alike[1:]}
    stray = digits_result("SVI", seed=1, precision="fp32"), digits_result("SVI", seed=2, holdout=9, precision="fp32")
    found, again = begun_runs([*alike, *stray], tmp_path)
    assert again == taken and {run.seed for run in found} == {0, 1}  # a run of a hyperparameter search does not count


def test_status_of_the_committed_results_agrees_with_the_readme():
    """In a fresh clone, on any hardware, all cells that tables and figures count as measured are done."""
    folder = ROOT / "results" / "runs"
    found = results.collect(folder)
    known = {result.folder: sweeps.Cost.of(result) for result in found}
    runs = records(found)
    member = (runs.row == LABELS[0]) & (runs.seed > 0)  # of an ensemble, so the sweep of the rows may not ask for it
    measured = runs[runs.row.isin(LABELS) & ~member]
    left = set(measured.name)
    for group, configs in sweeps.begun_tables([result.config for result in found], folder).items():
        there, _ = sweeps.rows_of(group, configs, (f"results_dir={folder}",))
        done = {run.name for run in there if sweeps.cell(run, known).state == "done"}
        assert len(done) == runs[runs.row.isin(LABELS)].name.isin(done).sum()
        left -= done
    assert not left
    command = "python train.py -m sweep=rows dataset=cifar10_c arch=resnet18 protocol=matched samples=20"
    assert command in (ROOT / "README.md").read_text()


def test_in_a_pack_one_loss_that_is_not_a_number_does_not_stop_the_others(digits_run, few_digits, tmp_path):
    sound = digits_run("epochs=2", "schedule=step", "warmup=0")
    alone = digits_run("epochs=2", "schedule=step", "warmup=0", f"weights_dir={tmp_path}/alone")
    wild = digits_run("epochs=2", "schedule=step", "warmup=0", "lr=1e30")
    failed = loop.fit([wild, sound], few_digits, CPU)
    assert list(failed) == [wild.training_name] and not results.is_trained(wild)
    loop.fit([alone], few_digits, CPU)
    assert have_same_weights(sound, alone)


def test_a_sweep_without_some_of_its_images_is_refused_in_one_line_per_dataset(tmp_path):
    for name, base in {"mine": "digits", "mine_c": "mine", "halves": "digits"}.items():
        path = tmp_path / "conf" / "dataset" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        last = "corruptions: generated\n" if name.endswith("_c") else ""
        path.write_text(f"# @package _global_\ndefaults: [{base}, _self_]\ndataset: {name}\n{last}")
    (tmp_path / "data" / "halves" / "train").mkdir(parents=True)
    words = [*(word for word in TINY if not word.startswith("dataset=")), "dataset=digits,mine,mine_c,halves"]
    done = call("train.py", "--config-dir", "conf", "-m", *words, "seed=0,1", cwd=tmp_path)
    first, second = done.stderr.splitlines()
    assert done.returncode == 1 and first.startswith("refused: dataset=mine is not known: choose one of cifar10, ")
    assert second.startswith("refused: data/halves/test is missing: put one folder of images per class into it")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["conf", "data"]


def test_cells_without_their_official_files_fail_before_anything_is_trained_for_them(tmp_path):
    line = [*(word for word in TINY if not word.startswith("dataset=")), "seed=0,1"]
    path = tmp_path / "conf" / "sweep" / "both.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("# @package hydra.sweeper\ngrids: [dataset=digits, dataset=digits_c corruptions=official]\n")
    done = call("train.py", "--config-dir", "conf", *line, "-m", "sweep=both", cwd=tmp_path)
    assert done.returncode == 1 and "2 of 4 jobs failed" in done.stderr
    assert done.stderr.index("digits_c has no official files") < done.stderr.index("epoch 1/1")
    assert len(results.collect(tmp_path / "results")) == 2


def test_damaged_corrupted_files_are_found_once_and_before_a_training(tmp_path, monkeypatch):
    loaded, load = [], data.load_for
    monkeypatch.setattr(data, "load_for", lambda run: loaded.append(run) or load(run))
    jobs = dict(enumerate(runs(f"dataset=digits,digits_c data_dir={tmp_path} seed=0,1")))
    assert rbue_launcher.without_sets(jobs) == {} and len(loaded) == 1
    (tmp_path / "digits_c").mkdir()
    (tmp_path / "digits_c" / "manifest.json").write_text("{")
    reasons = rbue_launcher.without_sets(jobs)
    assert {jobs[number].dataset for number in reasons} == {"digits_c"} and len(reasons) == 2
    assert all("manifest.json cannot be read" in str(reason) for reason in reasons.values())


HOLD_UNTIL_DONE = """
import sys, time
from pathlib import Path
from rbue.runs import locks

lock = locks.try_lock(sys.argv[1])
print("locked", flush=True)
until = time.monotonic() + 120
while not (Path(sys.argv[2]) / "result.json").exists() and time.monotonic() < until:
    time.sleep(0.2)
done = [(Path(cell) / "result.json").exists() for cell in sys.argv[1:]]
lock.release()
print("released" if done == [False, True] else done)
"""


def test_a_cell_that_another_process_is_at_keeps_no_other_waiting(tmp_path):
    line = [*TINY, "seed=0,1"]
    first, second = (tmp_path / results.folder(run) for run in runs(" ".join(line)))
    other = begin("-c", HOLD_UNTIL_DONE, first, second)
    assert other.stdout.readline() == "locked\n"
    done = sweep(tmp_path, *line)
    assert other.communicate(timeout=120)[0] == "released\n"  # the second cell was done, and the first was not
    assert done.returncode == 0 and (first / "result.json").exists()


@pytest.fixture
def ended_by_usr1():
    """The signal that asks a training to end raises KeyboardInterrupt when it is raised again."""
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    yield
    signal.signal(signal.SIGUSR1, before)


def asked_in_call(number, step=steps.Step.__call__):
    """Return a training step that asks its training to end in this call."""
    calls = count(1)

    def stepping(self):
        step(self)
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGUSR1)

    return stepping


@pytest.mark.usefixtures("ended_by_usr1")
def test_a_training_asked_to_end_keeps_a_checkpoint_in_mid_epoch_and_goes_on_to_the_same_weights(
    digits_run, few_digits, tmp_path
):
    whole, stopped = digits_run("epochs=2"), digits_run("epochs=2", f"weights_dir={tmp_path}/stopped")
    training.load_or_train([whole], few_digits, CPU)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(steps.Step, "__call__", asked_in_call(6))
        training.load_or_train([stopped], few_digits, CPU)
    assert checkpoints.steps_done(stopped) == 6  # with four steps per epoch
    training.load_or_train([stopped], few_digits, CPU)
    assert have_same_weights(whole, stopped)
    curves = [(results.weights_folder(r) / "curve.csv").read_text() for r in (whole, stopped)]
    assert curves[0] == curves[1]


@pytest.mark.usefixtures("ended_by_usr1")
def test_a_signal_after_the_last_step_waits_for_the_weights_and_is_not_lost(digits_run, few_digits, monkeypatch):
    run, add = digits_run("epochs=1"), loop.Training.finish_epoch

    def asked_at_its_end(self, epoch):
        os.kill(os.getpid(), signal.SIGUSR1)
        return add(self, epoch)

    monkeypatch.setattr(loop.Training, "finish_epoch", asked_at_its_end)
    with pytest.raises(KeyboardInterrupt):
        training.load_or_train([run], few_digits, CPU)
    assert results.is_trained(run) and not (results.weights_folder(run) / "checkpoint.pt").exists()


@pytest.mark.usefixtures("ended_by_usr1")
def test_a_pack_asked_to_end_is_kept_at_one_step_and_goes_on_together(digits_run, few_digits, monkeypatch):
    runs = [digits_run("epochs=2", f"seed={k}") for k in range(3)]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(steps.Step, "__call__", asked_in_call(17))  # by the second run, in step six
        loop.fit(runs, few_digits, CPU)
    assert [checkpoints.steps_done(run) for run in runs] == [6, 6, 6]
    (pack,) = packs.packs(runs, torch.device("cuda"))
    assert loop.fit(pack, few_digits, CPU) == {} and all(map(results.is_trained, runs))


def test_a_training_that_two_cells_need_is_locked_once(digits_run, tmp_path):
    needed = [part for run in (digits_run("method=deep_ensemble"), digits_run("seed=1")) for part in run.trainings]
    with packs.acquire(next(packs.packs(needed, torch.device("cuda"))), {}) as own:
        assert [run.seed for run in own] == [0, 1, 2, 3]
        assert all(locks.holder(results.weights_folder(run)) for run in own)
    assert not list(tmp_path.rglob(".lock"))


def test_a_lock_is_free_when_its_holder_was_killed(tmp_path):
    code = f"from rbue.runs import locks; lock = locks.try_lock({str(tmp_path / 'a')!r}); print(1, flush=True)"
    holder = begin("-c", f"{code}; import time; time.sleep(99)")
    holder.stdout.readline()
    assert locks.try_lock(tmp_path / "a") is None
    assert f"process {holder.pid} on" in locks.holder(tmp_path / "a")
    holder.kill()
    holder.wait()
    assert locks.holder(tmp_path / "a") is None
    locks.try_lock(tmp_path / "a").release()


def test_a_cell_is_running_while_it_or_a_training_it_needs_is_locked(digits_run):
    ensemble, other = digits_run("method=deep_ensemble"), digits_run("method=svi")
    lock = locks.try_lock(results.weights_folder(digits_run("seed=3")))  # the ensemble's last member
    assert [sweeps.cell(run).state for run in (ensemble, other)] == ["running", "missing"]
    lock.release()
    assert sweeps.cell(ensemble).state == "missing"


def test_a_lock_leaves_no_folder_that_was_not_there(tmp_path):
    (tmp_path / "mine").mkdir()
    locks.try_lock(tmp_path / "mine" / "a" / "b").release()
    assert [p.name for p in tmp_path.rglob("*")] == ["mine"]


@pytest.mark.parametrize("reader", ["reads", "has left"])
def test_sigterm_ends_a_plain_run_after_a_checkpoint(reader, tmp_path):
    process = train(tmp_path, *TINY, "epochs=500")
    while not list(tmp_path.rglob("curve.csv")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    if reader == "has left":
        process.stderr.close()
    process.terminate()
    assert process.wait(timeout=60) == -signal.SIGTERM
    if reader == "reads":
        said = process.stderr.read().splitlines()
        said_last = "the same command continues from the last checkpoint, or starts again if there is none"
        assert said[-1] == f"ended by SIGTERM: {said_last}"
    assert list(tmp_path.rglob("checkpoint.pt")) and not list(tmp_path.rglob("weights.pt"))
    assert not list(tmp_path.rglob("failed.json"))
