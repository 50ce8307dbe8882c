"""Variational inference: the terms of its objective, which optimizer learns what, and batch-norm per weight draw."""

import dataclasses

import pytest
import torch
from conftest import make_step, refused
from torch import nn

from rbue import data, methods, noise, surgery, training
from rbue.data import sources
from rbue.errors import UserError
from rbue.evaluation import evaluator
from rbue.layers import LearnedGaussian
from rbue.training import packs

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "settings", ["beta=1 weight_decay=0.003", "beta=0.01 tempered_prior=true", "beta=1 tempered_prior=true"]
)
def test_the_kl_term_pulls_the_means_as_weight_decay_would(settings, digits_run, few_digits):
    run = digits_run("method=svi", *settings.split())
    step = make_step(run, few_digits)
    means = [mu for mu, _ in surgery.posteriors(step.network)]
    pulls = torch.autograd.grad(run.beta * step.penalise(), means)
    assert all(torch.allclose(pull, run.weight_decay * mu, rtol=1e-4) for pull, mu in zip(pulls, means, strict=True))


def test_the_objective_is_the_loss_plus_the_weighted_kl(digits_run, few_digits):
    step = make_step(digits_run("method=svi", "beta=0.5", "kl_warmup=0"), few_digits)
    step.count.fill_(1)
    index, keys, drawn = step.prepare(step.count)
    with noise.using(step.noise, drawn, step.count):
        total, (loss, _, kl) = step.objective(index, keys, step.count)
    assert kl > 0.1 and total.item() == pytest.approx((loss + 0.5 * kl).item(), rel=1e-6)


def test_without_tempering_a_smaller_beta_decays_the_means_less(digits_run, few_digits):
    step = make_step(digits_run("method=svi", "beta=0.01"), few_digits)
    mu, _ = surgery.posteriors(step.network)[0]
    (pull,) = torch.autograd.grad(0.01 * step.penalise(), mu)
    assert torch.allclose(pull, 0.01 * 5e-4 * mu, rtol=1e-4)


@pytest.mark.parametrize(("optimizer", "moved"), [("sgd", 0.02), ("adam", 0.05)])
def test_sgd_leaves_the_deviations_near_their_start_and_adam_does_not(optimizer, moved, digits_run, few_digits):
    step = make_step(digits_run("method=svi", f"rho_optimizer={optimizer}", "rho_lr=1e-2", "kl_warmup=0"), few_digits)
    for _ in range(12):
        step()
    _, site = surgery.posteriors(step.network)[-1]
    change = (site.sigma() / step.run.sigma - 1).abs().max()
    assert change < moved if optimizer == "sgd" else change > moved
    assert [type(o).__name__ for o in step.optimizers] == {"sgd": ["SGD"], "adam": ["SGD", "Adam"]}[optimizer]


def test_every_parameter_has_one_optimizer_and_a_random_one_no_weight_decay(digits_run, few_digits):
    for words in ("method=svi rho_optimizer=sgd", "method=svi rho_optimizer=adam", "method=ivon", "method=single"):
        step = make_step(digits_run(*words.split()), few_digits)
        groups = [group for o in step.optimizers for group in o.param_groups]
        learned = [id(p) for group in groups for p in group["params"]]
        assert sorted(learned) == sorted(map(id, step.network.parameters()))
        decayed = [p for group in groups if group.get("weight_decay") for p in group["params"]]
        batch_norm = 2 * (16 + 32 + 32)  # elements
        expected = batch_norm if surgery.posteriors(step.network) else sum(map(torch.numel, step.network.parameters()))
        assert sum(map(torch.numel, decayed)) == expected


def test_a_run_of_ivon_takes_its_authors_step_with_the_runs_settings(digits_run, few_digits):
    run = digits_run("method=ivon", "hess_init=0.5", "hess_rate=0.1", "momentum=0.8", "weight_decay=0.01", "warmup=0")
    step, images, delta = make_step(run, few_digits), len(few_digits.train_images), 0.01
    mu, site = surgery.posteriors(step.network)[0]
    index, keys, drawn = step.prepare(step.count)
    with noise.using(step.noise, drawn, step.count):
        (gradient,) = torch.autograd.grad(step.objective(index, keys, step.count)[0], mu)
    before, h0 = mu.detach().clone(), 0.5
    step()
    estimate = gradient * site.drawn * (images * (h0 + delta)) ** 0.5
    h = 0.9 * h0 + 0.1 * estimate + 0.01 * (h0 - estimate) ** 2 / (2 * (h0 + delta))
    moved = run.lr / 0.2 * (h0 + delta) * (gradient + delta * before) / (h + delta)
    assert torch.allclose(site.hessian, h, rtol=1e-3) and torch.allclose(before - mu, moved, rtol=1e-3, atol=1e-7)
    assert step.penalty_weight(torch.tensor([step.total])) == 0  # the update includes the prior


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("method=ivon weight_decay=0", "needs weight_decay above 0"),
        ("method=ivon momentum=1", "and momentum below 1"),
        ("method=ivon hess_init=0", "hess_init=0.0 must lie in"),
        ("method=ivon hess_rate=1.5", "hess_rate=1.5 must lie in"),
        ("method=svi beta=0 tempered_prior=true", "so beta must be above 0"),
        ("method=svi sigma=0", "sigma=0.0 must lie in"),
        ("method=svi kl_warmup=1.5", "kl_warmup=1.5 must lie in"),
        ("method=svi beta=-1", "beta=-1.0 must be at least 0"),
        ("method=svi rho_optimizer=lion", "rho_optimizer=lion"),
    ],
)
def test_a_posterior_that_is_not_defined_is_refused(settings, says, digits_run):
    assert says in refused(digits_run, *settings.split())


