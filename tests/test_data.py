"""Data is complete and official, or refused in one sentence that names the file. No test uses the network."""

import dataclasses
import hashlib
import os
import pickle
import runpy
import shutil
import sys
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
from conftest import ROOT, refused
from PIL import Image
from torchvision.datasets import CIFAR10
from torchvision.datasets.utils import download_and_extract_archive
from tqdm import tqdm

from rbue.data import DATASETS, download, files, load, sources
from rbue.errors import UserError

SHAPE = {"classes": 2, "train": 8, "test": 4, "size": 8}


refusal = partial(refused, load)


def files_under(folder):
    return sorted(path.name for path in folder.rglob("*"))


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """Every download fails after some bytes, as without a network: the worst case for leftover files."""

    def half_a_download(url, root, **_):
        (Path(root) / Path(url).name).write_bytes(b"half an archive")
        raise URLError("Name or service not known")

    monkeypatch.setattr(download, "download_and_extract_archive", half_a_download)


# --- digits -----------------------------------------------------------------------------------------------------------


def test_digits_need_no_files_and_split_without_overlap(digits):
    from sklearn.datasets import load_digits

    assert (len(digits.train_images), len(digits.test_images)) == (1437, 360)
    counts = torch.bincount(torch.cat([digits.train_labels, digits.test_labels]), minlength=10)
    assert torch.equal(counts, torch.bincount(torch.from_numpy(load_digits().target)))
    assert torch.bincount(digits.test_labels, minlength=10).min() >= 20


def test_digits_are_the_same_bytes_on_every_machine(digits):
    found = hashlib.sha256(digits.train_images.numpy()).hexdigest()
    assert found.startswith("528a407bd3512da1")


def test_enlarged_digits_keep_the_mean_grey_and_the_full_range(digits):
    from sklearn.datasets import load_digits

    everything = torch.cat([digits.train_images, digits.test_images])
    assert everything.dtype == torch.uint8 and everything.is_contiguous()
    assert (everything.min(), everything.max()) == (0, 255)
    assert torch.equal(everything[:, 0], everything[:, 1]) and torch.equal(everything[:, 0], everything[:, 2])
    small = np.sort(load_digits().images.mean((1, 2)) / 16)
    large = np.sort(everything[:, 0].double().mean((1, 2)).numpy() / 255)
    assert np.abs(small - large).max() < 0.02


def test_mean_and_std_are_those_of_the_training_pixels(digits):
    pixels = digits.train_images.double() / 255
    torch.testing.assert_close(digits.mean, pixels.mean((0, 2, 3)).float())
    torch.testing.assert_close(digits.std, pixels.std((0, 2, 3), correction=0).float())


# --- CIFAR ------------------------------------------------------------------------------------------------------------


def mini_arrays(size=8):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (12, size, size, 3), dtype=np.uint8)
    labels = np.array([0, 1] * 6)
    return dict(zip(sources.NAMES, (images[:8], labels[:8], images[8:], labels[8:]), strict=True))


@pytest.fixture
def mini(monkeypatch, tmp_path):
    """A CIFAR-10 of twelve images, written as four .npy arrays."""
    arrays = mini_arrays()
    digests = {name: hashlib.sha256(np.ascontiguousarray(array)).hexdigest() for name, array in arrays.items()}
    source = dataclasses.replace(DATASETS["cifar10"], **SHAPE, sha256=digests)
    monkeypatch.setitem(DATASETS, "cifar10", source)
    (tmp_path / "cifar10").mkdir()
    for name, array in arrays.items():
        np.save(tmp_path / "cifar10" / f"{name}.npy", array)
    return tmp_path


def test_npy_arrays_become_owned_contiguous_nchw_tensors(mini):
    data, arrays = load("cifar10", mini), mini_arrays()
    assert torch.equal(data.train_images, torch.from_numpy(arrays["train_images"]).permute(0, 3, 1, 2))
    assert torch.equal(data.test_labels, torch.from_numpy(arrays["test_labels"]))
    assert data.train_images.is_contiguous() and data.classes == 2
    data.train_images.zero_(), data.train_labels.zero_()  # writable, so it is no memory map of the file
    assert load("cifar10", mini).train_images.any()


