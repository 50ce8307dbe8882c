"""The answer: one sentence per headline claim of the paper, computed from the results. It opens README and page.

A finding compares means over all measured networks. Its interval holds at 95 % and is about test images; from two seeds
on, it is about seeds too. What is not measured is said to be not measured.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median

import pandas as pd

from rbue.report.claims.numbers import SEVERITIES, Numbers, our_frames, paper_frame
from rbue.report.claims.values import Value
from rbue.report.records import in_tables, over_seeds, records
from rbue.report.rows import FULL, LABELS, PROPOSED, labelled
from rbue.report.text import arch_name, dataset_name

YES, PARTLY, NO, UNKNOWN = "yes", "partly", "no", "not measured"
SINGLE, ENSEMBLE, SVI = (labelled({"method": "single"}), labelled({"method": "deep_ensemble", "members": 4}), "SVI")
DROPOUT = [label for label in LABELS if label.startswith("MC-Dropout")]


@dataclass(frozen=True)
class Finding:
    """One headline claim, whether it holds in our measurements, and the sentence that says why."""

    claim: str
    short: str
    answer: str
    sentence: str
    ids: tuple[str, ...]  # the claims of the ledger that have the details


@dataclass(frozen=True)
class Evidence:
    """Our numbers under one protocol, the printed ones, and what a row costs at test time."""

    ours: Numbers
    printed: Numbers
    costs: dict = field(default_factory=dict)  # {(dataset, arch, row): {"test_ms_per_image", "tempered_ece"}}

    def places(self, rows: Iterable[str], *metrics: str) -> list:
        """Return the networks on which all these rows have all these metrics."""
        wanted = [(row, metric) for row in rows for metric in metrics]
        return [p for p in self.ours.places if all((*p, *cell) in self.ours.values for cell in wanted)]

    def values(self, place: tuple, rows: Iterable[str], metric: str) -> list[Value]:
        """Return one value per row, each the larger the better: an ECE is negated."""
        return [self.ours.values[(*place, row, metric)] * (-1 if metric == "ece" else 1) for row in rows]

    def ratios(self, metric: str, row: str, other: str) -> list[float]:
        """Return a row's metric divided by that of another row, for each network where both are measured; times only
        if one version of the code measured them."""
        places = self.places([row, other], metric)
        pairs = [(self.ours.values[(*p, row, metric)], self.ours.values[(*p, other, metric)]) for p in places]
        return [one.mean / two.mean for one, two in pairs if metric != "time" or one.origin == two.origin]

    def cost_ratios(self, metric: str, row: str, other: str) -> list[float]:
        pairs = [
            (self.costs.get((*p, row), {}).get(metric), self.costs.get((*p, other), {}).get(metric))
            for p in self.ours.places
        ]
        return [one / two for one, two in pairs if one and two]

    def about(self, places: list, rows: Iterable[str]) -> str:
        return f"mean over {settings(places)}, {self.seeds(places, rows)}"

    def seeds(self, places: Iterable[tuple], rows: Iterable[str]) -> str:
        """Return the numbers of seeds behind these cells: `n = 1 to 4`."""
        counts = {self.ours.n[(*place, row, "accuracy")] for place in places for row in rows}
        return f"n = {min(counts)}" + (f" to {max(counts)}" if len(counts) > 1 else "")


# --- numbers in words -------------------------------------------------------------------------------------------------


def mean(values: list[Value]) -> Value:
    return sum(values[1:], values[0]) * (1 / len(values))


def largest(values: list[Value]) -> Value:
    return max(values, key=lambda value: value.mean)


WORDS = {
    "accuracy": ("more accurate", "less accurate", "as accurate within the noise", "{} percentage points", ".2f"),
    "ece": ("better calibrated", "worse calibrated", "as well calibrated within the noise", "ECE {}", ".3f"),
}


def compare(gaps: dict[str, Value]) -> str:
    """Say how one side compares with another: {metric: gap, positive if better}. Brackets hold the 95 % interval."""
    return " and ".join(compare_in(metric, gap) for metric, gap in gaps.items())


def compare_in(metric: str, gap: Value) -> str:
    better, worse, equal, unit, form = WORDS[metric]
    shown = gap * (-1 if metric == "ece" else 1)
    size, low, high = (signed(x, form) for x in (shown.mean, shown.mean - shown.reach, shown.mean + shown.reach))
    return f"{(equal, better, worse)[gap.sign]} ({unit.format(size)}, {low} to {high})"


def signed(number: float, form: str) -> str:
    return f"{number:+{form}}".replace("-", "−")


def spread(values: Iterable[float], form: str = ".2f") -> str:
    """Return the smallest and the largest value, or the only one."""
    values = list(values)
    low, high = (f"{value:{form}}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def settings(places: list) -> str:
    return f"{len(places)} dataset-network pair" + ("s" if len(places) > 1 else "")


def answer(signs: Iterable[int], wanted: int) -> str:
    """Return YES if all signs are at least `wanted` (0: on par, 1: better), NO if none is, else PARTLY."""
    enough = [sign >= wanted for sign in signs]
    return YES if all(enough) else PARTLY if any(enough) else NO


# --- the findings -----------------------------------------------------------------------------------------------------

Found = tuple[str, str]  # answer and sentence
NOTHING = UNKNOWN, "No network has all the rows that this needs"
METRICS = ("accuracy", "ece")


def printed_numbers(e: Evidence) -> Found:
    """Count the cells whose accuracy and ECE differ from the printed ones by no more than rounding and noise."""
    cells = [key[:3] for key in e.printed.values if key[3] == "accuracy" and key[2] in LABELS and key in e.ours.values]
    if not cells:
        return NOTHING
    gaps = {m: [e.ours.values[(*c, m)] - e.printed.values[(*c, m)] for c in cells] for m in METRICS}
    agree = {m: sum(abs(gap.mean) <= gap.half + gap.reach for gap in gaps[m]) for m in METRICS}
    middle = {m: median(abs(gap.mean) for gap in gaps[m]) for m in METRICS}
    text = (
        f"Our accuracy agrees with the printed one within rounding and noise in {agree['accuracy']} of {len(cells)} "
        f"measured cells (median difference {middle['accuracy']:.2f} percentage points), our ECE in {agree['ece']} "
        f"(median difference {middle['ece']:.3f})"
    )
    share = min(agree.values()) / len(cells)
    return (YES if share >= 0.9 else PARTLY if share >= 0.5 else NO), text


def deep_ensemble(e: Evidence) -> Found:
    """Compare Deep Ensemble with the best proposed row of each network, chosen in favour of the proposed rows."""
    places = e.places([ENSEMBLE, *PROPOSED], *METRICS)
    if not places:
        return NOTHING
    gaps = {
        m: mean([largest(e.values(p, PROPOSED, m)) - e.values(p, [ENSEMBLE], m)[0] for p in places]) for m in METRICS
    }
    text = (
        f"Against Deep Ensemble(4), the best proposed row is {compare(gaps)}: {e.about(places, [ENSEMBLE, *PROPOSED])}"
    )
    return answer([gap.sign for gap in gaps.values()], 0), text


def other_baselines(e: Evidence) -> Found:
    """Compare the mean proposed row with the mean row of MC-Dropout and with SVI."""
    places = e.places([*DROPOUT, SVI, *PROPOSED], *METRICS)
    if not places:
        return NOTHING
    said, signs = [], []
    for name, rows in (("MC-Dropout", DROPOUT), ("SVI", [SVI])):
        gaps = {m: mean([mean(e.values(p, PROPOSED, m)) - mean(e.values(p, rows, m)) for p in places]) for m in METRICS}
        said.append(f"gainst {name}, the mean proposed row is {compare(gaps)}")
        signs += [gap.sign for gap in gaps.values()]
    pairs = [(p, ours, theirs) for p in places for ours in PROPOSED for theirs in [*DROPOUT, SVI]]
    both = sum(better_in_both(e, *pair) for pair in pairs)
    count = f"Better in both metrics beyond the noise: {both} of {len(pairs)} pairs of rows"
    return answer(signs, 1), f"A{said[0]}; a{said[1]}: {e.about(places, [*DROPOUT, SVI, *PROPOSED])}. {count}"


def better_in_both(e: Evidence, place: tuple, ours: str, theirs: str) -> bool:
    gaps = [e.values(place, [ours], m)[0] - e.values(place, [theirs], m)[0] for m in METRICS]
    return all(gap.sign > 0 for gap in gaps)


def training_cost(e: Evidence) -> Found:
    """Compare training times and parameters with those of Single and Deep Ensemble."""
    times = {row: e.ratios("time", row, SINGLE) for row in [*PROPOSED, ENSEMBLE]}
    ours = [ratio for row in PROPOSED for ratio in times[row]]
    parameters = e.ratios("parameters", ENSEMBLE, PROPOSED[-1])
    if not (ours and times[ENSEMBLE]):
        return NOTHING
    text = (
        f"A proposed row trains in {median(ours):.2f} times the time of Single (median of {len(ours)} cells, "
        f"{spread(ours)}), Deep Ensemble(4) in {median(times[ENSEMBLE]):.2f} times"
    )
    if parameters:
        text += f"; Deep Ensemble(4) also stores {median(parameters):.0f} times as many parameters"
    return (YES if 2 * max(ours) <= median(times[ENSEMBLE]) else NO), text


def test_cost(e: Evidence) -> Found:
    """Compare the measured test time with Deep Ensemble's, and the ECE with temperature scaling of one pass."""
    ratio = [r for row in PROPOSED for r in e.cost_ratios("test_ms_per_image", row, ENSEMBLE)]
    best = PROPOSED[-1]
    if not ratio:
        return NOTHING
    places = [p for p in e.places([best], "ece") if "tempered_ece" in e.costs.get((*p, SINGLE), {})]
    lower = sum(e.costs[*p, SINGLE]["tempered_ece"] < e.ours.values[(*p, best, "ece")].mean for p in places)
    text = (
        f"At test time, a proposed row with 100 passes takes {median(ratio):.1f} times as long per image as Deep "
        f"Ensemble(4) (median of {len(ratio)} cells, {spread(ratio, '.1f')}). One pass of Single with temperature "
        f"scaling (fitted on other test images) has a lower ECE than 100 passes of {best} on {lower} of "
        f"{settings(places)}"
    )
    return (YES if median(ratio) <= 1 else NO), text


