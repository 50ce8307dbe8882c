"""The paper's Tables 1-3, the paper's number next to ours: Markdown, LaTeX, CSV, and plain text for a terminal.

    for table in build(records(collect("results/runs")), "results/paper"):
        write(table, "results/tables")
        print(summary(table))

The output has no timestamps and no paths: the same runs give the same bytes, and a test checks it.
"""

from collections import defaultdict
from pathlib import Path

import pandas as pd

from rbue.errors import UserError
from rbue.progress import padded
from rbue.report.cells import of_paper, worth_showing
from rbue.report.columns import METHOD, MISSING, grid, pipe
from rbue.report.latex import latex
from rbue.report.rows import ARCHS, DATASETS, FULL, LABELS, arch_name, dataset_name, name_order, paper_order, place_name
from rbue.report.text import BESIDE_PAPER, TERMINAL, announced, beside, columns_of, coverage, notes, outside, title
from rbue.runs import results

HEADLINE = ("accuracy", "ece", "time_ratio")  # no differences, and no hours, which depend on hardware
README = ("accuracy", "ece")

# --- Markdown ---------------------------------------------------------------------------------------------------------


def markdown(table):
    columns = columns_of(table)
    parts = [f"# {title(table)}", coverage(table) + ". Built by `make tables`: do not edit."]
    parts += [
        f"## {arch_name(arch)}\n\n{pipe(grid(columns, worth_showing(cells).to_dict('records')))}"
        for arch, cells in table.by_arch
    ]
    parts += [f"## Parameters, memory and test time, which the paper does not print\n\n{pipe(grid(*announced(table)))}"]
    parts += ["## Notes\n\n" + "\n".join(f"- {note}" for note in notes(table))]
    if left_out := outside(table):
        entries = "\n".join(f"- {entry}" for entry in left_out[1:])
        parts += [f"<details><summary>{left_out[0].removesuffix(':')}</summary>\n\n{entries}\n\n</details>"]
    return "\n\n".join(parts) + "\n"


def headline(tables):
    """Return the README's table: the network with the most measured rows under its fullest protocol, in five columns
    that fit a page. Below it, a second table counts the measured rows of all networks and links to their tables."""
    networks = by_network(t for t in tables if t.in_paper)
    if not networks:
        return ""
    networks = {network: networks[network] for network in sorted(networks, key=paper_order)}
    (dataset, arch), protocols = max(networks.items(), key=lambda item: sum(map(rows_done, item[1].values())))
    name, cells = max(protocols.items(), key=lambda item: rows_done(item[1]))
    caption = f"**{place_name(dataset, arch)}**, `protocol={name}`:"
    shown = pipe(grid(*side_by_side({name: cells}, README), full=True))
    done, every = count_measured(networks), len(LABELS) * len(ARCHS) * len(DATASETS)
    so_far = f"Measured so far: {done} of the paper's {every} cells{of_them_full(networks)}."
    measured = so_far if done < every else f"All {every} cells of the paper are measured{of_them_full(networks)}."
    rows = f"Number of measured rows (out of {len(LABELS)}) per protocol"
    counted = f"{measured} {rows}. A protocol with few epochs is not shown where a longer one has all rows."
    return "\n\n".join([caption, shown, counted, pipe(overview(networks))])


def by_network(tables):
    """Return {(dataset, arch): {protocol: the paper's rows}} of networks with a measured row."""
    networks = defaultdict(dict)
    for table in tables:
        for arch, cells in of_paper(table.cells).groupby("arch", sort=False):
            if cells.n.any():
                networks[table.dataset, arch][table.protocol] = cells
    return networks


def count_measured(networks, protocols=None):
    """Count the paper's cells that are measured under any of these protocols (default: under any at all), of networks
    as `by_network` returns them."""
    papers = [each for (dataset, arch), each in networks.items() if dataset in DATASETS and arch in ARCHS]
    measured = [[cells.row[cells.n > 0] for p, cells in each.items() if p in (protocols or each)] for each in papers]
    return sum(len(set().union(*rows)) for rows in measured)


def of_them_full(networks):
    """Say how many of the measured cells have the paper's number of epochs, unless all have it."""
    full = count_measured(networks, FULL)
    return f", {full or 'none'} of them with the paper's number of epochs" if full < count_measured(networks) else ""


