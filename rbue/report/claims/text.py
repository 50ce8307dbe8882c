"""The ledger as cards, as a Markdown page, and its counts for a terminal. Equal runs give equal bytes."""

from collections import Counter

from rbue.report.claims.checks import group_by
from rbue.report.claims.predicates import PREDICATES
from rbue.report.claims.rules import NOT_TESTED, OURS
from rbue.runs.compose import canonical

STATUSES = list(dict.fromkeys(word for both in OURS.items() for word in both))  # the paper's word, then ours
INTRO = """\
We turn each claim of the paper into comparisons of numbers. The same code makes these comparisons on the paper's own
tables and on our runs. Built by `make claims`: do not edit.

- **Verdicts on the paper** ("The paper" below) are: holds, partly, does not hold, undecided (no number is printed, or
  rounding or chance explains the difference). *By reading* means that no number decides the claim. *By algebra* means
  that a proof or a simulation decides it.
- **Verdicts on our numbers** ("Ours" below) are: reproduced, partly, not reproduced, unclear (measured, but inside the
  noise), not tested (less than half of a part, such as accuracy, is measured, and no counterexample decides). "So far"
  is the verdict of the measured comparisons alone. "Elsewhere" is the verdict on other datasets or networks than the
  claim's. A dash means that our runs cannot decide the claim.
- **From comparisons to a verdict.** A comparison asks, for example, whether one row has a lower ECE than another row on
  the same network. It is for the claim, against it, or inside the noise. A claim that says "all" or "always", or that
  is about named rows, fails with one counterexample. Any other claim holds if more than three quarters of its
  comparisons are for it. It holds partly if at least a quarter is for it. It fails if fewer are for it and at least a
  quarter is against it. Otherwise, it is inside the noise. All parts of a claim (accuracy, ECE) have the same weight.
  Each claim names its rule beside its numbers.
- **A claim that a method is better in general** is counted per dataset and network, since comparisons on one network
  share rows. On our numbers, the shares are averaged over the networks. On the paper's numbers, a sign-flip test over
  the networks decides at the 5 % level: the claim holds if it has significantly more wins than losses, fails if it has
  significantly more losses, and is undecided otherwise.
- **Noise in the paper's numbers.** A difference counts if it exceeds the rounding of both sides. If a claim says that
  two numbers are the same, or significantly different, the difference must also exceed 1.96 standard errors of 10,000
  test images. A difference that is too small to count is neither for nor against a claim that one row is better.
- **Noise in our numbers.** A difference counts if its 95 % interval does not contain zero. n is the number of seeds. If
  both rows have stored predictions, they are compared image by image ("paired"), and the interval covers the choice of
  test images and of the seed. Otherwise, they are "unpaired": both rows count as tested on different images, and with
  one seed the interval does not cover the seed.
- **One seed per row.** A paired row with one seed has an error over seeds too. We assume that all rows on a dataset
  have the same variance over seeds, and estimate it from all rows that have several seeds. We also assume that an
  ensemble of four networks has a quarter of it. An estimate from few seeds is uncertain, so a larger quantile of the t
  distribution replaces 1.96. If no row on a dataset has several seeds, the verdict is about these trained networks, not
  about the method.
- **The same.** Two numbers count as the same, or on par, if no difference is found and the 95 % interval of the
  difference is no wider than ±1.5 percentage points or ±0.015 in ECE. This does not prove that they are equal.
- **The best** of several rows is chosen on the test images. The errors do not account for this choice, which favours
  the side with more rows.
- **Many comparisons.** If a claim has many comparisons, some differ by chance. So only differences that remain
  significant after Holm's correction count.
- **Protocols.** `paper` trains as the paper states, `matched` with the weight decay that fits its accuracies better
  (5e-4 instead of 1e-4, found on CIFAR-10 with ResNet-18), `fast` like `matched`, but for 30 epochs with a linear
  schedule, `demo` on handwritten digits.
- **Not compared.** We do not compare training times from different machines or versions of the code, nor corrupted
  images from different sources (generated or official).
- **Our settings.** The paper does not say where dropout is or how SVI is trained. Verdicts on these rows hold only for
  our settings.
- **In the numbers**, win / tie / loss and yes / unclear / no count comparisons. Brackets hold the smallest and the
  largest difference, the first row minus the second (pp: percentage points). A lower ECE and a shorter time are better.
  "Beyond rounding and noise" counts the differences that exceed both. "Undone by the correction" counts the differences
  that are not significant after it. Numbers that do not decide the verdict are not corrected. *Proposed rows* are the
  five variants of RBUE: MC-RReLU, and MC-DropReLU with four values of q."""


