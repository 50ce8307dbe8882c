"""What a user sees at the command line: sentences, exit codes, and no files left behind."""

import contextlib
import dataclasses
import json
import os
import re
import runpy
import sys
import warnings
from dataclasses import fields
from types import ModuleType, SimpleNamespace
from unittest.mock import Mock

import made_up
import pytest
from commands import call, start
from conftest import ROOT, compose_run, composed

from rbue import cli, config, methods
from rbue.errors import UserError
from rbue.runs import compose, results
from rbue.runs.places import PACKAGE
from rbue.training.curves import report_epoch

REFUSED = {
    "method=single q=0.9": "method=single has no setting 'q'",
    "method=single +q=0.9": "method=single has no setting 'q'",
    "method=dropreLU q=1.5": "q=1.5 must lie in [0, 1]",
    "method=dropreLU q=nan": "q=nan must lie in [0, 1]",
    "method=dropreLU q=much": "q=much is not a number\n",
    "method=dropreLU position=middle": "position=middle is not known: choose one of all, first, last",
    "method=foo": "method=foo is not known: choose one of deep_ensemble, dropreLU, ivon, mc_dropout, rrelu, single",
    "method=droprelu": "dropreLU, ivon, mc_dropout, rrelu, single, svi; did you mean dropreLU?",
    "method=dropreLU p=0.9": "method=dropreLU has no setting 'p': it has q and position",
    "method=rrelu q=0.9": "method=rrelu has no setting 'q': it has l, u and position",
    "method=single p=0.9": "it has no settings of its own; python train.py --help lists those of each method",
    "batch_size=64": "it has no settings of its own; python train.py --cfg job shows all settings of a run",
    "datset=mine": "has no setting 'datset': did you mean dataset?",
    "dataset=mine": "your own images need dataset/mine.yaml in the folder of --config-dir (docs/datasets.md)",
    "method=dropreLU q=0.8,0.9": "q has 2 values: add -m to run both",
    "method=single,svi": "method has 2 values: add -m to run both",
    "seed=range(3)": "seed has 3 values: add -m to run all",
    "arch=foo": "arch=foo is not known: choose one of densenet121, resnet18, small, vgg13",
    "dataset=[a]": "dataset=[a] is a list: write one name, or several as in -m dataset=cifar10,cifar100\n",
    "~dataset=[a]": "~dataset=[a] is a list: write one name, or several as in -m dataset=cifar10,cifar100\n",
    "arch=[small]": "arch=[small] is a list: write one name, or several as in -m dataset=cifar10,cifar100\n",
    "-m method=[single,svi]": "method=[single,svi] is a list: write one name, or several as in -m dataset=",
    "samples=0": "samples=0 must be at least 1",
    "bins=99999999999": "bins=99999999999 must lie in [1, 100000]",
    "~seed": "seed='???' must lie in",
    "results_dir=": "results_dir= is empty: name a folder",
    "dataset=digits_c corruptions=none": "write dataset=digits for clean images, or corruptions=auto",
    "dataset=digits corruptions=generated": "write dataset=digits_c for corrupted images, or corruptions=none",
    "dataset=digits batch=100000": "batch=100000 is more than the 1437 training images: choose batch=1437 or less",
    "dataset=digits crop=33": "crop=33 shifts images by more than their 32 pixels",
    "+network.width=2": "+network.width=2: the YAML of this arch has no `network:`",
    "network={_target_:torch.nn.Linear}": "the YAML of this arch has no `network:`",
    "-m network.width=1,2": "network.width=1,2: the YAML of this arch has no `network:`",
    "method=deep_ensemble members=0": "members=0 must lie in [1, 1000]",
    "method=mc_dropout p=-0.1": "p=-0.1 must lie in [0, 1]",
    "method=mc_dropout p=1": "p=1 drops all features, so that nothing is learned: choose p below 1",
    "method=rrelu l=0.5 u=0.2": "l=0.5, u=0.2 must satisfy 0 <= l < u < 1",
    "method=rrelu u=1": "l=0.125, u=1.0 must satisfy 0 <= l < u < 1",
    "seed=1.5": "seed=1.5 is not a whole number\n",
    "lr_drops=0.5": "lr_drops=0.5 must be a list, such as [0.5]\n",
    "lr_drops=[a]": "lr_drops=[a] must be a list of numbers, such as [0.5,0.9]\n",
    "lr_drops=[null]": "lr_drops=[null] must be a list of numbers, such as [0.5,0.9]\n",
    "-m lr_drops={a:1}": "lr_drops={a:1} must be a list of numbers, such as [0.5,0.9]\n",
    "lr_drops.0=a": "lr_drops.0=a is not a number\n",
    "network=3": "network=3 must name a class and its arguments, as in an arch's YAML (docs/extending.md)\n",
    "-m network=[1]": "network=[1] must name a class and its arguments, as in an arch's YAML (docs/extending.md)\n",
    "seed=null": "seed=null is no value: this setting needs one\n",
    "flip=maybe": "flip=maybe must be true or false\n",
    "-m data_dir=[a]": "data_dir=[a] must be one text\n",
    "-m seed=0-3": "seed=0-3 is not a whole number: write several values as in -m seed=1,2",
    "lr=0.1x": "lr=0.1x is not a number\n",
    "-m seed=[0,1]": "seed=[0,1] is not a whole number: write several values as in -m seed=1,2",
    "-m seed=0, 1": "'seed=0,' is a part of a list: write its values without spaces, such as seed=0,1",
    "-m seed=0 ,1": "',1' is a part of a list: write its values without spaces, such as seed=0,1",
    "epochs=[": "'epochs=[' cannot be read as key=value (no viable alternative at input '[')",
    "help": "'help' cannot be read as key=value",
    "results_dir=~/ü": """: write 'results_dir="~/ü"'""",
    "-m method=dropreLU q=0.8,1.5": "q=1.5 must lie in [0, 1]",
    "dataset=digits results_dir=a_file/runs": "a_file/runs cannot be written (Not a directory)",
    "dataset=digits device=cuda:99": "device=cuda:99 is not available here",
    "--config-dir": "argument --config-dir/-cd: expected one argument",
    "--resolve": "The --resolve flag can only be used in conjunction with --cfg or --help",
    "--cfg job -m": "Only one of --run, --multirun, --cfg, --info and --shell_completion can be specified",
    "--seed 0": "unrecognized arguments: --seed: write settings without dashes, such as seed=0",
    "-m seed=range(0,3,0)": "range() arg 3 must not be zero",
    "-m seed=range(5,1)": "seed=range(5,1) gives no run: a range or a list of choices is empty",
    "method=deep_ensemble members=1000000000": "members=1000000000 must lie in [1, 1000]",
    "method=deep_ensemble seed=536870912": "seed=536870912 must lie in [0, 536870911]",
    "method=svi weight_decay=0": "method=svi takes its prior from the weight decay, so weight_decay must be above 0",
    "dataset=digits_c corruptions=official": "digits_c has no official files: set corruptions=generated to generate",
}


