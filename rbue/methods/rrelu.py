"""MC-RReLU: negative inputs are multiplied by a slope drawn from U(l, u) (eq. 6)."""

from dataclasses import dataclass

from rbue.config import Run, training
from rbue.errors import UserError, one_of
from rbue.methods import method


@method("rrelu")
@dataclass
class RReLU(Run):
    """Random slopes from U(l, u) in all rectifiers, or only in the first or the last (Section 4.5)."""

    l: float = training()
    u: float = training()
    position: str = training()

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.l < self.u < 1:
            raise UserError(f"l={self.l}, u={self.u} must satisfy 0 <= l < u < 1")
        one_of(("all", "first", "last"), position=self.position)

    def build(self, network, images):
        from rbue import layers, surgery

        return surgery.randomize(network, layers.RReLU(self.l, self.u), position=self.position)
