import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import ROOT
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torchvision.ops import StochasticDepth

import rbue
from rbue import methods, metrics, noise, surgery
from rbue.errors import UserError
from rbue.evaluation import evaluator
from rbue.layers import Dropout, LearnedGaussian, RReLU
from rbue.networks import build
from rbue.sampling import samplers

X = torch.randn(7, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def network(kind="dropreLU"):
    torch.manual_seed(0)
    made = {
        "dropreLU": lambda net: rbue.randomize(net, q=0.7),
        "rrelu": lambda net: rbue.randomize(net, RReLU()),
        "dropout": lambda net: surgery.add_dropout(net, Dropout(0.5), "last"),
        "svi": lambda net: surgery.bayes(net, LearnedGaussian, sigma=0.05, prior=1.0),
        "two parts": lambda net: nn.Sequential(rbue.randomize(net[:6], q=0.7), rbue.randomize(net[6:], q=0.7)),
        "by hand": lambda net: nn.Sequential(*[rbue.DropReLU(0.7) if isinstance(m, nn.ReLU) else m for m in net]),
    }
    return made[kind](build("small", 10))


def samples_of(*arguments, **settings):
    return rbue.predict(*arguments, keep_samples=True, **settings).samples


KINDS = ["dropreLU", "rrelu", "dropout", "svi", "two parts", "by hand"]


@pytest.mark.parametrize("kind", KINDS)
def test_sample_k_of_a_seed_is_the_same_numbers_every_time(kind):
    net = network(kind)
    first = samples_of(net, X, samples=5, seed=3)
    again = samples_of(net, X, samples=3, seed=3)
    assert torch.allclose(first[:3], again, atol=1e-6)
    assert not torch.allclose(first[0], first[1], atol=1e-6)
    assert not torch.allclose(first, samples_of(net, X, samples=5, seed=4), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_do_not_depend_on_the_batch_size(kind):
    net = network(kind)
    whole = samples_of(net, X, samples=4)
    assert torch.allclose(whole, samples_of(net, X, samples=4, batch=2), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_sampling_changes_no_buffer_and_no_mode(kind):
    net = network(kind).train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    rbue.predict(net, X, samples=2)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert all(m.training for m in net.modules())


def test_a_deterministic_network_gives_one_sample():
    assert samples_of(build("small", 10), X).shape == (1, 7, 10)


def test_no_samples_are_refused():
    with pytest.raises(UserError, match="samples=0 must be at least 1"):
        rbue.predict(network(), X, samples=0)
    with pytest.raises(UserError, match="images has no batch"):
        rbue.predict(network(), X[:0])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"seed": -1}, r"seed=-1 must lie in"),
        ({"seed": 2**64}, r"seed=18446744073709551616 must lie in"),
        ({"seed": 1.5}, "seed=1.5 must be an integer"),
        ({"samples": 2.0}, r"samples=2\.0 must be an integer"),
    ],
)
def test_a_wrong_number_is_refused(settings, says):
    with pytest.raises(UserError, match=says):
        rbue.predict(network(), X, **{"samples": 2} | settings)


def test_a_class_in_place_of_a_network_is_refused():
    with pytest.raises(UserError, match="the network is a type: pass a torch"):
        rbue.predict(nn.Linear, X)


def test_numbers_of_numpy_are_numbers():
    net = network()
    expected = samples_of(net, X, samples=2, seed=3)
    assert torch.equal(samples_of(net, X, samples=np.int64(2), seed=np.int64(3), batch=np.int32(500)), expected)


@pytest.mark.parametrize("samples", [1, 3])
def test_outputs_that_are_probabilities_already_are_named_once(samples):
    plain = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5), nn.Softmax(1))
    by_hand = nn.Sequential(nn.Linear(8, 16), rbue.DropReLU(0.9), nn.Softmax(1))
    says = "outputs look like probabilities: leave out the network's last softmax"
    for net in (plain, rbue.randomize(plain, q=0.9), by_hand):
        with pytest.warns(UserWarning, match=says) as found:
            rbue.predict(net, torch.randn(6, 8), samples, batch=2)
        assert sum("look like" in str(one.message) for one in found) == 1


