"""The benchmark reports ratios; no test depends on speed itself."""

import json
import runpy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ROOT
from matplotlib.text import Text

from rbue import methods, surgery
from rbue.benchmark import measure, parts, processes
from rbue.benchmark.baselines import Plain, Textbook
from rbue.benchmark.measure import make_run
from rbue.errors import UserError
from rbue.layers import RReLU
from rbue.report import benchmark
from rbue.report.benchmark import draw, merged, store, table
from rbue.report.figures.style import TEXT, save
from rbue.runs import devices

MEASURED = sorted((ROOT / "results" / "benchmarks").glob("*.json"))


def row(group, name, ms, matmul_flops=2e12, **more):
    return {"group": group, "name": name, "ms": ms, "matmul_flops": matmul_flops, **more}


PLAIN = row("net train", "plain", 10.0, images_per_second=12800.0, peak_memory_bytes=5_000_000)
OURS = row("net train", "ours", 2.0, 2.5e12, images_per_second=64000.0, against="plain", ratio=5.0)
CONTENT = {"hardware": "a machine", "rows": [PLAIN, OURS, row("net start", "cold", 30000.0)]}


def test_a_gpu_too_small_for_a_network_is_told_in_one_sentence(monkeypatch):
    def too_large(*_):
        raise torch.OutOfMemoryError("Tried to allocate 2.50 GiB.")

    script = runpy.run_path(str(ROOT / "scripts" / "benchmark.py"))
    monkeypatch.setitem(parts.PARTS, "training", too_large)
    with pytest.raises(UserError, match=r"2\.50 GiB more were asked for; end other programs .* leave vgg13 out"):
        script["measure"]("training", None, "vgg13")


def test_the_table_shows_ratios_and_leaves_what_was_not_measured_open():
    limit, _, plain, ours, start = table(CONTENT).splitlines()
    assert "limit 2 to 2.5 TFLOP/s" in limit
    assert "12,800" in plain and "–" in plain
    assert "5.00×" in ours and "plain" in ours
    assert start.split()[-5:] == ["–"] * 5


