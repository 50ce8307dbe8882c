import copy
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.utils._pytree import tree_leaves
from users_networks import Users, sites

import rbue
from rbue import noise, surgery
from rbue.errors import UserError
from rbue.layers import Dropout, DropReLU, LearnedGaussian, RReLU, StochasticLayer
from rbue.networks import ARCHS
from rbue.surgery.calls import is_stochastic
from rbue.surgery.dropout import PLACEMENTS

RECTIFIERS = {"vgg13": 10, "resnet18": 17, "densenet121": 120, "small": 3}
BLOCKS = {"vgg13": 1, "resnet18": 8, "densenet121": 58, "small": 1}


@pytest.mark.parametrize("arch", ARCHS)
def test_every_rectifier_call_of_the_suites_networks_is_its_own_site(arch):
    network = ARCHS[arch](10)
    assert len(sites(rbue.randomize(network, q=0.9))) == RECTIFIERS[arch]
    counts = {p: len(sites(surgery.add_dropout(network, Dropout(0.5), p))) for p in PLACEMENTS}
    assert counts["last"] == 1
    assert counts["relu"] == RECTIFIERS[arch]
    assert counts["block"] == BLOCKS[arch]


@pytest.mark.parametrize(
    "change", [lambda n: rbue.randomize(n, q=1.0), lambda n: surgery.add_dropout(n, Dropout(0), "last")]
)
def test_the_new_network_is_in_the_mode_of_the_users_own(change):
    class Dropping(Users):
        def forward(self, x):
            return self.second(F.dropout(self.relu(self.first(x)), 0.5, self.training))

    network, x = Dropping().eval(), torch.randn(20, 6)
    assert torch.equal(change(network)(x), network(x))
    for mode in (True, False):
        assert {m.training for m in change(network.train(mode)).modules()} == {mode}


def test_new_layers_are_on_the_networks_device():
    network = Users().to("meta")
    for random in (rbue.randomize(network, q=0.5), surgery.add_dropout(network, Dropout(0.5), "last")):
        assert {buffer.device.type for buffer in random.buffers()} == {"meta"}


def test_layers_of_one_number_are_numbered_anew():
    pair = surgery.wire(nn.Sequential(DropReLU(0.5), DropReLU(0.5)))
    twice = surgery.wire_if_needed(nn.Sequential(pair[0], copy.copy(pair[0])))  # both would draw the same noise
    assert [layer.site for layer in twice] == [0, 1]


# --- dropout ----------------------------------------------------------------------------------------------------------


def test_dropout_before_a_linear_layer_needs_one():
    for network, here in ((nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU()), "it is _0"), (nn.ReLU(), "is none")):
        with pytest.raises(UserError, match=f"needs a linear layer as the last one with weights, but here {here}: put"):
            surgery.add_dropout(network, Dropout(0.5), "last")


@pytest.mark.parametrize("placement", ["relu", "conv", "nowhere"])
def test_dropout_that_would_be_nowhere_is_refused(placement):
    plain = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 3))
    with pytest.raises(UserError, match=f"placement={placement}"):
        rbue.add_dropout(plain, Dropout(0.5), placement)
    assert sites(rbue.add_dropout(plain, Dropout(0.5), "last")) == [Dropout]


def test_dropout_after_rectifiers_that_the_tracer_does_not_see_is_refused():
    closed = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 8), nn.ReLU())
    with pytest.raises(UserError, match="0 is a TransformerEncoderLayer, whose rectifiers"):
        rbue.add_dropout(closed, Dropout(0.5), "relu")
    assert sites(rbue.add_dropout(nn.Sequential(*closed, nn.Linear(8, 3)), Dropout(0.5), "last")) == [Dropout]


@pytest.mark.parametrize("position", ["all", "last"])
@pytest.mark.parametrize("placement", ["relu", "block"])
def test_dropout_after_rectifiers_that_are_already_random_is_refused_with_the_way_out(placement, position):
    plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3))
    way_out = re.escape(f"add dropout first, as in rbue.randomize(rbue.add_dropout(network, layer, '{placement}')")
    with pytest.raises(UserError, match=way_out):
        rbue.add_dropout(rbue.randomize(plain, q=0.9, position=position), Dropout(0.5), placement)


