"""58 claims, one of them ours. Code decides each of them, first on the paper's own numbers, then on ours.

ledger = build(collect("results/runs"), "results/paper")
Path("results/claims.md").write_text(markdown(ledger), encoding="utf-8")

values      a number with its error, and when two numbers differ: rounding, test images, seeds
sampling    how our cells vary over test images and seeds, from stored predictions
numbers     the paper's tables and our runs as the same tidy cells
checks      the comparisons that claims consist of: better, on par, at most, inside
evidence    the outcomes in words: why a verdict is what it is, and the missing cells
rules       from win / tie / loss to a verdict, also if cells are missing
scopes      the rows, datasets and networks that claims name
special     comparisons that only one claim needs
predicates  the table: claim -> its scope, its rule, its checks
algebra     Section 3.4 by Monte-Carlo
ledger      all claims with their verdicts
text        the ledger as cards, as Markdown and for a terminal
"""

from rbue.report.claims.ledger import build
from rbue.report.claims.numbers import our_frames
from rbue.report.claims.text import cards, markdown, summary

__all__ = ["build", "cards", "markdown", "our_frames", "summary"]
