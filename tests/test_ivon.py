import pytest
import torch
from ivon import IVON
from torch import nn

from rbue import surgery
from rbue.ivon import Ivon, IvonWeight

SETTINGS = {"images": 500, "weight_decay": 1e-2, "hess_init": 0.3}
BETA1, BETA2, LR = 0.9, 0.9, 0.02


def loss_of(weights):
    return (weights[0].square() * torch.arange(1.0, 7).view(2, 3)).sum() + (weights[1] - 1).exp().sum()


def start():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, generator=generator), torch.randn(4, generator=generator)]


def reference(steps):
    """The means and curvatures of ivon-opt, with noise from torch's generator."""
    means = [nn.Parameter(mu) for mu in start()]
    settings = {"ess": SETTINGS["images"], "weight_decay": SETTINGS["weight_decay"], "hess_init": SETTINGS["hess_init"]}
    optimizer = IVON(means, lr=LR / (1 - BETA1), beta1=BETA1, beta2=BETA2, **settings)
    for step in range(steps):
        torch.manual_seed(step)
        with optimizer.sampled_params(train=True):
            optimizer.zero_grad()
            loss_of(means).backward()
        optimizer.step()
    return means, optimizer.param_groups[0]["hess"]


def ours(steps):
    means = [nn.Parameter(mu) for mu in start()]
    sites = [IvonWeight(mu.detach(), **SETTINGS) for mu in means]
    optimizer = Ivon(list(zip(means, sites, strict=True)), torch.tensor(LR), BETA1, BETA2, SETTINGS["hess_init"])
    for step in range(steps):
        torch.manual_seed(step)
        for site, drawn in zip(sites, torch.randn(10).split([6, 4]), strict=True):
            site.drawn.copy_(drawn.view_as(site.drawn))
        loss_of([mu + site.sigma() * site.drawn for mu, site in zip(means, sites, strict=True)]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return means, torch.cat([site.hessian.flatten() for site in sites])


@pytest.mark.parametrize("steps", [1, 20])
def test_a_step_is_that_of_its_authors(steps):
    (expected, hessian), (means, curvature) = reference(steps), ours(steps)
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(means, expected, strict=True))
    assert torch.allclose(curvature, hessian, rtol=1e-4, atol=1e-6)


def test_the_update_sees_the_noise_that_the_weight_was_drawn_with():
    network = surgery.bayes(nn.Sequential(nn.Linear(3, 2)), IvonWeight, **SETTINGS).train()
    (mu, site), _ = surgery.posteriors(network)
    weight = network[0].weight
    assert torch.allclose(weight, mu + site.sigma() * site.drawn) and site.drawn.abs().min() > 0
    drawn = site.drawn.clone()
    network.eval()(torch.ones(1, 3))
    assert torch.equal(site.drawn, drawn)  # testing leaves the noise of training alone


def test_on_a_quadratic_the_curvature_is_found_and_the_mean_is_the_posterior_mean():
    """For the loss a/2 (w - 1)², N observations and the prior give a posterior of precision N (a + delta)."""
    a, mu = 2.0, nn.Parameter(torch.zeros(1000))
    site = IvonWeight(mu.detach(), 100, 0.5, 1.0)
    optimizer = Ivon([(mu, site)], torch.tensor(0.01), 0.9, 0.999, 1.0)
    generator = torch.Generator().manual_seed(0)
    for _ in range(6000):
        site.drawn.copy_(torch.randn(1000, generator=generator))
        mu.grad = a * (mu.detach() + site.sigma() * site.drawn - 1)
        optimizer.step()
    assert site.hessian.mean().item() == pytest.approx(a, rel=0.02)
    assert mu.mean().item() == pytest.approx(a / (a + 0.5), rel=0.02)
