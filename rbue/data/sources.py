"""Datasets as verified uint8 tensors, from files on disk or from a download.

    <data_dir>/cifar10/       train_images.npy train_labels.npy test_images.npy test_labels.npy   (uint8 NHWC, int64)
                              or cifar-10-batches-py/, or cifar-10-python.tar.gz
    <data_dir>/cifar100/      the same four arrays, or cifar-100-python/, or cifar-100-python.tar.gz
    <data_dir>/tinyimagenet/  the same four arrays, or tiny-imagenet-200/, or tiny-imagenet-200.zip
                              decoded/ holds its images after they were decoded once; it may be deleted
    digits                    part of scikit-learn, no files
    <data_dir>/<name>/        images of your own (rbue/data/own.py)

If an official dataset is there in none of these forms, it is downloaded. Every array is checked before it is used,
because otherwise nobody would notice that a network was trained on half of a dataset.
"""

from collections.abc import Callable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torchvision.datasets import CIFAR10, CIFAR100
from torchvision.datasets.utils import check_integrity

from rbue.data.download import fetch
from rbue.data.files import NAMES, SUMS, decode_splits, keep, missing_arrays, open_arrays, open_kept, sha256
from rbue.data.names import CLASSES
from rbue.data.own import Own, has_arrays, read_files
from rbue.data.tinyimagenet import class_names, count_images, list_folders, list_validation
from rbue.errors import UserError, at_least, refuse_second

DECODED = "decoded"  # next to the official files: the folder that `keep` stored


@dataclass(frozen=True)
class Data:
    """One dataset in memory. Images stay uint8 (N, 3, H, W), because training is limited by memory bandwidth."""

    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor
    classes: int
    mean: torch.Tensor  # (3,) per channel, of the training pixels scaled to [0, 1]
    std: torch.Tensor
    source: str = ""  # the files that were read, to be printed
    names: tuple[str, ...] = ()  # of the classes; their numbers if they have no names


@dataclass(frozen=True)
class Source:
    """An official dataset: what it must hold, and where its files are."""

    classes: int
    train: int
    test: int
    size: int
    read: Callable[[Path, "Source"], dict]  # the official folder → the four arrays
    url: str = ""  # empty: the data are part of a Python package
    md5: str = ""
    layout: str = ""  # the folder inside the archive
    sha256: dict[str, str] = field(default_factory=dict)  # per array; absent where JPEG decoders may differ
    ood: str = ""  # the dataset whose images are OOD for this one; empty if there is none

    def read_arrays(self, folder, size, download):
        """Return the verified arrays, the class names, and the files that they come from."""
        if size is not None:
            pixels = f"images of {self.size} × {self.size} pixels"
            raise UserError(f"size={size} is for images of your own: {folder.name} has {pixels}")
        arrays, origin = find_arrays(self, folder, download)
        return arrays, CLASSES.get(folder.name, tuple(map(str, range(self.classes)))), origin


def dataset(name, ood=""):
    """Register the decorated function (folder, size) → four arrays as dataset=name; `folder` is <data_dir>/name.

    The function returns a dict of train_images, train_labels, test_images and test_labels, as rbue/data/own.py
    describes them. The dict may also have the class names under `classes`. `ood` names the dataset of OOD images.
    """
    if name.endswith("_c"):
        raise UserError(f"dataset={name} cannot be registered, since _c stands for corrupted test images: rename it")

    def register(read):
        refuse_second(f"dataset={name}", DATASETS[name].read if name in DATASETS else None, read)
        DATASETS[name] = Own(read, ood)
        return read

    return register


def load(dataset: str, data_dir: str | Path, size=None, download=True) -> Data:
    """Return the complete, verified dataset, or raise a UserError that says what is missing and how to get it."""
    if size is not None:
        at_least(1, size=size)
    folder = Path(data_dir).expanduser() / dataset
    source = DATASETS.get(dataset) or unregistered(dataset, folder)
    try:
        arrays, names, origin = source.read_arrays(folder, size, download)
    except OSError as error:
        raise UserError(f"{error.filename or folder} cannot be used: {error.strerror or error}") from error
    images = {name: nchw(arrays[name]) for name in ("train_images", "test_images")}
    labels = {name: torch.from_numpy(np.array(arrays[name])) for name in ("train_labels", "test_labels")}
    mean, std = measure_pixels(images["train_images"])
    classes = int(labels["train_labels"].max()) + 1
    return Data(**images, **labels, classes=classes, mean=mean, std=std, source=origin, names=names)


def refuse_absent(dataset, data_dir):
    """Refuse images that are not there, without reading any. Official files that are missing are downloaded, and a
    reader of the user's own finds its files itself."""
    folder = Path(data_dir).expanduser() / dataset
    source = DATASETS.get(dataset) or unregistered(dataset, folder)
    if source.read is read_files:
        has_arrays(folder)


