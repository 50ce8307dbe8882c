"""The runs of a sweep, and how many of them are done. This module does not import torch."""

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from statistics import mean

from hydra import compose
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf, open_dict

from rbue import config
from rbue.errors import UserError
from rbue.methods import METHODS
from rbue.progress import duration, padded
from rbue.runs import locks, results, schema
from rbue.runs.compose import canonical, file_of, network_of, own_hydra, parse
from rbue.runs.messages import one_sentence


def jobs(words, loader, compose):
    """Return [(overrides, Run)] of a command line, each run once. `compose` turns overrides into a Hydra config."""
    parser = OverridesParser.create(config_loader=loader)
    found = {}
    for overrides, run in compose_runs(jobs_by_seed(words, parser, compose), compose):
        first = found.setdefault(results.folder(run), (overrides, run))[1]
        if first.data_dir != run.data_dir:
            raise UserError(
                f"data_dir={first.data_dir} and data_dir={run.data_dir} would write the same {results.folder(run)}: "
                "start one sweep for each, with its own results_dir and weights_dir"
            )
    if not found:
        raise UserError(f"{' '.join(words)} gives no run: a range or a list of choices is empty")
    return list(found.values())


def jobs_by_seed(words, parser, compose):
    """Yield all jobs of a command line, seed by seed, so that a sweep that is stopped leaves complete tables.

    Words other than seeds are expanded once, since Hydra takes milliseconds per word, and then combined with each seed.
    """
    seeds = [word for word in words if word.startswith("seed=")]
    rest = list(expand([word for word in words if word not in seeds], parser, compose))
    for seed in combine_choices(seeds, parser) if seeds else [[]]:
        yield from ([*job, *seed] for job in rest)


def compose_runs(jobs, compose):
    """Yield (overrides, Run) per job. Composing takes 1/6 s, so jobs that differ only in their seed share it, unless
    a setting may refer to the seed."""
    alike = {}
    for overrides in jobs:
        others = tuple(word for word in overrides if not SEED.fullmatch(word))
        seeds = [int(word.removeprefix("seed=")) for word in overrides if SEED.fullmatch(word)]
        key = others, bool(seeds)
        run, may_refer_to_seed = alike.get(key, (None, True))
        if may_refer_to_seed:
            run, _ = alike[key] = compose_run(compose, overrides)
        yield overrides, run.with_seed(seeds[-1]) if seeds else run


SEED = re.compile(r"seed=\d+")


def runs_of(words):
    """Return the runs of a command line, outside of a Hydra application."""
    with own_hydra():
        loader = GlobalHydra.instance().config_loader()
        return [run for _, run in jobs(words, loader, lambda o: compose("config", o, return_hydra_config=True))]


def combine_choices(words, parser):
    """Return every combination of a command line's choices."""
    (combinations,) = BasicSweeper.split_arguments(parser.parse_overrides(list(words)), max_batch_size=None)
    return combinations


def expand(words, parser, compose, outer=()):
    """Yield all jobs of a command line. `sweep=name` stands for the lines of conf/sweep/name.yaml; other words win."""
    if len(sweeps := [word.removeprefix("sweep=") for word in words if word.startswith("sweep=")]) > 1:
        raise UserError(f"Hydra would take the last sweep alone: write several as sweep={','.join(sweeps)}")
    for job in combine_choices(words, parser):
        names = [word for word in job if word.startswith("sweep=")]
        rest = [word for word in job if word not in names]
        if not names:
            yield rest
            continue
        if names[0] in outer:
            raise UserError(f"{names[0]} is a line of itself: change its YAML file")
        for line in lines(names, rest, compose):
            refuse_other_method(names[0], line, rest)
            yield from expand([*line.split(), *rest], parser, compose, (*outer, *names))


def refuse_other_method(name, line, rest):
    """Refuse a method that would replace that of a sweep's line but lacks a hyperparameter of the line."""
    method = next((word.removeprefix("method=") for word in rest if word.startswith("method=")), None)
    if method not in METHODS:
        return
    own = {key for schema in METHODS.values() for key in config.own_settings(schema)}
    lacking = own - METHODS[method].__dataclass_fields__.keys()
    for key in (word.partition("=")[0] for word in line.split()):
        if key in lacking:
            why = f"{name} has the line '{line}', and method={method} has no setting '{key}'"
            raise UserError(f"{why}: leave out method={method} or {name}")


