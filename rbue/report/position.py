"""The position of the stochastic rectifiers (Section 4.5, Table 6): all, last or first; the paper's number and ours.

There is one file per protocol. The paper measures one network: its three rows come first, then our networks.
"""

from pathlib import Path

import pandas as pd

from rbue.report.columns import decimals, duration, grid, hours, milliseconds, number, pipe, seeded, times, words
from rbue.report.latex import tex_grid
from rbue.report.paper import read_paper
from rbue.report.records import ROW, over_seeds, ratio_to
from rbue.report.rows import arch_name, by_protocol, dataset_name, labelled, paper_order
from rbue.report.tables import csv_text, write_forms
from rbue.runs.compose import canonical

POSITIONS = {"all": "all layers", "last": "last layer", "first": "first layer"}  # in the paper's order
KEY = [*ROW, "position"]
MEASURES = ["accuracy", "ece", "train_seconds", "time_ratio", "test_ms_per_image"]


def label(cell):
    return f"{dataset_name(cell['dataset'])}, {arch_name(cell['arch'])}, {cell['row']}: {POSITIONS[cell['position']]}"


COLUMNS = [
    words("row", "Network and place", text=label),
    number("paper_accuracy", "Accuracy, %", "paper", decimals(0), side="paper"),
    seeded("accuracy", "Accuracy, %", "ours", decimals(2), side="ours"),
    number("paper_ece", "ECE", "paper", decimals(2), side="paper"),
    seeded("ece", "ECE", "ours", decimals(3), side="ours"),
    number("paper_train_hours", "Training time", "paper", hours, side="paper"),
    number("ours_train_seconds", "Training time", "ours", duration, side="ours"),
    number("paper_time_ratio", "Time / all layers'", "paper", times, side="paper"),
    number("ours_time_ratio", "Time / all layers'", "ours", times, side="ours"),
    number("ours_test_ms_per_image", "Test ms/image", "", milliseconds),
]
NOTES = [
    "Our numbers are mean ± standard deviation over seeds. The number of seeds is in brackets.",
    "The paper prints accuracy here with two digits. It states TinyImageNet, DenseNet-121 and q = 0.8.",
    "The first layer is the network's first rectifier, since no rectifier is before the first convolution.",
    "If only the last layer is random, all samples together cost a few passes: the layers before it are computed once.",
]


def paper_frame(paper_dir):
    """Read Table 6: accuracy in percent, time relative to the network with noise in all layers."""
    entries = read_paper(paper_dir, "numbers")["position"]
    frame = pd.DataFrame([entry | {"row": labelled(entry), "accuracy": 100 * entry["accuracy"]} for entry in entries])
    everywhere = frame.set_index("position").train_hours["all"]
    frame = frame.assign(time_ratio=frame.train_hours / everywhere)
    return frame.set_index(KEY)[["accuracy", "ece", "train_hours", "time_ratio"]].add_prefix("paper_")


def our_frame(runs):
    """Mean, std and n of each network that is also measured at a position other than `all`. Training times have a ratio
    only if one machine and one version of the code measured them."""
    runs = runs[runs.row.notna() & runs.position.notna()]
    runs = runs[(runs.position != "all").groupby([runs[name] for name in ROW]).transform("any")]
    runs = runs.assign(time_ratio=ratio_to(runs[runs.position == "all"], runs, [*ROW, "origin"]))
    return over_seeds(runs, KEY, MEASURES).set_index(KEY)


def cells(runs, paper_dir):
    """Join the paper's rows and ours; every network has all three positions."""
    paper, ours = paper_frame(paper_dir), our_frame(runs)
    others = sorted({key[:3] for key in ours.index} - {key[:3] for key in paper.index}, key=paper_order)
    places = [paper.index[0][:3], *others]
    index = pd.MultiIndex.from_tuples([(*place, position) for place in places for position in POSITIONS], names=KEY)
    frame = paper.reindex(index).join(ours)
    return frame.assign(n=frame.n.fillna(0).astype(int)).reset_index()


def build(records, paper_dir):
    """Return {protocol: cells} for every protocol with clean runs, full schedules first."""
    groups = sorted(records[~records.corrupted].groupby("protocol"), key=lambda group: by_protocol(group[0]))
    return {protocol: cells(group, paper_dir) for protocol, group in groups}


# --- text -------------------------------------------------------------------------------------------------------------


def notes(protocol, frame):
    return [*NOTES, *epochs_note(protocol, frame)]


def epochs_note(protocol, frame):
    """Say if we trained the paper's network for fewer epochs than the paper."""
    dataset, measured = frame.dataset.iloc[0], frame.n[frame.paper_ece.notna()].any()
    ours, stated = (canonical(dataset, name, "single") for name in (protocol, "paper"))
    if not measured or ours is None or ours.epochs == stated.epochs:
        return []
    trained = f"we trained for {ours.epochs} epochs, the paper for {stated.epochs}"
    return [f"On {dataset_name(dataset)}, {trained}. Training times compare only as ratios."]


def rows(frame):
    """Return header and rows as text."""
    return grid(COLUMNS, frame.to_dict("records"))


def markdown(protocol, frame):
    told = "\n".join(f"- {note}" for note in notes(protocol, frame))
    head = f"# Table 6 of the paper: position of the random rectifiers, protocol `{protocol}`"
    return f"{head}\n\nBuilt by `make tables`: do not edit.\n\n{pipe(rows(frame))}\n\n{told}\n"


def latex(protocol, frame):
    caption = f"Position of the random rectifiers, protocol `{protocol}`: the paper's numbers and ours."
    return tex_grid(rows(frame), caption, f"tab:position-{protocol}", notes(protocol, frame))


def csv(protocol, frame):
    return csv_text(frame.assign(protocol=protocol))


FORMS = {"md": markdown, "tex": latex, "csv": csv}


def write(protocol, frame, out):
    """Write <out>/<protocol>/position.md, .tex and .csv, and return their paths."""
    return write_forms(Path(out) / protocol / "position", {form: f(protocol, frame) for form, f in FORMS.items()})
