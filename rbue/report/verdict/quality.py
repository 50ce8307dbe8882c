"""Accuracy and ECE against the printed numbers and the baselines; the best method by other scores; diversity."""

from collections.abc import Callable, Collection
from dataclasses import replace
from operator import attrgetter
from statistics import fmean, median

import numpy as np

from rbue.report.bootstrap import Sampling
from rbue.report.bootstrap import mean_of as mean
from rbue.report.claims.evidence import listed
from rbue.report.claims.numbers import BLOCK
from rbue.report.claims.scopes import DE as ENSEMBLE
from rbue.report.claims.scopes import DROPOUT, DROPRELU, P5, QUALITY, RRELU, SINGLE
from rbue.report.claims.values import EXACT, Value, holm
from rbue.report.columns import decimals, from_to
from rbue.report.rows import LABELS, PROPOSED, place_name
from rbue.report.verdict.answers import (
    NO,
    NOT_CLEAR,
    NOTHING,
    PARTLY,
    YES,
    Found,
    answer,
    answer_per_metric,
    protocols_and_places,
)
from rbue.report.verdict.evidence import Evidence

WORDS = {"accuracy": ("accuracy", 2, " percentage points"), "ece": ("ECE", 3, "")}


def compare(gaps: dict[str, Value]) -> str:
    """Say what one side shows, compared with another: {metric: gap, positive if better}."""
    return " and ".join(compare_in(metric, gap) for metric, gap in gaps.items())


def compare_in(metric: str, gap: Value) -> str:
    """Return `a lower ECE (−0.020 [−0.022, −0.018])`, with the 95 % interval in square brackets."""
    name, _, unit = WORDS[metric]
    sign = gap.sign * (-1 if metric == "ece" else 1)
    found = ("no measurable difference in", "a higher", "a lower")[sign]
    return f"{found} {name} ({difference(metric, gap)}{unit})"


def difference(metric: str, gap: Value) -> str:
    """Return `−0.020 [−0.022, −0.018]`: a gap, positive if better, as the difference of the metric itself."""
    _, digits, _ = WORDS[metric]
    shown = gap * (-1 if metric == "ece" else 1)
    numbers = shown.mean, shown.mean - shown.reach, shown.mean + shown.reach
    digits += any(round(number, digits) == 0 for number in numbers[1:])  # an end of zero would hide its sign
    size, low, high = (signed(number, f".{digits}f") for number in numbers)
    return f"{size} [{low}, {high}]"


def in_brief(gaps: dict[str, Value], doubtful: Collection[str] = ()) -> str:
    """Return `accuracy −0.19 [−0.37, −0.01] points, ECE −0.009 [−0.011, −0.008]`."""
    units = {"accuracy": "accuracy {} points", "ece": "ECE {}"}
    chance = {metric: " (may be chance)" if metric in doubtful else "" for metric in units}
    return ", ".join(unit.format(difference(m, gaps[m])) + chance[m] for m, unit in units.items())


def signed(number: float, form: str) -> str:
    return f"{number:+z{form}}".replace("-", "−")  # z: no −0.00


def settings(places: list) -> str:
    """Return how many pairs of dataset and network there are, or the name of the only one."""
    if len(places) > 1:
        return f"{len(places)} dataset-network pairs"
    return f"{place_name(*places[0])} alone"


def about(e: Evidence, places: list, rows: list[str]) -> str:
    return f"mean over {settings(places)}, {e.seeds(places, rows)}"


