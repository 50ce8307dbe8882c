"""Training: `load_or_train` loads trained networks from disk or trains them, several at once on a GPU."""

from rbue.training.packs import load_or_train, train_in_packs

__all__ = ["load_or_train", "train_in_packs"]
