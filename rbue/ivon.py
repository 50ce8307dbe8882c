"""IVON (Shen et al., 2024): variational inference whose standard deviations come from an estimate of the curvature.

The posterior of a weight is N(mu, 1/(N (h + delta))) with N training images, weight decay delta and curvature h. Each
step draws one weight w = mu + sigma·eps, computes the gradient g of the loss at w, and updates

    momentum ← b1 momentum + (1 - b1) g
    h ← b2 h + (1 - b2) f + (1 - b2)^2 (h - f)^2 / (2 (h + delta)),        f = g eps / sigma
    mu ← mu - rate (h0 + delta) (momentum / (1 - b1^t) + delta mu) / (h + delta)

This is natural-gradient descent on the full evidence lower bound with the prior N(0, 1/(N delta)), so there is no KL
weight. The rate is lr / (1 - b1): while h stays at its initial value h0, steps are as long as those of SGD with
momentum b1.
"""

import torch

from rbue.layers import GaussianWeight


class IvonWeight(GaussianWeight):
    """A Gaussian weight whose standard deviation follows from its curvature, which Ivon updates."""

    def __init__(self, mu, images, weight_decay, hess_init):
        super().__init__((images * weight_decay) ** -0.5)
        self.register_buffer("hessian", torch.full_like(mu, hess_init))
        self.register_buffer("drawn", torch.zeros_like(mu), persistent=False)  # eps of this step, for the update
        self.images, self.decay = images, weight_decay
        self.start = (images * (hess_init + weight_decay)) ** -0.5

    def sigma(self):
        return (self.images * (self.hessian + self.decay)).rsqrt()

    def normal(self, mu):
        eps = super().normal(mu)
        if self.training:
            self.drawn.copy_(eps)
        return eps


class Ivon(torch.optim.Optimizer):
    """Update the means and curvatures of (mean, IvonWeight) pairs. `lr` is a tensor that is read at every step."""

    def __init__(self, posteriors, lr, beta1, beta2, hess_init):
        super().__init__([mu for mu, _ in posteriors], {})
        self.sites = [site for _, site in posteriors]
        self.lr, self.beta1, self.beta2, self.hess_init = lr, beta1, beta2, hess_init
        for mu in self.param_groups[0]["params"]:
            self.state[mu] = {"momentum": torch.zeros_like(mu), "step": torch.zeros((), device=mu.device)}

    @torch.no_grad()
    def step(self):
        means, decay = self.param_groups[0]["params"], self.sites[0].decay
        states, hessians = [self.state[mu] for mu in means], [site.hessian for site in self.sites]
        states[0]["step"] += 1  # one counter serves all weights
        debias = 1 - self.beta1 ** states[0]["step"]
        momenta = [state["momentum"] for state in states]
        torch._foreach_lerp_(momenta, [mu.grad for mu in means], 1 - self.beta1)
        self.update_curvature(hessians, [mu.grad for mu in means], decay)
        steps = torch._foreach_add(torch._foreach_div(momenta, debias), means, alpha=decay)
        torch._foreach_div_(steps, torch._foreach_add(hessians, decay))
        torch._foreach_mul_(steps, self.lr / (1 - self.beta1) * (self.hess_init + decay))
        torch._foreach_sub_(means, steps)

    def update_curvature(self, hessians, gradients, decay):
        estimates = torch._foreach_div(gradients, [site.sigma() for site in self.sites])
        torch._foreach_mul_(estimates, [site.drawn for site in self.sites])
        apart = torch._foreach_sub(estimates, hessians)
        correction = torch._foreach_div(torch._foreach_mul(apart, apart), torch._foreach_add(hessians, decay))
        torch._foreach_add_(hessians, apart, alpha=1 - self.beta2)
        torch._foreach_add_(hessians, correction, alpha=0.5 * (1 - self.beta2) ** 2)  # keeps h + delta above zero
