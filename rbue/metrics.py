"""Metrics: pure functions (probs, labels) -> value. probs is (images, classes). Ties go to the lower class (argmax)."""

import math
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from rbue.errors import UserError, describe, refuse_second

TINY = torch.finfo(torch.float64).tiny  # replaces a probability of zero before its logarithm is taken


def accuracy(probs: Tensor, labels: Tensor) -> float:
    return (probs.argmax(1) == labels).double().mean().item()


def ece(probs: Tensor, labels: Tensor, bins: int = 30) -> float:
    """Expected calibration error over equal-width, right-closed bins of the predicted class's confidence (4.1.3).

    The paper bins by the score of the true label. This must be an error, since its conf(B) is the confidence of the
    predicted class. A confidence of exactly 1 falls into the last bin.
    """
    _, confidence, correct = binned(probs, labels, bins)
    return (correct - confidence).abs().sum().item() / len(labels)


def binned(probs: Tensor, labels: Tensor, bins: int) -> list[Tensor]:
    """Return, per bin of the ECE: the number of images, the sum of confidences, the number of correct predictions."""
    confidence, predicted = probs.double().max(1)
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64, device=probs.device)
    place = torch.bucketize(confidence, edges[1:-1])  # right-closed: edge k itself belongs to bin k
    columns = (torch.ones_like(confidence), confidence, (predicted == labels).double())
    return [torch.zeros_like(edges[1:]).index_add_(0, place, column) for column in columns]


def reliability(probs: Tensor, labels: Tensor, bins: int = 30) -> dict[str, list]:
    """Reliability diagram: confidence and accuracy per bin, whose weighted mean distance is the ECE. An empty bin has
    None."""
    count, confidence, correct = binned(probs, labels, bins)

    def mean(sums: Tensor) -> list[float | None]:
        return [s / n if n else None for s, n in zip(sums.tolist(), count.tolist(), strict=True)]

    return {"count": count.long().tolist(), "confidence": mean(confidence), "accuracy": mean(correct)}


def nll(probs: Tensor, labels: Tensor) -> float:
    """Mean negative log-likelihood in nats. A probability of zero counts as 2e-308, which is 708 nats."""
    return losses(probs, labels).mean().item()


def losses(probs: Tensor, labels: Tensor) -> Tensor:
    """Negative log-likelihood of each image."""
    return -probs.double().gather(1, labels[:, None])[:, 0].clamp_min(TINY).log()


def brier(probs: Tensor, labels: Tensor) -> float:
    """Brier score: the mean squared distance to the one-hot label, between 0 and 2."""
    return squared_distance(probs, labels).mean().item()


def squared_distance(probs: Tensor, labels: Tensor) -> Tensor:
    """Squared distance of each image's prediction to its one-hot label."""
    wanted = torch.nn.functional.one_hot(labels, probs.shape[1])
    return (probs.double() - wanted).square().sum(1)


def entropy(probs: Tensor) -> Tensor:
    """Predictive entropy of each image in nats: the uncertainty of Section 3.3."""
    return torch.special.entr(probs).sum(-1)


def mutual_information(entropy: Tensor, sample_entropy: Tensor) -> Tensor:
    """Disagreement of the samples of each image in nats: the entropy of their mean minus their mean entropy."""
    return (entropy - sample_entropy).clamp_min(0)  # rounding errors may make it slightly negative


BUILT_IN = ("accuracy", "ece", "nll", "brier", "entropy")
OWN: dict[str, Callable[[Tensor, Tensor], float]] = {}  # the user's own metrics, by name


def metric(name: str) -> Callable:
    """Register the decorated function (probs, labels) → float as your own metric. Every new result includes it."""
    if not isinstance(name, str):
        raise UserError('a metric needs a name: write @metric("name")')
    if name in (*BUILT_IN, "samples", "ms_per_image"):
        raise UserError(f"metric {name} cannot be registered, since results have a number of that name: rename it")

    def register(function: Callable[[Tensor, Tensor], float]) -> Callable[[Tensor, Tensor], float]:
        refuse_second(f"metric {name}", OWN.get(name), function)
        OWN[name] = function
        return function

    return register


