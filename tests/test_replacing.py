import copy
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torchvision.models import resnet18
from users_networks import NormAct, Users, sites

import rbue
from rbue.errors import UserError
from rbue.layers import Dropout, DropReLU, RReLU
from rbue.networks import ARCHS


class InPlace(nn.Module):
    """The input that an in-place rectifier overwrote is used again, as in pre-activation residual blocks."""

    def __init__(self):
        super().__init__()
        self.layer, self.relu = nn.Linear(6, 6), nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.layer(x)
        return self.relu(x) + x


def test_a_users_network_becomes_mc_droprelu_with_one_call():
    network = rbue.randomize(Users(), q=0.5)
    assert sites(network) == [DropReLU] * 4
    x = torch.randn(3, 6)
    assert not torch.equal(network(x), network(x))


@pytest.mark.parametrize("kind", [Users, InPlace])
def test_with_q_one_the_network_computes_what_it_did(kind):
    network, x = kind(), torch.randn(3, 6)
    assert torch.equal(rbue.randomize(network, q=1.0)(x), network(x))


def test_the_users_network_is_left_alone_and_shares_its_weights():
    network = Users()
    changed = rbue.randomize(network, q=0.5)
    assert not sites(network)
    assert changed.first.weight is network.first.weight
    assert changed.state_dict().keys() == network.state_dict().keys()


@pytest.mark.parametrize(("position", "which"), [("all", [0, 1, 2, 3]), ("first", [0]), ("last", [3])])
def test_position_chooses_by_order_of_execution(position, which):
    network = rbue.randomize(Users(), q=0.5, position=position)
    names = [n.name for n in network.graph.nodes]
    calls = [n.name for n in network.graph.nodes if "relu" in n.name]
    assert [calls.index(c) for c in calls if c.startswith("droprelu")] == which, names


def test_another_layer_takes_the_rectifiers_place():
    assert sites(rbue.randomize(Users(), RReLU())) == [RReLU] * 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"q": 1.5}, "q=1.5"),
        ({"q": "0.9"}, "q='0.9' must lie in"),
        ({"q": torch.tensor(0.9)}, "must lie in .* give a plain number, not a Tensor"),
        ({}, "needs either q"),
        ({"q": 0.5, "position": "middle"}, "position=middle"),
        ({"layer": Dropout(0.2)}, "Dropout does not rectify, so it cannot replace rectifiers: rbue.add_dropout"),
        ({"layer": nn.RReLU()}, r"torch.*\.RReLU is not a stochastic layer: use .* rbue\.RReLU\(\)"),
        ({"layer": RReLU}, r"<class 'rbue.layers.RReLU'> is not a stochastic layer: use .* rbue\.RReLU\(\)"),
        ({"layer": 0.9}, r"0\.9 is not a stochastic layer: use rbue\.DropReLU\(0\.9\)"),
        ({"network": nn.Linear(2, 2), "q": 0.5}, r"Linear calls no nn\.ReLU or F\.relu"),
        ({"network": lambda x: x.relu(), "q": 0.9}, "the network is a function: pass a torch.nn.Module"),
        ({"network": rbue.randomize(Users(), q=0.5), "q": 0.9}, "already random"),
    ],
)
def test_a_wrong_request_is_refused_in_a_sentence(arguments, words):
    with pytest.raises(UserError, match=words):
        rbue.randomize(**{"network": Users()} | arguments)


@pytest.mark.parametrize(
    "closed",
    [nn.TransformerEncoderLayer(8, 2, 8), nn.RNN(8, 8, nonlinearity="relu"), nn.TransformerDecoderLayer(8, 2, 8)],
)
def test_a_rectifier_that_the_tracer_does_not_see_is_refused(closed):
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.closed = closed

        def forward(self, x):
            return self.closed(x, x)

    with pytest.raises(UserError, match=f"closed is a {type(closed).__name__}, whose rectifiers torch.fx does not see"):
        rbue.randomize(Network(), q=0.9)


RECTIFY = nn.ReLU()