def printed_numbers(e: Evidence) -> Found:
    """Count the cells whose accuracy and ECE differ from the printed ones by no more than rounding and noise."""
    cells = [key[:3] for key in e.printed.values if key[3] == "accuracy" and key[2] in LABELS and key in e.ours.values]
    if not cells:
        return NOTHING
    gaps = {m: [e.ours.values[(*c, m)] - e.printed.values[(*c, m)] for c in cells] for m in QUALITY}
    allowed = {m: [gap.half + gap.reach for gap in gaps[m]] for m in QUALITY}
    agree = {m: sum(abs(gap.mean) <= most for gap, most in zip(gaps[m], allowed[m], strict=True)) for m in QUALITY}
    stricter = agree_by_seeds(e, cells, gaps)
    lower = sum(gap.mean < 0 for gap in gaps["ece"])
    middle = {m: median(abs(gap.mean) for gap in gaps[m]) for m in QUALITY}
    text = (
        f"{e.setting}our accuracy agrees with the printed one in {agree['accuracy']} of {len(cells)} measured cells, "
        f"our ECE in {agree['ece']}. The median difference is {middle['accuracy']:.2f} percentage points of accuracy "
        f"and {middle['ece']:.3f} of ECE; our ECE is lower in {lower} cells. {width(allowed)}"
        f"{on_same_images(stricter, len(cells))}{left_out(e.unused)}"
    )
    brief = f"accuracy agrees in {agree['accuracy']} of {len(cells)} cells, ECE in {agree['ece']}"
    if stricter:
        answer_then = f"then the answer is “{reproduced(stricter, len(cells))}”"
        brief += f"; by a stricter rule, in {stricter['accuracy']} and {stricter['ece']} ({answer_then})"
    return Found(reproduced(agree, len(cells)), text[0].upper() + text[1:], brief)


def reproduced(agree: dict[str, int], cells: int) -> str:
    share = min(agree.values()) / cells
    return YES if share >= 0.9 else PARTLY if share >= 0.5 else NO


def width(allowed: dict[str, list[float]]) -> str:
    """Say which differences count as agreement: {metric: the tolerance of each cell}."""
    accuracy, ece = from_to(allowed["accuracy"], decimals(2)), from_to(allowed["ece"], decimals(3))
    return (
        "Two numbers agree if rounding and the sampling error of two independent test sets can explain their "
        f"difference. This allows {accuracy} percentage points of accuracy and {ece} of ECE, depending on the cell"
    )


def agree_by_seeds(e: Evidence, cells: list, gaps: dict[str, list[Value]]) -> dict[str, int]:
    """Count the cells that agree by a stricter rule: on the same images, only the seeds differ. Return an empty dict
    unless every cell has a known variance over seeds."""
    known = {m: [seeds_apart(e.ours.values[(*c, m)], e.ours.n[(*c, m)]) for c in cells] for m in QUALITY}
    if None in (*known["accuracy"], *known["ece"]):
        return {}
    return {m: sum(abs(g.mean) <= g.half + s.reach for g, s in zip(gaps[m], known[m], strict=True)) for m in QUALITY}


def on_same_images(agree: dict[str, int], cells: int) -> str:
    """Say how many cells agree by the stricter rule, and what the answer would be."""
    if not agree:
        return ""
    return (
        ". This rule is lenient, since the paper and we test on the same images. If only rounding and the noise of "
        "seeds count, and the paper trained each network once, the accuracy agrees in "
        f"{agree['accuracy']} cells and the ECE in {agree['ece']}; by this rule, the answer is "
        f"“{reproduced(agree, cells)}”"
    )


def seeds_apart(ours: Value, n: int) -> Value | None:
    """Return how our mean over n seeds and the paper's one training vary apart on the same images, if this is known."""
    if not (ours.sampling and ours.sampling.seeds):
        return None
    [(scatter, weight)] = ours.sampling.seeds.items()
    both = weight + weight * n  # the weight of one training, or of one ensemble, is n times that of our mean
    return Value(0.0, sampling=Sampling(np.zeros(2), seeds={replace(scatter, own=0.0): both}))


def left_out(cells: dict) -> str:
    """Name the paper's cells that are measured under other protocols only. No answer about clean images uses them."""
    if not cells:
        return ""
    several = f"{len(cells)} cells that are" if len(cells) > 1 else "cell that is"
    return f". All answers about clean images leave out the {several} measured only with {protocols_and_places(cells)}"


