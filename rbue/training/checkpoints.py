"""Weights and checkpoints on disk: written whole or not at all, read as tensors and plain values, never as code."""

from contextlib import contextmanager, suppress

import torch

from rbue import methods
from rbue.errors import UserError
from rbue.runs import results
from rbue.runs.results import weights_folder


def build(run, data):
    network = methods.build(run, data.classes, len(data.train_images))
    return methods.try_out(run, network, data.train_images, data.classes)


def load_trained(run, data, device):
    """The trained network and the record of its training."""
    path = weights_folder(run) / "weights.pt"
    saved, network = load(path, device), build(run, data).to(device)
    with check_content(path):
        network.load_state_dict(saved["network"])
        return network.eval(), saved["record"]


def steps_done(run):
    """How many steps the run's checkpoint has; an unreadable one counts as none here, and is named when it is used."""
    with suppress(UserError):
        path = weights_folder(run) / "checkpoint.pt"
        saved = load(path, "cpu") if path.exists() else {"step": {"count": 0}}
        with check_content(path):
            return int(saved["step"]["count"])
    return 0


def load(path, device):
    """Weights or a checkpoint. Only tensors and plain values are read, never code."""
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # a truncated zip, a foreign pickle, an unreadable disk: all mean the same to the user
        raise UserError(f"{path} cannot be read ({type(error).__name__}): move it away to train again") from error


@contextmanager
def check_content(path):
    """Refuse a file that can be read but holds something else."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        why = f"{path} is not of this training ({type(error).__name__})"
        raise UserError(f"{why}: move it away to train again") from error


def save(path, content):
    """Whole or not at all: a crash or a full disk while writing leaves the file before it."""
    with results.replacing(path) as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:  # torch's zip writer hides the disk's own error behind its own
            raise (error.__context__ if isinstance(error.__context__, OSError) else error) from error
