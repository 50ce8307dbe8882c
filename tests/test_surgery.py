import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import rbue
from rbue import noise, surgery
from rbue.errors import UserError
from rbue.layers import Dropout, DropReLU, LearnedGaussian, RReLU
from rbue.networks import ARCHS
from rbue.surgery.calls import is_stochastic
from rbue.surgery.dropout import PLACEMENTS


class Users(nn.Module):
    """A user's own network: one shared rectifier module, one functional, one tensor method."""

    def __init__(self):
        super().__init__()
        self.relu, self.first, self.second = nn.ReLU(inplace=True), nn.Linear(6, 8), nn.Linear(8, 8)

    def forward(self, x):
        x = self.relu(self.first(x))
        x = self.relu(self.second(x)) + F.relu(x)
        return x.relu()


class InPlace(nn.Module):
    """The input that an in-place rectifier overwrote is used again, as in pre-activation residual blocks."""

    def __init__(self):
        super().__init__()
        self.layer, self.relu = nn.Linear(6, 6), nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.layer(x)
        return self.relu(x) + x


def sites(network):
    return [type(m) for m in network.modules() if isinstance(m, (DropReLU, RReLU, Dropout))]


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
        ({"layer": 0.9}, r"0\.9 is not a stochastic layer: use rbue\.DropReLU\(q\)"),
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


@pytest.mark.parametrize("error", [AssertionError(), NameError("no module"), KeyError("x")])
def test_whatever_tracing_fails_with_is_a_sentence(error):
    class Network(nn.Module):
        def forward(self, x):
            raise error

    with pytest.raises(UserError, match="Network cannot be traced"):
        rbue.randomize(Network(), q=0.9)


class Optional(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x=None, mask=None, scale=1.0, flag=False, sizes=(2, 4)):
        x = x if mask is None else x * mask
        return self.layer((x * scale * sizes[0]).relu()) if not flag else x


def test_arguments_that_default_to_none_or_a_bool_have_it_and_others_stay(tmp_path):
    own, x = Optional().eval(), torch.randn(4, 8)
    net = rbue.randomize(own, q=1.0)
    assert torch.equal(net(x), own(x)) and torch.equal(net(x, scale=2.0), own(x, scale=2.0))
    torch.save(net, tmp_path / "network.pt")
    again = torch.load(tmp_path / "network.pt", weights_only=False)
    assert torch.equal(again(x), own(x)) and torch.equal(surgery.deterministic(again)(x), own(x))
    assert sites(rbue.randomize(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), q=0.5)) == [DropReLU]  # nothing is left over


class Hidden(nn.Module):
    """A module that checks its mode and has no children; its rectifier is not visible in its code."""

    def __init__(self):
        super().__init__()
        self.rectify, self.weight = F.relu, nn.Parameter(torch.randn(8, 8))

    def forward(self, x):
        return F.dropout(self.rectify(x @ self.weight), 0.1, self.training)


def test_modules_that_ask_for_their_mode_are_opened_for_their_rectifiers():
    assert len(sites(rbue.randomize(nn.Sequential(Hidden(), Hidden(), nn.ReLU()), q=0.5))) == 3


def test_dropout_before_a_linear_layer_needs_one():
    with pytest.raises(UserError, match=r"this placement needs an nn\.Linear, but the network has none"):
        surgery.add_dropout(nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Flatten()), Dropout(0.5), "last")


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


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("wrap", "says"),
    [
        (nn.DataParallel, r"pass its \.module, and wrap the new network"),
        (torch.compile, "pass the network as it was before torch.compile"),
        (torch.jit.script, "pass the network as it was before torch.jit"),
    ],
)
def test_a_wrapped_network_is_refused_with_the_way_out(wrap, says):
    with pytest.raises(UserError, match=says):
        rbue.randomize(wrap(nn.Sequential(nn.Linear(4, 4), nn.ReLU())), q=0.9)


def test_a_layer_by_itself_has_a_deterministic_form():
    assert rbue.deterministic(DropReLU(0.75))(torch.tensor([-4.0, 2.0])).tolist() == [-1.0, 2.0]


