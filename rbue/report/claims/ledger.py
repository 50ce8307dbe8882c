"""Every claim with its verdict on the paper's own numbers and on ours, one per protocol."""

from dataclasses import dataclass, replace

from rbue.report.claims.algebra import ALGEBRA
from rbue.report.claims.evidence import missing_text, places_text
from rbue.report.claims.numbers import Numbers, our_frames, paper_frame
from rbue.report.claims.predicates import PREDICATES
from rbue.report.claims.rules import NOT_TESTED, PAPERS, PARTLY, Verdict, decide, measured
from rbue.report.paper import read_paper


@dataclass(frozen=True)
class Entry:
    """One claim: its entry in claims.json, and its verdicts."""

    claim: dict
    paper: Verdict
    ours: dict  # {protocol: Verdict}; empty for claims that our measurements cannot decide

    @property
    def id(self):
        return self.claim["id"]

    @property
    def is_papers(self):
        """Whether the paper makes this claim. One is ours: what the corrected theory predicts."""
        return self.claim["section"] != "derived"


def load(paper_dir):
    return read_paper(paper_dir, "claims")["claims"]


def build(results, paper_dir, frames=None):
    """Build the 58 entries in the order of claims.json. `frames` are those of our_frames, if they are known already."""
    paper = Numbers.of(paper_frame(paper_dir))
    ours = {protocol: Numbers.of(frame) for protocol, frame in (frames or our_frames(results)).items()}
    return [Entry(claim, on_paper(claim, paper), on_ours(claim, ours)) for claim in load(paper_dir)]


def on_paper(claim, numbers):
    """Decide by algebra or by the printed numbers; otherwise quote the verdict by reading, with its reason."""
    if claim["id"] in ALGEBRA:
        return ALGEBRA[claim["id"]]()
    if claim["decided_from"] == "reading":
        return Verdict(claim["verdict"], claim["why"], claim["evidence"], by="reading")
    predicate = PREDICATES[claim["id"]]
    verdict = decide(predicate.check(numbers, predicate.scope), predicate.rule, numbers, words=PAPERS)
    return replace(verdict, seeds="", judged="")  # no seeds are stated, and no predictions


def on_ours(claim, ours):
    predicate = PREDICATES.get(claim["id"])
    if predicate is None or not predicate.ours:
        return {}
    return {protocol: wherever_measured(predicate, numbers) for protocol, numbers in ours.items()}


def wherever_measured(predicate, numbers):
    """Decide within the claim's scope. If nothing there is measured, ask the same question where it can be asked."""
    items = list(predicate.check(numbers, predicate.scope))
    transferred = predicate.transfers and not measured(items)
    outside = [place for place in numbers.places if transferred and place not in predicate.scope]
    there = [place for place in outside if measured(predicate.check(numbers, [place]))]
    if not there:
        return decide(items, predicate.rule, numbers)
    found = decide(predicate.check(numbers, there), predicate.rule, numbers, where=places_text(there))
    word = "partly reproduced" if found.status == PARTLY else found.status
    said = f"too little is measured (so far {found.so_far})" if found.so_far else f"it is {word}"
    nothing, missing = lack(items, predicate.scope, numbers)
    return Verdict(NOT_TESTED, f"{nothing} On {found.where}, {said}. {found.why}", missing=missing, elsewhere=found)


def lack(items, scope, numbers):
    """Say that no comparison within the scope has its numbers, and what is missing for one."""
    where = places_text(scope)
    if any(place in scope for place in numbers.places):
        return f"On {where}, no comparison has all its numbers.", missing_text(items, numbers)
    return f"Nothing is measured on {where}.", f"everything on {where}"