def protocols_to_show(protocols):
    """Drop short schedules once a full schedule has all rows."""
    whole = any((cells.n > 0).all() for name, cells in protocols.items() if name in FULL)
    return {name: cells for name, cells in protocols.items() if name in FULL or not whole}


def rows_done(cells):
    return (cells.n > 0).sum()


def overview(networks):
    """Return header and rows as text: one row per dataset, one column per arch."""
    datasets, archs = (dict.fromkeys(each) for each in zip(*networks, strict=True))
    archs = sorted(archs, key=name_order)
    lines = [[rows_by_protocol(dataset, networks.get((dataset, arch), {})) for arch in archs] for dataset in datasets]
    names = map(dataset_name, datasets)
    return [["", *map(arch_name, archs)], *([name, *line] for name, line in zip(names, lines, strict=True))]


def rows_by_protocol(dataset, protocols):
    """Count the measured rows under each protocol, with links to the tables."""
    shown = protocols_to_show(protocols).items()
    return ", ".join(f"{rows_done(cells)} [`{n}`](results/tables/{n}/{dataset}.md)" for n, cells in shown) or MISSING


def side_by_side(protocols, metrics=HEADLINE):
    """Return columns and cells of the headline's metrics: the paper's, then ours under each protocol (one of which is
    called `paper`). Columns without any number are left out."""
    known, cells, first = {column.key: column for column in BESIDE_PAPER}, beside(protocols), next(iter(protocols))
    columns = []
    for metric in metrics:
        if printed := known.get(f"paper_{metric}"):
            columns.append(printed.of(first, printed.group, "printed"))
        ours = known[f"ours_{metric}"]
        columns += [ours.of(name, ours.group, f"ours, `{name}`") for name in protocols]
    return [METHOD, *(c for c in columns if any(c.text(cell) != MISSING for cell in cells))], cells


BEGIN, END = "<!-- results: built by make tables -->", "<!-- end of results -->"


def around(readme, begin, end):
    """Return the text of a README before one mark and after another, or refuse a README without them."""
    before, first, rest = Path(readme).read_text(encoding="utf-8").partition(begin)
    _, second, after = rest.partition(end)
    if not (first and second):
        raise UserError(f"{readme} has no place for this text: write the line '{begin}' and below it '{end}' into it")
    return before, after


def put_between(readme, begin, end, text):
    """Replace the text between two marks of a README."""
    before, after = around(readme, begin, end)
    results.write(readme, f"{before}{begin}\n{text}\n{end}{after}")


# --- files and the terminal -------------------------------------------------------------------------------------------


def csv(table):
    """Return tidy CSV, one row per cell."""
    return csv_text(table.cells)


def csv_text(frame):
    """Return a frame as CSV with ten digits, so that two machines write the same bytes."""
    return frame.to_csv(index=False, float_format="%.10g", lineterminator="\n")


def write(table, out):
    """Write <out>/<protocol>/<dataset>.md, .tex and .csv, and return their paths."""
    texts = {"md": markdown(table), "tex": latex(table), "csv": csv(table)}
    return write_forms(Path(out) / table.protocol / table.dataset, texts)


def write_forms(stem, contents):
    """Write <stem>.<suffix> for each {suffix: content}, and return the paths."""
    paths = {stem.with_name(f"{stem.name}.{suffix}"): content for suffix, content in contents.items()}
    for path, content in paths.items():
        results.write(path, content)
    return list(paths)


def write_grid(grid, stem):
    """Write the cells of a Grid as CSV and the Grid as Markdown, and return the paths."""
    return write_forms(stem, {"csv": csv_text(pd.DataFrame(grid.cells)), "md": grid.markdown()})


def summary(table):
    """Format the rows of each measured network for a terminal, and list the runs that are left out."""
    blocks = [summary_block(table, arch, cells) for arch, cells in table.by_arch if cells.n.any()]
    left_out = "\n".join(outside(table)).replace("`", "")
    return "\n\n".join(filter(None, [*blocks, left_out])) or f"{title(table)}: none of its rows is measured yet."


def summary_block(table, arch, cells):
    rows = grid([METHOD, *TERMINAL], worth_showing(cells).to_dict("records"))
    lines = ["  ".join(row) for row in padded(rows)]
    rule = "-" * len(lines[0])
    head = f"{dataset_name(table.dataset)}, {arch_name(arch)}, protocol {table.protocol}"
    return "\n".join([f"{head}: mean ± std over seeds (n)", rule, lines[0], rule, *lines[1:], rule])
