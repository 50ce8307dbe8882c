"""Data augmentation on the device: one indexing operation gathers, crops and flips a batch of uint8 images."""

import torch

from rbue import noise


def pad(images, crop):
    """Return the images as uint8 NHWC with a black border, from which random crops are cut.

    They stay uint8 because loading a batch is limited by memory bandwidth.
    """
    return torch.nn.functional.pad(images.permute(0, 2, 3, 1), (0, 0, crop, crop, crop, crop)).contiguous()


def crop_and_flip(padded, index, keys, crop, flip):
    """Return the images at `index`, each randomly cropped and flipped with probability 1/2, as uint8 NHWC."""
    drawn = noise.uniform(keys, (3,))
    top, left = (drawn[:, k] * (2 * crop + 1) for k in (0, 1))
    rows, columns = (torch.arange(size - 2 * crop, device=padded.device) for size in padded.shape[1:3])
    if flip:
        columns = torch.where(drawn[:, 2:] < 0.5, columns, columns.flip(0))
    rows, columns = top.long()[:, None] + rows, left.long()[:, None] + columns
    if padded.is_cuda:
        return padded[index[:, None, None], rows[:, :, None], columns[:, None, :]]
    pixels = (index[:, None, None] * padded.shape[1] + rows[:, :, None]) * padded.shape[2] + columns[:, None, :]
    chosen = padded.flatten(0, 2).index_select(0, pixels.flatten())  # on a CPU, this is several times as fast
    return chosen.view(*pixels.shape, -1)


def normalise(images, mean, std):
    """Turn uint8 NHWC into float32 NCHW in channels-last memory, normalised by mean and standard deviation per channel.

    Both are those of the training set.
    """
    return torch.addcmul(-mean / std, images, 1 / (255 * std)).permute(0, 3, 1, 2)
