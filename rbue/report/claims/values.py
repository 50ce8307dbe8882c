"""A number and what it can tell apart.

The one place that decides when two numbers differ:

- A printed number is taken at face value: a win has to clear the rounding of both sides, half a last digit each.
  .03 against .04 is a win, since rounding keeps order; .03 against .03 is a tie; 63 % against 63.39 % is a tie.
- A measured number has a standard error, and a win has to exceed 1.96 standard errors of the difference.
  SE² = (test images)² + (seeds)². Test images: binomial, √(v(1-v)/images), of the accuracy, and of a disagreement.
  The same bounds an ECE, which is |mean of confidence - correct| where a network is over- or underconfident
  throughout. Seeds: std/√n from n = 2 up. Both sides are treated as independent although they share the test images,
  so the error is rather too large: with one seed this leaves room for the seed noise that one run cannot show.
  Where n = 1, training time is taken to vary by 2 % (the paper's own vary by more: claim X8), and a divergence by as
  much as the six pairs of one run do.
- `beyond` asks both at once, also of printed numbers: rounding, and 1.96 binomial standard errors.
"""

from dataclasses import dataclass
from math import copysign, hypot, sqrt

Z = 1.96
EXACT = 1e-9  # 0.04 - 0.03 is not 0.01 in binary


@dataclass(frozen=True)
class Value:
    mean: float
    half: float = 0.0  # half a last printed digit; 0 for measured numbers
    se: float = 0.0

    def __add__(self, other):
        return Value(self.mean + other.mean, self.half + other.half, hypot(self.se, other.se))

    def __sub__(self, other):
        return self + other * -1

    def __mul__(self, factor):
        return Value(self.mean * factor, self.half * abs(factor), self.se * abs(factor))

    def __truediv__(self, other):
        """A ratio of positive numbers; errors to first order."""
        ratio = self.mean / other.mean
        half = ratio * (self.half / self.mean + other.half / other.mean)
        return Value(ratio, half, ratio * hypot(self.se / self.mean, other.se / other.mean))

    @property
    def sign(self):
        """+1 or -1 where this difference is told apart from zero, else 0."""
        return self._sign(self.half - EXACT if self.half else Z * self.se)

    @property
    def beyond(self):
        """The same, against rounding and noise together."""
        return self._sign(max(self.half + EXACT, Z * self.se))

    def _sign(self, tolerance):
        return int(copysign(1, self.mean)) if abs(self.mean) > max(tolerance, EXACT) else 0


def binomial(share, images):
    """Standard error of a share of the test images; 0 where their number is not known."""
    return sqrt(max(share * (1 - share), 0) / images) if images else 0.0
