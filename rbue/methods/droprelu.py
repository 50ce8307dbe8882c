"""MC-DropReLU: each rectifier is kept with probability q and replaced by the identity otherwise (eq. 5)."""

from dataclasses import dataclass

from rbue.config import Run, training
from rbue.errors import one_of, within
from rbue.methods import method


@method("dropreLU")
@dataclass
class DropReLU(Run):
    """Random rectifiers, kept with probability q: all of them, or only the first or the last (Section 4.5)."""

    q: float = training()
    position: str = training()

    def __post_init__(self):
        super().__post_init__()
        within(0, 1, q=self.q)
        one_of(("all", "first", "last"), position=self.position)

    def build(self, network, images):
        from rbue import layers, surgery

        return surgery.randomize(network, layers.DropReLU(self.q), position=self.position)