def deep_ensemble(e: Evidence) -> Found:
    """Compare Deep Ensemble with the best variant of each network, chosen in favour of RBUE."""
    places = e.places([ENSEMBLE, *PROPOSED], *QUALITY)
    if not places:
        return NOTHING
    best = {(p, m): max(e.values(p, PROPOSED, m), key=attrgetter("mean")) for p in places for m in QUALITY}
    gaps = {m: mean([best[p, m] - e.value(p, ENSEMBLE, m) for p in places]) for m in QUALITY}
    text = (
        f"Compared with Deep Ensemble(4), the best variant of RBUE shows {compare(gaps)}. "
        f"These numbers are the {about(e, places, [ENSEMBLE, *PROPOSED])}. For each pair and each "
        "metric, we chose the best variant on the test images. This favours RBUE"
    )

    def judge(**signs: int) -> str:
        return answer_per_metric(**{metric: 1 if sign >= 0 else -1 for metric, sign in signs.items()})

    found = compared(e, gaps, "Deep Ensemble", text, judge)
    return found._replace(brief=f"best variant: {found.brief}")


def baseline(name: str, rows: list[str], e: Evidence, reading: str = "") -> Found:
    """Compare the mean over the variants with that over a baseline's rows. `reading` says which of the possible
    baselines of this name it is, if the paper leaves that open."""
    places = e.places([*rows, *PROPOSED], *QUALITY)
    if not places:
        return NOTHING
    gaps = {m: mean([mean(e.values(p, PROPOSED, m)) - mean(e.values(p, rows, m)) for p in places]) for m in QUALITY}
    pairs = [(p, ours, theirs) for p in places for ours in PROPOSED for theirs in rows]
    reverse = [(p, theirs, ours) for p, ours, theirs in pairs]
    text = (
        f"Compared with {name}, the mean of the five variants shows {compare(gaps)}. {reading}"
        f"{by_variant(rows, places, e)}"
        f"These numbers are the {about(e, places, [*rows, *PROPOSED])}. {beside_printed(name, rows, places, e)}"
        f"We compared each variant with {' or '.join(rows)} on each network. Of these {len(pairs)} comparisons, the "
        f"variant is better in both metrics in {better_in_both(e, pairs)} and worse in both in "
        f"{better_in_both(e, reverse)} (after Holm's correction)"
    )
    return compared(e, gaps, name, text, answer_per_metric)


def compared(e: Evidence, gaps: dict[str, Value], other: str, text: str, judge: Callable[..., str]) -> Found:
    """Return what is found in accuracy and ECE. A difference that chance may explain counts as none."""
    names = {metric: f"{WORDS[metric][0]} compared with {other}" for metric in gaps}
    doubtful = [metric for metric in gaps if names[metric] in e.by_chance]
    signs = {metric: 0 if metric in doubtful else gap.sign for metric, gap in gaps.items()}
    return Found(judge(**signs), text, in_brief(gaps, doubtful), {names[m]: gap for m, gap in gaps.items()})


AT_THE_END = (
    "Here, dropout is only before the classifier, because the paper does not say where it is and this fits best. "
)


def mc_dropout(e: Evidence) -> Found:
    """Compare the variants with dropout before the classifier. Then tell the numbers with dropout in every block, on
    each network where both rows are measured."""
    found, in_blocks = baseline("MC-Dropout", DROPOUT, e, AT_THE_END), [row + BLOCK for row in DROPOUT]
    for place in e.places(in_blocks, *QUALITY):
        variants = e.rows(place, PROPOSED, *QUALITY)
        rows = [f"{row} {scores_of(e, place, [row + BLOCK])}" for row in DROPOUT]
        told = ", ".join(rows + ([f"the variants {scores_of(e, place, variants)}"] if variants else []))
        where = f"dropout in every block on {place_name(*place)}, {e.seeds([place], [*in_blocks, *variants])}"
        added = f"With {where}: {told}"
        sentence, brief = (". ".join(filter(None, [text, added])) for text in (found.sentence, found.brief))
        found = found._replace(sentence=sentence, brief=brief)
    return found


