"""A user's own images, corruptions and metrics: a folder, a YAML or a decorator is enough, and no old byte changes."""

import hashlib
import os
import shutil
import warnings
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands import call
from conftest import PAPER, ROOT, refused
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException
from PIL import ExifTags, Image, ImageOps

from rbue import metrics
from rbue.data import DATASETS, corrupted, dataset, files, load, load_for, load_ood, ood, read_files, sources
from rbue.data.corruptions import CORRUPTIONS, TYPES, corrupt, corruption
from rbue.errors import UserError
from rbue.evaluation import analysis
from rbue.evaluation import corruption as corruption_evaluation
from rbue.main import experiment
from rbue.report.cells import build
from rbue.report.figures import beyond, networks
from rbue.report.page import build as build_page
from rbue.report.records import records
from rbue.report.tables import write as write_table
from rbue.runs import compose as composing
from rbue.runs import results
from rbue.runs.compose import parse
from rbue.training import packs

CLASSES = ("ant", "bee", "cow")
MINE = "# @package _global_\ndefaults: [cifar10, _self_]\ndataset: mine\n"
MINE_C = "# @package _global_\ndefaults: [mine, _self_]\ndataset: mine_c\ncorruptions: generated\n"


def pictures(count, grey=False, shape=(16, 16)):
    """Noise, and the labels of three classes in turn."""
    drawn = np.random.default_rng(count).integers(0, 256, (count, *shape, *(() if grey else (3,))), dtype=np.uint8)
    return drawn, np.arange(count) % 3


def write_arrays(folder, **kind):
    folder.mkdir(parents=True)
    for split, count in (("train", 24), ("test", 12)):
        images, labels = pictures(count, **kind)
        np.save(folder / f"{split}_images.npy", images)
        np.save(folder / f"{split}_labels.npy", labels.astype(np.uint8))


def write_images(folder, **kind):
    """The same pictures as files, which come in the order of their classes."""
    for split, count in (("train", 24), ("test", 12)):
        for k, (image, label) in enumerate(zip(*pictures(count, **kind), strict=True)):
            path = folder / split / CLASSES[label] / f"{k:02d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)


FORMS = {"arrays": write_arrays, "images": write_images}


@pytest.fixture
def mine(tmp_path):
    """A folder of files in data/mine, and its YAML in a folder beside the suite's."""

    def make(form, **kind):
        FORMS[form](tmp_path / "data" / "mine", **kind)
        return tmp_path / "data"

    conf = tmp_path / "conf" / "dataset"
    conf.mkdir(parents=True)
    (conf / "mine.yaml").write_text(MINE)
    (conf / "mine_c.yaml").write_text(MINE_C)
    return make


@pytest.fixture
def own_run(tmp_path):
    def make(*words):
        paths = [f"{name}={tmp_path}/{name}" for name in ("results_dir", "weights_dir")]
        words = ["dataset=mine", "arch=small", "protocol=demo", "epochs=1", "batch=24", *paths, *words]
        words.append(f"data_dir={tmp_path}/data")
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            return parse(compose("config", [f"hydra.searchpath=[file://{tmp_path}/conf]", *words]))

    return make


refusal = partial(refused, load, "mine")


# --- a dataset --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grey", [False, True], ids=["colour", "grey"])
@pytest.mark.parametrize("form", FORMS)
def test_a_folder_and_a_yaml_are_enough_to_train(mine, own_run, form, grey):
    mine(form, grey=grey)
    result = experiment(own_run("method=dropreLU", "samples=2"))
    assert result.images == 12 and result.trainings[0].epoch == 1 and result.ood is None
    assert result.name.startswith("mine/small/dropreLU-")
    assert set(result.example.classes) <= set(CLASSES if form == "images" else "012")


