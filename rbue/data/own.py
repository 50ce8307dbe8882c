"""Your own images: a folder of files is enough, with any number of images and classes.

    <data_dir>/<name>/  train/<class>/*.png and test/<class>/*.png, also .jpg and others: torchvision's ImageFolder
                        or train_images.npy train_labels.npy test_images.npy test_labels.npy: images are uint8
                        (N, H, W, 3), or (N, H, W) or (N, H, W, 1) if grey; labels are integers 0, 1, 2, ...

Grey images are repeated over three channels, since the networks take three. Photographs are turned as their EXIF data
says. All images must be squares of the same size. With `size` in the dataset's YAML, images of any size are cropped to
their centred square and resized.
"""

import hashlib
import os
import shutil
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageOps
from PIL.Image import Transpose
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import IMG_EXTENSIONS, has_file_allowed_extension

from rbue.data import files
from rbue.data.files import NAMES, list_some
from rbue.errors import UserError

WAY_OUT = "size: 32 in the dataset's YAML crops and resizes all images"


def read_files(folder, size=None):
    """Read a folder in one of the two forms. Return the four arrays by name, and the class names if they are known."""
    return files.open_arrays(folder) if has_arrays(folder) else read_images(folder, size)


def has_arrays(folder):
    """Return whether a folder holds the four arrays instead of images. Refuse a folder that holds neither of them."""
    missing = files.missing_arrays(folder)
    if missing and len(missing) < len(NAMES):
        raise UserError(f"{folder} lacks {', '.join(missing)}")
    for split in (folder / "train", folder / "test") if missing else ():
        if not split.is_dir():
            raise UserError(f"{split} is missing: put one folder of images per class into it, or use four arrays")
    return not missing


@dataclass(frozen=True)
class Own:
    """A dataset of the user's own. `read` is a function (folder, size) → the four arrays by name."""

    read: Callable[[Path, int | None], dict] = read_files
    ood: str = ""  # the dataset whose images are OOD for this one; empty if there is none

    def read_arrays(self, folder, size, download):
        """Return the checked arrays, the class names, and the folder that they come from."""
        found = self.read(folder, size)
        arrays = check_arrays(found, folder, size)
        count = int(arrays["train_labels"].max()) + 1
        names = tuple(map(str, found.get("classes", range(count))))  # a result holds texts, not NumPy's or numbers
        if len(names) != count:
            raise UserError(f"the reader of {folder} names {len(names)} classes, but the labels have {count}")
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise UserError(f"the reader of {folder} gives several classes the name {list_some(twice)}")
        return arrays, names, str(folder)


# --- a folder of images -----------------------------------------------------------------------------------------------


def read_images(folder, size):
    """Decode the images and store the arrays in a folder of their own, to use them again until a file changes. Beside
    train/ they would look like the user's four arrays."""
    splits = list_split(folder / "train"), list_split(folder / "test")
    refuse_other_classes(*splits)
    train, test = ([(Path(path), label) for path, label in split.samples] for split in splits)
    kept, names = folder / f"decoded-{fingerprint(folder, [*train, *test], size)}", {"classes": splits[0].classes}
    if kept.exists():
        with suppress(UserError):
            return files.open_kept(kept) | names
        shutil.rmtree(kept, ignore_errors=True)  # damaged arrays are decoded again
    side = first_side(train[0][0]) if size is None else size
    try:
        arrays = files.decode_splits(train, test, side, folder.name, partial(turn_and_fit, size=size))
    except files.WrongSize as wrong:
        raise UserError(f"{wrong}: {WAY_OUT}") from wrong
    files.keep(arrays, kept)
    return arrays | names


def is_hidden(path, root):
    """Return whether a file is hidden or in a hidden folder, such as .ipynb_checkpoints. Such files are not read."""
    return any(part.startswith(".") for part in Path(os.path.relpath(path, root)).parts)


class ClassFolders(ImageFolder):
    """One folder per class. Hidden folders and files are left out."""

    def __init__(self, root):
        super().__init__(root, is_valid_file=self.is_read, allow_empty=True)

    def is_read(self, path):
        return has_file_allowed_extension(path, IMG_EXTENSIONS) and not is_hidden(path, self.root)

    def find_classes(self, directory):
        classes = [name for name in super().find_classes(directory)[0] if not name.startswith(".")]
        if not classes:
            raise FileNotFoundError(f"{directory} holds only hidden folders")
        return classes, {name: label for label, name in enumerate(classes)}


def list_split(split):
    """List the images of a split with torchvision's ImageFolder: the classes are the sorted names of the folders."""
    found = ClassFolders(split)
    if strange := [ascii(name) for name in found.classes if not is_text(name)]:
        raise UserError(f"{split} holds folders whose names are not UTF-8 ({list_some(strange)}): rename them")
    if split.name == "train" and len(found.classes) < 2:  # a class that test lacks is named later
        raise UserError(f"{split} holds one folder of images, {found.classes[0]}: a classifier needs two classes")
    refuse_loops(found)
    warn_of_unread(found)
    full = {label for _, label in found.samples}
    if empty := [name for label, name in enumerate(found.classes) if label not in full]:
        raise UserError(f"{split} holds no image of the class {list_some(empty)}")
    return found


def refuse_loops(found):
    """Refuse a class that reads one folder under several names, as a link to a folder above it makes it."""
    known = {}
    for folder, label in sorted({(os.path.dirname(path), label) for path, label in found.samples}):
        other = known.setdefault((os.path.realpath(folder), label), folder)
        if other != folder:
            raise UserError(f"{folder} is the same folder as {other}, through a link: remove the link")


def is_text(name):
    """Return whether a file's name is valid UTF-8: Python marks the bytes of other names, and no result can hold
    these marks."""
    return name.encode(errors="ignore").decode() == name


