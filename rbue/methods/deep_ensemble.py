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

    @property
    def trainings(self):
        """Return Single runs of consecutive seeds, so that ensembles and Single runs share their trained networks."""
        shared = {f.name: getattr(self, f.name) for f in fields(Run)} | {"method": "single"}
        first = Single(**shared)
        return [first.with_seed(self.seed + k) for k in range(self.members)]

    @property
    def passes(self):
        return self.members
