import copy
import io
from functools import partial

import pytest
import torch
from conftest import refused
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.testing import CompileCounter
from torch.distributions import Normal, kl_divergence

from rbue import noise
from rbue.errors import UserError
from rbue.layers import Dropout, DropReLU, LearnedGaussian, RReLU
from rbue.surgery import wire

X = torch.randn(1, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def draw(layer, x, times=20000):
    """The layer's output for one input under many rows of noise."""
    wire(layer)
    with noise.counted(layer, seed=0, step=0, rows=torch.arange(times)):
        return layer(x.expand(times, -1))


@pytest.mark.parametrize("q", [0.5, 0.8, 0.95])
def test_variance_of_droprelu_is_the_closed_form_and_not_the_papers(q):
    measured = draw(DropReLU(q), X).sum(1).var().item()
    exact = q * (1 - q) * (X.clamp(max=0) ** 2).sum().item()
    papers = q * (1 - q) * ((X**2).sum() + (X.clamp(min=0) ** 2).sum()).item()  # Section 3.4 with its epsilon
    assert abs(measured / exact - 1) < 0.05
    assert measured < papers / 1.4


def test_mean_of_droprelu_is_a_leaky_rectifier():
    assert torch.allclose(draw(DropReLU(0.9), X).mean(0), torch.where(X < 0, 0.1 * X, X)[0], atol=0.03)


def test_q_one_is_a_plain_relu_and_q_zero_the_identity():
    assert torch.equal(DropReLU(1.0)(X), X.relu())
    assert torch.equal(DropReLU(0.0)(X), X)


def test_slopes_of_rrelu_are_uniform_between_l_and_u():
    slopes = (draw(RReLU(1 / 8, 1 / 3), X) / X)[:, X[0] < 0]
    assert slopes.min() >= 1 / 8 and slopes.max() <= 1 / 3
    assert abs(slopes.mean() - 11 / 48) < 1e-3
    assert abs(slopes.var() - (1 / 3 - 1 / 8) ** 2 / 12) < 1e-4
    assert torch.equal(draw(RReLU(), X)[:, X[0] > 0][0], X[X > 0])


def test_slopes_of_rrelu_may_start_at_zero_or_all_be_equal():
    assert (draw(RReLU(0, 0.5), X) / X)[:, X[0] < 0].min() < 0.001
    assert torch.allclose(RReLU(0.2, 0.2)(X), torch.where(X < 0, 0.2 * X, X))


@pytest.mark.parametrize(("name", "value"), [("l", -0.1), ("l", 0.5), ("u", 0.1), ("u", float("nan")), ("u", "a")])
def test_bounds_of_rrelu_that_are_changed_are_checked(name, value):
    layer = RReLU()
    with pytest.raises(UserError, match=r"l=|u="):
        setattr(layer, name, value)
    assert (layer.l, layer.u) == (1 / 8, 1 / 3)
    layer.u, layer.l = 0.5, 0.5
    assert torch.equal(layer(X), torch.where(X < 0, 0.5 * X, X)) and "l=0.5, u=0.5" in repr(layer)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layer", [DropReLU(0.7), RReLU(), Dropout(0.3)], ids=lambda m: type(m).__name__)
def test_compiled_gradients_are_the_eager_ones(layer, dtype):
    """torch 2.11 (not 2.10 or 2.13) compiled an earlier RReLU to no gradient at all, only in float32."""
    wire(layer)
    x, gradients = X.view(4, 16).to(dtype).requires_grad_(), []
    for form in (layer, torch.compile(layer, backend="aot_eager", dynamic=False)):
        with noise.counted(layer, seed=0, step=0, rows=torch.arange(4)):
            gradients += torch.autograd.grad(form(x).square().sum(), x)
    assert torch.equal(*gradients) and gradients[0].any()


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_variance_of_dropout_is_its_closed_form(p):
    summed = draw(Dropout(p), X).sum(1)
    assert abs(summed.mean() - X.sum()) < 4 * (summed.std() / 20000**0.5)
    assert abs(summed.var() / (p / (1 - p) * (X**2).sum()) - 1) < 0.05


def test_dropout_of_everything_is_zero_and_of_nothing_the_identity():
    assert torch.equal(Dropout(1.0)(X), torch.zeros_like(X))
    assert torch.equal(Dropout(0.0)(X), X)


def test_after_a_change_of_q_the_variance_is_that_of_the_new_q():
    layer = DropReLU(0.95)
    layer.q = 0.5
    assert abs(draw(layer, X).sum(1).var() / (0.25 * (X.clamp(max=0) ** 2).sum()) - 1) < 0.05
    assert repr(layer) == "DropReLU(q=0.5)" and layer.deterministic().negative_slope == 0.5


def test_after_a_change_of_p_elements_are_kept_with_the_new_probability():
    layer = Dropout(0.1)
    layer.p = 0.6
    drawn = draw(layer, X)
    assert abs((drawn != 0).double().mean() - 0.4) < 0.002
    assert torch.allclose(drawn[drawn != 0], (X / 0.4).expand_as(drawn)[drawn != 0])


PROBABILITIES = pytest.mark.parametrize("kind, name, off", [(DropReLU, "q", 1), (Dropout, "p", 0)])


@PROBABILITIES
def test_noise_can_be_switched_off_and_on_again(kind, name, off):
    layer = kind(0.4)
    before, limit = draw(layer, X, 100), layer.limit
    setattr(layer, name, off)
    assert layer.random is False and torch.equal(layer(X), kind(off)(X)) and torch.equal(layer(X), layer(X))
    setattr(layer, name, 0.4)
    assert layer.random is True and torch.equal(draw(layer, X, 100), before)
    assert layer.limit is limit  # the same tensor on the same device: a CUDA graph reads it


@PROBABILITIES
@pytest.mark.parametrize("bad", [-0.1, 1.5, float("nan"), "0.5"])
def test_a_refused_change_leaves_the_layer_as_it_was(kind, name, off, bad):
    layer = kind(0.4)
    before = draw(layer, X, 100)
    assert refused(setattr, layer, name, bad) == refused(kind, bad)
    assert getattr(layer, name) == 0.4 and torch.equal(draw(layer, X, 100), before)


def saved(layer):
    """A copy of the layer through a file."""
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@PROBABILITIES
@pytest.mark.parametrize("duplicate", [copy.deepcopy, saved])
def test_a_change_of_a_copy_leaves_the_original(kind, name, off, duplicate):
    layer = kind(0.4)
    other = duplicate(layer)
    setattr(other, name, 0.7)
    for made, value in ((layer, 0.4), (other, 0.7)):
        assert getattr(made, name) == value and torch.equal(draw(made, X, 100), draw(kind(value), X, 100))
    assert not layer.state_dict() and not other.state_dict()


@PROBABILITIES
def test_compiled_code_follows_a_change_and_is_compiled_anew_only_without_noise(kind, name, off):
    torch._dynamo.reset()
    layer, counter = kind(0.4), CompileCounter()
    compiled = torch.compile(layer, backend=counter, fullgraph=True)
    for value in (0.4, 0.7, off, 0.2):
        setattr(layer, name, value)
        wire(layer)
        with noise.counted(layer, seed=0, step=0, rows=torch.arange(100)):
            assert torch.equal(compiled(X.expand(100, -1)), draw(kind(value), X, 100))
    assert counter.frame_count == 2


@PROBABILITIES
def test_compiled_code_may_change_and_read_the_probability(kind, name, off):
    layer = wire(kind(0.4))

    def forward(x):
        setattr(layer, name, 0.7)
        return layer(x) * getattr(layer, name)

    with noise.counted(layer, seed=0, step=0, rows=torch.arange(100)):
        drawn = torch.compile(forward, backend="aot_eager", fullgraph=True)(X.expand(100, -1))
    assert torch.equal(drawn, draw(kind(0.7), X, 100) * 0.7)


@pytest.mark.parametrize("layer", [DropReLU(0.7), RReLU(), Dropout(0.3)], ids=lambda m: type(m).__name__)
def test_gradients_with_the_noise_held_fixed(layer):
    x = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64, requires_grad=True)
    wire(layer)
    with noise.counted(layer, seed=0, step=0, rows=torch.arange(5)):
        assert torch.autograd.gradcheck(layer, x)


