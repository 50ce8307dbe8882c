"""Corrupted test sets: official files are used whole or not at all, never mixed with ours, and results name them."""

import argparse
import dataclasses
import json
import shutil
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from conftest import compose_run, refused
from PIL import Image

from rbue.data import corrupted
from rbue.data.corruptions import SEVERITIES, TYPES, corrupt, weather
from rbue.errors import UserError

DATASETS = ("cifar10", "cifar100", "tinyimagenet", "digits")
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")  # the second archive of Tiny-ImageNet-C
COUNT = 6


@pytest.fixture
def few(digits):
    """Six test images in place of ten thousand: the expected size of an official file follows from the clean images."""
    return dataclasses.replace(digits, test_images=digits.test_images[:COUNT], test_labels=digits.test_labels[:COUNT])


@pytest.fixture
def tiny(few):
    """Two classes of three 64x64 images."""
    images = few.test_images.repeat_interleave(2, 2).repeat_interleave(2, 3)
    return dataclasses.replace(few, test_images=images, test_labels=torch.arange(2).repeat(3), classes=2)


@pytest.fixture
def run_in(tmp_path):
    return lambda *overrides: compose_run(f"data_dir={tmp_path}", *overrides)


def write_cifar(folder, data, names=TYPES):
    """Write files in which every byte encodes its type, severity and image."""
    folder.mkdir(parents=True)
    for name in names:
        np.save(folder / f"{name}.npy", marks(name).repeat(32 * 32 * 3).reshape(-1, 32, 32, 3))
    np.save(folder / "labels.npy", np.tile(data.test_labels.numpy().astype(np.uint8), 5))


def marks(name):
    return (TYPES.index(name) * 10 + np.arange(5 * COUNT)).astype(np.uint8)


def write_tiny(folder, names, wnids=("n02", "n10")):
    for name, severity, (label, wnid), k in product(names, SEVERITIES, enumerate(wnids), (1, 2, 10)):
        path = folder / name / str(severity) / wnid / f"val_{k}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        grey = np.full((64, 64, 3), 100 * label + 10 * severity + k, np.uint8)
        Image.fromarray(grey).save(path, quality=100)


def write_ours(folder, dataset, data, names, seed=0, textures=None):
    """Write files as scripts/corruptions.py does."""
    from scripts import corruptions as script

    folder.mkdir(parents=True)
    manifest = folder / "manifest.json"
    args = argparse.Namespace(dataset=dataset, out=folder, manifest=manifest, seed=seed, textures=textures)
    found = script.open_manifests(args, len(data.test_images))
    for name in names:
        script.finish_type(name, data.test_images, found, args, script.tqdm(disable=True))
    np.save(folder / "labels.npy", np.tile(data.test_labels.numpy().astype(np.uint8), 5))


def by_hand(data, name, severity):
    return corrupt(data.test_images, name, severity, torch.arange(len(data.test_images)))


refusal = partial(refused, corrupted.sets)


# --- config -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_corrupted_dataset_evaluates_the_network_its_clean_one_trains(dataset):
    clean, shifted = compose_run(f"dataset={dataset}"), compose_run(f"dataset={dataset}_c")
    assert shifted.training_name == clean.training_name
    assert shifted.name != clean.name and shifted.name.startswith(f"{dataset}_c/")
    assert (clean.corruptions, shifted.corruptions, shifted.trained_on) == ("none", "auto", dataset)


def test_there_is_nothing_to_read_without_corruptions(run_in, few):
    with pytest.raises(UserError, match="but corruptions=none: write dataset=cifar10 for clean images"):
        run_in("dataset=cifar10_c", "corruptions=none")
    shifted = run_in("dataset=cifar10_c")
    shifted.corruptions = "none"
    assert "corruptions=none" in refusal(shifted, few)


