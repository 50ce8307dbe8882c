"""The verdict: a short answer per main claim of the paper, computed from the results. It opens README and page.

A finding compares means over all measured networks. Its interval holds at 95 % over test images, and over seeds if any
row on the dataset has several. An answer says if something is not measured.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean, median

from rbue.report.bootstrap import mean_of as mean
from rbue.report.claims.evidence import listed, places_text
from rbue.report.claims.numbers import SEVERITIES, our_frames
from rbue.report.claims.scopes import DE as ENSEMBLE
from rbue.report.claims.scopes import DROPOUT, DROPRELU, P5, Q95, QUALITY, RRELU, SINGLE, SVI
from rbue.report.claims.values import Value, holm
from rbue.report.columns import decimals, from_to
from rbue.report.rows import LABELS, PROPOSED, paper_order
from rbue.report.text import arch_name, dataset_name
from rbue.report.verdict.evidence import Evidence, gather, papers_or_all

YES, PARTLY, NO, UNKNOWN = "yes", "partly", "no", "not measured"
IN_ACCURACY, IN_ECE = "in accuracy, not in ECE", "in ECE, not in accuracy"


@dataclass(frozen=True)
class Finding:
    """One headline claim, whether it holds in our measurements, and the sentence that says why."""

    claim: str
    short: str
    answer: str
    sentence: str
    ids: tuple[str, ...]  # the claims of the ledger that have the details


# --- numbers in words -------------------------------------------------------------------------------------------------


def largest(values: list[Value]) -> Value:
    return max(values, key=lambda value: value.mean)


WORDS = {"accuracy": ("accuracy", ".2f", " percentage points"), "ece": ("ECE", ".3f", "")}


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
    ((dataset, arch),) = places
    return f"{dataset_name(dataset)} with {arch_name(arch)} alone"


def about(e: Evidence, places: list, rows: Iterable[str]) -> str:
    return f"mean over {settings(places)}, {e.seeds(places, rows)}"


def answer(parts: list[bool]) -> str:
    """Return YES if all parts hold, NO if none does, else PARTLY."""
    return YES if all(parts) else PARTLY if any(parts) else NO


def answer_per_metric(accuracy: bool, ece: bool) -> str:
    """Return whether something holds in both metrics, or in which of them."""
    return (YES if ece else IN_ACCURACY) if accuracy else (IN_ECE if ece else NO)


# --- the findings -----------------------------------------------------------------------------------------------------

Found = tuple[str, str]  # answer and sentence
NOTHING = UNKNOWN, "No network has all the rows that this needs"
NO_TIMES = UNKNOWN, f"{NOTHING[1]}, with times from a GPU"  # other programs take part of a CPU's time


def printed_numbers(e: Evidence) -> Found:
    """Count the cells whose accuracy and ECE differ from the printed ones by no more than rounding and noise."""
    cells = [key[:3] for key in e.printed.values if key[3] == "accuracy" and key[2] in LABELS and key in e.ours.values]
    if not cells:
        return NOTHING
    gaps = {m: [e.ours.values[(*c, m)] - e.printed.values[(*c, m)] for c in cells] for m in QUALITY}
    allowed = {m: [gap.half + gap.reach for gap in gaps[m]] for m in QUALITY}
    agree = {m: sum(abs(gap.mean) <= most for gap, most in zip(gaps[m], allowed[m], strict=True)) for m in QUALITY}
    lower = sum(gap.mean < 0 for gap in gaps["ece"])
    middle = {m: median(abs(gap.mean) for gap in gaps[m]) for m in QUALITY}
    text = (
        f"{e.setting}our accuracy agrees with the printed one in {agree['accuracy']} of {len(cells)} measured cells, "
        f"our ECE in {agree['ece']}. The median difference is {middle['accuracy']:.2f} percentage points of accuracy "
        f"and {middle['ece']:.3f} of ECE; our ECE is lower in {lower} cells. {width(allowed)}{left_out(e.unused)}"
    )
    share = min(agree.values()) / len(cells)
    return (YES if share >= 0.9 else PARTLY if share >= 0.5 else NO), text[0].upper() + text[1:]


def width(allowed: dict[str, list[float]]) -> str:
    """Say which differences count as agreement: {metric: the tolerance of each cell}."""
    accuracy, ece = from_to(allowed["accuracy"], decimals(2)), from_to(allowed["ece"], decimals(3))
    return (
        "Two numbers agree if rounding and the noise of two independent test sets can explain their difference: this "
        f"allows {accuracy} percentage points of accuracy and {ece} of ECE, depending on the cell"
    )


def left_out(cells: dict) -> str:
    """Say which of the paper's cells are measured, but under other protocols alone, so that no answer uses them."""
    if not cells:
        return ""
    several = f"{len(cells)} cells that are" if len(cells) > 1 else "cell that is"
    return f". All answers here leave out the {several} measured only with {protocols_and_places(cells)}"