REAL = ("method=dropreLU q=1.5", "--seed 0", "-m seed=range(0,3,0)")  # also in processes of their own


@pytest.mark.parametrize(("run", "line"), [(call, line) for line in REFUSED] + [(start, line) for line in REAL])
def test_a_wrong_command_is_one_sentence_and_leaves_nothing(run, line, tmp_path):
    (tmp_path / "a_file").touch()
    done = run(ROOT / "train.py", *line.split(), cwd=tmp_path)
    assert done.returncode != 0
    assert done.stderr.startswith("refused: ") and REFUSED[line] in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["a_file"]


def test_an_error_of_other_code_is_not_taken_for_a_wrong_argument_of_the_network(monkeypatch):
    monkeypatch.setattr("sys.argv", ["train.py", "+network.width=2"])
    with pytest.raises(AttributeError, match="a plugin's own"), cli.one_sentence_errors():
        raise AttributeError("a plugin's own")


def test_an_interrupted_script_promises_no_checkpoint(monkeypatch):
    monkeypatch.setattr(results, "read_all", Mock(side_effect=KeyboardInterrupt))
    done = call("scripts/status.py")
    assert done.returncode != 0 and done.stderr == "interrupted: start the same command again\n"


@pytest.mark.parametrize("command", ["train.py", "rbue/__main__.py"])
def test_an_interrupt_during_the_imports_shows_no_traceback(command, monkeypatch):
    class Interrupted(ModuleType):
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "rbue.main", Interrupted("rbue.main"))
    with pytest.raises(SystemExit, match="interrupted: start the same command again"):
        runpy.run_path(str(ROOT / command), run_name="__main__")


