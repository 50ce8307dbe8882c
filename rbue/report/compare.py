"""Compare two rows of the tables, such as your own method with one of the paper's.

compare(collect("results/runs"), "grelu(s=0.3)", "MC-DropReLU(0.95)")

The error of a difference is that of the claims: both rows are paired image by image, and the variance over seeds counts
as equal for all rows of a dataset (rbue/report/claims/values.py).
"""

import pandas as pd

from rbue.errors import UserError
from rbue.report.claims.evidence import listed
from rbue.report.claims.numbers import Numbers, our_records, with_errors
from rbue.report.claims.scopes import QUALITY
from rbue.report.known import known
from rbue.report.records import KEY, PLACE, in_tables, most_passes, records
from rbue.report.rows import place_name

COLUMNS = ["protocol", "dataset", "arch", "metric", "difference", "low", "high", "p", "n", "n_other", "judged", "over"]

IN_PYTHON = "name it with rbue.plugins.choose(['my_package'], 'my_conf')"


def compare(results, row, other):
    """Return `row` minus `other` with its 95 % interval and p-value, per network that has both rows, and per metric.
    Accuracy is in percent. p is for one comparison: correct it (Holm) if you make several. `over` says whether the
    interval covers the choice of images alone, or also that of seeds."""
    if row == other:
        raise UserError(f"row and other are both {row}: name two rows")
    kept = known(results, IN_PYTHON)
    every = records(kept)
    runs = every[in_tables(every)]
    if unknown := [name for name in (row, other) if name not in set(runs.row)]:
        there = f"the rows are {', '.join(dict.fromkeys(runs.row))}" if len(runs) else "there are no rows"
        others = "" if len(kept) == len(results) else ", but some results are left out (see above)"
        raise UserError(f"no result is of the row {unknown[0]}: {there}{others}{of_no_row(every)}")
    found = [record for run in runs.itertuples() for record in our_records(run) if record["metric"] in QUALITY]
    frame = most_passes(pd.DataFrame(found), [*KEY, "metric", "seed"]).assign(origin="")
    lines = [line for protocol, cells in frame.groupby("protocol") for line in gaps(protocol, cells, row, other)]
    if not lines:
        there = [f"{name} on {networks(runs[runs.row == name])}" for name in (row, other)]
        raise UserError(f"no network has both rows under one protocol: {', '.join(there)}")
    return pd.DataFrame(lines, columns=COLUMNS)


def networks(runs):
    """Return where some runs are measured: `CIFAR-10 ResNet-18 (fast), ...`."""
    places = runs[[*PLACE, "protocol"]].drop_duplicates().itertuples(index=False)
    return listed([f"{place_name(dataset, arch)} ({protocol})" for dataset, arch, protocol in places])


def of_no_row(runs):
    """Say how many results are in no table, since a setting differs from its protocol's, and name the first."""
    lost = runs[runs.row.isna()]
    several = f"{len(lost)} results are" if len(lost) > 1 else "1 result is"
    return f"; {several} of no row, such as {lost.name.iloc[0]} ({lost.differs.iloc[0]})" if len(lost) else ""


def gaps(protocol, cells, row, other):
    """Yield one line per network with both rows, and per metric."""
    numbers = Numbers.of(with_errors(cells))
    for place in numbers.places:
        for metric in QUALITY:
            one, two = (*place, row, metric), (*place, other, metric)
            if one in numbers.values and two in numbers.values:
                gap = numbers.values[one] - numbers.values[two]
                interval = gap.mean, gap.mean - gap.reach, gap.mean + gap.reach
                several = gap.sampling.seeds if gap.sampling else max(numbers.n[one], numbers.n[two]) > 1
                over = "images and seeds" if several else "images"
                yield protocol, *place, metric, *interval, gap.p, numbers.n[one], numbers.n[two], gap.judged, over