# --- official CIFAR ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["cifar10_c", "cifar10_c/CIFAR-10-C", "cifar100_c", "cifar100_c/CIFAR-100-C"])
@pytest.mark.parametrize("source", ["auto", "official"])
def test_official_arrays_are_read_by_type_and_severity(run_in, few, tmp_path, place, source, declare_official):
    write_cifar(tmp_path / place, few)
    declare_official(tmp_path / place, place.split("_c")[0])
    sets = corrupted.sets(run_in(f"dataset={place.split('/')[0]}", f"corruptions={source}"), few)
    assert sets.source == "official" and len(sets.cells) == 95
    assert sets.cells[:6] == [("gaussian_noise", s) for s in SEVERITIES] + [("shot_noise", 1)]
    for name, severity in (("gaussian_noise", 1), ("fog", 3), ("saturate", 5)):
        images, labels = sets.read(name, severity, "cpu")
        assert images.dtype == torch.uint8 and images.shape == few.test_images.shape and images.is_contiguous()
        expected = torch.from_numpy(marks(name)).view(5, COUNT)[severity - 1]
        assert torch.equal(images, expected.view(-1, 1, 1, 1).expand_as(images))
        assert labels.dtype == torch.int64 and torch.equal(labels, few.test_labels)


def test_an_official_image_keeps_its_rows_columns_and_channels(run_in, few, tmp_path, declare_official):
    write_cifar(tmp_path / "cifar10_c", few)
    images = np.random.RandomState(0).randint(0, 256, (5 * COUNT, 32, 32, 3), np.uint8)
    np.save(tmp_path / "cifar10_c" / "snow.npy", images)
    declare_official(tmp_path / "cifar10_c")
    read, _ = corrupted.sets(run_in("dataset=cifar10_c"), few).read("snow", 2, "cpu")
    assert (read.permute(0, 2, 3, 1).numpy() == images[COUNT : 2 * COUNT]).all()


def test_some_official_types_are_not_completed_with_ours(run_in, few, tmp_path):
    write_cifar(tmp_path / "cifar10_c", few, [name for name in TYPES if name not in ("fog", "snow")])
    for source in ("auto", "official"):
        sentence = refusal(run_in("dataset=cifar10_c", f"corruptions={source}"), few)
        assert "lacks snow.npy, fog.npy" in sentence and "records/2535967" in sentence
        assert "corruptions=generated" in sentence
    assert corrupted.sets(run_in("dataset=cifar10_c", "corruptions=generated"), few).source == "generated"


def test_insisting_on_official_files_says_what_goes_where(run_in, few, tiny, tmp_path):
    official = {"cifar10": ("CIFAR-10-C.tar", 2535967), "cifar100": ("CIFAR-100-C.tar", 3555552)}
    for dataset, (archive, record) in official.items():
        sentence = refusal(run_in(f"dataset={dataset}_c", "corruptions=official"), few)
        assert f"{tmp_path / dataset}_c holds no official files" in sentence
        assert f"{archive} of https://zenodo.org/records/{record}" in sentence
    sentence = refusal(run_in("dataset=tinyimagenet_c", "corruptions=official"), tiny)
    assert "Tiny-ImageNet-C.tar and Tiny-ImageNet-C-extra.tar" in sentence and "records/8206060" in sentence
    assert "not the older record 2536630, whose frost has 1,000 classes" in sentence
    assert "digits_c has no official files" in refusal(run_in("dataset=digits_c", "corruptions=official"), few)


@pytest.mark.parametrize("name", ["gaussian_noise", "fog"])
def test_a_truncated_file_is_named_before_anything_is_evaluated(run_in, few, tmp_path, name):
    write_cifar(tmp_path / "cifar10_c", few)
    path = tmp_path / "cifar10_c" / f"{name}.npy"
    path.write_bytes(path.read_bytes()[:-1])
    assert f"{path} is truncated" in refusal(run_in("dataset=cifar10_c"), few)


def test_wrong_shapes_types_and_labels_are_named(run_in, few, tmp_path):
    folder, run = tmp_path / "cifar10_c", run_in("dataset=cifar10_c")
    write_cifar(folder, few)
    whole = np.load(folder / "fog.npy")
    for wrong in (whole[:-1], whole.astype(np.float32), whole.transpose(0, 3, 1, 2)):
        np.save(folder / "fog.npy", wrong)
        assert f"{folder / 'fog.npy'} holds {wrong.dtype} {wrong.shape} instead of uint8" in refusal(run, few)
    np.save(folder / "fog.npy", whole)
    np.save(folder / "labels.npy", np.load(folder / "labels.npy")[::-1])
    assert f"{folder / 'labels.npy'} does not hold the labels" in refusal(run, few)
    (folder / "labels.npy").unlink()
    assert "lacks labels.npy" in refusal(run, few)


def test_a_packed_archive_is_not_passed_over_in_silence(run_in, few, tmp_path):
    (tmp_path / "cifar10_c").mkdir()
    (tmp_path / "cifar10_c" / "CIFAR-10-C.tar").touch()
    assert "CIFAR-10-C.tar as an archive" in refusal(run_in("dataset=cifar10_c"), few)