@pytest.mark.parametrize("kind", ["dropreLU", "by hand"])
def test_only_the_first_pass_of_a_batch_reads_values_back_from_the_device(kind, monkeypatch):
    looked = []
    monkeypatch.setattr(samplers, "are_probabilities", looked.append)
    draw = samplers.sampler(surgery.wire_if_needed(network(kind).eval()), 6, 0, stack=len(X))
    for _ in range(2):
        looked.clear()
        with torch.no_grad():
            assert len(list(draw(X, torch.arange(len(X))))) == 6
    assert len(looked) == 1  # in the second batch; the first one also compares samples with stacked ones


def test_only_rows_that_add_up_to_one_are_probabilities():
    assert samplers.are_probabilities(torch.tensor([[0.3, 0.7], [1.0, 0.0]]))
    assert not samplers.are_probabilities(torch.tensor([[0.3, 0.7], [1.0, 0.5]]))  # rectified logits
    assert not samplers.are_probabilities(torch.tensor([[0.3, 0.7], [1.5, -0.5]]))


def test_rounding_is_judged_by_the_range_of_the_logits():
    logits = torch.linspace(-50, 50, 10, dtype=torch.float64)[None]
    for apart, same in ((0.08, True), (0.12, False), (-0.12, False)):  # the limit is 0.1 % of 100
        moved = logits + apart * torch.eye(10)[:1]
        assert samplers.equal_up_to_rounding(moved.softmax(1), logits.softmax(1), 1e-3) is same
    assert samplers.equal_up_to_rounding(torch.tensor([[0.5, 0.500001]]), torch.tensor([[0.5, 0.5]]), 1e-3)


def test_images_that_meet_behind_the_noise_are_not_stacked_however_many_classes_there_are():
    torch.manual_seed(0)
    own, x = Own(lambda net, h: net.used[0](h - h.mean(0)), nn.Linear(16, 1000)), torch.randn(6, 8)
    net, rows = rbue.randomize(own, q=0.5).eval(), torch.arange(6)
    with torch.no_grad():
        expected = torch.cat(list(samplers.one_by_one(net, x, rows, 4, 0, {})))
    assert torch.allclose(samples_of(net, x, 4).double().log(), expected.log(), atol=1e-5)


@pytest.mark.parametrize(
    "scale",
    [lambda x: x.numel(), lambda x: x.abs().amax(), lambda x: x.max(1, keepdim=True).values, lambda x: x.mean(0)[:5]],
)
def test_what_does_not_depend_on_noise_may_be_a_number_or_a_tuple(scale, capfd):
    class Scaled(nn.Sequential):
        def forward(self, x):
            return super().forward(x) * scale(x)

    x, rows = X.flatten(1)[:, :8], torch.arange(len(X))
    net = rbue.randomize(Scaled(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5)), q=0.5)
    with torch.no_grad():
        expected = torch.cat(list(samplers.one_by_one(net, x, rows, 4, 0, {}))).float()
    for samples in (1, 4):
        assert torch.allclose(samples_of(net, x, samples), expected[:samples], atol=1e-6)
    assert not capfd.readouterr().err


def test_a_network_has_the_same_samples_after_it_was_a_part_of_a_larger_one():
    class Sum(nn.ModuleList):
        def forward(self, x):
            return sum(member(x) for member in self)

    members = [network(), network()]
    before = [samples_of(member, X, 2) for member in members]
    rbue.predict(Sum(members), X, 2)
    assert all(torch.equal(samples_of(one, X, 2), old) for one, old in zip(members, before, strict=True))


