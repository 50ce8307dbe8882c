"""The findings as text: in one paragraph, and as a list for the README."""

from dataclasses import dataclass

from rbue.report.claims.evidence import listed
from rbue.report.verdict.answers import IN_ACCURACY, IN_ECE, NO, PARTLY, UNKNOWN, YES

BEGIN, END = "<!-- verdict: built by make claims -->", "<!-- end of verdict -->"
READING = (
    "A *variant* is MC-RReLU, or MC-DropReLU with one of the paper's four q. A *cell* is one method on one network and "
    "one dataset. n is the number of seeds. ECE is the expected calibration error and NLL the negative log-likelihood: "
    "lower is better. AUROC is the probability that an out-of-distribution image has a higher entropy than a test "
    "image. Square brackets hold a 95 % interval over test images. It includes the noise of seeds if at least one row "
    "on the dataset has several seeds. It does not include differences between versions of the code. Some claims are "
    "about every variant and not about the mean, so their verdicts may differ from the answer that links to them. A "
    "claim is “not tested” if we measured less than half of one of its parts, such as accuracy, and found no "
    "counterexample."
)


@dataclass(frozen=True)
class Finding:
    """One headline claim, whether it holds in our measurements, and the sentence that says why."""

    claim: str
    short: str
    answer: str
    sentence: str
    ids: tuple[str, ...]  # the claims of the ledger that have the details


def in_short(found: list[Finding]) -> str:
    """Return which claims hold, which do not, and which hold in one metric or in part, as sentences."""
    answers = (YES, NO, IN_ACCURACY, IN_ECE, PARTLY, UNKNOWN)
    named = {said: [f.short for f in found if f.answer == said and f.short] for said in answers}
    parts = [
        f"RBUE is {listed(named[YES])}" if named[YES] else "",
        f"RBUE is {listed([f'not {name}' for name in named[NO]])}" if named[NO] else "",
        f"In ECE, but not in accuracy, RBUE is {listed(named[IN_ECE])}" if named[IN_ECE] else "",
        f"In accuracy, but not in ECE, RBUE is {listed(named[IN_ACCURACY])}" if named[IN_ACCURACY] else "",
        f"In some comparisons, RBUE is {listed(named[PARTLY])}" if named[PARTLY] else "",
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