def test_a_set_that_does_not_exist_is_refused(run_in, few):
    with pytest.raises(UserError, match="fog at severity 0"):
        corrupted.sets(run_in("dataset=cifar10_c"), few).read("fog", 0, "cpu")


# --- neither official nor ours ----------------------------------------------------------------------------------------


def write_strange(folder, data):
    """Write the test images with less and less contrast in the official layout, without a manifest."""
    folder.mkdir()
    faded = torch.cat([data.test_images // (severity + 1) for severity in SEVERITIES])
    for name in TYPES:
        np.save(folder / f"{name}.npy", faded.permute(0, 2, 3, 1).numpy())
    np.save(folder / "labels.npy", np.tile(data.test_labels.numpy().astype(np.uint8), 5))


def test_files_that_are_neither_official_nor_ours_are_called_unverified(run_in, few, tmp_path):
    write_strange(tmp_path / "cifar10_c", few)
    with pytest.warns(UserWarning, match=r"neither official nor ours \(gaussian_noise.npy, .* and 16 more\)"):
        sets = corrupted.sets(run_in("dataset=cifar10_c"), few)
    assert sets.source == "unverified"
    assert torch.equal(sets.read("fog", 2, "cpu")[0], few.test_images // 3)
    assert "files without the official md5" in refusal(run_in("dataset=cifar10_c", "corruptions=official"), few)


@pytest.mark.parametrize("value", [0, 127])
def test_a_constant_array_is_refused(run_in, few, tmp_path, value):
    write_strange(tmp_path / "cifar10_c", few)
    path = tmp_path / "cifar10_c" / "snow.npy"
    images = np.load(path)
    images[2 * COUNT : 3 * COUNT] = value
    np.save(path, images)
    sentence = refusal(run_in("dataset=cifar10_c"), few)
    assert f"{path} does not hold corrupted test images (at severity 3 they correlate with them by" in sentence


def test_a_garbled_manifest_is_named(run_in, few, tmp_path):
    (tmp_path / "cifar10_c").mkdir()
    for garbled in (b"{", b"\xff\xfe", b"[" * 100_000):
        (tmp_path / "cifar10_c" / "manifest.json").write_bytes(garbled)
        assert "manifest.json cannot be read" in refusal(run_in("dataset=cifar10_c"), few)


@pytest.mark.parametrize("content", [[], {"files": 3}, {"dataset": 0, "seed": 0, "images": 0, "files": {"fog": 1}}])
def test_a_manifest_of_another_kind_says_nothing(run_in, few, tmp_path, content):
    (tmp_path / "cifar10_c").mkdir()
    (tmp_path / "cifar10_c" / "manifest.json").write_text(json.dumps(content))
    assert corrupted.sets(run_in("dataset=cifar10_c"), few).source == "generated"


# --- official TinyImageNet --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("places", [("Tiny-ImageNet-C", "Tiny-ImageNet-C-extra"), ("Tiny-ImageNet-C",) * 2, ("", "")])
def test_official_folders_are_read_from_both_archives_or_merged(run_in, tiny, tmp_path, places):
    write_tiny(tmp_path / "tinyimagenet_c" / places[0], [name for name in TYPES if name not in EXTRA])
    write_tiny(tmp_path / "tinyimagenet_c" / places[1], EXTRA)
    sets = corrupted.sets(run_in("dataset=tinyimagenet_c"), tiny)
    assert sets.source == "official"
    for name, severity in (("frost", 2), ("spatter", 5)):
        images, labels = sets.read(name, severity, "cpu")
        assert images.shape == (6, 3, 64, 64) and labels.tolist() == [0, 0, 0, 1, 1, 1]
        expected = [100 * label + 10 * severity + k for label in (0, 1) for k in (1, 2, 10)]
        assert (images.int().amin((1, 2, 3)) - torch.tensor(expected)).abs().max() <= 1
        assert (images.int().amax((1, 2, 3)) - torch.tensor(expected)).abs().max() <= 1


def test_one_archive_of_two_is_not_enough(run_in, tiny, tmp_path):
    write_tiny(tmp_path / "tinyimagenet_c" / "Tiny-ImageNet-C", [name for name in TYPES if name not in EXTRA])
    assert f"lacks {', '.join(EXTRA)}: " in refusal(run_in("dataset=tinyimagenet_c"), tiny)


def test_half_unpacked_folders_are_named(run_in, tiny, tmp_path):
    folder, run = tmp_path / "tinyimagenet_c", run_in("dataset=tinyimagenet_c")
    write_tiny(folder, TYPES)
    (folder / "fog" / "3" / "n10" / "val_2.JPEG").unlink()
    with pytest.raises(UserError, match=r"3 images of every class \(n10: 2\)"):
        corrupted.sets(run, tiny).read("fog", 3, "cpu")
    (folder / "fog" / "4" / "n10").rename(folder / "fog" / "4" / "n11")
    assert f"{folder / 'fog' / '4'} holds other classes" in refusal(run, tiny)
    shutil.rmtree(folder / "fog" / "4")
    assert f"{folder / 'fog' / '4'} holds 0 of 2 classes" in refusal(run, tiny)


def test_a_frost_of_too_many_classes_names_the_archive_to_take(run_in, tiny, tmp_path):
    folder = tmp_path / "tinyimagenet_c"
    write_tiny(folder, TYPES)
    (folder / "frost" / "2" / "n11").mkdir()
    sentence = refusal(run_in("dataset=tinyimagenet_c"), tiny)
    assert f"{folder / 'frost' / '2'} holds 3 classes instead of 2: take" in sentence and "8206060" in sentence


def test_one_image_over_and_over_is_refused(run_in, tiny, tmp_path):
    folder = tmp_path / "tinyimagenet_c"
    write_tiny(folder, TYPES)
    for path in (folder / "fog" / "3").rglob("*.JPEG"):
        Image.new("RGB", (64, 64)).save(path)
    with pytest.raises(UserError, match="holds one image 6 times"):
        corrupted.sets(run_in("dataset=tinyimagenet_c"), tiny).read("fog", 3, "cpu")


# --- ours -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", ["digits_c", "cifar10_c"])
def test_without_files_the_sets_are_made_and_always_the_same(run_in, few, dataset):
    sets = corrupted.sets(run_in(f"dataset={dataset}"), few)
    assert sets.source == "generated"
    for name, severity in (("shot_noise", 3), ("glass_blur", 5), ("brightness", 1)):
        images, labels = sets.read(name, severity, torch.device("cpu"))
        assert torch.equal(images, by_hand(few, name, severity)) and torch.equal(labels, few.test_labels)
        assert torch.equal(images, sets.read(name, severity, "cpu")[0])


def test_generated_never_looks(run_in, few, tmp_path):
    write_cifar(tmp_path / "cifar10_c", few)
    sets = corrupted.sets(run_in("dataset=cifar10_c", "corruptions=generated"), few)
    assert sets.source == "generated"
    assert torch.equal(sets.read("fog", 2, "cpu")[0], by_hand(few, "fog", 2))


def test_what_the_script_wrote_is_ours_and_is_not_made_again(run_in, few, tmp_path, monkeypatch):
    write_ours(tmp_path / "cifar10_c", "cifar10", few, ["contrast", "shot_noise"])
    expected, made = by_hand(few, "shot_noise", 4), []
    monkeypatch.setattr(corrupted, "corrupt", lambda *args: made.append(args[1]) or corrupt(*args))
    sets = corrupted.sets(run_in("dataset=cifar10_c"), few)
    assert sets.source == "generated" and torch.equal(sets.read("shot_noise", 4, "cpu")[0], expected)
    assert not made
    assert torch.equal(sets.read("pixelate", 4, "cpu")[0], by_hand(few, "pixelate", 4)) and made == ["pixelate"]
    sentence = refusal(run_in("dataset=cifar10_c", "corruptions=official"), few)
    assert "only what scripts/corruptions.py wrote" in sentence


@pytest.mark.parametrize("change", [{"seed": 1}, {"dataset": "cifar100"}, {"images": 7}])
def test_a_manifest_of_other_images_is_ours_and_not_used(run_in, few, tmp_path, change):
    folder = tmp_path / "cifar10_c"
    write_ours(folder, "cifar10", few, ["shot_noise"], seed=1)
    found = json.loads((folder / "manifest.json").read_text()) | {"seed": 0} | change
    (folder / "manifest.json").write_text(json.dumps(found))
    sets = corrupted.sets(run_in("dataset=cifar10_c"), few)
    assert sets.source == "generated"
    assert torch.equal(sets.read("shot_noise", 4, "cpu")[0], by_hand(few, "shot_noise", 4))


@pytest.mark.parametrize("older", [False, True])
def test_ours_are_made_again_if_the_clean_images_have_changed_since(run_in, few, tmp_path, older):
    folder, other = tmp_path / "cifar10_c", dataclasses.replace(few, test_images=255 - few.test_images)
    write_ours(folder, "cifar10", few, ["contrast", "shot_noise"])
    manifest = json.loads((folder / "manifest.json").read_text())
    if older:  # a version that did not store the sha256 of the clean images has written one of the two entries
        del manifest["files"]["contrast"]["clean"]
        (folder / "manifest.json").write_text(json.dumps(manifest))
    assert sorted(corrupted.list_kept(folder, "cifar10", few)) == ["contrast", "shot_noise"]
    assert sorted(corrupted.list_kept(folder, "cifar10", other)) == ["contrast"] * older


def test_ours_that_are_not_as_their_manifest_says_are_made_again(run_in, few, tmp_path):
    path = tmp_path / "digits_c" / "contrast.npy"
    write_ours(path.parent, "digits", few, ["contrast"])
    whole = path.read_bytes()
    sets = corrupted.sets(run_in("dataset=digits_c"), few)
    for content in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(content)
        with pytest.warns(UserWarning, match="differs from its manifest at severity 5"):
            assert torch.equal(sets.read("contrast", 5, "cpu")[0], by_hand(few, "contrast", 5))


def test_ours_without_their_manifest_do_not_pass_for_official(run_in, few, tmp_path):
    folder = tmp_path / "cifar10_c"
    write_ours(folder, "cifar10", few, ["gaussian_noise", "contrast"])
    (folder / "manifest.json").unlink()
    assert corrupted.sets(run_in("dataset=cifar10_c"), few).source == "generated"


def test_official_files_win_over_ours_beside_them(run_in, few, tmp_path, declare_official):
    write_ours(tmp_path / "cifar10_c", "cifar10", few, ["gaussian_noise"])
    write_cifar(tmp_path / "cifar10_c" / "CIFAR-10-C", few)
    declare_official(tmp_path / "cifar10_c" / "CIFAR-10-C")
    sets = corrupted.sets(run_in("dataset=cifar10_c"), few)
    assert sets.source == "official" and sets.read("gaussian_noise", 1, "cpu")[0].amax() == COUNT - 1


@pytest.fixture
def own_frost(few, tmp_path, monkeypatch):
    """Write frost of the user's own textures where the usual ones are not installed."""
    for number in range(1, 6):
        Image.new("RGB", (220, 200), (number, number, number)).save(tmp_path / f"frost{number}.png")
    write_ours(tmp_path / "digits_c", "digits", few, ["frost"], textures=tmp_path)
    monkeypatch.setattr(weather, "find_spec", lambda name: None)


@pytest.mark.usefixtures("own_frost")
def test_frost_of_other_textures_is_not_read_as_ours(run_in, few, tmp_path, monkeypatch):
    sets = corrupted.sets(run_in("dataset=digits_c"), few)
    with pytest.raises(UserError, match=r"frost needs five photographs: pip install -e '\.\[frost\]'"):
        sets.read("frost", 1, "cpu")
    assert sets.read("snow", 1, "cpu")[0].shape == few.test_images.shape
    monkeypatch.setattr(weather, "STANDARD", weather.texture_digest(tmp_path))
    assert corrupted.sets(run_in("dataset=digits_c"), few).read("frost", 1, "cpu")[0].shape == few.test_images.shape


def test_missing_textures_are_told_before_the_first_set_is_tested(run_in, few, tiny, monkeypatch):
    monkeypatch.setattr(weather, "find_spec", lambda name: None)
    for data in (few, tiny):
        with pytest.warns(UserWarning, match=r"18 of the 19 types are tested.*pip install -e '\.\[frost\]'"):
            corrupted.sets(run_in("dataset=digits_c", "corruptions=generated"), data)


@pytest.mark.usefixtures("own_frost")
def test_frost_that_is_on_disk_needs_no_textures(run_in, few, tmp_path, monkeypatch, recwarn):
    monkeypatch.setattr(weather, "STANDARD", weather.texture_digest(tmp_path))
    corrupted.sets(run_in("dataset=digits_c"), few)
    assert not [warning for warning in recwarn if "types are tested" in str(warning.message)]
