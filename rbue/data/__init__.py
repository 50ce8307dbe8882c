"""Images and labels as arrays: official sources and your own images in, uint8 tensors out."""

from rbue.data.ood import load_ood
from rbue.data.own import read_files
from rbue.data.sources import DATASETS, Data, dataset, load, load_for

__all__ = ["DATASETS", "Data", "dataset", "load", "load_for", "load_ood", "read_files"]
