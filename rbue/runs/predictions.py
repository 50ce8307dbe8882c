"""A run's prediction for every test image, stored next to its result, so that metrics can be computed without a GPU."""

from dataclasses import dataclass, fields

import numpy as np

BITS = 10  # kept of a 23-bit mantissa: relative errors are up to 5e-4 (1e-3 next to a bin edge) and average out


@dataclass(frozen=True)
class Predictions:
    """One entry per test image; in `foreign_*`, one per OOD image. Entropies are in nats; entropy - sample_entropy is
    the mutual information. Older results have no confidence and no sample entropy of OOD images."""

    label: np.ndarray
    predicted: np.ndarray
    confidence: np.ndarray  # probability of the predicted class
    true_probability: np.ndarray  # probability of the label
    brier: np.ndarray  # squared distance to the one-hot label
    entropy: np.ndarray  # of the mean prediction
    sample_entropy: np.ndarray  # mean entropy of the samples
    foreign_confidence: np.ndarray | None = None
    foreign_entropy: np.ndarray | None = None
    foreign_sample_entropy: np.ndarray | None = None
    loss: np.ndarray | None = None  # negative log-likelihood, only if a true probability is too small for float32

    def save(self, file):
        """Write a compressed .npz of at most 200 kB for 10,000 test images and as many OOD images."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        np.savez_compressed(file, **{name: compact(a) for name, a in arrays.items() if a is not None})

    @classmethod
    def load(cls, path):
        with np.load(path, allow_pickle=False) as stored:
            arrays = {f.name: stored[f.name] for f in fields(cls) if f.name in stored}
        lengths = {(name.startswith("foreign_"), len(array)) for name, array in arrays.items()}
        if len(lengths) > len({foreign for foreign, _ in lengths}):
            raise ValueError("its arrays are of different lengths")
        return cls(**arrays)


def compact(array):
    """Store classes in as few bytes as they need, and round floats, so that the zeroed mantissa bits compress well."""
    if array.dtype.kind in "iu":
        return array.astype(np.min_scalar_type(int(array.max(initial=0))))
    return rounded(array)


def rounded(array):
    """Round to BITS, up or down, but never across an ECE bin edge: one image in another bin would change the ECE."""
    step = np.uint32(1 << (23 - BITS))
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    down = bits & ~(step - 1)
    near, far = (down + step * up for up in (bits - down >= step // 2, bits - down < step // 2))
    crossed = bin_of(near.view(np.float32)) != bin_of(array)
    return np.where(crossed, far, near).view(np.float32)


# --- metrics: as in metrics.py, and more ------------------------------------------------------------------------------


def scores(predictions, bins=30):
    """Compute all metrics. They agree with result.json up to rounding; the last four need OOD images."""
    p, wrong = predictions, predictions.predicted != predictions.label
    known = {
        "accuracy": correct(p).mean(),
        "ece": ece(p, bins),
        "nll": loss(p).mean(),
        "brier": p.brier.mean(dtype=float),
        "entropy": p.entropy.mean(dtype=float),
        "ece_adaptive": ece_adaptive(p, bins),
        "ece_classwise": ece_classwise(p, bins),
        "ece_as_printed": ece_as_printed(p, bins),
        "aurc": aurc(p),
        "auroc_misclassification": auroc(p.entropy[~wrong], p.entropy[wrong]),
    }
    return {name: float(value) for name, value in (known | foreign_scores(p)).items()}


def foreign_scores(p):
    """Measure how well predictive entropy separates OOD images (the positive class) from test images."""
    if p.foreign_entropy is None:
        return {}
    entropies = p.entropy, p.foreign_entropy
    return {
        "auroc": auroc(*entropies),
        "aupr": aupr(*entropies),
        "fpr95": fpr95(*entropies),
        "foreign_entropy": entropies[1].mean(),
    }


def correct(p):
    return (p.predicted == p.label).astype(float)


def loss(p):
    """Negative log-likelihood per image."""
    if p.loss is not None:
        return p.loss.astype(float)
    return -np.log(np.maximum(p.true_probability.astype(float), np.finfo(np.float32).tiny))


def gap(p):
    """Confidence minus correctness per image. ECE adds up the absolute values of its sums over bins."""
    return p.confidence.astype(float) - correct(p)


def bin_of(score, bins=30):
    """The equal-width, right-closed bin of each score: edge k belongs to bin k, and 1 to the last bin."""
    return np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], score)


def distance(place, gaps):
    """Sum over bins of |sum of the gaps in the bin|, divided by the number of images."""
    return np.abs(np.bincount(place, gaps)).sum() / len(gaps)


def ece(p, bins=30):
    return distance(bin_of(p.confidence, bins), gap(p))


def ece_adaptive(p, bins=30):
    """ECE over bins of equally many images, in the order of confidence (Nguyen and O'Connor 2015).

    Images of equal confidence share their mean gap, so the result does not depend on where an edge divides them.
    """
    order = np.argsort(p.confidence, kind="stable")
    place = np.arange(len(order)) * bins // len(order)
    return distance(place, shared_by_ties(p.confidence, gap(p))[order])


def ece_classwise(p, bins=30):
    """Top-label ECE (Gupta and Ramdas 2022): bins within each predicted class, averaged over images.

    It is never below ECE. The class-wise ECE of Kull et al. 2019 needs the probabilities of all classes, which are
    not stored.
    """
    return distance(p.predicted.astype(int) * bins + bin_of(p.confidence, bins), gap(p))


def ece_as_printed(p, bins=30):
    """The formula of Section 4.1.3 as written: bins by the true class's score, but conf(B) of the predicted confidence.

    A bin above 1/2 holds only correct images and a bin near 0 only wrong ones, so nothing cancels. The result is nearly
    mean |confidence - correct|. For a perfectly calibrated confidence c this is 2 mean c(1-c), not 0. It is no
    calibration error and not what the paper's tables hold: on CIFAR-100 with ResNet-18, Single has .159 to .202 by it;
    .11 is printed.
    """
    return distance(bin_of(p.true_probability, bins), gap(p))


def aurc(p):
    """Area under the risk-coverage curve (Geifman et al. 2019): the error among the k images of lowest predictive
    entropy, averaged over k. Images of equal entropy share their mean error, since their order is arbitrary."""
    order = np.argsort(p.entropy, kind="stable")
    wrong = shared_by_ties(p.entropy, 1 - correct(p))[order]
    return (wrong.cumsum() / np.arange(1, len(wrong) + 1)).mean()


def shared_by_ties(score, values):
    """Replace each value by the mean over all values with the same score."""
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    return (np.bincount(place, values) / count)[place]


def auroc(inside, outside):
    """Probability that an `outside` value exceeds an `inside` value (ties count half); NaN if one side is empty."""
    inside = np.sort(inside)
    below = [np.searchsorted(inside, outside, side) for side in ("left", "right")]
    return np.mean(below) / len(inside) if len(inside) and len(outside) else np.nan


def aupr(inside, outside):
    """Average precision of detecting `outside` values by a high value."""
    thresholds, count = np.unique(outside, return_counts=True)
    found, false = (len(x) - np.searchsorted(np.sort(x), thresholds) for x in (outside, inside))
    return (count / len(outside) * found / (found + false)).sum()


def fpr95(inside, outside):
    """Share of `inside` values that reach the threshold which 95 % of the `outside` values reach."""
    threshold = np.sort(outside)[::-1][int(np.ceil(0.95 * len(outside))) - 1]
    return (inside >= threshold).mean()
