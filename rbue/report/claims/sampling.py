"""How our cells vary, from the stored predictions of their runs: two cells can be paired image by image."""

from rbue.report.bootstrap import mean_of, over_seeds, replicates
from rbue.report.rows import labelled


def of_run(result):
    """Return {metric: Sampling} of a clean run, accuracy in percent as in numbers.py; {} without stored predictions."""
    if result.predictions is None:
        return {}
    found = replicates(result.predictions, result.config.get("bins", 30))
    return found | {"accuracy": found["accuracy"] * 100}


def of_cell(records):
    """Return the Sampling of a mean over seeds (within a seed, over evaluations); None if a run has no predictions."""
    if records.sampling.isna().any():
        return None
    seeds = [(seed.value.mean(), mean_of(list(seed.sampling))) for _, seed in records.groupby("seed")]
    return over_seeds(*map(list, zip(*seeds, strict=True)), independent(records))


def of_cells(cells):
    """Return the Sampling of each cell. A cell with one seed is told how much Single varies over seeds on its network:
    an ensemble, as a mean over its members, varies less."""
    found = [of_cell(cell) for cell in cells]
    known = {network(cell): each.excess for cell, each in zip(cells, found, strict=True) if each and is_single(cell)}
    usual = [(known.get(network(cell)) or 0.0) / cell.members.max() for cell in cells]
    return [each and each.with_usual(excess) for each, excess in zip(found, usual, strict=True)]


def network(cell):
    return tuple(cell[["dataset", "arch", "metric"]].iloc[0])


def is_single(cell):
    return cell.row.iloc[0] == labelled({"method": "single"})


def independent(records):
    """Whether no two seeds share a training: an ensemble's members are the trainings of the next seeds."""
    return (records.seed.drop_duplicates().sort_values().diff().dropna() >= records.members.max()).all()
