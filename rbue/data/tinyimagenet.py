"""TinyImageNet's folders: lists of (path, label), in an order that does not depend on the machine."""

from collections import Counter

from rbue.data.files import list_some
from rbue.errors import UserError


def class_names(root, classes):
    """Return the sorted WordNet ids: class k is the k-th of them, in any order of wnids.txt."""
    listed, present = root / "wnids.txt", {path.name for path in (root / "train").glob("n*")}
    wnids = sorted(set(read_text(listed).split()) if listed.exists() else present)
    absent = [wnid for wnid in wnids if wnid not in present]
    if len(wnids) != classes or absent:
        names = f" (missing {list_some(absent)})" if absent else ""
        raise UserError(f"{root / 'train'} holds {len(wnids) - len(absent)} of {classes} classes{names}")
    return wnids


def read_text(path):
    try:
        return path.read_text(encoding="utf-8")
    except ValueError as error:
        raise UserError(f"{path} is not text ({error})") from error


def list_folders(split, wnids):
    """List (path, label) of every <wnid>/images/*.JPEG or <wnid>/*.JPEG, sorted by the numbers in the file names."""
    found = [sorted((split / wnid).rglob("*.JPEG"), key=numbered) for wnid in wnids]
    return [(path, label) for label, paths in enumerate(found) for path in paths]


def list_validation(val, wnids):
    """List (path, label) of the validation images: the official val/images with its list of classes, or class folders,
    into which many tools sort them."""
    official = (val / "images").exists() or not any((val / wnid).exists() for wnid in wnids)
    annotations = val / "val_annotations.txt"
    pairs = read_annotations(annotations, val / "images", wnids) if official else list_folders(val, wnids)
    return sorted(pairs, key=lambda pair: numbered(pair[0]))  # the same order for both layouts


def read_annotations(listed, images, wnids):
    if not listed.exists():
        raise UserError(f"{listed} is missing: it names the classes of the validation images")
    labels, present = {wnid: k for k, wnid in enumerate(wnids)}, {path.name for path in images.glob("*")}
    rows = [(*line.split("\t"), "")[:2] for line in read_text(listed).splitlines()]
    if strange := [f"{name} {wnid}" for name, wnid in rows if wnid not in labels]:
        raise UserError(f"{listed} names unknown classes ({list_some(strange)})")
    if absent := [name for name, _ in rows if name not in present]:
        raise UserError(f"{images} lacks {list_some(absent)}")
    if repeated := [name for name, count in Counter(name for name, _ in rows).items() if count > 1]:
        raise UserError(f"{listed} names {list_some(repeated)} more than once")
    return [(images / name, labels[wnid]) for name, wnid in rows]


def numbered(path):
    """Return a sort key that puts val_2 before val_10."""
    return len(path.name), path.name


def count_images(pairs, wnids, total, split):
    """Check the number of images per class before they are decoded, which takes a minute."""
    counts, each = Counter(label for _, label in pairs), total // len(wnids)
    wrong = [f"{wnid}: {counts[k]}" for k, wnid in enumerate(wnids) if counts[k] != each]
    if wrong:
        raise UserError(f"{split} does not hold {each} images of every class ({list_some(wrong)})")