@torch.fx.wrap
def wrapped(x):
    return torch.relu(x)


@torch.fx.wrap
def calls_another(x):
    return wrapped(x) if len(x) > 1 else calls_another(x[:2])


@torch.fx.wrap
def each_apart(x):
    return torch.stack([F.relu(row) for row in x])


@torch.fx.wrap
def by_module(x):
    return RECTIFY(x)


@torch.fx.wrap
def doubled(x):
    return 2 * x


class Calling(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x) + x.relu()


@pytest.mark.parametrize("name", ["wrapped", "calls_another", "each_apart", "by_module"])
def test_a_rectifier_in_a_function_that_the_tracer_does_not_see_is_named(name):
    with pytest.warns(UserWarning, match=rf"stay as they are: 1 {name}\(\), which torch\.fx does not trace"):
        rbue.randomize(Calling(lambda x: globals()[name](x)), q=0.9)


def test_a_function_without_rectifiers_that_the_tracer_does_not_see_is_no_activation(recwarn):
    rbue.randomize(Calling(lambda x: doubled(x)), q=0.9)
    assert not recwarn


class Hidden(nn.Module):
    """A module that checks its mode and has no children; its rectifier is not visible in its code."""

    def __init__(self):
        super().__init__()
        self.rectify, self.weight = F.relu, nn.Parameter(torch.randn(8, 8))

    def forward(self, x):
        return F.dropout(self.rectify(x @ self.weight), 0.1, self.training)


def test_modules_that_ask_for_their_mode_are_opened_for_their_rectifiers():
    assert len(sites(rbue.randomize(nn.Sequential(Hidden(), Hidden(), nn.ReLU()), q=0.5))) == 3


@pytest.mark.parametrize(("arch", "elements"), [("vgg13", 249_856), ("resnet18", 557_056), ("densenet121", 4_853_760)])
def test_rectifiers_see_maps_of_the_size_that_cifar_networks_have(arch, elements):
    """A stem that halves the image, as for ImageNet, has the same number of parameters."""
    network, seen = rbue.randomize(ARCHS[arch](10), q=0.9).eval(), []
    for site in (m for m in network.modules() if isinstance(m, DropReLU)):
        site.register_forward_hook(lambda _, __, output: seen.append(output.numel()))
    with torch.no_grad():
        network(torch.zeros(1, 3, 32, 32))
    assert sum(seen) == elements


def test_what_forward_does_not_use_is_left_out_and_a_copy_keeps_its_own_modes():
    network = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU()).eval()
    own = Users()
    own.head, own.count = nn.Linear(2, 2), nn.Parameter(torch.zeros(1))
    left_out = {"head.weight", "head.bias", "count"}
    assert set(own.state_dict()) - set(rbue.randomize(own, q=0.5).state_dict()) == left_out
    rbue.randomize(copy.deepcopy(network), q=0.5).train()
    assert not network[1].training
    rbue.randomize(network, q=0.5).train()
    assert network[1].training  # shared


def test_activations_that_stay_are_named():
    network = nn.Sequential(nn.Linear(8, 8), nn.Hardswish(), nn.ReLU(), nn.Hardswish(), nn.ReLU6(), nn.Softsign())
    with pytest.warns(UserWarning, match="these activations stay as they are: 2 Hardswish, 1 ReLU6, 1 Softsign"):
        rbue.randomize(network, q=0.5)


def test_a_module_is_no_rectifier_because_of_its_name():
    network = resnet18(num_classes=3)
    network.relu = nn.GELU()
    with pytest.warns(UserWarning, match="these activations stay as they are: 1 GELU"):
        assert len(sites(rbue.randomize(network, q=0.5))) == 16
    assert len(sites(rbue.add_dropout(network, rbue.Dropout(0.5), "relu"))) == 16