def corruption(e: Evidence) -> Found:
    """Compare median ECEs over the 19 corruptions, severity by severity, with the other methods."""
    at = [f"ece@{s}" for s in SEVERITIES]
    rows = [row for row in PROPOSED if e.places([row], *at)]
    others = [row for row in (SINGLE, DROPOUT[-1], ENSEMBLE) if e.places([row], *at)]
    places = e.places([*rows, *others], *at)
    if not (rows and others and places):
        return NOTHING
    place = places[0]

    def ece(row: str, metric: str) -> float:
        return e.ours.values[(*place, row, metric)].mean

    best = {metric: min(ece(row, metric) for row in rows) for metric in at}
    wins = {other: sum(best[metric] < ece(other, metric) for metric in at) for other in others}
    counts = ", ".join(f"{other}'s at {wins[other]}" for other in others)
    hardest = ", ".join(f"{row} {ece(row, at[-1]):.3f}" for row in [*rows, *others])
    text = (
        f"On {dataset_name(place[0])} with {arch_name(place[1])}, the best proposed row's median ECE over 19 "
        f"corruptions is lower than {counts} of 5 severities; at severity 5: {hardest}"
    )
    return answer([1 if wins[other] > 2 else -1 for other in others], 1), text


def diversity(e: Evidence) -> Found:
    """Compare the mean divergence of the samples' predictions with MC-Dropout's and Deep Ensemble's."""
    base = DROPOUT[-1]
    ratios = {row: e.ratios("mean_jsd", row, base) for row in [*PROPOSED, ENSEMBLE]}
    more = [ratio > 1 for row in PROPOSED for ratio in ratios[row]]
    if not more:
        return NOTHING
    families = {"MC-RReLU": PROPOSED[:1], "MC-DropReLU": PROPOSED[1:], ENSEMBLE: [ENSEMBLE]}
    medians = {name: [median(ratios[row]) for row in rows if ratios[row]] for name, rows in families.items()}
    shown = ", ".join(f"{spread(found, '.1f')} times for {name}" for name, found in medians.items() if found)
    text = (
        f"The mean Jensen–Shannon divergence between two samples, relative to {base}'s, is {shown} (median over "
        f"{settings(max(ratios.values(), key=len))})"
    )
    return (YES if all(more) else PARTLY if any(more) else NO), text


