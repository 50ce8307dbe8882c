"""What a run predicted for every test image, stored beside its result: metrics are recomputed from it without a GPU."""

from dataclasses import dataclass, fields

import numpy as np

BITS = 10  # kept of a float's 23-bit mantissa: errors of at most 5e-4 of a value, which average out over images


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
            return cls(**{f.name: stored[f.name] for f in fields(cls) if f.name in stored})


def compact(array):
    """Classes in as few bytes as they need; floats rounded, so that the last bits of their mantissa compress away."""
    if array.dtype.kind in "iu":
        return array.astype(np.min_scalar_type(int(array.max(initial=0))))
    keep, bits = 23 - BITS, np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + np.uint32(1 << (keep - 1))) & np.uint32(0xFFFFFFFF << keep & 0xFFFFFFFF)).view(np.float32)
