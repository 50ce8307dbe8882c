import copy
import random

import numpy as np
import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torchvision.transforms import v2
from users_networks import NormAct, sites

import rbue
from rbue import networks, surgery
from rbue.errors import UserError
from rbue.layers import DropReLU
from rbue.tracer import generators


@pytest.mark.parametrize("error", [AssertionError(), NameError("no module"), KeyError("x")])
def test_whatever_tracing_fails_with_is_a_sentence(error):
    class Network(nn.Module):
        def forward(self, x):
            raise error

    with pytest.raises(UserError, match="Network cannot be traced"):
        rbue.randomize(Network(), q=0.9)


def exported(network):
    return torch.export.export(network.eval(), (torch.randn(3, 4),)).module()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("wrap", "says"),
    [
        (nn.DataParallel, r"pass its \.module, and wrap the new network"),
        (torch.optim.swa_utils.AveragedModel, r"pass its \.module, and average the new network"),
        (torch.compile, "pass the network as it was before torch.compile"),
        (torch.jit.script, "pass the network as it was before torch.jit"),
        (exported, "pass the network as it was before torch.export"),
    ],
)
def test_a_wrapped_network_is_refused_with_the_way_out(wrap, says):
    with pytest.raises(UserError, match=says):
        rbue.randomize(wrap(nn.Sequential(nn.Linear(4, 4), nn.ReLU())), q=0.9)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("make", "origin"), [(torch.jit.script, "jit"), (exported, "export")])
def test_a_part_of_torch_jit_or_torch_export_is_refused_since_weights_or_the_mode_would_be_lost(make, origin):
    part = make(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout()))
    with pytest.raises(UserError, match=rf"0 is a module of torch\.{origin}, which torch\.fx cannot trace"):
        rbue.randomize(nn.Sequential(part, nn.ReLU()), q=0.9)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_part_of_torch_jit_that_forward_does_not_call_is_no_obstacle():
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    network[0].register_module("unused", torch.jit.script(nn.ReLU()))
    assert rbue.predict(rbue.randomize(network, q=0.9), torch.randn(3, 4), samples=2).mean.shape == (3, 4)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_part_that_torch_compile_made_is_refused_with_the_way_out(in_place):
    part = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    if in_place:
        part.compile()
    network = nn.Sequential(part if in_place else torch.compile(part), nn.ReLU())
    with pytest.raises(UserError, match=r"0 is a module of torch\.compile, .* use the module as it was before"):
        rbue.randomize(network, q=0.9)


def test_a_network_that_branches_on_data_is_refused_and_what_tracing_wrote_is_put_back():
    class Branching(nn.Linear):
        def forward(self, x):
            self.last = x
            return x.relu() if x.sum() > 0 else x

    network = Branching(8, 8)
    with pytest.raises(UserError, match=r"in faster_rcnn\.py|in generalized_rcnn\.py"):
        rbue.randomize(torchvision.models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None), q=0.5)
    line = Branching.forward.__code__.co_firstlineno + 2
    with pytest.raises(UserError, match=rf"Branching cannot be traced .+ in test_tracing\.py:{line}\): .+ by hand"):
        rbue.randomize(network, q=0.5)
    assert not hasattr(network, "last")


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_a_lazy_network_needs_one_forward_pass_first():
    network = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.ReLU(), nn.Linear(8, 3))
    with pytest.raises(UserError, match=r"Sequential has no 1\.running_mean yet: run one forward pass first"):
        rbue.randomize(network, q=0.9)
    network(torch.randn(4, 8))
    assert sites(rbue.randomize(network, q=0.9)) == [DropReLU]


class Optional(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x=None, mask=None, scale=1.0, flag=False, sizes=(2, 4), pooling="mean"):
        x = x if mask is None else x * mask
        x = -x if pooling == "max" else x
        return self.layer((x * scale * sizes[0]).relu()) if not flag else x


def test_arguments_that_default_to_none_a_bool_or_a_string_have_it_and_others_stay(tmp_path):
    own, x = Optional().eval(), torch.randn(4, 8)
    net = rbue.randomize(own, q=1.0)
    assert torch.equal(net(x), own(x)) and torch.equal(net(x, scale=2.0), own(x, scale=2.0))
    torch.save(net, tmp_path / "network.pt")
    again = torch.load(tmp_path / "network.pt", weights_only=False)
    assert torch.equal(again(x), own(x)) and torch.equal(surgery.deterministic(again)(x), own(x))
    assert sites(rbue.randomize(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), q=0.5)) == [DropReLU]  # nothing is left over


