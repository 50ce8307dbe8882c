"""The random layers, which draw in training and in testing alike: that is the method (Section 3.3).

A layer is a recipe until `surgery` gives it a site; on its own it draws from torch's generator, so it also works in a
network written by hand. The backward pass recomputes its noise instead of storing it.
"""

import torch
from torch import Tensor, nn

from rbue import noise
from rbue.errors import UserError, within
from rbue.noise import Noise


class _DropReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, keys, limit):
        kept = noise.below(keys, x.shape[1:], limit)
        y = torch.where((x < 0) & kept, 0, x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return torch.where(y == 0, 0, grad), None, None  # the output is zero exactly where the gradient is


class _RReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, keys, l, u):
        y = torch.where(x < 0, _RReLU.scale(x, keys, l, u), x)
        ctx.save_for_backward(y, hidden(keys))
        ctx.bounds = l, u
        return y

    @staticmethod
    def backward(ctx, grad):
        y, keys = ctx.saved_tensors
        return torch.where(y < 0, _RReLU.scale(grad, hidden(keys), *ctx.bounds), grad), None, None, None

    @staticmethod
    def scale(x, keys, l, u):
        """Rounded before `where` chooses: torch 2.11 loses the gradient of a result that is cast to its own type."""
        return (x * noise.between(keys, x.shape[1:], l, u)).to(x.dtype)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, keys, limit):
        ctx.save_for_backward(hidden(keys), limit)
        return _Dropout.drop(x, keys, limit)

    @staticmethod
    def drop(x, keys, limit):
        scale = 2.0**32 / (limit.float() + 2.0**31)  # 1 over the probability whose threshold it is
        return torch.where(noise.below(keys, x.shape[1:], limit), (x * scale).to(x.dtype), 0)

    @staticmethod
    def backward(ctx, grad):
        keys, limit = ctx.saved_tensors
        return _Dropout.drop(grad, hidden(keys), limit), None, None


def hidden(keys: Tensor) -> Tensor:
    """Keys turned over; twice turned they are themselves. A compiler that sees both passes draw from the same keys
    would draw once and keep the noise in memory, up to four bytes an element."""
    return ~keys


class Stem(nn.Conv2d):
    """A convolution of images. On a GPU their three channels are filled up to the eight its matrix units work with."""

    def forward(self, x: Tensor) -> Tensor:
        return self.filled(x) if x.is_cuda else super().forward(x)

    def filled(self, x: Tensor) -> Tensor:
        x, weight = (nn.functional.pad(t, (0, 0, 0, 0, 0, -self.in_channels % 8)) for t in (x, self.weight))
        return self._conv_forward(x, weight, self.bias)


class StochasticLayer(nn.Module):
    """A place in a network that draws noise: its number, and the source it shares with the network's other sites."""

    def __init__(self) -> None:
        super().__init__()
        self.noise, self.site = Noise(), 0

    def keys(self, x: Tensor) -> Tensor:
        return self.noise.of_rows(self.site, x.shape[0], x.device)

    def sample_numbers(self, x: Tensor) -> Tensor:
        """The number of the sample that each image is for, for a layer that chooses by it instead of drawing."""
        return self.noise.numbers(x.shape[0], x.device)

    def deterministic(self) -> nn.Module:
        """What it does on average, without noise: it takes the layer's place in `surgery.deterministic`."""
        raise NotImplementedError


class DropReLU(StochasticLayer):
    """Each rectifier is kept with probability q and the identity otherwise (eq. 5). q=1 is a plain ReLU."""

    def __init__(self, q: float) -> None:
        super().__init__()
        within(0, 1, q=q)
        self.q, self.random = q, q < 1
        self.register_buffer("limit", noise.threshold(q), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return _DropReLU.apply(x, self.keys(x), self.limit) if self.random else x.relu()  # reads no q: one code for all

    def deterministic(self) -> nn.Module:
        return nn.LeakyReLU(1 - self.q)

    def extra_repr(self) -> str:
        return f"q={self.q}"


class RReLU(StochasticLayer):
    """Negative inputs are multiplied by a slope drawn from U(l, u) (eq. 6), unlike nn.RReLU in testing too."""

    def __init__(self, l: float = 1 / 8, u: float = 1 / 3) -> None:
        super().__init__()
        if not (0 <= l <= u and u > 0):  # the backward pass knows a negative input by the output's sign
            raise UserError(f"l={l}, u={u} must satisfy 0 <= l <= u and 0 < u")
        self.l, self.u = l, u

    def forward(self, x: Tensor) -> Tensor:
        return _RReLU.apply(x, self.keys(x), self.l, self.u)

    def deterministic(self) -> nn.Module:
        return nn.LeakyReLU((self.l + self.u) / 2)

    def extra_repr(self) -> str:
        return f"l={self.l:.4g}, u={self.u:.4g}"


class Dropout(StochasticLayer):
    """Each element is zero with probability p and scaled by 1/(1-p) otherwise."""

    def __init__(self, p: float) -> None:
        super().__init__()
        within(0, 1, p=p)
        self.p, self.random = p, p > 0
        self.register_buffer("limit", noise.threshold(1 - p), persistent=False)

    def forward(self, x: Tensor) -> Tensor:  # reads no p: one code for all
        return _Dropout.apply(x, self.keys(x), self.limit) if self.random else x

    def deterministic(self) -> nn.Module:
        return nn.Identity()

    def extra_repr(self) -> str:
        return f"p={self.p}"


class GaussianWeight(StochasticLayer):
    """A weight drawn from N(mu, sigma^2), once per forward pass: a parametrization of `mu` (see surgery.bayes).

    One draw serves the whole batch, as in Bayes by backprop. The prior is N(0, prior^2). Subclasses say what sigma is.
    """

    prior: Tensor

    def __init__(self, prior: float) -> None:
        super().__init__()
        self.register_buffer("prior", torch.tensor(float(prior)), persistent=False)  # a tensor: one code for all

    def sigma(self) -> Tensor:
        raise NotImplementedError

    def normal(self, mu: Tensor) -> Tensor:
        return noise.normal(self.noise.of_pass(self.site, mu.device), mu.shape)[0]

    def forward(self, mu: Tensor) -> Tensor:
        return mu + self.sigma() * self.normal(mu)

    def kl(self, mu: Tensor) -> Tensor:
        """KL(posterior || prior) summed over the weight's elements, in nats."""
        ratio = self.sigma() / self.prior
        return 0.5 * (ratio**2 + (mu / self.prior) ** 2 - 1).sum() - ratio.log().sum()


class LearnedGaussian(GaussianWeight):
    """A Gaussian weight with a learned deviation, sigma = softplus(rho). Training minimises, per training image,

        E_w[cross-entropy] + beta/N · KL( N(mu, sigma^2) || N(0, prior^2) ),    prior^2 = 1/(N · weight decay)

    with N training images, so that for beta = 1 the KL term pulls mu as the weight decay would. A tempered prior has
    the variance beta/(N · weight decay): then it does so for every beta, and beta weighs the entropy of w alone.
    """

    def __init__(self, mu: Tensor, sigma: float, prior: float) -> None:
        super().__init__(prior)
        self.start = float(sigma)
        self.rho = nn.Parameter(torch.full_like(mu, sigma).expm1().log())  # softplus(rho) = sigma

    def sigma(self) -> Tensor:
        return nn.functional.softplus(self.rho)
