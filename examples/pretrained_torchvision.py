"""Uncertainty of a pretrained torchvision network on your own image files.

    python examples/pretrained_torchvision.py cat.jpg dog.png            # downloads the network's weights once
    python examples/pretrained_torchvision.py --random-weights cat.jpg   # tries the code without a download

A network that was trained without noise loses accuracy if its ReLUs become random. So q is close to 1 here. We
measured the accuracy of such networks on scikit-learn's digits (797 test images, 20 samples, one seed):

    rectifiers   q=1      q=0.99   q=0.95   q=0.9    q=0.8
     2           96.7 %   96.6 %   96.5 %   95.7 %   94.4 %
    17           93.5 %   93.5 %   93.2 %   92.5 %   90.2 %

We did not measure this on ImageNet. Before you rely on it, compare with --q 1 on your own images. For q = 0.9, as in
the paper, train or fine-tune the network that `rbue.randomize` returns.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs from a clone, without an install

import torch
from PIL import Image, ImageOps
from torch import nn
from torchvision import models

import rbue


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Uncertainty of a pretrained torchvision network on image files.")
    parser.add_argument("images", nargs="+", type=Path, help="image files, such as JPEG or PNG")
    parser.add_argument("--network", default="resnet18", help="a classifier of torchvision.models that has rectifiers")
    parser.add_argument("--q", type=float, default=0.99, help="the probability of keeping a rectifier")
    parser.add_argument("--samples", type=int, default=30, help="stochastic passes per image")
    parser.add_argument("--random-weights", action="store_true", help="download nothing; the predictions mean nothing")
    return parser.parse_args()


def load(name: str, random_weights: bool) -> tuple[nn.Module, models.Weights]:
    """Return the network and the description of its weights, which has the class names and the image transforms."""
    if name not in models.list_models(models):
        raise ValueError(f"{name} is not a classifier of torchvision.models, such as resnet18")
    weights = models.get_model_weights(name).DEFAULT
    network = models.get_model(name, weights=None if random_weights else weights)
    if getattr(network, "aux_logits", False):  # as in Inception; its second output is for training only
        network.aux_logits = False
        for part in [part for part, _ in network.named_children() if part.lower().startswith("aux")]:
            setattr(network, part, None)
    return network.eval(), weights


def read(path: Path) -> Image.Image:
    """Read an image, turned upright as its camera says."""
    with Image.open(path) as image:
        return ImageOps.exif_transpose(image).convert("RGB")


def main() -> None:
    wanted = arguments()
    torch.manual_seed(0)
    network, weights = load(wanted.network, wanted.random_weights)
    prepare, classes = weights.transforms(), weights.meta["categories"]
    images = torch.stack([prepare(read(path)) for path in wanted.images])

    prediction = rbue.predict(rbue.randomize(network, q=wanted.q), images, samples=wanted.samples)
    for path, mean, entropy, mutual in zip(
        wanted.images, prediction.mean, prediction.entropy, prediction.mutual_information, strict=True
    ):
        print(f"{path}: entropy {entropy:.3f} nats, mutual information {mutual:.3f} nats")
        for probability, number in zip(*mean.topk(3), strict=True):
            print(f"  {probability:6.1%}  {classes[number]}")


if __name__ == "__main__":
    try:
        main()
    except (rbue.UserError, ValueError, RuntimeError, OSError) as error:  # a wrong name, a bad file, a failed download
        sys.exit(f"error: {error}")