def score(probs: Tensor, labels: Tensor, bins: int = 30, own: bool = True) -> dict[str, float]:
    """Return all metrics of one prediction, by name."""
    return {
        "accuracy": accuracy(probs, labels),
        "ece": ece(probs, labels, bins),
        "nll": nll(probs, labels),
        "brier": brier(probs, labels),
        "entropy": entropy(probs.double()).mean().item(),
    } | ({name: finite(name, compute(name, probs, labels)) for name in OWN} if own else {})


def try_own(classes: int) -> None:
    """Compute the user's own metrics on made-up predictions of every confidence, half of them right, before a training:
    a faulty metric would be found only after it."""
    images = 20 * classes
    logits = torch.randn(images, classes, generator=torch.Generator().manual_seed(0))
    probs = (logits * torch.linspace(0, 10, images)[:, None]).softmax(1)
    labels = torch.arange(images) % classes
    labels[::2] = probs[::2].argmax(1)
    for name in OWN:
        finite(name, compute(name, probs, labels))


def compute(name: str, probs: Tensor, labels: Tensor) -> Any:
    """Compute a user's own metric, or say that it failed."""
    try:
        return OWN[name](probs.clone(), labels.clone())  # it may work in place, and both are needed again
    except Exception as error:  # a user's own code may raise anything
        raise UserError(f"metric {name} failed ({describe(error)}): fix it, or leave out its plugin") from error


def finite(name: str, value: Any) -> float:
    """Return the value of a user's own metric as a finite float, or refuse it: a result can store nothing else."""
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise UserError(f"metric {name} returns {value!r:.40} instead of a number") from error
    if not math.isfinite(number):
        raise UserError(f"metric {name} returns {number}: results hold finite numbers only")
    return number


def rejection(probs: Tensor, labels: Tensor) -> dict[str, list[float]]:
    """Accuracy on the remaining images if those with the highest predictive entropy are rejected."""
    order = entropy(probs.double()).argsort(stable=True)
    right = (probs.argmax(1) == labels)[order].double()
    rejected = [k / 20 for k in range(20)]
    kept = [max(1, round((1 - share) * len(labels))) for share in rejected]
    return {"rejected": rejected, "accuracy": [right[:n].mean().item() for n in kept]}


def temperature(probs: Tensor, labels: Tensor, bins: int = 30) -> dict[str, float]:
    """ECE and NLL after temperature scaling.

    There is no validation set, so each half of the images is scaled by the temperature of the other half. The
    temperature divides the logarithm of the mean probabilities, so it does not change the accuracy.
    """
    logits = probs.double().clamp_min(TINY).log()
    halves = [slice(0, None, 2), slice(1, None, 2)]
    fitted = [fit_temperature(logits[half], labels[half]) for half in halves]
    scaled = torch.empty_like(logits)
    for half, t in zip(halves, reversed(fitted), strict=True):
        scaled[half] = (logits[half] / t).softmax(1)
    return {"temperature": sum(fitted) / 2, "ece": ece(scaled, labels, bins), "nll": nll(scaled, labels)}


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the temperature that minimises the NLL, by bisection between 1/100 and 100: the NLL is convex in 1/T.

    If all predictions are correct, the NLL decreases down to T = 0, which is useless for other images. Then T is 1.
    """
    if (logits.argmax(1) == labels).all():
        return 1.0
    low, high, own = 0.01, 100.0, logits.gather(1, labels[:, None]).mean()
    for _ in range(50):
        middle = (low * high) ** 0.5
        slope = ((logits / middle).softmax(1) * logits).sum(1).mean() - own  # derivative of the NLL by 1/T
        low, high = (low, middle) if slope < 0 else (middle, high)  # slope < 0: a lower T is better
    return middle


def jsd(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence of each image in nats (Section 4.4.1)."""
    p, q = p.double(), q.double()
    return entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2


