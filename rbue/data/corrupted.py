"""Corrupted test sets: the user's official files, or sets that are generated here. The two are never mixed.

    <data_dir>/cifar10_c/       <type>.npy and labels.npy, here or in CIFAR-10-C/     (sorted by severity)
    <data_dir>/cifar100_c/      the same, here or in CIFAR-100-C/
    <data_dir>/tinyimagenet_c/  <type>/<severity>/<wnid>/*.JPEG, here, in Tiny-ImageNet-C/ or in Tiny-ImageNet-C-extra/
    <data_dir>/*_c/             sets that scripts/corruptions.py has generated, so that they are not generated again

The official CIFAR sets hold the test images, corrupted, in the same order. Our sets of TinyImageNet are made from its
validation images, but the official Tiny-ImageNet-C is made from other images of the same classes. So results on
official and on generated sets are not comparable.

Arrays are official if their md5 is. Arrays of the same layout with another md5 are neither official nor ours: results
on them say `unverified`. No md5 of the unpacked images of Tiny-ImageNet-C is known, so its layout decides.
"""

import hashlib
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from rbue.data.checksums import CIFAR10_C, CIFAR100_C
from rbue.data.corruptions import CORRUPTIONS, SEVERITIES, TYPES, corrupt, weather
from rbue.data.files import decode_all, list_some, open_npy, sha256
from rbue.data.sources import nchw
from rbue.data.tinyimagenet import count_images, list_folders
from rbue.errors import UserError, one_of

WAY_OUT = "set corruptions=generated to generate the images"
MANIFEST = "manifest.json"  # of scripts/corruptions.py
# mean correlation of images with their clean originals: the 95 sets have 0.64 to 1.00, shuffled ones 0.04
RELATED = 0.3


@dataclass(frozen=True)
class Sets:
    """The corrupted sets of one source. They are read one at a time, since all of them take gigabytes."""

    source: str  # "official", "generated" or "unverified": results on two of them are not comparable
    reader: Callable  # (name, severity, device) → images and labels
    cells: list  # of (name, severity)

    def read(self, name, severity, device):
        """Return uint8 images (N, 3, H, W) and int64 labels on the device."""
        if (name, severity) not in self.cells:
            raise UserError(f"{name} at severity {severity} is none of the {len(self.cells)} corrupted sets")
        images, labels = self.reader(name, severity, device)
        return images.to(device), labels.to(device)


@dataclass(frozen=True)
class Official:
    """A dataset's official corrupted sets: where they come from, and how they are checked and read."""

    record: str
    archives: tuple[str, ...]
    names: tuple[str, ...]  # the files or folders of a complete set
    check: Callable  # (paths, data): all checks that are cheap, run before the first set is evaluated
    read: Callable  # (paths, data, name, severity, device) → images and labels
    md5: dict[str, str] = field(default_factory=dict)  # of the files, where known
    note: str = ""

    @property
    def origin(self):
        return f"{' and '.join(self.archives)} of https://zenodo.org/records/{self.record}{self.note}"


def sets(run, data) -> Sets:
    """Return the corrupted test sets of the clean dataset `data`. `auto` prefers the official files."""
    one_of(("auto", "official", "generated"), corruptions=run.corruptions)
    if run.corruptions == "generated":
        return offer_generated(data, {})
    folder = Path(run.data_dir).expanduser() / f"{run.trained_on}_c"
    try:
        return choose_sets(run, data, folder)
    except OSError as error:
        raise UserError(f"{error.filename or folder} cannot be used: {error.strerror or error}") from error


def choose_sets(run, data, folder):
    """Return the official sets if all are there, and generated sets if none is. Refuse an incomplete collection: a box
    plot over official and generated types together would be comparable with neither."""
    official = OFFICIAL.get(run.trained_on)
    paths = locate_official(official, folder, data) if official else {}
    if paths:
        refuse_missing(official, folder, paths)
        official.check(paths, data)
        source = verify_official(official, paths, data, insist=run.corruptions == "official")
        warn_of_own(folder)
        return Sets(source, partial(official.read, paths, data), [*product(TYPES, SEVERITIES)])
    if run.corruptions == "official":
        raise UserError(say_absent(official, folder))
    return offer_generated(data, list_kept(folder, run.trained_on, data))


