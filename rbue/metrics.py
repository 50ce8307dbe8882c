"""Pure functions (probs, labels) -> value. probs is (images, classes); ties go to the lower class, as argmax does."""

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from rbue.errors import UserError

TINY = torch.finfo(torch.float32).tiny  # what a probability of zero counts as, where its logarithm is taken


def accuracy(probs: Tensor, labels: Tensor) -> float:
    return (probs.argmax(1) == labels).double().mean().item()


def ece(probs: Tensor, labels: Tensor, bins: int = 30) -> float:
    """Expected calibration error over equal-width, right-closed bins of the predicted class's confidence (4.1.3).

    The paper bins by the score of the true label, which cannot be meant: its conf(B) is the predicted confidence.
    A confidence of exactly 1 falls into the last bin.
    """
    _, confidence, correct = binned(probs, labels, bins)
    return (correct - confidence).abs().sum().item() / len(labels)


def binned(probs: Tensor, labels: Tensor, bins: int) -> list[Tensor]:
    """What each of ECE's bins holds: how many images, the sum of their confidences, how many are right."""
    confidence, predicted = probs.double().max(1)
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64, device=probs.device)
    place = torch.bucketize(confidence, edges[1:-1])  # right-closed: edge k itself belongs to bin k
    columns = (torch.ones_like(confidence), confidence, (predicted == labels).double())
    return [torch.zeros_like(edges[1:]).index_add_(0, place, column) for column in columns]


def reliability(probs: Tensor, labels: Tensor, bins: int = 30) -> dict[str, list]:
    """The reliability diagram: ECE is the mean distance of its bars to the diagonal. An empty bin has no height."""
    count, confidence, correct = binned(probs, labels, bins)

    def mean(sums: Tensor) -> list[float | None]:
        return [s / n if n else None for s, n in zip(sums.tolist(), count.tolist(), strict=True)]

    return {"count": count.long().tolist(), "confidence": mean(confidence), "accuracy": mean(correct)}


def nll(probs: Tensor, labels: Tensor) -> float:
    """Mean negative log-likelihood in nats; a probability of zero counts as the smallest float32."""
    chosen = probs.double().gather(1, labels[:, None])
    return -chosen.clamp_min(TINY).log().mean().item()


def brier(probs: Tensor, labels: Tensor) -> float:
    """Mean squared distance to the one-hot label, between 0 and 2."""
    return squared_distance(probs, labels).mean().item()


def squared_distance(probs: Tensor, labels: Tensor) -> Tensor:
    """Of each image's prediction to its one-hot label."""
    wanted = torch.nn.functional.one_hot(labels, probs.shape[1])
    return (probs.double() - wanted).square().sum(1)


def entropy(probs: Tensor) -> Tensor:
    """Predictive entropy of each image in nats (Section 3.3's uncertainty)."""
    return torch.special.entr(probs).sum(-1)


BUILT_IN = ("accuracy", "ece", "nll", "brier", "entropy")
OWN: dict[str, Callable[[Tensor, Tensor], float]] = {}  # a user's own metrics by name


def metric(name: str) -> Callable:
    """Register the decorated function (probs, labels) → float as a metric of your own: every result has it from then
    on."""
    if name in (*BUILT_IN, "samples", "ms_per_image"):
        raise UserError(f"metric {name} cannot be registered: results have a number of that name already")

    def register(function: Callable[[Tensor, Tensor], float]) -> Callable[[Tensor, Tensor], float]:
        known = OWN.get(name, function)
        if (known.__module__, known.__qualname__) != (function.__module__, function.__qualname__):
            raise UserError(f"metric {name} is defined twice: in {known.__module__} and in {function.__module__}")
        OWN[name] = function
        return function

    return register


def score(probs: Tensor, labels: Tensor, bins: int = 30) -> dict[str, float]:
    """Every metric of one prediction, by name."""
    return {
        "accuracy": accuracy(probs, labels),
        "ece": ece(probs, labels, bins),
        "nll": nll(probs, labels),
        "brier": brier(probs, labels),
        "entropy": entropy(probs.double()).mean().item(),
    } | {name: finite(name, function(probs, labels)) for name, function in OWN.items()}


def finite(name: str, value: Any) -> float:
    """A user's own metric as a float, or a sentence: a result can store nothing else."""
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise UserError(f"metric {name} gives {value!r:.40} instead of a number") from error
    if not math.isfinite(number):
        raise UserError(f"metric {name} gives {number}: results hold finite numbers only")
    return number