def protocols(ledger):
    return list(dict.fromkeys(protocol for entry in ledger for protocol in entry.ours))


# --- cards ------------------------------------------------------------------------------------------------------------


def cards(ledger):
    """Return one dict of plain strings per claim, for the page and for claims.md."""
    return [card(entry) for entry in ledger]


def card(entry):
    return {
        "id": entry.id,
        "claim": entry.claim["claim"],
        "quote": entry.claim.get("quote"),
        "where": place(entry.claim["where"]),
        "compared": compared(entry),
        "note": entry.claim.get("note"),
        "paper": shown(entry.paper),
        "ours": [{"protocol": protocol} | shown(verdict) for protocol, verdict in entry.ours.items()],
    }


def compared(entry):
    """Return what is compared, and the rule that makes the verdict, if numbers make it."""
    predicate = PREDICATES.get(entry.id)
    return entry.claim["decided_by"] + (f". {predicate.rule.words}" if predicate else "")


def shown(verdict):
    return {"verdict": verdict.status, "how": how(verdict), "why": verdict.why, "numbers": numbers(verdict)}


def how(verdict):
    """Return ' (by reading)', ' (by algebra)' or ' (so far partly)'; empty if there is nothing to add."""
    by = f" (by {verdict.by})" if verdict.by != "numbers" else ""
    return by + (f" (so far {verdict.so_far})" if verdict.so_far else "")


def numbers(verdict):
    """Return the counts, the missing cells, and how noise was treated."""
    inner = verdict.elsewhere or verdict
    found = [inner.evidence, verdict.missing and f"missing: {verdict.missing}"]
    if verdict.elsewhere and inner.missing:
        found.append(f"missing there: {inner.missing}")
    found.append(", ".join(filter(None, [inner.seeds, inner.judged])))
    return "; ".join(filter(None, found))


def short(verdict):
    """Return a verdict in a few words: 'not tested (so far partly)', 'not tested (elsewhere reproduced)'."""
    if verdict.elsewhere is None:
        return verdict.status + how(verdict)
    so_far = verdict.elsewhere.so_far
    return f"{verdict.status} (elsewhere {f'so far {so_far}' if so_far else verdict.elsewhere.status})"


# --- counts -----------------------------------------------------------------------------------------------------------


def count_text(statuses):
    """Return 'reproduced 12, partly 5' in a fixed order."""
    counts = Counter(statuses)
    return ", ".join(f"{status} {counts[status]}" for status in STATUSES if counts[status]) or "none"


def counts(ledger):
    """Yield (whose numbers, the count of each verdict). Our own claim is not counted."""
    ledger = [entry for entry in ledger if entry.is_papers]
    for what, read in (("numbers", False), ("text, by reading", True)):
        found = [entry.paper.status for entry in ledger if (entry.paper.by == "reading") == read]
        yield f"The paper's own {what}: {len(found)} claims", count_text(found)
    for protocol in protocols(ledger):
        found = [entry.ours[protocol].status for entry in ledger if protocol in entry.ours]
        yield f"Our numbers, protocol `{protocol}`: {len(found)} claims", count_text(found)


def short_training(ledger):
    """Yield a sentence per protocol with fewer epochs than the paper: its verdicts do not judge the paper."""
    stated = [canonical(dataset, "paper", "single").epochs for dataset in ("cifar10", "tinyimagenet")]
    for protocol in protocols(ledger):
        run = canonical("cifar10", protocol, "single")
        if run and run.epochs < min(stated):
            yield (
                f"Protocol `{protocol}` trains for {run.epochs} epochs, the paper for {stated[0]} "
                f"(TinyImageNet {stated[1]}). Its verdicts are about this short training and do not judge the paper."
            )


