"""Answers, and numbers in words."""

from collections.abc import Iterable

from rbue.report.claims.evidence import listed, places_text
from rbue.report.claims.values import Value
from rbue.report.rows import place_name
from rbue.report.verdict.evidence import Evidence

Found = tuple[str, str]  # answer and sentence
YES, PARTLY, NO, UNKNOWN = "yes", "partly", "no", "not measured"
IN_ACCURACY, IN_ECE = "in accuracy, not in ECE", "in ECE, not in accuracy"
NOTHING = UNKNOWN, "No network has all the rows that this needs"
NO_TIMES = UNKNOWN, f"{NOTHING[1]}, with times from a GPU"  # other programs take part of a CPU's time
WORDS = {"accuracy": ("accuracy", ".2f", " percentage points"), "ece": ("ECE", ".3f", "")}


def answer(parts: list[bool]) -> str:
    """Return YES if all parts hold, NO if none does, else PARTLY."""
    return YES if all(parts) else PARTLY if any(parts) else NO


def answer_per_metric(accuracy: bool, ece: bool) -> str:
    """Return whether something holds in both metrics, or in which of them."""
    return (YES if ece else IN_ACCURACY) if accuracy else (IN_ECE if ece else NO)


def compare(gaps: dict[str, Value]) -> str:
    """Say what one side shows, compared with another: {metric: gap, positive if better}."""
    return " and ".join(compare_in(metric, gap) for metric, gap in gaps.items())


def compare_in(metric: str, gap: Value) -> str:
    """Return `a lower ECE (−0.020 [−0.022, −0.018])`, with the 95 % interval in square brackets."""
    name, form, unit = WORDS[metric]
    shown = gap * (-1 if metric == "ece" else 1)
    size, low, high = (signed(x, form) for x in (shown.mean, shown.mean - shown.reach, shown.mean + shown.reach))
    found = ("no measurable difference in", "a higher", "a lower")[shown.sign]
    return f"{found} {name} ({size} [{low}, {high}]{unit})"


def signed(number: float, form: str) -> str:
    return f"{number:+{form}}".replace("-", "−")


def settings(places: list) -> str:
    """Return how many pairs of dataset and network there are, or the name of the only one."""
    if len(places) > 1:
        return f"{len(places)} dataset-network pairs"
    return f"{place_name(*places[0])} alone"


def about(e: Evidence, places: list, rows: Iterable[str]) -> str:
    return f"mean over {settings(places)}, {e.seeds(places, rows)}"


def protocols_and_places(cells: dict) -> str:
    protocols = listed([f"`{name}`" for name in sorted({name for names in cells.values() for name in names})])
    return f"protocol {protocols}: {places_text({cell[:2] for cell in cells})}"
