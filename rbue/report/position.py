"""Where the random rectifiers stand (Section 4.5, Table 6): all, the last or the first; the paper's number beside ours.

One file a protocol, since the paper measures one network alone: its three rows first, then the networks we have.
"""

import json
from pathlib import Path

import pandas as pd

from rbue.report.cells import mean_and_spread, run_frame
from rbue.report.claims.numbers import labelled, paper_order
from rbue.report.latex import tex, tex_float, tex_line
from rbue.report.tables import pipe
from rbue.report.text import (
    arch_name,
    dataset_name,
    decimals,
    duration,
    hours,
    milliseconds,
    over_seeds,
    plain,
    times,
)

POSITIONS = {"all": "all layers", "last": "last layer", "first": "first layer"}  # in the paper's order
PLACE = ["dataset", "arch", "row"]
KEY = [*PLACE, "position"]
MEASURES = ["accuracy", "ece", "train_seconds", "time_ratio", "test_ms_per_image"]
COLUMNS = [
    ("Accuracy, %: paper", plain("paper_accuracy", decimals(0))),
    ("ours", lambda cell: over_seeds(cell, "accuracy", decimals(2))),
    ("ECE: paper", plain("paper_ece", decimals(2))),
    ("ours", lambda cell: over_seeds(cell, "ece", decimals(3))),
    ("Training time: paper", plain("paper_train_hours", hours)),
    ("ours", plain("ours_train_seconds", duration)),
    ("Time / all layers': paper", plain("paper_time_ratio", times)),
    ("ours", plain("ours_time_ratio", times)),
    ("Test ms/image", plain("ours_test_ms_per_image", milliseconds)),
]
NOTES = [
    "Mean ± standard deviation over seeds (number of seeds).",
    "The paper prints accuracy here with two digits and states TinyImageNet, DenseNet-121 and q = 0.8.",
    "First is the network's first rectifier: none stands before the first convolution.",
    "All samples of a network random in its last layer cost a few passes: what comes before is computed once.",
]


def paper_frame(paper_dir):
    """Accuracy in percent, time as a ratio to the network that is random everywhere."""
    entries = json.loads((Path(paper_dir) / "numbers.json").read_text())["position"]
    frame = pd.DataFrame([entry | {"row": labelled(entry), "accuracy": 100 * entry["accuracy"]} for entry in entries])
    everywhere = frame.set_index("position").train_hours["all"]
    frame = frame.assign(time_ratio=frame.train_hours / everywhere)
    return frame.set_index(KEY)[["accuracy", "ece", "train_hours", "time_ratio"]].add_prefix("paper_")


def our_frame(runs):
    """Mean, std and n of every network that is measured at another position than `all` too."""
    runs = runs.drop(columns="row").rename(columns={"position_row": "row"})
    runs = runs[runs.row.notna() & runs.groupby(PLACE, dropna=False).position.transform(lambda p: (p != "all").any())]
    everywhere = runs[(runs.position == "all") & ~runs.shared].groupby([*PLACE, "machine"]).train_seconds.mean()
    base = runs[[*PLACE, "machine"]].merge(everywhere.reset_index(), how="left").train_seconds.to_numpy()
    groups = runs.assign(time_ratio=(runs.train_seconds / base).where(~runs.shared)).groupby(KEY)
    return mean_and_spread(groups, MEASURES)


def cells(runs, paper_dir):
    """The paper's rows and ours, every network with its three positions."""
    paper, ours = paper_frame(paper_dir), our_frame(runs)
    others = sorted({key[:3] for key in ours.index} - {key[:3] for key in paper.index}, key=paper_order)
    places = [paper.index[0][:3], *others]
    index = pd.MultiIndex.from_tuples([(*place, position) for place in places for position in POSITIONS], names=KEY)
    frame = paper.reindex(index).join(ours)
    return frame.assign(n=frame.n.fillna(0).astype(int)).reset_index()


def build(results, paper_dir):
    """{protocol: cells} for every protocol with clean runs."""
    runs = run_frame(results)
    if runs.empty:
        return {}
    return {protocol: cells(group, paper_dir) for protocol, group in runs.groupby("protocol")}


# --- text -------------------------------------------------------------------------------------------------------------


def label(cell):
    return f"{dataset_name(cell['dataset'])}, {arch_name(cell['arch'])}, {cell['row']}: {POSITIONS[cell['position']]}"


def grid(frame):
    rows = [[label(cell), *(fill(cell) for _, fill in COLUMNS)] for cell in frame.to_dict("records")]
    return [["Network and place", *(header for header, _ in COLUMNS)], *rows]


def markdown(protocol, frame):
    notes = "\n".join(f"- {note}" for note in NOTES)
    head = f"# Table 6 of the paper: where the random rectifiers stand, protocol `{protocol}`"
    return f"{head}\n\nBuilt by `make tables`: do not edit.\n\n{pipe(grid(frame))}\n\n{notes}\n"


def latex(protocol, frame):
    header, *rows = grid(frame)
    tabular = [
        r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{l{'c' * (len(header) - 1)}}}",
        r"\toprule",
        tex_line(header[0], header[1:]),
        r"\midrule",
        *(tex_line(tex(name), values) for name, *values in rows),
        r"\bottomrule",
        r"\end{tabular}}",
    ]
    caption = tex(f"Position of the random rectifiers, protocol `{protocol}`: the paper's numbers and ours.")
    lines = tex_float(caption, f"tab:position-{protocol}", tabular, NOTES)
    return "\n".join(["% Built by `make tables`: do not edit. Needs booktabs and graphicx.", *lines, ""])


def csv(protocol, frame):
    return frame.assign(protocol=protocol).to_csv(index=False, float_format="%.10g", lineterminator="\n")


FORMS = {"md": markdown, "tex": latex, "csv": csv}


def write(protocol, frame, out):
    """<out>/<protocol>/position.md, .tex and .csv; returns the paths."""
    folder, paths = Path(out) / protocol, []
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, render in FORMS.items():
        paths.append(folder / f"position.{suffix}")
        paths[-1].write_text(render(protocol, frame), encoding="utf-8", newline="\n")
    return paths