# --- the page ---------------------------------------------------------------------------------------------------------


def table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def index(ledger):
    """Return one line per claim: its link, its words, the paper's verdict, and ours under the first protocol."""
    first = next(iter(protocols(ledger)), None)
    rows = (
        [f"[{entry.id}](#{entry.id.lower()})", entry.claim["claim"], short(entry.paper), ours_in_short(entry, first)]
        for entry in ledger
    )
    named = f"Ours, `{first}`" if first else "Ours"
    return table(["Id", "Claim", "Paper", named], rows)


def ours_in_short(entry, protocol):
    """Return the verdict under one protocol. If that protocol does not test the claim, one that does follows."""
    if protocol not in entry.ours:
        return "–"
    own = entry.ours[protocol]
    tested = [f"`{name}`: {short(each)}" for name, each in entry.ours.items() if each.status != NOT_TESTED]
    return "; ".join([short(own), *tested[:1]]) if own.status == NOT_TESTED else short(own)


def section(card):
    """Return one claim: its words, its verdicts with their reasons, and the numbers folded."""
    lines = [f"- The paper: {judged(card['paper'])}"]
    for text, sides in group_by(card["ours"], judged).items():  # the same verdict for the same reason shares a line
        names = ", ".join(f"`{side['protocol']}`" for side in sides)
        lines.append(f"- Ours, {names}: {text}")
    note = [f"Note: {card['note']}"] if card["note"] else []
    head = f'<a id="{card["id"].lower()}"></a>\n\n### {card["id"]} {card["claim"]}'  # README links to this address
    return "\n\n".join([head, quoted(card), "\n".join(lines), *note, folded(card)])


def judged(side):
    return f"**{side['verdict']}**{side['how']}. {side['why']}"


def place(where):
    """Return where a claim stands as the start of a sentence: `4.2, last paragraph` is a section."""
    return f"Section {where}" if where[0].isdigit() else where[0].upper() + where[1:]


def quoted(card):
    """Return the paper's own words and where they stand. LaTeX outside of formulas is shown as it is."""
    if not card["quote"]:
        return f"{card['where']} (no quote)"
    latex = "\\" in card["quote"] and "$" not in card["quote"]
    return "> " + (f"`{card['quote']}`" if latex else card["quote"]) + f"\n>\n> — {card['where']}"


def folded(card):
    """Return what was compared and the numbers of all sides in one fold."""
    sides = {"The paper": card["paper"]} | {f"Ours, `{side['protocol']}`": side for side in card["ours"]}
    lines = [f"- Compared: {card['compared']}"]
    lines += [f"- {who}: {side['numbers']}" for who, side in sides.items() if side["numbers"]]
    return "\n\n".join(["<details><summary>Numbers</summary>", "\n".join(lines), "</details>"])


def markdown(ledger, answers=""):
    """Return the page of claims. `answers` is the text of the main answers, which opens it."""
    parts = ["# Does it hold? The paper's claims", *filter(None, [answers]), "## The number of claims per verdict"]
    parts += [
        table(["Judged on", "Verdicts"], counts(ledger)),
        *short_training(ledger),
        "## All claims in short",
        "*Paper*: do the printed numbers, or the text, support the claim? *Ours*: do our runs support it? If only "
        "another protocol tests the claim, the verdict with that protocol follows. “Not tested (so far reproduced)” "
        "means that too few networks are measured, and that the claim holds on these.",
        index(ledger),
        "## How a verdict is made",
        INTRO,
        "## The claims",
    ]
    return "\n\n".join([*parts, *map(section, cards(ledger))]) + "\n"


def summary(ledger):
    """Return the counts, then one line per claim."""
    lines = [f"{what}: {count}".replace("`", "") for what, count in counts(ledger)]
    return "\n".join([*lines, "", *(terminal_line(entry) for entry in ledger)])


def terminal_line(entry):
    ours = "".join(f"  {protocol}: {short(verdict)}" for protocol, verdict in entry.ours.items())
    return f"{entry.id:4} {entry.paper.status:13} {entry.claim['claim']}{ours and ' |' + ours}"