def test_dropout_beside_a_layer_of_the_users_own():
    class Own(StochasticLayer):
        def forward(self, x):
            return x

    plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    inserted = rbue.add_dropout(plain, Own(), "relu")
    assert sites(rbue.add_dropout(inserted, Dropout(0.5), "relu")) == [Dropout]
    with pytest.raises(UserError, match="rectifiers of the network are random already"):
        rbue.add_dropout(rbue.randomize(plain, Own()), Dropout(0.5), "block")


def test_dropout_and_random_rectifiers_combine():
    plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    both = rbue.randomize(rbue.add_dropout(plain, Dropout(0.5), "relu"), q=0.9)
    assert [n.target for n in both.graph.nodes if n.op == "call_module"] == ["0", "droprelu_1", "dropout_0", "2"]


class Numbered(nn.Module):
    """Names that new layers would have."""

    def __init__(self):
        super().__init__()
        self.droprelu_0, self.dropout_0, self.last = nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 3)
        self.rrelu_0 = nn.Parameter(torch.ones(8))

    def forward(self, x):
        return self.last(F.relu(self.dropout_0(self.droprelu_0(x * self.rrelu_0))))


@pytest.mark.parametrize(
    "change",
    [
        lambda own: rbue.randomize(own, q=1.0),
        lambda own: rbue.randomize(own, RReLU(1e-9, 1e-9)),
        lambda own: rbue.add_dropout(own, Dropout(0), "last"),
    ],
    ids=["DropReLU", "RReLU", "Dropout"],
)
def test_a_new_layer_takes_no_name_of_the_users(change):
    own, x = Numbered().eval(), torch.randn(4, 8)
    random = change(own)
    torch.testing.assert_close(random(x), own(x))
    assert random.dropout_0 is own.dropout_0 and list(random.state_dict()) == list(own.state_dict())


def test_dropout_is_placed_before_a_layer_that_gets_its_input_by_name():
    class Named(nn.Sequential):
        def forward(self, x):
            return self[1](input=self[0](x))

    network = rbue.add_dropout(Named(nn.Linear(8, 8), nn.Linear(8, 3)), Dropout(1), "last")
    assert torch.equal(network(torch.randn(2, 8)), network.get_parameter("1.bias").expand(2, 3))


class Heads(nn.Module):
    """A hidden linear layer, and a head that gets the rectified features."""

    def __init__(self, head):
        super().__init__()
        self.hidden, self.other, self.head = nn.Linear(8, 8), nn.Linear(8, 3), head
        self.special, self.fixed = LinearOfUser(8, 3, bias=False), nn.Parameter(torch.randn(3, 5))
        self.changing, self.noisy = Changing(nn.Linear(8, 3)), NoisyHead()

    def forward(self, x):
        return self.head(self, self.hidden(x).relu())


class LinearOfUser(nn.Linear):
    pass


class NoisyHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 3))

    def forward(self, x):
        return x @ (self.weight + 0.1 if self.training else self.weight)


class Changing(nn.Sequential):
    """It depends on its mode, so it is not traced into."""

    def forward(self, x):
        return super().forward(x) * (1.0 if self.training else 2.0)


def added_in_place(own, h):
    out = h.new_zeros(4, 3)
    out.add_(own.other(h))
    return out - own.other.bias