QUESTIONS: list[tuple[str, str, tuple[str, ...], Callable[[Evidence], Found]]] = [
    ("Are the printed numbers reproduced?", "its printed numbers", (), printed_numbers),
    ("Is RBUE on par with Deep Ensemble?", "on par with Deep Ensemble", ("A15", "A1"), deep_ensemble),
    ("Is it better than MC-Dropout and SVI?", "better than MC-Dropout and SVI", ("A13",), other_baselines),
    ("Is it cheap to train?", "cheap to train", ("A7", "A9", "A11"), training_cost),
    ("Is it cheap at test time?", "cheap at test time", ("A15",), test_cost),
    ("Is it better calibrated under corruption?", "better calibrated under corruption", ("F1", "F3"), corruption),
    ("Are its samples more diverse than MC-Dropout's?", "more diverse than MC-Dropout", ("D3", "D4"), diversity),
]


def build(results: list, paper_dir: str) -> list[Finding]:
    """Answer every question from our runs: under `matched` if there are any, else under the protocol that there is."""
    frames = our_frames(results)
    if not frames:
        return []
    protocol = min(frames, key=lambda name: [*FULL, name].index(name))
    runs = records(results)
    evidence = Evidence(
        Numbers.of(frames[protocol]), Numbers.of(paper_frame(paper_dir)), costs(runs[runs.protocol == protocol])
    )
    return findings(evidence)