def flip_a_bit(array):
    array.flat[0] ^= 1
    return array


def relabel(array, label):
    array[0] = label
    return array


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("train_images", lambda a: a[:7], "uint8 (7, 8, 8, 3) instead of uint8 (8, 8, 8, 3)"),
        ("test_images", lambda a: a.transpose(0, 3, 1, 2), "uint8 (4, 3, 8, 8) instead of uint8 (4, 8, 8, 3)"),
        ("test_images", lambda a: a / np.float32(255), "float32 (4, 8, 8, 3) instead of uint8"),
        ("train_images", flip_a_bit, "not hold the official train images"),
        ("train_labels", lambda a: a.astype(np.uint8), "uint8 (8,) instead of int64 (8,)"),
        ("train_labels", partial(relabel, label=1), "3 labels of class 0 instead of 4"),
        ("test_labels", partial(relabel, label=2), "labels 0 to 2 instead of 0 to 1"),
        ("test_labels", lambda a: a[::-1], "not hold the official test labels"),
    ],
)
def test_a_wrong_array_is_named_with_what_is_wrong(mini, name, change, says):
    path = mini / "cifar10" / f"{name}.npy"
    np.save(path, change(np.load(path)))
    sentence = refusal("cifar10", mini)
    assert str(path) in sentence and says in sentence


@pytest.mark.parametrize("keep", [0, 5, 100, 300])
def test_a_truncated_array_is_named_wherever_it_ends(mini, keep):
    path = mini / "cifar10" / "train_images.npy"
    path.write_bytes(path.read_bytes()[:keep])
    assert f"{path} is truncated" in refusal("cifar10", mini)


def test_a_pickled_array_is_never_opened(mini):
    path = mini / "cifar10" / "train_labels.npy"
    np.save(path, np.array([print] * 8), allow_pickle=True)
    assert str(path) in refusal("cifar10", mini)


def write_official(root, arrays):
    """cifar-10-batches-py with four images per batch, and a torchvision class that knows its checksums."""
    root.mkdir(parents=True)

    def dump(name, content):
        (root / name).write_bytes(pickle.dumps(content))
        return [name, hashlib.md5((root / name).read_bytes()).hexdigest()]

    def batch(split, part):
        images = arrays[f"{split}_images"][part].transpose(0, 3, 1, 2).reshape(-1, 3 * 32 * 32)
        return {"data": images, "labels": arrays[f"{split}_labels"][part].tolist()}

    train = [dump(f"data_batch_{k + 1}", batch("train", slice(4 * k, 4 * k + 4))) for k in range(2)]
    test = [dump("test_batch", batch("test", slice(0, 4)))]
    meta = {**CIFAR10.meta, "md5": dump("batches.meta", {"label_names": ["cat", "dog"]})[1]}
    return type("MiniCIFAR", (CIFAR10,), {"train_list": train, "test_list": test, "meta": meta})


@pytest.fixture
def official(monkeypatch, tmp_path):
    """The same images in the official layout; torchvision needs 32 × 32."""
    arrays = mini_arrays(size=32)
    kind = write_official(tmp_path / "cifar10" / "cifar-10-batches-py", arrays)
    shape = {**SHAPE, "size": 32, "sha256": {}}
    source = dataclasses.replace(DATASETS["cifar10"], **shape, read=partial(sources.read_cifar, kind))
    monkeypatch.setitem(DATASETS, "cifar10", source)
    return tmp_path, arrays


def test_the_official_layout_and_the_arrays_give_the_same_tensors(official):
    data_dir, arrays = official
    pickled = load("cifar10", data_dir)
    for name, array in arrays.items():
        np.save(data_dir / "cifar10" / f"{name}.npy", array)
    packed = load("cifar10", data_dir)
    assert packed.source.endswith("*.npy") and pickled.source.endswith("cifar-10-batches-py")
    for name in sources.NAMES:
        assert torch.equal(getattr(pickled, name), getattr(packed, name))


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("unpickled before its checksum was verified",)