def test_threads_that_share_a_network_get_the_numbers_of_one_thread():
    net = network().train()  # in training mode, so that predictions also switch modes
    inputs = [(X, range(7)), (X.flip(0), range(10, 17)), (X[:3], range(3))]
    expected = [rbue.predict(net, x, 8, index=index).mean for x, index in inputs]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda given: rbue.predict(net, given[0], 8, index=given[1]).mean, inputs * 10))
    assert all(torch.equal(mean, wanted) for mean, wanted in zip(found, expected * 10, strict=True))
    assert all(module.training for module in net.modules())


def test_the_part_without_noise_is_computed_once():
    net = network("dropout")
    calls = []
    net.get_submodule("0").register_forward_hook(lambda module, inputs, output: calls.append(len(output)))
    rbue.predict(net, X, samples=20)
    assert calls.count(len(X)) == 1 and sum(calls) < 3 * len(X)  # the others try on a few images whether it stacks


def test_evaluation_is_the_mean_of_the_predictions(digits):
    net, images = network().eval(), digits.test_images[:20].permute(0, 2, 3, 1)
    prepare = lambda x: x.permute(0, 3, 1, 2) / 255  # noqa: E731
    with torch.no_grad():
        evaluated = evaluator.evaluate([evaluator.sampler(net, 5, 1, 8)], images, prepare, batch=8)
    samples = samples_of(net, prepare(images), samples=5, seed=1)
    assert torch.allclose(evaluated.mean.float(), samples.mean(0), atol=1e-5)
    assert torch.allclose(evaluated.first.float(), samples[:4], atol=1e-5)
    assert torch.allclose(evaluated.by_count[3].float(), samples[:3].mean(0), atol=1e-5)
    assert torch.allclose(evaluated.sample_entropy.float(), metrics.entropy(samples).mean(0), atol=1e-5)


@pytest.mark.parametrize("method", ["dropreLU", "svi"])
def test_a_test_image_is_normalised_and_draws_from_the_stream_of_testing(method, digits, digits_run):
    run = digits_run(f"method={method}", "samples=3", "seed=5")
    net = methods.build(run, 10, 100).eval()
    evaluated, _ = evaluator.Evaluator(run, [net], digits, torch.device("cpu"))(digits.test_images[:20])
    mean, std = (value.view(1, 3, 1, 1) for value in (digits.mean, digits.std))
    images, expected = (digits.test_images[:20] / 255 - mean) / std, []
    for k in range(3):
        with torch.no_grad(), noise.counted(net, 5 + (2 << 32), k, torch.arange(20)):
            expected.append(net(images).softmax(1))
    assert torch.allclose(evaluated.first.float(), torch.stack(expected), atol=1e-4)


class Own(nn.Module):
    """A user's network: `head(self, hidden)` computes logits from a rectifier's output."""

    def __init__(self, head, *modules):
        super().__init__()
        self.head, self.used = head, nn.ModuleList(modules)
        self.first, self.weight = nn.Linear(8, 16), nn.Parameter(torch.randn(5, 16))

    def forward(self, x, mask=None, scaled=False):
        if mask is not None or scaled:
            raise AssertionError("not what the defaults say")
        return self.head(self, self.first(x).relu())


def drop_channels(net, h):
    return F.dropout2d(h[..., None, None], 0.5, net.training)[..., 0, 0]


HEADS = {
    "a computed weight": lambda net, h: F.linear(h, F.normalize(net.weight)),
    "a temperature": lambda net, h: F.linear(h, net.weight) * net.weight.mean().exp(),
    "dropped channels": lambda net, h: F.linear(drop_channels(net, h), net.weight),
    "stochastic depth": lambda net, h: F.linear(net.used[0](h), net.weight),
}