WITHOUT_DROPPED = {  # heads that give zeros if all that their last linear layer gets is dropped
    "cosine": lambda own, h: F.linear(F.normalize(h), F.normalize(own.other.weight)),
    "product": lambda own, h: h @ own.other.weight.T,
    "function": lambda own, h: F.linear(input=h, weight=own.other.weight),
    "subclass": lambda own, h: own.special(h),
    "einsum": lambda own, h: torch.einsum("bi,oi->bo", h, own.other.weight),
    "added in place": added_in_place,
    "features and logits": lambda own, h: (h * 0, own.special(h)),
    "logits and features": lambda own, h: {"logits": own.special(h), "features": h * 0},
    "attention over images": lambda own, h: (h @ h.T).softmax(1) @ own.special(h),
    "of the images' type": lambda own, h: F.linear(h, own.other.weight.type_as(h)),
    "of the images' precision": lambda own, h: F.linear(h, own.other.weight.to(h.dtype)),
    "repeated per image": lambda own, h: (own.fixed.T[:, :3].expand(h.shape[0], -1, -1) @ h[:, :3, None]).flatten(1),
    "second product": lambda own, h: (own.other(h) + 1) @ own.fixed,
}


@pytest.mark.parametrize("name", WITHOUT_DROPPED)
def test_dropout_comes_before_the_last_linear_layer_however_it_is_written(name):
    own, x = Heads(WITHOUT_DROPPED[name]), torch.randn(4, 8)
    same, dropped = (tree_leaves(rbue.add_dropout(own, Dropout(p), "last")(x)) for p in (0, 1))
    assert all(torch.allclose(one, other) for one, other in zip(same, tree_leaves(own(x)), strict=True))
    assert any(out.abs().sum() > 0.1 for out in same)
    assert all(torch.allclose(out, torch.zeros_like(out), atol=1e-6) for out in dropped)


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (lambda own, h: own.changing(h), "but here it is changing: put"),
        (lambda own, h: own.noisy(h), "but here it is noisy: put"),
        (lambda own, h: F.conv1d(h[:, None], own.fixed[:, None]).mean(2), "but here it is conv1d: put"),
        (lambda own, h: (own.other(h), own.special(h)), "needs one last layer, but there are 2: wrap the network"),
    ],
    ids=["untraced", "untraced with weights", "convolution", "two heads"],
)
def test_dropout_is_refused_if_the_last_layer_is_not_linear_or_not_the_only_one(head, says):
    with pytest.raises(UserError, match=says):
        rbue.add_dropout(Heads(head), Dropout(0.5), "last")


def test_dropout_is_not_placed_inside_an_attention_over_channels_if_the_head_is_a_convolution():
    class Squeezed(nn.Sequential):
        def forward(self, x):
            h = self[0](x).relu()
            return self[2](h * self[1](h.mean((2, 3))).sigmoid()[..., None, None]).mean((2, 3))

    network = Squeezed(nn.Conv2d(3, 8, 3), nn.Linear(8, 8), nn.Conv2d(8, 5, 1))
    with pytest.raises(UserError, match=r"but here it is _2: put rbue\.Dropout"):
        rbue.add_dropout(network, Dropout(0.5), "last")


@pytest.mark.parametrize("placement", ["relu", "block"])
def test_dropout_does_not_follow_a_rectifier_of_weights(placement):
    class Positive(nn.Linear):
        def forward(self, x):
            return F.linear(x, self.weight.relu()).relu()

    network = rbue.add_dropout(nn.Sequential(Positive(8, 8), nn.Linear(8, 3)), Dropout(0.5), placement)
    assert sites(network) == [Dropout] and rbue.predict(network, torch.randn(9, 8), 2).mean.shape == (9, 3)


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.ConvTranspose1d])
def test_dropout_after_convolutions_of_any_kind(kind):
    network = nn.Sequential(kind(3, 4, 3), nn.ReLU(), kind(4, 4, 3))
    assert sites(rbue.add_dropout(network, Dropout(0.5), "conv")) == [Dropout, Dropout]


def test_dropout_adds_nothing_to_the_stored_weights():
    plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    assert rbue.add_dropout(plain, Dropout(0.5), "relu").state_dict().keys() == plain.state_dict().keys()


def test_dropout_of_a_network_drops_where_it_is_placed():
    network = surgery.add_dropout(ARCHS["resnet18"](10), Dropout(1.0), "last").eval()
    assert torch.equal(network(torch.randn(2, 3, 32, 32)), network.fc.bias.expand(2, -1))  # nothing else reaches it