@pytest.mark.parametrize("name", ["data_batch_2", "test_batch", "batches.meta"])
def test_a_strange_pickle_is_named_and_not_opened(official, name):
    data_dir, _ = official
    root = data_dir / "cifar10" / "cifar-10-batches-py"
    (root / name).write_bytes(pickle.dumps(Bomb()))
    assert f"lacks a complete official {name}:" in refusal("cifar10", data_dir)
    (root / name).unlink()
    assert f"lacks a complete official {name}:" in refusal("cifar10", data_dir)


@pytest.fixture
def archived(official, monkeypatch):
    """The official layout only inside its archive, whose md5 is known."""
    data_dir, arrays = official
    folder = data_dir / "cifar10"
    archive = folder / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder / "cifar-10-batches-py", "cifar-10-batches-py")
    shutil.rmtree(folder / "cifar-10-batches-py")
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    monkeypatch.setitem(DATASETS, "cifar10", dataclasses.replace(DATASETS["cifar10"], md5=md5))
    return archive, arrays


def test_an_archive_carried_here_by_hand_is_unpacked(archived):
    archive, arrays = archived
    assert torch.equal(load("cifar10", archive.parents[1]).test_labels, torch.from_numpy(arrays["test_labels"]))
    assert sorted(path.name for path in archive.parent.iterdir()) == ["cifar-10-batches-py", archive.name]


def test_a_truncated_archive_is_named_and_not_unpacked(archived):
    archive, _ = archived
    archive.write_bytes(archive.read_bytes()[:-1])
    assert f"{archive} is truncated or not the official archive" in refusal("cifar10", archive.parents[1])
    assert files_under(archive.parent) == [archive.name]


@pytest.fixture
def server(archived, monkeypatch):
    """The archive's folder behind a local web address, with torchvision's own downloader."""
    archive, _ = archived
    handler = partial(SimpleHTTPRequestHandler, directory=archive.parent)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    url = f"http://127.0.0.1:{server.server_port}/{archive.name}"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "download_and_extract_archive", download_and_extract_archive)
    monkeypatch.setitem(DATASETS, "cifar10", dataclasses.replace(DATASETS["cifar10"], url=url))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield archive
    server.shutdown()
    server.server_close()


def test_absent_files_are_downloaded_verified_and_kept(server, archived, tmp_path, monkeypatch):
    data_dir = tmp_path / "elsewhere"
    data = load("cifar10", data_dir)
    assert torch.equal(data.train_labels, torch.from_numpy(archived[1]["train_labels"]))
    assert [path.name for path in (data_dir / "cifar10").iterdir()] == ["cifar-10-batches-py"]
    monkeypatch.setattr(sources, "fetch", lambda *_: pytest.fail("downloaded twice"))
    load("cifar10", data_dir)


