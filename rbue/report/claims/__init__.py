"""Does it hold? 58 claims, one of them ours, each decided by code: first on the paper's own numbers, then on our own.

ledger = build(collect("results/runs"), "results/paper")
Path("results/claims.md").write_text(markdown(ledger), encoding="utf-8")

values      a number and what it can tell apart: rounding, test images, seeds
sampling    how our cells vary over test images and seeds, from stored predictions
numbers     the paper's tables and our runs as the same tidy cells
checks      the questions claims are made of: better, on par, at most, inside
evidence    the answers in words, and the cells that lack
rules       from win / tie / loss to a verdict, also when cells are missing
scopes      the rows, datasets and networks that claims name
special     the questions that one claim alone asks
predicates  the table: claim -> where it is about, how strictly, what it asks
algebra     Section 3.4 by Monte-Carlo
ledger      everything together
text        as Markdown and for a terminal
"""

from rbue.report.claims.ledger import Entry, build
from rbue.report.claims.rules import Verdict
from rbue.report.claims.text import markdown, summary

__all__ = ["Entry", "Verdict", "build", "markdown", "summary"]
