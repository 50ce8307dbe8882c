"""The answer: one sentence per headline claim of the paper, computed from the results. It opens README and page.

A finding compares means over all measured networks. Its interval holds at 95 % and is about test images; from two seeds
on, it is about seeds too. What is not measured is said to be not measured.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import pandas as pd

from rbue.report.bootstrap import mean_of as mean
from rbue.report.claims.evidence import listed
from rbue.report.claims.numbers import SEVERITIES, Numbers, our_frames, paper_frame
from rbue.report.claims.values import Value, holm
from rbue.report.records import in_tables, over_seeds, records
from rbue.report.rows import LABELS, PROPOSED, by_protocol, labelled
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
    protocol: str = ""
    costs: dict = field(default_factory=dict)  # {(dataset, arch, row): {"test_ms_per_image", "tempered_ece"}}
    corrupted_passes: dict = field(default_factory=dict)  # {(dataset, arch): passes of proposed rows, corrupted images}

    @property
    def setting(self) -> str:
        return f"With `protocol={self.protocol}`, " if self.protocol else ""

    def places(self, rows: Iterable[str], *metrics: str) -> list:
        """Return the networks on which all these rows have all these metrics."""
        wanted = [(row, metric) for row in rows for metric in metrics]
        return [p for p in self.ours.places if all((*p, *cell) in self.ours.values for cell in wanted)]

    def rows(self, place: tuple, rows: Iterable[str], *metrics: str) -> list[str]:
        """Return those of the rows that have all these metrics on one network."""
        return [row for row in rows if all((*place, row, metric) in self.ours.values for metric in metrics)]

    def values(self, place: tuple, rows: Iterable[str], metric: str) -> list[Value]:
        """Return one value per row, each the larger the better: an ECE is negated."""
        return [self.ours.values[(*place, row, metric)] * (-1 if metric == "ece" else 1) for row in rows]

    def ratios(self, metric: str, row: str, other: str) -> list[float]:
        """Return a row's metric divided by that of another row, for each network where both are measured and the other
        one's is not zero; times only if one version of the code measured them."""
        places = self.places([row, other], metric)
        pairs = [(self.ours.values[(*p, row, metric)], self.ours.values[(*p, other, metric)]) for p in places]
        known = [(one, two) for one, two in pairs if metric != "time" or one.origin == two.origin]
        return [one.mean / two.mean for one, two in known if two.mean]

    def cost_ratios(self, metric: str, row: str, other: str) -> list[float]:
        """Return a row's cost divided by that of another row, for each network that one kind of hardware measured."""
        pairs = [(self.costs.get((*p, row), {}), self.costs.get((*p, other), {})) for p in self.ours.places]
        known = [(one, two) for one, two in pairs if metric in one and metric in two]
        return [one[metric] / two[metric] for one, two in known if one["hardware"] == two["hardware"]]

    def mean_cost(self, row: str, kind: str) -> float | None:
        """Return the mean over the networks where Single and the best known proposed row have this number."""
        both = [p for p in self.ours.places if all((*p, r) in self.costs for r in (SINGLE, PROPOSED[-1]))]
        found = [self.costs[*p, row].get(kind) for p in both]
        return sum(found) / len(found) if found and all(found) else None

    def about(self, places: list, rows: Iterable[str]) -> str:
        return f"mean over {settings(places)}, {self.seeds(places, rows)}"

    def seeds(self, places: Iterable[tuple], rows: Iterable[str]) -> str:
        """Return the numbers of seeds behind these cells: `n = 1 to 4`."""
        counts = {self.ours.n[(*place, row, "accuracy")] for place in places for row in rows}
        return f"n = {min(counts)}" + (f" to {max(counts)}" if len(counts) > 1 else "")


# --- numbers in words -------------------------------------------------------------------------------------------------


def largest(values: list[Value]) -> Value:
    return max(values, key=lambda value: value.mean)