BY_HAND = {
    "where(x > 0, x, y)": [
        lambda h: torch.where(h > 0, h, 0),
        lambda h: torch.where(h.le(0), torch.zeros_like(h), h),
        lambda h: h.where(h >= 0, 0),
        lambda h: torch.where(~(h < 0), h, 0.0),
    ],
    "x * (x > 0)": [
        lambda h: h * (h > 0),
        lambda h: (h > 0).float() * h,
        lambda h: h.mul_((h > 0).to(h.dtype)),
        lambda h: h * (h > 0).int(),
        lambda h: h * torch.logical_not(h < 0),
        lambda h: torch.multiply(h, h > 0),
    ],
    "x.masked_fill(x < 0, y)": [lambda h: h.masked_fill(h < 0, 0), lambda h: h.masked_fill_(h.le(0), 0.0)],
    "clamp": [lambda h: torch.clamp(h, min=0), lambda h: h.clamp(0), lambda h: torch.clamp_(h, 0)],
    "clamp_min": [lambda h: torch.clamp_min(h, 0), lambda h: h.clamp_min_(0), lambda h: torch.ops.aten.clamp_min(h, 0)],
    "clip": [lambda h: torch.clip(h, 0), lambda h: h.clip(0)],
    "maximum": [lambda h: torch.maximum(h, torch.zeros_like(h)), lambda h: h.maximum(torch.zeros_like(h))],
    "max": [lambda h: torch.max(h, torch.zeros_like(h)), lambda h: h.max(other=torch.zeros(1))],
    "fmax": [lambda h: torch.fmax(h, torch.zeros_like(h))],
    "minimum": [lambda h: h - torch.minimum(h, torch.zeros_like(h))],
    "heaviside": [lambda h: h * torch.heaviside(h, torch.zeros_like(h))],
    "threshold": [lambda h: F.threshold(h, 0, 0), lambda h: F.threshold_(h, 0, 0), lambda h: torch.threshold(h, 0, 0)],
}


class ByHand(nn.Linear):
    """A rectifier of torch's, and a function that may be one."""

    def __init__(self, function):
        super().__init__(8, 8)
        self.function = function

    def forward(self, x):
        return self.function(super().forward(x.relu()))


@pytest.mark.parametrize(("name", "rectify"), [(name, each) for name, forms in BY_HAND.items() for each in forms])
def test_rectifiers_that_are_written_by_hand_are_named(name, rectify):
    own, x = ByHand(rectify), torch.randn(4, 8)
    assert torch.equal(own(x), F.linear(x.relu(), own.weight, own.bias).relu())
    with pytest.warns(UserWarning, match=re.escape(f"these activations stay as they are: 1 {name}")):
        network = rbue.randomize(own, q=0.5)
    assert sites(network) == [DropReLU]


@pytest.mark.parametrize(
    "function",
    [
        lambda h: h * (h.mean(1, keepdim=True) > 0),
        lambda h: torch.where(h.isnan(), 0, h),
        lambda h: torch.where(h == 0, 1, h),
        lambda h: h * h.float(),
        lambda h: h * (h > 0).any(),
        lambda h: torch.mul(h, 2).max(1),
        lambda h: torch.max(h, 2 * h),
        lambda h: torch.maximum(h, h.mean(1, keepdim=True)),
    ],
)
@pytest.mark.filterwarnings("error")
def test_masks_and_products_count_as_no_activation(function):
    assert sites(rbue.randomize(ByHand(function), q=0.5)) == [DropReLU]


def test_rectifiers_of_aten_are_seen_and_those_of_a_recurrent_cell_refused():
    class Aten(nn.Linear):
        def forward(self, x):
            return torch.ops.aten.relu(super().forward(x).relu())

    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.RNNCell(8, 8, nonlinearity="relu")

        def forward(self, x):
            return self.cell(x.relu())

    assert len(sites(rbue.randomize(Aten(8, 8), q=0.5))) == 2
    with pytest.raises(UserError, match=r"cell is a RNNCell, whose rectifiers torch\.fx does not see"):
        rbue.randomize(Cell(), q=0.5)


