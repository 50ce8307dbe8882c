"""Items in words: why a verdict is what it is, '17 win / 1 tie / 30 loss of 48 (-0.93 to +3.29 pp)', missing cells,
number of seeds, pairing."""

from dataclasses import dataclass
from itertools import groupby

from rbue.report.claims.checks import NAMES, VERSUS, group_by
from rbue.report.claims.numbers import kind
from rbue.report.columns import from_to
from rbue.report.rows import ARCHS, arch_name, dataset_name, paper_order

NOISY = ("accuracy", "ece", "dis")  # shares of test images, so one run gives their standard error


# --- why a verdict is what it is --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Graded:
    """One part of a claim: its grade, its measured comparisons, and how many it would have."""

    part: str
    grade: str
    items: list
    total: int

    @property
    def is_thin(self):
        """Whether less than half of its comparisons are measured, which is too little for a verdict."""
        return 2 * len(self.items) < self.total

    def count(self, outcome):
        return sum(item.outcome == outcome for item in self.items)


def reason(grades, status, strict, papers, begun):
    """Return the numbers that decide, in one or two sentences. `strict`: one part that fails decides alone. `begun`:
    a number of one side of a comparison exists."""
    noise = "inside rounding or noise" if papers else "inside the noise"
    there, total = sum(len(grade.items) for grade in grades), sum(grade.total for grade in grades)
    if not there and papers:
        return "The paper prints no number for it."
    if not there:
        return "No comparison has all its numbers." if begun else "None of it is measured."
    if status == "not tested":
        return too_little(grades, there, total, noise)
    grades = [grade for grade in grades if grade.items]
    deciding = [grade for grade in grades if grade.grade == status] if strict and status == "does not hold" else grades
    text = alone(deciding[0], noise) if len(deciding) == 1 else grouped(deciding, noise)
    rest = f"; {there} of {total} comparisons have numbers" if there < total else ""
    return text[0].upper() + text[1:] + rest + "."


def too_little(grades, there, total, noise):
    """Say what has too few numbers: the claim, or, if most of it has enough, the parts that lack them."""
    if 2 * there < total:
        return f"Only {there} of {total} comparisons have numbers: {tally(grades, noise)}."
    thin = listed([f"{grade.part} ({len(grade.items)} of {grade.total})" for grade in grades if grade.is_thin])
    return f"Fewer than half of the comparisons have numbers for {thin}. So far: {tally(grades, noise)}."


def tally(grades, noise):
    """Return '17 of 48 for it, 30 against it, 1 inside the noise'."""
    won, equal, lost = (sum(grade.count(outcome) for grade in grades) for outcome in (1, 0, -1))
    rest = [f", {count} {words}" for count, words in ((lost, "against it"), (equal, noise)) if count]
    return f"{won} of {won + equal + lost} for it" + "".join(rest)


def alone(grade, noise):
    """Return 'accuracy: 17 of 48 for it, 30 against it, 1 inside the noise (-0.93 to +1.40 pp)'."""
    shown = span(grade.items)
    if len(grade.items) == 1:
        word = {1: "is for it", -1: "is against it", 0: "is unclear"}[grade.items[0].outcome]
        return f"{grade.part}{f' ({shown})' if shown else ''} {word}"
    return f"{grade.part}: {tally([grade], noise)}" + (f" ({shown})" if shown else "") + counterexamples(grade.items)


def grouped(grades, noise):
    """Return 'it holds for A (2 of 2 for it, +0.01) and B (...); it fails for C (...)'."""
    verbs = {"holds": "holds", "partly": "partly holds", "does not hold": "fails", "undecided": "is unclear"}
    clauses = []
    for grade, verb in verbs.items():
        found = [bracketed(each, noise) for each in grades if each.grade == grade]
        clauses += [f"it {verb} for {listed(found)}"] if found else []
    return "; ".join(clauses)


def bracketed(grade, noise):
    """Return 'accuracy (30 of 48 against it, -0.93 to +1.40 pp)', with the count that made the grade."""
    total, named = len(grade.items), culprits(grade.items)
    against = f"{grade.count(-1)} of {total} against it" + (f": {named}" if named else "")
    counts = {"does not hold": against, "undecided": tally([grade], noise)}
    inside = counts.get(grade.grade, f"{grade.count(1)} of {total} for it")
    shown = "" if named and inside == against else span(grade.items)  # the name has its own number
    return f"{grade.part} ({', '.join(filter(None, [inside, shown]))})"


def counterexamples(items):
    """Name the only comparison against a claim. If there are several and either sign can be against it, return their
    range."""
    if culprits(items):
        return f"; against it is {culprits(items)}"
    losing = [item for item in items if item.outcome == -1]
    shown = span(losing) if losing and items[0].words != VERSUS else ""
    return f"; those against it: {shown}" if shown and shown != span(items) else ""


def culprits(items):
    """Name the only one of several comparisons against a claim: 'SVI compared with Single on CIFAR-10 ResNet-18'."""
    losing = [item for item in items if item.outcome == -1]
    if len(losing) != 1 or len(items) == 1:
        return ""
    rows, places = [*map(row_text, rows_of(losing[0].keys))], unique(key[:2] for key in losing[0].keys)
    shown = f", {span(losing)}" if span(losing) else ""
    return f"{' compared with '.join(rows)} on {places_text(places)}{shown}" if len(rows) <= 2 else ""


