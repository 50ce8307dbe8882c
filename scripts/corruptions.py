"""Write a dataset's 95 corrupted test sets in the official layout, with the sha256 of each.

python scripts/corruptions.py cifar10 --data-dir data --out data/cifar10_c

It writes one <type>.npy per corruption, uint8 (5 N, H, W, 3) sorted by severity, labels.npy, and manifest.json with the
sha256 of each. After an interruption, the same command continues: a file is finished if its sha256 is in the manifest.
Files of another origin are never replaced. If new images have another sha256 than a manifest says, the command ends
with an error.
"""

import argparse
import hashlib
import sys
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs without an install

import numpy as np
import torch
from tqdm import tqdm

from rbue.cli import one_sentence_errors, parse_with_plugins
from rbue.data import load
from rbue.data.corrupted import MANIFEST, clean_sha256, read_manifest, refuse_size
from rbue.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from rbue.data.corruptions.weather import NoTextures, texture_digest
from rbue.data.files import open_npy, sha256
from rbue.errors import UserError, one_of, within
from rbue.runs import devices, locks, results
from rbue.runs.compose import size_of

HEAD = 100  # the first images of a set have a sha256 of their own, so that a quick check needs only these


def file_sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def nhwc(images):
    return images.permute(0, 2, 3, 1).contiguous().cpu().numpy()


def npy_header(shape):
    file = BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return file.getvalue()


# --- what is there ----------------------------------------------------------------------------------------------------


def open_manifests(args, count):
    """Return {path: manifest}: the folder's own, which says which files are ours, and the one that --manifest names."""
    identity = {"dataset": args.dataset, "seed": args.seed, "images": count}
    paths = {args.manifest: "name a new --manifest", args.out / MANIFEST: "name another folder with --out"}
    return {path: open_manifest(path, identity, way_out) for path, way_out in paths.items()}


def open_manifest(path, identity, way_out):
    """Return a manifest, or a new one if there is none. Refuse a manifest of other images."""
    if not path.exists():
        return identity | {"files": {}}
    manifest = read_manifest(path)
    if not manifest:
        raise UserError(f"{path} was not written by this script: {way_out}")
    if {key: manifest[key] for key in identity} != identity:
        raise UserError(f"{path} is of another dataset, seed or number of images: {way_out}")
    return manifest


def entries_of(name, manifests):
    return [manifest["files"][name] for manifest in manifests.values() if name in manifest["files"]]


def list_present(args, manifests):
    """Return {type: sha256} of the files that are there. Refuse those of others, such as official ones, and damaged
    ones: no file is replaced that this script has not written."""
    paths = {name: args.out / f"{name}.npy" for name in args.types}
    present = {name: file_sha256(path) for name, path in paths.items() if path.exists()}
    for name, found in present.items():
        if found not in [entry.get("sha256") for entry in entries_of(name, manifests)]:
            why = "was not written by this script, or has changed since"
            raise UserError(f"{paths[name]} {why}: name another folder with --out, or move it away")
    return present


@contextmanager
def alone_in(folder):
    """Lock the folder inside. Refuse if another process writes there."""
    lock = locks.try_lock(folder)
    if lock is None:
        who = locks.holder(folder) or "another process"
        raise UserError(f"{folder} is being written by {who}: wait until it ends, or name another folder with --out")
    try:
        yield
    finally:
        lock.release()


# --- what is made -----------------------------------------------------------------------------------------------------


def write_sets(args):
    """Write all requested types. If one is refused, the others are still written."""
    data, refusals = load(args.dataset, args.data_dir, args.size), []
    refuse_size(data)
    images = data.test_images.to(devices.choose(args.device))
    with alone_in(args.out), tqdm(total=len(args.types) * len(SEVERITIES), unit="set", disable=None) as bar:
        manifests = open_manifests(args, len(images))
        present = list_present(args, manifests)
        write_labels(args.out / "labels.npy", data)
        for name in args.types:
            bar.set_description(name)
            try:
                finish_type(name, images, manifests, args, bar, present.get(name))
            except NoTextures as sentence:
                print(f"left out: {sentence}", file=sys.stderr)
            except UserError as refused:
                if isinstance(refused.__cause__, OSError):  # a full disk is full for the other types too
                    raise
                refusals.append(str(refused))
    if refusals:
        raise UserError("\n".join(refusals))