def test_the_deterministic_network_has_no_noise_where_a_layer_is_used_twice():
    layer = rbue.DropReLU(0.5)
    network = nn.Sequential(nn.Linear(8, 16), layer, nn.Linear(16, 16), layer, nn.Linear(16, 4))
    twin, x = rbue.deterministic(network), torch.randn(5, 8)
    assert torch.equal(twin(x), twin(x)) and isinstance(twin[3], nn.LeakyReLU)
    assert network[1] is network[3] is layer


RECTIFIERS = {"vgg13": 10, "resnet18": 17, "densenet121": 120, "small": 3}
BLOCKS = {"vgg13": 1, "resnet18": 8, "densenet121": 58, "small": 1}


@pytest.mark.parametrize(("arch", "elements"), [("vgg13", 249_856), ("resnet18", 557_056), ("densenet121", 4_853_760)])
def test_rectifiers_see_maps_of_the_size_that_cifar_networks_have(arch, elements):
    """A stem that halves the image, as for ImageNet, has the same number of parameters."""
    network, seen = rbue.randomize(ARCHS[arch](10), q=0.9).eval(), []
    for site in (m for m in network.modules() if isinstance(m, DropReLU)):
        site.register_forward_hook(lambda _, __, output: seen.append(output.numel()))
    with torch.no_grad():
        network(torch.zeros(1, 3, 32, 32))
    assert sum(seen) == elements


@pytest.mark.parametrize("arch", ARCHS)
def test_every_rectifier_call_of_the_suites_networks_is_its_own_site(arch):
    network = ARCHS[arch](10)
    assert len(sites(rbue.randomize(network, q=0.9))) == RECTIFIERS[arch]
    counts = {p: len(sites(surgery.add_dropout(network, Dropout(0.5), p))) for p in PLACEMENTS}
    assert counts["last"] == 1
    assert counts["relu"] == RECTIFIERS[arch]
    assert counts["block"] == BLOCKS[arch]


def test_dropout_of_a_network_drops_where_it_is_placed():
    network = surgery.add_dropout(ARCHS["resnet18"](10), Dropout(1.0), "last").eval()
    assert torch.equal(network(torch.randn(2, 3, 32, 32)), network.fc.bias.expand(2, -1))  # nothing else reaches it


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


def test_functional_dropout_follows_the_mode_again():
    class Dropping(nn.Module):
        def forward(self, x):
            return F.dropout(F.relu(x), 0.5, self.training)

    network, x = rbue.randomize(Dropping(), q=1.0), torch.rand(100, 10)
    assert torch.equal(network.eval()(x), x)
    assert not torch.equal(network.train()(x), x)


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


def test_new_layers_are_on_the_networks_device():
    network = Users().to("meta")
    for random in (rbue.randomize(network, q=0.5), surgery.add_dropout(network, Dropout(0.5), "last")):
        assert {buffer.device.type for buffer in random.buffers()} == {"meta"}


# --- networks of strangers --------------------------------------------------------------------------------------------


class NormAct(nn.BatchNorm1d):
    """Functional batch-norm and a rectifier in one module, as timm's BatchNormAct2d."""

    def __init__(self, width):
        super().__init__(width)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        mean, variance = (None, None) if self.training else (self.running_mean, self.running_var)
        if self.training:
            self.running_mean.lerp_(x.mean(0).detach(), 0.1)
        return self.act(F.batch_norm(x, mean, variance, self.weight, self.bias, self.training))


class DropPath(nn.Module):
    def forward(self, x):
        return x * torch.rand(len(x), 1).round() * 2 if self.training else x


