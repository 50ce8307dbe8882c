"""The caption of each figure's file, and the alternative text for readers who cannot see it."""

GENERAL = {  # file name, with or without a dataset's prefix → (caption, alternative text)
    "activations": (
        "**Three activations** (Section 3.2), drawn from the layers themselves: eight draws of each.",
        "ReLU is zero left of the origin; DropReLU is either that or the identity; RReLU has slopes between one eighth "
        "and one third.",
    ),
    "activations-network": (
        "**A network with them** (Section 3.2): every unit draws its own rectifier.",
        "Two small networks; with DropReLU some units are straight lines, with RReLU all bend by different slopes.",
    ),
    "variance": (
        "**Variance over q** (Section 3.4): the exact formula, the draws and the paper's. The proof adds the variances "
        "of two terms that share one coin and forgets their covariance.",
        "The draws lie on the exact curve; dropout's lies above it and the paper's formula far above both.",
    ),
    "shot_noise": (
        "**Shot noise** at severities 0 to 5 (Section 4.1), on test images.",
        "Four test images, grainier from left to right.",
    ),
    "corruptions": (
        "**All corruption types** at severities 1 to 5, on one test image.",
        "A sheet of one test image under every corruption type, severity growing from left to right.",
    ),
}
NETWORK = {
    "framework": (
        "**How uncertainty is read off** (Section 3.3): a real test image, its sample predictions, their mean and its "
        "entropy.",
        "A test image, arrows to bar charts of four stochastic passes, their mean, and a gauge of its entropy.",
    ),
    "corruptions-generated": (
        "**Under corruption** (Sections 4.2, 4.3): boxes are quartiles over the types, whiskers minimum and maximum; "
        "images generated here.",
        "Accuracy falls and ECE rises with severity; a box for each method and severity.",
    ),
    "corruptions-generated-ece": (
        "**Median ECE** over the types (Sections 4.2, 4.3); images generated here.",
        "One curve of median ECE by severity for each method.",
    ),
    "corruptions-official": (
        "**Under corruption** (Sections 4.2, 4.3): boxes are quartiles over the types, whiskers minimum and maximum; "
        "official images.",
        "Accuracy falls and ECE rises with severity; a box for each method and severity.",
    ),
    "corruptions-official-ece": (
        "**Median ECE** over the types (Sections 4.2, 4.3); official images.",
        "One curve of median ECE by severity for each method.",
    ),
    "diversity-jsd": (
        "**Divergence** (Section 4.4): Jensen–Shannon, between pairs of four samples or members.",
        "A four by four matrix for each method; darker pairs differ more.",
    ),
    "diversity-dis": (
        "**Disagreement** (Section 4.4): the share of test images on which two samples name different classes.",
        "A four by four matrix for each method; darker pairs disagree more.",
    ),
    "behaviours": (
        "**Space of behaviours** (Section 4.5): the bottom right corner is best.",
        "Accuracy to the right against ECE upwards, a point for each setting, coloured by q.",
    ),
    "variance": (
        "**Variance layer by layer** (Section 3.4) in the trained networks, beside that of dropout behind the "
        "rectifier: DropReLU varies more where negative inputs outweigh the positive.",
        "For each q, the variance of every layer: draws lie on the exact line, the paper's formula above it; "
        "dropout's line may cross it.",
    ),
    "posterior": (
        "**What variational inference learned**: the standard deviations of the weights, layer by layer, and its "
        "course over training. Where they stay near their start, the network fits; where they grow, it underfits.",
        "For each method, a band of standard deviations by layer beside a curve of KL and of training accuracy.",
    ),
    "samples": (
        "**What a sample buys**: the scores against test cost, in passes and in milliseconds. The first pass costs "
        "what the network without noise costs, the others share the rest.",
        "Curves of accuracy, ECE and NLL that flatten as samples are added; Deep Ensemble ends at four members.",
    ),
    "reliability": (
        "**Reliability**: how often a prediction is right against how sure it is; on the diagonal both are equal.",
        "A diagram for each method; dots above the diagonal are too modest, below it too sure.",
    ),
    "rejection": (
        "**Rejection**: accuracy of the images that are left once the most uncertain have been put aside.",
        "A curve for each method that rises with the share of rejected images.",
    ),
}
