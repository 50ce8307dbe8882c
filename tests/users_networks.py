"""Networks as users write them, for the tests of tracing and surgery."""

from torch import nn
from torch.nn import functional as F

from rbue.layers import Dropout, DropReLU, RReLU


class Users(nn.Module):
    """A user's own network: one shared rectifier module, one functional, one tensor method."""

    def __init__(self):
        super().__init__()
        self.relu, self.first, self.second = nn.ReLU(inplace=True), nn.Linear(6, 8), nn.Linear(8, 8)

    def forward(self, x):
        x = self.relu(self.first(x))
        x = self.relu(self.second(x)) + F.relu(x)
        return x.relu()


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


def sites(network):
    return [type(m) for m in network.modules() if isinstance(m, (DropReLU, RReLU, Dropout))]