@pytest.mark.parametrize("grey", [False, True], ids=["colour", "grey"])
@pytest.mark.parametrize(("shape", "size"), [((16, 16), None), ((20, 24), 16)], ids=["as it is", "resized"])
def test_both_forms_of_the_same_images_give_the_same_tensors(tmp_path, grey, shape, size):
    found = []
    for form, write in FORMS.items():
        write(tmp_path / form / "mine", grey=grey, shape=shape)
        found.append(load("mine", tmp_path / form, size))
    arrays, images = found
    assert arrays.classes == images.classes == 3 and images.names == CLASSES and arrays.names == ("0", "1", "2")
    for split in ("train", "test"):
        order = getattr(arrays, f"{split}_labels").argsort(stable=True)
        assert getattr(images, f"{split}_images").shape[1:] == (3, 16, 16)
        assert torch.equal(getattr(arrays, f"{split}_images")[order], getattr(images, f"{split}_images"))
        assert torch.equal(getattr(arrays, f"{split}_labels")[order], getattr(images, f"{split}_labels"))


def test_images_are_decoded_once_until_a_file_changes(mine, monkeypatch):
    data_dir = mine("images")
    first = load("mine", data_dir)
    with monkeypatch.context() as patched:
        patched.setattr(files, "decode", lambda *_, **__: pytest.fail("decoded twice"))
        assert torch.equal(load("mine", data_dir).train_images, first.train_images)
    path = data_dir / "mine" / "train" / "ant" / "00.png"
    Image.new("RGB", (16, 16), "red").save(path)
    os.utime(path, (0, 0))
    assert load("mine", data_dir).train_images[0, 0].min() == 255


@pytest.mark.parametrize("sums", [True, False], ids=["with sums", "of a version without sums"])
def test_decoded_images_that_are_damaged_are_decoded_again(mine, sums):
    data_dir = mine("images")
    first = load("mine", data_dir)
    (path,) = (data_dir / "mine").glob("decoded-*/train_images.npy")
    np.save(path, np.roll(np.load(path), 1, 0))
    if not sums:
        (path.parent / files.SUMS).unlink()
    assert torch.equal(load("mine", data_dir).train_images, first.train_images)
    files.open_kept(path.parent)  # stored again, with its sums


def replace_array(name, change):
    def spoil(folder):
        path = folder / f"{name}.npy"
        np.save(path, change(np.load(path)))

    return spoil


def repaint(name, size):
    return lambda folder: Image.new("RGB", size).save(folder / name)


