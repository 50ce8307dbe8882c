"""From uint8 images on the device to a normalised batch: gather, crop and flip in one indexing operation."""

import torch

from rbue import noise


def pad(images, crop):
    """uint8 NHWC with black borders: what the random crop cuts from. uint8 because loading is bandwidth-bound."""
    return torch.nn.functional.pad(images.permute(0, 2, 3, 1), (0, 0, crop, crop, crop, crop)).contiguous()


def crop_and_flip(padded, index, keys, crop, flip):
    """The chosen images, each with its own random window and mirrored half of the time; uint8 NHWC."""
    drawn = noise.uniform(keys, (3,))
    top, left = (drawn[:, k] * (2 * crop + 1) for k in (0, 1))
    rows, columns = (torch.arange(size - 2 * crop, device=padded.device) for size in padded.shape[1:3])
    if flip:
        columns = torch.where(drawn[:, 2:] < 0.5, columns, columns.flip(0))
    rows, columns = top.long()[:, None] + rows, left.long()[:, None] + columns
    return padded[index[:, None, None], rows[:, :, None], columns[:, None, :]]


def normalise(images, mean, std):
    """uint8 NHWC to float32 NCHW in channels-last memory, with the training set's mean and deviation a channel."""
    return torch.addcmul(-mean / std, images, 1 / (255 * std)).permute(0, 3, 1, 2)
