"""Captions with the paper's numbers, and alternative texts for readers who cannot see a figure."""

import pandas as pd

from rbue.report.rows import place_name

SOURCES = {  # of corrupted images → how a caption names them
    "generated": "images generated here",
    "official": "official images",
    "unverified": "unverified images, which have the official layout but another md5",
}
PRINTED = {  # file name → {dataset: the paper's figure}, and the network that it shows
    **{f"corruptions-{source}": ({"cifar10": 5, "tinyimagenet": 7}, "densenet121") for source in SOURCES},
    **{f"corruptions-{source}-ece": ({"cifar10": 6, "tinyimagenet": 8}, "densenet121") for source in SOURCES},
    "diversity-jsd": ({"cifar10": 9}, "resnet18"),
    "diversity-dis": ({"cifar10": 10}, "resnet18"),
    "behaviours": ({"cifar10": 11}, "resnet18"),
}

GENERAL = {  # file name, with or without a dataset's prefix → (caption, alternative text)
    "activations": (
        "**Figure 1: three activations** (Section 3.2): eight draws of each, computed by the suite's own layers.",
        "ReLU is zero left of the origin; DropReLU is either ReLU or the identity; RReLU has slopes between one eighth "
        "and one third.",
    ),
    "activations-network": (
        "**Figure 2: a network with random activations** (Section 3.2): each unit draws its own.",
        "Two small networks; with DropReLU some units are straight lines, with RReLU all bend by different slopes.",
    ),
    "variance": (
        "**Variance over q** (Section 3.4): the exact formula, a simulation, the paper's formula, and dropout on the "
        "same inputs. The paper's proof adds the variances of two terms that depend on the same random variable, and "
        "omits their covariance.",
        "Left, curves over q: the simulation lies on the exact curve, dropout's curve lies above it, and the paper's "
        "formula far above both. Right, bars at q = 0.8: two terms add up to the paper's value, and their covariance "
        "reduces it to the exact one.",
    ),
    "shot_noise": (
        "**Figure 4: shot noise** at severities 1 to 5, beside the clean test images (Section 4.1).",
        "Four test images, grainier from left to right.",
    ),
    "corruptions": (
        "**All corruption types** at severities 1 to 5, on one test image.",
        "A sheet of one test image under every corruption type, severity growing from left to right.",
    ),
}


def under_corruption(source):
    """Return the captions and alternative texts of the two figures of one source."""
    return {
        f"corruptions-{source}": (
            "**Under corruption** (Sections 4.2, 4.3): boxes are quartiles over the types, whiskers minimum and "
            f"maximum; {SOURCES[source]}.",
            "Accuracy falls and ECE rises with severity; a box for each method and severity.",
        ),
        f"corruptions-{source}-ece": (
            f"**Median ECE** over the types (Sections 4.2, 4.3); {SOURCES[source]}.",
            "One curve of median ECE by severity for each method.",
        ),
    }


