"""Write a dataset's 95 corrupted test sets in the official layout, with the sha256 of each.

python scripts/corruptions.py cifar10 --data-dir data --out data/cifar10_c

It writes one <type>.npy per corruption, uint8 (5 N, H, W, 3) sorted by severity, and labels.npy. The same command
continues where it stopped: a file is finished if its sha256 is in the manifest. If new images have another sha256 than
the manifest says, the run ends with an error.
"""

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs without an install

import numpy as np
import torch
from tqdm import tqdm

from rbue.cli import one_sentence_errors, parse_with_plugins
from rbue.data import load
from rbue.data.corrupted import refuse_size
from rbue.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from rbue.data.corruptions.weather import NoTextures
from rbue.errors import UserError, one_of
from rbue.runs import devices

HEAD = 100  # the first images of a set have a sha256 of their own, so that a quick check needs only these


def sha256(data):
    return hashlib.sha256(np.ascontiguousarray(data)).hexdigest()


def file_sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_whole(path, write):
    """Write a file atomically: if the process is killed, the old file stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with open(partial, "wb") as file:
        write(file)
    os.replace(partial, path)


def nhwc(images):
    return images.permute(0, 2, 3, 1).contiguous().cpu().numpy()


def write_type(path, images, name, args, bar):
    """Write one corruption at five severities, atomically, and return its manifest entry."""
    count, partial = len(images), path.with_suffix(".partial")
    shape = (len(SEVERITIES) * count, *images.shape[2:], 3)
    file, entry = np.lib.format.open_memmap(partial, "w+", np.uint8, shape), {"sets": [], "heads": []}
    for place, severity in enumerate(SEVERITIES):
        index = torch.arange(count, device=images.device)
        made = nhwc(corrupt(images, name, severity, index, args.seed, args.textures))
        file[place * count : (place + 1) * count] = made
        entry["sets"].append(sha256(made))
        entry["heads"].append(sha256(made[:HEAD]))
        bar.update()
    file.flush()
    del file
    os.replace(partial, path)
    return {"sha256": file_sha256(path)} | entry


def finish_type(name, images, manifest, args, bar):
    """Generate one type unless it is finished, and compare it with the manifest."""
    path, known = args.out / f"{name}.npy", manifest["files"].get(name)
    if known and path.exists() and file_sha256(path) == known["sha256"]:
        bar.update(len(SEVERITIES))
        return
    entry = write_type(path, images, name, args, bar)
    if known and known != entry:
        raise UserError(f"{path} has sha256 {entry['sha256']} and {args.manifest} says {known['sha256']}: other images")
    manifest["files"][name] = entry
    write_whole(args.manifest, lambda file: file.write((json.dumps(manifest, indent=1) + "\n").encode()))


def open_manifest(args, count):
    """Return the manifest, or a new one if there is none. Refuse a manifest of other images."""
    identity = {"dataset": args.dataset, "seed": args.seed, "images": count}
    if not args.manifest.exists():
        return identity | {"files": {}}
    manifest = json.loads(args.manifest.read_text(encoding="utf-8"))
    if {key: manifest.get(key) for key in identity} != identity:
        raise UserError(f"{args.manifest} is of another dataset, seed or number of images: name a new --manifest")
    return manifest


def write_sets(args):
    """Write all requested types. If one is refused, the others are still written."""
    data, refusals = load(args.dataset, args.data_dir, args.size), []
    refuse_size(data)
    manifest, images = open_manifest(args, len(data.test_images)), data.test_images.to(devices.choose(args.device))
    labels = np.tile(data.test_labels.numpy().astype(np.uint8 if data.classes <= 256 else int), len(SEVERITIES))
    write_whole(args.out / "labels.npy", lambda file: np.save(file, labels))
    with tqdm(total=len(args.types) * len(SEVERITIES), unit="set", disable=None) as bar:
        for name in args.types:
            bar.set_description(name)
            try:
                finish_type(name, images, manifest, args, bar)
            except NoTextures as sentence:
                print(f"left out: {sentence}", file=sys.stderr)
            except UserError as refused:
                refusals.append(str(refused))
    if refusals:
        raise UserError("\n".join(refusals))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", help="cifar10, cifar100, tinyimagenet, digits, or a folder of your own images")
    parser.add_argument("--data-dir", default="data", help="the folder that holds one folder per dataset")
    parser.add_argument("--size", type=int, help="pixels per side that your own images are resized to")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument("--types", nargs="+", metavar="TYPE", help="all if not given")
    parser.add_argument("--manifest", type=Path, help="OUT/manifest.json if not given")
    parser.add_argument("--textures", type=Path, help="a folder with frost1 to frost5")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or one GPU such as cuda:1")
    args = parse_with_plugins(parser, None)
    args.types = args.types or [*CORRUPTIONS]
    for name in args.types:
        one_of(CORRUPTIONS, types=name)
    args.manifest = args.manifest or args.out / "manifest.json"
    return args


if __name__ == "__main__":
    with one_sentence_errors():
        write_sets(arguments())
