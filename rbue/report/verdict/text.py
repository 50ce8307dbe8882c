"""The findings as text: in one paragraph, as a table for the README, and in full for the page of claims."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rbue.report.claims.evidence import listed
from rbue.report.claims.values import Value
from rbue.report.verdict.answers import IN_ONE, NO, PARTLY, UNKNOWN, YES, by_chance

BEGIN, END = "<!-- verdict: built by make claims -->", "<!-- end of verdict -->"
DETAILS = "results/claims.md"  # as the README names the page that has the answers in full
LINKED = "Each question links to its details: networks, seeds, and whether one of our choices favours a method."
NUMBERS = (
    "A *variant* is MC-RReLU, or MC-DropReLU with one of the paper's four q. RBUE is the mean of these five variants "
    "unless the line says “best variant”. A *cell* is one method on one network and one dataset.",
    "In comparisons, accuracy and ECE (expected calibration error) are differences: RBUE minus the other method. "
    "Points are percentage points. ECE and NLL (negative log-likelihood) are better if lower, the AUROC if higher.",
    "Differences, NLL and AUROC are means over all dataset-network pairs where the rows are measured. Square brackets "
    "hold 95 % intervals.",
)
READING = (
    "A *variant* is MC-RReLU, or MC-DropReLU with one of the paper's four q. A *cell* is one method on one network and "
    "one dataset. n is the number of seeds. ECE is the expected calibration error and NLL the negative log-likelihood: "
    "lower is better. AUROC is the probability that an out-of-distribution image has a higher entropy than a test "
    "image. Square brackets hold a 95 % interval over test images. It includes the noise of seeds if at least one row "
    "on the dataset has several seeds. It does not include differences between versions of the code. A claim may have "
    "another verdict than the answer that links to it: some claims are about every variant and not about the mean, and "
    "many need more networks than we have measured. A claim has parts, such as accuracy and ECE. It is “not tested” if "
    "we measured less than half of one part and found no counterexample."
)


@dataclass(frozen=True)
class Finding:
    """One headline claim, whether it holds in our measurements, and the sentence that says why."""

    claim: str
    short: str
    answer: str
    sentence: str
    brief: str  # the main numbers in a few words; empty if the sentence has none
    gaps: Mapping[str, Value]  # the differences that decide the answer, by what is compared
    ids: tuple[str, ...]  # the claims of the ledger that have the details

    @property
    def address(self) -> str:
        return re.sub("[^a-z0-9]+", "-", self.claim.lower()).strip("-")

    @property
    def numbers(self) -> str:
        return capital(self.brief or self.sentence)


def in_short(found: list[Finding]) -> str:
    """Return which claims hold, which do not, and which hold in one metric or in part, as sentences."""
    answers = (YES, NO, *IN_ONE, PARTLY, UNKNOWN)
    named = {said: [f.short for f in found if f.answer == said and f.short] for said in answers}
    parts = [
        f"RBUE is {listed(named[YES])}" if named[YES] else "",
        f"RBUE is {listed([f'not {name}' for name in named[NO]])}" if named[NO] else "",
        *(f"RBUE is {listed(named[said])} {said.replace(', ', ', but ')}" for said in IN_ONE if named[said]),
        f"Only in some comparisons, RBUE is {listed(named[PARTLY])}" if named[PARTLY] else "",
        f"We did not measure whether RBUE is {' or '.join(named[UNKNOWN])}" if named[UNKNOWN] else "",
    ]
    before, name, after = ". ".join(filter(None, parts)).partition("RBUE")
    return before + name + after.replace(". RBUE", ". It").replace("RBUE", "it")


def legend(found: list[Finding]) -> list[str]:
    """Say how to read the numbers of the answers, one text per point."""
    return [*NUMBERS, *correction(found)]


def correction(found: list[Finding]) -> list[str]:
    """Say which differences may be chance, since there are several."""
    gaps = {what: gap for each in found for what, gap in each.gaps.items()}
    if not (lost := by_chance(gaps)):
        return []
    return [
        "The intervals are not corrected for the number of differences, but the answers are: with Holm's correction "
        f"for all {len(gaps)}, chance may explain {len(lost)} of them, {listed(lost)}."
    ]


def markdown(found: list[Finding]) -> str:
    """Return the answer in one paragraph, then one line per question: its answer and the main numbers."""
    lines = [f"**{in_short(found)}.**", "", "| question | answer | numbers |", "| --- | --- | --- |"]
    for each in found:
        lines.append(f"| [{each.claim}]({DETAILS}#{each.address}) | **{capital(each.answer)}** | {each.numbers} |")
    return "\n".join([*lines, "", LINKED, "", *(f"- {point}" for point in legend(found))])


def in_full(found: list[Finding]) -> str:
    """Return every answer with all its sentences and the claims behind it, and how to read them."""
    parts = ["## The main answers", READING, *correction(found)]
    for each in found:
        links = ", ".join(f"[{name}](#{name.lower()})" for name in each.ids)
        evidence = f" Claims: {links}." if links else ""
        head = f'<a id="{each.address}"></a>\n\n### {each.claim}'  # the README links to this address
        parts += [head, f"**{capital(each.answer)}.** {each.sentence}.{evidence}"]
    return "\n\n".join(filter(None, parts))


def capital(text: str) -> str:
    return text[0].upper() + text[1:]