COMPARED = "our accuracy and ECE minus the printed ones, one point per cell, with 95 % intervals"
COST = "ECE against test time, in milliseconds per image"
ZERO = "Points around a line at zero, which is the printed number, for accuracy and for ECE"
CROSSES = "Crosses are one pass with the noise switched off, a plus is Single after temperature scaling."
BOTH = (
    f"**Our numbers compared with the printed ones.** Left: {COMPARED}. Right: {COST}.",
    f"{ZERO}; and curves of ECE over test time, one for each method. Colours stand for rows and markers for networks "
    f"in both. {CROSSES}",
)
COMPARED_ALONE = f"**Our numbers compared with the printed ones**: {COMPARED}.", f"{ZERO}."
COST_ALONE = f"**Calibration and test time**: {COST}.", f"Curves of ECE over test time, one for each method. {CROSSES}"
NETWORK = {
    "framework": (
        "**Figure 3: how uncertainty is estimated** (Section 3.3): a real test image, its sampled predictions, their "
        "mean, and the entropy of the mean.",
        "A test image, arrows to bar charts of four stochastic passes, their mean, and a gauge of its entropy.",
    ),
    **{name: words for source in SOURCES for name, words in under_corruption(source).items()},
    "diversity-jsd": (
        "**Divergence** (Section 4.4): the Jensen–Shannon divergence between every two of four samples or members.",
        "A four by four matrix for each method; darker pairs differ more.",
    ),
    "diversity-dis": (
        "**Disagreement** (Section 4.4): the share of test images for which two samples predict different classes.",
        "A four by four matrix for each method; darker pairs disagree more.",
    ),
    "behaviours": (
        "**Space of behaviours** (Section 4.5): the bottom right corner is best. Filled points are ours, with bars of "
        "1 standard error; hollow points are the paper's, joined to ours by a thin line.",
        "Accuracy to the right against ECE upwards. Each row has a colour and a marker of its own: filled for our "
        "point, hollow for the paper's.",
    ),
    "variance": (
        "**Variance layer by layer** (Section 3.4) in the trained networks. Dropout comes after the rectifier here, as "
        "in real networks; in the paper's proof, it has the same inputs as DropReLU. DropReLU has the larger variance "
        "in layers where the negative inputs have the larger sum of squares.",
        "One panel for each q, with the variance of every layer on a logarithmic axis: the simulation lies on the "
        "exact values, the paper's formula lies above them; dropout's may lie above or below.",
    ),
    "posterior": (
        "**Posterior learned by variational inference**: the standard deviations of the weights per layer, and KL and "
        "accuracy during training. If the standard deviations stay near their initial values, the network fits the "
        "training images; if they grow, it underfits.",
        "For each method, a band of standard deviations by layer, next to a curve of KL and of training accuracy.",
    ),
    "samples": (
        "**Scores against test cost**, in passes and in milliseconds. We measured the time of the first pass, "
        "without noise, and that of all passes together; the other passes share the rest equally.",
        "Panels of accuracy, ECE and NLL with one curve for each method, over the number of passes on a logarithmic "
        "axis; where times were measured, a second line of panels over milliseconds per image. A dotted line is a "
        "method that needs one pass.",
    ),
    "reliability": (
        "**Reliability**: accuracy against confidence; on the diagonal both are equal. Each dot is a bin; its area is "
        "the share of images in it.",
        "A diagram for each method; dots above the diagonal are underconfident, below it overconfident. Lines join "
        "the dots to the diagonal.",
    ),
    "rejection": (
        "**Rejection**: the error on the remaining images after the most uncertain ones are rejected, on a logarithmic "
        "axis. Single and Deep Ensemble are in both panels, for comparison.",
        "A curve for each method that falls as more images are rejected.",
    ),
}


def headline_words(path):
    """Return the caption and the alternative text of what is drawn: the comparison, the costs, or both."""
    if not path.exists():
        return BOTH
    kinds = set(pd.read_csv(path).kind)
    if "printed" not in kinds:
        return COST_ALONE
    return BOTH if len(kinds) > 1 else COMPARED_ALONE


def of_network(stem, network):
    """Return the caption, with the paper's number before its title (`**Figure 9: divergence** …`), and the alternative
    text of a network's figure."""
    caption, alt = NETWORK[stem]
    number = numbered(stem, network)
    caption = f"**{number}{caption[2].lower()}{caption[3:]}" if number else caption
    return caption, f"{network.title()}. {alt}"


def numbered(stem, network):
    """Return `Figure 9: ` if the paper has this figure; `As Figure 9, for VGG-13: ` if it shows another network."""
    numbers, arch = PRINTED.get(stem, ({}, ""))
    number = numbers.get(network.dataset) or next(iter(numbers.values()), None)
    if number is None:
        return ""
    if network.dataset in numbers and network.arch == arch:
        return f"Figure {number}: "
    return f"As Figure {number}, for {place_name(network.dataset, network.arch)}: "


def numbered_title(found):
    """Return the table's title with the paper's number, if the paper has such a table."""
    kind, _, rest = found.title.partition(":")
    printed = "" if any(column.side == "paper" for column in found.columns) else "As "
    return f"{printed}Tables 4 and 5, diversity:{rest}" if kind == "Diversity" else found.title