def findings(evidence: Evidence) -> list[Finding]:
    return [Finding(question, short, *find(evidence), ids) for question, short, ids, find in QUESTIONS]


def costs(runs: pd.DataFrame) -> dict:
    """Return {(dataset, arch, row): what it costs at test time, and its ECE after temperature scaling}."""
    runs = runs[in_tables(runs)]
    tempered = runs.result.map(lambda result: result.temperature.ece if result.temperature else None)
    key, values = ["dataset", "arch", "row"], ["test_ms_per_image", "tempered_ece"]
    found = over_seeds(runs.assign(tempered_ece=tempered.astype(float)), key, values)
    return {
        tuple(cell[name] for name in key): {name: cell[f"ours_{name}"] for name in values if cell[f"ours_{name}"] > 0}
        for cell in found.to_dict("records")
    }


# --- text -------------------------------------------------------------------------------------------------------------


BEGIN, END = "<!-- verdict: built by make claims -->", "<!-- end of verdict -->"


def in_short(found: list[Finding]) -> str:
    """Return which claims hold, which hold in part, and which do not: `Reproduced: cheap to train. Partly: …`."""
    names = {YES: "Reproduced", PARTLY: "partly", NO: "not reproduced", UNKNOWN: "not measured"}
    groups = {name: [f.short for f in found if f.answer == answer] for answer, name in names.items()}
    return "; ".join(f"{name}: {', '.join(shorts)}" for name, shorts in groups.items() if shorts)


def markdown(found: list[Finding], claims: str = "results/claims.md") -> str:
    """Return the answer in one line, then the findings as a Markdown list with links to the claims behind them."""
    lines = [f"**In short:** {in_short(found)}.", ""]
    for finding in found:
        links = ", ".join(f"[{name}]({claims}#{name.lower()})" for name in finding.ids)
        evidence = f" Claims: {links}." if links else ""
        lines.append(f"- **{finding.claim} {finding.answer.capitalize()}.** {finding.sentence}.{evidence}")
    return "\n".join(lines)