def rejection(probs: Tensor, labels: Tensor) -> dict[str, list[float]]:
    """Accuracy of what is kept when the most uncertain images, by predictive entropy, are handed to somebody else."""
    order = entropy(probs.double()).argsort(stable=True)
    right = (probs.argmax(1) == labels)[order].double()
    rejected = [k / 20 for k in range(20)]
    kept = [max(1, round((1 - share) * len(labels))) for share in rejected]
    return {"rejected": rejected, "accuracy": [right[:n].mean().item() for n in kept]}


def auroc(inside: Tensor, outside: Tensor) -> float:
    """Chance that a value outside exceeds one inside, ties counting half: 0.5 is useless, 1 a perfect detector."""
    _, place, count = torch.cat([inside, outside]).unique(return_inverse=True, return_counts=True)
    rank = (count.cumsum(0) - (count - 1) / 2).double()  # equal values share the mean of their ranks
    n, m = len(inside), len(outside)
    return ((rank[place[n:]].sum() - m * (m + 1) / 2) / (n * m)).item()


def temperature(probs: Tensor, labels: Tensor, bins: int = 30) -> dict[str, float]:
    """ECE and NLL of temperature-scaled predictions. With no validation set, each half of the images scales the other.

    The temperature divides the logarithm of the mean probabilities: one number, which cannot change the accuracy.
    """
    logits = probs.double().clamp_min(TINY).log()
    halves = [slice(0, None, 2), slice(1, None, 2)]
    fitted = [fit_temperature(logits[half], labels[half]) for half in halves]
    scaled = torch.empty_like(logits)
    for half, t in zip(halves, reversed(fitted), strict=True):
        scaled[half] = (logits[half] / t).softmax(1)
    return {"temperature": sum(fitted) / 2, "ece": ece(scaled, labels, bins), "nll": nll(scaled, labels)}


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The temperature of least NLL, which is convex in 1/T: bisection between T = 1/100 and 100.

    Without a mistake the NLL falls until T = 0, which says nothing of other images: then T stays 1.
    """
    if (logits.argmax(1) == labels).all():
        return 1.0
    low, high, own = 0.01, 100.0, logits.gather(1, labels[:, None]).mean()
    for _ in range(50):
        middle = (low * high) ** 0.5
        slope = ((logits / middle).softmax(1) * logits).sum(1).mean() - own  # of the NLL in 1/T
        low, high = (low, middle) if slope < 0 else (middle, high)  # too hot where a larger 1/T helps
    return middle


def jsd(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence of each image in nats (Section 4.4.1)."""
    p, q = p.double(), q.double()
    return entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2


def disagreement(p: Tensor, q: Tensor) -> Tensor:
    """1 for each image that two samples label differently (Section 4.4.2)."""
    return (p.argmax(1) != q.argmax(1)).double()


MEASURES = {"jsd": jsd, "dis": disagreement}


def diversity(samples: Tensor) -> dict[str, Any]:
    """Pairwise matrices between samples (samples, images, classes), or between an ensemble's members."""
    matrices = {name: [[f(p, q).mean().item() for q in samples] for p in samples] for name, f in MEASURES.items()}
    return matrices | {"intervals": intervals(samples)}


def intervals(samples: Tensor, resamples: int = 1000) -> dict[str, list[float]]:
    """95 % percentile bootstrap over images of the mean and the maximum over pairs, the same resamples every time."""
    pairs = list(combinations(samples, 2))
    values = torch.stack([f(p, q) for f in MEASURES.values() for p, q in pairs], 1)
    generator, images = torch.Generator().manual_seed(0), len(values)
    chosen = (torch.randint(images, (images,), generator=generator) for _ in range(resamples))
    counts = (torch.bincount(rows, minlength=images).double() for rows in chosen)  # how often each image was drawn
    drawn = torch.stack([count @ values / images for count in counts]).view(resamples, len(MEASURES), len(pairs))
    ends = torch.tensor([0.025, 0.975], dtype=torch.float64)
    found = {"mean": drawn.mean(2).quantile(ends, 0), "max": drawn.amax(2).quantile(ends, 0)}
    return {f"{kind}_{name}": found[kind][:, k].tolist() for k, name in enumerate(MEASURES) for kind in found}


def by_samples(means: dict[int, Tensor], labels: Tensor, bins: int = 30) -> dict[str, list]:
    """Metrics of the mean of the first k samples: {k: probs} in, a column a metric out."""
    rows = [{"samples": k, **score(probs, labels, bins)} for k, probs in means.items()]
    return {key: [row[key] for row in rows] for key in rows[0]}


def report(evaluated: Any, labels: Tensor, bins: int = 30) -> dict[str, Any]:
    """Everything a result says of one evaluation."""
    several = len(evaluated.first) > 1
    return {
        "metrics": score(evaluated.mean, labels, bins),
        "by_samples": by_samples(evaluated.by_count, labels, bins) if several else None,
        "diversity": diversity(evaluated.first) if several else None,
    }