class Features(nn.Linear):
    def forward(self, image_features, image=None):
        return super().forward(image_features).relu()


class Smoothed(nn.Linear):
    def forward(self, x, label_smoothing=0.5, label=None, *more, labels=None, label_1=2.0, **others):
        return super().forward(x).relu() * label_smoothing * label_1


class Masked(nn.Linear):
    def forward(self, x_1, x=None, mask=None, mask_1=3.0, mask_2=False):
        return super().forward(x_1).relu() * mask_1


@pytest.mark.parametrize("kind", [Features, Smoothed, Masked])
def test_an_argument_stays_though_its_name_begins_with_that_of_a_fixed_one(kind):
    own, x = kind(8, 3), torch.randn(4, 8)
    assert torch.equal(rbue.randomize(own, q=1.0)(x), own(x))
    if kind is Masked:
        assert torch.equal(rbue.randomize(own, q=1.0)(x, mask_1=5.0), own(x, mask_1=5.0))


# --- what depends on the mode -----------------------------------------------------------------------------------------


def test_functional_dropout_follows_the_mode_again():
    class Dropping(nn.Module):
        def forward(self, x):
            return F.dropout(F.relu(x), 0.5, self.training)

    network, x = rbue.randomize(Dropping(), q=1.0), torch.rand(100, 10)
    assert torch.equal(network.eval()(x), x)
    assert not torch.equal(network.train()(x), x)


@pytest.mark.parametrize("always", [True, False])
def test_dropout_that_ignores_the_mode_still_does(always):
    class Constant(nn.Module):
        def forward(self, x):
            return F.dropout(F.relu(x), 0.5, always)

    network, x = rbue.randomize(Constant(), q=1.0), torch.rand(50, 10)
    for mode in (True, False):
        assert torch.equal(network.train(mode)(x), x) != always


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


class InPlace(nn.Module):
    """Works in place on a value that has another name or a view."""

    def __init__(self, update):
        super().__init__()
        self.first, self.last, self.update = nn.Linear(8, 8), nn.Linear(8, 3), update

    def forward(self, x):
        h = self.first(x)
        other, half = h, h[:, :4]
        self.update(h, half)
        return self.last(torch.relu(h + other))


def add(h, half):
    h += 1


def add_to_half(h, half):
    half += 1


def scale_by_itself(h, half):
    h *= torch.sigmoid(h)


@pytest.mark.parametrize("update", [add, add_to_half, scale_by_itself])
def test_an_operator_that_works_in_place_also_changes_other_names_and_views(update):
    own, x = InPlace(update), torch.randn(5, 8)
    random = rbue.randomize(own, q=1.0)
    assert torch.equal(random(x), own(x))
    assert torch.allclose(rbue.predict(random, x, samples=2).mean, own(x).softmax(1), atol=1e-6)


class Skipped(nn.Linear):
    def __init__(self, draw):
        super().__init__(8, 8)
        self.draw = draw

    def forward(self, x):
        return x if self.training and self.draw() < 1e-9 else x + super().forward(x).relu()


@pytest.mark.parametrize("draw", [lambda: torch.rand(1).item(), random.random, np.random.rand])
def test_a_forward_that_draws_in_python_is_not_fixed_at_what_it_drew(draw):
    with pytest.raises(UserError, match=r"\d is a Skipped, whose rectifiers torch\.fx does not see"):
        rbue.randomize(nn.Sequential(Skipped(draw), Skipped(draw), nn.ReLU()), q=0.5)
    with pytest.raises(UserError, match=r"the forward of Skipped differs .* or draws random numbers"):
        rbue.randomize(Skipped(draw), q=0.5)


def test_tracing_puts_generators_back_where_a_module_drew():
    class Noisy(nn.Module):
        def forward(self, x):
            return x + torch.rand(1).item() + random.random() + np.random.rand() if self.training else x

    torch.manual_seed(0)
    before = generators()
    assert sites(rbue.randomize(nn.Sequential(nn.Sequential(Noisy(), nn.ReLU()), nn.ReLU()), q=0.5)) == [DropReLU] * 2
    assert generators() == before


class Part(nn.Sequential):
    """A module that is traced into."""


class WithOwnTrain(Part):
    def train(self, mode=True):
        super().train(mode)
        self[1].eval()
        return self