def protocols_and_places(cells: dict) -> str:
    protocols = listed([f"`{name}`" for name in sorted({name for names in cells.values() for name in names})])
    return f"protocol {protocols}: {places_text({cell[:2] for cell in cells})}"


def deep_ensemble(e: Evidence) -> Found:
    """Compare Deep Ensemble with the best variant of each network, chosen in favour of RBUE."""
    places = e.places([ENSEMBLE, *PROPOSED], *QUALITY)
    if not places:
        return NOTHING
    gaps = {
        m: mean([largest(e.values(p, PROPOSED, m)) - e.values(p, [ENSEMBLE], m)[0] for p in places]) for m in QUALITY
    }
    text = (
        f"Compared with Deep Ensemble(4), the best variant of RBUE shows {compare(gaps)}. "
        f"These numbers are the {about(e, places, [ENSEMBLE, *PROPOSED])}. We chose the best variant per metric on the "
        "test images, which favours RBUE"
    )
    return answer_per_metric(**{metric: gap.sign >= 0 for metric, gap in gaps.items()}), text


def single(e: Evidence) -> Found:
    return baseline("Single", [SINGLE], e)


def mc_dropout(e: Evidence) -> Found:
    return baseline("MC-Dropout", DROPOUT, e)


def svi(e: Evidence) -> Found:
    return baseline("SVI", [SVI], e)


def baseline(name: str, rows: list[str], e: Evidence) -> Found:
    """Compare the mean over the variants with that over a baseline's rows."""
    places = e.places([*rows, *PROPOSED], *QUALITY)
    if not places:
        return NOTHING
    gaps = {m: mean([mean(e.values(p, PROPOSED, m)) - mean(e.values(p, rows, m)) for p in places]) for m in QUALITY}
    pairs = [(p, ours, theirs) for p in places for ours in PROPOSED for theirs in rows]
    reverse = [(p, theirs, ours) for p, ours, theirs in pairs]
    text = (
        f"Compared with {name}, the mean of the five variants shows {compare(gaps)}. {by_variant(rows, places, e)}"
        f"These numbers are the {about(e, places, [*rows, *PROPOSED])}. {beside_printed(name, rows, places, e)}"
        f"Of {len(pairs)} comparisons of one variant with {' or '.join(rows)} on one network (with Holm's correction), "
        f"the variant is better in both metrics in {better_in_both(e, pairs)} and worse in both in "
        f"{better_in_both(e, reverse)}"
    )
    return answer_per_metric(**{metric: gap.sign > 0 for metric, gap in gaps.items()}), text


def by_variant(rows: list[str], places: list, e: Evidence) -> str:
    """Say which variants have the lowest and the highest accuracy, compared with a baseline's rows."""
    theirs = [mean(e.values(place, rows, "accuracy")) for place in places]
    gaps = {
        row: fmean((e.values(p, [row], "accuracy")[0] - other).mean for p, other in zip(places, theirs, strict=True))
        for row in PROPOSED
    }
    worst, best = min(gaps, key=gaps.__getitem__), max(gaps, key=gaps.__getitem__)
    low, high = (signed(gaps[row], ".2f") for row in (worst, best))
    return f"By variant, the difference in accuracy ranges from {low} for {worst} to {high} for {best}. "


def beside_printed(name: str, rows: list[str], places: list, e: Evidence) -> str:
    """Say how well calibrated the baseline is, here and in the paper: this decides the comparison."""
    cells = [(*place, row, "ece") for place in places for row in rows]
    if not all(cell in e.printed.values for cell in cells):
        return ""
    ours, printed = (fmean(numbers.values[cell].mean for cell in cells) for numbers in (e.ours, e.printed))
    return f"The mean ECE of {name} is {ours:.3f} there; the paper prints {printed:.3f}. "


def better_in_both(e: Evidence, pairs: list[tuple]) -> int:
    """Count the pairs (place, ours, theirs) in which ours is better in both metrics beyond the noise."""
    gaps = [e.values(p, [ours], m)[0] - e.values(p, [theirs], m)[0] for p, ours, theirs in pairs for m in QUALITY]
    better = [gap.sign > 0 and stands for gap, stands in zip(gaps, holm([gap.p or 0.0 for gap in gaps]), strict=True)]
    return sum(all(both) for both in zip(better[::2], better[1::2], strict=True))


