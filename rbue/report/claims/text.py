"""The ledger as a Markdown page, and its counts for a terminal. Without timestamps, equal runs give equal bytes."""

from collections import Counter

from rbue.report.claims.rules import PARTLY, REFUTED, SUPPORTED, UNDECIDED
from rbue.runs.compose import canonical

STATUSES = [SUPPORTED, PARTLY, REFUTED, UNDECIDED]
INTRO = """\
Each claim of the paper as a question to numbers, asked by the same code of the paper's own tables and of our runs.
Built by `make claims`: do not edit.

- **On the paper's numbers** a printed difference counts once it clears the rounding of both sides; *beyond rounding
  and noise* also asks for 1.96 binomial standard errors of 10,000 test images (win / tie / loss).
- **On ours** a difference counts beyond 1.96 standard errors: test images and, from two seeds up, seeds. Smaller ones
  are ties. n is the number of seeds behind a cell.
- *Paired over images*: both sides have stored what they predict for every test image, so what makes an image hard for
  both cancels; with one seed each this is about these trained networks, not about the methods; a row of one seed is
  lent the scatter of the other's. Ensembles that share members count as one seed. *Unpaired*: one side has not, and
  both count as independent. One claim asks many such questions, and some would differ by chance: only
  what survives Holm's correction for their number counts, and *undone* says how many did not. Numbers beside a claim,
  on which its verdict does not rest, are not corrected.
- In brackets the smallest and the largest difference: a lower ECE and a shorter time win, of all else the higher.
- **supported**, **partly** (here, and there not, or only within noise), **refuted**; **undecided**: the missing cells
  could still turn it, or no difference is beyond rounding or noise. *By reading*: definitions and citations, which no
  number decides.
- *Elsewhere*: nothing is measured where the claim is made, so the same question is put to the networks there are.
- A row is what the tables have under its name. Where the paper does not say how it set a method (MC-Dropout's
  placement, SVI's optimizer and standard deviations), a verdict on that row holds for our setting alone.
- T6 is not the paper's claim but what the corrected variance says."""


def protocols(ledger):
    return list(dict.fromkeys(protocol for entry in ledger for protocol in entry.ours))


# --- one verdict ------------------------------------------------------------------------------------------------------


def verdict_text(verdict):
    if verdict is None:
        return "–"
    if verdict.elsewhere:
        return f"undecided: {verdict.missing} missing. Elsewhere, {verdict.elsewhere.where}: " + body(verdict.elsewhere)
    return body(verdict)


def body(verdict):
    """Return the verdict in bold, its evidence, the missing cells, the number of seeds, and whether it is paired."""
    head = f"**{verdict.status}**" + {"reading": " (by reading)", "algebra": " (by algebra)"}.get(verdict.by, "")
    so_far = f", so far {verdict.so_far}" if verdict.so_far not in ("", UNDECIDED) else ""
    details = [verdict.evidence, verdict.missing and f"missing {verdict.missing}"]
    return head + so_far + ": " + "; ".join(filter(None, details)) + seeds(verdict)


def seeds(verdict):
    known = ", ".join(filter(None, [verdict.seeds, verdict.judged]))
    return f" ({known})" if known else ""


# --- counts -----------------------------------------------------------------------------------------------------------


def count_text(statuses):
    """Return '12 supported, 5 partly' in a fixed order; other verdicts by reading come last."""
    counts = Counter(statuses)
    order = [*STATUSES, *sorted(set(counts) - set(STATUSES))]
    return ", ".join(f"{counts[status]} {status}" for status in order if counts[status]) or "none"


def paper_counts(ledger):
    computed = [entry.paper.status for entry in ledger if entry.paper.by != "reading"]
    read = [entry.paper.status for entry in ledger if entry.paper.by == "reading"]
    yield f"The paper's own numbers, {len(computed)} claims computed", count_text(computed)
    yield f"The paper, {len(read)} claims by reading", count_text(read)


def our_counts(ledger, protocol):
    verdicts = [entry.ours[protocol] for entry in ledger if protocol in entry.ours]
    yield f"Ours, protocol `{protocol}`, {len(verdicts)} claims", count_text(v.status for v in verdicts)
    elsewhere = [v.elsewhere for v in verdicts if v.elsewhere]
    if elsewhere:
        undecided = f"{len(elsewhere)} of the undecided asked of other cells"
        yield f"Ours, protocol `{protocol}`, {undecided}", count_text(v.status for v in elsewhere)


def counts(ledger):
    yield from paper_counts(ledger)
    for protocol in protocols(ledger):
        yield from our_counts(ledger, protocol)


def short_training(ledger):
    """Yield a sentence per protocol with fewer epochs than the paper: its verdicts do not judge the paper."""
    stated = canonical("cifar10", "paper", "single").epochs
    for protocol in protocols(ledger):
        run = canonical("cifar10", protocol, "single")
        if run and run.epochs < stated:
            yield (
                f"Protocol `{protocol}` trains for {run.epochs} epochs, the paper for {stated}: its verdicts are on "
                "that short training and do not judge the paper's."
            )


# --- the page ---------------------------------------------------------------------------------------------------------


def line(cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def table(header, rows):
    return "\n".join([line(header), "|" + "---|" * len(header), *map(line, rows)])


def row(entry, columns):
    """Return one claim's row. A claim decided by algebra or reading has no verdict of ours, since no run changes it."""
    ours = [verdict_text(entry.ours.get(protocol)) for protocol in columns]
    return [entry.id, entry.claim["claim"], entry.claim["section"], verdict_text(entry.paper), *ours]


def notes(ledger):
    """List where the computed verdict differs from the one by hand, and why."""
    lines = [f"- {e.id}: {e.claim['note']}" for e in ledger if "note" in e.claim]
    return "\n".join(["## Where the computed verdict is not the one by hand", "", *lines])


def markdown(ledger):
    columns = protocols(ledger)
    header = ["Id", "Claim", "Section", "On the paper's own numbers", *(f"On ours, `{p}`" for p in columns)]
    parts = ["# Does it hold? The paper's claims", INTRO, table(["Verdicts on", "Count"], counts(ledger))]
    parts += [*short_training(ledger), table(header, [row(entry, columns) for entry in ledger]), notes(ledger)]
    return "\n\n".join(parts) + "\n"


def summary(ledger):
    """Return the counts, then one line per claim."""
    lines = [f"{what}: {count}".replace("`", "") for what, count in counts(ledger)]
    return "\n".join([*lines, "", *(terminal_line(entry) for entry in ledger)])


def terminal_line(entry):
    ours = "".join(f"  {protocol}: {short(verdict)}" for protocol, verdict in entry.ours.items())
    return f"{entry.id:4} {entry.paper.status:12} {entry.claim['claim']}{ours and ' |' + ours}"


def short(verdict):
    return f"{verdict.elsewhere.status} elsewhere" if verdict.elsewhere else verdict.status
