"""The benchmark reports ratios; no test depends on speed itself."""

import json
import runpy
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT

from rbue.errors import UserError
from rbue.report.benchmark import draw, merged, table
from rbue.runs import devices

MEASURED = sorted((ROOT / "results" / "benchmarks").glob("*.json"))
CONTENT = {
    "hardware": "a machine",
    "rows": [
        {
            "group": "net train",
            "name": "plain",
            "ms": 10.0,
            "images_per_second": 12800.0,
            "peak_memory_bytes": 5_000_000,
            "matmul_flops": 2e12,
        },
        {
            "group": "net train",
            "name": "ours",
            "ms": 2.0,
            "images_per_second": 64000.0,
            "against": "plain",
            "ratio": 5.0,
            "matmul_flops": 2.5e12,
        },
        {"group": "net start", "name": "cold", "ms": 30000.0, "matmul_flops": 2e12},
    ],
}


def test_the_table_shows_ratios_and_leaves_what_was_not_measured_open():
    limit, _, plain, ours, start = table(CONTENT).splitlines()
    assert "limit 2 to 2.5 TFLOP/s" in limit
    assert "12,800" in plain and "–" in plain
    assert "5.00×" in ours and "plain" in ours
    assert start.split()[-5:] == ["–"] * 5


def test_the_figure_is_drawn(tmp_path):
    draw(CONTENT, tmp_path / "figure")
    assert "5.00×" in (tmp_path / "figure.svg").read_text(encoding="utf-8")


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


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(ROOT / "scripts" / "benchmark.py"))


def test_what_is_measured_can_be_built(script):
    """Every layer, in a step that runs: `make benchmark` takes minutes and is in no test."""
    import torch

    from rbue import methods, surgery

    run = script["make_run"]("arch=small")
    leaky = script["Plain"](script["RReLU"]().deterministic())
    x = torch.randn(2, 3, 32, 32)
    for layer in (script["Plain"](), leaky, script["Textbook"]("DropReLU"), script["Textbook"]("RReLU")):
        assert surgery.randomize(methods.build(run, 10, 100), layer)(x).shape == (2, 10)
    like = surgery.randomize(methods.build(run, 10, 100), leaky).eval()
    twin = surgery.deterministic(surgery.randomize(methods.build(run, 10, 100), script["RReLU"]())).eval()
    assert torch.equal(like(x), twin(x))


@pytest.fixture
def tiny(script, monkeypatch):
    """A benchmark of 64 × 64 images, which has measured nothing yet."""
    import torch

    replace_globals(monkeypatch, script, matmul_rate=lambda device: 1e12)  # measuring it takes seconds
    return script["Bench"](torch.device("cpu"), True, "tinyimagenet")


def replace_globals(monkeypatch, script, **values):
    for name, value in values.items():
        monkeypatch.setitem(script["main"].__globals__, name, value)


def test_images_of_another_dataset_have_its_shape_and_groups_of_their_own(tiny, tmp_path):
    assert (tiny.batch, tiny.size) == (100, 64)
    assert tiny.group("vgg13", "train") == "vgg13 64x64 train"
    with pytest.raises(UserError, match="tinyimagenet holds no tiny-imagenet-200: make data"):
        tiny.reading(tmp_path)


def test_corruptions_of_other_images_do_not_replace_those_of_cifar(script, tiny, monkeypatch):
    replace_globals(monkeypatch, script, IMAGES=8, TESTS=1, find_spec=lambda name: True)
    replace_globals(
        monkeypatch, script, packages_own=lambda images: (lambda: None, ["fog"]), corrupt_all=lambda *_: None
    )
    tiny.corruptions("small")
    assert {row["group"] for row in tiny.rows} == {"64x64 corruptions"}
    cifar = {"group": "corruptions", "name": "ours", "ms": 1.0}
    assert merged([cifar], tiny.rows) == [cifar, *tiny.rows]


def test_a_start_is_measured_with_the_images_of_the_dataset(script, tiny, monkeypatch):
    words = []

    def output_of(arguments, **_):
        words.append(arguments[1:])
        return json.dumps({"imports": 1.0, "step": 2.0})

    replace_globals(monkeypatch, script, output_of=output_of)
    tiny.start("small")
    assert words[-4:] == [["--first-step", "small", "--dataset", "tinyimagenet"]] * 4
    assert {row["group"] for row in tiny.rows} == {"small 64x64 start"}


def test_the_first_step_takes_images_of_the_dataset(script, monkeypatch, capsys):
    import torch

    seen = []

    def accelerate(steps, device):
        images, logits = steps[0].images.padded[:2], steps[0].network(torch.zeros(2, 3, 64, 64, device=device))
        seen.append((steps[0].run.dataset, images.shape, logits.shape))
        return lambda: None, ""

    monkeypatch.setattr("rbue.training.capture.accelerate", accelerate)
    replace_globals(monkeypatch, script, IMAGES=200, TESTS=1)
    script["main"](["--first-step", "small", "--dataset", "tinyimagenet"])
    assert seen == [("tinyimagenet", (2, 72, 72, 3), (2, 200))] and "imports" in json.loads(capsys.readouterr().out)


def test_a_dataset_is_read_in_a_process_of_its_own(script, tmp_path):
    _, alone = script["read_once"]("digits", str(tmp_path))
    ballast = np.ones(2_000_000_000, np.uint8)  # memory of this process must not count
    seconds, peak = script["read_once"]("digits", str(tmp_path))
    assert seconds > 0 and 1797 * 3 * 32 * 32 < peak < min(1.3 * alone, len(ballast))


def test_a_process_that_fails_is_one_sentence(script, tmp_path):
    with pytest.raises(UserError, match=r"^dataset=mnist is not known: [^\n]*$"):
        script["read_once"]("mnist", str(tmp_path))
    with pytest.raises(UserError, match=r"^a process of its own ended with exit status 3$"):
        script["output_of"](["-c", "raise SystemExit(3)"])


def test_without_proc_the_peak_memory_is_in_the_unit_of_the_system(monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "STATUS", tmp_path / "absent")
    monkeypatch.setattr(devices.resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=7))
    for system, size in (("Linux", 7 * 1024), ("Darwin", 7)):
        monkeypatch.setattr(devices.platform, "system", lambda system=system: system)
        assert devices.host_peak() == size
