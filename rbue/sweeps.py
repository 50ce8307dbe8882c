"""What a sweep consists of, and how much of it is done. Read without torch."""

import json
import re
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from hydra import compose
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import open_dict
from omegaconf.errors import OmegaConfBaseException

from rbue import config, locks, results
from rbue.cli import sentence
from rbue.config import Refused
from rbue.report.rows import own_hydra, register_once


def jobs(words, loader, compose):
    """[(overrides, Run)] of a command line, each run once. `compose` makes overrides a config, with Hydra's part."""
    parser = OverridesParser.create(config_loader=loader)
    found = {}
    for overrides, run in composed(expand(words, parser, compose), compose):
        found.setdefault(results.folder(run), (overrides, run))
    return list(found.values())


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


def expand(words, parser, compose):
    """Every job of a line; `sweep=name` in it stands for the lines of conf/sweep/name.yaml, and its own words win."""
    (combinations,) = BasicSweeper.split_arguments(parser.parse_overrides(list(words)), max_batch_size=None)
    for job in combinations:
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
        raise Refused(sentence(error, overrides)) from error


def run_of(cfg, overrides=()):
    with open_dict(cfg):
        cfg.pop("hydra")
    try:
        return config.parse(cfg)
    except OmegaConfBaseException as error:
        raise Refused(sentence(error, overrides)) from error


def begun(results_dir):
    """Lines of the tables of which a folder holds anything, finished or failed. Seeds that Single alone has are members
    of an ensemble: the other rows need not have them."""
    seeds = defaultdict(lambda: {True: set(), False: set()})
    for path in sorted(Path(results_dir).glob("*/*/*/*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(path.read_text())["config"]
            seed, single = int(known["seed"]), known["method"] == "single"
            seeds[known["dataset"], known["arch"], known["protocol"]][single].add(seed)
    for (dataset, arch, protocol), found in seeds.items():
        seed = f"seed={','.join(map(str, sorted(found[False] or found[True])))}"
        yield ["sweep=rows", f"dataset={dataset}", f"arch={arch}", f"protocol={protocol}", seed]


# --- how far it is ----------------------------------------------------------------------------------------------------

STATES = ("done", "running", "failed", "missing")


@dataclass
class Cell:
    """One run: where it stands, the sentence if it failed, its result if it is done."""

    run: config.Run
    state: str
    sentence: str = ""
    result: dict | None = None

    @property
    def group(self):
        return self.run.dataset, self.run.arch, self.run.protocol


def cell(run):
    try:
        result = results.find(run)
    except Refused as foreign:
        return Cell(run, "failed", str(foreign))
    if result:
        return Cell(run, "done", result=result)
    if any(map(locks.holder, [results.folder(run), *map(results.weights, run.trainings)])):
        return Cell(run, "running")
    reason = results.failure(run)
    return Cell(run, "failed", reason) if reason else Cell(run, "missing")


def table(runs):
    """Cells by state for each dataset, architecture and protocol; time left; what failed, and why."""
    cells = [cell(run) for run in runs]
    heads = ["dataset", "arch", "protocol", "cells", *STATES, "time left"]
    groups = defaultdict(list)
    for one in cells:
        groups[one.group].append(one)
    rows = [heads, *([*group, *figures(members, cells)] for group, members in groups.items())]
    if len(groups) > 1:
        rows.append(["in all", "", "", *figures(cells, cells)])
    failed = [f"failed: {one.run.name}: {one.sentence}" for one in cells if one.state == "failed"]
    return "\n".join([*aligned(rows), *failed])


def aligned(rows):
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        yield "  ".join(text.ljust(w) if k < 3 else text.rjust(w) for k, (text, w) in enumerate(cells)).rstrip()


def figures(cells, known):
    states = Counter(one.state for one in cells)
    return [str(len(cells)), *(str(states[state]) for state in STATES), duration(seconds_left(cells, known))]


def seconds_left(cells, known):
    """One run after the other at the pace of the nearest cells done; None where none of them is near."""
    train, evaluate, left, counted = [], [], 0.0, set()
    for one in (one for one in known if one.result):
        seconds, parts = one.result.seconds, max(1, len(one.result.trainings))
        train.append((key(one.run, one.run.trained_on), seconds.train / parts))
        evaluate.append((key(one.run, one.run.dataset), seconds.evaluate))
    for run in (one.run for one in cells if one.state != "done"):
        parts = {p.training_name: p for p in run.trainings if not results.is_trained(p)}
        expected = [pace(train, key(p, p.trained_on)) for name, p in parts.items() if name not in counted]
        expected.append(pace(evaluate, key(run, run.dataset)))
        if None in expected:
            return None
        left += sum(expected)
        counted |= parts.keys()
    return left


def key(run, dataset):
    return dataset, run.arch, run.protocol, run.method


def pace(measured, wanted):
    """Mean seconds of the same method, else of the same dataset, architecture and protocol."""
    for length in (4, 3):
        if alike := [seconds for key, seconds in measured if key[:length] == wanted[:length]]:
            return mean(alike)
    return None


def duration(seconds):
    if seconds is None:
        return "–"
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