def training_cost(e: Evidence) -> Found:
    """Compare training times and parameters with those of Single and Deep Ensemble."""
    times = {row: e.ratios("time", row, SINGLE) for row in [*PROPOSED, ENSEMBLE]}
    ours = [ratio for row in PROPOSED for ratio in times[row]]
    parameters = e.ratios("parameters", ENSEMBLE, Q95)
    if not (ours and times[ENSEMBLE]):
        return NO_TIMES
    text = (
        f"Training a variant takes {median(ours):.2f} times as long as training Single (median of {len(ours)} cells "
        f"timed with the same code, range {from_to(ours, decimals(2))}). Deep Ensemble(4) takes "
        f"{median(times[ENSEMBLE]):.2f} times as long"
    )
    if parameters:
        text += f" and stores {median(parameters):.0f} times as many parameters"
    return (YES if 2 * max(ours) <= median(times[ENSEMBLE]) else NO), text


def inference_cost(e: Evidence) -> Found:
    """Compare the measured test time with Deep Ensemble's, then what fewer passes and temperature scaling achieve."""
    best = Q95
    ratio = [r for row in PROPOSED for r in e.cost_ratios("test_ms_per_image", row, ENSEMBLE)]
    if not ratio:
        return NO_TIMES
    known = {p: e.rows(p, PROPOSED, "passes") for p in e.ours.places}
    places = papers_or_all([p for p, rows in known.items() if rows])
    passes = max(e.ours.values[*p, row, "passes"].mean for p in places for row in known[p])
    text = (
        f"A variant with {passes:.0f} passes takes {median(ratio):.1f} times as long per image as Deep Ensemble(4) "
        f"(median of {len(ratio)} cells, range {from_to(ratio, decimals(1))})"
    )
    ece = {(row, kind): e.mean_cost(row, kind) for row in (SINGLE, best) for kind in ("ece", "ece_10", "tempered_ece")}
    if all(ece[key] for key in ((SINGLE, "ece"), (SINGLE, "tempered_ece"), (best, "ece"), (best, "tempered_ece"))):
        fewer = f"{ece[best, 'ece_10']:.3f} with 10 passes and " if ece[best, "ece_10"] else ""
        text += (
            f". The mean ECE of Single is {ece[SINGLE, 'ece']:.3f}, that of {best} {fewer}{ece[best, 'ece']:.3f} with "
            f"{passes:.0f} passes. Temperature scaling, which needs labelled images, gives Single "
            f"{ece[SINGLE, 'tempered_ece']:.3f} and {best} {ece[best, 'tempered_ece']:.3f} with {passes:.0f} passes"
        )
    return (YES if median(ratio) <= 1 else NO), text


def corruption(e: Evidence) -> Found:
    """Compare median ECEs over the 19 corruptions, severity by severity, with the other methods. All networks count;
    the one that most rows were tested on is described in full."""
    at, baselines = [f"ece@{s}" for s in SEVERITIES], (SINGLE, P5, ENSEMBLE, SVI)
    networks = [(place, e.rows(place, PROPOSED, *at), e.rows(place, baselines, *at)) for place in e.ours.places]
    counted = papers_or_all([place for place, *rows in networks if all(rows)])
    networks = [network for network in networks if network[0] in counted]
    unused = corrupted_unused(e, [*baselines, *PROPOSED])
    if not networks:
        return UNKNOWN, NOTHING[1] + unused
    networks.sort(key=lambda network: -len(network[1] + network[2]))
    wins = {network[0]: severities_won(e, at, *network) for network in networks}
    text = under_corruption(e, at, baselines, networks[0], wins)
    for (dataset, arch), tested, _ in networks[1:]:
        text += (
            f". On {dataset_name(dataset)} with {arch_name(arch)} and {len(tested)} of {len(PROPOSED)} variants, the "
            f"best variant's median ECE is lower {than(wins[dataset, arch])}"
        )
    return answer([won > 2 for found in wins.values() for won in found.values()]), text + unused


