"""Results of a trained network beyond the paper's tables, stored so that figures need no weights.

They are: calibration, rejection and temperature of the mean prediction; uncertainty on OOD images; scores of the
deterministic network; the variance of each DropReLU layer (Section 3.4); and one image for the framework figure.
"""

import base64
import io
import logging
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import torch
from PIL import Image

from rbue import metrics, noise, surgery
from rbue.data import augment
from rbue.data.ood import load_ood, ood_name
from rbue.errors import UserError
from rbue.evaluation import evaluator
from rbue.layers import DropReLU, GaussianWeight
from rbue.runs.compose import size_of
from rbue.runs.predictions import Predictions, auroc

NOT_SHOWN = {"tinyimagenet": [2320]}  # test images that do not belong on a page: a person without clothes
IMAGES, DRAWS = 32, 200  # test images and draws of the Monte-Carlo variance: its relative error is about 2 %
# elements per pass of the Monte-Carlo variance: they bound its memory, and a GPU is slow in small passes
AT_ONCE, AT_ONCE_ON_GPU = 2**22, 2**25

log = logging.getLogger(__name__)


def report(run, networks, test, data, evaluated):
    """Return the analyses and the predictions per image of a clean run; nothing for a corrupted one.

    The clean run of the same network has them already.
    """
    if run.corruptions != "none":
        return {}, None
    foreign = evaluate_foreign(run, test, data)
    return shown(run, networks, test, data, evaluated, foreign), predictions(evaluated, data.test_labels, foreign)


def shown(run, networks, test, data, evaluated, foreign):
    probs, labels = evaluated.mean, data.test_labels
    return {
        "reliability": metrics.reliability(probs, labels, run.bins),
        "rejection": metrics.rejection(probs, labels),
        "temperature": metrics.temperature(probs, labels, run.bins),
        "ood": ood(run, evaluated, foreign),
        "twin": deterministic_scores(run, networks[0], data, test.device),
        "variance": variance(run, networks[0], data, test.device),
        "posterior": posterior(networks[0]),
        "example": example(run, evaluated, data),
    }


def predictions(evaluated, labels, foreign):
    """Return what is stored of the predictions for each test image and each OOD image."""
    probs = evaluated.mean.double()
    true_probability = probs.gather(1, labels[:, None])[:, 0]
    kept = {
        "label": labels,
        "predicted": probs.argmax(1),
        "true_probability": true_probability,
        "brier": metrics.squared_distance(probs, labels),
        "loss": metrics.losses(probs, labels) if true_probability.min() < torch.finfo(torch.float32).tiny else None,
        **uncertainty(evaluated),
        **({f"foreign_{name}": values for name, values in uncertainty(foreign).items()} if foreign else {}),
    }
    return Predictions(**{name: None if value is None else value.numpy() for name, value in kept.items()})


def uncertainty(evaluated):
    """Return what is stored of each image, with or without a label."""
    probs = evaluated.mean.double()
    return {
        "confidence": probs.amax(1),
        "entropy": metrics.entropy(probs),
        "sample_entropy": evaluated.sample_entropy,
    }


def evaluate_foreign(run, test, data):
    """Return the predictions of the OOD images, or None if the OOD dataset is not on disk."""
    if not (name := ood_name(run.trained_on)):
        return None
    try:
        images = load_ood(run.trained_on, data, run.data_dir, size_of(name))
    except UserError as sentence:
        log.warning("no images out of distribution, so no AUROC: %s", sentence)
        return None
    return test(images)[0]


def ood(run, evaluated, foreign):
    """Measure how well each score separates OOD images from test images. Without samples, there is no mutual
    information: its value would be a rounding error."""
    if foreign is None:
        return None
    inside, outside = detection_scores(evaluated), detection_scores(foreign)
    found = {name: float(auroc(inside[name].numpy(), outside[name].numpy())) for name in inside}
    sampled = len(evaluated.first) > 1
    return {
        "dataset": ood_name(run.trained_on),
        "auroc": found["entropy"],
        "auroc_confidence": found["confidence"],
        "auroc_mutual_information": found["mutual_information"] if sampled else None,
        "entropy": outside["entropy"].mean().item(),
        "images": len(outside["entropy"]),
    }


def detection_scores(evaluated):
    """Return the scores of each image that should be high for OOD images."""
    known = uncertainty(evaluated)
    return {
        "entropy": known["entropy"],
        "confidence": -known["confidence"],
        "mutual_information": metrics.mutual_information(known["entropy"], known["sample_entropy"]),
    }