@pytest.mark.parametrize("kind", HEADS)
def test_a_users_network_predicts_the_same_in_any_batch(kind):
    torch.manual_seed(0)
    own, x = Own(HEADS[kind], StochasticDepth(0.5, "row")), torch.randn(6, 8)
    net = rbue.randomize(own, q=0.7)
    whole, parts = (samples_of(net, x, 4, batch=batch) for batch in (500, 2))
    assert whole.shape == (4, 6, 5) and torch.allclose(whole, parts, atol=1e-5)
    assert torch.equal(samples_of(net, x, 4), whole) and whole.std(0).max() > 1e-3
    with torch.no_grad():
        expected = own.eval()(x).softmax(1)
    assert torch.allclose(samples_of(rbue.randomize(own, q=1.0), x, 1)[0], expected, atol=1e-5)


def test_a_random_layer_inside_of_a_closed_one_is_drawn_for_every_sample():
    torch.manual_seed(0)
    closed = nn.TransformerEncoderLayer(16, 2, 16, batch_first=True, activation=rbue.DropReLU(0.5))
    own, x = Own(lambda net, h: F.linear(net.used[0](h[:, None])[:, 0], net.weight), closed), torch.randn(6, 8)
    net = rbue.randomize(own, q=1.0)
    whole, parts = (samples_of(net, x, 4, batch=batch) for batch in (500, 2))
    assert torch.allclose(whole, parts, atol=1e-5) and whole.std(0).max() > 1e-3


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (lambda y: y.mean(1), "6,"),
        (lambda y: y[:, :1], "6, 1"),
        (lambda y: y[..., None].expand(-1, -1, 3), "6, 5, 3"),
        (lambda y: (y, y), "tuple"),
    ],
)
def test_what_is_no_classifier_is_refused(output, says):
    net = Own(lambda net, h: output(F.linear(h, net.weight)))
    for network in (net, rbue.randomize(net, q=0.5)):
        expected = f"needs logits .images, classes. of at least two classes.+{says}.+wrap it in a module"
        with pytest.raises(UserError, match=expected):
            rbue.predict(network, torch.randn(6, 8), 1)


def test_a_rectified_parameter_meets_every_image():
    torch.manual_seed(0)
    own, x = Own(lambda net, h: F.linear(h + net.weight[:1].relu(), net.weight)), torch.randn(6, 8)
    whole, parts = (samples_of(rbue.randomize(own, q=0.5), x, 4, batch=batch) for batch in (500, 4))
    assert torch.allclose(whole, parts, atol=1e-5)


def test_a_rectifier_of_something_else_than_images_is_refused():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 5)

        def forward(self, x):
            return self.layer(x.reshape(-1, 8)).relu().reshape(-1, 3, 5).mean(1)

    with pytest.raises(UserError, match="a random layer got 12 rows for 4 images: images must come first"):
        rbue.predict(rbue.randomize(Tokens(), q=0.5), torch.randn(4, 3, 8), 1)


