"""How our cells vary, from the predictions of their runs: what makes two of them comparable image by image."""

from rbue.report.bootstrap import over_seeds, replicates


def of_run(result):
    """{metric: Sampling} of a clean run, accuracy in percent as in numbers.py; nothing without predictions."""
    if result.predictions is None:
        return {}
    found = replicates(result.predictions, result.config.get("bins", 30))
    return found | {"accuracy": found["accuracy"] * 100}


def of_cell(records):
    """Of a mean over seeds, and within a seed over its evaluations; None unless every run kept its predictions."""
    if records.sampling.isna().any():
        return None
    seeds = [(seed.value.mean(), mean_of(list(seed.sampling))) for _, seed in records.groupby("seed")]
    return over_seeds(*map(list, zip(*seeds, strict=True)), independent(records))


def independent(records):
    """Whether no two seeds share a training: the members of an ensemble are those of the next seeds."""
    return (records.seed.drop_duplicates().sort_values().diff().dropna() >= records.members.max()).all()


def mean_of(samplings):
    return sum(samplings[1:], samplings[0]) * (1 / len(samplings))
