"""The benchmark reports ratios; no test depends on speed itself."""

import json
import runpy

import pytest
from conftest import ROOT

from rbue.errors import UserError
from rbue.report.benchmark import draw, merged, table

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


def test_what_is_measured_can_be_built():
    """Every layer, in a step that runs: `make benchmark` takes minutes and is in no test."""
    script = runpy.run_path(str(ROOT / "scripts" / "benchmark.py"))
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


def test_images_of_another_dataset_have_its_shape_and_groups_of_their_own(tmp_path):
    import torch

    bench = runpy.run_path(str(ROOT / "scripts" / "benchmark.py"))["Bench"](torch.device("cpu"), True, "tinyimagenet")
    assert (bench.batch, bench.size) == (100, 64)
    assert bench.group("vgg13", "train") == "vgg13 64x64 train"
    with pytest.raises(UserError, match="tinyimagenet holds no tiny-imagenet-200: make data"):
        bench.reading(tmp_path)


def test_a_dataset_is_read_in_a_process_of_its_own(tmp_path):
    script = runpy.run_path(str(ROOT / "scripts" / "benchmark.py"))
    seconds, peak = script["read_once"]("digits", str(tmp_path))
    assert seconds > 0 and peak > 1797 * 3 * 32 * 32  # the images themselves