def listed(texts):
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


# --- counts -----------------------------------------------------------------------------------------------------------


def describe(items):
    """Return one clause per part, in the order of the claim's checks."""
    parts = group_by((item for item in items if item.outcome is not None), lambda item: (item.aside, item.part))
    total = {part: sum(item.part == part for item in items) for _, part in parts}
    return "; ".join(clause(part, group, total[part]) for (_, part), group in parts.items())


def clause(part, items, total):
    """Return 'accuracy 3 win / 12 tie / 1 loss of 16 (-0.81 to +0.35 pp), 32 missing'."""
    if total == 1:
        return " ".join(filter(None, [part, span(items), f"({items[0].words[1 - items[0].outcome]})"]))
    colon = "" if items[0].words == VERSUS else ":"
    text = f"{part}{colon} {counts([item.outcome for item in items], items[0].words)} of {len(items)}"
    shown, missing = span(items), total - len(items)
    return text + (f" ({shown})" if shown else "") + beyond(items) + (f", {missing} missing" if missing else "")


def counts(outcomes, words):
    """Count win / tie / loss, zeros included; of yes / unclear / no, only those that occur."""
    tally = [(outcomes.count(value), word) for value, word in zip((1, 0, -1), words, strict=True)]
    return " / ".join(f"{count} {word}" for count, word in tally if count or words == VERSUS)


def span(items):
    """Return the smallest and the largest difference or ratio."""
    values = [item.shown for item in items if item.shown is not None]
    if not values:
        return ""
    return from_to(values, items[0].form.format).replace(" pp to ", " to ")


def beyond(items):
    """Count what is left beyond rounding and test noise; empty if that changes nothing."""
    strict, plain = [item.beyond for item in items], [item.outcome for item in items]
    if None in strict or strict == plain or kind(items[0].keys[0][3]) not in NOISY:
        return ""
    return f", beyond rounding and noise {strict.count(1)} / {strict.count(0)} / {strict.count(-1)}"


# --- missing cells, and the number of seeds ---------------------------------------------------------------------------


def missing_text(items, numbers):
    """Return 'CIFAR-100: all 10 rows; CIFAR-10 DenseNet-121: SVI'."""
    needed = by_place(key for item in items for key in item.keys)
    lacking = by_place(key for item in items for key in item.missing)
    texts = {place: lack_text(keys, needed[place], numbers) for place, keys in lacking.items()}
    return "; ".join(f"{places_text(places)}: {text}" for text, places in group_by(texts, texts.get).items())


def by_place(keys):
    return group_by(unique(keys), lambda key: key[:2])


def lack_text(keys, needed, numbers):
    """Name the rows without a run, and 'ECE of SVI' if the run exists without this number."""
    runs = rows_of(key for key in keys if key[:3] not in numbers.runs)
    metrics = group_by((key for key in keys if key[2] not in runs), lambda key: lacking_text(key, numbers))
    every_row = len(rows_of(needed))
    texts = [rows_text(runs, every_row)] if runs else []
    return ", ".join(texts + [f"{text} of {rows_text(rows_of(found), every_row)}" for text, found in metrics.items()])


def lacking_text(key, numbers):
    """Name the number that is missing. One that exists was measured with other code, so it does not compare."""
    base, _, severity = key[3].partition("@")
    same_code = " with the same code" if key in numbers.values else ""
    return NAMES[base] + (" under corruption" if severity else "") + same_code


def rows_text(rows, needed):
    if len(rows) == needed > 2:
        return f"all {needed} rows"
    return " and ".join(map(row_text, rows)) if len(rows) <= 2 else f"{len(rows)} of {needed} rows"


PLACED = {"all": "in all layers", "last": "in the last layer", "first": "in the first layer", "block": "in every block"}


def row_text(row):
    """Return `MC-DropReLU(0.8) in the last layer` for the row MC-DropReLU(0.8)@last."""
    name, _, where = row.partition("@")
    return f"{name} {PLACED[where]}" if where else name


def rows_of(keys):
    return unique(key[2] for key in keys)


def unique(values):
    return list(dict.fromkeys(values))


def places_text(places):
    """Return 'CIFAR-10 VGG-13/ResNet-18, CIFAR-100, digits small'. A dataset alone means all three of its networks."""
    texts = []
    for dataset, group in groupby(sorted(places, key=paper_order), key=lambda place: place[0]):
        archs = [arch for _, arch in group]
        networks = "" if archs == list(ARCHS) else " " + "/".join(map(arch_name, archs))
        texts.append(dataset_name(dataset) + networks)
    return ", ".join(texts)


def seeds_text(items, numbers):
    """Return 'n = 1' or 'n = 1 to 3', the number of seeds behind the cells."""
    counts = [numbers.n[key] for item in items if item.outcome is not None for key in item.keys]
    return f"n = {from_to(counts)}" if counts else ""


def judged_text(items):
    """Describe how items were judged: '12 of 40 paired over images, 3 undone by the correction'."""
    judged = [item.judged for item in items if item.judged and not item.aside]
    if not judged:
        return ""
    paired, undone = judged.count("paired"), sum(item.undone for item in items)
    count = f"{paired} of {len(judged)} " if 0 < paired < len(judged) else ""
    text = count + ("paired over images" if paired else "unpaired")
    return text + (f", {undone} undone by the correction" if undone else "")
