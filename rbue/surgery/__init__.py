"""torch.fx surgery: replace rectifiers, insert layers, and make weights random, in a copy of a traceable network."""

from rbue.surgery.bayesian import bayes, kl, plain_parameters, posteriors
from rbue.surgery.calls import modules_called
from rbue.surgery.dropout import add_dropout
from rbue.surgery.prediction import deterministic, fold, parts_of, split_at_noise
from rbue.surgery.replacing import randomize
from rbue.surgery.wiring import device_of, wire, wire_if_needed
from rbue.tracing import trace

__all__ = [
    "add_dropout",
    "bayes",
    "deterministic",
    "device_of",
    "fold",
    "kl",
    "modules_called",
    "parts_of",
    "plain_parameters",
    "posteriors",
    "randomize",
    "split_at_noise",
    "trace",
    "wire",
    "wire_if_needed",
]