class Transposed(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.first, self.activation, self.last = nn.Linear(8, 16), activation, nn.Linear(16, 5)

    def forward(self, x):
        return self.last(self.activation(self.first(x.transpose(0, 1))).mean(0))


@pytest.mark.parametrize("tokens", [3, 4, 8])
@pytest.mark.parametrize("samples", [1, 3])
def test_tokens_that_come_first_are_refused_though_there_are_as_many_images(tokens, samples):
    for net in (rbue.randomize(Transposed(nn.ReLU()), q=0.5), Transposed(rbue.DropReLU(0.5))):
        with pytest.raises(UserError, match=r"a random layer got \d rows for \d images: images must come first"):
            rbue.predict(net, torch.randn(tokens, tokens, 8), samples)


NOT_REPRODUCIBLE = {
    "dropout": lambda net, h: F.linear(F.dropout(h, 0.5), net.weight),
    "noise": lambda net, h: F.linear(h + torch.randn_like(h), net.weight),
    "mean": lambda net, h: F.linear(h - h.mean(0), net.weight),
    "mean of the logits": lambda net, h: F.linear(h, net.weight) - F.linear(h, net.weight).mean(0)[:5],
}
REPRODUCIBLE = {
    "nothing": lambda net, h: F.linear(h, net.weight),
    "not a number": lambda net, h: F.linear(h / 0, net.weight),
    "one batch size": lambda net, h: F.linear(h.view(6, 16), net.weight),
    "squeezed": lambda net, h: F.linear(h, net.weight).squeeze(),
}


@pytest.mark.parametrize("kind", NOT_REPRODUCIBLE | REPRODUCIBLE)
@pytest.mark.parametrize("samples", [1, 3])
def test_a_prediction_that_cannot_be_reproduced_is_named_once_and_no_other_one_is(kind, samples):
    torch.manual_seed(0)
    head, x = (NOT_REPRODUCIBLE | REPRODUCIBLE)[kind], torch.randn(12, 8)
    by_hand = Own(head)
    by_hand.first = nn.Sequential(by_hand.first, rbue.DropReLU(0.5))
    for net in (rbue.randomize(Own(head), q=0.5), by_hand):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            rbue.predict(net, x, samples, batch=6)
        places = [one.filename for one in found if "it is not reproducible" in str(one.message)]
        assert places == [__file__] * (kind in NOT_REPRODUCIBLE)


def test_weights_that_take_the_images_type_are_no_obstacle_to_several_samples():
    torch.manual_seed(0)
    net, x = rbue.randomize(Own(lambda net, h: F.linear(h, net.weight.type_as(h))), q=0.5), torch.randn(6, 8)
    assert torch.allclose(samples_of(net, x, 8), samples_of(net, x, 8, batch=1), atol=1e-5)


@pytest.mark.parametrize("sizes", [(1, 8), (1, 1, 7), (8, 1)])
def test_a_first_batch_of_one_image_does_not_decide_how_larger_ones_are_sampled(sizes):
    class Prior(Own):
        def forward(self, x):
            return F.linear(self.first(x).relu(), self.weight) + self.weight.mean(1)[None].to(x)  # one row

    torch.manual_seed(0)
    net, x = rbue.randomize(Prior(None), q=0.5), torch.randn(9, 8)
    assert torch.allclose(samples_of(net, x.split(sizes), 8), samples_of(net, x, 8), atol=1e-5)


@pytest.mark.parametrize("samples", [1, 3])
def test_a_late_image_that_affects_the_first_ones_is_noticed(samples):
    torch.manual_seed(0)
    net = rbue.randomize(Own(lambda net, h: F.linear(h / h.amax(), net.weight)), q=0.5)
    few, more = torch.rand(12, 8), torch.rand(12, 8)
    few[0] = more[0] = 10.0  # among the first images, on which stacking is tried, it is the largest one
    more[9] = 100.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rbue.predict(net, few, samples)
    with pytest.warns(UserWarning, match="it is not reproducible"):
        rbue.predict(net, more, samples)


def test_an_ensemble_averages_its_members():
    nets = [build("small", 10).eval() for _ in range(6)]
    with torch.no_grad():
        draws = [evaluator.sampler(net, 1, 0, 4) for net in nets]
        members = torch.stack([net(X).softmax(1) for net in nets])
        evaluated = evaluator.evaluate(draws, X, lambda x: x, batch=4)
    assert torch.allclose(evaluated.mean.float(), members.mean(0), atol=1e-6)
    assert torch.allclose(evaluated.first.float(), members[:4], atol=1e-6)
    assert list(evaluated.by_count) == [1, 2, 3, 4, 5, 6] and torch.equal(evaluated.by_count[6], evaluated.mean)


def test_the_likelihood_of_very_sharp_logits_does_not_saturate():
    logits = 100 * torch.randn(50, 10, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(50) % 10
    draw = evaluator.sampler(nn.Identity(), 1, 0, 50)
    mean = evaluator.evaluate([draw], logits, lambda x: x, batch=50).mean
    assert metrics.nll(mean, labels) == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-6)
    assert metrics.losses(mean, labels).max() > 300


@pytest.mark.parametrize("arch", ["small", "resnet18", "densenet121"])
def test_folding_batch_norm_changes_the_cost_and_not_the_numbers(arch):
    net = rbue.randomize(build(arch, 10), q=0.7)
    net.train()(X)  # gives running statistics that are not the identity
    net.eval()
    folded = surgery.fold(net)
    with torch.no_grad(), noise.counted(net, 0, 0, torch.arange(7)), noise.counted(folded, 0, 0, torch.arange(7)):
        assert torch.allclose(net(X), folded(X), atol=1e-3, rtol=1e-3)
    assert len(surgery.modules_called(folded, nn.BatchNorm2d)) < len(surgery.modules_called(net, nn.BatchNorm2d))


class NormAct(nn.BatchNorm2d):
    """Batch-norm and a rectifier in one module, as timm's BatchNormAct2d."""

    def __init__(self, width):
        super().__init__(width)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        training = self.training or self.running_mean is None
        x = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, training)
        return self.act(x)