def test_batch_norm_is_refitted_on_evenly_spaced_training_images(digits_run, few_digits, monkeypatch):
    monkeypatch.setattr(evaluator, "REFIT", 100)
    run = digits_run("method=svi", "samples=1", "eval_batch=30")
    test = evaluator.Evaluator(run, [methods.build(run, 10, 256).eval()], few_digits, CPU)
    batches = test.refitting(few_digits)
    assert [len(x) for x in batches] == [30, 30, 30, 10]
    chosen = few_digits.train_images[:200:2].permute(0, 2, 3, 1)
    assert torch.equal(torch.cat(batches), test.prepare(chosen))


def test_refitted_batch_norm_has_the_statistics_of_each_weight_draw():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 3))
    network = surgery.bayes(plain, LearnedGaussian, sigma=0.3, prior=1.0).eval()
    batches = list(torch.randn(60, 3, 8, 8).split(20))
    draw = evaluator.Refitted(network, 2, 0, batches)
    for k, ((mean, variance),) in enumerate(draw.statistics):
        with noise.counted(network, noise.TEST, k, torch.arange(20)), torch.no_grad():
            maps = [network[0](x) for x in batches]
        assert torch.allclose(mean, torch.cat(maps).mean((0, 2, 3)), atol=1e-5)
        assert torch.allclose(variance, torch.stack([m.var((0, 2, 3)) for m in maps]).mean(0), rtol=1e-4)
    assert torch.equal(network[1].running_mean, torch.zeros(4))  # the caller's network is unchanged


def test_refitting_changes_svis_predictions_and_nothing_without_noise(digits_run, few_digits):
    def predicted(*words, form=None):
        run = digits_run("samples=3", *words)
        network = methods.build(run, 10, 256).eval()
        network = form(network) if form else network
        return evaluator.Evaluator(run, [network], few_digits, CPU)(few_digits.test_images[:20])[0].mean

    plain, refitted = ("method=svi",), ("method=svi", "refit_batchnorm=true")
    assert not torch.allclose(predicted(*plain), predicted(*refitted), atol=1e-3)
    assert torch.equal(*(predicted(*words, form=surgery.deterministic) for words in (plain, refitted)))


def test_a_holdout_is_taken_from_the_training_images_and_leaves_the_test_set_alone(digits_run, digits, monkeypatch):
    monkeypatch.setattr(sources, "load", lambda *_: digits)
    whole, held = data.load_for(digits_run()), data.load_for(digits_run("holdout=200"))
    assert torch.equal(whole.test_images, digits.test_images)
    assert len(held.test_images) == 200 and len(held.train_images) == len(digits.train_images) - 200
    together = torch.cat([held.train_images, held.test_images]).flatten(1).double().sum(1).sort().values
    assert torch.equal(together, digits.train_images.flatten(1).double().sum(1).sort().values)
    assert torch.equal(held.test_labels, data.load_for(digits_run("holdout=200", "seed=3")).test_labels)
    for count, left in ((1436, 1), (1437, 0), (1500, 0)):
        with pytest.raises(UserError, match=f"={count} leaves {left} of 1437 training images: choose holdout=1435 or"):
            data.load_for(digits_run(f"holdout={count}"))
    assert len(data.load_for(digits_run("holdout=1435", "batch=2")).train_images) == 2


def test_a_holdout_is_another_run_and_has_no_corrupted_sets(digits_run):
    assert digits_run("holdout=200").training_name != digits_run().training_name
    assert "holdout" not in digits_run().identity
    with pytest.raises(UserError, match="no corrupted versions"):
        dataclasses.replace(digits_run("dataset=digits_c"), holdout=200)


def test_packed_runs_train_on_what_their_holdout_leaves(digits_run, digits, monkeypatch):
    seen = {}

    def fit(pack, images, device):
        seen.update({run.holdout: len(images.train_images) for run in pack})
        return {run.training_name: None for run in pack}  # as if failed, so that no weights are written

    monkeypatch.setattr(sources, "load", lambda *_: digits)
    monkeypatch.setattr(packs, "fit", fit)
    list(training.train_in_packs([digits_run(), digits_run("holdout=200"), digits_run("holdout=300")]))
    assert seen == {0: 1437, 200: 1237, 300: 1137}


def test_trained_deviations_are_there_again_after_loading(digits_run, few_digits):
    for method in ("svi", "ivon"):
        run = digits_run(f"method={method}", "epochs=2", *(["hess_rate=0.1"] if method == "ivon" else []))
        (network,), _ = training.load_or_train([run], few_digits, CPU)
        start = methods.build(run, 10, len(few_digits.train_images))
        (_, learned), (_, before) = (surgery.posteriors(n)[0] for n in (network, start))
        assert not torch.allclose(learned.sigma(), before.sigma(), rtol=1e-3)


def test_settings_that_decide_nothing_make_no_other_run(digits_run):
    def names(*words, **values):
        ((key, given),) = values.items()
        return {digits_run(*words, f"{key}={value}").name for value in given}

    assert len(names("method=svi", "rho_optimizer=sgd", rho_lr=(1e-3, 1e-2))) == 1
    assert len(names("method=svi", "rho_optimizer=adam", rho_lr=(1e-3, 1e-2))) == 2
    assert len(names("method=mc_dropout", "arch=vgg13", placement=("block", "last"))) == 1  # VGG-13 has no blocks
    assert len(names("method=mc_dropout", "arch=resnet18", placement=("block", "last"))) == 2
