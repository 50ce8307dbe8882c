"""A table as text, before it is Markdown beside a figure or HTML on the page."""

from dataclasses import dataclass

from rbue.report.tables import pipe


@dataclass(frozen=True)
class Grid:
    """Header and rows as text, the sentences beneath. A header `ECE: paper` opens a group that `ours` goes on."""

    title: str
    rows: list  # the header first
    notes: list

    def markdown(self):
        notes = " ".join([*self.notes, "Built by `make figures`: do not edit."])
        return f"# {self.title}\n\n{pipe(self.rows)}\n\n{notes}\n"