@pytest.mark.parametrize(
    ("form", "spoil", "says"),
    [
        ("arrays", lambda f: (f / "test_labels.npy").unlink(), "mine lacks test_labels.npy"),
        ("arrays", replace_array("train_images", lambda a: a / 255), "train_images.npy holds float64 (24, 16, 16, 3)"),
        ("arrays", replace_array("train_images", lambda a: a[:, :12]), "train_images.npy holds 16 × 12 pixels, which"),
        ("arrays", replace_array("test_images", lambda a: a[:, :8, :8]), "test_images.npy holds images of 8 × 8 pixel"),
        ("arrays", replace_array("train_labels", lambda a: a[1:]), "train_labels.npy holds 23 labels of 24 images"),
        (
            "arrays",
            replace_array("train_labels", lambda a: a / 2),
            "train_labels.npy holds float64 (24,) instead of integers (24,)",
        ),
        ("arrays", replace_array("train_labels", lambda a: a + 1), "train_labels.npy holds labels 1 to 3 of 3 classes"),
        ("arrays", replace_array("train_labels", lambda a: a * 0), "train_labels.npy holds one class"),
        ("arrays", replace_array("test_labels", lambda a: a + 1), "test_labels.npy holds label 3, and training labels"),
        ("arrays", replace_array("test_labels", lambda a: a % 2), "test_labels.npy holds no image of class 2"),
        ("images", lambda f: shutil.rmtree(f / "test"), "mine/test is missing"),
        ("images", lambda f: shutil.rmtree(f / "test" / "bee"), "mine/test lacks the class bee"),
        ("images", lambda f: shutil.rmtree(f / "train" / "bee"), "mine/train lacks the class bee"),
        ("images", lambda f: [shutil.rmtree(f / "train" / n) for n in ("bee", "cow")], "train holds one folder of im"),
        ("images", lambda f: [shutil.rmtree(f / "test" / n) for n in ("bee", "cow")], "test lacks the class bee, cow"),
        ("images", lambda f: (f / "test/bee").rename(f / "no") and (f / "test/bee").mkdir(), "test holds no image of"),
        ("images", lambda f: (f / "test/cow/02.png").write_text("no image"), "mine/test/cow/02.png cannot be decoded"),
        ("images", repaint("test/cow/02.png", (9, 9)), "mine/test/cow/02.png is 9 × 9 pixels instead of 16 × 16"),
        (
            "images",
            repaint("train/ant/00.png", (9, 8)),
            "mine/train/ant/00.png holds 9 × 8 pixels, which is not a square",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence_that_names_the_file(mine, form, spoil, says):
    data_dir = mine(form)
    spoil(data_dir / "mine")
    assert says in refusal(data_dir)


@pytest.mark.parametrize("size", [None, 8])
def test_an_image_that_is_too_large_to_decode_is_named(mine, monkeypatch, size):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert "mine/train/ant/00.png cannot be decoded (Image size (256 pixels)" in refusal(mine("images"), size)


def test_a_hidden_folder_is_not_a_class(mine):
    folder = mine("images") / "mine"
    (folder / "train/.ipynb_checkpoints").mkdir()
    shutil.copytree(folder / "test/ant", folder / "test/.cache")
    data = load("mine", folder.parent)
    assert data.names == CLASSES and len(data.test_images) == 12
    for name in CLASSES:
        shutil.rmtree(folder / "train" / name)
    assert "mine/train holds only hidden folders" in refusal(folder.parent)


def test_files_that_are_not_read_are_told_of_in_one_sentence(mine):
    folder = mine("images") / "mine"
    Image.new("RGB", (16, 16)).save(folder / "train/bee/x.gif")
    shutil.copy(folder / "train/ant/00.png", folder / "train/loose.png")
    (folder / "train/ant/.DS_Store").touch()
    with pytest.warns(
        UserWarning, match="train holds 2 files that are not read, such as bee/x.gif: only images"
    ) as told:
        assert len(load("mine", folder.parent).train_images) == 24
    assert len(told) == 1
    (folder / "train/bee/x.gif").unlink()
    with pytest.warns(
        UserWarning, match=r"train holds a file that is not read, loose\.png: only images in class folder"
    ):
        load("mine", folder.parent)


def test_hidden_folders_are_neither_read_nor_entered(mine):
    folder = mine("images") / "mine"
    (folder / "train/ant/.ipynb_checkpoints").mkdir()
    shutil.copy(folder / "train/ant/00.png", folder / "train/ant/.ipynb_checkpoints/00.png")
    for name in ("train/.up", "train/.again", "test/.up", "test/.again"):  # without end, if they were followed
        (folder / name).symlink_to("..", target_is_directory=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load("mine", folder.parent).train_images) == 24


def test_a_link_to_a_folder_above_it_is_refused(mine):
    folder = mine("images") / "mine"
    (folder / "train/ant/up").symlink_to("..", target_is_directory=True)
    assert "ant/up/ant is the same folder as" in refused(load, "mine", folder.parent)


def test_a_class_of_an_unread_format_is_refused_after_saying_so(mine):
    folder = mine("images") / "mine"
    for path in (folder / "test/bee").iterdir():
        path.rename(path.with_suffix(".heic"))
    with pytest.warns(UserWarning, match=r"test holds 4 files that are not read, such as bee/01\.heic"):
        assert "test holds no image of the class bee" in refusal(folder.parent)


LATIN = os.fsdecode("Möwe".encode("latin-1"))  # as archives from other systems unpack it


def test_a_file_may_have_a_name_that_is_no_utf8_but_a_class_may_not(mine):
    data_dir = mine("images")
    path = data_dir / "mine" / "train" / "ant"
    shutil.copy(next(path.glob("*.png")), path / f"{LATIN}.png")
    assert len(load("mine", data_dir).train_images) == 25
    for split in ("train", "test"):
        (data_dir / "mine" / split / "ant").rename(data_dir / "mine" / split / LATIN)
    assert r"train holds folders whose names are not UTF-8 ('M\udcf6we'): rename them" in refusal(data_dir)


def test_an_image_of_sixteen_bits_is_refused_and_not_cut_off(mine):
    data_dir = mine("images")
    Image.fromarray(np.full((16, 16), 5000, np.uint16)).save(data_dir / "mine" / "train" / "ant" / "00.png")
    assert "00.png has more than 8 bits per channel" in refusal(data_dir)


def exif_of(orientation):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    return exif


def replace_first(folder, image, form, **options):
    """Write another first image of the class ant, in another format."""
    (folder / "train/ant/00.png").unlink(missing_ok=True)
    path = folder / f"train/ant/00.{form}"
    image.save(path, **options)
    return path


@pytest.mark.parametrize(("form", "lossless"), [("png", {}), ("tif", {}), ("webp", {"lossless": True})])
@pytest.mark.parametrize("size", [None, 16])
def test_photographs_are_turned_as_their_exif_data_says(mine, form, lossless, size):
    folder = mine("images") / "mine"
    original = Image.fromarray(pictures(24)[0][0])
    for orientation in range(1, 9):
        stored = replace_first(folder, original, form, exif=exif_of(orientation), **lossless)
        os.utime(stored, (orientation, orientation))
        with Image.open(stored) as image:
            expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
        found = load("mine", folder.parent, size).train_images[0].permute(1, 2, 0).numpy()
        assert np.array_equal(found, expected), orientation
        assert np.array_equal(found, np.asarray(original)) == (orientation == 1)


def test_a_photograph_that_lies_on_its_side_is_turned_and_cropped(mine):
    folder = mine("images") / "mine"
    photo = Image.new("RGB", (32, 16))
    photo.paste("red", (0, 0, 16, 16))
    replace_first(folder, photo, "jpg", exif=exif_of(6), quality=95)
    red = load("mine", folder.parent, 16).train_images[0, 0]
    assert red[:6].min() > 200 and red[-6:].max() < 60  # the stored left half is the upper one


def test_damaged_exif_data_leaves_an_image_as_it_is_stored(mine):
    folder = mine("images") / "mine"
    path = replace_first(folder, Image.new("RGB", (16, 16), "red"), "jpg", exif=exif_of(6))
    path.write_bytes(path.read_bytes().replace(b"Exif\0\0MM", b"Exif\0\0XX").replace(b"Exif\0\0II", b"Exif\0\0XX"))
    assert load("mine", folder.parent).train_images[0, 0].min() > 250


def test_arrays_that_a_version_without_turning_decoded_are_not_used(mine):
    folder = mine("images") / "mine"
    load("mine", folder.parent)
    listed = [path for split in ("train", "test") for path in sorted((folder / split).rglob("*.png"))]
    lines = [f"{p.relative_to(folder)} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in listed]
    before = hashlib.sha256("\n".join(["None", *lines]).encode()).hexdigest()[:16]
    assert not (folder / f"decoded-{before}").exists()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_an_image_with_transparent_pixels_is_refused_and_an_opaque_one_is_not(mine, mode):
    data_dir = mine("images")
    path = next(data_dir.rglob("*.png"))
    opaque = Image.open(path).convert("RGB").convert("RGBA" if mode == "P" else mode)
    clear = opaque.copy()
    clear.putalpha(Image.new("L", clear.size, 254))
    for image, transparent in ((opaque, False), (clear, True)):
        (image.quantize(8) if mode == "P" else image).save(path)
        if transparent:
            assert f"{path} has transparent pixels" in refusal(data_dir)
        else:
            load("mine", data_dir)


def test_a_size_is_for_own_images_and_a_missing_folder_says_both_forms(tmp_path):
    assert "train/<class>/*.png and test/<class>/*.png, or four .npy arrays" in refusal(tmp_path)
    with pytest.raises(UserError, match="size=16 is for images of your own: digits has images of 32 × 32 pixels"):
        load("digits", tmp_path, 16)


def test_the_data_script_reads_the_size_of_the_yaml_unless_it_is_given(mine, tmp_path):
    data_dir, path = mine("images", shape=(20, 24)), tmp_path / "conf" / "dataset" / "mine.yaml"
    path.write_text(MINE + "size: 16\n")
    words = ["scripts/prepare_data.py", "mine", "--data-dir", data_dir, "--config-dir", tmp_path / "conf"]
    for more, size in (([], 16), (["--size", 8], 8)):
        assert f"24 training and 12 test images, {size} × {size}, 3 classes" in call(*words, *more).stdout


def test_the_sheet_of_corruptions_reads_the_size_of_the_yaml(mine, tmp_path):
    data_dir, conf = mine("images", shape=(20, 24)), tmp_path / "conf"
    (conf / "dataset" / "mine.yaml").write_text(MINE + "size: 32\n")
    words = ["--dataset", "mine", "--data-dir", data_dir, "--config-dir", conf, "--out", tmp_path / "figures"]
    done = call("scripts/corruption_sheet.py", *words)
    assert not done.returncode and (tmp_path / "figures" / "mine-corruptions.pdf").exists(), done.stderr


def test_the_size_is_in_the_name_of_a_run_and_its_absence_is_not(own_run, mine):
    plain, resized = own_run(), own_run("size=24")
    assert "size" not in plain.identity and resized.identity["size"] == 24
    assert plain.training_name != resized.training_name


def test_a_sweep_over_sizes_trains_each_on_its_own_images(own_run, mine, monkeypatch):
    mine("arrays")
    seen = {}

    def train_missing(runs, data, device):
        seen.update({run.size: data.train_images.shape[-1] for run in runs})
        yield {}

    monkeypatch.setattr(packs, "train_missing", train_missing)
    list(packs.train_in_packs([own_run("size=24"), own_run(), own_run("size=8")]))
    assert seen == {None: 16, 8: 8, 24: 24}


@pytest.fixture
def registered(monkeypatch):
    """What a test registers is gone after it."""
    for registry in (DATASETS, CORRUPTIONS, metrics.OWN):
        for name in registry:
            monkeypatch.setitem(registry, name, registry[name])
    before = [(registry, set(registry)) for registry in (DATASETS, CORRUPTIONS, metrics.OWN)]
    yield
    for registry, names in before:
        for name in set(registry) - names:
            del registry[name]


@pytest.mark.parametrize("classes", [np.array(CLASSES), (3, 1, 4)])
def test_names_of_classes_become_texts(registered, mine, classes):
    data_dir = mine("arrays")
    dataset("mine")(lambda folder, size: read_files(folder, size) | {"classes": classes})
    names = load("mine", data_dir).names
    assert names == tuple(map(str, classes)) and {type(name) for name in names} == {str}


def test_two_classes_of_one_name_are_refused(registered, mine):
    data_dir = mine("arrays")
    dataset("mine")(lambda folder, size: read_files(folder, size) | {"classes": ["cat", "dog", "cat"]})
    assert "gives several classes the name cat" in refusal(data_dir)


def test_foreign_images_of_other_sizes_are_read_with_the_size_in_their_yaml(registered, mine, own_run, monkeypatch):
    data_dir = mine("images", shape=(16, 24))
    dataset("theirs", ood="mine")(read_files)
    monkeypatch.setattr(analysis, "size_of", {"mine": 10}.get)
    run, few = replace(own_run(), dataset="theirs"), SimpleNamespace(test_images=torch.zeros(1, 3, 8, 8))
    (seen,) = analysis.evaluate_foreign(run, lambda images: [[images]], few)
    assert run.data_dir == str(data_dir) and seen.shape == (12, 3, 8, 8)


def test_a_wrong_yaml_of_foreign_images_costs_only_the_auroc(registered, mine, own_run, monkeypatch, caplog):
    def fail(*_):
        raise ConfigCompositionException("In 'dataset/mine': it is wrong")

    dataset("theirs", ood="mine")(read_files)
    run = replace(own_run(), dataset="theirs")
    composing.register_once()
    monkeypatch.setattr(composing, "file_of", lambda *_: "mine.yaml")
    monkeypatch.setattr(composing, "compose", fail)
    assert analysis.evaluate_foreign(run, None, None) is None
    assert "no AUROC: In 'dataset/mine': it is wrong" in caplog.text


def test_a_registered_dataset_reads_itself_and_names_its_foreign_images(registered, mine, tmp_path):
    data_dir = mine("arrays")

    @dataset("theirs", ood="mine")
    def read(folder, size):
        found = read_files(tmp_path / "data" / "mine")
        return found | {name: found[name][:, :8, :8] for name in ("train_images", "test_images")}

    data = load("theirs", data_dir)
    assert data.train_images.shape == (24, 3, 8, 8) and ood.ood_name("theirs") == "mine"
    assert load_ood("theirs", data, data_dir).shape == (12, 3, 8, 8)  # resized: a size is no sign of foreign images
    assert ood.ood_name("mine") == ""
    with pytest.raises(UserError, match="dataset=theirs is defined twice"):
        dataset("theirs")(read_files)
    with pytest.raises(UserError, match="_c stands for corrupted test images: rename it"):
        dataset("theirs_c")


@pytest.mark.parametrize("name", ["cifar10", "tinyimagenet", "digits"])
def test_a_name_of_the_suite_is_refused(registered, name):
    with pytest.raises(UserError, match=f"dataset={name} is defined twice, as rbue.data.sources.*: rename one"):
        dataset(name)(read_files)


# --- a corruption -----------------------------------------------------------------------------------------------------


def darken(images, share, draws):
    return (images * (share * draws.uniform("layer", 1, 1, 1))).byte()


def own_set(data, name="darken", severity=3):
    return corrupt(data.test_images, name, severity, torch.arange(len(data.test_images)))


def test_an_own_corruption_changes_no_byte_of_the_others(registered, digits, monkeypatch):
    few = sources.replace(digits, test_images=digits.test_images[:20])
    before = own_set(few, "gaussian_noise"), load_ood("digits", few, "nowhere")
    corruption("darken", (0.9, 0.8, 0.7, 0.6, 0.5))(darken)
    assert len(TYPES) == 19 and "darken" not in TYPES and [*CORRUPTIONS][19:] == ["darken"]
    assert torch.equal(before[0], own_set(few, "gaussian_noise"))
    assert torch.equal(before[1], load_ood("digits", few, "nowhere"))


def test_the_draws_of_an_own_corruption_follow_from_its_name(registered, digits):
    for name in ("one", "two"):
        corruption(name, (1,) * 5)(lambda images, _, draws: (draws.bits("byte", *images.shape[1:]) & 255).byte())
    one = own_set(digits, "one")
    assert torch.equal(one, own_set(digits, "one")) and not torch.equal(one, own_set(digits, "two"))
    assert not torch.equal(one, own_set(digits, "one", severity=4))


def test_an_own_corruption_that_works_in_place_leaves_the_clean_images(registered, digits):
    corruption("darken", (4, 8, 12, 16, 20))(lambda images, rows, _: images.zero_())
    few = sources.replace(digits, test_images=digits.test_images[:20])
    before = few.test_images.clone()
    assert own_set(few).sum() == 0 and torch.equal(few.test_images, before)


@pytest.mark.parametrize("add", [lambda x: torch.rand(x.shape), lambda x: x.float().mean() / 255])
def test_an_own_corruption_that_is_not_reproducible_is_refused(add, registered, digits):
    corruption("darken", (1, 2, 3, 4, 5))(lambda images, c, _: (images * (1 - add(images) / 2)).byte())
    said = "its images differ from call to call, or between batches: take random numbers from draws"
    assert refused(corrupted.make, digits, "darken", 3, "cpu") == said


def test_generated_sets_have_an_own_corruption_and_official_files_are_still_accepted(
    registered, digits, digits_run, declare_official, tmp_path
):
    corruption("darken", (0.9, 0.8, 0.7, 0.6, 0.5))(darken)
    ours = corrupted.sets(digits_run("dataset=digits_c", "corruptions=generated"), digits)
    assert ours.cells[-1] == ("darken", 5) and len(ours.cells) == 100
    assert torch.equal(ours.read("darken", 3, "cpu")[0], own_set(digits))
    folder, few = tmp_path / "cifar10_c", sources.replace(digits, test_images=digits.test_images[:2])
    few = sources.replace(few, test_labels=digits.test_labels[:2])
    folder.mkdir()
    for name in TYPES:
        np.save(folder / f"{name}.npy", np.zeros((10, 32, 32, 3), np.uint8))
    np.save(folder / "labels.npy", np.tile(few.test_labels, 5))
    declare_official(folder)
    run = sources.replace(digits_run("dataset=cifar10_c"), data_dir=str(tmp_path))
    with pytest.warns(UserWarning, match="cifar10_c holds no darken, so this is not tested: set corruptions=generated"):
        official = corrupted.sets(run, few)
    assert official.source == "official" and len(official.cells) == 95


def test_own_images_are_corrupted_at_the_sizes_that_the_corruptions_are_made_for(mine, own_run):
    mine("arrays")
    run = own_run("dataset=mine_c")
    with pytest.raises(UserError, match="32 × 32 and 64 × 64, not 16 × 16: write size: 32 into the dataset's YAML"):
        corruption_evaluation.sets(run, load_for(run))
    for size in (32, 64):
        run = own_run("dataset=mine_c", f"size={size}")
        images, labels = corruption_evaluation.sets(run, load_for(run)).read("contrast", 5, "cpu")
        assert images.shape == (12, 3, size, size) and labels.tolist() == [0, 1, 2] * 4


def test_a_wrong_corruption_is_refused(registered, digits):
    with pytest.raises(UserError, match="darken has 3 severities instead of 5"):
        corruption("darken", (1, 2, 3))
    with pytest.raises(UserError, match="fog is defined twice"):
        corruption("fog", (1,) * 5)(darken)
    corruption("float", (1,) * 5)(lambda images, *_: images / 255)
    with pytest.raises(UserError, match=r"float gives torch.float32 .* instead of torch.uint8"):
        own_set(digits, "float")
    with pytest.raises(UserError, match=r"float gives torch.float32"):  # before the training
        corrupted.offer_generated(digits, {"frost": None})


# --- a metric ---------------------------------------------------------------------------------------------------------


def test_a_wrong_metric_is_refused(registered):
    probs, labels = torch.eye(3), torch.arange(3)
    with pytest.raises(UserError, match="metric ece cannot be registered"):
        metrics.metric("ece")
    with pytest.raises(UserError, match="a metric needs a name"):  # @metric without brackets
        metrics.metric(lambda probs, labels: 1.0)
    metrics.metric("odd")(lambda probs, labels: float("nan"))
    with pytest.raises(UserError, match="metric odd returns nan"):
        metrics.score(probs, labels)
    metrics.OWN["odd"] = lambda probs, labels: "high"
    with pytest.raises(UserError, match="metric odd returns 'high' instead of a number"):
        metrics.score(probs, labels)


def test_an_own_metric_that_works_in_place_leaves_predictions_and_labels(registered):
    probs, labels = torch.eye(3), torch.arange(3)
    metrics.metric("zero")(lambda probs, labels: probs.zero_().sum() + labels.zero_().sum())
    assert metrics.score(probs, labels)["zero"] == 0
    assert torch.equal(probs, torch.eye(3)) and torch.equal(labels, torch.arange(3))


# --- all of it --------------------------------------------------------------------------------------------------------


@pytest.fixture
def finished(registered, mine, own_run, tmp_path, monkeypatch):
    """Runs on own images, clean and corrupted, with a corruption and a metric of one's own; one run before them."""
    mine("images")
    experiment(own_run("seed=1"))
    corruption("darken", (0.9, 0.8, 0.7, 0.6, 0.5))(darken)
    metrics.metric("margin")(lambda probs, labels: probs.topk(2, 1).values.diff().abs().mean())
    found = [experiment(own_run(*words)) for words in ([], ["method=dropreLU"], ["dataset=mine_c"])]
    conf = tmp_path / "whole"
    shutil.copytree(ROOT / "conf", conf)
    text = MINE + "epochs: 1\n"  # what the runs had: tables list what was run as its file says
    (conf / "dataset" / "mine.yaml").write_text(text)
    demo = conf / "protocol" / "demo.yaml"
    demo.write_text(demo.read_text().replace("epochs: 12", "epochs: 1").replace("batch: 64", "batch: 24"))
    monkeypatch.setattr(composing, "CONF", conf)
    composing.composed.cache_clear()
    composing.canonical.cache_clear()
    yield tmp_path / "results_dir", found
    composing.composed.cache_clear()
    composing.canonical.cache_clear()


def test_results_tables_figures_and_page_show_what_is_the_users_own(finished, tmp_path):
    folder, (single, sampled, shifted) = finished
    read = {result.config["seed"]: result.metrics for result in results.collect(folder)}
    assert "margin" in read[0] and "margin" not in read[1]
    assert 0 < single.metrics["margin"] < 1 and sampled.by_samples["margin"][-1] == sampled.metrics["margin"]
    assert [level.severity for level in shifted.corruptions.own["darken"]] == [1, 2, 3, 4, 5]
    assert not shifted.corruptions.types and "fog takes uint8 images" in shifted.corruptions.skipped["fog"]
    runs = records(results.collect(folder))
    (table,) = (table for table in build(runs, PAPER) if table.dataset == "mine")
    assert "Single" in write_table(table, tmp_path / "tables")[0].read_text()
    (network,) = networks(runs)
    paths = {path.name: path.read_text() for path in beyond.draw(network, tmp_path / "figures")}
    head, _, alone, random = [line for line in paths["scores.md"].splitlines() if line.startswith("|")]
    assert head.split()[-2] == "margin" and "OOD" not in paths["scores.md"]
    assert "–" in alone.split("|")[-2]  # one of its two seeds has no margin
    assert float(random.split("|")[-2].split()[0]) > 0
    assert paths["own-corruptions.csv"].splitlines()[1].startswith("Single,darken,1,")
    assert "severity 5" in paths["own-corruptions.md"]
    page = build_page(results.collect(folder), PAPER, tmp_path / "figures", tmp_path / "none")
    assert "darken" in page and "margin" in page


def test_labels_saved_as_python_objects_are_named(mine):
    folder = mine("arrays")
    np.save(folder / "mine" / "train_labels.npy", np.array([0, "a"] * 12, dtype=object))
    assert "train_labels.npy holds Python objects: save labels as integers" in refusal(folder)


def test_the_examples_images_are_read(tmp_path):
    call("examples/own_images/make_images.py", tmp_path / "shapes")
    data = load("shapes", tmp_path, 32)
    assert data.names == ("disc", "square") and len(data.train_images) == 400 and len(data.test_images) == 100
