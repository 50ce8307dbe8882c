"""What the suite is compared with: the same work in the usual way, as in a paper's repository."""

import os
from contextlib import contextmanager
from itertools import product

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from rbue import networks
from rbue.data.corruptions import SEVERITIES, TYPES
from rbue.layers import Stem, StochasticLayer


class Textbook(StochasticLayer):
    """DropReLU or RReLU in the usual way: with a stored random mask, or with torch's own layer."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        if self.kind == "RReLU":
            return F.rrelu(x, training=True)
        kept = torch.bernoulli(torch.full_like(x, 0.9))
        return torch.where(x < 0, (1 - kept) * x, x)


class Plain(StochasticLayer):
    """A deterministic activation as a stochastic layer without noise: it shows what the rest costs by itself."""

    def __init__(self, activation=torch.relu):
        super().__init__()
        self.activation = activation

    def forward(self, x):
        return self.activation(x)


def plain_network(arch, classes):
    """Build a network without our optimizations for speed."""
    network = networks.ARCHS[arch](classes)
    for stem in (m for m in network.modules() if isinstance(m, Stem)):
        stem.__class__ = torch.nn.Conv2d
    return network


@contextmanager
def pytorch_defaults():
    """Let cuDNN choose by heuristics, as in a paper's repository."""
    ours, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = ours


class PlainLoop:
    """One step of the usual training loop, as in a paper's repository."""

    def __init__(self, arch, data, device, batch):
        self.device, self.network = device, plain_network(arch, data.classes).to(device)
        self.optimizer = torch.optim.SGD(self.network.parameters(), 0.1, 0.9, weight_decay=1e-4, nesterov=True)
        workers = min(8, os.cpu_count() - 1)
        loading = {"num_workers": workers, "pin_memory": device.type == "cuda", "drop_last": True}
        self.batches = self.endless(DataLoader(Pictures(data), batch, shuffle=True, **loading))
        self.x, self.y = (t.to(device) for t in next(self.batches))

    def endless(self, loader):
        while True:
            yield from loader

    def from_loader(self):
        x, y = next(self.batches)
        self.train(x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True))

    def from_device(self):
        self.train(self.x, self.y)

    def train(self, x, y):
        self.optimizer.zero_grad()
        F.cross_entropy(self.network(x), y).backward()
        self.optimizer.step()


class Pictures(Dataset):
    """Training images, augmented one by one on the CPU."""

    def __init__(self, data):
        from torchvision.transforms import v2 as transforms

        self.images, self.labels = data.train_images, data.train_labels
        self.transform = transforms.Compose([
            transforms.ToPILImage(), transforms.RandomCrop(data.train_images.shape[-1], 4),
            transforms.RandomHorizontalFlip(),
            transforms.ToImage(), transforms.ToDtype(torch.float32, scale=True),
            transforms.Normalize(data.mean.tolist(), data.std.tolist()),
        ])  # fmt: skip

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(self.images[index]), self.labels[index]


@torch.no_grad()
def predict_in_passes(network, pictures, count):
    """Predict as a paper's repository does: one pass of all layers per sample, fp32, batches of 500. `pictures` is a
    function, since each pass copies the images to the device again."""
    for _ in range(count):
        for x in pictures().split(500):
            network(x).softmax(1)


def package_corruptions(images):
    """Return a function that makes all corruptions which imagecorruptions can still make, and their names."""
    import cv2
    from imagecorruptions import corrupt

    cv2.setNumThreads(1)
    pictures = images.permute(0, 2, 3, 1).numpy()
    able = [name for name in TYPES if can_corrupt(corrupt, pictures[0], name)]

    def run():
        for name, severity, picture in product(able, SEVERITIES, pictures):
            corrupt(picture, corruption_name=name, severity=severity)

    return run, able


def can_corrupt(corrupt, picture, name):
    try:
        corrupt(picture, corruption_name=name, severity=1)
    except Exception as error:  # the package was written for older numpy and scikit-image
        print(f"corruptions: imagecorruptions cannot make {name} here ({type(error).__name__})")
        return False
    return True
