"""Training: `load_or_train` loads trained networks from disk or trains them, several at once on a GPU."""

from rbue.training.packs import check_trained, load_or_train, train_in_packs

__all__ = ["check_trained", "load_or_train", "train_in_packs"]
