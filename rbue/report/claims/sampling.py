"""How our cells vary, from the stored predictions of their runs: two cells can be paired image by image."""

from collections import defaultdict
from dataclasses import replace

from rbue.report.bootstrap import mean_of, pool, replicates, scatter_of


def of_run(result):
    """Return {metric: Sampling} of a clean run, accuracy in percent as in numbers.py; {} without stored predictions."""
    if result.predictions is None:
        return {}
    found = replicates(result.predictions, result.config.get("bins", 30))
    return found | {"accuracy": found["accuracy"] * 100}


def of_cells(cells):
    """Return the Sampling of each cell: a mean over seeds, and how seeds vary on its dataset; None without predictions.

    All rows and networks of a dataset count as having the same variance over seeds, so that a row with one seed has an
    error over seeds too.
    """
    by_seed, scatters = [seeds_of(cell) for cell in cells], defaultdict(list)
    for cell, seeds in zip(cells, by_seed, strict=True):
        if seeds and shows_scatter(cell):
            scatters[measured(cell)].append((cell.members.max(), scatter_of(*zip(*seeds, strict=True))))
    known = {(dataset, metric): common(metric, found) for (dataset, metric), found in scatters.items()}
    return [seeds and over_seeds(c, seeds, known.get(measured(c))) for c, seeds in zip(cells, by_seed, strict=True)]


def seeds_of(cell):
    """Return each seed's value and Sampling, the means over its evaluations; None if a run has no predictions."""
    if cell.sampling.isna().any():
        return None
    return [(seed.value.mean(), mean_of(list(seed.sampling))) for _, seed in cell.groupby("seed")]


def measured(cell):
    """Return the dataset and the metric of a cell."""
    return tuple(cell[["dataset", "metric"]].iloc[0])


def shows_scatter(cell):
    """Whether it has several seeds that no other row has: `row@all` repeats a row."""
    return cell.seed.nunique() > 1 and not cell.row.iloc[0].endswith("@all")


def common(metric, scatters):
    """Return the Scatter of one network, from those of all rows, each with its number of members.

    An ensemble's accuracy varies as the mean of its members' does. Its other metrics do not, so they count only if no
    other row has several seeds.
    """
    alone = [scatter for members, scatter in scatters if members == 1]
    everything = [scatter * members for members, scatter in scatters]
    return pool(alone if alone and metric != "accuracy" else everything)


def over_seeds(cell, seeds, scatter):
    """Return the Sampling of a mean over seeds. Two ensembles have no common member (methods/deep_ensemble.py). We
    assume that an ensemble varies as the mean of its members does. The ECE of our ensembles varies less.

    Single networks that are members of an ensemble count as independent of it. If both are better with the same seeds,
    as in accuracy, the error of their difference is too large. For ECE it is too small, by up to √2, if Single is
    overconfident and the ensemble underconfident: with a more confident member, one ECE rises and the other falls. Of
    all claims, only B7 may compare the two.
    """
    mean = mean_of([sampling for _, sampling in seeds])
    return replace(mean, seeds={scatter: 1 / (cell.members.max() * len(seeds))}) if scatter else mean