@pytest.mark.parametrize("layer", [DropReLU(0.7), RReLU(), Dropout(0.3)], ids=lambda m: type(m).__name__)
def test_transforms_of_torch_func_give_the_same_outputs_and_gradients(layer):
    x = torch.cat([X, torch.zeros(1, 1)], 1).expand(100, -1).clone().requires_grad_()  # also at zero
    wire(layer)
    with noise.counted(layer, seed=0, step=0, rows=torch.arange(100)):
        y = layer(x)
        (usual,) = torch.autograd.grad(y.exp().sum(), x)
        twice = torch.func.vmap(layer)(torch.stack([x, x]))
        ours = torch.func.grad(lambda t: layer(t).exp().sum())(x)
        value, slopes = torch.func.jvp(layer, (x,), (torch.ones_like(x),))
    assert torch.equal(twice, torch.stack([y, y])) and torch.equal(ours, usual)
    torch.testing.assert_close(slopes * value.exp(), usual)  # each output depends on one input


@pytest.mark.parametrize("layer", [DropReLU(0.7), RReLU(), Dropout(0.3)], ids=lambda m: type(m).__name__)
def test_vmap_draws_as_its_randomness_says(layer):
    copies = X.expand(2, *X.shape)
    same, different = (torch.func.vmap(layer, randomness=kind)(copies) for kind in ("same", "different"))
    assert torch.equal(*same) and not torch.equal(*different)