class Strange(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.path = nn.Linear(8, 8), NormAct(8), DropPath()
        self.last, self.other = nn.Linear(8, 3), NormAct(3)

    def forward(self, x):
        return self.other(self.last(self.path(self.norm(self.first(x)).relu())))


def test_with_noise_off_the_new_network_equals_the_original_in_both_modes_and_its_buffers():
    x = torch.randn(16, 8)
    for traced_in in (True, False):
        own = Strange().train(traced_in)
        new = rbue.randomize(own, q=1.0)
        assert own.training == traced_in and set(new.state_dict()) == set(own.state_dict())
        for mode in (True, False):
            a, b = copy.deepcopy(own).train(mode), copy.deepcopy(new).train(mode)
            seeded = [torch.manual_seed(1) and network(x) for network in (a, b)]
            assert torch.equal(*seeded)
            assert all(torch.equal(a.state_dict()[k], v) for k, v in b.state_dict().items())


def test_prediction_changes_no_buffer_of_such_a_network_and_batches_do_not_meet():
    own, x = Strange(), torch.randn(16, 8)
    before = copy.deepcopy(own.state_dict())
    network = rbue.randomize(own, q=0.5)
    assert sites(network) == [DropReLU] * 3 and isinstance(own.norm.act, nn.ReLU)
    whole, few = (rbue.predict(network, x[:n], samples=4).mean for n in (16, 5))
    assert torch.allclose(whole[:5], few, atol=1e-6)
    assert all(torch.equal(before[k], v) for k, v in own.state_dict().items())


def test_a_network_that_depends_on_its_mode_in_its_own_forward_is_refused():
    class Auxiliary(nn.Linear):
        def forward(self, x):
            y = super().forward(x).relu()
            return (y, y * 2) if self.training else y

    with pytest.raises(UserError, match="the forward of Auxiliary differs between training and testing"):
        rbue.randomize(Auxiliary(8, 8), q=0.5)


def test_a_counter_kept_in_forward_is_refused_and_left_as_it_was():
    class Counting(nn.Linear):
        steps = 0

        def forward(self, x):
            self.steps += 1
            return super().forward(x).relu()

    network = Counting(8, 8)
    with pytest.raises(UserError, match=r"the forward of Counting assigns self\.steps"):
        rbue.randomize(network, q=0.5)
    assert network.steps == 0 and "steps" not in vars(network)


def test_activations_that_stay_are_named():
    network = nn.Sequential(nn.Linear(8, 8), nn.Hardswish(), nn.ReLU(), nn.Hardswish(), nn.ReLU6(), nn.SELU())
    with pytest.warns(UserWarning, match="these activations stay as they are: 2 Hardswish, 1 ReLU6, 1 SELU"):
        rbue.randomize(network, q=0.5)


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


def test_a_constant_in_forward_stays_out_of_the_users_network():
    class Scaled(nn.Linear):
        def forward(self, x):
            h = super().forward(x).relu() * torch.tensor([1.0, 2.0, 3.0])
            return torch.where(h > 0, h, torch.tensor(torch.nan)).nan_to_num(-1.0)

    own, x = Scaled(8, 3), torch.randn(4, 8)
    names = set(vars(own))
    assert torch.equal(rbue.randomize(own, q=1.0)(x), own(x)) and set(vars(own)) == names


class Noisy(nn.Linear):
    def forward(self, x):
        h = F.relu(super().forward(x))
        return h + 1 if self.training else h


def test_a_functional_rectifier_in_a_module_that_depends_on_its_mode_is_refused():
    with pytest.raises(UserError, match=r"0 is a Noisy, whose rectifiers torch\.fx does not see"):
        rbue.randomize(nn.Sequential(Noisy(8, 8), nn.ReLU()), q=0.5)


def test_a_counter_in_a_buffer_is_refused_and_left_as_it_was():
    class Counting(nn.Linear):
        def __init__(self):
            super().__init__(8, 8)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen += 1
            return super().forward(x).relu() * self.seen

    network = Counting()
    with pytest.raises(UserError, match=r"the forward of Counting assigns self\.seen"):
        rbue.randomize(network, q=0.5)
    assert network.seen == 0


def test_a_network_that_branches_on_data_is_refused_and_what_tracing_wrote_is_put_back():
    class Branching(nn.Linear):
        def forward(self, x):
            self.last = x
            return x.relu() if x.sum() > 0 else x

    network = Branching(8, 8)
    with pytest.raises(UserError, match="Branching cannot be traced"):
        rbue.randomize(network, q=0.5)
    assert not hasattr(network, "last")


@pytest.mark.parametrize("always", [True, False])
def test_dropout_that_ignores_the_mode_still_does(always):
    class Constant(nn.Module):
        def forward(self, x):
            return F.dropout(F.relu(x), 0.5, always)

    network, x = rbue.randomize(Constant(), q=1.0), torch.rand(50, 10)
    for mode in (True, False):
        assert torch.equal(network.train(mode)(x), x) != always


def test_hooks_that_are_lost_are_named():
    network = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    network[1].register_forward_hook(lambda *_: None)
    with pytest.warns(UserWarning, match="forward hooks have no effect .*: ReLU"):
        rbue.randomize(network, q=0.5)


def test_a_rectifier_deep_inside_a_module_that_depends_on_its_mode_is_replaced_there():
    class Deep(NormAct):
        def __init__(self, width):
            super().__init__(width)
            self.act = nn.Sequential(nn.Identity(), nn.Sequential(nn.ReLU()))

    own, x = nn.Sequential(nn.Linear(8, 8), Deep(8)).eval(), torch.randn(4, 8)
    assert torch.equal(rbue.randomize(own, q=1.0).eval()(x), own(x))
    assert sites(rbue.randomize(own, q=0.5)) == [DropReLU] and isinstance(own[1].act[1][0], nn.ReLU)


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


# --- parametrizations that are not ours -------------------------------------------------------------------------------


def normed(norm):
    """A trained network with a parametrization of torch's."""
    torch.manual_seed(0)
    network = nn.Sequential(norm(nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 3))
    for _ in range(3):
        network(torch.randn(4, 8))
    return network.eval()


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


class Frozen(nn.Sequential):
    """A network whose first layer is frozen or computed in another precision, by a context in forward."""

    def __init__(self, context):
        super().__init__(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
        self.context = context

    def forward(self, x):
        with self.context():
            x = self[0](x)
        return self[2](self[1](x))


@pytest.mark.parametrize("context", [torch.no_grad, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_a_context_that_the_new_network_would_not_open_is_refused(context):
    with pytest.raises(UserError, match=r"forward of Frozen opens torch\.no_grad or torch\.autocast"):
        rbue.randomize(Frozen(context), q=0.9)
    same = Frozen(lambda: torch.autocast("cpu", torch.bfloat16, enabled=False))  # changes nothing here
    assert sites(rbue.randomize(same, q=0.9)) == [DropReLU]


class Straight(torch.autograd.Function):
    """The sign, whose gradient is that of the identity."""

    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        return grad


class Binary(nn.Module):
    def forward(self, x):
        return Straight.apply(x)


def test_a_backward_pass_of_ones_own_stays():
    own = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), Binary(), nn.Linear(8, 3))
    new, x = rbue.randomize(own, q=1.0), torch.randn(4, 8)
    grads = [torch.autograd.grad(network(x).sum(), own[0].weight)[0] for network in (own, new)]
    assert torch.equal(*grads) and grads[0].abs().sum() > 0


def test_a_module_that_opens_a_context_still_does():
    inner = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    frozen = Frozen(torch.no_grad)
    frozen[1], frozen[2] = nn.Tanh(), inner
    own, x = nn.Sequential(frozen, nn.ReLU()), torch.randn(4, 8)
    new = rbue.randomize(own, q=1.0)
    new(x).sum().backward()
    assert torch.equal(new(x), own(x)) and frozen[0].weight.grad is None and inner[0].weight.grad is not None
    assert sites(rbue.randomize(nn.Sequential(Frozen(torch.no_grad), nn.ReLU()), q=0.9)) == [DropReLU] * 2


class Scaled(nn.Module):
    """A module that makes a tensor in forward, whose value depends on the mode or on chance."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x):
        return x * self.value(self)


CONSTANTS = {
    "the mode": lambda module: torch.tensor(1.0 if module.training else 4.0),
    "chance": lambda module: torch.rand(()),
}


@pytest.mark.parametrize("kind", CONSTANTS)
def test_a_tensor_that_forward_makes_is_not_frozen_at_one_of_its_values(kind):
    own, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), Scaled(CONSTANTS[kind])), torch.randn(4, 8)
    new = rbue.randomize(own, q=1.0)
    for mode in (True, False):
        torch.manual_seed(0)
        expected = own.train(mode)(x)
        torch.manual_seed(0)
        assert torch.equal(new.train(mode)(x), expected)

    class Whole(nn.Linear):
        def forward(self, x):
            return super().forward(x).relu() * CONSTANTS[kind](self)

    with pytest.raises(UserError, match="differs between training and testing, or draws random numbers"):
        rbue.randomize(Whole(8, 8), q=1.0)