def under_corruption(e: Evidence, at: list[str], baselines: tuple, network: tuple, wins: dict) -> str:
    """Describe one network in full: rows, seeds, passes, severities won, and the median ECEs at the highest one."""
    place, rows, others = network
    hardest = listed([f"{e.ours.values[(*place, row, at[-1])].mean:.3f} for {row}" for row in [*rows, *others]])
    absent = [row for row in baselines if row not in others]
    seeds = {e.ours.n[(*place, row, at[0])] for row in [*rows, *others]}
    passes = f", {from_to(e.corrupted_passes[place], decimals(0))} passes" if place in e.corrupted_passes else ""
    return (
        f"On {dataset_name(place[0])} with {arch_name(place[1])}, {len(rows)} of {len(PROPOSED)} variants are measured "
        f"(n = {from_to(seeds)}{passes}). The best variant's median ECE over 19 corruptions is lower "
        f"{than(wins[place])}. At severity 5, the median ECE is {hardest}"
        + (f". Not measured there: {', '.join(absent)}" if absent else "")
    )


def corrupted_unused(e: Evidence, rows: list[str]) -> str:
    """Name the runs on corrupted images that the answer leaves out; empty if there are none."""
    places = sorted({cell[:2] for cell in e.incomplete}, key=paper_order)
    lacking = {place: [row for row in rows if (*place, row) in e.incomplete] for place in places}
    shown = "; ".join(f"{places_text([place])}: {', '.join(found)}" for place, found in lacking.items() if found)
    text = f". Runs that lack some of the 19 types are not used ({shown})" if shown else ""
    if e.unused_corrupted:
        text += f". Measured, but not used here, with {protocols_and_places(e.unused_corrupted)}"
    return text


def severities_won(e: Evidence, at: list[str], place: tuple, rows: list[str], others: list[str]) -> dict[str, int]:
    """Return {other row: the number of severities at which the best of the rows has a lower median ECE}."""
    ece = {row: [e.ours.values[(*place, row, metric)].mean for metric in at] for row in [*rows, *others]}
    best = [min(found) for found in zip(*(ece[row] for row in rows), strict=True)]
    return {other: sum(own < theirs for own, theirs in zip(best, ece[other], strict=True)) for other in others}


def than(wins: dict[str, int]) -> str:
    """Return "than Single's at all 5 severities and than SVI's at no severity", rows with the same number together."""
    others = {won: listed([f"{other}'s" for other in wins if wins[other] == won]) for won in wins.values()}
    counts = {won: {5: "all 5 severities", 0: "no severity"}.get(won, f"{won} of 5 severities") for won in others}
    return listed([f"than {names} at {counts[won]}" for won, names in others.items()])


def diversity(e: Evidence) -> Found:
    """Compare the mean divergence of the samples' predictions with MC-Dropout's and Deep Ensemble's."""
    ratios = {row: e.ratios("mean_jsd", row, P5) for row in [*PROPOSED, ENSEMBLE]}
    more = [ratio > 1 for row in PROPOSED for ratio in ratios[row]]
    if not more:
        return NOTHING
    families = {"MC-RReLU": [RRELU], "MC-DropReLU": DROPRELU, ENSEMBLE: [ENSEMBLE]}
    found = {name: [ratio for row in rows for ratio in ratios[row]] for name, rows in families.items()}
    shown = listed([f"{from_to(each, decimals(1))} for {name}" for name, each in found.items() if each])
    text = (
        f"The mean Jensen–Shannon divergence between two samples, divided by that of {P5}, is {shown} (range over "
        f"{settings(max((e.places([row, P5], 'mean_jsd') for row in ratios), key=len))})"
    )
    return answer(more), text


def best_row(e: Evidence, metric: str, name: str, sign: int) -> Found | None:
    """Name the row with the best mean over networks, then the best variant. `sign` is 1 if more is better. Return
    None if no network has all the rows that this needs."""
    places, values = e.scores_by_row(metric)
    if not places:
        return None
    means = {row: fmean(found) for row, found in values.items()}
    best, ours = (max(rows, key=lambda row: sign * means[row]) for rows in (means, PROPOSED))
    leads = sum(sign * values[best][k] == max(sign * found[k] for found in values.values()) for k in range(len(places)))
    seeds = from_to(e.scores[place][row]["n"] for place in places for row in means)
    text = (
        f"Over {settings(places)}, its mean {name} is {against(best, means)}; it is the best in {leads} of "
        f"{len(places)} (n = {seeds})"
    )
    return best, text + (f". The best variant of RBUE, {ours}, has {against(ours, means)}" if ours != best else "")


def against(row: str, means: dict[str, float]) -> str:
    """Return a row's mean and its distance from Single and Deep Ensemble: `0.560 (−0.054 against Single)`."""
    others = [other for other in (SINGLE, ENSEMBLE) if other != row]
    apart = [f"{signed(means[row] - means[other], '.3f')} against {other}" for other in others]
    return f"{means[row]:.3f} ({', '.join(apart)})"


