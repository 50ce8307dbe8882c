"""One training step as a function of device tensors only, so that a GPU can replay it without Python.

The step count, the order of the images, the learning rate and the noise are tensors on the device. A captured graph
would otherwise replay the Python values of the step at which it was captured.
"""

from contextlib import nullcontext

import torch

from rbue import noise
from rbue.data import augment


def autocast(run, device):
    return torch.autocast(device.type, torch.bfloat16) if run.precision == "bf16" else nullcontext()


class Images:
    """The training set on the device, shared by all trainings there."""

    def __init__(self, data, crop, device):
        self.padded = augment.pad(data.train_images.to(device), crop)
        self.labels = data.train_labels.to(device)
        self.mean, self.std = data.mean.to(device), data.std.to(device)


def learning_rates(run, steps):
    """The learning rate of every step: divided by ten at fractions of training (Section 4.1.2), or linear."""
    done = torch.arange(steps, dtype=torch.float64) / steps
    rise = (done / run.warmup).clamp(max=1) if run.warmup else torch.ones_like(done)
    if run.schedule == "linear":
        return run.lr * torch.minimum(rise, (1 - done) / (1 - run.warmup + 1e-12))
    drops = sum((done >= drop - 1e-9).double() for drop in run.lr_drops)
    return run.lr * rise * 0.1**drops


class Step:
    """A callable that trains on one batch. `sums` accumulates loss, accuracy and penalty until the caller zeroes it."""

    def __init__(self, run, network, images, device):
        self.run, self.images, self.device = run, images, device
        self.network = network.to(device, memory_format=torch.channels_last).train()
        self.per_epoch = max(1, len(images.labels) // run.batch)
        self.total = self.per_epoch * run.epochs
        self.count = torch.zeros(1, dtype=torch.int64, device=device)
        self.order = torch.zeros(self.per_epoch, min(run.batch, len(images.labels)), dtype=torch.int64, device=device)
        self.places = torch.arange(self.order.shape[1], device=device)
        self.rates = learning_rates(run, self.total).float().to(device)
        self.lr = torch.zeros((), device=device)
        self.parameters = [p for p in self.network.parameters() if p.requires_grad]
        self.optimizers = run.optimizers(self.network, self.lr)
        self.loss, self.penalty = run.loss, run.penalty  # looked up once, so that the compiler sees no import
        weight, rise = run.penalty_schedule
        self.weight, self.rise = (torch.tensor(v, device=device) for v in (weight, max(rise * self.total, 1e-9)))
        self.sums = torch.zeros(3, dtype=torch.float64, device=device)
        self.noise, self.seed = noise.of(self.network), torch.tensor(run.seed, device=device)
        self.sites, self.one_site = torch.arange(self.noise.sites, device=device), torch.arange(1, device=device)
        self.compiled_objective, self.compiled_prepare = self.objective, self.prepare

    def __call__(self):
        index, keys, drawn = self.compiled_prepare(self.count)
        with noise.using(self.noise, drawn, self.count):
            total, figures = self.compiled_objective(index, keys, self.count)
            gradients = torch.autograd.grad(total, self.parameters, allow_unused=True)
        self.update(gradients)
        self.sums += figures

    def prepare(self, count):
        """Return the indices of this step's images, and the keys for augmentation and for the stochastic layers."""
        index = self.order.index_select(0, count % self.per_epoch)[0]
        keys = noise.keys(self.seed + noise.AUGMENT, count, self.places, self.one_site)[0]
        return index, keys, noise.draw_keys(self.seed + noise.TRAIN, count, self.places, self.sites)

    def objective(self, index, keys, count):
        """Return the objective to minimise, and the curve's numbers: loss, share of correct predictions, penalty."""
        chosen = augment.crop_and_flip(self.images.padded, index, keys, self.run.crop, self.run.flip)
        labels = self.images.labels[index]
        with autocast(self.run, self.device):
            logits = self.network(augment.normalise(chosen, self.images.mean, self.images.std)).float()
        loss, hits, penalty = self.loss(logits, labels), (logits.argmax(1) == labels).float().mean(), self.penalise()
        total = loss + self.penalty_weight(count) * penalty
        return total, torch.stack([loss.detach(), hits, penalty.detach()])

    def penalise(self):
        """Return the penalty per training image, such as the KL of the weights' posterior; zero if there is none."""
        return self.penalty(self.network) / len(self.images.labels) if self.penalty else self.lr.new_zeros(())

    def penalty_weight(self, count):
        """Return the penalty's weight. It rises from 0, since the prior would outweigh the data at first."""
        return self.weight * (count[0] / self.rise).clamp(max=1)

    def update(self, gradients):
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        now = self.count.clamp(max=self.total - 1)  # warm-up and timing run beyond the last step
        self.lr.copy_(self.rates.index_select(0, now)[0])
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.count += 1

    def shuffle(self, epoch):
        """Draw a new order of the images for this epoch, equal on every device. The last partial batch is left out."""
        generator = torch.Generator().manual_seed(self.run.seed * 1_000_003 + epoch)
        order = torch.randperm(len(self.images.labels), generator=generator)[: self.order.numel()]
        self.order.copy_(order.view_as(self.order))

    def state(self):
        """Return everything that a resumed training needs to give the same weights as an uninterrupted one."""
        return {
            "network": self.network.state_dict(),
            "optimizers": [o.state_dict() for o in self.optimizers],
            "count": self.count,
        }

    def load(self, state):
        self.network.load_state_dict(state["network"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            own = [{key: g[key] for key in ("lr", "capturable") if key in g} for g in optimizer.param_groups]
            optimizer.load_state_dict(saved)
            for group, settings in zip(optimizer.param_groups, own, strict=True):
                group.update(settings)  # lr may be this training's own tensor; the checkpoint may be of another device
        self.count.copy_(state["count"])

    def tensors(self):
        """Return all tensors that a step changes."""
        states = [value for o in self.optimizers for state in o.state.values() for value in state.values()]
        held = [*self.network.parameters(), *self.network.buffers(), *states, self.count, self.sums, self.lr]
        return [t for t in held if torch.is_tensor(t)]
