"""MC-Dropout: dropout in training and testing (Section 4.1.4, b)."""

from dataclasses import dataclass

from rbue.config import Run, training
from rbue.errors import UserError, one_of, within
from rbue.methods import method


@method("mc_dropout")
@dataclass
class MCDropout(Run):
    """Dropout with probability p. The paper does not say where it is placed, so `placement` is a hyperparameter."""

    p: float = training()
    placement: str = training()

    def __post_init__(self):
        super().__post_init__()
        within(0, 1, p=self.p)
        if self.p == 1:
            raise UserError("p=1 drops all features, so that nothing is learned: choose p below 1")
        one_of(("last", "block", "conv", "relu"), placement=self.placement)
        self.placement = placement_of(self.arch, self.placement)

    def build(self, network, images):
        from rbue import layers, surgery

        return surgery.add_dropout(network, layers.Dropout(self.p), self.placement)


def placement_of(arch, placement):
    """Return the placement's name. VGG-13 has no blocks: there `block` means dropout before the classifier, so it is
    named `last`."""
    return "last" if (arch, placement) == ("vgg13", "block") else placement