@pytest.mark.parametrize("layer", [DropReLU(0.7), RReLU(), Dropout(0.3)], ids=lambda m: type(m).__name__)
def test_compiled_the_backward_pass_is_given_no_noise(layer):
    """Nothing computed from it is kept either: only a plain rectifier's bytes, and keys and a threshold per layer."""
    rows = 64
    assert kept_for_backward(layer, rows) <= kept_for_backward(torch.nn.ReLU(), rows) + 2 * 4 * (2 * rows + 1)


def kept_for_backward(layer, rows):
    """Bytes that the compiled forward pass of two such layers keeps for the backward pass."""
    torch._dynamo.reset()
    kept, convolution = [], partial(torch.nn.Conv2d, 8, 8, 3, padding=1)
    parts = [m for _ in range(2) for m in (convolution(), torch.nn.BatchNorm2d(8), copy.deepcopy(layer))]
    network = wire(torch.nn.Sequential(*parts, convolution()))

    def backward(graph, given):
        kept.extend(t.numel() * t.itemsize for t in given[:-1])  # the last is the incoming gradient
        return make_boxed_func(graph)

    compilers = {"fw_compiler": lambda graph, given: make_boxed_func(graph), "bw_compiler": backward}
    backend = aot_autograd(**compilers, partition_fn=min_cut_rematerialization_partition)
    x = torch.randn(rows, 8, 16, 16, generator=torch.Generator().manual_seed(0))
    with noise.counted(network, seed=0, step=0, rows=torch.arange(rows)):
        torch.compile(network, backend=backend)(x).sum().backward()
    return sum(kept)


@pytest.mark.parametrize("make", [partial(DropReLU, 1.5), partial(RReLU, -0.2, 0), partial(RReLU, 0, 0),
                                  partial(RReLU, 0.5, 0.1), partial(RReLU, "0.1"), partial(Dropout, -1)])  # fmt: skip
def test_a_layer_beyond_its_range_is_refused(make):
    with pytest.raises(UserError, match="must"):
        make()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("layer", [DropReLU(0.7), RReLU(), Dropout(0.3)], ids=lambda m: type(m).__name__)
def test_outputs_and_gradients_have_the_type_of_the_input(layer, dtype):
    x = X.to(dtype).requires_grad_()
    y = layer(x)
    assert y.dtype == torch.autograd.grad(y.sum(), x)[0].dtype == dtype


@pytest.mark.parametrize("layer", [DropReLU(0.7), RReLU(), Dropout(0.3)], ids=lambda m: type(m).__name__)
def test_random_in_training_and_in_testing(layer):
    for mode in (layer.train(), layer.eval()):
        assert not torch.equal(mode(X), mode(X))


@pytest.mark.parametrize("make", [lambda: DropReLU(0.9), lambda: Dropout(0.2), lambda: LearnedGaussian(X, 0.1, 0.3)])
def test_hyperparameters_survive_the_meta_device(make):
    with torch.device("meta"):
        layer = make()
    assert {buffer.device.type for buffer in layer.buffers()} == {"meta"}
    found = layer.to_empty(device="cpu").named_buffers()
    assert [(name, b.tolist()) for name, b in found] == [(name, b.tolist()) for name, b in make().named_buffers()]


def test_outside_counted_the_noise_follows_torchs_seed():
    layer = DropReLU(0.5)
    torch.manual_seed(3)
    first = layer(X)
    torch.manual_seed(3)
    assert torch.equal(first, layer(X))


def test_kl_is_that_of_two_gaussians():
    mu = torch.randn(4, 5, generator=torch.Generator().manual_seed(4)) * 0.1
    site = LearnedGaussian(mu, sigma=0.02, prior=0.3)
    expected = kl_divergence(Normal(mu, 0.02), Normal(torch.zeros_like(mu), 0.3)).sum()
    assert torch.allclose(site.kl(mu), expected, rtol=1e-4)


def test_a_gaussian_weight_has_its_mean_and_deviation():
    mu = torch.full((2000, 50), 1.5)
    drawn = LearnedGaussian(mu, sigma=0.25, prior=1.0)(mu).detach()
    assert abs(drawn.mean() - 1.5) < 0.004 and abs(drawn.std() - 0.25) < 0.004