def test_a_rectifier_in_place_on_a_view_is_refused_where_the_whole_is_read_after():
    class Viewed(nn.Linear):
        def forward(self, x):
            h = super().forward(x)
            h.view(-1, 2, 4).relu_()
            return h

    class Harmless(nn.Linear):
        def forward(self, x):
            return F.relu(super().forward(x).view(-1, 2, 4), inplace=True).flatten(1)

    with pytest.raises(UserError, match=r"in-place rectifier overwrites memory that .* reads later"):
        rbue.randomize(Viewed(8, 8), q=0.5)
    own, x = Harmless(8, 8), torch.randn(4, 8)
    assert torch.equal(rbue.randomize(own, q=1.0)(x), own(x))


class Noisy(nn.Linear):
    def forward(self, x):
        h = F.relu(super().forward(x))
        return h + 1 if self.training else h


def test_a_functional_rectifier_in_a_module_that_depends_on_its_mode_is_refused():
    with pytest.raises(UserError, match=r"0 is a Noisy, whose rectifiers torch\.fx does not see: move what depends"):
        rbue.randomize(nn.Sequential(Noisy(8, 8), nn.ReLU()), q=0.5)


def test_a_parametrized_module_that_depends_on_its_mode_is_seen_through():
    with pytest.raises(UserError, match=r"0 is a ParametrizedNoisy, whose rectifiers torch\.fx does not see"):
        rbue.randomize(nn.Sequential(spectral_norm(Noisy(8, 8)), nn.ReLU()), q=0.5)


def test_a_rectifier_of_weights_that_take_the_images_precision_is_one_of_weights():
    class Positive(nn.Linear):
        def forward(self, x):
            return F.linear(x, self.weight.to(x.dtype).relu()).relu()

    with pytest.warns(UserWarning, match="rectifiers of weights stay as they are"):
        assert sites(rbue.randomize(Positive(8, 8), q=0.5)) == [DropReLU]


