"""Our baselines beside those that other projects publish for the same datasets and networks."""

from pathlib import Path

import numpy as np
import pandas as pd

from rbue.report.cells import paper_cells
from rbue.report.columns import absent, decimals, from_to, grid, number, pipe, seeded, shown, signed, words
from rbue.report.latex import tex_grid
from rbue.report.paper import read_paper
from rbue.report.records import KEY, ROW, in_tables, over_seeds
from rbue.report.rows import FULL, by_protocol, place_name
from rbue.report.tables import csv_text, write_forms
from rbue.runs.compose import canonical

SCORES = ["accuracy", "ece"]
TITLE = "Our baselines beside those of other projects"


COLUMNS = [
    words("place", "Network", text=lambda cell: place_name(cell["dataset"], cell["arch"])),
    words("method", "Method", "theirs"),
    words("row", "Method", "ours"),
    number("their_accuracy", "Accuracy, %", "theirs", decimals(2)),
    seeded("accuracy", "Accuracy, %", "ours", decimals(2), side="ours"),
    number("paper_accuracy", "Accuracy, %", "paper", decimals(2), side="paper"),
    number("their_ece", "ECE", "theirs", decimals(3)),
    seeded("ece", "ECE", "ours", decimals(3), side="ours"),
    number("paper_ece", "ECE", "paper", decimals(2), side="paper"),
    words("protocol", "Our protocol", text=lambda cell: shown("`{}`".format)(cell["protocol"])),
    words("project", "Source"),
]


def published(paper_dir):
    """Read the numbers of other projects; of several seeds, the mean."""
    content = read_paper(paper_dir, "peers")
    rows = [row | {f"their_{score}": mean(row.pop(score)) for score in SCORES} for row in content["rows"]]
    sources = pd.DataFrame.from_dict(content["projects"], orient="index").add_prefix("their_")
    return pd.DataFrame(rows).join(sources, on="project")


def mean(value):
    return np.nan if absent(value) else float(np.mean(value))


def build(records, paper_dir):
    """Join each number of another project with the paper's and ours, from our fullest protocol with this row."""
    ours = over_seeds(records[in_tables(records)], KEY, SCORES)
    ours = ours.sort_values("protocol", key=lambda names: names.map(by_protocol)).drop_duplicates(ROW)
    paper = paper_cells(paper_dir)[[*ROW, *SCORES]].rename(columns={score: f"paper_{score}" for score in SCORES})
    frame = published(paper_dir).merge(paper, on=ROW, how="left").merge(ours, on=ROW, how="left")
    return frame.assign(n=frame.n.fillna(0).astype(int))


# --- text -------------------------------------------------------------------------------------------------------------


def answer(frame):
    """Say how far our Single rows are from those of others, and whether ours or the printed ECEs are nearer to them."""
    single = frame[(frame.row == "Single") & (frame.n > 0)]
    if single.empty:
        return "None of our Single rows is measured yet."
    accuracy, ece = ((single[f"ours_{score}"] - single[f"their_{score}"]).dropna() for score in SCORES)
    median = difference(2)(accuracy.median())
    text = (
        f"Our Single differs from that of other projects by {from_to(accuracy, difference(2))} points of accuracy "
        f"({compared(accuracy)}{short(single)}; median {median})"
    )
    if len(ece):
        nearer = (ece.abs() < (single.paper_ece - single.their_ece).abs().loc[ece.index]).sum()
        text += f" and {from_to(ece, difference(3))} of ECE ({compared(ece)}). "
        text += f"In {nearer} of these {len(ece)}, our ECE is nearer to theirs than the printed one is"
    return f"{text}. Their protocols differ from ours, so only rough agreement can be expected."


def difference(digits):
    """Format a difference in a sentence: with a minus sign, as in the verdict, and not with a hyphen as in tables."""
    return lambda value: signed(digits)(value).replace("-", "−")


def short(single):
    """Say how many rows of ours have fewer epochs than the paper's."""
    count = (~single.protocol.isin(FULL)).sum()
    return f", {count} of them with a short training of ours" if count else ""


def compared(differences):
    return f"{len(differences)} comparison{'s' if len(differences) > 1 else ''}"


def notes(frame):
    """Say how to read the table, how we trained, and how each project trained."""
    ours = frame[frame.n > 0].drop_duplicates("protocol")
    runs = {row.protocol: canonical(row.dataset, row.protocol, "single") for row in ours.itertuples()}
    files = frame.drop_duplicates("project").sort_values("project", key=lambda names: names.str.lower())
    return [
        "Our numbers are mean ± standard deviation over seeds. The number of seeds is in brackets.",
        "The number after a method is its p or its number of members. Our row is the nearest one.",
        *(
            f"Our `{name}`: SGD, {run.epochs} epochs, weight decay {run.weight_decay:g}, {run.bins} ECE bins."
            for name, run in runs.items()
            if run
        ),
        *(f"https://github.com/{p.project}, `{p.their_file}`: {p.their_protocol}." for p in files.itertuples()),
    ]


def rows(frame):
    """Return header and rows as text."""
    return grid(COLUMNS, frame.to_dict("records"))


def markdown(frame):
    told = "\n".join(f"- {note}" for note in notes(frame))
    head = f"# {TITLE}\n\n{answer(frame)}\n\nBuilt by `make tables`: do not edit."
    return f"{head}\n\n{pipe(rows(frame))}\n\n{told}\n"


def latex(frame):
    return tex_grid(rows(frame), f"{TITLE}. {answer(frame)}", "tab:peers", notes(frame))


FORMS = {"md": markdown, "tex": latex, "csv": csv_text}


def write(frame, out):
    """Write <out>/peers.md, .tex and .csv, and return their paths."""
    return write_forms(Path(out) / "peers", {form: text(frame) for form, text in FORMS.items()})
