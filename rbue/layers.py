"""The stochastic layers. They are random in training and at test time: this is the method (Section 3.3).

`surgery` gives every layer of a network its number and a shared source of noise. A layer without them draws from
torch's generator, so it also works in a network that is written by hand. The backward pass recomputes the noise instead
of storing it.
"""

from typing import Any

import torch
from torch import Tensor, nn

from rbue import noise
from rbue.errors import UserError, at_least, within
from rbue.noise import Noise


class _DropReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, keys, limit):
        kept = noise.below(keys, x.shape[1:], limit)
        y = torch.where((x < 0) & kept, 0, x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def plain(x, keys, limit):
        kept = noise.below(keys, x.shape[1:], limit)
        return torch.where((x < 0) & kept | (x == 0), 0, x)

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return torch.where(y == 0, 0, grad), None, None  # the gradient is zero exactly where the output is zero


class _RReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, keys, l, u):
        y = _RReLU.plain(x, keys, l, u)
        ctx.save_for_backward(y, inverted(keys))
        ctx.bounds = l, u
        return y

    @staticmethod
    def backward(ctx, grad):
        y, keys = ctx.saved_tensors
        return torch.where(y < 0, _RReLU.scale(grad, inverted(keys), *ctx.bounds), grad), None, None, None

    @staticmethod
    def plain(x, keys, l, u):
        return torch.where(x < 0, _RReLU.scale(x, keys, l, u), x)

    @staticmethod
    def scale(x, keys, l, u):
        """Multiply by the random slope, and round to x's type before `where`: torch 2.11 loses the gradient if the
        result of `where` is cast."""
        return (x * noise.between(keys, x.shape[1:], l, u)).to(x.dtype)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, keys, limit):
        ctx.save_for_backward(inverted(keys), limit)
        return _Dropout.plain(x, keys, limit)

    @staticmethod
    def plain(x, keys, limit):
        scale = 2.0**32 / (limit.float() + 2.0**31)  # 1 / (probability of keeping an element)
        return torch.where(noise.below(keys, x.shape[1:], limit), (x * scale).to(x.dtype), 0)

    @staticmethod
    def backward(ctx, grad):
        keys, limit = ctx.saved_tensors
        return _Dropout.plain(grad, inverted(keys), limit), None, None


def applied(function, *given):
    """Apply an autograd.Function. The transforms of torch.func, such as vmap, need its plain operations instead, except
    inside torch.compile, which has its own rules for an autograd.Function."""
    transformed = not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()
    return function.plain(*given) if transformed else function.apply(*given)


def inverted(keys: Tensor) -> Tensor:
    """Return the bitwise NOT of the keys (self-inverse), so that the compiler cannot share the draws of the two passes.
    If it did, it would store the noise, up to four bytes per element."""
    return ~keys


class Stem(nn.Conv2d):
    """A convolution of images. On a GPU it pads their three channels to eight, as tensor cores need."""

    def forward(self, x: Tensor) -> Tensor:
        return self.filled(x) if x.is_cuda else super().forward(x)

    def filled(self, x: Tensor) -> Tensor:
        x, weight = (nn.functional.pad(t, (0, 0, 0, 0, 0, -self.in_channels % 8)) for t in (x, self.weight))
        return self._conv_forward(x, weight, self.bias)


class StochasticLayer(nn.Module):
    """A layer that draws noise. `site` is its number in the network, and all layers share one source `noise`."""

    def __init__(self) -> None:
        super().__init__()
        self.noise, self.site = Noise(), 0

    def keys(self, x: Tensor) -> Tensor:
        return self.noise.of_rows(self.site, x.shape[0], x.device)

    def sample_numbers(self, x: Tensor) -> Tensor:
        """Return the number of the current sample for each image, for layers that depend on it instead of drawing."""
        return self.noise.numbers(x.shape[0], x.device)

    def constants(self) -> dict[str, Tensor]:
        """Return the hyperparameters that the layer reads from tensors, so that networks of all values share the
        compiled code."""
        return {}

    def set_constants(self) -> None:
        """Write the constants into their tensors, in place: compiled code and CUDA graphs read these tensors."""
        for name, value in self.constants().items():
            if name in self._buffers:
                getattr(self, name).copy_(value)
            else:
                self.register_buffer(name, value, persistent=False)

    def _apply(self, fn, recurse=True):
        """Move or cast the layer. Its constants are set again, since `to_empty` gives tensors without values."""
        super()._apply(fn, recurse)
        self.set_constants()
        return self

    def deterministic(self) -> nn.Module:
        """Return a layer without noise, which computes the mean. It replaces this one in `surgery.deterministic`."""
        raise NotImplementedError