RANKINGS = [  # question, metric, its name, and whether more (1) or less (-1) is better
    ("Which method has the lowest NLL?", "nll", "NLL", -1),
    ("Which method detects out-of-distribution images best?", "auroc", "AUROC of the entropy", 1),
]
QUESTIONS: list[tuple[str, str, tuple[str, ...], Callable[[Evidence], Found]]] = [
    ("Are the printed numbers reproduced?", "", (), printed_numbers),
    ("Is RBUE on par with Deep Ensemble?", "on par with Deep Ensemble", ("A15", "A1"), deep_ensemble),
    ("Is it better than a plain network (Single)?", "better than Single", ("A12", "A14"), single),
    ("Is it better than MC-Dropout?", "better than MC-Dropout", ("A3", "A13"), mc_dropout),
    ("Is it better than SVI?", "better than SVI", ("A13",), svi),
    ("Is it cheap to train?", "cheap to train", ("A7", "A9", "A11"), training_cost),
    ("Is it cheap at test time?", "cheap at test time", ("A15",), inference_cost),
    ("Is it better calibrated under corruption?", "better calibrated under corruption", ("F1", "F3"), corruption),
    ("Are its samples more diverse than MC-Dropout's?", "more diverse than MC-Dropout", ("D3", "D4"), diversity),
]


def build(results: list, paper_dir: str, frames: dict | None = None) -> list[Finding]:
    """Answer every question from our runs; there is no answer without a run."""
    frames = our_frames(results) if frames is None else frames
    return findings(gather(results, paper_dir, frames)) if frames else []


def findings(evidence: Evidence) -> list[Finding]:
    """Answer the questions about the paper's claims, then those about scores that it does not print, where known."""
    claims = [Finding(question, short, *find(evidence), ids) for question, short, ids, find in QUESTIONS]
    rankings = [(question, best_row(evidence, *metric)) for question, *metric in RANKINGS]
    return claims + [Finding(question, "", *found, ()) for question, found in rankings if found]


# --- text -------------------------------------------------------------------------------------------------------------


BEGIN, END = "<!-- verdict: built by make claims -->", "<!-- end of verdict -->"
READING = (
    "A *variant* is MC-RReLU, or MC-DropReLU with one of the paper's four q. A *cell* is one method on one network and "
    "one dataset. n is the number of seeds. ECE is the expected calibration error and NLL the negative log-likelihood: "
    "lower is better. AUROC is the probability that an out-of-distribution image has a higher entropy than a test "
    "image. Square brackets hold a 95 % interval over test images. It also covers the seeds if one row on "
    "the dataset has several of them. A claim may be about every variant and not about the mean; then its verdict may "
    "differ from the answer that links to it."
)


def in_short(found: list[Finding]) -> str:
    """Return which claims hold, which do not, and which hold in one metric or in part, as sentences."""
    answers = (YES, NO, IN_ACCURACY, IN_ECE, PARTLY, UNKNOWN)
    named = {said: [f.short for f in found if f.answer == said and f.short] for said in answers}
    parts = [
        f"RBUE is {listed(named[YES])}" if named[YES] else "",
        f"RBUE is {listed([f'not {name}' for name in named[NO]])}" if named[NO] else "",
        f"RBUE is {listed(named[IN_ECE])} in ECE, but not in accuracy" if named[IN_ECE] else "",
        f"RBUE is {listed(named[IN_ACCURACY])} in accuracy, but not in ECE" if named[IN_ACCURACY] else "",
        f"RBUE is {listed([f'partly {name}' for name in named[PARTLY]])}" if named[PARTLY] else "",
        f"We did not measure whether RBUE is {' or '.join(named[UNKNOWN])}" if named[UNKNOWN] else "",
    ]
    before, name, after = ". ".join(filter(None, parts)).partition("RBUE")
    return before + name + after.replace(". RBUE", ". It").replace("RBUE", "it")


def markdown(found: list[Finding]) -> str:
    """Return the answer in one line, the findings as a list with links to their claims, and how to read them."""
    lines = [f"**{in_short(found)}.**", ""]
    for finding in found:
        links = ", ".join(f"[{name}](results/claims.md#{name.lower()})" for name in finding.ids)
        evidence = f" Claims: {links}." if links else ""
        answer = finding.answer[0].upper() + finding.answer[1:]
        lines.append(f"- **{finding.claim} {answer}.** {finding.sentence}.{evidence}")
    return "\n".join([*lines, "", READING])
