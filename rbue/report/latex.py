"""A table in LaTeX, in the paper's own frame: methods by networks by accuracy, ECE and training time."""

import re
from itertools import chain

from rbue.report.rows import PROPOSED
from rbue.report.text import (
    MISSING,
    announced,
    arch_name,
    coverage,
    dataset_name,
    decimals,
    duration,
    hours,
    notes,
    outside_lines,
    over_seeds,
    signed,
    strong,
    times,
)

TEX = str.maketrans({"–": "--", "±": r"$\pm$", "×": r"$\times$", "−": "$-$", **{c: f"\\{c}" for c in "%_&#"}})


def tex(text):
    """Our little Markdown (**bold**, `code`) and its symbols in LaTeX, for pdflatex without packages."""
    text = re.sub(r"(?<![\w.])-(?=\d)", "$-$", text.translate(TEX))
    text = re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", text)
    return re.sub(r'"(.+?)"', r"``\1''", re.sub(r"`(.+?)`", r"\\texttt{\1}", text))


def bracketed(text, inside):
    return text if MISSING in (text, inside) else f"{text} ({inside})"


def tex_ours(cell):
    time = bracketed(duration(cell["ours_train_seconds"]), times(cell["ours_time_ratio"]))
    accuracy, ece = over_seeds(cell, "accuracy", decimals(2)), over_seeds(cell, "ece", decimals(3))
    return [strong(text, cell["ours_bold"]) for text in (accuracy, ece, time)]


def tex_paper(cell):
    accuracy = bracketed(decimals(2)(cell["paper_accuracy"]), signed(2)(cell["diff_accuracy"]))
    ece = bracketed(decimals(2)(cell["paper_ece"]), signed(3)(cell["diff_ece"]))
    time = bracketed(hours(cell["paper_train_hours"]), times(cell["paper_time_ratio"]))
    return [strong(text, cell["paper_bold"]) for text in (accuracy, ece, time)]


def tex_line(label, values):
    return " & ".join([label, *map(tex, values)]) + r" \\"


def tex_row(table, label):
    """Ours, and beneath it the paper's: the paper's three columns a network stay three."""
    cells = table.cells[table.cells.row == label].to_dict("records")
    rule = [r"\midrule"] * 2 if label == PROPOSED[0] else []  # as in the paper: baselines above, proposed below
    ours = [tex_line(label, chain(*map(tex_ours, cells)))]
    paper = [tex_line(r"\quad paper", chain(*map(tex_paper, cells)))] if table.in_paper else []
    return [*rule, *ours, *paper]


def tex_tabular(table, names, arrows, body):
    """The paper's frame: three columns a network under its name."""
    archs = table.archs
    bars = ["c|"] * (len(archs) - 1) + ["c"]
    over = " & ".join(
        rf"\multicolumn{{3}}{{{bar}}}{{{tex(arch_name(arch))}}}" for arch, bar in zip(archs, bars, strict=True)
    )
    return [
        r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",  # shrinks, never enlarges
        rf"\begin{{tabular}}{{l|{'|'.join(['ccc'] * len(archs))}}}",
        r"\toprule",
        rf"Model & {over} \\",
        r"\midrule",
        " & ".join(["Approach", *names * len(archs)]) + r" \\",
        " & ".join(["", *arrows * len(archs)]) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}}",
    ]


def tex_float(caption, label, tabular, beneath=()):
    head = [r"\begin{table*}[htbp]\scriptsize", r"\centering", rf"\caption{{{caption}}}", rf"\label{{{label}}}"]
    below = [r"\par\raggedright", *(rf"{tex(note)}\par" for note in beneath)] if beneath else []
    return [*head, *tabular, *below, r"\end{table*}"]


def about(table):
    return tex(f"Comparison over **{dataset_name(table.dataset)}**, protocol `{table.protocol}`")


def metrics_float(table):
    """Tables 1-3."""
    beside = ": ours, and beneath it the paper's number (ours $-$ paper; for the time, the ratio to Single)"
    caption = about(table) + (beside if table.in_paper else "") + "."
    arrows = [r"(\%, $\uparrow$)", r"($\downarrow$)", r"($\downarrow$)"]
    rows = list(chain(*(tex_row(table, row) for row in table.labels)))
    tabular = tex_tabular(table, ["Accuracy", "ECE", "Training Time"], arrows, rows)
    return tex_float(caption, f"tab:{table.dataset}-{table.protocol}", tabular, [coverage(table) + ".", *notes(table)])


def size_float(table):
    caption = f"{about(table)}: what the paper announces and does not print."
    rows = [tex_line(label, values) for label, *values in announced(table)[1:]]
    names, units = ["Parameters", "Peak memory", "Test time"], ["", "(training)", "(ms/image)"]
    return tex_float(caption, f"tab:{table.dataset}-{table.protocol}-size", tex_tabular(table, names, units, rows))


def latex(table):
    comments = ["Built by `make tables`: do not edit. Needs booktabs and graphicx.", *outside_lines(table)]
    return "\n".join([*(f"% {line}" for line in comments), *metrics_float(table), "", *size_float(table), ""])