def test_a_warning_of_the_suite_is_a_sentence_and_one_of_other_code_names_its_line():
    usual = warnings.formatwarning
    with cli.one_sentence_errors():
        own, other = (
            warnings.formatwarning("look", UserWarning, str(file), 3) for file in (PACKAGE / "data/own.py", "a.py")
        )
    assert own == "warning: look\n" and other.startswith("a.py:3: UserWarning: look\n")
    assert warnings.formatwarning is usual


def test_help_teaches_with_commands_that_compose():
    text = call("train.py", "--help").stdout
    commands = [line.split("#")[0].split()[2:] for line in text.splitlines() if "python train.py " in line]
    assert len(commands) == 4
    for command in commands:
        assert composed(*(w for w in command if not w.startswith("-") and "," not in w)).method in methods.METHODS
    listed = dict(re.findall(r"^  (\w+): ((?:\w+, )*\w+)$", text.split("Hyperparameters of each method")[1], re.M))
    shared = {f.name for f in fields(config.Run)}
    own = {name: [f.name for f in fields(m) if f.name not in shared] for name, m in methods.METHODS.items()}
    assert {name: names.split(", ") for name, names in listed.items()} == {name: n for name, n in own.items() if n}


def test_cfg_job_shows_every_key_with_the_papers_values():
    shown = call("train.py", "--cfg", "job", "dataset=tinyimagenet").stdout
    for line in ("batch: 100", "epochs: 150", "lr: 0.01", "weight_decay: 0.0001", "momentum: 0.9", "samples: 100"):
        assert line in shown.splitlines()


@pytest.mark.parametrize(
    "line", ["seed=3 --cfg job lr=0.7", "--cfg job seed=3 --resolve lr=0.7", "seed=3 lr=0.7 -c job"]
)
def test_options_stand_anywhere_among_settings(line):
    shown = call("train.py", *line.split())
    assert shown.returncode == 0, shown.stderr
    assert {"seed: 3", "lr: 0.7"} <= set(shown.stdout.splitlines())


def test_a_sweep_is_asked_for_anywhere_among_settings():
    words = cli.for_hydra(["method=dropreLU", "--config-dir", "mine", "q=0.9", "-m", "seed=0,1"])
    assert words == ["method=dropreLU", "q=choice(0.9)", "seed=0,1", "--config-dir", "mine", "-m"]


@pytest.mark.parametrize(
    "words", [["seed=0", "--config-dir", "seed=0", "-m"], ["--config-dir", "seed=0", "-m", "seed=0"]]
)
def test_a_value_of_an_option_may_equal_a_setting(words):
    found = cli.for_hydra(words)
    assert found == ["seed=0", "--config-dir", "seed=0", "-m"] and {type(word) for word in found} == {str}


