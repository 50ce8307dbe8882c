"""Images that a network was not trained for: a useful uncertainty tells them from its own test images."""

import torch

from rbue.data.corruptions import SEVERITIES, TYPES, corrupt
from rbue.data.sources import load

OOD = {"cifar10": "cifar100", "cifar100": "cifar10", "digits": "digits_c"}


def outside(dataset, data, data_dir):
    """The other dataset's uint8 test images, or a sentence: nobody who asks for CIFAR-10 waits for another download."""
    name = OOD[dataset]
    return mixed(data.test_images) if name == f"{dataset}_c" else load(name, data_dir, download=False).test_images


def mixed(images):
    """Every image once, the corruptions taking turns at the highest severity.

    Frost is left out even where its textures are: the set is the same on every machine.
    """
    types, index, corrupted = [name for name in TYPES if name != "frost"], torch.arange(len(images)), images.clone()
    for turn, name in enumerate(types):
        rows = index[turn :: len(types)]
        corrupted[rows] = corrupt(images[rows], name, SEVERITIES[-1], rows)
    return corrupted
