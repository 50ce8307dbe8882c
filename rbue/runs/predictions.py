"""What a run predicted for every test image, stored beside its result: metrics are recomputed from it without a GPU."""

from dataclasses import dataclass, fields

import numpy as np

BITS = 10  # kept of a float's 23-bit mantissa: errors of 5e-4 of a value, 1e-3 beside a bin's edge; they average out


@dataclass(frozen=True)
class Predictions:
    """One entry per test image. Entropies are in nats; entropy - sample_entropy is the mutual information."""

    label: np.ndarray
    predicted: np.ndarray
    confidence: np.ndarray  # probability of the predicted class
    true_probability: np.ndarray  # probability of the label
    brier: np.ndarray  # squared distance to the one-hot label
    entropy: np.ndarray  # of the mean prediction
    sample_entropy: np.ndarray  # mean over samples of each one's entropy
    foreign_entropy: np.ndarray | None = None  # entropy of each image of another dataset

    def save(self, file):
        """A compressed .npz, at most 150 kB for 10,000 images."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        np.savez_compressed(file, **{name: compact(a) for name, a in arrays.items() if a is not None})

    @classmethod
    def load(cls, path):
        with np.load(path, allow_pickle=False) as stored:
            arrays = {f.name: stored[f.name] for f in fields(cls) if f.name in stored}
        if len({len(array) for name, array in arrays.items() if name != "foreign_entropy"}) > 1:
            raise ValueError("its arrays are of different lengths")
        return cls(**arrays)


def compact(array):
    """Classes in as few bytes as they need; floats rounded, so that the last bits of their mantissa compress away."""
    if array.dtype.kind in "iu":
        return array.astype(np.min_scalar_type(int(array.max(initial=0))))
    return rounded(array)


def rounded(array):
    """To BITS, up or down, but never over the edge of an ECE bin: there one image alone would show in the ECE."""
    step = np.uint32(1 << (23 - BITS))
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    down = bits & ~(step - 1)
    near, far = (down + step * up for up in (bits - down >= step // 2, bits - down < step // 2))
    crossed = bin_of(near.view(np.float32)) != bin_of(array)
    return np.where(crossed, far, near).view(np.float32)


# --- metrics: as in metrics.py, and more ------------------------------------------------------------------------------


def scores(predictions, bins=30):
    """Every metric by name. Those in result.json agree with it to rounding; the last four need foreign images."""
    p = predictions
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
        "auroc_misclassification": auroc(*split(p.entropy, p.predicted != p.label)),
    }
    return {name: float(value) for name, value in (known | foreign_scores(p)).items()}


def foreign_scores(p):
    """How well predictive entropy tells foreign images, the positive ones, from the test images."""
    if p.foreign_entropy is None:
        return {}
    told = p.entropy, p.foreign_entropy
    return {"auroc": auroc(*told), "aupr": aupr(*told), "fpr95": fpr95(*told), "foreign_entropy": told[1].mean()}


def correct(p):
    return (p.predicted == p.label).astype(float)


def loss(p):
    """Negative log-likelihood of each image; a probability of zero counts as the smallest float32."""
    return -np.log(np.maximum(p.true_probability.astype(float), np.finfo(np.float32).tiny))


def gap(p):
    """How much surer than right each image's prediction is: ECE is made of its sums over bins."""
    return p.confidence.astype(float) - correct(p)


def bin_of(score, bins=30):
    """The equal-width, right-closed bin of each score: edge k belongs to bin k, and 1 to the last."""
    return np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], score)


def distance(place, gaps):
    """The mean over images of |mean gap of the image's bin|."""
    return np.abs(np.bincount(place, gaps)).sum() / len(gaps)


def ece(p, bins=30):
    return distance(bin_of(p.confidence, bins), gap(p))


def ece_adaptive(p, bins=30):
    """ECE over bins of equally many images in the order of confidence (Nguyen and O'Connor 2015).

    Images of equal confidence share their mean, so that it does not matter which of them an edge falls between.
    """
    order = np.argsort(p.confidence, kind="stable")
    place = np.arange(len(order)) * bins // len(order)
    return distance(place, shared_by_ties(p.confidence, gap(p))[order])


def ece_classwise(p, bins=30):
    """Top-label ECE (Gupta and Ramdas 2022): bins within each predicted class, averaged over images.

    Never below ECE. The class-wise ECE of Kull et al. 2019 needs every class's probability, which is not stored.
    """
    return distance(p.predicted.astype(int) * bins + bin_of(p.confidence, bins), gap(p))


def ece_as_printed(p, bins=30):
    """Section 4.1.3 to the letter: bins by the true label's score, but conf(B) of the predicted confidence.

    A bin above 1/2 holds right images alone, one near 0 wrong ones alone, so that nothing cancels: it is nearly
    mean |confidence - correct|, which is 2 mean c(1-c) and not 0 for a perfectly calibrated confidence c. It is no
    calibration error, and not what the paper's tables hold: CIFAR-100's Single has .145 or more by it, printed .11.
    """
    return distance(bin_of(p.true_probability, bins), gap(p))


def bounds_as_printed(reliability):
    """Between what `ece_as_printed` lies, to a thousandth, for a run that kept its reliability diagram alone.

    Above 1/2 each right image adds 1 - confidence. Right ones below and wrong ones may share bins, and then cancel.
    """
    bars = [np.array([bar or 0 for bar in bars]) for bars in vars(reliability).values()]
    share, confidence, accuracy = bars[0] / bars[0].sum(), *bars[1:]
    right, wrong = share * accuracy * (1 - confidence), (share * (1 - accuracy) * confidence).sum()
    low, high = np.split(right, [len(right) // 2])
    return high.sum() + abs(wrong - low.sum()), right.sum() + wrong


def aurc(p):
    """Area under the risk-coverage curve (Geifman et al. 2019): the error among the k least uncertain images by
    predictive entropy, averaged over k. Images of equal entropy come in any order, so they share their mean."""
    order = np.argsort(p.entropy, kind="stable")
    wrong = shared_by_ties(p.entropy, 1 - correct(p))[order]
    return (wrong.cumsum() / np.arange(1, len(wrong) + 1)).mean()


def shared_by_ties(score, values):
    """Each value replaced by the mean of those with the same score."""
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    return (np.bincount(place, values) / count)[place]


def split(values, chosen):
    return values[~chosen], values[chosen]


def auroc(inside, outside):
    """Chance that a value outside exceeds one inside, ties counting half; NaN where a side is empty."""
    inside = np.sort(inside)
    below = [np.searchsorted(inside, outside, side) for side in ("left", "right")]
    return np.mean(below) / len(inside) if len(inside) and len(outside) else np.nan


def aupr(inside, outside):
    """Average precision of finding the outside ones by a high value, over the thresholds there are."""
    thresholds, count = np.unique(outside, return_counts=True)
    found, false = (len(x) - np.searchsorted(np.sort(x), thresholds) for x in (outside, inside))
    return (count / len(outside) * found / (found + false)).sum()


def fpr95(inside, outside):
    """Share of inside values that pass the threshold which 95 % of the outside ones pass."""
    threshold = np.sort(outside)[::-1][int(np.ceil(0.95 * len(outside))) - 1]
    return (inside >= threshold).mean()
