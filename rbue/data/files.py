"""Reading files into arrays: .npy files as memory maps, images by Pillow. Decoded arrays are stored on disk."""

import errno
import hashlib
import json
import os
import tempfile
import warnings
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from rbue import processes
from rbue.errors import UserError

NAMES = ("train_images", "train_labels", "test_images", "test_labels")
SUMS = "sha256.json"  # of arrays that were decoded here
MANY, AT_ONCE = 5000, 100  # images that are worth a start of processes; images per task


class WrongSize(UserError):
    """An image has another size than the images before it."""


def open_npy(path):
    """Open a .npy file as a memory map. Refuse a file that is shorter than its header says."""
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, EOFError, SyntaxError) as error:
        if "Python objects" in str(error):
            raise UserError(f"{path} holds Python objects: save labels as integers, and images as uint8") from error
        raise UserError(f"{path} is truncated, or is not a .npy array ({error})") from error


def list_some(names, shown=3):
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def decode_splits(train, test, size, name, prepare=None):
    """Decode two lists of (path, label). Return images and labels of both splits by name."""
    with tqdm(total=len(train) + len(test), desc=f"decoding {name}", unit=" images", disable=None) as bar:
        return {
            "train_images": decode_all(train, size, bar, prepare),
            "train_labels": np.array([label for _, label in train], np.int64),
            "test_images": decode_all(test, size, bar, prepare),
            "test_labels": np.array([label for _, label in test], np.int64),
        }


def decode_all(pairs, size, bar, prepare=None):
    """Decode all images. Threads would be slower than one: Pillow holds Python's lock for most of a small image."""
    out = np.empty((len(pairs), size, size, 3), np.uint8)
    with processes.mapping(len(pairs), "decodes images", least=MANY, chunk=AT_ONCE) as mapped:
        for k, pixels in enumerate(mapped(partial(decode, size=size, prepare=prepare), (path for path, _ in pairs))):
            out[k] = pixels
            bar.update()
    return out


def decode(path, size, prepare):
    """Decode one image as RGB. `prepare` may turn and resize it. After that, another size is refused."""
    with opened(path) as image:
        refuse_deep(image, path)
        refuse_transparent(image, path)
        rgb = image.convert("RGB")
        pixels = np.asarray(prepare(rgb) if prepare else rgb)
    if pixels.shape != (size, size, 3):
        raise WrongSize(f"{path} is {pixels.shape[1]} × {pixels.shape[0]} pixels instead of {size} × {size}")
    return pixels


@contextmanager
def opened(path):
    """Open an image inside. Refuse it if Pillow cannot decode it."""
    try:
        with Image.open(path) as image:
            yield image
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path} cannot be decoded ({error})") from error


def refuse_deep(image, path):
    """Refuse images of more than 8 bits per channel: Pillow would clip them at 255 and return a white image."""
    if image.mode.startswith(("I", "F")):
        raise UserError(f"{path} has more than 8 bits per channel: save it with 8")


def refuse_transparent(image, path):
    """Refuse images with transparent pixels: the network would see the hidden colours. Opaque images may have an alpha
    channel."""
    if image.has_transparency_data and image.convert("RGBA").getchannel("A").getextrema()[0] < 255:
        raise UserError(f"{path} has transparent pixels: save it on a background of your choice")


def missing_arrays(folder):
    return [f"{name}.npy" for name in NAMES if not (folder / f"{name}.npy").exists()]


def open_arrays(folder):
    return {name: open_npy(folder / f"{name}.npy") for name in NAMES}


def keep(arrays, folder):
    """Store the arrays and their sha256 in a new folder. It gets its name at the end, so that nobody sees a part of it.

    If another process was faster, its folder stays. If the disk is read-only, warn: the next run decodes again.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder.parent) as scratch:
            os.replace(write_arrays(arrays, Path(scratch, folder.name)), folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # these mean that another process was faster
            said = "the decoded images were not kept, so the next run decodes them again"
            warnings.warn(f"{said}: {error}", stacklevel=2)


def write_arrays(arrays, folder):
    folder.mkdir()
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    sums = {name: sha256(array) for name, array in arrays.items()}
    (folder / SUMS).write_text(json.dumps(sums, indent=1), encoding="utf-8")
    return folder


def open_kept(folder):
    """Open the arrays that `keep` stored. Refuse them if one is missing or has changed since then."""
    try:
        arrays, sums = open_arrays(folder), json.loads((folder / SUMS).read_text(encoding="utf-8"))
        damaged = [name for name in NAMES if sha256(arrays[name]) != sums[name]]
    except FileNotFoundError as error:
        raise UserError(f"{error.filename} is missing") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / SUMS} cannot be read ({error})") from error
    if damaged:
        raise UserError(f"{folder / damaged[0]}.npy has changed since it was decoded")
    return arrays


def sha256(array):
    return hashlib.sha256(np.ascontiguousarray(array)).hexdigest()
