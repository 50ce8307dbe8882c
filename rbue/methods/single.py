"""Single: one deterministic network (Section 4.1.4, a)."""

from dataclasses import dataclass

from rbue.config import Run, unused
from rbue.methods import method


@method("single")
@dataclass
class Single(Run):
    """One deterministic network."""

    samples: int = unused()

    @property
    def passes(self):
        return 1
