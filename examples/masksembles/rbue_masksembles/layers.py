"""The layer, and how its masks are drawn."""

import torch
from torch import nn

from rbue.errors import UserError
from rbue.layers import StochasticLayer

ATTEMPTS = 20_000


class Masks(StochasticLayer):
    """Sets channels to zero, by one of n fixed masks per image.

    The layer learns the number of channels from the first images that it sees, and draws its masks then.
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
        """The mask of each image. In training the batch is split into n groups, in testing sample k has mask k."""
        if self.training:
            return torch.arange(len(x), device=x.device) * self.n // len(x)
        return self.sample_numbers(x) % self.n

    def deterministic(self):
        return MeanMask(self.masks.float().mean(0))

    def extra_repr(self):
        return f"n={self.n}, scale={self.scale}"


class MeanMask(nn.Module):
    """Multiplies each channel by the share of masks that keep it."""

    def __init__(self, share):
        super().__init__()
        self.register_buffer("share", share)

    def forward(self, x):
        return (x.movedim(1, -1) * self.share).movedim(-1, 1)  # for any number of dimensions, and torch.fx can trace it


def draw_masks(channels, n, scale, generator):
    """Boolean masks (n, channels), each with equally many ones, which together keep every channel.

    The paper sets `ones` of ones * scale places at random, n times, and drops the places that no mask has. So many
    places remain on average that `ones` follows from the number of channels. This is repeated until exactly that
    number remains.
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
    """How many channels a mask keeps: at least so many that n masks can keep them all."""
    return max(-(-channels // n), round(channels / (scale * (1 - (1 - 1 / scale) ** n))))


def used(places, ones, n):
    """The expected number of places that one of n random masks has."""
    return places * (1 - (1 - ones / places) ** n)
