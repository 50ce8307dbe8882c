"""result.json of any version is read, or refused with a reason; a new setting with a neutral value renames nothing."""

import copy
import filecmp
import json
import shutil
from contextlib import suppress
from dataclasses import replace
from functools import partial, reduce
from itertools import product
from operator import getitem

import made_up
import pytest
from commands import start
from conftest import PAPER, ROOT

from rbue.errors import UserError
from rbue.report import position, tables
from rbue.report.cells import build
from rbue.report.claims import build as build_claims
from rbue.report.claims import markdown
from rbue.report.claims.numbers import our_frames
from rbue.report.figures import corruptions, framework, grids, networks, reliability, samples
from rbue.report.records import records
from rbue.report.verdict import build as answer
from rbue.report.verdict import in_full
from rbue.runs import results, schema
from rbue.runs.compose import canonical

# --- files that are no result -----------------------------------------------------------------------------------------

DEEP = json.loads("[" * 900 + "]" * 900)
ODD = ["text", None, [], {}, float("nan"), True, -1.5, [["x"]], {"a": None}, DEEP]


def whole():
    content = made_up.analysed("MC-DropReLU(0.8)")
    return content | {
        "corruptions": made_up.corrupted("SVI", types=["fog"])["corruptions"],
        "trainings": [{"packed": 4}],
    }


def places(content, where=()):
    """Yield the path of every value."""
    yield where
    if isinstance(content, dict | list):
        for key in content if isinstance(content, dict) else range(min(len(content), 2)):
            yield from places(content[key], (*where, key))


def at(content, where):
    return reduce(getitem, where, content)


def mutated(content, where, value):
    content = copy.deepcopy(content)
    at(content, where[:-1])[where[-1]] = value
    return content


def test_a_mutated_file_is_read_or_refused_and_what_is_read_can_be_told(tmp_path):
    path, content, read = tmp_path / "result.json", whole(), []
    for where, value in product([place for place in places(content) if place], ODD):
        path.write_text(json.dumps(mutated(content, where, value)))
        try:
            read.append(schema.read(path))
        except UserError as refused:
            assert str(refused).startswith(f"{path} is not a result of this suite ("), (where, value)
    assert len(records(read)) == len(read) > 100


def show(runs):
    """Show every number that the tables beside figures and the claims use from a run."""
    our_frames(runs.result)
    for network in networks(runs):
        assert all(grid.rows for grid in grids(network))
        for load in (samples.load, corruptions.load, framework.load, partial(reliability.load, key="rejection")):
            load(network)
        if len(bins := reliability.load(network, "reliability")):
            reliability.bins(bins)


def test_what_is_read_of_a_mutated_file_can_be_shown(tmp_path):
    """Lists and objects that are empty or missing."""
    content, shown = whole(), 0
    inside = [place for place in places(content) if place and isinstance(at(content, place), dict | list)]
    for where, value in product(inside, ([], {}, None)):
        with suppress(UserError):
            results.write(tmp_path / "result.json", mutated(content, where, value))
            show(records([schema.read(tmp_path / "result.json")]))
            shown += 1
    assert shown >= len(inside) / 2  # the others are refused


@pytest.mark.parametrize(
    ("where", "value", "says"),
    [
        (["metrics", "accuracy"], "0.95", "metrics.accuracy is '0.95', not a number"),
        (["metrics", "accuracy"], None, "metrics.accuracy is None, not a number"),
        (["metrics", "accuracy"], 95.1, "metrics.accuracy is 95.1, not a number from 0 to 1"),
        (["metrics", "ece"], float("nan"), "metrics.ece is nan, not a number"),
        (["metrics"], [], "metrics is [], not an object"),
        (["seconds"], None, "seconds is None, not an object"),
        (["config"], ["single"], "config is ['single'], not an object"),
        (["config", "seed"], 1.5, "config.seed is 1.5, not an integer"),
        (["config", "q"], "much", "config.q is 'much', not a number"),
        (["config", "dataset"], DEEP, "config.dataset is"),
        (["trainings"], {}, "trainings is {}, not a list"),
        (["by_samples", "ece"], [], "by_samples has columns of different length"),
        (["diversity", "dis", 0], [], "diversity has columns of different length"),
        (["diversity", "jsd"], DEEP, "diversity.jsd is"),
        (["reliability", "count", 0], 0.5, "reliability.count is 0.5, not an integer"),
        (["peak_memory_bytes"], {"evaluate": 10**30}, "peak_memory_bytes.evaluate is 1000"),
        (["reliability", "count", 0], 10**30, "reliability.count is 1000"),
        (["environment", "commit"], "\ud800", "surrogates not allowed"),
        (["corruptions", "source"], "../x", "corruptions.source is '../x', not a name"),
        (["corruptions", "types", "fog", 0], None, "corruptions.types.fog is None, not an object"),
    ],
)
def test_collecting_names_what_is_wrong_with_a_file_and_goes_on(where, value, says, tmp_path, capsys):
    good = made_up.result("Single")
    made_up.write(tmp_path, [good, mutated(whole(), where, value)])
    assert [found.name for found in results.collect(tmp_path)] == [good["name"]]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("left out: ") and says in line


