"""A number with its error, and the rule for when two numbers differ. No other module decides this.

- Printed numbers: a difference is a win if it exceeds the rounding of both sides, half a last digit each. .03 against
  .04 is a win, since rounding keeps order; .03 against .03 is a tie; 63 % against 63.39 % is a tie.
- Measured numbers: a difference is a win if its 95 % interval does not contain zero.
- Paired, if both sides have stored predictions: the error comes from replicates over test images, which both sides
  share, and over seeds; see rbue/report/bootstrap.py. All rows of a dataset count as having the same variance over
  seeds. If no row has a second seed, the error is about these networks, not about the methods.
- Unpaired, if one side has none: SE² = (test images)² + (seeds)². Test images: the binomial error √(v(1-v)/images) for
  an accuracy and a disagreement. It also bounds the error of an ECE, which is |mean of confidence - correct| if a
  network is over- or underconfident throughout. Seeds: std/√n from n = 2 on. Both sides count as independent although
  they share the test images, so the error is rather too large. With one seed this allows for the seed noise, which
  one run cannot show. A training time also varies by 1 % between sessions, which seeds trained together do not show.
  In 8 rows that one code trained in several sessions, its standard deviation is 0.9 %; the paper's is larger: claim X8.
  A divergence varies as much as the six pairs of one run; so does a disagreement, if that is more than its binomial
  error: SVI draws weights once per pass, so its errors on different images are not independent.
- Training times compare only if they come from one machine and one version of the code (`origin`).
- `beyond` needs both, also for printed numbers: more than rounding, and more than 1.96 binomial standard errors.

A claim makes many such comparisons: `holm` finds those that chance does not explain.
"""

from dataclasses import dataclass, field
from functools import cached_property
from math import copysign, hypot, inf, isnan

import numpy as np
from scipy.special import ndtr, stdtr, stdtrit  # scipy.stats takes a second to import

from rbue.report.bootstrap import Sampling

Z, LEVEL = 1.96, 0.05
EXACT = 1e-9  # 0.04 - 0.03 is not exactly 0.01 in binary


@dataclass(frozen=True)
class Value:
    mean: float
    half: float = 0.0  # half of the last printed digit; 0 for measured numbers
    se: float = 0.0  # unpaired standard error
    sampling: Sampling | None = field(default=None, compare=False)
    origin: str = ""  # of a training time: the machine and the code that it was measured with
    also: tuple["Value", ...] = ()  # the same time, measured with other versions of the code

    def __add__(self, other):
        paired = self.sampling and other.sampling and self.sampling + other.sampling
        return Value(self.mean + other.mean, self.half + other.half, hypot(self.se, other.se), paired)

    def __sub__(self, other):
        return self + other * -1

    def __mul__(self, factor):
        paired = self.sampling and self.sampling * factor
        return Value(self.mean * factor, self.half * abs(factor), self.se * abs(factor), paired)

    def __truediv__(self, other):
        """Return the ratio of positive numbers, with unpaired errors to first order."""
        ratio = self.mean / other.mean
        half = ratio * (self.half / self.mean + other.half / other.mean)
        return Value(ratio, half, ratio * hypot(self.se / self.mean, other.se / other.mean))

    @property
    def judged(self):
        """How noise is accounted for; empty for printed numbers and counts, which have none."""
        return "paired" if self.sampling else "unpaired" if self.se and not self.half else ""

    @cached_property
    def error(self):
        return self.sampling.error if self.sampling else self.se

    @cached_property
    def freedom(self):
        """The degrees of freedom of the error; infinite for a normal distribution."""
        return self.sampling.freedom if self.sampling else inf

    @cached_property
    def reach(self):
        """Half the width of a 95 % interval."""
        return self.error * (Z if self.freedom == inf else -float(stdtrit(self.freedom, LEVEL / 2)))

    @property
    def p(self):
        """Two-sided p-value of this difference; None for printed numbers, where rounding decides."""
        return None if self.half else self.chance

    @cached_property
    def chance(self):
        """Two-sided p-value of this difference by its error alone, for printed numbers too."""
        if isnan(self.error):  # the size of the test set is unknown, so no difference can be found
            return 1.0
        if not self.error:
            return float(not self.sign)
        far = -abs(self.mean) / self.error
        return 2 * float(ndtr(far) if self.freedom == inf else stdtr(self.freedom, far))

    @property
    def sign(self):
        """+1 or -1 if this difference is distinguishable from zero, else 0."""
        return self._sign(self.half - EXACT if self.half else self.reach)

    @property
    def beyond(self):
        """The sign beyond rounding and noise together."""
        return self._sign(max(self.half + EXACT, self.reach))

    def _sign(self, tolerance):
        return int(copysign(1, self.mean)) if abs(self.mean) > max(tolerance, EXACT) else 0


def of_one_origin(times):
    """Return these times as one version of the code measured them on one machine, or None if none measured them all."""
    known = [{time.origin: time for time in (value, *value.also)} for value in times]
    common = [origin for origin in known[0] if all(origin in others for others in known)] if known else []
    return [versions[common[0]] for versions in known] if common or not times else None


def binomial(share, images):
    """Standard error of a share of the test images, or of several shares."""
    return np.sqrt(np.maximum(share * (1 - share), 0) / images)


def holm(ps):
    """Which p-values stay significant while the chance of any false positive is below LEVEL (Holm 1979)."""
    order, stands = sorted(range(len(ps)), key=ps.__getitem__), [False] * len(ps)
    for rank, k in enumerate(order):
        if ps[k] > LEVEL / (len(ps) - rank):
            break
        stands[k] = True
    return stands