def test_the_paper_protocol_is_section_4_1_2():
    run = compose_run()
    assert (run.batch, run.epochs, run.lr, run.lr_drops) == (128, 200, 0.1, [0.45, 0.675, 0.9])
    assert (run.weight_decay, run.momentum, run.schedule, run.samples, run.bins) == (1e-4, 0.9, "step", 100, 30)


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100", "tinyimagenet"])
def test_matched_differs_from_paper_in_the_weight_decay_alone(dataset):
    paper, matched = (compose_run(f"dataset={dataset}", f"protocol={p}").identity for p in ("paper", "matched"))
    assert {k for k in paper if paper[k] != matched[k]} == {"protocol", "weight_decay"}


def test_where_a_run_is_stored_depends_on_what_it_computes_and_on_nothing_else():
    name = compose_run("method=dropreLU").name
    assert name.startswith("cifar10/resnet18/dropreLU-q0.9-all-paper-seed0-")
    assert compose_run("method=dropreLU", "device=cpu", "data_dir=elsewhere", "eval_batch=7").name == name
    assert compose_run("method=dropreLU", "q=0.8").name != name
    assert compose_run("method=dropreLU", "samples=10").name != name
    assert compose_run("method=dropreLU", "samples=10").training_name == compose_run("method=dropreLU").training_name


def test_identities_are_settled():
    """A key without a neutral value changes every identity, so no stored result is found: think before editing."""
    assert compose_run("method=dropreLU", "q=0.9", "precision=bf16").name.endswith("-be315bc9")
    assert compose_run("method=deep_ensemble", "protocol=matched", "precision=bf16").name.endswith("-1400bb89")


def test_precision_auto_is_stored_as_what_it_is_on_this_hardware(monkeypatch):
    monkeypatch.setattr(config, "gpus", lambda: 0)
    assert compose_run().precision == compose_run("device=cpu").precision == "fp32"
    monkeypatch.setattr(config, "gpus", lambda: 2)
    assert compose_run().precision == compose_run("device=cuda:1").precision == "bf16"
    assert compose_run("device=cpu").precision == "fp32" and compose_run("precision=fp32").precision == "fp32"