def offer_generated(data, kept):
    """Return all registered types. Reading a type that is not defined for this image size raises an error, and the
    caller leaves it out. `kept` are the files of types that are read from disk."""
    refuse_size(data)
    if "frost" not in kept and CORRUPTIONS["frost"].constants(data.test_images.shape[-1]):
        warn_of_frost()
    try_out_own(data.test_images[:2], kept)
    return Sets("generated", partial(read_or_make, kept, data), [*product(CORRUPTIONS, SEVERITIES)])


def try_out_own(images, kept):
    """Let the user's own corruptions refuse or fail before anything is trained."""
    for name in [name for name in CORRUPTIONS if name not in TYPES and name not in kept]:
        if CORRUPTIONS[name].constants(images.shape[-1]):
            corrupt(images, name, SEVERITIES[0], torch.arange(len(images)))


def refuse_size(data):
    """Refuse images of a size for which no corruption is defined."""
    size = data.test_images.shape[-1]
    if not any(kind.constants(size) for kind in CORRUPTIONS.values()):
        resize = "write size: 32 into the dataset's YAML to resize them"
        raise UserError(f"the corruptions are defined for images of 32 × 32 and 64 × 64, not {size} × {size}: {resize}")


def warn_of_frost():
    """Warn before a long run that frost will be left out: the claims are about all types together."""
    try:
        weather.texture_digest()
    except UserError as why:
        told = f"{len(TYPES) - 1} of the {len(TYPES)} types are tested, but claims about corruption need all of them"
        warnings.warn(f"{told}: {why}", stacklevel=2)


def warn_of_own(folder):
    """Warn that the user's own corruptions are left out: official files do not have them, and sources are not mixed."""
    if own := [name for name in CORRUPTIONS if name not in TYPES]:
        warnings.warn(f"{folder} holds no {', '.join(own)}, so this is not tested: {WAY_OUT}", stacklevel=2)


# --- finding official files -------------------------------------------------------------------------------------------


def locate_official(official, folder, data):
    """Return {name: path} of the official files that exist, or {} if there are labels but no images."""
    inside = [folder, *(folder / Path(archive).stem for archive in official.archives)]
    folders = [place for place in inside if not is_made_here(place, data)]
    places = {name: [place / name for place in folders if (place / name).exists()] for name in official.names}
    paths = {name: found[0] for name, found in places.items() if found}
    if any(Path(name).stem in TYPES for name in paths):
        return paths
    refuse_packed(official, folder)
    return {}


def refuse_packed(official, folder):
    """Refuse an archive that was not unpacked: otherwise generated sets would be used without notice."""
    if waiting := [archive for archive in official.archives if (folder / archive).exists()]:
        raise UserError(f"{folder} holds {' and '.join(waiting)} as an archive: unpack it there with tar, or {WAY_OUT}")


def refuse_missing(official, folder, paths):
    if missing := [name for name in official.names if name not in paths]:
        raise UserError(
            f"{folder} holds some official files and lacks {', '.join(missing)}: "
            f"unpack {official.origin} there, or {WAY_OUT}"
        )


def say_absent(official, folder):
    if official is None:
        return f"{folder.name} has no official files: {WAY_OUT}"
    ours = ", only what scripts/corruptions.py wrote" if read_manifest(folder / MANIFEST) else ""
    return f"{folder} holds no official files{ours}: unpack {official.origin} there, or {WAY_OUT}"


def verify_official(official, paths, data, insist):
    """Return "official" if all files have the official md5, else "unverified". Refuse other files if the user insists
    on official ones, and always if they do not show the test images."""
    others = [path for name, path in paths.items() if name in official.md5 and not has_md5(path, official.md5[name])]
    if not others:
        return "official"
    names = list_some([path.name for path in others])
    if insist:
        again = f"unpack {official.origin} there again"
        raise UserError(f"{others[0].parent} holds files without the official md5 ({names}): {again}, or {WAY_OUT}")
    for path in others:
        refuse_unrelated(path, data)
    told = "results on them are labelled unverified, and are compared with no others"
    warnings.warn(f"{others[0].parent} holds files that are neither official nor ours ({names}): {told}", stacklevel=2)
    return "unverified"


