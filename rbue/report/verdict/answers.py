"""The possible answers, and what several of them say."""

from typing import NamedTuple

from rbue.report.claims.evidence import listed, places_text
from rbue.report.rows import protocol_text


class Found(NamedTuple):
    """The answer to one question, the sentences that say why, and the main numbers in a few words."""

    answer: str
    sentence: str
    brief: str = ""


YES, PARTLY, NO, UNKNOWN = "yes", "partly", "no", "not measured"
IN_ACCURACY, IN_ECE = "in accuracy, not in ECE", "in ECE, not in accuracy"
NOTHING = Found(UNKNOWN, "No network has all the rows that this needs")
NO_TIMES = Found(UNKNOWN, f"{NOTHING.sentence}, with times from a GPU")  # other programs take part of a CPU's time


def answer(parts: list[bool]) -> str:
    """Return YES if all parts hold, NO if none does, else PARTLY."""
    return YES if all(parts) else PARTLY if any(parts) else NO


def answer_per_metric(accuracy: bool, ece: bool) -> str:
    """Return whether something holds in both metrics, or in which of them."""
    return (YES if ece else IN_ACCURACY) if accuracy else (IN_ECE if ece else NO)


def protocols_and_places(cells: dict) -> str:
    """Return `protocol `fast` (30 epochs, weight decay 0.0005): CIFAR-10 DenseNet-121`."""
    datasets = {cell[0] for cell in cells}
    names = sorted({name for names in cells.values() for name in names})
    protocols = listed([protocol_text(name, datasets) for name in names])
    return f"protocol {protocols}: {places_text({cell[:2] for cell in cells})}"