class Probability:
    """A probability of a layer. Setting it also sets `random`, which is false only at `off`, and the layer's constants.

    Its value is in the layer's own dictionary, where Python and the compiler find it without a `__get__`. Set it
    between steps: torch refuses the backward pass of a Dropout whose p was set after the forward pass.
    """

    def __init__(self, name: str, off: float) -> None:
        self.name, self.off = name, off

    def __set__(self, layer: StochasticLayer, value: float) -> None:
        within(0, 1, **{self.name: value})
        layer.__dict__[self.name] = value
        layer.__dict__["random"] = bool(value != self.off)  # the compiler guards on it
        layer.set_constants()


class DropReLU(StochasticLayer):
    """A rectifier that is kept with probability q and is the identity otherwise (eq. 5). q=1 is a plain ReLU."""

    q: float = Probability("q", off=1)  # type: ignore[assignment]

    def __init__(self, q: float) -> None:
        super().__init__()
        self.q = q

    def constants(self) -> dict[str, Tensor]:
        return {"limit": noise.threshold(self.q)}

    def forward(self, x: Tensor) -> Tensor:
        return applied(_DropReLU, x, self.keys(x), self.limit) if self.random else x.relu()

    def deterministic(self) -> nn.Module:
        return nn.LeakyReLU(1 - self.q)

    def extra_repr(self) -> str:
        return f"q={self.q}"


class RReLU(StochasticLayer):
    """A rectifier that multiplies negative inputs by a slope drawn from U(l, u) (eq. 6). Unlike nn.RReLU, it is also
    random at test time."""

    l: float
    u: float

    def __init__(self, l: float = 1 / 8, u: float = 1 / 3) -> None:
        super().__init__()
        self.check(l, u)
        self.__dict__.update(l=l, u=u)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("l", "u"):
            self.check(**{"l": self.l, "u": self.u, name: value})
        super().__setattr__(name, value)

    @staticmethod
    def check(l: float, u: float) -> None:
        at_least(0, l=l, u=u)
        if not (l <= u and u > 0):  # the backward pass infers the input's sign from the output's
            raise UserError(f"l={l}, u={u} must satisfy 0 <= l <= u and 0 < u")

    def forward(self, x: Tensor) -> Tensor:
        return applied(_RReLU, x, self.keys(x), self.l, self.u)

    def deterministic(self) -> nn.Module:
        return nn.LeakyReLU((self.l + self.u) / 2)

    def extra_repr(self) -> str:
        return f"l={self.l:.4g}, u={self.u:.4g}"


class Dropout(StochasticLayer):
    """Dropout, also at test time: each element is zero with probability p and scaled by 1/(1-p) otherwise."""

    p: float = Probability("p", off=0)  # type: ignore[assignment]

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def constants(self) -> dict[str, Tensor]:
        return {"limit": noise.threshold(1 - self.p)}

    def forward(self, x: Tensor) -> Tensor:
        return applied(_Dropout, x, self.keys(x), self.limit) if self.random else x

    def deterministic(self) -> nn.Module:
        return nn.Identity()

    def extra_repr(self) -> str:
        return f"p={self.p}"


class GaussianWeight(StochasticLayer):
    """A weight drawn from N(mu, sigma^2) once per forward pass, as a parametrization of `mu` (see surgery.bayes).

    The whole batch shares one draw, as in Bayes by backprop. Outside of noise.counted and noise.using, each access to
    the weight draws anew. The prior is N(0, prior^2). Subclasses define sigma.
    """

    prior: Tensor

    def __init__(self, prior: float) -> None:
        super().__init__()
        self.prior_deviation = float(prior)
        self.set_constants()

    def constants(self) -> dict[str, Tensor]:
        return {"prior": torch.tensor(self.prior_deviation)}

    def sigma(self) -> Tensor:
        raise NotImplementedError

    def normal(self, mu: Tensor) -> Tensor:
        return noise.normal(self.noise.of_pass(self.site, mu.device), mu.shape)[0]

    def forward(self, mu: Tensor) -> Tensor:
        return mu + self.sigma() * self.normal(mu)

    def kl(self, mu: Tensor) -> Tensor:
        """Return KL(posterior || prior), summed over the weight's elements, in nats."""
        ratio = self.sigma() / self.prior
        return 0.5 * (ratio**2 + (mu / self.prior) ** 2 - 1).sum() - ratio.log().sum()


class LearnedGaussian(GaussianWeight):
    """A Gaussian weight with a learned standard deviation, sigma = softplus(rho). Training minimises, per image,

        E_w[cross-entropy] + beta/N · KL( N(mu, sigma^2) || N(0, prior^2) ),    prior^2 = 1/(N · weight decay)

    for N training images. For beta = 1, the gradient of the KL term with respect to mu equals that of weight decay.
    With a tempered prior, whose variance is beta/(N · weight decay), this holds for every beta, and beta weighs only
    the entropy of w.
    """

    def __init__(self, mu: Tensor, sigma: float, prior: float) -> None:
        super().__init__(prior)
        self.start = float(sigma)
        self.rho = nn.Parameter(torch.full_like(mu, sigma).expm1().log())  # softplus(rho) = sigma

    def sigma(self) -> Tensor:
        return nn.functional.softplus(self.rho)