@pytest.mark.parametrize("assigned", [False, True])
def test_a_train_of_ones_own_that_is_not_called_is_named(assigned):
    layers = nn.Linear(8, 8), nn.BatchNorm1d(8)
    own = Part(*layers) if assigned else WithOwnTrain(*layers)
    if assigned:
        own.train = lambda mode=True: own
    with pytest.warns(
        UserWarning, match=r"does not call train\(\) of (WithOwnTrain|Part): to freeze batch-norm"
    ) as said:
        random = rbue.randomize(nn.Sequential(own, nn.ReLU()), q=0.5)
    assert len(said) == 1 and sites(random) == [DropReLU]


@pytest.mark.filterwarnings("error")
def test_a_train_that_a_layer_of_torch_has_is_still_called():
    norm = nn.BatchNorm1d(8).eval()
    norm.train = lambda mode=True: norm
    rbue.randomize(nn.Sequential(Part(nn.Linear(8, 8), norm), nn.ReLU()), q=0.5).train()
    assert not norm.training


def test_a_network_without_values_can_be_traced():
    with torch.device("meta"):
        network = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())
    assert sites(rbue.randomize(network, q=0.5)) == [DropReLU]


def test_a_network_that_depends_on_its_mode_in_its_own_forward_is_refused():
    class Auxiliary(nn.Linear):
        def forward(self, x):
            y = super().forward(x).relu()
            return (y, y * 2) if self.training else y

    with pytest.raises(UserError, match="the forward of Auxiliary differs between training and testing"):
        rbue.randomize(Auxiliary(8, 8), q=0.5)


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_networks_with_auxiliary_outputs_are_refused_with_the_way_out(name):
    make = getattr(torchvision.models, name)
    network = make(init_weights=False)
    with pytest.raises(
        UserError, match=r"differs between training and testing.*: make it with aux_logits=False"
    ) as told:
        rbue.randomize(network, q=0.5)
    assert sites(rbue.randomize(make(init_weights=False, aux_logits=False), q=0.5))
    exec(str(told.value).partition("or set ")[2].replace(" and ", "; "), {"network": network})  # the other way
    assert sites(rbue.randomize(network, q=0.5))


# --- what forward writes, makes and opens -----------------------------------------------------------------------------


def test_an_assignment_to_a_part_of_a_tensor_is_refused_in_plain_words():
    class Masking(nn.Linear):
        def forward(self, x):
            h = super().forward(x)
            h[:, 0] = 0
            return h.relu()

    told = r"it cannot record an assignment to a part of a tensor, as in x\[:, 0\] = y, in .*test_tracing\.py"
    with pytest.raises(UserError, match=told):
        rbue.randomize(Masking(8, 8), q=0.5)


def test_a_counter_kept_in_forward_is_refused_and_left_as_it_was():
    class Counting(nn.Linear):
        steps = 0

        def forward(self, x):
            self.steps += 1
            return super().forward(x).relu()

    network = Counting(8, 8)
    with pytest.raises(UserError, match=r"the forward of Counting changes self\.steps"):
        rbue.randomize(network, q=0.5)
    assert network.steps == 0 and "steps" not in vars(network)


def test_a_counter_in_a_buffer_is_refused_and_left_as_it_was():
    class Counting(nn.Linear):
        def __init__(self):
            super().__init__(8, 8)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen += 1
            return super().forward(x).relu() * self.seen

    network = Counting()
    with pytest.raises(UserError, match=r"the forward of Counting changes self\.seen"):
        rbue.randomize(network, q=0.5)
    assert network.seen == 0


class Remembering(nn.Linear):
    """Its forward writes in one of the ways that a graph does not repeat."""

    def __init__(self, way):
        super().__init__(8, 8)
        self.way, self.listed, self.named, self.chosen = way, [1], {"a": 1}, {1}
        self.register_buffer("mean", torch.ones(()))

    def forward(self, x):
        h = super().forward(x).relu()
        if self.way == "mean":
            self.mean = 0.9 * self.mean + 0.1 * x.mean()
        if self.way == "listed":
            self.listed.append(h)
        if self.way == "named":
            self.named["a"] = h
        if self.way == "chosen":
            self.chosen.add(h)
        return h


@pytest.mark.parametrize("way", ["mean", "listed", "named", "chosen"])
def test_what_forward_keeps_is_refused_and_left_as_it_was(way):
    network = Remembering(way)
    with pytest.raises(UserError, match=rf"the forward of Remembering changes self\.{way}"):
        rbue.randomize(network, q=0.5)
    assert (network.listed, network.named, network.chosen) == ([1], {"a": 1}, {1}) and torch.equal(
        network.mean, torch.ones(())
    )