def scores_of(e: Evidence, place: tuple, rows: list[str]) -> str:
    """Return `94.54 to 95.09 % and ECE 0.014 to 0.028`: the range over some rows of one network."""
    accuracy, ece = ([e.ours.values[*place, row, metric].mean for row in rows] for metric in QUALITY)
    return f"{from_to(accuracy, decimals(2))} % and ECE {from_to(ece, decimals(3))}"


def by_variant(rows: list[str], places: list, e: Evidence) -> str:
    """Say which variants have the lowest and the highest accuracy and ECE, compared with a baseline's rows."""
    accuracy, ece = extremes(rows, places, e, "accuracy", ".2f"), extremes(rows, places, e, "ece", ".3f")
    return f"By variant, the difference in accuracy ranges from {accuracy}, that in ECE from {ece}. "


def extremes(rows: list[str], places: list, e: Evidence, metric: str, form: str) -> str:
    """Return '−0.51 for MC-RReLU to +0.03 for MC-DropReLU(0.95)': the mean differences from a baseline's rows."""
    ours = e.ours.values
    theirs = {place: fmean(ours[*place, row, metric].mean for row in rows) for place in places}
    gaps = {row: fmean(ours[*place, row, metric].mean - theirs[place] for place in places) for row in PROPOSED}
    ends = (min(gaps, key=gaps.get), max(gaps, key=gaps.get))
    return " to ".join(f"{signed(gaps[row], form)} for {row}" for row in ends)


def beside_printed(name: str, rows: list[str], places: list, e: Evidence) -> str:
    """Say how well calibrated the baseline is, here and in the paper: this decides the comparison."""
    cells = [(*place, row, "ece") for place in places for row in rows]
    if not all(cell in e.printed.values for cell in cells):
        return ""
    ours, printed = (fmean(numbers.values[cell].mean for cell in cells) for numbers in (e.ours, e.printed))
    printed += EXACT  # a mean of printed numbers may lie halfway between two digits, such as 0.0775: round it up
    return f"The mean ECE of {name} is {ours:.3f} in these cells and {printed:.3f} in the paper. "


def better_in_both(e: Evidence, pairs: list[tuple]) -> int:
    """Count the pairs (place, ours, theirs) in which ours is better in both metrics beyond the noise."""
    gaps = [e.value(p, ours, m) - e.value(p, theirs, m) for p, ours, theirs in pairs for m in QUALITY]
    better = [gap.sign > 0 and stands for gap, stands in zip(gaps, holm([gap.p or 0.0 for gap in gaps]), strict=True)]
    return sum(all(both) for both in zip(better[::2], better[1::2], strict=True))


def best_row(e: Evidence, metric: str, name: str, sign: int) -> Found | None:
    """Name the row with the best mean over networks, if it is measurably better than the next one; then the best of the
    methods that train one network, and the best variant. `sign` is 1 if more is better. Return None if no network has
    all the rows that this needs."""
    places, values = e.scores_by_row(metric)
    if not places:
        return None
    means = {row: fmean(found) for row, found in values.items()}
    trained_once = [row for row in means if row != ENSEMBLE]
    best, cheap, ours = (max(rows, key=lambda row: sign * means[row]) for rows in (means, trained_once, PROPOSED))
    second = max((row for row in means if row != best), key=lambda row: sign * means[row])
    lead, clear = ahead(e, places, metric, best, second)
    leads = sum(sign * values[best][k] == max(sign * found[k] for found in values.values()) for k in range(len(places)))
    seeds = from_to(e.scores[place][row]["n"] for place in places for row in means)
    text = (
        f"Over {settings(places)}, the mean {name} of {best} is {against(best, means)}{lead}; it is the best in "
        f"{leads} of {len(places)} (n = {seeds})"
    )
    if cheap not in (best, ours):
        text += f". The best method that trains one network, {cheap}, has {against(cheap, means)}"
    if ours != best:
        text += f". The best variant of RBUE, {ours}, has {against(ours, means)}"
    others = dict.fromkeys(row for row in (cheap, ours, ENSEMBLE, SINGLE) if row not in (best, lead and second))
    brief = f"{name} of {best} {means[best]:.3f}{lead}; {', '.join(f'{row} {means[row]:.3f}' for row in others)}"
    return Found(best if clear else NOT_CLEAR, text, brief)


