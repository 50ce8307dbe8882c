"""Images that a network was not trained for: a useful uncertainty tells them from its own test images."""

import torch
from torchvision.transforms.v2.functional import resize

from rbue.data.corruptions import SEVERITIES, TYPES, corrupt
from rbue.data.sources import DATASETS, load


def ood_name(dataset):
    """The dataset whose images are foreign to this one; empty where none is named."""
    return DATASETS[dataset].ood if dataset in DATASETS else ""


def load_ood(dataset, data, data_dir):
    """The other dataset's uint8 test images, or a sentence: nobody who asks for CIFAR-10 waits for another download."""
    name = ood_name(dataset)
    if name == f"{dataset}_c":
        return mix_corruptions(data.test_images)
    images = load(name, data_dir, download=False).test_images
    size = data.test_images.shape[2:]
    return images if images.shape[2:] == size else resize(images, list(size), antialias=True)


def mix_corruptions(images):
    """Every image once, the 19 corruptions taking turns at the highest severity.

    Frost is left out even where its textures are, and so are a user's own corruptions: the set is the same on every
    machine.
    """
    types, index, corrupted = [name for name in TYPES if name != "frost"], torch.arange(len(images)), images.clone()
    for turn, name in enumerate(types):
        rows = index[turn :: len(types)]
        corrupted[rows] = corrupt(images[rows], name, SEVERITIES[-1], rows)
    return corrupted
