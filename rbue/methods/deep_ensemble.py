"""Deep Ensemble: independently trained networks (Section 4.1.4, c)."""

from dataclasses import dataclass, fields

from rbue.config import Run, evaluation, unused
from rbue.errors import within
from rbue.methods import method
from rbue.methods.single import Single


@method("deep_ensemble")
@dataclass
class DeepEnsemble(Run):
    """The mean prediction of `members` networks."""

    samples: int = unused()
    members: int = evaluation()

    def __post_init__(self):
        super().__post_init__()
        within(1, 1000, members=self.members)
        within(0, 2**31 // self.members - 1, seed=self.seed)

    @property
    def trainings(self):
        """Return Single runs, so that ensembles and Single runs share their trained networks. Four members have seeds 0
        to 3 for seed 0 and 4 to 7 for seed 1: with a common member, two ensembles would not be independent."""
        shared = {f.name: getattr(self, f.name) for f in fields(Run)} | {"method": "single"}
        first = Single(**shared)
        return [first.with_seed(self.seed * self.members + k) for k in range(self.members)]

    @property
    def passes(self):
        return self.members