# --- random weights ---------------------------------------------------------------------------------------------------


def test_bayes_doubles_the_weights_of_convolutions_and_linear_layers_alone():
    plain = ARCHS["resnet18"](10)
    random = surgery.bayes(plain, LearnedGaussian, sigma=0.01, prior=1.0)
    assert sum(p.numel() for p in random.parameters()) == 22_338_324
    assert sum(p.numel() for p in plain.parameters()) == 11_173_962
    assert len(surgery.posteriors(random)) == noise.of(random).sites


def test_layers_that_share_a_weight_share_its_draws():
    plain = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    plain[1].weight = plain[0].weight
    random = surgery.bayes(plain, LearnedGaussian, sigma=0.5, prior=1.0)
    alone = surgery.bayes(plain[:1], LearnedGaussian, sigma=0.5, prior=1.0)
    assert len(surgery.posteriors(random)) == 1 and torch.equal(surgery.kl(random), surgery.kl(alone))
    with noise.counted(random, 0, 0, torch.arange(1)):
        assert torch.equal(random[0].weight, random[1].weight) and not torch.equal(random[0].weight, plain[0].weight)


def normed(norm):
    """A trained network with a parametrization of torch's."""
    torch.manual_seed(0)
    network = nn.Sequential(norm(nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 3))
    for _ in range(3):
        network(torch.randn(4, 8))
    return network.eval()


@pytest.mark.parametrize("norm", [spectral_norm, weight_norm])
def test_weights_that_are_computed_from_others_cannot_be_gaussian(norm):
    own, x = normed(norm), torch.randn(4, 8)
    expected = own(x)
    with pytest.raises(UserError, match="the weights of 0 are computed, as by weight_norm: only plain weights"):
        surgery.bayes(own, LearnedGaussian, sigma=0.5, prior=1.0)
    assert torch.equal(own(x), expected)


def test_a_network_without_weights_to_make_random_is_refused():
    with pytest.raises(UserError, match="the network has no convolution or linear layer to train"):
        surgery.bayes(nn.Sequential(nn.Linear(8, 3).requires_grad_(False)), LearnedGaussian, sigma=0.5, prior=1.0)


# --- prediction -------------------------------------------------------------------------------------------------------


def test_a_layer_by_itself_has_a_deterministic_form():
    assert rbue.deterministic(DropReLU(0.75))(torch.tensor([-4.0, 2.0])).tolist() == [-1.0, 2.0]


def test_the_deterministic_network_has_no_noise_where_a_layer_is_used_twice():
    layer = rbue.DropReLU(0.5)
    network = nn.Sequential(nn.Linear(8, 16), layer, nn.Linear(16, 16), layer, nn.Linear(16, 4))
    twin, x = rbue.deterministic(network), torch.randn(5, 8)
    assert torch.equal(twin(x), twin(x)) and isinstance(twin[3], nn.LeakyReLU)
    assert network[1] is network[3] is layer


def test_the_deterministic_network_is_in_the_mode_of_the_random_one():
    class Own(RReLU):
        def deterministic(self):
            return nn.RReLU(self.l, self.u)  # random in training mode

    network = rbue.randomize(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)), Own())
    assert [rbue.deterministic(network.train(mode)).own_0.training for mode in (True, False)] == [True, False]


@pytest.mark.parametrize("norm", [spectral_norm, weight_norm])
def test_the_deterministic_network_keeps_other_parametrizations(norm):
    own, x = normed(norm), torch.randn(4, 8)
    twin = surgery.deterministic(rbue.randomize(own, q=1.0)).eval()
    assert torch.equal(twin(x), own(x)) and torch.equal(copy.deepcopy(twin)(x), own(x))
    assert twin.state_dict().keys() == own.state_dict().keys()
    for parameter in twin.parameters():
        parameter.data.add_(0.1)
    own.load_state_dict(twin.state_dict())
    assert torch.equal(twin(x), own(x))  # the parametrization still computes the weight from its parameters


