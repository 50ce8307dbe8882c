"""Weights and checkpoints on disk. They are written atomically and read as tensors and plain values, never as code."""

import warnings
import zlib
from contextlib import contextmanager, suppress
from zipfile import BadZipFile, ZipFile

import torch

from rbue import methods
from rbue.errors import UserError
from rbue.runs import provenance, results
from rbue.runs.results import weights_folder


def build(run, data):
    network = methods.build(run, data.classes, len(data.train_images), data.train_images[:2])
    return methods.try_out(run, network, data.train_images, data.classes)


def load_trained(run, data, device):
    """Return the trained network and the record of its training."""
    path = weights_folder(run) / "weights.pt"
    saved, network = load_file(path, device), build(run, data).to(device)
    with check_content(path):
        check_identity(saved, run, path)
        check_images(saved, seen_images(data.train_labels, data.mean, data.std), run, path)
        warn_of_code(saved["record"], run, path)
        network.load_state_dict(saved["network"])
        record = saved["record"]
    if not all(t.isfinite().all() for t in network.state_dict().values()):
        raise UserError(f"{path} holds weights that are not finite: move it away to train again")
    return network.eval(), record


def check_identity(saved, run, path):
    """Refuse the file of another run. Files of earlier versions do not say whose they are."""
    own = saved.get("identity", run.training_identity)
    if other := {key: own.get(key) for key, value in run.training_identity.items() if own.get(key) != value}:
        settings = ", ".join(f"{key}={value}" for key, value in other.items())
        raise UserError(f"{path} is of another run ({settings}): move it away to train again")


def seen_images(labels, mean, std):
    """Say in one line which images a training sees. Four digits of the pixels' mean are the same on every machine."""
    pixels = (" ".join(f"{value:.4f}" for value in each.tolist()) for each in (mean, std))
    said = "{} images, pixels {} ± {}, labels {:08x}"
    return said.format(len(labels), *pixels, zlib.crc32(labels.cpu().numpy().tobytes()))


def check_images(saved, ours, run, path):
    """Refuse a file of the same run on other images: a dataset is identified by its name alone."""
    if (theirs := saved.get("images", ours)) != ours:
        way_out = "give the new images another name, or move the file away to train again"
        raise UserError(f"{path} was trained on other images of {run.trained_on} ({theirs}, and now {ours}): {way_out}")


def warn_of_code(saved, run, path):
    """Warn if the user's method or network has changed since the training: its settings alone identify a run."""
    if changed := provenance.changed_code(run, saved.get("own_code")):
        way_out = "move it away to train again, or give the changed method or network another name"
        warnings.warn(f"{path} was trained with other code of {', '.join(changed)}: {way_out}", stacklevel=2)


def steps_done(run):
    """Return the number of steps in the run's checkpoint. An unreadable one counts as 0 here; resuming refuses it."""
    with suppress(UserError, PermissionError):
        path = weights_folder(run) / "checkpoint.pt"
        saved = load_file(path, "cpu") if path.exists() else {"step": {"count": 0}}
        with check_content(path):
            return int(saved["step"]["count"])
    return 0


def load_file(path, device):
    """Read weights or a checkpoint: tensors and plain values only, never code."""
    try:
        with ZipFile(path) as archive:  # torch does not compare the checksums that it has written
            if archive.testzip():
                raise BadZipFile
        return torch.load(path, map_location=device, weights_only=True)
    except (torch.OutOfMemoryError, MemoryError, PermissionError):  # the file may be whole
        raise
    except Exception as error:  # a truncated zip, an unknown pickle, a bad disk: the remedy is the same for all
        raise UserError(f"{path} cannot be read ({type(error).__name__}): move it away to train again") from error


@contextmanager
def check_content(path):
    """Refuse a file that can be read but does not belong to this training."""
    try:
        yield
    except torch.OutOfMemoryError:  # the file may be right
        raise
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        why = f"{path} is not of this training ({type(error).__name__})"
        raise UserError(f"{why}: move it away to train again") from error


def save(path, content):
    """Write a file atomically: a crash or a full disk during the write leaves the previous file in place."""
    with results.replacing(path) as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:  # torch's zip writer raises its own error in place of the disk's
            raise (error.__context__ if isinstance(error.__context__, OSError) else error) from error
