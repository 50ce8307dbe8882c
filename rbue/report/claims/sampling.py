"""How our cells vary, from the predictions of their runs: what makes two of them comparable image by image."""

from rbue.bootstrap import over_seeds, replicates


def of_run(result):
    """{metric: Sampling} of a clean run, accuracy in percent as in numbers.py; nothing without predictions."""
    if result.predictions is None:
        return {}
    found = replicates(result.predictions, result.config.get("bins", 30))
    return found | {"accuracy": found["accuracy"] * 100}


def of_seed(samplings):
    """Of a network evaluated more than once: the mean's; None unless every evaluation kept its predictions."""
    known = [sampling for sampling in samplings if sampling is not None]
    return sum(known[1:], known[0]) * (1 / len(known)) if len(known) == len(samplings) else None


def of_cell(values, samplings):
    """Of a mean over seeds; None unless every seed has one."""
    samplings = list(samplings)
    return None if None in samplings else over_seeds(list(values), samplings)