@pytest.mark.parametrize("arch", ["resnet18", "densenet121", "small"])
@pytest.mark.parametrize("position", ["all", "last"])
def test_a_split_network_computes_the_same(arch, position):
    network = rbue.randomize(ARCHS[arch](10), q=0.5, position=position).eval()
    once, every = surgery.split_at_noise(network)
    x, rows = torch.randn(2, 3, 32, 32), torch.arange(2)
    with torch.no_grad(), noise.counted(network, 0, 0, rows):
        assert torch.equal(every(*once(x)), network(x))
    assert not sites(once) or not [n for n in once.graph.nodes if is_stochastic(once, n)]


def test_a_split_network_asks_for_shapes_anew():
    class Flat(nn.Module):
        def forward(self, x):
            return F.relu(x).view(x.size(0), -1) + x.view(x.shape[0], -1)

    _, every = surgery.split_at_noise(rbue.randomize(Flat(), q=1.0))
    x = torch.randn(2, 3, 4)
    assert every(x.repeat(5, 1, 1)).shape == (10, 12)


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.weights = nn.Linear(6, 8), nn.Linear(8, 5), nn.Parameter(torch.ones(6))

    def forward(self, x):
        return self.last(F.relu(self.first(x * self.weights)))


@pytest.mark.parametrize("change", [{"first": nn.Linear(6, 8)}, {"weights": nn.Parameter(torch.full((6,), 3.0))}])
def test_a_network_is_split_anew_if_it_was_changed_and_only_then(change):
    network, x, rows = rbue.randomize(Weighted(), q=0.5), torch.randn(4, 6), torch.arange(4)
    before = surgery.parts_of(network, ())
    assert surgery.parts_of(network, ()) is before
    for name, value in change.items():
        setattr(network, name, value)
    once, every = surgery.parts_of(network, ())
    with noise.counted(network, 0, 0, rows):
        assert torch.equal(every(*once(x)), network(x))


def test_what_is_updated_in_place_by_noise_keeps_its_spread():
    class Updated(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x):
            h = self.first(x)
            h.add_(h.relu())
            return self.last(h)

    network, x = rbue.randomize(Updated(), q=0.5), torch.randn(4, 8)
    once, every = surgery.split_at_noise(network)
    keys = torch.arange(4)
    with noise.counted(network, 0, 0, keys):
        whole = network(x)
    with noise.counted(network, 0, 0, keys):
        assert torch.equal(every(*once(x)), whole)
    assert rbue.predict(network, x, samples=20, keep_samples=True).samples.std(0).min() > 0


UPDATES = [
    lambda v: v.mul_(2),
    lambda v: F.hardtanh(input=v, inplace=True),
    lambda v: v.__ipow__(2),
    lambda v: torch.mul(v, 2, out=v),
]


@pytest.mark.parametrize("update", UPDATES)
def test_a_view_that_is_overwritten_after_the_noise_is_not_overwritten_before_it(update):
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x):
            h = self.first(x)
            return self.last(h.relu() + update(h.view(-1, 8)))

    network, x, rows = rbue.randomize(Branches(), q=0.5), 3 * torch.randn(4, 8), torch.arange(4)
    once, every = surgery.split_at_noise(network)
    with torch.no_grad(), noise.counted(network, 0, 0, rows):
        assert torch.equal(every(*once(x)), network(x))


def test_dropout_after_an_in_place_rectifier_whose_result_is_dropped_is_read():
    class Block(nn.Sequential):
        def forward(self, x):
            x = self[0](x)
            self[1](x)
            return self[2](x)

    network = nn.Sequential(Block(nn.Linear(8, 32), nn.ReLU(inplace=True), nn.Linear(32, 3)))
    found = rbue.predict(
        rbue.add_dropout(network, Dropout(0.5), "relu"), torch.rand(4, 8), samples=3, keep_samples=True
    )
    assert (found.samples.std(0) > 1e-6).all()
