"""Reading files into arrays: .npy files as memory maps, images by Pillow. Decoded arrays are stored on disk."""

import hashlib
import json
import os
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
from tqdm import tqdm

from rbue.errors import UserError

NAMES = ("train_images", "train_labels", "test_images", "test_labels")


SUMS = "sha256.json"  # of arrays that were decoded here


class WrongSize(UserError):
    """An image has another size than the images before it."""


def open_npy(path):
    """Open a .npy file as a memory map. Refuse a file that is shorter than its header says."""
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, EOFError, SyntaxError) as error:
        raise UserError(f"{path} is truncated or no .npy array ({error})") from error


def list_some(names, shown=3):
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def decode_splits(train, test, size, name, fit=False):
    """Decode two lists of (path, label). Return images and labels of both splits by name."""
    with tqdm(total=len(train) + len(test), desc=f"decoding {name}", unit=" images", disable=None) as bar:
        return {
            "train_images": decode_all(train, size, bar, fit),
            "train_labels": np.array([label for _, label in train], np.int64),
            "test_images": decode_all(test, size, bar, fit),
            "test_labels": np.array([label for _, label in test], np.int64),
        }


def decode_all(pairs, size, bar, fit=False):
    """Decode all images. Threads suffice, because Pillow releases the GIL while it decodes."""
    out = np.empty((len(pairs), size, size, 3), np.uint8)
    with ThreadPoolExecutor() as pool:
        for k, pixels in enumerate(pool.map(partial(decode, size=size, fit=fit), (path for path, _ in pairs))):
            out[k] = pixels
            bar.update()
    return out


def decode(path, size, fit=False):
    """Decode one image as RGB. `fit` crops and resizes it; without `fit`, an image of another size is refused."""
    try:
        with Image.open(path) as image:
            refuse_deep(image, path)
            pixels = fit_square(image.convert("RGB"), size) if fit else np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path} cannot be decoded ({error})") from error
    if pixels.shape != (size, size, 3):
        raise WrongSize(f"{path} is {pixels.shape[1]} × {pixels.shape[0]} pixels instead of {size} × {size}")
    return pixels


def refuse_deep(image, path):
    """Refuse images of more than 8 bits per channel: Pillow would clip them at 255 and return a white image."""
    if image.mode.startswith(("I", "F")):
        raise UserError(f"{path} has more than 8 bits per channel: save it with 8")


def fit_square(image, size):
    """Return the largest centred square of a Pillow image, resized."""
    return np.asarray(ImageOps.fit(image, (size, size)))


def keep(arrays, folder):
    """Store the arrays and their sha256 in the folder atomically, so that a killed process leaves no incomplete file.

    If the folder is read-only, warn: the next run decodes the images again.
    """
    try:
        (folder / SUMS).unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder) as scratch:
            for name, array in arrays.items():
                np.save(Path(scratch) / f"{name}.npy", array)
            sums = {name: sha256(array) for name, array in arrays.items()}
            Path(scratch, SUMS).write_text(json.dumps(sums, indent=1), encoding="utf-8")
            for name in [*(f"{name}.npy" for name in arrays), SUMS]:
                os.replace(Path(scratch) / name, folder / name)
    except OSError as error:
        warnings.warn(f"the decoded images were not kept, so the next run decodes them again: {error}", stacklevel=2)


def open_kept(folder):
    """Open the four arrays as memory maps. Refuse arrays that have changed since `keep` stored them."""
    arrays = {name: open_npy(folder / f"{name}.npy") for name in NAMES}
    for name in changed(arrays, folder / SUMS):
        raise UserError(f"{folder / name}.npy has changed since it was decoded")
    return arrays


def changed(arrays, sums):
    """Return the names of arrays whose sha256 is another. Without the file of sums, the arrays are the user's own."""
    try:
        expected = json.loads(sums.read_text(encoding="utf-8"))
        return [name for name in arrays if sha256(arrays[name]) != expected[name]]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{sums} cannot be read ({error})") from error


def sha256(array):
    return hashlib.sha256(np.ascontiguousarray(array)).hexdigest()