def lines(names, rest, compose):
    """Return the lines of a sweep: its grids, the `clean` ones unless the other words name a corrupted dataset, and the
    lines for this dataset."""
    words = names + [word for word in rest if word.startswith(("dataset=", "launch="))]
    with one_sentence(words):
        cfg = compose(words)
    given = cfg.hydra.sweeper
    clean = given.clean if cfg.corruptions == "none" else []
    return [*given.grids, *clean, *given.also.get(cfg.dataset, [])]


def compose_run(compose, overrides):
    """Return the run, and whether one of its settings may refer to the seed, as data/${seed} does."""
    with one_sentence(overrides):
        cfg = compose(list(overrides))
        with open_dict(cfg):
            cfg.pop("hydra")
        return parse(cfg), "${" in OmegaConf.to_yaml(cfg)


# --- tables that have a run -------------------------------------------------------------------------------------------


def begun_tables(finished, results_dir):
    """{(dataset, arch, protocol): configs} of the finished configs and of all runs below a folder that have failed."""
    groups = defaultdict(list)
    for known in [*finished, *failures(results_dir)]:
        if not known.get("holdout"):  # a hyperparameter search is in no table
            groups[known["dataset"], known["arch"], known["protocol"]].append(known)
    return dict(sorted(groups.items()))


def failures(results_dir):
    """Yield the configs of failed runs."""
    for path in sorted(Path(results_dir).glob("*/*/*/failed.json")):
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            known = json.loads(path.read_text(encoding="utf-8"))["config"]
            schema.check(known)
            yield known


def rows_of(group, configs, words=()):
    """Return all runs of a table that has a run, and the settings that they adopt from its existing results."""
    runs = table_runs(*group, tuple(words))
    taken = shared_settings(configs, runs)
    seeds = sorted({known["seed"] for known in configs if known["method"] != "single"} or {c["seed"] for c in configs})
    runs = [replace(run, **taken) for run in runs]
    return [run.with_seed(seed) for seed in seeds for run in runs], taken


def table_runs(dataset, arch, protocol, words):
    """Return the runs of `sweep=rows`. Clean tables differ only in shared settings, so rows are composed once."""
    usual = canonical(dataset, protocol, "single")
    if usual is None or not file_of("arch", arch):
        return runs_of(["sweep=rows", f"dataset={dataset}", f"arch={arch}", f"protocol={protocol}", *words])
    decisive = [name for name, part, _ in config.declared(config.Run) if part in ("training", "evaluation")]
    shared = {name: getattr(usual, name) for name in decisive if name not in ("method", "seed")}
    shared |= {"arch": arch, "network": network_of(arch)}
    rows = any_rows("cifar10" if usual.corruptions == "none" else dataset, words)
    return [replace(run, **shared) for run in rows]


@cache
def any_rows(dataset, words):
    return runs_of(["sweep=rows", f"dataset={dataset}", *words])


def shared_settings(configs, runs):
    """Return {key: value} of settings that belong to no row, where most existing results differ from the config here:
    the precision on other hardware, and the samples of corrupted runs."""
    keys = ["precision"] if runs[0].corruptions == "none" else ["precision", "samples"]
    given = {key: Counter(known[key] for known in configs if known.get(key) not in (None, "auto")) for key in keys}
    usual = {key: found.most_common(1)[0][0] for key, found in given.items() if found}
    return {key: value for key, value in usual.items() if value != getattr(runs[0], key)}


# --- progress ---------------------------------------------------------------------------------------------------------

STATES = ("done", "running", "failed", "missing")


@dataclass(frozen=True)
class Cost:
    """Seconds of a finished run: per training, and of its evaluation on all test sets. Thousands of results would fill
    the memory."""

    training: float
    evaluation: float

    @classmethod
    def of(cls, result):
        sets = 1 + len(result.corruptions.levels if result.corruptions else [])  # the time is that of the clean one
        return cls(result.seconds.train / max(1, len(result.trainings)), result.seconds.evaluate * sets)