def test_a_damaged_download_is_refused_and_leaves_nothing(server, tmp_path):
    server.write_bytes(server.read_bytes()[:-1])
    assert "download failed (File not found or corrupted.)" in refusal("cifar10", tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()


# --- without network --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100", "tinyimagenet"])
def test_offline_one_sentence_says_what_where_and_how_and_nothing_is_left(tmp_path, dataset):
    data_dir = tmp_path / "some" / "data"
    sentence, source = refusal(dataset, data_dir), DATASETS[dataset]
    told = str(data_dir / dataset), source.url, source.layout, "test_labels.npy", "data_dir="
    assert all(part in sentence for part in told)
    assert files_under(tmp_path) == []


def test_a_failed_download_keeps_what_the_user_put_there(mini):
    (mini / "cifar10" / "test_labels.npy").unlink()
    sentence = refusal("cifar10", mini)
    assert "no test_labels.npy," in sentence and "train_images" not in sentence
    assert files_under(mini / "cifar10") == ["test_images.npy", "train_images.npy", "train_labels.npy"]


def test_a_data_folder_that_is_a_file_and_an_unknown_dataset_are_sentences(tmp_path):
    (tmp_path / "data").write_text("")
    assert "Not a directory" in refusal("cifar10", tmp_path / "data")
    assert "dataset=mnist is not known" in refusal("mnist", tmp_path)


def run_script(monkeypatch, *arguments):
    """Run it in this process: a new one would spend seconds on importing torch."""
    monkeypatch.setattr(sys, "argv", ["prepare_data.py", *map(str, arguments)])
    monkeypatch.setattr(sys, "path", [path for path in sys.path if Path(path or ".").resolve() != ROOT])
    runpy.run_path(str(ROOT / "scripts" / "prepare_data.py"), run_name="__main__")


def test_the_script_needs_no_install_and_says_what_is_there(monkeypatch, capsys):
    run_script(monkeypatch, "digits")
    assert sys.path[0] == str(ROOT)
    assert "digits: 1,437 training and 360 test images, 32 × 32, 10 classes" in capsys.readouterr().out


def test_the_script_ends_with_the_sentence_when_refused(monkeypatch, tmp_path):
    with pytest.raises(SystemExit) as ended:
        run_script(monkeypatch, "cifar100", "--data-dir", tmp_path)
    assert str(ended.value) == f"refused: {refusal('cifar100', tmp_path)}"


# --- TinyImageNet -----------------------------------------------------------------------------------------------------


def paint(path, colour, mode="RGB", size=(8, 8)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path, quality=95)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Two classes, not listed in sorted order; class n02 is grey, like a few of the real images."""
    source = dataclasses.replace(DATASETS["tinyimagenet"], **SHAPE)
    monkeypatch.setitem(DATASETS, "tinyimagenet", source)
    root = tmp_path / "tinyimagenet" / "tiny-imagenet-200"
    for k in range(4):
        paint(root / f"train/n01/images/n01_{k}.JPEG", (200, 20 * k, 0))
        paint(root / f"train/n02/images/n02_{k}.JPEG", 50 * k, mode="L")
        paint(root / f"val/images/val_{k}.JPEG", 60 * k, mode="L")
    (root / "wnids.txt").write_text("n02\nn01\n")
    classes = ["n02", "n01", "n01", "n02"]
    lines = [f"val_{k}.JPEG\t{wnid}\t0\t0\t7\t7\n" for k, wnid in enumerate(classes)]
    (root / "val/val_annotations.txt").write_text("".join(lines))
    return root


def test_tinyimagenet_labels_follow_the_sorted_classes_and_grey_becomes_rgb(tiny):
    data = load("tinyimagenet", tiny.parents[1])
    assert data.train_labels.tolist() == [0] * 4 + [1] * 4 and data.test_labels.tolist() == [1, 0, 0, 1]
    assert data.train_images.shape == (8, 3, 8, 8) and data.train_images.is_contiguous()
    middle = data.train_images[:, :, 4, 4].int()
    assert (middle[:4, 0] > 190).all() and (middle[:4, 2] < 10).all()
    assert (middle[4:] - 50 * torch.arange(4)[:, None]).abs().max() <= 2


def in_colour_of_process(_):
    return Image.new("RGB", (8, 8), tuple(os.getpid().to_bytes(3)))


def test_many_images_are_decoded_by_other_processes_to_the_same_pixels(tiny, two_cores, monkeypatch):
    pairs, size = [(path, 0) for path in sorted(tiny.rglob("*.JPEG"))], {"size": 8, "bar": tqdm(disable=True)}
    expected, here = files.decode_all(pairs, **size), files.decode_all(pairs, **size, prepare=in_colour_of_process)
    assert (here == [*os.getpid().to_bytes(3)]).all()  # few images are decoded here
    monkeypatch.setattr(files, "MANY", len(pairs))
    assert np.array_equal(files.decode_all(pairs, **size), expected)
    assert (files.decode_all(pairs, **size, prepare=in_colour_of_process) != here).any((1, 2, 3)).all()
    halve(pairs[3][0])
    with pytest.raises(UserError, match=f"{pairs[3][0]} cannot be decoded"):
        files.decode_all(pairs, **size)


def test_decoding_happens_once(tiny, monkeypatch):
    first = load("tinyimagenet", tiny.parents[1])
    monkeypatch.setattr(files, "decode", lambda *_, **__: pytest.fail("decoded twice"))
    again = load("tinyimagenet", tiny.parents[1])
    assert all(torch.equal(getattr(first, name), getattr(again, name)) for name in sources.NAMES)
    assert not list(tiny.parent.glob(".partial*"))


def test_an_interruption_leaves_all_decoded_arrays_or_none(tiny, monkeypatch):
    move = os.replace

    def stop_after_moving(*paths):
        move(*paths)
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "replace", stop_after_moving)
    with pytest.raises(KeyboardInterrupt):
        load("tinyimagenet", tiny.parents[1])
    assert {path.name for path in tiny.parent.iterdir()} == {"decoded", tiny.name}
    monkeypatch.setattr(files, "decode", lambda *_, **__: pytest.fail("decoded twice"))
    assert load("tinyimagenet", tiny.parents[1]).source == str(tiny.parent / "decoded")


def test_an_incomplete_set_of_arrays_is_not_read(tiny):
    first = load("tinyimagenet", tiny.parents[1])
    np.save(tiny.parent / "train_images.npy", np.zeros(3))
    assert torch.equal(load("tinyimagenet", tiny.parents[1]).train_images, first.train_images)


def test_of_two_processes_that_decode_at_once_the_first_one_stores(tmp_path, recwarn):
    first, second = mini_arrays(), {name: array + 1 for name, array in mini_arrays().items()}
    for arrays in (first, second):
        files.keep(arrays, tmp_path / "decoded")
    assert all(np.array_equal(array, first[name]) for name, array in files.open_kept(tmp_path / "decoded").items())
    assert not recwarn and files_under(tmp_path) == sorted(["decoded", files.SUMS, *(f"{name}.npy" for name in first)])


def test_arrays_of_the_user_go_before_decoded_ones(tiny):
    first = load("tinyimagenet", tiny.parents[1])
    for name, array in files.open_kept(tiny.parent / "decoded").items():
        np.save(tiny.parent / f"{name}.npy", np.roll(array, 1, 0))
    own = load("tinyimagenet", tiny.parents[1])
    assert own.source == str(tiny.parent / "*.npy")
    assert torch.equal(own.train_images, first.train_images.roll(1, 0))


def test_arrays_that_an_older_version_decoded_beside_the_official_files_are_checked_by_their_sums(tiny, monkeypatch):
    first = load("tinyimagenet", tiny.parents[1])
    for path in (tiny.parent / "decoded").iterdir():
        path.rename(tiny.parent / path.name)
    (tiny.parent / "decoded").rmdir()
    monkeypatch.setattr(files, "decode", lambda *_, **__: pytest.fail("decoded twice"))
    assert torch.equal(load("tinyimagenet", tiny.parents[1]).train_images, first.train_images)
    path = tiny.parent / "test_images.npy"
    np.save(path, 255 - np.load(path))
    way_out = f"delete {tiny.parent / '*.npy'} and run the command again to decode it"
    own = f"if these arrays are your own, delete {tiny.parent / files.SUMS} instead"
    assert refusal("tinyimagenet", tiny.parents[1]) == f"{path} has changed since it was decoded: {way_out}; {own}"
    (tiny.parent / files.SUMS).unlink()
    assert torch.equal(load("tinyimagenet", tiny.parents[1]).test_images, 255 - first.test_images)


@pytest.mark.parametrize("name", sources.NAMES)
def test_a_cache_that_has_changed_is_refused(tiny, name):
    first = load("tinyimagenet", tiny.parents[1])
    path = tiny.parent / "decoded" / f"{name}.npy"
    np.save(path, np.roll(np.load(path), 1, 0))  # of the same shape and type, with as many labels per class
    way_out = f"delete {path.parent} and run the command again to decode it"
    assert refusal("tinyimagenet", tiny.parents[1]) == f"{path} has changed since it was decoded: {way_out}"
    path.unlink()
    assert refusal("tinyimagenet", tiny.parents[1]) == f"{path} is missing: {way_out}"
    shutil.rmtree(path.parent)
    assert torch.equal(getattr(load("tinyimagenet", tiny.parents[1]), name), getattr(first, name))


def test_a_list_of_sums_that_is_damaged_or_missing_is_named(tiny):
    load("tinyimagenet", tiny.parents[1])
    path = tiny.parent / "decoded" / files.SUMS
    path.write_text("{")
    assert f"{path} cannot be read" in refusal("tinyimagenet", tiny.parents[1])
    path.unlink()
    assert f"{path} is missing" in refusal("tinyimagenet", tiny.parents[1])


def test_a_folder_that_cannot_be_written_costs_only_the_cache(tiny, monkeypatch):
    def read_only(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files.tempfile, "TemporaryDirectory", read_only)
    with pytest.warns(UserWarning, match="Permission denied"):
        assert len(load("tinyimagenet", tiny.parents[1]).train_images) == 8


def test_validation_images_sorted_into_class_folders_give_the_same_arrays(tiny):
    official = load("tinyimagenet", tiny.parents[1])
    shutil.rmtree(tiny.parent / "decoded")
    for name, wnid in [line.split("\t")[:2] for line in (tiny / "val/val_annotations.txt").read_text().splitlines()]:
        (tiny / "val" / wnid).mkdir(exist_ok=True)
        (tiny / "val/images" / name).rename(tiny / "val" / wnid / name)
    (tiny / "val/images").rmdir()
    again = load("tinyimagenet", tiny.parents[1])
    assert torch.equal(again.test_images, official.test_images) and torch.equal(again.test_labels, official.test_labels)


def halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def list_twice(path):
    """Name one image of a class twice and another one not at all, so that every class has as many lines as before."""
    path.write_text(path.read_text().replace("val_3", "val_0"))


@pytest.mark.parametrize(
    ("file", "damage", "says"),
    [
        ("train/n02/images/n02_3.JPEG", halve, "n02_3.JPEG cannot be decoded"),
        ("train/n02/images/n02_3.JPEG", Path.unlink, "train does not hold 4 images of every class (n02: 3)"),
        ("train/n01/images/n01_0.JPEG", partial(paint, colour=0, size=(9, 8)), "n01_0.JPEG is 9 × 8 pixels"),
        ("train/n01", lambda p: p.rename(p.parent / "x"), "train holds 1 of 2 classes (missing n01)"),
        ("val/images/val_2.JPEG", Path.unlink, "val/images lacks val_2.JPEG"),
        ("val/images/val_2.JPEG", halve, "val_2.JPEG cannot be decoded"),
        ("val/val_annotations.txt", Path.unlink, "val_annotations.txt is missing"),
        ("val/val_annotations.txt", halve, "val does not hold 2 images of every class (n02: 1)"),
        ("val/val_annotations.txt", list_twice, "val_annotations.txt names val_0.JPEG more than once"),
        ("wnids.txt", lambda p: p.write_text("n01"), "train holds 1 of 2 classes"),
        ("wnids.txt", lambda p: p.write_bytes(b"n01\xff"), "wnids.txt is not text"),
        ("val/val_annotations.txt", lambda p: p.write_bytes(b"\xff\xfe"), "val_annotations.txt is not text"),
    ],
)
def test_a_damaged_tinyimagenet_is_named_and_leaves_no_cache(tiny, file, damage, says):
    damage(tiny / file)
    sentence = refusal("tinyimagenet", tiny.parents[1])
    assert says in sentence and f"delete {tiny} and run the command again" in sentence
    assert [path.name for path in tiny.parent.iterdir()] == [tiny.name]