def unregistered(dataset, folder):
    """Return a dataset of the user's own if a folder of that name exists, else refuse the name."""
    if folder.is_dir():
        return Own()
    forms = "train/<class>/*.png and test/<class>/*.png, or four .npy arrays (docs/datasets.md)"
    known = f"choose one of {', '.join(DATASETS)}"
    raise UserError(f"dataset={dataset} is not known: {known}, or put images of your own into {folder} as {forms}")


KEPT: ContextVar[dict | None] = ContextVar("KEPT", default=None)  # {arguments of `load`: the last dataset}


@contextmanager
def read_once():
    """Keep the last dataset in memory inside, as for a sweep, whose jobs mostly share one."""
    token = KEPT.set({})
    try:
        yield
    finally:
        KEPT.reset(token)


def load_or_keep(*arguments):
    if (kept := KEPT.get()) is None:
        return load(*arguments)
    if arguments not in kept:
        kept.clear()  # before the next one is read: two may not fit into memory
        kept[arguments] = load(*arguments)
    return kept[arguments]


def load_for(run) -> Data:
    """Return the dataset that a run trains and tests on. With `holdout`, the test images come from the training set."""
    data = load_or_keep(run.trained_on, run.data_dir, run.size)
    if run.crop > (side := data.train_images.shape[2]):
        raise UserError(f"crop={run.crop} shifts images by more than their {side} pixels: choose crop={side} or less")
    data = hold_out(data, run.holdout) if run.holdout else data
    if run.batch > (count := len(data.train_images)):
        raise UserError(f"batch={run.batch} is more than the {count} training images: choose batch={count} or less")
    return data


def hold_out(data, count):
    """Replace the test images by `count` images of the training set, which are the same for every run."""
    total = len(data.train_images)
    if count > total - 2:  # a network is tried out with two images
        left = f"{max(total - count, 0)} of {total} training images"
        raise UserError(f"holdout={count} leaves {left}: choose holdout={total - 2} or less")
    order = torch.randperm(total, generator=torch.Generator().manual_seed(0))
    test, train = order[:count].sort().values, order[count:].sort().values
    return replace(
        data,
        train_images=data.train_images[train],
        train_labels=data.train_labels[train],
        test_images=data.train_images[test],
        test_labels=data.train_labels[test],
    )


def find_arrays(source, folder, download):
    """Return the arrays and their origin: a Python package, the user's .npy files, decoded images, official files or a
    download, in this order of preference."""
    if not source.url:
        return source.read(folder, source), "scikit-learn"
    root, kept = folder / source.layout, folder / DECODED
    if not missing_arrays(folder):
        return read_beside(source, folder)
    if kept.exists():
        return read_verified(source, open_kept, kept, kept, "decode")
    if not root.exists():
        if not download and not (folder / Path(source.url).name).exists():
            raise UserError(f"{folder} holds no {source.layout}: make data DATASET={folder.name} fetches it")
        fetch(source, folder)
    return read_verified(source, lambda root: source.read(root, source), root, root)


def read_beside(source, folder):
    """Read the four arrays next to the official files. They are the user's own, or what an older version of this suite
    decoded, which has a list of sums."""
    own, sums = folder / "*.npy", folder / SUMS
    if source.sha256 or not sums.exists():
        return read_verified(source, open_arrays, folder, own)
    try:
        return read_verified(source, open_kept, folder, own, "decode")
    except UserError as wrong:
        raise UserError(f"{wrong}; if these arrays are your own, delete {sums} instead") from wrong


def read_verified(source, read, place, origin, verb="download"):
    """Return the arrays that `read` finds at a place, and their origin. If they are wrong, say what to delete."""
    try:
        arrays = read(place)
        for name in NAMES:
            path = place / f"{name}.npy"
            verify(arrays[name], name, source, path if path.exists() else place)
    except UserError as wrong:
        raise UserError(f"{wrong}: delete {origin} and run the command again to {verb} it") from wrong
    return arrays, str(origin)


def nchw(images):
    """Return a copy as an NCHW tensor. It is a copy because the original may be a read-only memory map."""
    return torch.from_numpy(np.array(images.transpose(0, 3, 1, 2), order="C"))


def measure_pixels(images):
    """Return mean and standard deviation per channel of pixels scaled to [0, 1], from histograms of the 256 values."""
    values = torch.arange(256, dtype=torch.float64) / 255
    shares = torch.stack([torch.bincount(images[:, c].flatten(), minlength=256) for c in range(3)]).double()
    shares /= shares.sum(1, keepdim=True)
    mean = shares @ values
    std = (shares * (values - mean[:, None]) ** 2).sum(1).sqrt()
    return mean.float(), std.float().clamp_min(1 / 255)  # the standard deviation of a constant channel is zero


# --- verification -----------------------------------------------------------------------------------------------------


