"""The possible answers, and what several of them say."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from rbue.report.claims.evidence import listed, places_text
from rbue.report.claims.values import Value, holm
from rbue.report.rows import protocol_text


class Found(NamedTuple):
    """The answer to one question, the sentences that say why, and the main numbers in a few words. `gaps` are RBUE's
    differences from another method, by what is compared."""

    answer: str
    sentence: str
    brief: str = ""
    gaps: Mapping[str, Value] = MappingProxyType({})


YES, PARTLY, NO, UNKNOWN = "yes", "partly", "no", "not measured"
IN_ACCURACY, IN_ECE = "in accuracy, not in ECE", "in ECE, not in accuracy"  # no difference measured in the other one
WORSE_IN_ECE, WORSE_IN_ACCURACY = "in accuracy, worse in ECE", "in ECE, worse in accuracy"
IN_ONE = (WORSE_IN_ACCURACY, IN_ECE, WORSE_IN_ECE, IN_ACCURACY)
NOT_CLEAR = "no clear winner"
NOTHING = Found(UNKNOWN, "No network has all the rows that this needs")
NO_TIMES = Found(UNKNOWN, f"{NOTHING.sentence}, with times from a GPU")  # other programs take part of a CPU's time


def answer(parts: list[bool]) -> str:
    """Return YES if all parts hold, NO if none does, else PARTLY."""
    return YES if all(parts) else PARTLY if any(parts) else NO


def answer_per_metric(accuracy: int, ece: int) -> str:
    """Return whether something holds in both metrics, or in which of them. 1: it holds, -1: so does the opposite."""
    if accuracy > 0 and ece > 0:
        return YES
    if accuracy > 0:
        return WORSE_IN_ECE if ece < 0 else IN_ACCURACY
    return NO if ece <= 0 else WORSE_IN_ACCURACY if accuracy < 0 else IN_ECE


def protocols_and_places(cells: dict) -> str:
    """Return `protocol `fast` (30 epochs, weight decay 0.0005): CIFAR-10 DenseNet-121`."""
    datasets = {cell[0] for cell in cells}
    names = sorted({name for names in cells.values() for name in names})
    protocols = listed([protocol_text(name, datasets) for name in names])
    return f"protocol {protocols}: {places_text({cell[:2] for cell in cells})}"


def by_chance(gaps: Mapping[str, Value]) -> list[str]:
    """Return which differences Holm's correction for all of them undoes. Printed numbers have no p-value."""
    tested = {what: gap for what, gap in gaps.items() if gap.p is not None}
    stands = dict(zip(tested, holm([gap.p for gap in tested.values()]), strict=True))
    return [what for what, gap in tested.items() if gap.sign and not stands[what]]
