"""Which results can be shown here: a result of your own has a row only if its package and its YAML files are found."""

import sys

from rbue.errors import UserError
from rbue.methods import METHODS
from rbue.report.rows import match_row
from rbue.runs import compose
from rbue.runs.results import collect_some

OPTIONS = "name it with --plugin or --config-dir"


def collect_known(results_dir):
    """Return the finished results below a folder that are known here, for a script with the options of plugins."""
    return known(collect_some(results_dir))


def known(results, way_out=OPTIONS):
    """Return the results that are known here, and name in one sentence what the others are of. Refuse if none is."""
    lost = {result.name: missing(result.config) for result in results if match_row(result.config)[0] is None}
    lost = {name: choices for name, choices in lost.items() if choices}
    if not lost:
        return results
    choices = ", ".join(sorted({choice for choices in lost.values() for choice in choices}))
    several = f"{len(lost)} results" if len(lost) > 1 else "1 result"
    sentence = f"{several} of {choices}, whose package or YAML file is not found: {way_out}"
    if len(lost) == len(results):
        raise UserError(f"there is nothing but {sentence}")
    print(f"left out: {sentence}", file=sys.stderr)
    return [result for result in results if result.name not in lost]


def missing(config):
    """Return `dataset=mine` of each choice in a config that no loaded package and no YAML file explains."""
    choices = {group: config[group] for group in ("method", "dataset", "arch", "protocol")}
    return [f"{group}={name}" for group, name in choices.items() if not is_found(group, name)]


def is_found(group, name):
    return compose.file_of(group, name) and (group != "method" or name in METHODS)