def write_labels(path, data):
    """Write the labels, five times over. Labels that are there already are not replaced."""
    labels = np.tile(data.test_labels.numpy().astype(np.uint8 if data.classes <= 256 else int), len(SEVERITIES))
    if not path.exists():
        with results.replacing(path) as file:
            np.save(file, labels)
    elif not np.array_equal(open_npy(path), labels):
        raise UserError(f"{path} holds the labels of other images: name another folder with --out")


def finish_type(name, images, manifests, args, bar, present=None):
    """Generate one type unless it is finished, and compare it with the manifests. `present` is its file's sha256."""
    path, known = args.out / f"{name}.npy", entries_of(name, manifests)
    clean = {"clean": clean_sha256(images)}
    source = clean | ({"textures": texture_digest(args.textures)} if name == "frost" else {})
    finished = {"sha256": present} | source
    if known and all(finished.items() <= (clean | entry).items() for entry in known):
        bar.update(len(SEVERITIES))
        save_entry(name, max(known, key=len), manifests)  # an entry of an older version says less
        return
    with results.replacing(path) as file:
        entry = write_type(file, images, name, args, bar) | source
        refuse_other(path, entry, known)
        save_entry(name, entry, manifests)  # before the file is in place: a file without an entry is not ours


def write_type(file, images, name, args, bar):
    """Write one corruption at five severities into a .npy file, and return its manifest entry."""
    entry, whole, index = {"sets": [], "heads": []}, hashlib.sha256(), torch.arange(len(images), device=images.device)

    def put(data):
        file.write(data)  # no memory map: on a full disk, that would end the process without a word
        whole.update(data)

    put(npy_header((len(SEVERITIES) * len(images), *images.shape[2:], 3)))
    for severity in SEVERITIES:
        made = nhwc(corrupt(images, name, severity, index, args.seed, args.textures))
        put(made)
        entry["sets"].append(sha256(made))
        entry["heads"].append(sha256(made[:HEAD]))
        bar.update()
    return {"sha256": whole.hexdigest()} | entry


def refuse_other(path, entry, known):
    """Refuse new images that differ from those of a manifest. An older manifest does not name the textures of frost."""
    for listed in known:
        if any(entry.get(key) != value for key, value in listed.items()):
            told = f"new sha256 {entry['sha256']}, in the manifest {listed.get('sha256')}"
            raise UserError(f"{path} is left as it is, since the images differ from those of the manifest: {told}")


def save_entry(name, entry, manifests):
    for path, manifest in manifests.items():
        if manifest["files"].get(name) != entry:
            with locks.held(path.with_name(f".{path.name}.lock")):  # processes with other folders may share a manifest
                manifest["files"] |= read_manifest(path).get("files", {})  # another process may have added some
                refuse_other(path, entry, entries_of(name, {path: manifest}))
                manifest["files"][name] = entry
                results.write(path, manifest)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="cifar10, cifar100, tinyimagenet, digits, or the name of your own dataset")
    parser.add_argument("--data-dir", default="data", help="folder of the datasets (default: %(default)s)")
    parser.add_argument("--size", type=int, help="pixels per side of your own images (default: size in the YAML)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the corrupted images")
    parser.add_argument("--types", nargs="+", metavar="TYPE", help="corruption types (default: all)")
    parser.add_argument("--manifest", type=Path, help="another manifest to compare with, besides OUT/manifest.json")
    parser.add_argument(
        "--textures", type=Path, help="folder with frost1 to frost5 (default: package imagecorruptions)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random numbers (default: %(default)s)")
    parser.add_argument(
        "--device", default="auto", help="auto, cpu, cuda or one GPU such as cuda:1 (default: %(default)s)"
    )
    args = parse_with_plugins(parser, None)
    within(0, 2**31 - 1, seed=args.seed)
    args.types = args.types or [*CORRUPTIONS]
    for name in args.types:
        one_of(CORRUPTIONS, types=name)
    args.manifest = args.manifest or args.out / MANIFEST
    args.size = size_of(args.dataset, args.size)
    return args


if __name__ == "__main__":
    with one_sentence_errors():
        write_sets(arguments())
