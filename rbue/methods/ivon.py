"""IVON: a Gaussian posterior over the weights, learned by natural gradients (Shen et al., 2024). Not in the paper."""

from dataclasses import dataclass

from rbue.config import Run, training
from rbue.errors import UserError, within
from rbue.methods import method


@method("ivon")
@dataclass
class IVON(Run):
    """A Gaussian posterior whose standard deviations follow from an estimate of the curvature (see `rbue.ivon`)."""

    hess_init: float = training()
    hess_rate: float = training()

    def __post_init__(self):
        super().__post_init__()
        within(1e-8, 1e4, hess_init=self.hess_init)
        within(0, 1, hess_rate=self.hess_rate)
        if not self.weight_decay or self.momentum == 1:
            raise UserError("method=ivon needs weight_decay above 0, for its prior, and momentum below 1")

    def build(self, network, images):
        from rbue import surgery
        from rbue.ivon import IvonWeight

        settings = {"images": images, "weight_decay": self.weight_decay, "hess_init": self.hess_init}
        return surgery.bayes(network, IvonWeight, **settings)

    @property
    def penalty(self):
        """Return the KL divergence, which is recorded but not added to the loss: Ivon's update includes the prior."""
        from rbue import surgery

        return surgery.kl

    def optimizers(self, network, lr):
        """Return SGD for batch-norm, if there is any, and Ivon for the random weights."""
        from rbue import surgery
        from rbue.ivon import Ivon

        ivon = Ivon(surgery.posteriors(network), lr, self.momentum, 1 - self.hess_rate, self.hess_init)
        plain = surgery.plain_parameters(network)
        return [self.sgd([{"params": plain}], lr), ivon] if plain else [ivon]
