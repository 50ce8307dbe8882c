"""What a sweep consists of, and how much of it is done. Read without torch."""

import json
import re
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from statistics import mean

from hydra import compose
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import open_dict
from omegaconf.errors import OmegaConfBaseException

from rbue import config
from rbue.errors import UserError
from rbue.progress import padded
from rbue.runs import locks, results, schema
from rbue.runs.compose import canonical, file_of, network_of, own_hydra, parse, register_once
from rbue.runs.messages import sentence


def jobs(words, loader, compose):
    """[(overrides, Run)] of a command line, each run once. `compose` makes overrides a config, with Hydra's part."""
    parser = OverridesParser.create(config_loader=loader)
    found = {}
    for overrides, run in composed(seeded(words, parser, compose), compose):
        found.setdefault(results.folder(run), (overrides, run))
    return list(found.values())


def seeded(words, parser, compose):
    """Every job of a line, seed by seed: a sweep that is stopped leaves whole tables behind. Seeds cross with what the
    rest expands to, which is expanded once, since Hydra takes milliseconds for each word."""
    seeds = [word for word in words if word.startswith("seed=")]
    rest = list(expand([word for word in words if word not in seeds], parser, compose))
    for seed in split(seeds, parser) if seeds else [[]]:
        yield from ([*job, *seed] for job in rest)


def composed(jobs, compose):
    """(overrides, Run) of each. Hydra takes a sixth of a second, so jobs that differ in their seed alone share it."""
    alike = {}
    for overrides in jobs:
        others = tuple(word for word in overrides if not SEED.fullmatch(word))
        seeds = [int(word.removeprefix("seed=")) for word in overrides if SEED.fullmatch(word)]
        key = others, bool(seeds)
        if key not in alike or "$" in " ".join(others):  # ${seed} may be in it
            alike[key] = run_of(said(compose, overrides), overrides)
        yield overrides, replace(alike[key], seed=seeds[-1]) if seeds else alike[key]


SEED = re.compile(r"seed=\d+")


def runs_of(words):
    """The runs of a command line, outside of a Hydra application."""
    register_once()
    with own_hydra():
        loader = GlobalHydra.instance().config_loader()
        return [run for _, run in jobs(words, loader, lambda o: compose("config", o, return_hydra_config=True))]


def split(words, parser):
    """Every combination of a line's choices."""
    (combinations,) = BasicSweeper.split_arguments(parser.parse_overrides(list(words)), max_batch_size=None)
    return combinations


def expand(words, parser, compose):
    """Every job of a line; `sweep=name` in it stands for the lines of conf/sweep/name.yaml, and its own words win."""
    for job in split(words, parser):
        names = [word for word in job if word.startswith("sweep=")]
        rest = [word for word in job if word not in names]
        for line in lines(names, rest, compose) if names else ():
            yield from expand([*line.split(), *rest], parser, compose)
        if not names:
            yield rest


def lines(names, rest, compose):
    """The grids of a sweep, and those for clean datasets where the words around it name no corrupted one."""
    cfg = said(compose, names + [word for word in rest if word.startswith(("dataset=", "launch="))])
    return [*cfg.hydra.sweeper.grids, *(cfg.hydra.sweeper.clean if cfg.corruptions == "none" else [])]