class Scaled(nn.Conv2d):
    """A convolution that computes more than its weights say. It reads its mode, so it is not traced into."""

    def forward(self, x):
        return super().forward(x) * (1.0 if self.training else 3.0)


class Repeated(nn.Module):
    """A convolution is called twice, with `norms` behind the calls."""

    def __init__(self, *norms):
        super().__init__()
        self.convolution, self.norms = nn.Conv2d(3, 3, 3, padding=1), nn.ModuleList(norms)

    def forward(self, x):
        for norm in self.norms:
            x = norm(self.convolution(x)).relu()
        return x


class Tied(nn.Module):
    """An autoencoder whose decoder reads the weights of its encoder's convolution."""

    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        return F.conv_transpose2d(self.norm(self.convolution(x)).relu(), self.convolution.weight)


class Named(nn.Sequential):
    def forward(self, x):
        return self[1](input=self[0](x)).relu()


def pair(convolution, norm):
    return nn.Sequential(convolution, norm, nn.ReLU())


def pruned(convolution):
    return prune.random_unstructured(convolution, "weight", 0.5)


def norm_twice():
    norm = nn.BatchNorm2d(3)
    return nn.Sequential(nn.Conv2d(3, 3, 3), norm, nn.ReLU(), nn.Conv2d(3, 3, 3), norm)


NOT_FOLDED = {
    "activation inside": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), NormAct(4)),
    "convolution twice, two norms": lambda: Repeated(nn.BatchNorm2d(3), nn.BatchNorm2d(3)),
    "convolution twice, one norm": lambda: Repeated(nn.BatchNorm2d(3), nn.Identity()),
    "norm twice": norm_twice,
    "no running statistics": lambda: pair(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)),
    "spectral_norm": lambda: pair(spectral_norm(nn.Conv2d(3, 4, 3)), nn.BatchNorm2d(4)),
    "weight_norm": lambda: pair(weight_norm(nn.Conv2d(3, 4, 3)), nn.BatchNorm2d(4)),
    "weight_norm of the norm": lambda: pair(nn.Conv2d(3, 4, 3), weight_norm(nn.BatchNorm2d(4), dim=None)),
    "pruned": lambda: pair(pruned(nn.Conv2d(3, 4, 3)), nn.BatchNorm2d(4)),
    "a convolution of one's own": lambda: pair(Scaled(3, 4, 3), nn.BatchNorm2d(4)),
    "tied weights": Tied,
}


def settled(make):
    """Return a network whose running statistics are not the identity."""
    torch.manual_seed(0)
    net = make()
    for _ in range(5):
        net.train()(2 * torch.randn(8, 3, 8, 8) + 1)
    return net.eval()


