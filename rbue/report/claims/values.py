"""A number and what it can tell apart.

The one place that decides when two numbers differ:

- A printed number is taken at face value: a win has to clear the rounding of both sides, half a last digit each.
  .03 against .04 is a win, since rounding keeps order; .03 against .03 is a tie; 63 % against 63.39 % is a tie.
- A measured number has a standard error, and a win has to exceed 1.96 standard errors of the difference.
- Paired, where every side has stored predictions: replicates over test images, which both sides share, and over seeds
  where there are several; see rbue/bootstrap.py. With one seed per side that is about these networks, not the methods.
- Unpaired, where one has none: SE² = (test images)² + (seeds)². Test images: binomial, √(v(1-v)/images), of the
  accuracy, and of a disagreement. The same bounds an ECE, which is |mean of confidence - correct| where a network is
  over- or underconfident throughout. Seeds: std/√n from n = 2 up. Both sides are treated as independent although they
  share the test images, so the error is rather too large: with one seed this leaves room for the seed noise that one
  run cannot show. Where n = 1, training time is taken to vary by 2 % (the paper's own vary by more: claim X8), and a
  divergence by as much as the six pairs of one run do.
- `beyond` asks both at once, also of printed numbers: rounding, and 1.96 binomial standard errors.

One claim asks many such questions: `holm` says which answers chance could have given among so many.
"""

from dataclasses import dataclass, field
from functools import cached_property
from math import copysign, hypot, inf, isnan, sqrt

from scipy.special import ndtr, stdtr, stdtrit  # scipy.stats takes a second to import

from rbue.report.bootstrap import Sampling

Z, LEVEL = 1.96, 0.05
EXACT = 1e-9  # 0.04 - 0.03 is not 0.01 in binary


@dataclass(frozen=True)
class Value:
    mean: float
    half: float = 0.0  # half a last printed digit; 0 for measured numbers
    se: float = 0.0  # unpaired
    sampling: Sampling | None = field(default=None, compare=False)

    def __add__(self, other):
        paired = self.sampling and other.sampling and self.sampling + other.sampling
        return Value(self.mean + other.mean, self.half + other.half, hypot(self.se, other.se), paired)

    def __sub__(self, other):
        return self + other * -1

    def __mul__(self, factor):
        paired = self.sampling and self.sampling * factor
        return Value(self.mean * factor, self.half * abs(factor), self.se * abs(factor), paired)

    def __truediv__(self, other):
        """A ratio of positive numbers; errors to first order, unpaired."""
        ratio = self.mean / other.mean
        half = ratio * (self.half / self.mean + other.half / other.mean)
        return Value(ratio, half, ratio * hypot(self.se / self.mean, other.se / other.mean))

    @property
    def paired(self):
        return self.sampling is not None

    @property
    def judged(self):
        """How chance is reckoned with; empty where it has no part, in printed numbers and counts."""
        return "paired" if self.paired else "unpaired" if self.se and not self.half else ""

    @cached_property
    def error(self):
        return self.sampling.error if self.paired else self.se

    @cached_property
    def reach(self):
        """Half a 95 % interval."""
        few = self.paired and self.sampling.freedom < inf
        return self.error * (-float(stdtrit(self.sampling.freedom, LEVEL / 2)) if few else Z)

    @cached_property
    def p(self):
        """Two-sided, of this difference being zero; None for a printed one, where rounding decides and not chance."""
        if self.half:
            return None
        if isnan(self.error):  # of a test set of unknown size: tells nothing
            return 1.0
        if not self.error:
            return float(not self.sign)
        few, far = self.paired and self.sampling.freedom < inf, -abs(self.mean) / self.error
        return 2 * float(stdtr(self.sampling.freedom, far) if few else ndtr(far))

    @property
    def sign(self):
        """+1 or -1 where this difference is told apart from zero, else 0."""
        return self._sign(self.half - EXACT if self.half else self.reach)

    @property
    def beyond(self):
        """The same, against rounding and noise together."""
        return self._sign(max(self.half + EXACT, self.reach))

    def _sign(self, tolerance):
        return int(copysign(1, self.mean)) if abs(self.mean) > max(tolerance, EXACT) else 0


def binomial(share, images):
    """Standard error of a share of the test images; 0 where their number is not known."""
    return sqrt(max(share * (1 - share), 0) / images) if images else 0.0


def holm(ps, level=LEVEL):
    """Which of these p-values stand when the chance of any false one among them is to stay below the level (1979)."""
    order, stands = sorted(range(len(ps)), key=ps.__getitem__), [False] * len(ps)
    for rank, k in enumerate(order):
        if ps[k] > level / (len(ps) - rank):
            break
        stands[k] = True
    return stands
