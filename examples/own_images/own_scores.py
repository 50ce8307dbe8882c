"""A corruption and a metric of your own: `plugins=own_scores` on the command line registers both."""

from rbue.data.corruptions import corruption
from rbue.metrics import metric


@corruption("posterize", severities=(6, 5, 4, 3, 2))
def posterize(images, bits, draws):
    """Keep the highest bits of every byte."""
    return images >> (8 - bits) << (8 - bits)


@metric("margin")
def margin(probs, labels):
    """Return the mean difference between the two largest probabilities."""
    first, second = probs.topk(2, dim=1).values.unbind(1)
    return (first - second).mean()