def test_an_assignment_to_the_data_of_a_tensor_is_refused():
    class Renormalised(nn.Linear):
        def forward(self, x):
            self.weight.data = torch.renorm(self.weight.data, p=2, dim=0, maxnorm=1)
            return super().forward(x).relu()

    with pytest.raises(UserError, match=r"an assignment to an attribute of a tensor, as in x\.data = y"):
        rbue.randomize(nn.Sequential(nn.Linear(8, 8), Renormalised(8, 8)), q=0.5)


def test_a_note_that_a_forward_keeps_on_a_tensor_is_no_obstacle():
    class Noting(nn.Linear):
        def forward(self, x):
            h = super().forward(x)
            h.mask = h > 0
            return h.relu() * h.mask

    network, x = Noting(8, 8), torch.randn(4, 8)
    torch.testing.assert_close(rbue.randomize(network, q=1.0)(x), network(x))


@pytest.mark.parametrize("make", [lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8), torch.Tensor.cfloat])
def test_a_buffer_of_another_type_is_compared(make):
    network = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    network.register_buffer("table", make(torch.ones(3)))
    assert sites(rbue.randomize(network, q=0.5)) == [DropReLU]


def test_a_buffer_that_holds_nan_was_not_written():
    network = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())
    network[1].running_var[0] = torch.nan
    assert sites(rbue.randomize(network, q=0.5)) == [DropReLU]


def test_generators_are_put_back_if_tracing_fails():
    class Drawing(nn.Linear):
        def forward(self, x):
            random.random()
            raise ValueError

    before = random.getstate()
    with pytest.raises(UserError):
        rbue.randomize(Drawing(8, 8), q=0.5)
    assert random.getstate() == before


def rectify(x):
    return F.relu(x)


class Closed(nn.Module):
    """torch.fx cannot trace it, so that its code alone tells whether it rectifies."""

    alias = staticmethod(F.relu)

    def __init__(self, way):
        super().__init__()
        self.way = getattr(self, way)

    def forward(self, x):
        return self.way(x + 0 if x.mean() > 0 and self.training else x)

    @staticmethod
    def static(x):
        return F.relu(x)

    def by_global(self, x):
        return rectify(x)

    def nested(self, x):
        return (lambda y: F.relu(y))(x)


@pytest.mark.parametrize("way", ["alias", "static", "by_global", "nested"])
def test_rectifiers_in_functions_that_a_closed_module_calls_are_found(way, monkeypatch):
    for other in {"alias", "static", "by_global", "nested"} - {way}:
        monkeypatch.setattr(Closed, other, None)
    network = nn.Sequential(nn.Linear(4, 8), Closed(way), nn.Linear(8, 8), nn.ReLU())
    with pytest.raises(UserError, match=r"1 is a Closed, whose rectifiers torch\.fx does not see"):
        rbue.randomize(network, q=0.5)


def test_a_constant_in_forward_stays_out_of_the_users_network():
    class Scaled(nn.Linear):
        def forward(self, x):
            h = super().forward(x).relu() * torch.tensor([1.0, 2.0, 3.0])
            return torch.where(h > 0, h, torch.tensor(torch.nan)).nan_to_num(-1.0)

    own, x = Scaled(8, 3), torch.randn(4, 8)
    names = set(vars(own))
    assert torch.equal(rbue.randomize(own, q=1.0)(x), own(x)) and set(vars(own)) == names


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
    with pytest.warns(UserWarning, match="does not switch off autocast as Frozen does"):
        assert sites(rbue.randomize(same, q=0.9)) == [DropReLU]


def test_a_module_that_opens_a_context_still_does():
    inner = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    frozen = Frozen(torch.no_grad)
    frozen[1], frozen[2] = nn.Tanh(), inner
    own, x = nn.Sequential(frozen, nn.ReLU()), torch.randn(4, 8)
    new = rbue.randomize(own, q=1.0)
    new(x).sum().backward()
    assert torch.equal(new(x), own(x)) and frozen[0].weight.grad is None and inner[0].weight.grad is not None
    assert sites(rbue.randomize(nn.Sequential(Frozen(torch.no_grad), nn.ReLU()), q=0.9)) == [DropReLU] * 2


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


def test_a_graph_follows_buffers_and_keeps_their_names():
    own = torchvision.models.resnet18(num_classes=3, norm_layer=torchvision.ops.FrozenBatchNorm2d).eval()
    new, x = rbue.randomize(own, q=1.0), torch.rand(2, 3, 32, 32)
    for buffer in own.buffers():
        buffer.uniform_(0.5, 1.5)
    assert torch.equal(new(x), own(x)) and new.state_dict().keys() == own.state_dict().keys()