def has_md5(path, md5):
    stat = path.stat()
    return md5_of(path, stat.st_size, stat.st_mtime_ns) == md5


@cache
def md5_of(path, size, changed):
    """Return the md5 of a file. It is read once per process, unless its size or its time of change differ."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def refuse_unrelated(path, data):
    """Refuse a file whose images are constant, or of other images than the test set, or in another order."""
    few = slice(None, None, max(1, len(data.test_images) // 100))
    for severity in SEVERITIES:
        alike = correlation(data.test_images[few], nchw(read_rows(path, data, severity)[few]))
        if alike < RELATED:
            why = f"at severity {severity} they correlate with them by {alike:.2f} instead of at least {RELATED}"
            raise UserError(f"{path} does not hold corrupted test images ({why}): {WAY_OUT}")


def correlation(images, others):
    """Return the mean correlation of the pixels of two images. It is 0 for a constant image."""
    centred = [x.double().flatten(1) - x.double().mean((1, 2, 3))[:, None] for x in (images, others)]
    return torch.cosine_similarity(*centred).mean().item()


# --- CIFAR ------------------------------------------------------------------------------------------------------------


def check_arrays(paths, data):
    """Check the headers and labels of all files, so that a truncated file is found before the evaluation starts."""
    for name in TYPES:
        open_stack(paths[f"{name}.npy"], data)
    path = paths["labels.npy"]
    if not np.array_equal(open_npy(path), np.tile(data.test_labels, len(SEVERITIES))):
        raise UserError(f"{path} does not hold the labels of the clean test images, {len(SEVERITIES)} times over")


def open_stack(path, data):
    """Return a memory map of uint8 (5 N, H, W, 3): only the rows that are used are read from disk."""
    array, (count, channels, *size) = open_npy(path), data.test_images.shape
    shape = (len(SEVERITIES) * count, *size, channels)
    if array.shape != shape or array.dtype != np.uint8:
        raise UserError(f"{path} holds {array.dtype} {array.shape} instead of uint8 {shape}")
    return array


def read_rows(path, data, severity):
    count = len(data.test_images)
    return open_stack(path, data)[(severity - 1) * count : severity * count]


def read_arrays(paths, data, name, severity, device):
    return nchw(read_rows(paths[f"{name}.npy"], data, severity)), data.test_labels


# --- TinyImageNet -----------------------------------------------------------------------------------------------------


def check_folders(paths, data):
    """Check that all 95 sets have the same class folders: the labels follow from their names, and an archive that was
    unpacked only in part is found here."""
    known = class_folders(paths[TYPES[0]] / "1", data.classes)
    for name, severity in product(TYPES, SEVERITIES):
        split = paths[name] / str(severity)
        if other := sorted({*class_folders(split, data.classes)} ^ {*known}):
            raise UserError(f"{split} holds other classes than {paths[TYPES[0]] / '1'} ({list_some(other)})")


def class_folders(split, classes):
    """Return the sorted WordNet ids of the class folders: class k is the k-th of them, as for the clean images."""
    wnids = sorted(path.name for path in split.glob("n*"))
    if len(wnids) > classes:
        origin = OFFICIAL["tinyimagenet"].origin
        raise UserError(f"{split} holds {len(wnids)} classes instead of {classes}: take {origin}, or {WAY_OUT}")
    if len(wnids) != classes:
        raise UserError(f"{split} holds {len(wnids)} of {classes} classes: unpack its archive again, or {WAY_OUT}")
    return wnids


def read_folders(paths, data, name, severity, device):
    split, (count, _, size, _) = paths[name] / str(severity), data.test_images.shape
    wnids = class_folders(split, data.classes)
    pairs = list_folders(split, wnids)
    count_images(pairs, wnids, count, split)
    images = decode_all(pairs, size, tqdm(disable=True))  # the evaluation shows its own progress bar
    if (images == images[0]).all():
        raise UserError(f"{split} holds one image {len(images)} times: unpack its archive again, or {WAY_OUT}")
    return nchw(images), torch.tensor([label for _, label in pairs])


# --- generated sets ---------------------------------------------------------------------------------------------------


def make(data, name, severity, device):
    """Generate one corrupted set. Devices without float64, such as MPS, use the CPU, which gives the same bytes."""
    where = device if torch.device(device).type in ("cpu", "cuda") else "cpu"
    images = data.test_images.to(where)
    if name not in TYPES:
        refuse_chance(images[:4], name, severity)
    return corrupt(images, name, severity, torch.arange(len(images), device=where)), data.test_labels


def refuse_chance(images, name, severity):
    """Refuse a corruption that gives an image other bytes in another batch: no result could be reproduced."""
    places = torch.arange(len(images), device=images.device)
    parts = [corrupt(images[k : k + 1], name, severity, places[k : k + 1]) for k in range(len(images))]
    if not torch.equal(corrupt(images, name, severity, places), torch.cat(parts)):
        raise UserError("its images differ from call to call, or between batches: take random numbers from draws")


def read_or_make(kept, data, name, severity, device):
    """Read one generated set if its file matches the manifest, else generate it: both give the same bytes."""
    if name not in kept:
        return make(data, name, severity, device)
    path, sums = kept[name]
    try:
        images = read_rows(path, data, severity)
        if sha256(images) == sums[severity - 1]:
            return nchw(images), data.test_labels
    except (OSError, UserError):
        pass
    warnings.warn(f"{path} differs from its manifest at severity {severity}, so it is generated again", stacklevel=2)
    return make(data, name, severity, device)


def list_kept(folder, dataset, data):
    """Return {type: (its file, the sha256 of its five sets)} of the generated files that can be reused.

    Files of another dataset or seed, or made from other clean images, hold other images, and so does frost of other
    textures. A user's own type is always generated again, since its function may have changed.
    """
    found = read_manifest(folder / MANIFEST)
    if [found.get(key) for key in ("dataset", "seed", "images")] != [dataset, 0, len(data.test_images)]:
        return {}
    clean = clean_sha256(data.test_images)
    return {
        name: (path, entry["sets"])
        for name, entry in found["files"].items()
        if name in TYPES and is_usual(name, entry) and entry.get("clean", clean) == clean
        if (path := folder / f"{name}.npy").exists()
    }


def clean_sha256(images):
    """Return the sha256 of clean images, which is in each entry of a manifest. Entries of older versions lack it."""
    return sha256(images.cpu())


def is_usual(name, entry):
    """Return whether an entry of a manifest has the sha256 of five sets, and for frost the usual textures."""
    sets = entry.get("sets")
    complete = isinstance(sets, list) and len(sets) == len(SEVERITIES)
    return complete and (name != "frost" or entry.get("textures") == weather.STANDARD)


def read_manifest(path):
    """Return the content of a manifest, or {} if there is no file or it is JSON of another kind."""
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read ({error}): move it away") from error
    return found if is_manifest(found) else {}


def is_manifest(found):
    ours = isinstance(found, dict) and {"dataset", "seed", "images", "files"} <= found.keys()
    return ours and isinstance(found["files"], dict) and all(isinstance(e, dict) for e in found["files"].values())


def is_made_here(folder, data):
    """Return whether this suite generated the files. Without a manifest, the pixels of one noisy image are compared."""
    if read_manifest(folder / MANIFEST):
        return True
    path = folder / "gaussian_noise.npy"
    if not path.exists():
        return False
    ours = corrupt(data.test_images[:1], "gaussian_noise", 1, torch.arange(1)).permute(0, 2, 3, 1).flatten()
    return np.array_equal(open_npy(path).reshape(-1)[: len(ours)], ours)


def cifar(record, archive, md5):
    names = (*(f"{name}.npy" for name in TYPES), "labels.npy")
    return Official(record, (archive,), names, check_arrays, read_arrays, md5)


OFFICIAL = {
    "cifar10": cifar("2535967", "CIFAR-10-C.tar", CIFAR10_C),
    "cifar100": cifar("3555552", "CIFAR-100-C.tar", CIFAR100_C),
    "tinyimagenet": Official(
        "8206060",  # the corrected copy of 2536630: https://github.com/hendrycks/robustness/issues/60
        ("Tiny-ImageNet-C.tar", "Tiny-ImageNet-C-extra.tar"),
        TYPES,
        check_folders,
        read_folders,
        note=" (not the older record 2536630, whose frost has 1,000 classes)",
    ),
}