@pytest.mark.parametrize("case", NOT_FOLDED)
@torch.no_grad()
def test_what_cannot_be_folded_stays_as_it_is(case):
    net, x = settled(NOT_FOLDED[case]), X[:, :, :8, :8]
    folded = evaluator.compact(net, torch.float32)
    assert torch.allclose(folded(x), net(x), atol=1e-5)
    before, after = (surgery.modules_called(graph, nn.BatchNorm2d) for graph in (surgery.trace(net), folded))
    assert len(before) == len(after)


def test_folding_keeps_the_noise_of_a_norm_with_an_activation_inside():
    net = rbue.randomize(nn.Sequential(nn.Conv2d(3, 4, 3), NormAct(4)), q=0.5).eval()
    assert noise.of(evaluator.compact(net, torch.float32)).sites == noise.of(net).sites == 1


@pytest.mark.parametrize("make", [lambda: Named(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), lambda: build("resnet18", 10)])
@torch.no_grad()
def test_every_plain_pair_is_folded(make):
    net = settled(make)
    folded = evaluator.compact(net, torch.float32)
    assert torch.allclose(folded(X), net(X), atol=1e-4)
    assert not surgery.modules_called(folded, nn.BatchNorm2d)


def test_the_readmes_six_lines_run():
    readme = (ROOT / "README.md").read_text()
    code = next(block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "resnet50" in block)
    names = {}
    exec(code, names)
    prediction = names["prediction"]
    assert len([line for line in code.splitlines() if line.strip()]) <= 6
    assert prediction.mean.shape == (2, 1000) and prediction.entropy.shape == (2,)
    assert (prediction.mutual_information > 0).all()  # no two samples are the same


def test_a_network_without_noise_counts_as_one_pass(digits_run, few_digits):
    run = digits_run("method=dropreLU", "samples=7")
    plain, noisy = build("small", 10).eval(), methods.build(run, 10, 100).eval()
    for networks, passes in (([noisy], 7), ([plain], 1), ([plain, plain], 2)):
        assert evaluator.Evaluator(run, networks, few_digits, torch.device("cpu")).about["passes"] == passes


def test_precision_and_batch_follow_the_run_and_the_device(digits_run):
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    precisions = [evaluator.precision_of(digits_run(f"precision={p}"), d) for p in ("bf16", "fp32") for d in (gpu, cpu)]
    assert precisions == [torch.float16, torch.float32, torch.float32, torch.float32]
    assert [evaluator.batch_size(digits_run(), device) for device in (gpu, cpu)] == [2000, 250]
    assert evaluator.batch_size(digits_run("eval_batch=7"), cpu) == 7


@pytest.mark.parametrize(
    ("settings", "expected"),
    [("method=dropreLU", "captured"), ("method=dropreLU engine=eager", "eager"), ("method=single", "captured")],
)
def test_a_network_is_captured_if_the_run_allows_it(settings, expected, digits_run, monkeypatch):
    class OnGpu(list):
        is_cuda = True

    run = digits_run(*settings.split())
    monkeypatch.setattr(evaluator, "Captured", lambda *_: "sampler")
    _, how = evaluator.fast(methods.build(run, 10, 100).eval(), run, OnGpu(range(5)), torch.float32)
    assert how == expected


def test_random_weights_stay_in_float32_and_fixed_ones_do_not():
    for kind, dtype in (("svi", torch.float32), ("dropreLU", torch.float16)):
        fast = evaluator.compact(network(kind), torch.float16)
        assert {p.dtype for p in fast.parameters()} == {dtype}
    with torch.no_grad():
        assert evaluator.compact(network("svi"), torch.bfloat16)(X).dtype == torch.bfloat16
        assert evaluator.compact(network("svi"), torch.float32)(X).dtype == torch.float32


def test_a_batch_is_not_larger_than_the_test_set(digits_run, few_digits):
    """On a GPU, the first batch fixes how many images a captured sampler takes: a larger set needs several batches."""
    run = digits_run("method=dropreLU", "samples=2")
    few = replace(few_digits, test_images=few_digits.test_images[:7], test_labels=few_digits.test_labels[:7])
    network = methods.build(run, 10, 100).eval()
    test = evaluator.Evaluator(run, [network], few, torch.device("cpu"))
    assert test.batch == 7 and len(test(few_digits.test_images[:20])[0].mean) == 20