class Switched(nn.Module):
    """Computes with buffers, and needs the value of one."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)
        self.register_buffer("on", torch.tensor(True))
        self.register_buffer("mean", torch.randn(8))

    def forward(self, x):
        return self.layer(F.relu(x - self.mean.view(1, -1) if self.on else x))


def test_a_forward_that_needs_the_value_of_a_buffer_is_traced():
    own, x = Switched(), torch.randn(4, 8)
    assert torch.equal(rbue.randomize(own, q=1.0)(x), own(x))


def test_transforms_of_torchvision_stay():
    own = nn.Sequential(v2.Normalize([0.5] * 3, [0.2] * 3), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten())
    x = torch.rand(2, 3, 8, 8)
    assert torch.equal(rbue.randomize(own, q=1.0)(x), own(x))


class AsksType(nn.Linear):
    def forward(self, x):
        return super().forward(F.relu(x * 2 if torch.is_tensor(x) else x))


def test_code_that_asks_for_a_tensor_is_named():
    with pytest.warns(UserWarning, match=r"AsksType may ask whether a value is a torch\.Tensor"):
        rbue.randomize(AsksType(8, 3), q=0.5)


def test_a_forward_that_was_replaced_is_refused():
    own = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    before = own.forward
    own.forward = lambda x: 10 * before(x)
    with pytest.raises(UserError, match="its forward was replaced"):
        rbue.randomize(own, q=0.5)


class Listed(nn.Linear):
    """Computes a weight from weights in a list."""

    def __init__(self):
        super().__init__(8, 8)
        self.listed = [self.weight, self.bias]

    def forward(self, x):
        return F.linear(F.relu(x), self.listed[0] + self.listed[1])


def test_a_weight_that_would_not_follow_its_training_is_refused():
    with pytest.raises(UserError, match="computes with weights that it does not read"):
        rbue.randomize(Listed(), q=0.5)


class DropsInPlace(nn.Linear):
    def forward(self, x):
        h = F.relu(super().forward(x))
        F.dropout(h, 0.5, self.training, inplace=True)
        return h


def test_functional_dropout_in_place_stays_in_place():
    own, x = DropsInPlace(8, 64), torch.randn(16, 8)
    networks, outputs = (own, rbue.randomize(own, q=1.0)), []
    for network in networks:
        torch.manual_seed(0)
        outputs.append(network.train()(x))
    assert torch.equal(*outputs) and (outputs[0] == 0).float().mean() > 0.6
    assert torch.equal(*(network.eval()(x) for network in networks))


def test_a_frozen_part_is_also_seen_without_gradients():
    with torch.no_grad(), pytest.raises(UserError, match=r"forward of Frozen opens torch\.no_grad"):
        rbue.randomize(Frozen(torch.no_grad), q=0.9)


@pytest.mark.parametrize("arch", ["vgg13", "resnet18", "densenet121"])
def test_the_suites_networks_are_traced_without_a_warning(arch, recwarn):
    rbue.randomize(networks.build(arch, 10), q=0.9)
    assert not recwarn.list


def masked(x, mask):
    return x * mask if isinstance(mask, torch.Tensor) else x


class Masked(nn.Linear):
    """Asks for a tensor, in a function that it calls, and gets a buffer."""

    def __init__(self):
        super().__init__(8, 8)
        self.register_buffer("mask", torch.tensor([0.0, 1.0] * 4))

    def forward(self, x):
        return F.relu(super().forward(masked(x, self.mask)))


def test_a_buffer_is_a_tensor_for_code_that_asks():
    own, x = Masked(), torch.randn(4, 8)
    with pytest.warns(UserWarning, match=r"Masked may ask whether a value is a torch\.Tensor"):
        assert torch.equal(rbue.randomize(own, q=1.0)(x), own(x))


class Counting(nn.Linear):
    def __init__(self):
        super().__init__(8, 8)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count.add_(1)
        return F.relu(super().forward(x)) * self.count


def test_a_buffer_that_forward_changes_in_place_is_refused():
    with pytest.raises(UserError, match=r"forward of Counting changes self\.count"):
        rbue.randomize(Counting(), q=0.5)


def test_a_traced_network_can_be_traced_again():
    own, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(4, 8)
    assert torch.equal(rbue.randomize(torch.fx.symbolic_trace(own), q=1.0)(x), own(x))