def ahead(e: Evidence, places: list, metric: str, best: str, second: str) -> tuple[str, bool]:
    """Return `, −0.073 [−0.076, −0.070] against the next best, SVI`, and whether the lead is measurable. Without stored
    predictions, the text is empty, and the lead counts."""
    cells = [[(*place, row, metric) for place in places] for row in (best, second)]
    if not all(cell in e.ours.values for cell in (*cells[0], *cells[1])):
        return "", True
    one, two = (mean([e.ours.values[cell] for cell in found]) for found in cells)
    if not (gap := one - two).sampling:
        return "", True
    size, low, high = (signed(number, ".3f") for number in (gap.mean, gap.mean - gap.reach, gap.mean + gap.reach))
    return f", {size} [{low}, {high}] against the next best, {second}", bool(gap.sign)


def against(row: str, means: dict[str, float]) -> str:
    """Return a row's mean and its distance from Single and Deep Ensemble: `0.560 (−0.054 against Single)`."""
    others = [other for other in (SINGLE, ENSEMBLE) if other != row]
    apart = [f"{signed(means[row] - means[other], '.3f')} against {other}" for other in others]
    return f"{means[row]:.3f} ({', '.join(apart)})"


def diversity(e: Evidence) -> Found:
    """Compare the mean divergence of the samples' predictions with MC-Dropout's and Deep Ensemble's."""
    ratios, in_blocks = divergences(e, P5), divergences(e, P5 + BLOCK)
    more = [ratio > 1 for found in (ratios, in_blocks) for row in PROPOSED for ratio in found[row]]
    if not more:
        return NOTHING
    texts, briefs = [], []
    if places := [e.places([row, P5], "mean_jsd") for row in ratios if ratios[row]]:
        up_to = "up to " if len({*map(len, places)}) > 1 else ""
        texts.append(f"{by_family(ratios)} (range over {up_to}{settings(max(places, key=len))})")
        briefs.append(by_family(ratios))
    if any(in_blocks.values()):
        there = e.places([P5 + BLOCK], "mean_jsd")
        compared = [(p, row) for p in there for row in e.rows(p, [P5 + BLOCK, *ratios], "mean_jsd")]
        seeds = from_to(e.ours.n[*place, row, "mean_jsd"] for place, row in compared)
        where = f"with dropout in every block on {settings(there)}, n = {seeds}"
        for said in (texts, briefs):
            said.append(f"{where}: {by_family(in_blocks)}")
    text = f"The mean Jensen–Shannon divergence between two samples, divided by that of {P5}, is {'; '.join(texts)}"
    return Found(answer(more), text, f"divergence relative to {P5}'s: {'; '.join(briefs)}")


def divergences(e: Evidence, other: str) -> dict[str, list[float]]:
    """Return {row: its mean divergence divided by that of another row, one ratio per network}."""
    return {row: e.ratios("mean_jsd", row, other) for row in [*PROPOSED, ENSEMBLE]}


def by_family(ratios: dict[str, list[float]]) -> str:
    families = {"MC-RReLU": [RRELU], "MC-DropReLU": DROPRELU, ENSEMBLE: [ENSEMBLE]}
    found = {name: [ratio for row in rows for ratio in ratios[row]] for name, rows in families.items()}
    return listed([f"{from_to(each, decimals(1))} for {name}" for name, each in found.items() if each])
