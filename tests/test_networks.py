import copy
from collections import OrderedDict

import pytest
import torch
from torchvision.models import densenet

from rbue.errors import UserError
from rbue.networks import ARCHS, build, chained, quick

PARAMETERS = {  # for 10, 100 and 200 classes
    "vgg13": (9_416_010, 9_462_180, 9_513_480),
    "resnet18": (11_173_962, 11_220_132, 11_271_432),
    "densenet121": (6_956_298, 7_048_548, 7_151_048),
}


@pytest.mark.parametrize("arch", PARAMETERS)
def test_parameter_counts_are_the_common_ones(arch):
    counted = [sum(p.numel() for p in build(arch, classes).parameters()) for classes in (10, 100, 200)]
    assert tuple(counted) == PARAMETERS[arch]


@pytest.mark.parametrize(("arch", "size"), [(a, s) for a in ARCHS for s in (32, 64)])
def test_networks_take_cifar_and_tinyimagenet_images(arch, size):
    with torch.no_grad():
        assert build(arch, 10).eval()(torch.zeros(2, 3, size, size)).shape == (2, 10)


def test_an_unknown_network_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match="arch=lenet is not known: choose one of vgg13"):
        build("lenet", 10)


def test_a_stem_filled_up_to_eight_channels_is_the_convolution_it_was():
    stem, x = build("resnet18", 10).conv1, torch.rand(2, 3, 8, 8)
    assert torch.allclose(stem.filled(x), stem(x), atol=1e-6)


def test_a_chain_of_dense_layers_computes_what_torchvisions_block_does():
    torch.manual_seed(0)
    theirs, x = densenet._DenseBlock(3, 8, 4, 4, 0.0).double(), torch.rand(2, 8, 5, 5, dtype=torch.float64)
    ours = chained(copy.deepcopy(theirs))
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    gradients = [torch.autograd.grad(block(x).square().sum(), block.parameters()) for block in (theirs, ours)]
    assert all(torch.allclose(a, b) for a, b in zip(*gradients, strict=True))
    assert torch.equal(theirs.eval()(x), ours.eval()(x))


class Tenfold(densenet._DenseLayer):
    def forward(self, inputs):
        return 10 * super().forward(inputs)


@pytest.mark.parametrize(("kind", "rate"), [(densenet._DenseLayer, 0.5), (Tenfold, 0.0)])
def test_a_dense_block_with_dropout_or_with_other_layers_stays(kind, rate):
    block, x = densenet._DenseBlock(3, 8, 4, 4, rate), torch.rand(2, 8, 5, 5)
    for layer in block.values():
        layer.__class__ = kind
    network = quick(torch.nn.Sequential(copy.deepcopy(block)))
    outputs = [torch.manual_seed(0) and each(x) for each in (block, network)]
    assert torch.equal(*outputs)


class TenfoldBlock(densenet._DenseBlock):
    def forward(self, inputs):
        return 10 * super().forward(inputs)


class Shared(torch.nn.Module):
    def __init__(self, block):
        super().__init__()
        self.first = self.second = block

    def forward(self, x):
        return self.second(x) + self.first(x)


@pytest.mark.parametrize("change", ["own class", "hook", "two names"])
def test_a_dense_block_of_ones_own_keeps_what_it_does(change):
    kind = TenfoldBlock if change == "own class" else densenet._DenseBlock
    block, x = kind(3, 8, 4, 4, 0.0).eval(), torch.rand(2, 8, 5, 5)
    if change == "hook":
        block.register_forward_hook(lambda module, inputs, output: -output)
    own = Shared(block) if change == "two names" else torch.nn.Sequential(block)
    expected = own(x)
    assert torch.equal(quick(own)(x), expected)


@pytest.mark.parametrize("metadata", [True, False])
def test_weights_with_batch_norms_counter_load_too(metadata):
    """Equal to torchvision's state, and to that of a file without torch's version numbers."""
    network = build("small", 10)
    state = OrderedDict(network.state_dict() | {"1.num_batches_tracked": torch.tensor(7)})
    if metadata:
        state._metadata = network.state_dict()._metadata
    other = build("small", 10)
    other.load_state_dict(state)
    loaded = other.state_dict()
    assert loaded.keys() == network.state_dict().keys()
    assert all(torch.equal(loaded[key], value) for key, value in network.state_dict().items())
