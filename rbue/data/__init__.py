"""Images and labels as arrays: official sources in, uint8 tensors out."""

from rbue.data.ood import outside
from rbue.data.sources import DATASETS, Data, load, of

__all__ = ["DATASETS", "Data", "load", "of", "outside"]