@dataclass
class Cell:
    """One run: its state, the reason if it failed; if it is done, its cost and the metrics that it lacks."""

    run: config.Run
    state: str
    sentence: str = ""
    cost: Cost | None = None
    lacking: Sequence[str] = ()

    @property
    def group(self):
        return self.run.dataset, self.run.arch, self.run.protocol

    @cached_property
    def trainings(self):
        """{folder of the weights: training}. Names take most of the time that a table of many cells needs."""
        return {os.path.join(part.weights_dir, part.training_name): part for part in self.run.trainings}


def cell(run, found=None):
    """Return the run's cell. `found` holds the costs of results read so far as {folder: Cost}."""
    folder = str(results.folder(run))
    if found and folder in found:
        return Cell(run, "done", cost=found[folder])
    begun = os.path.exists(folder)
    try:
        if begun and (result := results.find(run)):
            return Cell(run, "done", cost=Cost.of(result), lacking=results.lacking(result))
    except UserError as foreign:
        return Cell(run, "failed", str(foreign))
    one = Cell(run, "missing")
    if any(map(locks.holder, [folder, *one.trainings])):
        one.state = "running"
    elif begun and (reason := results.failure_reason(run)):
        one.state, one.sentence = "failed", reason
    return one


def refresh(cells):
    """Look up the state of all cells again, except those already done."""
    return [one if one.state == "done" else cell(one.run) for one in cells]


def table(cells):
    """Count cells per state for each dataset, architecture and protocol; add the time left and why cells failed."""
    heads = ["dataset", "arch", "protocol", "runs", *STATES, "time left"]
    groups, pace = defaultdict(list), Pace.of(cells)
    for one in cells:
        groups[one.group].append(one)
    rows = [heads, *([*group, *figures(members, pace)] for group, members in groups.items())]
    if len(groups) > 1:
        rows.append(["total", "", "", *figures(cells, pace)])
    failed = [f"failed: {one.run.name}: {one.sentence}" for one in cells if one.state == "failed"]
    return "\n".join([*("  ".join(row).rstrip() for row in padded(rows, left=range(3))), *failed])


def without_metrics(cells):
    """Say which finished results lack a metric of the loaded plugins, and how to get it; '' if none does."""
    names, runs = {name for one in cells for name in one.lacking}, [one.run.name for one in cells if one.lacking]
    done = sum(one.state == "done" for one in cells)
    some = ", ".join(runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")
    told = f"{len(runs)} of {done} finished results lack metric {', '.join(sorted(names))} ({some})"
    way_out = "add another results_dir= to test them again, without training if their weights are kept"
    return f"{told}: {way_out}\n" if runs else ""


def time_left(cells, ended):
    """Return ', 4 min left' for cells to come, by the pace of ended cells; '' if none of them is similar."""
    left = seconds_left(cells, Pace.of(ended))
    return f", {duration(left)} left" if left else ""


def figures(cells, pace):
    states = Counter(one.state for one in cells)
    return [str(len(cells)), *(str(states[state]) for state in STATES), duration(seconds_left(cells, pace))]


@dataclass
class Pace:
    """Mean seconds per training and per evaluation, by method and network, and by network."""

    train: dict
    evaluate: dict

    @classmethod
    def of(cls, cells):
        train, evaluate = defaultdict(list), defaultdict(list)
        for run, cost in ((one.run, one.cost) for one in cells if one.cost):
            for key in keys(run, run.trained_on):
                train[key].append(cost.training)
            for key in keys(run, run.dataset):
                evaluate[key].append(cost.evaluation)
        return cls(*({key: mean(values) for key, values in known.items()} for known in (train, evaluate)))


def keys(run, dataset):
    """Keys into Pace, the most specific first."""
    network = dataset, run.arch, run.protocol
    return (*network, run.method), network


def nearest(known, keys):
    return next((known[key] for key in keys if key in known), None)


def seconds_left(cells, pace):
    """Estimate the time for one run after another, by the most similar finished cells; None without a similar one."""
    left, counted = 0.0, set()
    for one in (one for one in cells if one.state != "done"):
        parts = {folder: part for folder, part in one.trainings.items() if folder not in counted}
        parts = {folder: part for folder, part in parts.items() if not results.has_weights(folder)}
        expected = [nearest(pace.train, keys(part, part.trained_on)) for part in parts.values()]
        expected.append(nearest(pace.evaluate, keys(one.run, one.run.dataset)))
        if None in expected:
            return None
        left += sum(expected)
        counted.update(parts)  # |= would copy the set each time
    return left
