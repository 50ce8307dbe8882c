"""Datasets: read official files or your own images, and return uint8 tensors with labels."""

from rbue.data.ood import load_ood
from rbue.data.own import read_files
from rbue.data.sources import DATASETS, Data, dataset, load, load_for, read_once

__all__ = ["DATASETS", "Data", "dataset", "load", "load_for", "load_ood", "read_files", "read_once"]