def verify(array, name, source, path):
    """Check shape and type, then the labels, then the sha256. The first error is reported with the file's name."""
    count = source.train if name.startswith("train") else source.test
    images, what = name.endswith("images"), name.replace("_", " ")
    shape, dtype = ((count, source.size, source.size, 3), "uint8") if images else ((count,), "int64")
    if array.shape != shape or array.dtype != dtype:
        raise UserError(f"{path} holds {what} of {array.dtype} {array.shape} instead of {dtype} {shape}")
    if not images:
        verify_labels(array, source.classes, path)
    expected = source.sha256.get(name)
    if expected and (found := sha256(array)) != expected:
        raise UserError(f"{path} does not hold the official {what} (sha256 {found[:8]}…, not {expected[:8]}…)")


def verify_labels(labels, classes, path):
    """Check the range of the labels, and that every class has the same number of images, as in all official splits."""
    if labels.min() < 0 or labels.max() >= classes:
        raise UserError(f"{path} holds labels {labels.min()} to {labels.max()} instead of 0 to {classes - 1}")
    counts, each = np.bincount(labels, minlength=classes), len(labels) // classes
    if (counts != each).any():
        worst = int((counts != each).argmax())
        raise UserError(f"{path} holds {counts[worst]} labels of class {worst} instead of {each}")


# --- CIFAR ------------------------------------------------------------------------------------------------------------


def read_cifar(kind, root, source):
    """Read the official files through torchvision, which checks each file's md5 before it unpickles it."""
    try:
        train, test = (kind(root.parent, train=train) for train in (True, False))
    except RuntimeError as error:
        expected = dict([*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])])
        bad = ", ".join(name for name, md5 in expected.items() if not check_integrity(root / name, md5))
        raise UserError(f"{root} lacks a complete official {bad}") from error
    return {
        "train_images": train.data,
        "train_labels": np.array(train.targets, np.int64),
        "test_images": test.data,
        "test_labels": np.array(test.targets, np.int64),
    }


# --- TinyImageNet -----------------------------------------------------------------------------------------------------


def read_tinyimagenet(root, source):
    """Decode the JPEGs and store the arrays next to them. The validation split is the test set, since the public test
    split has no labels."""
    wnids = class_names(root, source.classes)
    train, test = list_folders(root / "train", wnids), list_validation(root / "val", wnids)
    count_images(train, wnids, source.train, root / "train")
    count_images(test, wnids, source.test, root / "val")
    arrays = decode_splits(train, test, source.size, root.name)
    keep(arrays, root.parent / DECODED)
    return arrays


# --- digits -----------------------------------------------------------------------------------------------------------


def read_digits(folder, source):
    """Return scikit-learn's 1,797 handwritten digits of 8 × 8 pixels, enlarged to 32 × 32, in one fixed split."""
    from sklearn.datasets import load_digits  # imported here because it takes seconds

    digits = load_digits()
    grey = torch.from_numpy(digits.images).float()[:, None]
    # Bilinear by a factor of four, then 0..16 → 0..255: every step is exact in fp32, so all machines get the same bytes
    grey = torch.nn.functional.interpolate(grey, size=(source.size, source.size), mode="bilinear") * (255 / 16)
    images = grey.round().clamp(0, 255).byte().permute(0, 2, 3, 1).repeat(1, 1, 1, 3).numpy()
    order = np.random.RandomState(0).permutation(len(images))  # NumPy promises that RandomState's numbers never change
    train, test = order[: source.train], order[source.train :]
    labels = digits.target.astype(np.int64)
    return dict(zip(NAMES, (images[train], labels[train], images[test], labels[test]), strict=True))


def cifar(kind, classes, ood, *sha256):
    archive = {"url": kind.url, "md5": kind.tgz_md5, "layout": kind.base_folder}
    sums = dict(zip(NAMES, sha256, strict=True))
    return Source(classes, 50_000, 10_000, 32, partial(read_cifar, kind), **archive, sha256=sums, ood=ood)


DATASETS: dict[str, Source | Own] = {
    "cifar10": cifar(
        CIFAR10,
        10,
        "cifar100",
        "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "f5cfe00b0f00968c0cc5ff3b1d2de51b10e33efa277c2986f4e0fa63e58c9f4f",
        "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        "cbb7365de8ed11f05cc4c3a1e7f78144127c5e851efd83762fb18202461230bb",
    ),
    "cifar100": cifar(
        CIFAR100,
        100,
        "cifar10",
        "4e457917601a66aed021f5fa37957b56c6319557c0a8ed5484de3c390af45430",
        "8bf4935e7c77a3096270043c6f3b221b6ecb9c63d1a08608e9af66cff17e977a",
        "4cb8e5d9309da489bf6b19cc10cd96c3ae6f8daf225380b605aaee4c0d6aee19",
        "80031c23f8300724c6fbc588e4bccbe41c6392041782148727bb497b0132c4ad",
    ),
    "tinyimagenet": Source(
        classes=200,
        train=100_000,
        test=10_000,
        size=64,
        read=read_tinyimagenet,
        url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        md5="90528d7ca1a48142e341f4ef8d21d0de",
        layout="tiny-imagenet-200",
    ),
    "digits": Source(classes=10, train=1_437, test=360, size=32, read=read_digits, ood="digits_c"),
}
