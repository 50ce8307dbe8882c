"""The paper's three networks from torchvision, with stems for small images, and a small network for the demo.

The stems are the usual ones for CIFAR: a 3 x 3 convolution of stride 1, and no pooling. The paper gives no parameter
counts, so a test compares ours with the usual ones.
"""

from collections import OrderedDict
from copy import copy

import torch
from torch import nn
from torchvision import models

from rbue.errors import one_of, refuse_second
from rbue.layers import Stem

ARCHS = {}


def network(name):
    """Register the decorated function (number of classes) → network as arch=name."""

    def register(make):
        refuse_second(f"arch={name}", ARCHS.get(name), make)
        ARCHS[name] = make
        return make

    return register


@network("vgg13")
def vgg13(classes):
    """VGG-13 with batch-norm and one linear layer after the convolutions, instead of three with 4096 units."""
    features = models.vgg.make_layers(models.vgg.cfgs["B"], batch_norm=True)
    features[0] = Stem(3, 64, 3, padding=1)
    for convolution in (m for m in features if isinstance(m, nn.Conv2d)):
        nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(convolution.bias)
    pool, classifier = nn.AdaptiveAvgPool2d(1), nn.Linear(512, classes)
    return nn.Sequential(OrderedDict(features=features, pool=pool, flatten=nn.Flatten(), classifier=classifier))


@network("resnet18")
def resnet18(classes):
    network = models.resnet18(num_classes=classes)
    network.conv1 = Stem(3, 64, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    network.maxpool = nn.Identity()
    return network


@network("densenet121")
def densenet121(classes):
    """DenseNet-121. Its stem is the convolution alone, so it has 120 rectifiers instead of 121."""
    network = models.densenet121(num_classes=classes)
    network.features.conv0 = Stem(3, 64, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(network.features.conv0.weight)
    for name in ("norm0", "relu0", "pool0"):
        delattr(network.features, name)
    return network


@network("small")
def small(classes):
    """A network of three convolutions, which trains in seconds on two CPU cores."""

    def block(inputs, outputs, kind=nn.Conv2d):
        convolution = kind(inputs, outputs, 3, stride=2, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]

    layers = [*block(3, 16, Stem), *block(16, 32), *block(32, 32), nn.AdaptiveAvgPool2d(4), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(32 * 4 * 4, classes))


def build(arch, classes):
    one_of(list(ARCHS), arch=arch)
    return quick(ARCHS[arch](classes))


def quick(network):
    """Change the network so that its training step is faster; its outputs stay the same."""
    for norm in (m for m in network.modules() if isinstance(m, nn.BatchNorm2d) and m.momentum is not None):
        norm.num_batches_tracked = None  # it is never read, and counting costs one kernel per layer
        norm.register_load_state_dict_pre_hook(forget_count)
    for path, block in list(network.named_modules()):
        if is_plain(block):
            network.set_submodule(path, chained(block))
    return network


def is_plain(block):
    """Return whether `chained` computes the same: a dense block of torchvision's own classes, without dropout."""
    if type(block) is not models.densenet._DenseBlock or block._forward_hooks or block._forward_pre_hooks:
        return False
    return all(type(layer) is models.densenet._DenseLayer and not layer.drop_rate for layer in block.values())


def forget_count(norm, state, prefix, *_):
    """Drop batch-norm's counter from a state dict. Many hold it, and torch adds it to old ones that do not."""
    state.pop(f"{prefix}num_batches_tracked", None)


def chained(block):
    """Return a dense block as a sequence of layers, each of which appends its own feature maps to its input. They share
    the block's parameters, and the block stays as it is, since the network may hold it under a second name."""
    layers = {name: copy(layer) for name, layer in block.items()}
    for layer in layers.values():
        layer.__class__ = DenseLayer
    return nn.Sequential(OrderedDict(layers))


class DenseLayer(models.densenet._DenseLayer):
    """A dense layer that appends its feature maps to its input.

    In torchvision, every layer of a block concatenates all earlier feature maps again. By the compiler's estimate, this
    reads and writes a fifth more memory, and it takes a third longer to compile.
    """

    def forward(self, x):
        new = self.conv2(self.relu2(self.norm2(self.conv1(self.relu1(self.norm1(x))))))
        return torch.cat([x, new], 1)
