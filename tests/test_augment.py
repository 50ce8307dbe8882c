import torch

from rbue import noise
from rbue.data import augment

IMAGES = torch.arange(1, 1 + 50 * 3 * 8 * 6).remainder(255).add(1).to(torch.uint8).view(50, 3, 8, 6)


def windows(image, crop):
    """Every window that a random crop may cut, plain and mirrored."""
    padded = torch.nn.functional.pad(image, (crop,) * 4)
    cuts = [padded[:, t : t + 8, l : l + 6] for t in range(2 * crop + 1) for l in range(2 * crop + 1)]
    return cuts, [cut.flip(2) for cut in cuts]


def cut(flip=True, crop=2, step=0):
    keys = noise.keys(0, step, torch.arange(50), 1)[0]
    return augment.crop_and_flip(augment.pad(IMAGES, crop), torch.arange(50), keys, crop, flip).permute(0, 3, 1, 2)


def test_every_image_is_one_of_its_own_padded_windows():
    for image, result in zip(IMAGES, cut(), strict=True):
        plain, mirrored = windows(image, 2)
        assert any(torch.equal(result, window) for window in plain + mirrored)


def test_all_windows_and_both_directions_occur():
    plain, mirrored = windows(IMAGES[0], 1)
    drawn = [cut(crop=1, step=step)[0] for step in range(200)]
    counts = [sum(torch.equal(d, w) for d in drawn) for w in plain + mirrored]
    assert min(counts) > 0 and max(counts) < 30  # 18 cells with 200/18 = 11 expected each


def test_half_of_the_images_are_flipped():
    flipped = sum(int((cut(crop=0, step=step) != IMAGES).flatten(1).any(1).sum()) for step in range(40))
    assert 900 < flipped < 1100  # 2,000 images; the standard deviation is 22


def test_without_crop_and_flip_an_image_stays_as_it_is():
    assert torch.equal(cut(flip=False, crop=0), IMAGES)


def test_normalised_images_have_mean_zero_and_deviation_one():
    pixels = IMAGES.double() / 255
    mean, std = pixels.mean((0, 2, 3)).float(), pixels.std((0, 2, 3)).float()
    batch = augment.normalise(IMAGES.permute(0, 2, 3, 1), mean, std)
    assert batch.shape == IMAGES.shape
    assert torch.allclose(batch.mean((0, 2, 3)), torch.zeros(3), atol=1e-4)
    assert torch.allclose(batch.std((0, 2, 3)), torch.ones(3), atol=1e-3)
