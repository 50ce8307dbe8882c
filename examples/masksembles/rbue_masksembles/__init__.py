"""Masksembles (Durasov, Bagautdinov, Baque and Fua: "Masksembles for Uncertainty Estimation", CVPR 2021).

The network has a few fixed binary masks over its channels. In training, each image of a batch uses one of them. At test
time, every mask gives one prediction. The overlap of the masks is between that of MC-Dropout, which draws new masks all
the time, and that of an ensemble, whose members share nothing.
"""

from dataclasses import dataclass

from rbue.config import Run, training, unused
from rbue.errors import UserError, one_of, within
from rbue.methods import method


@method("masksembles")
@dataclass
class Masksembles(Run):
    """The mean prediction of several masks, which overlap less with a larger `scale`."""

    samples: int = unused()
    masks: int = training()
    scale: float = training()
    placement: str = training()

    def __post_init__(self):
        super().__post_init__()
        within(2, 64, masks=self.masks)
        within(1, 10, scale=self.scale)
        if self.batch < self.masks:
            raise UserError(f"batch={self.batch} must be at least masks={self.masks}, or some masks are never trained")
        one_of(("last", "block", "conv", "relu"), placement=self.placement)

    @property
    def passes(self):
        return self.masks

    def build(self, network, images):
        from rbue import surgery
        from rbue_masksembles.layers import Masks  # imports torch, which shell completion and tables do not need

        return surgery.add_dropout(network, Masks(self.masks, self.scale, self.seed), self.placement)