def test_a_part_in_data_parallel_is_refused_with_the_way_out():
    parallel = nn.DataParallel(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
    with pytest.raises(UserError, match=r"0 is a DataParallel, whose rectifiers .* put its \.module in its place"):
        rbue.randomize(nn.Sequential(parallel, nn.ReLU()), q=0.5)


def test_a_rectifier_under_another_name_in_such_a_module_is_refused():
    class Renamed(nn.Linear):
        rectify = staticmethod(F.relu)

        def forward(self, x):
            h = self.rectify(super().forward(x))
            return h + 1 if self.training else h

    with pytest.raises(UserError, match=r"0 is a Renamed, whose rectifiers torch\.fx does not see"):
        rbue.randomize(nn.Sequential(Renamed(8, 8), nn.ReLU()), q=0.5)


class Leaky(nn.ReLU):
    def forward(self, x):
        return F.leaky_relu(x, 0.3)


class Changing(nn.ReLU):
    def forward(self, x):
        return F.leaky_relu(x, 0.3 if self.training else 0.1)


def test_what_inherits_from_torchs_rectifier_is_one_only_if_it_computes_one():
    layers = nn.Linear(8, 8), nn.ReLU()
    with pytest.warns(UserWarning, match="these activations stay as they are: 1 leaky_relu"):
        assert sites(rbue.randomize(nn.Sequential(Leaky(), *layers), q=0.5)) == [DropReLU]
    with pytest.raises(UserError, match=r"0 is a Changing, whose rectifiers torch\.fx does not see"):
        rbue.randomize(nn.Sequential(Changing(), *layers), q=0.5)


class Mixed(nn.Linear):
    """It depends on its mode, so it is not traced into. Its activation depends on the mode, too."""

    def forward(self, x):
        h = super().forward(x)
        return torch.tanh(h) + F.gelu(h) if self.training else F.gelu(h)


def test_activations_in_a_module_that_depends_on_its_mode_are_named():
    with pytest.warns(UserWarning, match=r"these activations stay as they are: 1 tanh, 1 gelu"):
        assert sites(rbue.randomize(nn.Sequential(Mixed(8, 8), nn.ReLU()), q=0.5)) == [DropReLU]


def test_a_rectifier_that_only_one_mode_has_is_refused():
    class Trained(nn.Linear):
        rectify = staticmethod(F.relu)

        def forward(self, x):
            h = super().forward(x)
            return h if self.training else self.rectify(h)

    with pytest.raises(UserError, match=r"0 is a Trained, whose rectifiers torch\.fx does not see"):
        rbue.randomize(nn.Sequential(Trained(8, 8), nn.ReLU()).train(), q=0.5)


class Biased(nn.Linear):
    """As the attention of swin_v2: weights pass a rectifier module, in code that depends on the mode."""

    def __init__(self, shared):
        super().__init__(8, 8)
        self.act, self.shared = nn.ReLU(), shared

    def forward(self, x):
        h = F.dropout(F.linear(x, self.act(self.weight)), 0.1 * self.training)
        return self.act(h) if self.shared else h


def test_rectified_weights_in_an_untraced_module_stay_and_are_named():
    with pytest.warns(UserWarning, match="rectifiers of weights stay as they are, .+ become random: _0$"):
        network = rbue.randomize(nn.Sequential(Biased(False), nn.ReLU()), q=0.5)
    assert sites(network) == [DropReLU]
    with pytest.raises(UserError, match=r"0 is a Biased, whose rectifiers torch\.fx does not see"):
        rbue.randomize(nn.Sequential(Biased(True), nn.ReLU()), q=0.5)


def test_a_rectifier_of_what_images_were_written_into_is_one_of_images():
    class Writing(nn.Linear):
        def forward(self, x):
            h = self.bias.new_zeros(9, 8)
            h.add_(super().forward(x))
            return h.relu()

    assert sites(rbue.randomize(Writing(8, 8), q=0.5)) == [DropReLU]


def test_activations_in_nested_modules_count_once_and_bounds_away_from_zero_do_not():
    class Outer(Mixed):
        def __init__(self):
            super().__init__(8, 8)
            self.inner = Mixed(8, 8)

        def forward(self, x):
            v = x.square().mean(1, keepdim=True).clamp(min=1e-5)
            return self.inner(x / v.sqrt()) * (1.0 if self.training else 2.0)

    with pytest.warns(UserWarning, match=r"stay as they are: 1 tanh, 1 gelu$"):
        rbue.randomize(nn.Sequential(Outer(), nn.ReLU()), q=0.5)


def test_a_parametrized_rectifier_is_one():
    relu = nn.ReLU()
    relu.slope = nn.Parameter(torch.ones(()))
    nn.utils.parametrize.register_parametrization(relu, "slope", nn.Identity())
    assert sites(rbue.randomize(nn.Sequential(nn.Linear(8, 8), relu, nn.ReLU()), q=0.5)) == [DropReLU] * 2


def test_rectified_weights_stay_and_are_named():
    class Positive(nn.Linear):
        def forward(self, x):
            return F.linear(x, self.weight.relu(), self.bias).relu()

    own, x = nn.Sequential(Positive(8, 8), nn.Linear(8, 3)), torch.randn(4, 8)
    with pytest.warns(UserWarning, match="rectifiers of weights stay as they are, .+ become random: relu$"):
        network = rbue.randomize(own, q=0.5)
    assert sites(network) == [DropReLU]
    assert torch.equal(rbue.randomize(own, q=1.0)(x), own(x))


def test_hooks_that_are_lost_are_named():
    network = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    network[1].register_forward_hook(lambda *_: None)
    with pytest.warns(UserWarning, match="hooks have no effect .*: ReLU"):
        rbue.randomize(network, q=0.5)


def test_hooks_of_modules_that_are_traced_into_are_named():
    class Block(nn.Sequential):
        pass

    calls, network = [], nn.Sequential(Block(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 2))
    for module in (network[0], network[1]):
        module.register_forward_hook(lambda module, *_: calls.append(type(module).__name__))
    for change in (lambda: rbue.randomize(network, q=0.5), lambda: rbue.add_dropout(network, Dropout(0.5), "last")):
        with pytest.warns(UserWarning, match="the new network does not call the hooks of Block; what they did"):
            random = change()
        calls.clear()
        random(torch.zeros(2, 8))
        assert calls == ["Linear"]


@pytest.mark.filterwarnings("ignore:For backward hooks to be called")
@pytest.mark.parametrize("add", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_backward_hooks_that_are_lost_are_named(add):
    network = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    getattr(network, add)(lambda *_: None)
    with pytest.warns(UserWarning, match="hooks have no effect .*: Sequential"):
        rbue.randomize(network, q=0.5)


def test_other_activations_in_modules_that_are_not_traced_into_are_counted():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.Hardswish()

        def forward(self, x):
            return self.act(x) * 2 if self.training else self.act(x)

    with pytest.warns(UserWarning, match="stay as they are: 3 Hardswish"):
        rbue.randomize(nn.Sequential(Hidden(), Hidden(), nn.ReLU(), nn.Hardswish()), q=0.5)


@pytest.mark.filterwarnings("error")
def test_hooks_of_a_module_that_is_never_called_are_not_named():
    class Auxiliary(nn.Sequential):
        def forward(self, x):
            return self[1](self[0](x))

    network = Auxiliary(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    network[2].register_forward_hook(lambda *_: None)
    assert len(sites(rbue.randomize(network, q=0.5))) == 1


def test_a_rectifier_deep_inside_a_module_that_depends_on_its_mode_is_replaced_there():
    class Deep(NormAct):
        def __init__(self, width):
            super().__init__(width)
            self.act = nn.Sequential(nn.Linear(width, width), nn.Sequential(nn.ReLU()))

    own, x = nn.Sequential(nn.Linear(8, 8), Deep(8)).eval(), torch.randn(4, 8)
    assert torch.equal(rbue.randomize(own, q=1.0).eval()(x), own(x))
    assert sites(rbue.randomize(own, q=0.5)) == [DropReLU] and isinstance(own[1].act[1][0], nn.ReLU)


class Rectified(nn.Linear):
    def forward(self, x):
        return nn.functional.relu(super().forward(x))


@pytest.mark.parametrize("norm", [spectral_norm, weight_norm])
def test_rectifiers_inside_a_parametrized_module_are_found(norm):
    """torch gives such a module a class of its own, which looks like one of torch's."""
    torch.manual_seed(0)
    own, x = nn.Sequential(norm(Rectified(8, 8)), nn.Linear(8, 3)).eval(), torch.randn(4, 8)
    assert torch.allclose(rbue.randomize(own, q=1.0).eval()(x), own(x))
    random = rbue.randomize(own, q=0.5)
    assert sum(isinstance(m, rbue.DropReLU) for m in random.modules()) == 1
    assert rbue.predict(random, x, samples=4).mutual_information.max() > 0


# --- memory that is shared --------------------------------------------------------------------------------------------

SHARING = {
    "view": lambda h: h.view(-1, 2, 4),
    "view_as": lambda h: h.view_as(h),
    "reshape": lambda h: torch.reshape(h, (-1, 2, 4)),
    "reshape_as": lambda h: h.reshape_as(h),
    "flatten": lambda h: torch.flatten(h),
    "ravel": lambda h: h.ravel(),
    "unflatten": lambda h: h.unflatten(1, (2, 4)),
    "squeeze": lambda h: h.squeeze(),
    "unsqueeze": lambda h: h.unsqueeze(0),
    "transpose": lambda h: h.transpose(0, 1),
    "permute": lambda h: torch.permute(h, (1, 0)),
    "swapaxes": lambda h: h.swapaxes(0, 1),
    "swapdims": lambda h: h.swapdims(0, 1),
    "movedim": lambda h: h.movedim(0, 1),
    "moveaxis": lambda h: h.moveaxis(0, 1),
    "t": lambda h: h.t(),
    "T": lambda h: h.T,
    "mT": lambda h: h.mT,
    "H": lambda h: h.H,
    "mH": lambda h: h.mH,
    "adjoint": lambda h: h.adjoint(),
    "chunk": lambda h: h.chunk(2, 1)[0],
    "split": lambda h: torch.split(h, 4, 1)[0],
    "split_with_sizes": lambda h: h.split_with_sizes((3, 5), 1)[0],
    "tensor_split": lambda h: h.tensor_split(2, 1)[0],
    "hsplit": lambda h: h.hsplit(2)[0],
    "vsplit": lambda h: h.vsplit(2)[0],
    "dsplit": lambda h: h.view(-1, 2, 4).dsplit(2)[0],
    "unbind": lambda h: torch.unbind(h, 1)[0],
    "getitem": lambda h: h[:, 2:],
    "__getitem__": lambda h: h.__getitem__(0),
    "select": lambda h: h.select(1, 0),
    "narrow": lambda h: h.narrow(1, 0, 4),
    "diagonal": lambda h: h.diagonal(),
    "as_strided": lambda h: h.as_strided((4, 2), (8, 1)),
    "unfold": lambda h: h.unfold(1, 2, 2),
    "expand": lambda h: h.expand(4, 8),
    "expand_as": lambda h: h.expand_as(h),
    "broadcast_to": lambda h: torch.broadcast_to(h, (4, 8)),
    "detach": lambda h: h.detach(),
    "data": lambda h: h.data,
    "real": lambda h: h.real,
    "conj": lambda h: h.conj(),
    "view_as_real": lambda h: torch.view_as_real(torch.view_as_complex(h.view(-1, 4, 2))),
    "contiguous": lambda h: h.contiguous(),
    "to": lambda h: h.to(torch.float32),
    "type_as": lambda h: h.type_as(h),
    "float": lambda h: h.float(),
    "cpu": lambda h: h.cpu(),
    "aten": lambda h: torch.ops.aten.view.default(h, [-1, 2, 4]),
    "add_": lambda h: h.add_(0.0),
    "dropout": nn.Dropout(),
    "F.dropout": lambda h: F.dropout(h, training=False),
    "alias": lambda h: torch.ops.aten.alias(h),
    "slice": lambda h: torch.ops.aten.slice(h, 1, 0, 4),
    "positive": lambda h: h.positive(),
    "pos": lambda h: +h,
    "resolve_conj": lambda h: h.resolve_conj(),
    "resolve_neg": lambda h: h.resolve_neg(),
    "atleast_1d": lambda h: torch.atleast_1d(h),
    "atleast_2d": lambda h: torch.atleast_2d(h),
    "atleast_3d": lambda h: torch.atleast_3d(h),
    "broadcast_tensors": lambda h: torch.broadcast_tensors(h, h)[0],
}


class Sharing(nn.Linear):
    """A rectifier works in place on `part(h)`, and `whole(h)` is read after it."""

    def __init__(self, part, whole=lambda h: h):
        super().__init__(8, 8)
        self.part, self.whole = part, whole

    def forward(self, x):
        h = super().forward(x)
        F.relu_(self.part(h))
        return self.whole(h)


@pytest.mark.parametrize("name", SHARING)
@torch.no_grad()
def test_a_rectifier_in_place_on_shared_memory_is_refused_where_the_whole_is_read_after(name):
    own, x = Sharing(SHARING[name]).eval(), torch.ones(4, 8)
    own.weight.fill_(-1)  # so every element of h is negative
    assert not torch.equal(own(x), F.linear(x, own.weight, own.bias))  # the rectifier writes into h
    with pytest.raises(UserError, match=r"in-place rectifier overwrites memory that .* reads later"):
        rbue.randomize(own, q=1.0)


class Skipped(nn.Module):
    """A module that depends on its mode: stochastic depth, of which the output is a view of the input in eval mode, or
    new memory if it is scaled."""

    def __init__(self, scale=None):
        super().__init__()
        self.scale = scale

    def forward(self, h):
        if self.training:
            return h * torch.rand(len(h), 1).round()
        return h.view(-1, 2, 4).flatten(1) if self.scale is None else h * self.scale


@torch.no_grad()
def test_a_closed_module_that_returns_its_input_shares_memory_and_one_that_computes_does_not():
    with pytest.raises(UserError, match=r"in-place rectifier overwrites memory that .* reads later"):
        rbue.randomize(Sharing(Skipped()), q=1.0)
    own, x = Sharing(Skipped(2.0)).eval(), torch.randn(4, 8)
    assert torch.equal(rbue.randomize(own, q=1.0)(x), own(x))


ALWAYS_ON = {
    "keyword": lambda h: F.dropout(h, 0.2, training=True),
    "position": lambda h: F.dropout(h, 0.2, True),
    "default": lambda h: F.dropout(h),
    "alpha": lambda h: F.alpha_dropout(h, 0.2, True),
}


@pytest.mark.parametrize("name", ALWAYS_ON)
@torch.no_grad()
def test_dropout_that_is_always_on_shares_no_memory(name):
    own, x = Sharing(ALWAYS_ON[name]), torch.randn(4, 8)
    for mode in (True, False):
        assert torch.equal(rbue.randomize(own.train(mode), q=1.0)(x), own(x))


@pytest.mark.parametrize(
    "part",
    [
        lambda h: F.dropout(h, 0.0),
        lambda h: F.dropout(h, 0.2, True, True),
        F.alpha_dropout,
        lambda h: torch.feature_dropout(h, 0.2, False),
    ],
)
def test_functional_dropout_that_returns_its_input_shares_memory(part):
    with pytest.raises(UserError, match=r"in-place rectifier overwrites memory that .* reads later"):
        rbue.randomize(Sharing(part), q=1.0)


def test_a_view_that_is_read_as_an_attribute_counts_and_a_shape_does_not():
    with pytest.raises(UserError, match=r"in-place rectifier overwrites memory that .* reads later"):
        rbue.randomize(Sharing(lambda h: h.view(-1, 2, 4), lambda h: h.T), q=1.0)
    own, x = Sharing(lambda h: h.view(-1, 2, 4), lambda h: torch.ones(h.shape)), torch.randn(4, 8)
    assert torch.equal(rbue.randomize(own, q=1.0)(x), own(x))


def test_a_size_that_two_views_use_is_no_shared_memory():
    class Sized(nn.Linear):
        def forward(self, x):
            images = x.shape[0]
            h = F.relu_(super().forward(x).view(images, 2, 4))
            return h.view(images, 8)

    own, x = Sized(8, 8), torch.randn(4, 8)
    assert torch.equal(rbue.randomize(own, q=1.0)(x), own(x))


class Residual(nn.Module):
    """A network whose skip connection reads the input of a block that is not traced into."""

    def __init__(self, inplace):
        super().__init__()
        self.first, self.block, self.last = nn.Linear(8, 8), PreActivated(inplace), nn.Linear(8, 3)

    def forward(self, x):
        x = self.first(x)
        return self.last(x + self.block(x))


class PreActivated(nn.Module):
    """Stochastic depth after a rectifier of the block's input."""

    def __init__(self, inplace):
        super().__init__()
        self.relu, self.layer = nn.ReLU(inplace), nn.Linear(8, 8)

    def forward(self, x):
        h = self.layer(self.relu(x))
        return h * (torch.rand_like(h[:, :1]) > 0.2) if self.training else h


def test_a_rectifier_that_overwrites_the_input_of_a_block_which_is_not_traced_into_is_refused():
    with pytest.raises(UserError, match="block overwrites its input by an in-place rectifier: use inplace=False there"):
        rbue.randomize(Residual(inplace=True), q=0.5)
    own, x = Residual(inplace=False).eval(), torch.randn(4, 8)
    assert torch.equal(rbue.randomize(own, q=1.0)(x), own(x))


def test_such_a_rectifier_is_replaced_if_nothing_reads_the_input_later():
    own, x = nn.Sequential(nn.Linear(8, 8), PreActivated(inplace=True), nn.Linear(8, 3)).eval(), torch.randn(4, 8)
    assert torch.equal(rbue.randomize(own, q=1.0)(x), own(x))