def deterministic_scores(run, network, data, device):
    """Scores and test time of the deterministic network; None for a network without stochastic layers. One pass is too
    short to compile the network for it."""
    if noise.of(network).sites == 0:
        return None
    test = evaluator.Evaluator(replace(run, engine="eager"), [surgery.deterministic(network)], data, device)
    evaluated, cost = test.timed(data.test_images, quiet=True)
    scores = metrics.score(evaluated.mean, data.test_labels, run.bins)
    return scores if test.shared_gpu else scores | {"ms_per_image": cost["ms_per_image"]}


@torch.no_grad()
def posterior(network):
    """Quantiles of the standard deviations of each random weight tensor; None for a network with fixed weights."""
    sites = [(name, m) for name, m in network.named_modules() if isinstance(m, GaussianWeight)]
    rows = []
    for name, site in sites:
        sigma = site.sigma().double().flatten()
        quantiles = np.quantile(sigma.cpu().numpy(), (0.05, 0.25, 0.5, 0.75, 0.95))  # torch's has a size limit
        layer = name.replace("parametrizations.", "").removesuffix(".0")
        rows.append({"name": layer, "elements": len(sigma), "start": site.start, "sigma": quantiles.tolist()})
    return rows or None


@torch.no_grad()
def variance(run, network, data, device):
    """One row per DropReLU layer in the order of execution, on test images in float32; None without such layers.

    Each layer is measured during the forward pass of sample 0, so that the inputs of only one layer are in memory.
    """
    sites = {module: name for name, module in network.named_modules() if isinstance(module, DropReLU)}
    if not sites:
        return None
    images, found = evaluator.nhwc(data.test_images[:IMAGES], device), []

    def counted(k, rows):
        return noise.counted(network, run.seed + noise.TEST, k, rows)

    def measure(site, inputs):
        row = {"site": len(found), "name": sites[site], **variances(site.q, *inputs)}
        found.append(row | {"monte_carlo": monte_carlo(site, *inputs, counted)})

    with ExitStack() as hooks, counted(0, torch.arange(len(images), device=device)):
        for site in sites:
            hooks.callback(site.register_forward_pre_hook(measure).remove)
        network(augment.normalise(images, data.mean.to(device), data.std.to(device)))
    return found


def monte_carlo(site, x, counted):
    """Variance over noise draws of the layer's summed output, averaged over images. One pass holds several draws."""
    rows, sums = torch.arange(len(x), device=x.device), []
    elements = AT_ONCE_ON_GPU if x.is_cuda else AT_ONCE
    for ks in torch.arange(DRAWS, device=x.device).split(max(1, elements // x.numel())):
        with counted(ks.repeat_interleave(len(x)), rows.repeat(len(ks))):
            several = x.repeat(len(ks), *[1] * (x.dim() - 1))
            noisy = site.forward(several) - several.relu()  # subtract what all draws share, since it costs precision
        sums.append(noisy.flatten(1).sum(1, dtype=torch.float64).view(len(ks), -1))
    return torch.cat(sums).var(0).mean().item()


def variances(q, x):
    """Variance of a DropReLU layer's summed output, averaged over images: the exact one and that of Section 3.4.

    If x > 0, the layer returns x whether its rectifier is kept or not, so only x < 0 varies. The paper adds the
    variances of (1-Q) x and Q ReLU(x) (its epsilon) as if the two were independent, but they share Q. Twice their
    covariance, -2 q(1-q) ReLU(x)^2, cancels the positive inputs. Dropout at the matching rate p = 1-q, unscaled as in
    the paper's proof and after a rectifier as in practice, varies where x > 0.
    """
    squares = [half.square().flatten(1).sum(1, dtype=torch.float64) for half in (x.clamp(max=0), x.clamp(min=0))]
    negative, positive = (each.mean().item() for each in squares)
    return {
        "closed": q * (1 - q) * negative,
        "paper": q * (1 - q) * (negative + 2 * positive),
        "dropout": q * (1 - q) * positive,
        "elements": x[0].numel(),
    }


def example(run, evaluated, data):
    """Return the most uncertain test image among those predicted correctly, with its first samples."""
    right = evaluated.mean.argmax(1) == data.test_labels
    right[[k for k in NOT_SHOWN.get(run.trained_on, ()) if k < len(right)]] = False
    if not right.any():
        return None
    entropy = metrics.entropy(evaluated.mean.double())
    index = torch.where(right, entropy, -1).argmax().item()
    return {
        "index": index,
        "label": data.names[data.test_labels[index]],
        "classes": list(data.names),
        "png": png(data.test_images[index]),
        "samples": evaluated.first[:, index].tolist(),
        "mean": evaluated.mean[index].tolist(),
        "entropy": entropy[index].item(),
    }


def png(image):
    """Return a uint8 image (3, H, W) as a base64 PNG, ready for an HTML page."""
    file = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).cpu().numpy()).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