def test_the_figure_is_drawn_with_bars_from_1(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(benchmark, "save", lambda figure, path: drawn.append(figure) or save(figure, path))
    draw(CONTENT, tmp_path / "figure")
    first, last = drawn[0].axes[0].get_xlim()
    assert first < 1 and last > 5
    assert "5.00×" in (tmp_path / "figure.svg").read_text(encoding="utf-8")


def test_the_figure_has_one_text_size_whole_labels_and_the_ratio_at_each_bar(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(benchmark, "save", lambda figure, path: drawn.append(figure) or save(figure, path))
    long = OURS | {"name": "ours, with ReLU in place of noise before the classifier", "ratio": 0.5}
    draw(CONTENT | {"rows": [*CONTENT["rows"], long]}, tmp_path / "figure")
    shown = [text for text in drawn[0].findobj(Text) if text.get_text().strip() and text.get_visible()]
    assert {text.get_fontsize() for text in shown} == {TEXT}
    assert min(text.get_window_extent().x0 for text in shown) >= 0
    text = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert "times as fast 5<" in text and "times as fast 0.5<" in text


def test_without_a_ratio_there_is_a_table_and_no_figure(tmp_path):
    start = CONTENT | {"rows": CONTENT["rows"][2:]}
    draw(start, tmp_path / "figure")
    assert "limit 2 TFLOP/s" in table(start) and not list(tmp_path.iterdir())


@pytest.mark.parametrize(("flops", "text"), [(6.66e10, "0.0666"), (7.337e14, "734"), (1.8312e15, "1,830")])
def test_the_limit_has_three_digits_on_any_hardware(flops, text):
    rows = [row | {"matmul_flops": flops} for row in CONTENT["rows"]]
    assert f"limit {text} TFLOP/s" in table(CONTENT | {"rows": rows})


def test_a_part_measured_again_replaces_its_own_rows_alone():
    before = CONTENT["rows"]
    again = [{"group": "net start", "name": "cold", "ms": 20000.0}, {"group": "net layers", "name": "ReLU", "ms": 1.0}]
    assert merged(before, again) == [*before[:2], again[1], again[0]]


@pytest.mark.parametrize("path", MEASURED, ids=lambda p: p.stem)
def test_committed_ratios_are_those_of_their_own_rows(path):
    rows = json.loads(path.read_text())["rows"]
    speeds = {(row["group"], row["name"]): row.get("images_per_second") for row in rows}
    for row in (row for row in rows if row.get("ratio")):
        assert row["ratio"] == pytest.approx(row["images_per_second"] / speeds[row["group"], row["against"]])


def test_the_file_of_a_hardware_keeps_the_groups_of_earlier_runs(tmp_path):
    store(CONTENT | {"rows": CONTENT["rows"][:2]}, tmp_path)
    content, path = store(CONTENT | {"hardware": "A Machine", "rows": CONTENT["rows"][2:]}, tmp_path)
    assert path == tmp_path / "a-machine.json" and json.loads(path.read_text(encoding="utf-8")) == content
    assert content["rows"] == CONTENT["rows"] and (tmp_path / "a-machine.svg").exists()


def test_what_is_measured_can_be_built():
    """Every layer, in a step that runs: `make benchmark` takes minutes and is in no test."""
    run, leaky, x = make_run("arch=small"), Plain(RReLU().deterministic()), torch.randn(2, 3, 32, 32)
    for layer in (Plain(), leaky, Textbook("DropReLU"), Textbook("RReLU")):
        assert surgery.randomize(methods.build(run, 10, 100), layer)(x).shape == (2, 10)
    like = surgery.randomize(methods.build(run, 10, 100), leaky).eval()
    twin = surgery.deterministic(surgery.randomize(methods.build(run, 10, 100), RReLU())).eval()
    assert torch.equal(like(x), twin(x))


@pytest.fixture
def few_images(monkeypatch):
    monkeypatch.setattr(measure, "IMAGES", 200)
    monkeypatch.setattr(measure, "TESTS", 1)


@pytest.fixture
def fixed_limit(monkeypatch):
    monkeypatch.setattr(measure, "matmul_rate", lambda device: 1e12)  # measuring it takes seconds


@pytest.fixture
def tiny(fixed_limit, tmp_path):
    """A benchmark of 64 × 64 images, which has measured nothing yet."""
    return measure.Bench(torch.device("cpu"), True, "tinyimagenet", tmp_path)


def test_images_of_another_dataset_have_its_shape_and_groups_of_their_own(tiny):
    assert (tiny.batch, tiny.size) == (100, 64)
    assert tiny.group("vgg13", "train") == "vgg13 64x64 train"
    with pytest.raises(UserError, match="tinyimagenet holds no tiny-imagenet-200: make data"):
        parts.reading(tiny, "small")


def test_corruptions_of_other_images_do_not_replace_those_of_cifar(tiny, few_images, monkeypatch):
    monkeypatch.setattr(parts, "find_spec", lambda name: True)
    monkeypatch.setattr(parts, "package_corruptions", lambda images: (lambda: None, ["fog"]))
    monkeypatch.setattr(parts, "corrupt_all", lambda *_: None)
    parts.corruptions(tiny, "small")
    assert {row["group"] for row in tiny.rows} == {"64x64 corruptions"}
    cifar = {"group": "corruptions", "name": "ours", "ms": 1.0}
    assert merged([cifar], tiny.rows) == [cifar, *tiny.rows]


def test_the_plain_loop_takes_turns_with_our_step(tiny, few_images, monkeypatch):
    turns, with_images = [], []

    def seconds(functions, *_):
        turns.append([function() for function in functions])
        return [0.4, 0.1][: len(functions)]

    monkeypatch.setattr(measure, "seconds", seconds)
    monkeypatch.setattr(measure.Bench, "held", property(lambda bench: with_images.append("images" in vars(bench)) or 0))
    parts.training(tiny, "small")
    loader, held, ours = tiny.rows
    assert [len(each) for each in turns] == [1, 2] and {row["group"] for row in tiny.rows} == {"small 64x64 train"}
    assert (held["against"], ours["against"], ours["ratio"]) == (loader["name"], held["name"], pytest.approx(4))
    assert with_images[-1]  # the images, which all contestants use, do not count as memory of ours


def test_the_memory_of_several_networks_is_measured_while_they_train_one_step_unless_captured(
    tiny, few_images, monkeypatch
):
    made, step = [], measure.Bench.step
    monkeypatch.setattr(measure.Bench, "step", lambda *arguments: made.append(step(*arguments)) or made[-1])
    assert parts.trained(tiny, "four models", "small", 4)[2]["peak_memory_bytes"] > 0
    assert [int(each.count) for each in made] == [1] * 4
    monkeypatch.setattr(parts.capture, "accelerate", lambda *_: (None, "captured"))
    assert [parts.trained(tiny, "", "small", k)[2]["peak_memory_bytes"] is None for k in (1, 4)] == [False, True]


def test_a_start_is_measured_with_the_images_of_the_dataset(tiny, monkeypatch):
    words = []

    def output_of(arguments, **_):
        words.append(arguments)
        return json.dumps({"imports": 1.0, "step": 2.0})

    monkeypatch.setattr(processes, "output_of", output_of)
    parts.start(tiny, "small")
    script = ROOT / "scripts" / "benchmark.py"
    assert words[-4:] == [[script, "--first-step", "small", "--dataset", "tinyimagenet"]] * 4
    assert {row["group"] for row in tiny.rows} == {"small 64x64 start"}


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(ROOT / "scripts" / "benchmark.py"))


def test_the_first_step_takes_images_of_the_dataset(script, few_images, monkeypatch, capsys):
    seen = []

    def accelerate(steps, device):
        images, logits = steps[0].images.padded[:2], steps[0].network(torch.zeros(2, 3, 64, 64, device=device))
        seen.append((steps[0].run.dataset, images.shape, logits.shape))
        return lambda: None, ""

    monkeypatch.setattr("rbue.training.capture.accelerate", accelerate)
    script["main"](["--first-step", "small", "--dataset", "tinyimagenet"])
    assert seen == [("tinyimagenet", (2, 72, 72, 3), (2, 200))] and "imports" in json.loads(capsys.readouterr().out)


def test_training_and_packing_are_measured_for_all_networks(script, fixed_limit, monkeypatch, tmp_path, capsys):
    def measured(part):
        return lambda bench, arch: bench.add(f"{arch} {part}", "ours", 0.5, 100)

    monkeypatch.chdir(tmp_path)
    for part, last_word in (("training", "train"), ("packing", "packed"), ("layers", "layers")):
        monkeypatch.setitem(parts.PARTS, part, measured(last_word))
    script["main"](["--archs", "small", "vgg13", "--only", "layers", "packing", "training"])
    (path,) = (tmp_path / "results" / "benchmarks").glob("*.json")
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    groups = ["small train", "vgg13 train", "small packed", "vgg13 packed", "small layers"]
    assert [row["group"] for row in rows] == groups and {row["matmul_flops"] for row in rows} == {1e12}
    assert f"wrote results/benchmarks/{path.name} and its figure" in capsys.readouterr().out


def test_a_dataset_is_read_in_a_process_of_its_own(tmp_path):
    _, alone = processes.read_once("digits", str(tmp_path))
    ballast = np.ones(2_000_000_000, np.uint8)  # memory of this process must not count
    seconds, peak = processes.read_once("digits", str(tmp_path))
    assert seconds > 0 and 1797 * 3 * 32 * 32 < peak < min(1.3 * alone, len(ballast))


def test_a_process_that_fails_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match=r"^dataset=mnist is not known: [^\n]*$"):
        processes.read_once("mnist", str(tmp_path))
    with pytest.raises(UserError, match=r"^a process of its own ended with exit status 3$"):
        processes.output_of(["-c", "raise SystemExit(3)"])


def test_without_proc_the_peak_memory_is_in_the_unit_of_the_system(monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "STATUS", tmp_path / "absent")
    monkeypatch.setattr(devices.resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=7))
    for system, size in (("Linux", 7 * 1024), ("Darwin", 7)):
        monkeypatch.setattr(devices.platform, "system", lambda system=system: system)
        assert devices.host_peak() == size