def said(compose, overrides):
    """A job that cannot be composed, as a sentence about its own words."""
    try:
        return compose(list(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(sentence(error, overrides)) from error


def run_of(cfg, overrides=()):
    with open_dict(cfg):
        cfg.pop("hydra")
    try:
        return parse(cfg)
    except OmegaConfBaseException as error:
        raise UserError(sentence(error, overrides)) from error


# --- what was begun ---------------------------------------------------------------------------------------------------


def begun(found, results_dir):
    """{(dataset, arch, protocol): configs} of all that is finished or failed below a folder."""
    groups = defaultdict(list)
    for known in [*(result.config for result in found), *failures(results_dir)]:
        if known.get("holdout"):
            continue  # a search, no table
        groups[known["dataset"], known["arch"], known["protocol"]].append(known)
    return dict(sorted(groups.items()))


def failures(results_dir):
    """The configs of failed runs."""
    for path in sorted(Path(results_dir).glob("*/*/*/failed.json")):
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            known = json.loads(path.read_text())["config"]
            schema.check(known)
            yield known


def rows_of(group, configs, words=()):
    """The runs of a begun table, and the settings that they take over from what is there."""
    runs = table_runs(*group, tuple(words))
    taken = shared_settings(configs, runs)
    seeds = sorted({known["seed"] for known in configs if known["method"] != "single"} or {c["seed"] for c in configs})
    return [replace(run, seed=seed, **taken) for seed in seeds for run in runs], taken


def table_runs(dataset, arch, protocol, words):
    """What `sweep=rows` makes of these, composed once for all tables: their rows differ in shared settings alone."""
    usual = canonical(dataset, protocol, "single")
    if usual is None or not file_of("arch", arch):
        return runs_of(["sweep=rows", f"dataset={dataset}", f"arch={arch}", f"protocol={protocol}", *words])
    decisive = [f.name for f in fields(config.Run) if f.metadata["part"] in ("training", "evaluation")]
    shared = {name: getattr(usual, name) for name in decisive if name not in ("method", "seed")}
    shared |= {"arch": arch, "network": network_of(arch)}
    rows = any_rows("cifar10" if usual.corruptions == "none" else "cifar10_c", words)
    return [replace(run, **shared) for run in rows]


@cache
def any_rows(dataset, words):
    return runs_of(["sweep=rows", f"dataset={dataset}", *words])


def shared_settings(configs, runs):
    """{key: value} of settings that set no row apart, where most of what is there differs from what composes here: the
    precision of other hardware, and the samples of corrupted runs."""
    keys = ["precision"] if runs[0].corruptions == "none" else ["precision", "samples"]
    given = {key: Counter(known[key] for known in configs if known.get(key) not in (None, "auto")) for key in keys}
    usual = {key: found.most_common(1)[0][0] for key, found in given.items() if found}
    return {key: value for key, value in usual.items() if value != getattr(runs[0], key)}


# --- how far it is ----------------------------------------------------------------------------------------------------

STATES = ("done", "running", "failed", "missing")


@dataclass
class Cell:
    """One run: where it stands, the sentence if it failed, its result if it is done."""

    run: config.Run
    state: str
    sentence: str = ""
    result: schema.Result | None = None

    @property
    def group(self):
        return self.run.dataset, self.run.arch, self.run.protocol


def cell(run, found=None):
    """`found` is what was read already: {folder: Result}."""
    try:
        result = (found or {}).get(str(results.folder(run))) or results.find(run)
    except UserError as foreign:
        return Cell(run, "failed", str(foreign))
    if result:
        return Cell(run, "done", result=result)
    if any(map(locks.holder, [results.folder(run), *map(results.weights_folder, run.trainings)])):
        return Cell(run, "running")
    reason = results.failure(run)
    return Cell(run, "failed", reason) if reason else Cell(run, "missing")


def again(cells):
    """Where they stand now; what was done stays done."""
    return [one if one.state == "done" else cell(one.run) for one in cells]


def table(cells):
    """Cells by state for each dataset, architecture and protocol; time left; what failed, and why."""
    heads = ["dataset", "arch", "protocol", "cells", *STATES, "time left"]
    groups, pace = defaultdict(list), Pace.of(cells)
    for one in cells:
        groups[one.group].append(one)
    rows = [heads, *([*group, *figures(members, pace)] for group, members in groups.items())]
    if len(groups) > 1:
        rows.append(["in all", "", "", *figures(cells, pace)])
    failed = [f"failed: {one.run.name}: {one.sentence}" for one in cells if one.state == "failed"]
    return "\n".join([*("  ".join(row).rstrip() for row in padded(rows, left=range(3))), *failed])


def figures(cells, pace):
    states = Counter(one.state for one in cells)
    return [str(len(cells)), *(str(states[state]) for state in STATES), duration(seconds_left(cells, pace))]


@dataclass
class Pace:
    """Mean seconds of a training and of an evaluation: of the same method, else of the same network."""

    train: dict
    evaluate: dict

    @classmethod
    def of(cls, cells):
        train, evaluate = defaultdict(list), defaultdict(list)
        for run, result in ((one.run, one.result) for one in cells if one.result):
            each = result.seconds.train / max(1, len(result.trainings))
            for key in keys(run, run.trained_on):
                train[key].append(each)
            for key in keys(run, run.dataset):
                evaluate[key].append(result.seconds.evaluate)
        return cls(*({key: mean(values) for key, values in known.items()} for known in (train, evaluate)))


def keys(run, dataset):
    """From the nearest on."""
    network = dataset, run.arch, run.protocol
    return (*network, run.method), network


def nearest(known, keys):
    return next((known[key] for key in keys if key in known), None)


def seconds_left(cells, pace):
    """One run after the other at the pace of the nearest cells done; None where none of them is near."""
    left, counted = 0.0, set()
    for run in (one.run for one in cells if one.state != "done"):
        parts = {p.training_name: p for p in run.trainings if not results.is_trained(p)}
        expected = [nearest(pace.train, keys(p, p.trained_on)) for name, p in parts.items() if name not in counted]
        expected.append(nearest(pace.evaluate, keys(run, run.dataset)))
        if None in expected:
            return None
        left += sum(expected)
        counted |= parts.keys()
    return left


def duration(seconds):
    if seconds is None:
        return "–"
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
