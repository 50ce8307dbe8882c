"""Your own training loop with random ReLUs, on scikit-learn's digits. It takes a few seconds on a CPU.

    python examples/own_training_loop.py

It uses only `rbue.randomize` and `rbue.predict`, and nothing else of the suite.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs from a clone, without an install

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import rbue


def digits() -> TensorDataset:
    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32)[:, None] / 16
    return TensorDataset(images, torch.tensor(found.target))


def network() -> nn.Module:
    plain = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )
    return rbue.randomize(plain, q=0.9)  # the only line that training needs


def train(network: nn.Module, loader: DataLoader, epochs: int = 5) -> None:
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images), labels).backward()
            optimizer.step()


def main() -> None:
    torch.manual_seed(0)
    training, test = random_split(digits(), [1000, 797])
    random = network()
    train(random, DataLoader(training, batch_size=50, shuffle=True))

    prediction = rbue.predict(random, DataLoader(test, batch_size=256), samples=20)
    labels = torch.stack([test[k][1] for k in range(len(test))])
    right = prediction.mean.argmax(1) == labels
    sure = prediction.entropy.argsort()[: round(0.9 * len(labels))]
    report = {
        "accuracy": right.float().mean(),
        "accuracy without the most uncertain 10 %": right[sure].float().mean(),
        "mean entropy of right predictions, nats": prediction.entropy[right].mean(),
        "mean entropy of wrong predictions, nats": prediction.entropy[~right].mean(),
    }
    for name, value in report.items():
        print(f"{name:42}{value:.3f}")


if __name__ == "__main__":
    main()
