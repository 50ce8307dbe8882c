"""How our cells vary, from the stored predictions of their runs: two cells can be paired image by image."""

from rbue.report.bootstrap import over_seeds, replicates


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


def independent(records):
    """Whether no two seeds share a training: an ensemble's members are the trainings of the next seeds."""
    return (records.seed.drop_duplicates().sort_values().diff().dropna() >= records.members.max()).all()


def mean_of(samplings):
    return sum(samplings[1:], samplings[0]) * (1 / len(samplings))