@pytest.mark.parametrize(
    ("times", "expected"),
    [([0.09, *[0.05, 0.06, 0.04, 0.05] * 2, 9.0], 5.0), ([0.75, 0.7, 0.65, 9.0], 70.0), ([3.0], 300.0)],
)
def test_a_short_evaluation_is_timed_several_times(times, expected, monkeypatch):
    """The median of up to nine; no further one once 2 s have gone by."""
    left, about = iter(times), {"engine": "eager", "passes": 2}
    answer = timed_by(lambda most: next(left), monkeypatch, about)
    expected = {"ms_per_image": pytest.approx(expected), "first_ms_per_image": None}
    assert answer == ("predictions", {"seconds": times[0]} | about | expected)


def timed_by(seconds, monkeypatch, about, shared=False):
    """Return what `timed` makes of evaluations of ten images that take seconds(most)."""

    def call(self, images, quiet=False, most=None):
        return "predictions", {"seconds": seconds(most)} | about

    monkeypatch.setattr(evaluator.Evaluator, "__init__", lambda self: setattr(self, "shared_gpu", shared))
    monkeypatch.setattr(evaluator.Evaluator, "__call__", call)
    return evaluator.Evaluator().timed(torch.zeros(10, 3, 2, 2))


@pytest.mark.parametrize(
    ("engine", "passes", "shared", "expected"),
    [
        ("captured", 100, False, (400, 10)),
        ("captured", 1, False, (400, None)),
        ("eager", 100, False, (400, None)),
        ("captured", 100, True, (None, None)),
    ],
)
def test_the_first_of_several_captured_passes_is_also_timed(engine, passes, shared, expected, monkeypatch):
    about = {"engine": engine, "passes": passes}
    _, cost = timed_by(lambda most: 4.0 if most is None else 0.1 * most, monkeypatch, about, shared)
    assert (cost["ms_per_image"], cost["first_ms_per_image"]) == expected


def test_at_most_so_many_passes_are_run(digits_run, few_digits):
    run = digits_run("method=dropreLU", "samples=4")
    test = evaluator.Evaluator(run, [methods.build(run, 10, 100).eval()], few_digits, torch.device("cpu"))
    (all_four, _), (one, _) = test(few_digits.test_images), test(few_digits.test_images, most=1)
    assert len(all_four.first) == 4 and len(one.first) == 1
    assert torch.equal(one.mean, all_four.first[0]) and not torch.equal(one.mean, all_four.mean)


class Replayed(evaluator.Captured):
    """On a CPU there is no CUDA graph: each replay computes a sample again, as the graph does."""

    def captured(self, pool):
        return self

    def replay(self):
        self.probs = self.sample()


@pytest.fixture
def uncompiled(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def test_a_captured_network_without_noise_has_one_sample(uncompiled):
    x, plain = torch.randn(4, 3, 32, 32), build("small", 10).eval()
    with torch.no_grad():
        (drawn,) = Replayed(plain, 100, 0, x)(x[:3], torch.arange(3))
        assert torch.allclose(drawn.float(), plain(x[:3]).softmax(1)[None], atol=1e-6)


def test_a_captured_sample_leaves_the_features_for_the_next_one(uncompiled):
    class Updated(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.last(self.first(x).add_(x.relu()))

    torch.manual_seed(0)
    network, x, rows = rbue.randomize(Updated(), q=0.5).eval(), torch.randn(4, 8), torch.arange(4)
    with torch.no_grad():
        drawn = torch.cat([sample.clone() for sample in Replayed(network, 3, 0, x)(x, rows)])
    assert torch.allclose(drawn.float(), rbue.predict(network, x, samples=3, keep_samples=True).samples)
