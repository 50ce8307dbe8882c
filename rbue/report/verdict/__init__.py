"""The verdict: a short answer per main claim of the paper, computed from the results. It opens README and page.

A finding compares means over all measured networks. Its interval holds at 95 % over test images, and over seeds if any
row on the dataset has several. An answer says if something is not measured.

answers     the possible answers
evidence    our numbers under one protocol, the printed ones, and costs and scores of each row
quality     accuracy, ECE, other scores and diversity
cost        training and test time
corruption  calibration on corrupted images
text        the findings for the README and the page of claims
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rbue.report.claims.numbers import our_frames
from rbue.report.claims.scopes import SINGLE, SVI
from rbue.report.verdict.answers import IN_ONE, NO, NO_TIMES, PARTLY, UNKNOWN, YES, Found, by_chance
from rbue.report.verdict.corruption import under_corruption
from rbue.report.verdict.cost import inference_cost, training_cost
from rbue.report.verdict.evidence import Evidence, gather
from rbue.report.verdict.quality import (
    baseline,
    best_row,
    compare,
    deep_ensemble,
    diversity,
    mc_dropout,
    printed_numbers,
)
from rbue.report.verdict.text import BEGIN, END, READING, Finding, in_full, in_short, legend, markdown

__all__ = ["BEGIN", "END", "IN_ONE", "NO", "NO_TIMES", "PARTLY", "QUESTIONS", "READING"]
__all__ += ["UNKNOWN", "YES", "Finding", "build", "compare", "findings", "in_full", "in_short", "inference_cost"]
__all__ += ["legend", "markdown"]

RANKINGS = [  # question, metric, its name, and whether more (1) or less (-1) is better
    ("Which method has the lowest NLL?", "nll", "NLL", -1),
    ("Which method detects out-of-distribution images best?", "auroc", "AUROC of the entropy", 1),
]
single = partial(baseline, "Single", [SINGLE])
NEARLY_FIXED = (
    "Here, training changes SVI's standard deviations little. We chose their initial value on held-out images of "
    "CIFAR-10, after 30 epochs. "
)
svi = partial(baseline, "SVI", [SVI], reading=NEARLY_FIXED)
QUESTIONS: list[tuple[str, str, tuple[str, ...], Callable[[Evidence], Found]]] = [
    ("Are the printed numbers reproduced?", "", (), printed_numbers),
    ("Is RBUE on par with Deep Ensemble?", "on par with Deep Ensemble", ("A15", "A1"), deep_ensemble),
    ("Is it better than a plain network (Single)?", "better than Single", ("A12", "A14"), single),
    (
        "Is it better than MC-Dropout?",
        "better than MC-Dropout (dropout before the classifier)",
        ("A3", "A13"),
        mc_dropout,
    ),
    ("Is it better than SVI?", "better than SVI", ("A13",), svi),
    ("Is it cheap to train?", "cheap to train", ("A7", "A9", "A11"), training_cost),
    ("Is it cheap at test time?", "cheap at test time", ("A15",), inference_cost),
    (
        "Is it better calibrated under corruption?",
        "better calibrated under corruption than baselines",
        ("F1", "F3"),
        under_corruption,
    ),
    ("Are its samples more diverse than MC-Dropout's?", "more diverse than MC-Dropout", ("D3", "D4"), diversity),
]


def build(results: list, paper_dir: str, frames: dict | None = None) -> list[Finding]:
    """Answer every question from our runs; there is no answer without a run."""
    frames = our_frames(results) if frames is None else frames
    return findings(gather(results, paper_dir, frames)) if frames else []


def findings(evidence: Evidence) -> list[Finding]:
    """Answer the questions about the paper's claims, then those about scores that it does not print, where known."""
    rankings = [(question, "", (), partial(best_row, metric=m, name=name, sign=s)) for question, m, name, s in RANKINGS]
    asked = [*QUESTIONS, *rankings]
    found = [find(evidence) for *_, find in asked]
    lost = by_chance({what: gap for each in found if each for what, gap in each.gaps.items()})
    careful = replace(evidence, by_chance=lost)
    return [
        Finding(question, short, *(find(careful) if first.gaps else first), ids)
        for (question, short, ids, find), first in zip(asked, found, strict=True)
        if first
    ]