def warn_of_unread(found):
    """Tell of files that are not read: those of other formats, and those outside of the class folders."""
    read = {path for path, _ in found.samples}
    if unread := sorted(os.path.relpath(path, found.root) for path in walk_visible(found.root) if path not in read):
        many = f"{len(unread)} files that are not read, such as" if len(unread) > 1 else "a file that is not read,"
        wanted = f"only images in class folders are, with the endings {', '.join(IMG_EXTENSIONS)}"
        warnings.warn(f"{found.root} holds {many} {unread[0]}: {wanted}", stacklevel=2)


def walk_visible(root):
    """Yield the paths of all files that are not hidden. Hidden folders are not entered: they may link anywhere."""
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (os.path.join(folder, name) for name in names if not name.startswith("."))


def refuse_other_classes(train, test):
    for here, there in ((train, test), (test, train)):
        if missing := sorted(set(there.classes) - set(here.classes)):
            raise UserError(f"{here.root} lacks the class {list_some(missing)}, which {there.root} has")


def fingerprint(folder, pairs, size):
    """Hash the files' names, sizes and modification times, and how the images are prepared. Arrays of an older version,
    which did not turn photographs, have another hash."""
    stats = ((path.relative_to(folder), path.stat()) for path, _ in pairs)
    lines = [f"{path} {stat.st_size} {stat.st_mtime_ns}" for path, stat in stats]
    return hashlib.sha256(os.fsencode("\n".join([f"upright {size}", *lines]))).hexdigest()[:16]  # names may be no UTF-8


def turn_and_fit(image, size):
    """Turn an image upright. With a size, crop it to its largest centred square and resize it."""
    turned = upright(image)
    return turned if size is None else ImageOps.fit(turned, (size, size))


def upright(image):
    """Turn or mirror an image as its EXIF data says. ImageOps.exif_transpose does the same, but refuses an image if any
    other part of this data is damaged."""
    try:
        turn = TURNS.get(image.getexif().get(ExifTags.Base.Orientation))
    except Exception:  # damaged EXIF data may raise anything, and the pixels are there
        turn = None
    return image if turn is None else image.transpose(turn)


TURNS = {  # EXIF's orientation → what undoes it
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_270,
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_90,
}


def first_side(path):
    """Return the pixels per side of the first image: all others must have the same size."""
    with files.opened(path) as image:
        width, height = image.size
    refuse_oblong(width, height, path)
    return width


def refuse_oblong(width, height, path):
    if width != height:
        raise UserError(f"{path} holds {width} × {height} pixels, which is not a square: {WAY_OUT}")


# --- the four arrays --------------------------------------------------------------------------------------------------


def check_arrays(found, folder, size):
    """Return the arrays as RGB images of one size with labels 0, 1, 2, ..., or refuse them and name the wrong file."""
    if missing := [name for name in NAMES if name not in found]:
        raise UserError(f"the reader of {folder} returns no {', '.join(missing)}")
    path = {name: folder / f"{name}.npy" for name in NAMES}
    arrays = {name: np.asarray(found[name]) for name in NAMES}
    for split in ("train", "test"):
        images, labels = f"{split}_images", f"{split}_labels"
        arrays[images] = square(as_rgb(arrays[images], path[images]), size, path[images])
        arrays[labels] = check_labels(arrays[labels], len(arrays[images]), path[labels])
    check_classes(arrays["train_labels"], arrays["test_labels"], path)
    sides = {name: arrays[name].shape[1] for name in ("train_images", "test_images")}
    if len(set(sides.values())) > 1:
        told = " and ".join(f"{path[name]} holds images of {side} × {side} pixels" for name, side in sides.items())
        raise UserError(f"{told}: {WAY_OUT}")
    return arrays


def as_rgb(images, path):
    """Return grey or coloured images as (N, H, W, 3)."""
    channels = images.shape[3:] or (1,)
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or channels not in ((1,), (3,)) or not images.size:
        wanted = "uint8 (images, height, width, 3), or (images, height, width) for grey images"
        raise UserError(f"{path} holds {images.dtype} {images.shape} instead of {wanted}")
    images = images.reshape(*images.shape[:3], *channels)
    return np.broadcast_to(images, (*images.shape[:3], 3))


def square(images, size, path):
    height, width = images.shape[1:3]
    if size is None:
        refuse_oblong(width, height, path)
    if size in (None, height) and width == height:
        return images
    return np.stack([ImageOps.fit(Image.fromarray(np.ascontiguousarray(image)), (size, size)) for image in images])


def check_labels(labels, count, path):
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise UserError(f"{path} holds {labels.dtype} {labels.shape} instead of integers ({count},)")
    if len(labels) != count:
        raise UserError(f"{path} holds {len(labels)} labels of {count} images")
    return labels.astype(np.int64)


def check_classes(train, test, path):
    """Check that both splits have images of every class, and that the labels are 0, 1, 2, ... without a gap."""
    known, tested = np.unique(train), np.unique(test)
    if known[0] != 0 or known[-1] != len(known) - 1:
        said = f"holds labels {known[0]} to {known[-1]} of {len(known)} classes"
        raise UserError(f"{path['train_labels']} {said}: they must count 0, 1, 2 and so on without a gap")
    if len(known) < 2:
        raise UserError(f"{path['train_labels']} holds one class: a classifier needs two or more")
    if strange := np.setdiff1d(tested, known).tolist():
        raise UserError(f"{path['test_labels']} holds label {strange[0]}, and training labels are 0 to {known[-1]}")
    if absent := np.setdiff1d(known, tested).tolist():
        raise UserError(f"{path['test_labels']} holds no image of class {list_some(list(map(str, absent)))}")
