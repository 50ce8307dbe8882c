"""The training loop: it trains a pack of runs, epoch by epoch, from their checkpoints to their final weights."""

import gc
import math
import time
from contextlib import suppress
from dataclasses import dataclass, field

import torch
from tqdm import tqdm

from rbue.errors import Failed, UserError, failure, out_of_memory
from rbue.progress import bars
from rbue.runs import devices
from rbue.runs.provenance import own_code, package_version, step_code
from rbue.runs.results import weights_folder
from rbue.training import capture
from rbue.training.checkpoints import (
    build,
    check_content,
    check_identity,
    check_images,
    load_file,
    save,
    seen_images,
    warn_of_code,
)
from rbue.training.curves import add_row, label, open_board, report_epoch, report_start
from rbue.training.signals import Stop
from rbue.training.step import Images, Step


def origin():
    return {"code": step_code(), "torch": package_version("torch")}


@dataclass
class Training:
    """One run in training: its step on the device, its curve with one row per epoch, and its seconds so far."""

    run: object
    step: Step
    curve: list = field(default_factory=list)
    seconds: float = 0.0
    origins: list = field(default_factory=lambda: [origin()])  # what trained it, from first to last
    alone: float | None = None  # seconds that the whole training would take with the GPU to itself
    peak: int | None = None  # bytes that it needs there
    board: object = None
    own_code: dict = field(init=False)  # at the start, since files may change meanwhile

    def __post_init__(self):
        self.own_code = own_code(self.run)

    @property
    def processes(self):
        return devices.processes_on(self.step.device, self.run.per_gpu)

    @property
    def checkpoint(self):
        return weights_folder(self.run) / "checkpoint.pt"

    @property
    def curve_file(self):
        return weights_folder(self.run) / "curve.csv"

    @property
    def images(self):
        return seen_images(self.step.images.labels, self.step.images.mean, self.step.images.std)

    @property
    def steps_of_epoch(self):
        """Steps done in the current epoch. It is not 0 if a signal asked for a checkpoint in the middle of an epoch."""
        return int(self.step.count) - len(self.curve) * self.step.per_epoch

    def resume(self):
        if self.checkpoint.exists():
            saved = load_file(self.checkpoint, self.step.device)
            with check_content(self.checkpoint):
                check_identity(saved, self.run, self.checkpoint)
                check_images(saved, self.images, self.run, self.checkpoint)
                warn_of_code(saved, self.run, self.checkpoint)
                self.step.load(saved["step"])
                self.curve, self.seconds = saved["curve"], saved["seconds"]
                self.origins = [o for o in saved.get("origins", []) if o != origin()] + [origin()]
                self.step.sums.copy_(saved.get("sums", torch.zeros_like(self.step.sums)))
        self.board = open_board(self.run, len(self.curve))
        self.curve_file.unlink(missing_ok=True)  # epochs after the checkpoint are trained again
        for row in self.curve:
            add_row(self.curve_file, row)
        return self

    def save_checkpoint(self):
        content = {"step": self.step.state(), "sums": self.step.sums, "curve": self.curve, "seconds": self.seconds}
        content |= {"origins": self.origins, "own_code": self.own_code}
        save(self.checkpoint, content | {"identity": self.run.training_identity, "images": self.images})

    def finish_epoch(self, epoch):
        """Add the epoch to the curve. Return why the run must end here, or None."""
        loss, accuracy, kl = (self.step.sums / self.step.per_epoch).tolist()
        self.step.sums.zero_()
        if not math.isfinite(loss + kl):
            name, lr = self.run.training_name, self.run.lr
            what, value = ("penalty (KL)", kl) if math.isfinite(loss) else ("loss", loss)
            return Failed(f"the {what} of {name} is {value} in epoch {epoch + 1}: lower lr={lr:g}")
        row = {"epoch": epoch + 1, "loss": loss, "accuracy": accuracy, "kl": kl, "lr": self.step.lr.item()}
        self.curve.append(row)
        add_row(self.curve_file, row)
        for name in ("loss", "accuracy", "kl", "lr") if self.board else ():
            self.board.add_scalar(name, row[name], epoch + 1)
        return None

    def save_weights(self, shared):
        """Save the trained network and the record of its training, and delete the checkpoint."""
        parameters = sum(p.numel() for p in self.step.network.parameters())
        record = {
            "name": self.run.training_name,
            "parameters": parameters,
            "seconds": self.seconds,
            "alone": self.alone,
            "alone_peak_memory_bytes": self.peak,
            **{key: "+".join(dict.fromkeys(o[key] for o in self.origins)) for key in origin()},
            "curve": {key: [float(f"{row[key]:.5g}") for row in self.curve] for key in ("loss", "accuracy", "kl")},
        }
        record |= {"own_code": self.own_code} if self.own_code else {}
        saved = {"network": self.step.network.state_dict(), "record": record | shared | self.curve[-1]}
        about = {"identity": self.run.training_identity, "images": self.images}
        save(weights_folder(self.run) / "weights.pt", saved | about)
        self.checkpoint.unlink(missing_ok=True)
        if self.board:
            self.board.close()


