"""Monte-Carlo prediction (Section 3.3): `predict` for any network, and the samplers behind it."""

from rbue.sampling.prediction import Prediction, predict
from rbue.sampling.samplers import are_probabilities, equal_up_to_rounding, probabilities, sampler

__all__ = ["Prediction", "are_probabilities", "equal_up_to_rounding", "predict", "probabilities", "sampler"]
