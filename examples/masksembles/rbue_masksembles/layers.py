"""The layer of Masksembles, and how its masks are drawn."""

import torch
from torch import nn

from rbue.errors import UserError
from rbue.layers import StochasticLayer

ATTEMPTS = 20_000


class Masks(StochasticLayer):
    """A layer that sets channels to zero, with one of n fixed masks per image.

    It draws its masks at the first forward pass, when it knows the number of channels.
    """

    def __init__(self, n, scale, seed=0):
        super().__init__()
        self.n, self.scale, self.seed = n, scale, seed
        self.register_buffer("masks", None)

    def forward(self, x):
        if self.masks is None:
            generator = torch.Generator().manual_seed(1000 * self.seed + self.site)
            self.masks = draw_masks(x.shape[1], self.n, self.scale, generator).to(x.device)
        mask = self.masks[self.chosen(x)]
        return torch.where(mask.view(*mask.shape, *[1] * (x.dim() - 2)), x, 0)

    def chosen(self, x):
        """Return the index of each image's mask. In training, the batch is split into n groups, one per mask. At test
        time, sample k uses mask k."""
        if self.training:
            return torch.arange(len(x), device=x.device) * self.n // len(x)
        return self.sample_numbers(x) % self.n

    def deterministic(self):
        return MeanMask(self.masks.float().mean(0))

    def extra_repr(self):
        return f"n={self.n}, scale={self.scale}"


class MeanMask(nn.Module):
    """A layer that multiplies each channel by the fraction of masks that keep it."""

    def __init__(self, share):
        super().__init__()
        self.register_buffer("share", share)

    def forward(self, x):
        return (x.movedim(1, -1) * self.share).movedim(-1, 1)  # any number of dimensions, traceable by torch.fx


def draw_masks(channels, n, scale, generator):
    """Draw boolean masks (n, channels) that all have the same number of ones and together keep every channel.

    In the paper, each of n masks sets `ones` random positions out of ones * scale, and positions that no mask sets are
    dropped. `ones` is chosen so that the expected number of remaining positions is the number of channels. The drawing
    is repeated until exactly this number remains.
    """
    ones = ones_per_mask(channels, n, scale)
    places = min(range(channels, 10 * channels + 1), key=lambda width: abs(used(width, ones, n) - channels))
    for _ in range(ATTEMPTS):
        order = torch.rand(n, places, generator=generator).argsort(1)
        masks = torch.zeros(n, places, dtype=torch.bool).scatter_(1, order[:, :ones], True)
        if masks.any(0).sum() == channels:
            return masks[:, masks.any(0)]
    raise UserError(f"no {n} masks of scale {scale} were found for {channels} channels: take a smaller n or scale")


def ones_per_mask(channels, n, scale):
    """Return the number of channels that a mask keeps: at least so many that n masks can keep all channels."""
    return max(-(-channels // n), round(channels / (scale * (1 - (1 - 1 / scale) ** n))))


def used(places, ones, n):
    """Return the expected number of positions that at least one of n random masks sets."""
    return places * (1 - (1 - ones / places) ** n)