def fit(runs, data, device):
    """Train runs of one schedule side by side and save their weights. Return {training's name: why it failed}."""
    gc.collect()  # the steps of the pack before refer to themselves, so their memory may not be free yet
    try:
        return _fit(runs, data, device)
    except torch.OutOfMemoryError as error:
        alone = f"lower batch={runs[0].batch}; this is another run"
        packed = f"lower pack={len(runs)}, which changes no result"
        raise UserError(out_of_memory(error, packed if len(runs) > 1 else alone)) from error


def _fit(runs, data, device):
    held = devices.held(device)  # what earlier work of this process left there is no part of this training
    group, failed = resume_all(runs, data, device)
    if not group:
        return failed
    packed, processes = len(group), group[0].processes
    copies = sum(t.nbytes for t in group[0].step.tensors())  # which a step's capture makes, and training does not need
    with devices.measured(device) as setup:
        with devices.measured(device) as warming_up:  # replaying a graph allocates no memory
            advance, how = capture.accelerate([t.step for t in group], device, runs[0].engine)
        for training in group if how == "captured" and processes == 1 else ():  # packs are timed in the same way
            with suppress(torch.OutOfMemoryError):  # then these stay unknown, which is no reason to lose the run
                measure_alone(training, device, advance if packed == 1 else None)
    with Stop() as stop:  # signals also wait until the weights are written
        with devices.measured(device) as cost:
            failed |= train_epochs(group, advance, stop)
        peak = max(each["peak_memory_bytes"] for each in (warming_up, cost)) - held
        at_once = packed * processes  # networks on the GPU
        shared = {"setup_seconds": setup["seconds"], "packed": at_once, "engine": how, "hardware": cost["hardware"]}
        for training in (t for t in group if t.run.training_name not in failed):
            if at_once == 1 and training.alone is None:
                training.alone = training.seconds
            if packed == 1:
                training.peak = peak - (copies if how == "captured" else 0)
            training.save_weights(shared)
    return failed


def measure_alone(training, device, replay):
    """Measure the time and the memory of a training that has the GPU to itself: shares of a pack cannot be compared.

    `replay` is its captured step, unless it is in a pack. The weights and the images of a pack are on the GPU before,
    so `held` includes them. The capture makes copies of the weights, which count in their place; the images are added.
    """
    step, held = training.step, devices.held(device)
    with devices.measured(device) as cost:
        captured = replay or capture.capture_graph([step], device).replay
    training.alone = step.total * capture.seconds_alone(step, device, captured)
    if not replay:
        training.peak = cost["peak_memory_bytes"] - held + step.images.padded.nbytes


def resume_all(runs, data, device):
    """Build every training and load its checkpoint. Return the trainings and {training's name: why it failed}."""
    group, failed, images = [], {}, Images(data, runs[0].crop, device)
    for run in runs:
        try:
            group.append(Training(run, Step(run, build(run, data), images, device)).resume())
        except UserError as error:
            failed[run.training_name] = failure(error)
    return group, failed


def train_epochs(group, advance, stop):
    """Train from the checkpoint to the last epoch while any run is left. Return {training's name: why it failed}."""
    first, name, failed = group[0], label([t.run for t in group]), {}
    steps = {"total": first.step.total, "initial": int(first.step.count), "unit": "step"}
    with tqdm(desc=name, disable=bars(), **steps) as bar:
        bar.desc = name  # tqdm drops the description of a bar that it does not draw
        report_start(bar, devices.describe(first.step.device), first.run.precision, len(first.curve))
        begun, epochs = time.perf_counter(), range(len(first.curve), first.run.epochs)
        for done, epoch in enumerate(epochs, 1):
            failed |= train_epoch(group, advance, epoch, bar, stop)
            group = [t for t in group if t.run.training_name not in failed]
            if not group:
                break
            left = (time.perf_counter() - begun) / done * (len(epochs) - done)
            report_epoch(bar, group[0].curve[-1], first.run.epochs, left)
            if (epoch + 1) % first.run.checkpoint_every == 0 and epoch + 1 < first.run.epochs:
                for training in group:
                    training.save_checkpoint()
    return failed


def train_epoch(group, advance, epoch, bar, stop):
    """Train one epoch and wait for the device only at its end. Return {training's name: why it failed}.

    Each step seeds torch's generator, which random layers of a user's network draw from, such as nn.Dropout. A pack
    shares it and uses the seed of its first run.
    """
    begun, first = time.perf_counter(), group[0].step
    seed = torch.manual_seed if first.device.type != "cpu" else torch.default_generator.manual_seed  # saves 0.2 ms
    for training in group:
        training.step.shuffle(epoch)
    for number in range(group[0].steps_of_epoch, first.per_epoch):
        seed((group[0].run.seed << 32) + epoch * first.per_epoch + number)
        advance()
        bar.update()
        if stop.asked:
            devices.synchronize(first.device)
            begun = share_time(group, begun)
            for training in group:
                training.save_checkpoint()
            stop.pass_on()
    failed = {t.run.training_name: why for t in group if (why := t.finish_epoch(epoch))}
    share_time(group, begun)
    return failed


def share_time(group, begun):
    """Add an equal share of the time since `begun` to each training. Return the time now."""
    now = time.perf_counter()
    for training in group:
        training.seconds += (now - begun) / len(group) / training.processes
    return now