WORDS = {
    "accuracy": (
        "more accurate",
        "less accurate",
        "not measurably more or less accurate",
        "{} percentage points",
        ".2f",
    ),
    "ece": ("better calibrated", "worse calibrated", "not measurably better or worse calibrated", "ECE {}", ".3f"),
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
    """Return how many pairs of dataset and network there are, or the name of the only one."""
    if len(places) > 1:
        return f"{len(places)} dataset-network pairs"
    ((dataset, arch),) = places
    return f"{dataset_name(dataset)} with {arch_name(arch)} alone"


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
    allowed = {m: [gap.half + gap.reach for gap in gaps[m]] for m in METRICS}
    agree = {m: sum(abs(gap.mean) <= most for gap, most in zip(gaps[m], allowed[m], strict=True)) for m in METRICS}
    lower = sum(gap.mean < 0 for gap in gaps["ece"])
    middle = {m: median(abs(gap.mean) for gap in gaps[m]) for m in METRICS}
    text = (
        f"{e.setting}our accuracy agrees with the printed one within rounding and noise in {agree['accuracy']} of "
        f"{len(cells)} measured cells (median difference {middle['accuracy']:.2f} percentage points), our ECE in "
        f"{agree['ece']} (median difference {middle['ece']:.3f}; ours is lower in {lower} cells). {width(allowed)}"
    )
    share = min(agree.values()) / len(cells)
    return (YES if share >= 0.9 else PARTLY if share >= 0.5 else NO), text[0].upper() + text[1:]


def width(allowed: dict[str, list[float]]) -> str:
    """Say which differences count as agreement: {metric: the tolerance of each cell}."""
    accuracy, ece = spread(allowed["accuracy"]), spread(allowed["ece"], ".3f")
    return (
        "The tolerance is wide, since both sides count as tested on different images: "
        f"{accuracy} percentage points of accuracy, depending on the cell, and {ece} of ECE"
    )


def deep_ensemble(e: Evidence) -> Found:
    """Compare Deep Ensemble with the best proposed row of each network, chosen in favour of the proposed rows."""
    places = e.places([ENSEMBLE, *PROPOSED], *METRICS)
    if not places:
        return NOTHING
    gaps = {
        m: mean([largest(e.values(p, PROPOSED, m)) - e.values(p, [ENSEMBLE], m)[0] for p in places]) for m in METRICS
    }
    text = (
        "For each metric we take the best of the five proposed rows, chosen on the test images, which favours RBUE. It "
        f"is {compare(gaps)} than Deep Ensemble(4): {e.about(places, [ENSEMBLE, *PROPOSED])}"
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
        said.append(f"{compare(gaps)} than {name}")
        signs += [gap.sign for gap in gaps.values()]
    pairs = [(p, ours, theirs) for p in places for ours in PROPOSED for theirs in [*DROPOUT, SVI]]
    reverse = [(p, theirs, ours) for p, ours, theirs in pairs]
    about = e.about(places, [*DROPOUT, SVI, *PROPOSED])
    text = (
        f"Averaged over its five rows, RBUE is {said[0]}. It is {said[1]}: {about}. "
        f"A proposed row beats one of theirs in both metrics in {better_in_both(e, pairs)} of {len(pairs)} pairs "
        f"after Holm's correction, and loses in both in {better_in_both(e, reverse)}"
    )
    return answer(signs, 1), text


def better_in_both(e: Evidence, pairs: list[tuple]) -> int:
    """Count the pairs (place, ours, theirs) in which ours is better in both metrics beyond the noise."""
    gaps = [e.values(p, [ours], m)[0] - e.values(p, [theirs], m)[0] for p, ours, theirs in pairs for m in METRICS]
    better = [gap.sign > 0 and stands for gap, stands in zip(gaps, holm([gap.p or 0.0 for gap in gaps]), strict=True)]
    return sum(all(both) for both in zip(better[::2], better[1::2], strict=True))


def training_cost(e: Evidence) -> Found:
    """Compare training times and parameters with those of Single and Deep Ensemble."""
    times = {row: e.ratios("time", row, SINGLE) for row in [*PROPOSED, ENSEMBLE]}
    ours = [ratio for row in PROPOSED for ratio in times[row]]
    parameters = e.ratios("parameters", ENSEMBLE, PROPOSED[-1])
    if not (ours and times[ENSEMBLE]):
        return NOTHING
    text = (
        f"A proposed row trains in {median(ours):.2f} times the time of Single (median of the {len(ours)} cells "
        f"that were timed with the same version of the code, {spread(ours)}), Deep Ensemble(4) in "
        f"{median(times[ENSEMBLE]):.2f} times"
    )
    if parameters:
        text += f"; Deep Ensemble(4) also stores {median(parameters):.0f} times as many parameters"
    return (YES if 2 * max(ours) <= median(times[ENSEMBLE]) else NO), text


def inference_cost(e: Evidence) -> Found:
    """Compare the measured test time with Deep Ensemble's, then what fewer passes and temperature scaling achieve."""
    best = PROPOSED[-1]
    ratio = [r for row in PROPOSED for r in e.cost_ratios("test_ms_per_image", row, ENSEMBLE)]
    if not ratio:
        return NOTHING
    passes = max(value.mean for key, value in e.ours.values.items() if key[2] in PROPOSED and key[3] == "passes")
    text = (
        f"A proposed row with {passes:.0f} passes takes {median(ratio):.1f} times as long per image as Deep "
        f"Ensemble(4) (median of {len(ratio)} cells, {spread(ratio, '.1f')})"
    )
    ece = {(row, kind): e.mean_cost(row, kind) for row in (SINGLE, best) for kind in ("ece", "ece_10", "tempered_ece")}
    if all(ece[key] for key in ((SINGLE, "ece"), (SINGLE, "tempered_ece"), (best, "ece"), (best, "tempered_ece"))):
        fewer = f" and {ece[best, 'ece_10']:.3f} (10 passes)" if ece[best, "ece_10"] else ""
        text += (
            f". Mean ECE: Single {ece[SINGLE, 'ece']:.3f} (one pass), {best} {ece[best, 'ece']:.3f} ({passes:.0f} "
            f"passes){fewer}; after temperature scaling, which needs labelled images and no further pass, Single "
            f"{ece[SINGLE, 'tempered_ece']:.3f}, {best} {ece[best, 'tempered_ece']:.3f} ({passes:.0f} passes)"
        )
    return (YES if median(ratio) <= 1 else NO), text


def corruption(e: Evidence) -> Found:
    """Compare median ECEs over the 19 corruptions, severity by severity, with the other methods, on the network that
    most rows were tested on."""
    at, baselines = [f"ece@{s}" for s in SEVERITIES], (SINGLE, DROPOUT[-1], ENSEMBLE)
    networks = [(place, e.rows(place, PROPOSED, *at), e.rows(place, baselines, *at)) for place in e.ours.places]
    networks = [network for network in networks if all(network)]
    if not networks:
        return NOTHING
    place, rows, others = max(networks, key=lambda network: len(network[1] + network[2]))

    def ece(row: str, metric: str) -> float:
        return e.ours.values[(*place, row, metric)].mean

    best = {metric: min(ece(row, metric) for row in rows) for metric in at}
    wins = {other: sum(best[metric] < ece(other, metric) for metric in at) for other in others}
    counts = " and ".join(f"{other}'s at {wins[other]} of 5 severities" for other in others)
    hardest = ", ".join(f"{row} {ece(row, at[-1]):.3f}" for row in [*rows, *others])
    absent = [row for row in (*baselines, SVI) if not e.rows(place, [row], *at)]
    seeds = {e.ours.n[(*place, row, at[0])] for row in [*rows, *others]}
    passes = f", {spread(e.corrupted_passes[place], '.0f')} passes" if place in e.corrupted_passes else ""
    text = (
        f"On {dataset_name(place[0])} with {arch_name(place[1])}, {len(rows)} of {len(PROPOSED)} proposed rows are "
        f"measured (n = {min(seeds)}{passes}). The median ECE over 19 corruptions of the best one is below {counts}; "
        f"at severity 5: {hardest}" + (f". Not measured there: {', '.join(absent)}" if absent else "")
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
    found = {name: [ratio for row in rows for ratio in ratios[row]] for name, rows in families.items()}
    shown = ", ".join(f"{spread(each, '.1f')} times for {name}" for name, each in found.items() if each)
    text = (
        f"The mean Jensen–Shannon divergence between two samples, relative to {base}'s, is {shown} (range over "
        f"{settings(max((e.places([row, base], 'mean_jsd') for row in ratios), key=len))})"
    )
    return (YES if all(more) else PARTLY if any(more) else NO), text


QUESTIONS: list[tuple[str, str, tuple[str, ...], Callable[[Evidence], Found]]] = [
    ("Are the printed numbers reproduced?", "", (), printed_numbers),
    ("Is RBUE on par with Deep Ensemble?", "on par with Deep Ensemble", ("A15", "A1"), deep_ensemble),
    ("Is it better than MC-Dropout and SVI?", "better than MC-Dropout and SVI", ("A3", "A13"), other_baselines),
    ("Is it cheap to train?", "cheap to train", ("A7", "A9", "A11"), training_cost),
    ("Is it cheap at test time?", "cheap at test time", ("A15",), inference_cost),
    ("Is it better calibrated under corruption?", "better calibrated under corruption", ("F1", "F3"), corruption),
    ("Are its samples more diverse than MC-Dropout's?", "more diverse than MC-Dropout", ("D3", "D4"), diversity),
]


def build(results: list, paper_dir: str, frames: dict | None = None) -> list[Finding]:
    """Answer every question from our runs: under `matched` if there are any, else under the protocol that there is."""
    frames = our_frames(results) if frames is None else frames
    if not frames:
        return []
    protocol = min(frames, key=by_protocol)
    runs = records(results)
    runs = runs[runs.protocol == protocol]
    evidence = Evidence(
        Numbers.of(frames[protocol]),
        Numbers.of(paper_frame(paper_dir)),
        protocol,
        costs(runs),
        corrupted_passes(runs),
    )
    return findings(evidence)


def findings(evidence: Evidence) -> list[Finding]:
    return [Finding(question, short, *find(evidence), ids) for question, short, ids, find in QUESTIONS]


def costs(runs: pd.DataFrame) -> dict:
    """Return {(dataset, arch, row): test time, ECE, ECE after 10 passes and after temperature scaling, where known}."""
    runs = runs[in_tables(runs) & ~runs.on_cpu]  # other programs take part of a CPU's time
    key, values = ["dataset", "arch", "row"], ["test_ms_per_image", "ece", "ece_10", "tempered_ece"]
    tempered = runs.result.map(lambda result: result.temperature.ece if result.temperature else None).astype(float)
    after_10 = runs.result.map(ece_after_10).astype(float)
    found = over_seeds(runs.assign(tempered_ece=tempered, ece_10=after_10), key, values).to_dict("records")
    known = {tuple(cell[name] for name in key): known_values(cell, values) for cell in found}
    measured = (runs.hardware + ", " + runs.precision).groupby([runs[name] for name in key]).unique().map(str)
    return {place: cell | {"hardware": measured[place]} for place, cell in known.items()}


def corrupted_passes(runs: pd.DataFrame) -> dict:
    """Return {(dataset, arch): passes of the proposed rows on corrupted images}, often fewer than on clean images."""
    proposed = runs[runs.corrupted & runs.listed & runs.row.isin(PROPOSED) & runs.passes.notna()]
    return proposed.groupby(["dataset", "arch"]).passes.unique().to_dict()


def known_values(cell: dict, names: list[str]) -> dict:
    return {name: cell[f"ours_{name}"] for name in names if cell[f"ours_{name}"] > 0}


def ece_after_10(result: Any) -> float | None:
    known = dict(zip(result.by_samples["samples"], result.by_samples["ece"], strict=True)) if result.by_samples else {}
    return known.get(10.0)


# --- text -------------------------------------------------------------------------------------------------------------


BEGIN, END = "<!-- verdict: built by make claims -->", "<!-- end of verdict -->"


def in_short(found: list[Finding]) -> str:
    """Return which claims hold, which do not, and which hold in part, as sentences."""
    named = {
        answer: [f.short for f in found if f.answer == answer and f.short] for answer in (YES, NO, PARTLY, UNKNOWN)
    }
    parts = [
        f"RBUE is {listed(named[YES])}" if named[YES] else "",
        f"It is not {' and not '.join(named[NO])}" if named[NO] else "",
        f"Claims that hold in part: {'; '.join(named[PARTLY])}" if named[PARTLY] else "",
        f"Not measured: {listed(named[UNKNOWN])}" if named[UNKNOWN] else "",
    ]
    return ". ".join(filter(None, parts))


def markdown(found: list[Finding], claims: str = "results/claims.md") -> str:
    """Return the answer in one line, then the findings as a Markdown list with links to the claims behind them."""
    lines = [f"**{in_short(found)}.**", ""]
    for finding in found:
        links = ", ".join(f"[{name}]({claims}#{name.lower()})" for name in finding.ids)
        evidence = f" Claims: {links}." if links else ""
        lines.append(f"- **{finding.claim} {finding.answer.capitalize()}.** {finding.sentence}.{evidence}")
    return "\n".join(lines)
