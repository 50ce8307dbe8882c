"""Pure functions (probs, labels) -> value. probs is (images, classes); ties go to the lower class, as argmax does."""

import torch


def accuracy(probs, labels):
    return (probs.argmax(1) == labels).double().mean().item()


def ece(probs, labels, bins=30):
    """Expected calibration error over equal-width, right-closed bins of the predicted class's confidence (4.1.3).

    The paper bins by the score of the true label, which cannot be meant: its conf(B) is the predicted confidence.
    A confidence of exactly 1 falls into the last bin.
    """
    confidence, predicted = probs.double().max(1)
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64, device=probs.device)
    place = torch.bucketize(confidence, edges[1:-1])  # right-closed: edge k itself belongs to bin k
    gap = (predicted == labels).double() - confidence
    return torch.zeros_like(edges[1:]).index_add_(0, place, gap).abs().sum().item() / len(labels)


def nll(probs, labels):
    """Mean negative log-likelihood in nats; a probability of zero counts as the smallest float32."""
    chosen = probs.double().gather(1, labels[:, None])
    return -chosen.clamp_min(torch.finfo(torch.float32).tiny).log().mean().item()


def brier(probs, labels):
    """Mean squared distance to the one-hot label, between 0 and 2."""
    wanted = torch.nn.functional.one_hot(labels, probs.shape[1])
    return (probs.double() - wanted).square().sum(1).mean().item()


def entropy(probs):
    """Predictive entropy of each image in nats (Section 3.3's uncertainty)."""
    return torch.special.entr(probs).sum(-1)


def score(probs, labels, bins=30):
    """Every metric of one prediction, by name."""
    return {
        "accuracy": accuracy(probs, labels),
        "ece": ece(probs, labels, bins),
        "nll": nll(probs, labels),
        "brier": brier(probs, labels),
        "entropy": entropy(probs.double()).mean().item(),
    }


def jsd(p, q):
    """Jensen-Shannon divergence in nats, averaged over images (Section 4.4.1)."""
    p, q = p.double(), q.double()
    return (entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2).mean().item()


def disagreement(p, q):
    """Share of images that two samples label differently (Section 4.4.2)."""
    return (p.argmax(1) != q.argmax(1)).double().mean().item()


def diversity(samples):
    """Pairwise matrices between samples (samples, images, classes), or between an ensemble's members."""
    return {name: [[f(p, q) for q in samples] for p in samples] for name, f in (("jsd", jsd), ("dis", disagreement))}


def by_samples(means, labels, bins=30):
    """Metrics of the mean of the first k samples: {k: probs} in, a column a metric out."""
    rows = [{"samples": k, **score(probs, labels, bins)} for k, probs in means.items()]
    return {key: [row[key] for row in rows] for key in rows[0]}


def report(evaluated, labels, bins=30):
    """Everything a result says of one evaluation."""
    several = len(evaluated.first) > 1
    return {
        "metrics": score(evaluated.mean, labels, bins),
        "by_samples": by_samples(evaluated.by_count, labels, bins) if several else None,
        "diversity": diversity(evaluated.first) if several else None,
    }