def disagreement(p: Tensor, q: Tensor) -> Tensor:
    """1 for each image whose predicted class differs between two samples, else 0 (Section 4.4.2)."""
    return (p.argmax(1) != q.argmax(1)).double()


MEASURES = {"jsd": jsd, "dis": disagreement}


def diversity(samples: Tensor) -> dict[str, Any]:
    """Return pairwise matrices between samples (samples, images, classes), or between the members of an ensemble."""
    values = pairwise(samples)
    matrices = {name: symmetric(values[k].mean(1).tolist(), len(samples)) for k, name in enumerate(MEASURES)}
    return matrices | {"intervals": intervals(values)}


def pairwise(samples: Tensor) -> Tensor:
    """Return both measures for each pair of samples and each image, (measures, pairs, images)."""
    pairs = list(combinations(samples, 2))
    return torch.stack([torch.stack([f(p, q) for p, q in pairs]) for f in MEASURES.values()])


def symmetric(values: Iterable[float], size: int) -> list[list[float]]:
    """Return the symmetric matrix with these values above its diagonal, row by row, and zeros on it."""
    matrix = [[0.0] * size for _ in range(size)]
    for (row, column), value in zip(combinations(range(size), 2), values, strict=True):
        matrix[row][column] = matrix[column][row] = value
    return matrix


def intervals(values: Tensor, resamples: int = 1000) -> dict[str, list[float]]:
    """Return 95 % bootstrap intervals of the mean and the maximum over pairs, from what `pairwise` returns.

    Images are resampled, with a fixed seed. The mean has a percentile interval. Results of older versions have one for
    the maximum too, as `max_jsd` and `max_dis`; it covers the truth in 58 % of simulations only.
    """
    *columns, images = values.shape
    values = values.flatten(0, 1).T.contiguous()
    generator = torch.Generator().manual_seed(0)
    chosen = (torch.randint(images, (images,), generator=generator) for _ in range(resamples))
    counts = (torch.bincount(rows, minlength=images).double() for rows in chosen)  # how often each image was drawn
    drawn = torch.stack([count @ values / images for count in counts]).view(resamples, *columns)
    means = drawn.mean(2).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64), 0)
    maxima = interval_of_maximum(values.mean(0).view(*columns), drawn)
    found = {"mean_{}": means, "max_{}_simultaneous": maxima}
    return {key.format(name): found[key][:, k].tolist() for k, name in enumerate(MEASURES) for key in found}


def interval_of_maximum(values: Tensor, drawn: Tensor, level: float = 0.95) -> Tensor:
    """Return the ends of an interval for the largest true value, from values (…, pairs) and their bootstrap replicates.

    The largest of several estimates lies above the largest true value, and its replicates lie still higher, so a
    percentile interval is too high. Instead all pairs get intervals that hold together (max-t): if each of them covers
    its truth, the maxima of their ends cover the largest truth.
    """
    error = drawn.std(0)
    far = ((drawn - values).abs() / error.clamp_min(TINY)).amax(-1).quantile(level, 0)
    reach = far[..., None] * error
    return torch.stack([(values - reach).amax(-1).clamp_min(0), (values + reach).amax(-1)])


def by_samples(means: dict[int, Tensor], labels: Tensor, bins: int = 30) -> dict[str, list]:
    """Return the metrics of the mean of the first k samples, one column per metric. `means` is {k: probs}."""
    rows = [{"samples": k, **score(probs, labels, bins)} for k, probs in means.items()]
    return {key: [row[key] for row in rows] for key in rows[0]}


def report(evaluated: Any, labels: Tensor, bins: int = 30) -> dict[str, Any]:
    """Return the metrics of one evaluation as a result stores them."""
    several = len(evaluated.first) > 1
    return {
        "metrics": score(evaluated.mean, labels, bins),
        "by_samples": by_samples(evaluated.by_count, labels, bins) if several else None,
        "diversity": diversity(evaluated.first) if several else None,
    }