@pytest.mark.parametrize("other", [1, 3, None, "2"])
def test_another_format_is_refused(other, tmp_path):
    path = made_up.write(tmp_path, [whole() | {"format": other}]) / whole()["name"] / "result.json"
    with pytest.raises(UserError, match=f"it has format {other}, this version reads format {schema.FORMAT}"):
        schema.read(path)


@pytest.mark.parametrize("content", ["[]", "null", "3", '"text"'])
def test_json_that_is_no_object_is_refused_in_words(content, tmp_path):
    path = tmp_path / "result.json"
    path.write_text(content)
    said = r"is not a result of this suite \(its JSON is not an object in \{\}\): move it away"
    with pytest.raises(UserError, match=said):
        schema.read(path)


def test_a_truncated_file_is_called_damaged_and_says_what_to_do(tmp_path, capsys):
    path = tmp_path / "run" / "result.json"
    text = json.dumps(whole(), indent=1)
    path.parent.mkdir()
    for length in (0, 1, len(text) // 2, len(text) - 1):
        path.write_text(text[:length])
        assert results.collect(tmp_path) == []
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"left out: {path} is damaged, since it is not valid JSON (")
        assert line.endswith("): move it away to redo it")


@pytest.mark.parametrize("text", ["[]", "null", "[" * 100_000, "\xff"])
def test_what_is_no_json_object_is_named(text, tmp_path):
    (tmp_path / "result.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match="is not a result of this suite"):
        schema.read(tmp_path / "result.json")


# --- a new setting ----------------------------------------------------------------------------------------------------

WITH_A_NEW_SETTING = """
import sys
from dataclasses import make_dataclass, replace
from pathlib import Path

conf, out = map(Path, sys.argv[1:])
from rbue import config, methods
for name, known in methods.METHODS.items():
    methods.METHODS[name] = make_dataclass(known.__name__, [("blur", int, config.training(neutral=0))], bases=(known,))
from rbue.report import rows
from rbue.runs import compose
compose.CONF = conf
sys.path.insert(0, "tests")
from test_schema import write_reports
from rbue.runs.results import collect

found = collect("results/runs")
write_reports(found, out)
for result in found:
    usual = compose.canonical(*(result.config[key] for key in ("dataset", "protocol", "method")))
    run = replace(usual, **methods.complete(result.config))
    assert run.blur == 0 and run.name == result.name == config.name_of(result.config), result.name
    other = replace(run, blur=3)
    assert other.name != run.name and other.training_name != run.training_name and "blur3" in other.name
    papers = result.config["method"] in rows.METHODS  # in another method each setting is a row
    assert not papers or rows.match_row(other.identity)[1].get("blur") == 3
"""


def write_reports(found, out):
    """Write every table and the claims."""
    runs = records(found)
    for table in build(runs, PAPER):
        tables.write(table, out / "tables")
    for protocol, cells in position.build(runs, PAPER).items():
        position.write(protocol, cells, out / "tables")
    (out / "claims.md").write_text(markdown(build_claims(found, PAPER), in_full(answer(found, PAPER))))


def test_a_new_setting_with_a_neutral_value_changes_no_name_and_no_byte(tmp_path):
    """The committed tables and claims are those without the setting: other tests keep them up to date."""
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    with (tmp_path / "conf" / "config.yaml").open("a") as file:
        file.write("\nblur: 0\n")
    done = start("-c", WITH_A_NEW_SETTING, tmp_path / "conf", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    written = sorted(str(path.relative_to(tmp_path / "new")) for path in (tmp_path / "new").rglob("*.*"))
    assert len(written) > 30 and {"claims.md", "tables/matched/cifar10.csv"} <= set(written)
    assert filecmp.cmpfiles(ROOT / "results", tmp_path / "new", written, shallow=False) == (written, [], [])


@pytest.mark.parametrize("name", ["/elsewhere/x", "../x", "", ".hidden", "a/b"])
def test_a_name_that_leads_elsewhere_is_no_name(name):
    made = made_up.result("Single")
    for key in ("dataset", "arch", "protocol"):
        with pytest.raises(ValueError, match=f"config.{key} is .*, not a name"):
            schema.parse(made | {"config": made["config"] | {key: name}})


@pytest.mark.parametrize("key", ["dataset", "arch", "protocol"])
def test_what_no_result_could_hold_is_refused_before_training(key):
    run = canonical("digits", "demo", "single")
    assert getattr(replace(run, **{key: "möbel-v2.1+x"}), key) == "möbel-v2.1+x"
    for name in ("mobile net", "a/b", "", ".hidden"):
        with pytest.raises(UserError, match=f"{key}={name} cannot be used: a name may only have letters"):
            replace(run, **{key: name})


def test_a_file_that_cannot_be_opened_is_not_called_no_result(tmp_path):
    """The advice to move it away would cost a finished run."""
    (tmp_path / "result.json").mkdir()
    with pytest.raises(UserError, match=r"result\.json cannot be read: Is a directory$"):
        schema.read(tmp_path / "result.json")
