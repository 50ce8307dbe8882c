"""OOD images. A useful uncertainty separates them from the test images of the dataset that a network was trained on."""

import torch
from torchvision.transforms.v2.functional import resize

from rbue.data.corruptions import SEVERITIES, TYPES, corrupt
from rbue.data.sources import DATASETS, load


def ood_name(dataset):
    """Return the name of the dataset whose images are OOD for this one, or "" if there is none."""
    return DATASETS[dataset].ood if dataset in DATASETS else ""


def load_ood(dataset, data, data_dir, size=None):
    """Return the uint8 test images of the OOD dataset, at the size of the training images. Files of other sizes need
    the `size` of their YAML, as in training. The dataset is not downloaded: nobody asked for it."""
    name = ood_name(dataset)
    if name == f"{dataset}_c":
        return mix_corruptions(data.test_images)
    images, shape = load(name, data_dir, size, download=False).test_images, data.test_images.shape[2:]
    return images if images.shape[2:] == shape else resize(images, list(shape), antialias=True)


def mix_corruptions(images):
    """Corrupt every image once at the highest severity. The corruption types alternate from image to image.

    Frost, whose textures may be missing, and a user's own corruptions are left out: every machine has the same set.
    """
    types, index, corrupted = [name for name in TYPES if name != "frost"], torch.arange(len(images)), images.clone()
    for turn, name in enumerate(types):
        rows = index[turn :: len(types)]
        corrupted[rows] = corrupt(images[rows], name, SEVERITIES[-1], rows)
    return corrupted
