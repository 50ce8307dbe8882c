"""Corruptions equal the reference's images for equal draws, match its statistics otherwise, and are deterministic.

The plain definitions are in corruption_reference.py; they need OpenCV, scipy and skimage, which rbue does not need.
"""

import hashlib
import json
import runpy
import sys
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from conftest import ROOT, files_at_most, refused
from sklearn.datasets import load_sample_images

from rbue.data import corruptions, load
from rbue.data.corruptions import (
    CORRUPTIONS,
    SEVERITIES,
    TYPES,
    Corruption,
    Draws,
    corrupt,
    jpeg,
    noise,
    spatter,
    weather,
)
from rbue.data.corruptions.severities import CIFAR, CONSTANTS, TINY
from rbue.errors import UserError
from rbue.runs import locks, results

NOISE = {"gaussian_noise": "gaussian", "shot_noise": "shot", "impulse_noise": "impulse", "speckle_noise": "speckle"}
SEEDED = [*NOISE, "glass_blur", "motion_blur", "snow", "frost", "fog", "elastic_transform", "spatter"]
HAS_FROST = find_spec("imagecorruptions") is not None


def photos(count, size):
    """uint8 (count, 3, size, size) crops of two photographs that come with scikit-learn, at two scales."""
    pieces = []
    for image in load_sample_images().images:
        for step in (1, 4):
            part = image[::step, ::step]
            grid = [(r, c) for r in range(0, len(part) - size, size) for c in range(0, part.shape[1] - size, size)]
            pieces += [part[r : r + size, c : c + size] for r, c in grid[:: max(1, len(grid) * 4 // count)]]
    return torch.from_numpy(np.stack(pieces[:count]).transpose(0, 3, 1, 2).copy())


def patterns(count=6, size=32):
    """Images by integer arithmetic only: slopes, stripes, flat and random parts, the same on any machine."""
    n, c, r, w = (
        torch.arange(k).view([-1 if i == j else 1 for j in range(4)]) for i, k in enumerate((count, 3, size, size))
    )
    images = (r * (n + 3) + w * (2 * c + 1) + 40 * n) % 256
    images = torch.where((r > size // 2) & (w < size // 3), 255 * (n % 2), images)
    grain = Draws("fog", 1, torch.arange(count), seed=9).below("byte", 256, 3, size, size)
    return torch.where((r < size // 4) & (w > size // 2), grain, images).to(torch.uint8)


def types(names=TYPES):
    without = pytest.mark.skipif(not HAS_FROST, reason="no frost textures: pip install -e '.[frost]'")
    return [pytest.param(name, marks=without) if name == "frost" else name for name in names]


@pytest.fixture(scope="module")
def plain():
    for module in ("cv2", "scipy", "skimage"):
        pytest.importorskip(module)
    return pytest.importorskip("corruption_reference")


# --- against the reference --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", CONSTANTS)
@pytest.mark.parametrize("name", types([name for name in TYPES if name not in NOISE]))
def test_given_the_same_draws_an_image_is_the_reference_s(plain, name, size):
    images, index = photos(4, size), torch.tensor([3, 1, 4, 1_000_000])
    for severity in SEVERITIES:
        c, draws = CONSTANTS[size][name][severity - 1], Draws(name, severity, index)
        ours = CORRUPTIONS[name].make(images, c, draws).permute(0, 2, 3, 1).numpy().astype(int)
        rows = images.permute(0, 2, 3, 1).numpy()
        theirs = np.stack([plain.reference(row, name, c, plain.Replay(draws, i)) for i, row in enumerate(rows)])
        apart = abs(ours - theirs)
        # if truncation differs, the relief of spatter may move; all other types change by one grey level
        assert (apart <= 1).mean() >= (0.995 if name == "spatter" else 1), (name, severity, apart.max())
        assert (apart == 0).mean() >= 0.98, (name, severity, (apart == 0).mean())


@pytest.mark.parametrize("name", types(SEEDED))
def test_with_its_own_draws_a_type_has_the_reference_s_statistics(plain, name):
    """Mean, variance and spectrum of what a corruption adds, paired by image: all within 4.5 standard errors."""
    images, severity = photos(100, 32), 4
    ours = corrupt(images, name, severity, torch.arange(len(images))).double()
    rows, draw = images.permute(0, 2, 3, 1).numpy(), plain.Numpy(seed=1)
    theirs = np.stack([plain.reference(row, name, CIFAR[name][severity - 1], draw) for row in rows])
    theirs = torch.from_numpy(theirs).permute(0, 3, 1, 2).double()
    apart = statistics(ours - images) - statistics(theirs - images)
    errors = apart.mean(0) / (apart.std(0) / len(apart) ** 0.5 + 1e-9)
    assert errors.abs().max() < 4.5, errors


def statistics(added):
    """(N, 6): mean, log variance, and the log power in four rings of the spectrum."""
    grey = added.mean(1)
    power = torch.fft.fft2(grey - grey.mean((1, 2), keepdim=True)).abs() ** 2
    line = torch.fft.fftfreq(grey.shape[-1])
    radius = (line[:, None] ** 2 + line**2).sqrt()
    rings = [
        power[:, (radius > low) & (radius <= high)].mean(1)
        for low, high in ((0, 0.1), (0.1, 0.2), (0.2, 0.35), (0.35, 1))
    ]
    return torch.stack([added.mean((1, 2, 3)), *((x + 1).log() for x in (added.var((1, 2, 3)), *rings))], 1)


@pytest.mark.parametrize("name", NOISE)
def test_noise_draws_bytes_with_the_reference_s_probabilities(plain, name):
    """200,000 draws for each of a few bytes against numpy's: every output byte within six standard errors."""
    count, severity = 2**16, 3
    c, draw = CIFAR[name][severity - 1], plain.Numpy(seed=2)
    for byte in (0, 40, 128, 250, 255):
        images = torch.full((count // 1024, 3, 32, 32), byte, dtype=torch.uint8)
        ours = torch.bincount(corrupt(images, name, severity, torch.arange(len(images))).flatten(), minlength=256)
        theirs = np.bincount(plain.reference(images[:, 0].numpy().repeat(3), name, c, draw), minlength=256)
        expected = (ours.numpy() + theirs) / 2
        assert (abs(ours.numpy() - theirs) <= 6 * np.sqrt(expected * 2 + 1)).all()


@pytest.mark.parametrize("name", NOISE.values())
def test_an_alias_table_holds_the_distribution_it_was_made_from(name):
    c = {"shot": 50}.get(name, 0.07)
    table, probabilities = noise._alias_table(name, c, torch.device("cpu")).view(256, 256), np.zeros((256, 256))
    keep, other = (table >> 8).numpy() / noise.CELL / 256, (table & 255).numpy()
    probabilities += keep
    np.add.at(probabilities, (np.arange(256)[:, None], other), 1 / 256 - keep)
    assert abs(np.cumsum(probabilities, 1) - noise.cumulative(name, c)).max() < 2**-27


def test_canny_and_the_distance_transform_are_opencv_s(plain):
    layer = (255 * torch.rand(64, 32, 32, generator=torch.Generator().manual_seed(0)) ** 2).floor()
    layer = torch.where(layer < 120, 0, layer)
    edges = spatter.canny(layer, 50, 150)
    distances = spatter.edge_distance(edges) / spatter.UNIT
    for image, edge, distance in zip(layer.numpy(), edges.numpy(), distances.numpy(), strict=True):
        theirs = plain.cv2.Canny(image.astype(np.uint8), 50, 150)
        assert ((theirs > 0) == edge).all()
        far = plain.cv2.distanceTransform(255 - theirs, plain.cv2.DIST_L2, 5)
        assert abs(np.minimum(far, 20) - distance).max() < 1e-4


@pytest.mark.parametrize("size", CONSTANTS)
def test_the_batched_jpeg_is_libjpeg_s_byte_for_byte(size):
    images = torch.cat([photos(20, size), patterns(6, size)])
    for quality in (1, 25, 40, 50, 58, 65, 80, 85, 100):
        assert torch.equal(jpeg.batched(images, quality), jpeg.codec(images, quality))


# --- always the same --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", types())
def test_an_image_is_the_same_bytes_in_any_batch_and_order(name):
    images, index = photos(9, 32), torch.arange(9) * 1000 + 7
    for severity in (1, 3, 4):
        whole = corrupt(images, name, severity, index)
        order = torch.tensor([5, 2, 8, 0, 1, 7, 3, 6, 4])
        shuffled = [corrupt(images[part], name, severity, index[part]) for part in order.split([1, 5, 3])]
        assert torch.equal(whole[order], torch.cat(shuffled))


@pytest.mark.parametrize("name", types(SEEDED))
def test_images_seeds_and_severities_draw_apart(name):
    images = photos(1, 32).repeat(3, 1, 1, 1)
    first = corrupt(images, name, 5, torch.tensor([0, 1, 10_000]))
    assert all(not torch.equal(first[a], first[b]) for a, b in ((0, 1), (0, 2), (1, 2)))
    assert not torch.equal(first, corrupt(images, name, 5, torch.tensor([0, 1, 10_000]), seed=1))
    one, two = (Draws(name, severity, torch.arange(2)).normal("layer", 8, 8) for severity in (1, 2))
    assert not torch.equal(one, two)


def test_normals_are_normal_and_uniforms_uniform():
    draws = Draws("snow", 1, torch.arange(1000))
    z = draws.normal("layer", 31, 33).flatten(1)  # an odd number of elements leaves half a pair over
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3)):
        assert (z**power).mean().item() == pytest.approx(moment, abs=0.03)
    share = (z.abs() > 4).double().mean().item()
    assert share == pytest.approx(6.33e-5, rel=0.35)
    assert (z[:, 1:] * z[:, :-1]).mean().abs() < 0.005 and (z[1:] * z[:-1]).mean().abs() < 0.005
    counts = torch.bincount(draws.below("shift", 10, 1024).flatten(), minlength=10).double()
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 35  # chi-square with 9 degrees of freedom


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", types())
@pytest.mark.parametrize("size", CONSTANTS)
def test_a_gpu_makes_the_cpu_s_bytes(name, size):
    images = photos(64, size)
    index = torch.arange(len(images))
    for severity in SEVERITIES:
        ours = corrupt(images, name, severity, index)
        theirs = corrupt(images.cuda(), name, severity, index.cuda()).cpu()
        assert torch.equal(ours, theirs), (severity, (ours.int() - theirs.int()).abs().max())


# --- constants, sizes, refusals ---------------------------------------------------------------------------------------


def test_every_type_has_a_function_and_five_severities():
    assert len(TYPES) == 19 and tuple(CORRUPTIONS) == TYPES == tuple(CIFAR)
    assert all(len(table[name]) == 5 for table in (CIFAR, TINY) for name in TYPES)
    assert [len(np.arange(*c)) for c in CIFAR["zoom_blur"]] == [7, 12, 16, 21, 26]  # the float end-points of np.arange


def test_64x64_images_are_saved_as_jpeg_like_the_official_ones():
    images, index = photos(3, 64), torch.arange(3)
    raw = corrupt(images, "fog", 2, index, saved=0)
    assert torch.equal(corrupt(images, "fog", 2, index), jpeg.codec(raw, 85))
    assert not torch.equal(corrupt(images, "fog", 2, index), raw)
    small = photos(3, 32)
    assert torch.equal(corrupt(small, "fog", 2, index), corrupt(small, "fog", 2, index, saved=0))


refusal = partial(refused, corrupt)


def test_what_cannot_be_corrupted_is_refused_in_a_sentence():
    images, index = patterns(1), torch.arange(1)
    assert "fogg is not known" in refusal(images, "fogg", 1, index)
    assert "severity=6" in refusal(images, "fog", 6, index)
    assert "(1, 3, 31, 32)" in refusal(images[:, :, 1:], "fog", 1, index)
    assert "float32" in refusal(images.float(), "fog", 1, index)


def test_frost_without_textures_says_so_and_the_others_go_on(monkeypatch, tmp_path):
    images, index = patterns(1), torch.arange(1)
    monkeypatch.setattr(weather, "find_spec", lambda name: None)
    assert "pip install -e '.[frost]'" in refusal(images, "frost", 1, index)
    assert "holds no frost1.png" in refusal(images, "frost", 1, index, textures=tmp_path)
    assert corrupt(images, "snow", 1, index).shape == images.shape


def test_an_index_of_other_types_gives_the_same_images_or_is_refused():
    images, index = patterns(8), torch.arange(8)
    expected = corrupt(images, "gaussian_noise", 3, index)
    for same in (index.int(), index.to(torch.uint8), range(8)):
        assert torch.equal(corrupt(images, "gaussian_noise", 3, same), expected)
    for wrong in (index[:1], index[:, None], torch.tensor(0), index.double(), index.bool()):
        assert "one integer per image, shape (8,)" in refusal(images, "gaussian_noise", 3, wrong)


def test_frost_crops_the_textures_of_a_folder(tmp_path):
    for number in range(1, 6):
        texture = np.full((200, 220, 3), 50 * number, np.uint8)
        weather.Image.fromarray(texture).save(tmp_path / f"frost{number}.png")
    black = torch.zeros(200, 3, 32, 32, dtype=torch.uint8)
    frosted = corrupt(black, "frost", 5, torch.arange(200), textures=tmp_path)
    assert set(frosted.unique().tolist()) == {int(0.45 * 50 * number) for number in range(1, 6)}


# --- the published sets -----------------------------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch):
    def run(out, *words):
        argv = ["corruptions.py", "digits", "--out", out, "--device", "cpu", *words]
        monkeypatch.setattr(sys, "argv", [*map(str, argv)])
        runpy.run_path(str(ROOT / "scripts" / "corruptions.py"), run_name="__main__")

    return run


def test_the_script_writes_the_official_layout_and_goes_on_where_it_stopped(command, tmp_path):
    out = tmp_path / "digits_c"
    command(out, "--types", "contrast")
    data, written, labels = load("digits", "nowhere"), np.load(out / "contrast.npy"), np.load(out / "labels.npy")
    count = len(data.test_images)
    assert written.shape == (5 * count, 32, 32, 3) and written.dtype == np.uint8
    assert (labels.reshape(5, count) == data.test_labels.numpy()).all()
    third = corrupt(data.test_images, "contrast", 3, torch.arange(count)).permute(0, 2, 3, 1).numpy()
    assert (written[2 * count : 3 * count] == third).all()
    before = (out / "contrast.npy").stat().st_mtime_ns
    command(out, "--types", "contrast", "saturate")
    assert (out / "contrast.npy").stat().st_mtime_ns == before
    manifest = json.loads((out / "manifest.json").read_text())
    assert list(manifest["files"]) == ["contrast", "saturate"]
    entry = manifest["files"]["contrast"]
    assert entry["sha256"] == hashlib.sha256((out / "contrast.npy").read_bytes()).hexdigest()
    assert entry["heads"][2] == hashlib.sha256(third[:100].copy()).hexdigest()


def test_the_script_says_when_its_images_are_not_those_of_the_manifest(command, tmp_path):
    out, manifest = tmp_path / "digits_c", tmp_path / "manifest.json"
    command(out, "--types", "contrast", "--manifest", manifest)
    content = json.loads(manifest.read_text())
    content["files"]["contrast"]["sha256"] = "0" * 64
    manifest.write_text(json.dumps(content))
    with pytest.raises(SystemExit, match="the images differ from those of the manifest"):
        command(out, "--types", "contrast", "--manifest", manifest)
    with pytest.raises(SystemExit, match="another dataset, seed"):
        command(out, "--seed", 1, "--manifest", manifest)


def test_entries_of_a_manifest_name_the_clean_images_as_soon_as_they_are_known(command, tmp_path):
    paths = tmp_path / "digits_c/manifest.json", tmp_path / "other.json"
    words = paths[0].parent, "--types", "contrast", "--manifest", paths[1]
    command(*words)
    new = paths[0].read_text()
    older, changed = json.loads(new), json.loads(new)
    del older["files"]["contrast"]["clean"]  # as an older version wrote it
    changed["files"]["contrast"]["clean"] = "0" * 64
    for path in paths:
        path.write_text(json.dumps(older))
        command(*words)
        assert json.loads(path.read_text()) == json.loads(new)
        path.write_text(json.dumps(changed))
        with pytest.raises(SystemExit, match="the images differ from those of the manifest"):
            command(*words)
        path.write_text(new)


def test_the_script_replaces_no_file_of_others(command, tmp_path):
    out = tmp_path / "digits_c"
    out.mkdir()
    np.save(out / "contrast.npy", np.zeros(3, np.uint8))
    before = (out / "contrast.npy").read_bytes()
    with pytest.raises(SystemExit, match=r"contrast\.npy was not written by this script.*: name another folder"):
        command(out, "--types", "saturate", "contrast")
    assert (out / "contrast.npy").read_bytes() == before and [p.name for p in out.iterdir()] == ["contrast.npy"]
    (out / "contrast.npy").unlink()
    np.save(out / "labels.npy", np.zeros(3, np.uint8))
    with pytest.raises(SystemExit, match=r"labels\.npy holds the labels of other images"):
        command(out, "--types", "contrast")


def test_sets_of_another_seed_carry_their_manifest_wherever_the_other_one_is(command, tmp_path):
    out, other = tmp_path / "digits_c", tmp_path / "other.json"
    command(out, "--types", "contrast", "--seed", 1, "--manifest", other)
    assert json.loads((out / "manifest.json").read_text()) == json.loads(other.read_text())
    with pytest.raises(SystemExit, match="of another dataset, seed or number of images: name another folder"):
        command(out, "--types", "contrast")


def test_a_full_disk_ends_the_script_with_a_sentence(command, tmp_path):
    out, said = tmp_path / "digits_c", r"contrast\.npy could not be written \(.*\): any previous file is kept"
    with files_at_most(100_000), pytest.raises(SystemExit, match=said):
        command(out, "--types", "contrast", "saturate")
    assert [path.name for path in out.iterdir()] == ["labels.npy"]


def test_two_scripts_do_not_write_into_one_folder(command, tmp_path):
    lock = locks.try_lock(tmp_path / "digits_c")
    with pytest.raises(SystemExit, match=r"digits_c is being written by process \d+ .*: wait until it ends"):
        command(tmp_path / "digits_c", "--types", "contrast")
    lock.release()


def test_scripts_with_one_manifest_keep_each_others_entries(command, tmp_path, monkeypatch):
    """The second script starts and ends while the first one generates its images."""
    shared, more = tmp_path / "shared.json", ["--manifest", tmp_path / "shared.json"]
    write, begun = results.replacing, []

    def interrupted(path):
        if path.name == "contrast.npy" and not begun:
            begun.append(path)
            command(tmp_path / "b", "--types", "saturate", *more)
        return write(path)

    monkeypatch.setattr(results, "replacing", interrupted)
    command(tmp_path / "a", "--types", "contrast", *more)
    assert begun and set(json.loads(shared.read_text())["files"]) == {"contrast", "saturate"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "shared.json"]


def test_a_garbled_manifest_ends_the_script_with_a_sentence(command, tmp_path):
    for garbled, sentence in (("{", "cannot be read"), ("[]", "was not written by this script")):
        (tmp_path / "manifest.json").write_text(garbled)
        with pytest.raises(SystemExit, match=rf"manifest\.json {sentence}"):
            command(tmp_path, "--types", "contrast")


PUBLISHED = ROOT / "results" / "corruptions" / "cifar10.json"  # the manifest that scripts/corruptions.py wrote


@pytest.mark.skipif(not PUBLISHED.exists() or not (ROOT / "data" / "cifar10").exists(), reason="needs data/cifar10")
def test_the_first_images_of_each_published_set_come_out_again():
    files, images = json.loads(PUBLISHED.read_text())["files"], load("cifar10", ROOT / "data").test_images[:100]
    for name in files:
        made = [corrupt(images, name, severity, torch.arange(100)).permute(0, 2, 3, 1) for severity in SEVERITIES]
        heads = [hashlib.sha256(part.contiguous().numpy()).hexdigest() for part in made]
        assert heads == files[name]["heads"], name


DIGESTS = {  # of patterns() at the five severities: of 32 × 32 pixels, of 64 × 64
    "gaussian_noise": ("5245cbac6211", "e4430be39d53"),
    "shot_noise": ("e821f5e9807a", "25adf0501931"),
    "impulse_noise": ("ffb651805f74", "2ce5ec1456b0"),
    "defocus_blur": ("5df96bfbe892", "2aa472c069ac"),
    "glass_blur": ("2021ea43e0e4", "bbfaf9c7e142"),
    "motion_blur": ("0b24b9ecefac", "a5b07778da52"),
    "zoom_blur": ("71a1efc74089", "b5ae7580b31b"),
    "snow": ("386a1bbd1258", "1eac5e2c62dd"),
    "fog": ("efaa17271724", "79e9824fc64d"),
    "brightness": ("aa8ead4aff36", "a26442798d43"),
    "contrast": ("e65312491ff7", "210c04f97813"),
    "elastic_transform": ("2d8873808c56", "a3b8dfca478d"),
    "pixelate": ("65f964017804", "e90384839da5"),
    "speckle_noise": ("bcd32a34225d", "738b28402cb1"),
    "gaussian_blur": ("12084b3557de", "bfbab17b9bed"),
    "spatter": ("d5e32bd1cef5", "3d9bf1b6a9a9"),
    "saturate": ("21c9bed6fea2", "e9de98bb6a37"),
}


@pytest.mark.parametrize("size", CONSTANTS)
def test_the_images_are_the_ones_that_were_published(size):
    """Bytes as on the machine that made the manifest; jpeg and frost depend on the installed libjpeg and textures."""
    images, digests = patterns(6, size), {}
    for name in (name for name in TYPES if name not in ("jpeg_compression", "frost")):
        made = [corrupt(images, name, severity, torch.arange(6), saved=0) for severity in SEVERITIES]
        digests[name] = hashlib.sha256(torch.stack(made).numpy()).hexdigest()[:12]
    assert digests == {name: both[size == 64] for name, both in DIGESTS.items()}


def test_images_that_are_not_square_are_refused_with_the_sizes_and_not_with_the_constants():
    every = CORRUPTIONS | {"posterize": Corruption(lambda images, bits, draws: images, (6, 5, 4, 3, 2))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corruptions, "CORRUPTIONS", every)
        with pytest.raises(UserError, match=r"posterize takes uint8 images \(N, 3, size, size\), not "):
            corrupt(torch.zeros(1, 3, 8, 6, dtype=torch.uint8), "posterize", 1, torch.arange(1))