@pytest.mark.parametrize(
    ("visible", "count"), [("0,1", 2), ("-1", 0), ("", 0), ("0,-1,1", 1), ("NoDevFiles", 0), ("GPU-8f,GPU-9a", 2)]
)
def test_gpus_are_counted_as_cuda_does(visible, count, monkeypatch):
    monkeypatch.setattr(config, "built_for_cuda", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert config.gpus() == count


def test_settings_that_a_method_does_not_use_are_not_its_own():
    for method, used in (("single", False), ("deep_ensemble", False), ("svi", True)):
        few, many = (compose_run(f"method={method}", f"samples={n}").name for n in (3, 100))
        assert (few != many) == used


def test_an_unknown_key_in_a_composed_config_is_refused():
    from omegaconf import OmegaConf

    with pytest.raises(UserError, match="has no setting 'speed'"):
        compose.parse(OmegaConf.create({"method": "single", "speed": 3}))


def test_one_command_trains_evaluates_and_is_skipped_the_second_time(tmp_path):
    line = ["dataset=digits", "arch=small", "protocol=demo", "epochs=1", "method=dropreLU", "samples=5"]
    first = start(ROOT / "train.py", *line, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    (path,) = tmp_path.glob("results/runs/digits/small/*/result.json")
    result = json.loads(path.read_text())
    assert result["config"]["q"] == 0.9 and result["passes"] == 5 and result["parameters"] == 19_546
    assert 0.2 < result["metrics"]["accuracy"] <= 1
    written = path.stat().st_mtime_ns
    second = call("train.py", *line, cwd=tmp_path)
    assert second.returncode == 0 and "skipped, since it is finished" in second.stdout
    assert path.stat().st_mtime_ns == written


def test_a_sweep_runs_every_combination(tmp_path):
    line = ["dataset=digits", "arch=small", "protocol=demo", "epochs=1", "samples=2", "method=dropreLU"]
    done = call("train.py", "-m", *line, "q=0.8,0.9", "seed=0,1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = [result.config for result in results.collect(tmp_path / "results")]
    assert sorted((each["q"], each["seed"]) for each in found) == [(0.8, 0), (0.8, 1), (0.9, 0), (0.9, 1)]
    for k in range(4):
        assert f"job {k + 1} of 4: digits/small/dropreLU-q" in done.stdout and f"{k + 1} of 4 jobs ended" in done.stdout
    assert re.search(r"^3 of 4 jobs ended, \d+ (s|min) left$", done.stdout, re.M)
    assert re.search(r"^test accuracy \d.+  tested on \w+ CPU, 1 thread in float32$", done.stdout, re.M)
    assert re.search(r"small dropreLU.+: training on \w+ CPU, 1 thread in fp32$", done.stderr, re.M)


def test_a_log_has_the_training_accuracy_and_the_time_left(capsys):
    shown = []
    bar = SimpleNamespace(disable=True, desc="digits small", set_postfix=shown.append)
    for epoch in (5, 20):
        report_epoch(bar, {"epoch": epoch, "loss": 1.5, "accuracy": 0.525}, 20, left=180.0)
    assert shown[0] == {"loss": "1.500", "training accuracy": "52.5%"}
    assert capsys.readouterr().err.splitlines() == ["digits small: epoch 20/20  loss 1.500  training accuracy 52.5%"]
    report_epoch(bar, {"epoch": 6, "loss": 1.5, "accuracy": 0.525}, 20, left=180.0)
    assert capsys.readouterr().err.endswith("training accuracy 52.5%  3 min left\n")


def test_a_corrupted_run_ends_with_the_mean_over_its_test_sets():
    clean, shifted = made_up.read([made_up.result("Single", accuracy=0.95), made_up.corrupted("Single")])
    levels = [level for levels in shifted.corruptions.types.values() for level in levels]
    assert len(levels) == 25 and results.summary(clean).startswith("test accuracy 95.00%  ECE ")
    mean = sum(level.accuracy for level in levels) / 25
    assert f"mean of 25 corrupted test sets: accuracy {mean:.2%}  ECE " in results.summary(shifted)
    assert mean != shifted.metrics["accuracy"]
    held_out = dataclasses.replace(clean, config=clean.config | {"holdout": 5000})
    assert results.summary(held_out).startswith("held-out accuracy 95.00%")


def test_a_hyperparameter_of_any_kind_makes_one_folder_name():
    hyperparameters = {"q": 0.85, "members": 4, "position": "all", "shape": "a/b", "extra": None, "cold": True}
    spelled = [config.spelled(*hyperparameter) for hyperparameter in hyperparameters.items()]
    assert spelled == ["q0.85", "members4", "all", "a_b", "extraNone", "cold"]


@pytest.mark.parametrize("redirect", [contextlib.redirect_stdout, contextlib.redirect_stderr])
def test_work_goes_on_when_nobody_reads_its_output_any_more(redirect):
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as pipe, redirect(pipe):
        with cli.one_sentence_errors():
            os.close(reader)  # as `| head -1` does after its line
            for stream in (sys.stdout, sys.stderr):
                print("a line", file=stream, flush=True)
                print("more, which waits in the buffer", file=stream)
        assert pipe.write("still open") and not pipe.closed


@pytest.mark.parametrize(("made_by", "shown"), [("numpy", None), ("hydra", "refused: too long: ")])
def test_only_a_value_that_hydra_refuses_is_blamed_on_the_command_line(made_by, shown, tmp_path):
    """Any other ValueError is an error of the code, whose traceback is needed."""
    path = tmp_path / made_by / "core.py"
    error = raised_in(path, "raise ValueError('too long')")
    assert (cli.one_line(error) or "").startswith(shown or "") and bool(cli.one_line(error)) == bool(shown)


def raised_in(path, code):
    try:
        exec(compile(code, str(path), "exec"))
    except ValueError as error:
        return error
