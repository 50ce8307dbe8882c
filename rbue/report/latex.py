"""A table in LaTeX, laid out as in the paper: methods by networks by accuracy, ECE and training time."""

import re
from itertools import chain

from rbue.report.columns import MISSING, strong
from rbue.report.rows import PROPOSED, arch_name, dataset_name
from rbue.report.text import ANNOUNCED, announced, columns_of, coverage, notes, outside

UP, DOWN = r"(\%, $\uparrow$)", r"($\downarrow$)"
PRINTED = [  # heading, unit, our keys, the paper's keys in the line below; a second key is shown in brackets
    ("Accuracy", UP, ["ours_accuracy"], ["paper_accuracy", "diff_accuracy"]),
    ("ECE", DOWN, ["ours_ece"], ["paper_ece", "diff_ece"]),
    ("Training Time", DOWN, ["ours_train_seconds", "ours_time_ratio"], ["paper_train_hours", "paper_time_ratio"]),
]
SIZES = {
    "ours_parameters": ("Parameters", ""),
    "ours_peak_train_bytes": ("Peak memory", "(training)"),
    "ours_test_ms_per_image": ("Test time", "(ms/image)"),
}
TEX = str.maketrans({"–": "--", "±": r"$\pm$", "×": r"$\times$", "−": "$-$", **{c: f"\\{c}" for c in "%_&#{}$"}})
TEX |= str.maketrans({"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", **{c: f"${c}$" for c in "<>|"}})


def tex(text):
    """Convert our subset of Markdown (**bold**, `code`) and its symbols to LaTeX for pdflatex without packages."""
    text = re.sub(r"(?<![\w.])-(?=\d)", "$-$", text.translate(TEX))
    text = re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", text)
    return re.sub(r'"(.+?)"', r"``\1''", re.sub(r"`(.+?)`", r"\\texttt{\1}", text))


def entry(cell, keys, columns):
    """Return `94.60 (+0.12)`: the first column of a cell, and the second in brackets. Bold follows the first."""
    if not keys:
        return ""
    found = [columns[key] for key in keys]
    texts = [column.text(cell) for column in found]
    text = texts[0] if MISSING in texts else "".join([texts[0], *(f" ({each})" for each in texts[1:])])
    return strong(text, found[0].bold and cell[found[0].bold])


def tex_line(label, values):
    return " & ".join([label, *map(tex, values)]) + r" \\"


def tex_row(table, label):
    """Return our line and the paper's line below it, so that a network has as many columns as in the paper."""
    cells = table.cells[table.cells.row == label].to_dict("records")
    rule = [r"\midrule"] * 2 if label == PROPOSED[0] else []  # as in the paper: baselines above, proposed methods below
    columns = {column.key: column for column in columns_of(table)}
    ours = [entry(cell, keys, columns) for cell in cells for _, _, keys, _ in PRINTED]
    if not table.in_paper:
        return [*rule, tex_line(tex(label), ours)]
    paper = [entry(cell, keys, columns) for cell in cells for _, _, _, keys in PRINTED]
    return [*rule, tex_line(tex(label), ours), tex_line(r"\quad paper", paper)]


def tex_tabular(table, heads, body):
    """Lay out a table as in the paper: each network's columns under its name."""
    archs, width, (names, units) = table.archs, len(heads), zip(*heads, strict=True)
    bars = ["c|"] * (len(archs) - 1) + ["c"]
    over = " & ".join(
        rf"\multicolumn{{{width}}}{{{bar}}}{{{tex(arch_name(arch))}}}" for arch, bar in zip(archs, bars, strict=True)
    )
    heads = [
        rf"Model & {over} \\",
        r"\midrule",
        " & ".join(["Approach", *names * len(archs)]) + r" \\",
        " & ".join(["", *units * len(archs)]) + r" \\",
    ]
    return tex_frame(f"l|{'|'.join(['c' * width] * len(archs))}", heads, body)


def tex_frame(spec, heads, body):
    """Wrap a tabular that shrinks to the text width if needed, and is never enlarged."""
    begin = [r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%", rf"\begin{{tabular}}{{{spec}}}"]
    return [*begin, r"\toprule", *heads, r"\midrule", *body, r"\bottomrule", r"\end{tabular}}"]


def tex_float(caption, label, tabular, beneath=()):
    head = [r"\begin{table*}[htbp]\scriptsize", r"\centering", rf"\caption{{{caption}}}", rf"\label{{{label}}}"]
    below = [r"\par\raggedright", *(rf"{tex(note)}\par" for note in beneath)] if beneath else []
    return [*head, *tabular, *below, r"\end{table*}"]


def tex_grid(rows, caption, label, beneath):
    """Return a file with one table, from header and rows as text."""
    header, *lines = rows
    body = [tex_line(tex(name), values) for name, *values in lines]
    tabular = tex_frame("l" + "c" * (len(header) - 1), [tex_line(header[0], header[1:])], body)
    comment = "% Built by `make tables`: do not edit. Needs booktabs and graphicx."
    return "\n".join([comment, *tex_float(tex(caption), label, tabular, beneath), ""])


def about(table):
    return tex(f"Comparison over **{dataset_name(table.dataset)}**, protocol `{table.protocol}`")


def metrics_float(table):
    """Tables 1-3 as a float."""
    beside = ": ours, and beneath it the paper's number (ours $-$ paper; for the time, the ratio to Single)"
    caption = about(table) + (beside if table.in_paper else "") + "."
    heads = [(name, unit) for name, unit, *_ in PRINTED]
    tabular = tex_tabular(table, heads, list(chain(*(tex_row(table, row) for row in table.cells.row.unique()))))
    return tex_float(caption, f"tab:{table.dataset}-{table.protocol}", tabular, [coverage(table) + ".", *notes(table)])


def size_float(table):
    caption = f"{about(table)}: parameters, memory and test time, which the paper does not print."
    columns, cells = announced(table)
    rows = [tex_line(tex(cell["row"]), [column.shown(cell) for column in columns[1:]]) for cell in cells]
    heads = [SIZES.get(column.key, (column.group, "")) for column in ANNOUNCED]
    return tex_float(caption, f"tab:{table.dataset}-{table.protocol}-size", tex_tabular(table, heads, rows))


def latex(table):
    comments = ["Built by `make tables`: do not edit. Needs booktabs and graphicx.", *outside(table)]
    return "\n".join([*(f"% {line}" for line in comments), *metrics_float(table), "", *size_float(table), ""])
