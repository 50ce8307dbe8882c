"""SVI: a Gaussian posterior over the weights with learned standard deviations (Section 4.1.4, d)."""

from dataclasses import dataclass

from rbue.config import Run, evaluation, training
from rbue.errors import UserError, at_least, one_of, within
from rbue.methods import method


@method("svi")
@dataclass
class SVI(Run):
    """Bayes by backprop: cross-entropy plus beta times the KL divergence to the prior."""

    sigma: float = training()
    beta: float = training()
    kl_warmup: float = training()
    rho_lr: float = training()
    rho_optimizer: str = training(neutral="adam")
    tempered_prior: bool = training(neutral=False)
    refit_batchnorm: bool = evaluation(neutral=False)

    def __post_init__(self):
        super().__post_init__()
        at_least(0, rho_lr=self.rho_lr, beta=self.beta)
        one_of(("sgd", "adam"), rho_optimizer=self.rho_optimizer)
        if self.rho_optimizer == "sgd":
            self.rho_lr = 1e-3  # not used: all values must give the same run
        if self.tempered_prior and not self.beta:
            raise UserError("tempered_prior=true scales the prior's variance by beta, so beta must be above 0")
        if not self.weight_decay:
            raise UserError("method=svi takes its prior from the weight decay, so weight_decay must be above 0")
        within(1e-8, 10, sigma=self.sigma)
        within(0, 1, kl_warmup=self.kl_warmup)

    def build(self, network, images):
        from rbue import layers, surgery

        variance = (self.beta if self.tempered_prior else 1.0) / (images * self.weight_decay)
        return surgery.bayes(network, layers.LearnedGaussian, sigma=self.sigma, prior=variance**0.5)

    @property
    def penalty(self):
        from rbue import surgery

        return surgery.kl

    @property
    def penalty_schedule(self):
        return self.beta, self.kl_warmup

    def optimizers(self, network, lr):
        """Return SGD for everything, or SGD with Adam for the standard deviations. Random weights have no weight decay,
        since the KL term regularises them."""
        from torch.optim import Adam

        from rbue import surgery

        plain, posteriors = surgery.plain_parameters(network), surgery.posteriors(network)
        means, rhos = [mu for mu, _ in posteriors], [weight.rho for _, weight in posteriors]
        by_adam = rhos if self.rho_optimizer == "adam" else []
        by_sgd = {"params": means if by_adam else means + rhos, "weight_decay": 0.0}
        made = [self.sgd([{"params": plain}, by_sgd], lr)]
        if by_adam:
            made.append(Adam(by_adam, lr=self.rho_lr, fused=True, capturable=lr.is_cuda))
        return made
