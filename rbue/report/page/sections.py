"""The page's content by section. Each function takes the whole suite and returns HTML, or "" if it has no content."""

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from rbue.report import benchmark, cells, claims, position
from rbue.report.columns import METHOD, MISSING, decimals, duration, number, words
from rbue.report.figures import grids, networks, variance
from rbue.report.page.html import bullets, details, element, grid, inline, paragraphs, picture, table
from rbue.report.page.pictures import GENERAL, NETWORK
from rbue.report.records import commit, records
from rbue.report.rows import ARCHS, DATASETS, HYPERPARAMETER, LABELS, NAMES, ROWS
from rbue.report.tables import by_network, side_by_side
from rbue.report.text import announced, arch_name, by_arch, columns_of, coverage, dataset_name, notes, title


@dataclass(frozen=True)
class Suite:
    """Everything that the page is built from, computed once."""

    runs: pd.DataFrame  # one row per run
    paper_dir: Path
    figures_dir: Path
    benchmarks_dir: Path
    tables: list
    positions: dict
    ledger: list
    networks: list

    @classmethod
    def of(cls, results, paper_dir, figures_dir, benchmarks_dir):
        runs = records(results)
        built = cells.build(runs, paper_dir), position.build(runs, paper_dir), claims.build(results, paper_dir)
        return cls(runs, Path(paper_dir), Path(figures_dir), Path(benchmarks_dir), *built, networks(runs))

    @property
    def measured(self):
        """The number of the paper's cells that are measured under any protocol."""
        frames = [cells.of_paper(t.cells[t.cells.n > 0]) for t in self.tables if t.in_paper]
        return len(pd.concat(frames)[["dataset", "arch", "row"]].drop_duplicates()) if frames else 0


# --- the cards on top -------------------------------------------------------------------------------------------------


def cards(suite):
    computed = Counter(entry.paper.status for entry in suite.ledger if entry.paper.by != "reading")
    hardware = sorted(set(suite.runs.hardware))
    found = [
        (f"{suite.measured} of 90", "cells of the paper's Tables 1–3 measured"),
        (f"{computed['holds']} of {computed.total()}", "claims that the paper's own numbers support in full"),
        (f"{computed['does not hold']}", "claims that the paper's own numbers or algebra refute"),
        (str(len(suite.runs)), f"runs on {', '.join(hardware) or 'nothing yet'}"),
    ]
    items = [element("li", element("strong", inline(number)), element("span", inline(text))) for number, text in found]
    return element("ul", *items, class_="cards")


# --- coverage ---------------------------------------------------------------------------------------------------------


def coverage_cell(place, found):
    measured = {label: ", ".join(found[*place, label]) for label in LABELS if (*place, label) in found}
    name = f"{dataset_name(place[0])}, {arch_name(place[1])}"
    return dict.fromkeys(LABELS, MISSING) | measured | {"row": name, "done": len(measured)}


def coverage_columns():
    """Return the paper's rows as columns, with their hyperparameter below the method's name."""
    hyperparameters = {label: own.get(HYPERPARAMETER.get(own["method"]), "") for label, own in ROWS}
    rows = [words(label, NAMES[own["method"]], str(hyperparameters[label])) for label, own in ROWS]
    return [words("row", "Network"), number("done", "Rows", "", f"{{}} of {len(LABELS)}".format), *rows]


def coverage_section(suite):
    own = sorted({(t.dataset, arch) for t in suite.tables if not t.in_paper for arch in t.archs})
    places = [(dataset, arch) for dataset in DATASETS for arch in ARCHS] + own
    measured = pd.concat([t.cells[t.cells.n > 0] for t in suite.tables]) if suite.tables else pd.DataFrame()
    found = {}
    for cell in measured.itertuples():
        found.setdefault((cell.dataset, cell.arch, cell.row), []).append(f"{cell.protocol} {cell.n}")
    rows = [coverage_cell(place, found) for place in places]
    text = (
        f"{suite.measured} of the paper's 90 cells are measured. A cell says under which protocol and with how many "
        "seeds; a run counts only if all its settings are what the cell stands for."
    )
    return paragraphs([text]) + table(coverage_columns(), rows, "What is measured: protocol and number of seeds")


# --- tables -----------------------------------------------------------------------------------------------------------


def switch(name, legend, choices):
    """Return radio buttons that work by CSS alone, without a script."""
    buttons = [
        f'<label><input type="radio" name="{name}" id="{name}-{value}"{" checked" if k == 0 else ""}> {text}</label>'
        for k, (value, text) in enumerate(choices.items())
    ]
    return element("fieldset", element("legend", legend), *buttons)


def measured_table(found):
    where = f"{dataset_name(found.dataset)}, {{}}protocol `{found.protocol}`"
    parts = [
        table(columns_of(found), rows.to_dict("records"), where.format(f"{arch_name(arch)}, "))
        for arch, rows in by_arch(found)
        if rows.n.any()
    ]
    size = "What the paper announces and does not print: parameters, memory, test time"
    parts.append(details(size, table(*announced(found), where.format(""))))
    parts.append(details("How to read it, and where it was measured", bullets(notes(found))))
    return element("h3", inline(title(found))) + paragraphs([coverage(found) + "."]) + "".join(parts)


def paper_only(suite):
    """Return the paper's numbers for networks without a measurement, folded."""
    printed = cells.paper_cells(suite.paper_dir).rename(columns={m: f"paper_{m}" for m in [*cells.PRINTED, "bold"]})
    done = {(t.dataset, arch) for t in suite.tables for arch, rows in by_arch(t) if rows.n.any()}
    parts = [
        table(PAPER_ALONE, rows.to_dict("records"), f"{dataset_name(dataset)}, {arch_name(arch)}: the paper")
        for (dataset, arch), rows in printed.groupby(["dataset", "arch"], sort=False)
        if (dataset, arch) not in done
    ]
    return details(f"The paper's numbers for {len(parts)} networks not measured yet", *parts) if parts else ""


PAPER_ALONE = [
    METHOD,
    number("paper_accuracy", "Accuracy, %", "", decimals(2), bold="paper_bold"),
    number("paper_ece", "ECE", "", decimals(2), bold="paper_bold"),
    number("paper_train_hours", "Training hours", "", decimals(1), bold="paper_bold"),
]


def by_protocol(suite):
    """Compare one network under its protocols: the effect of weight decay and epochs."""
    several = [item for item in by_network(suite.tables).items() if len(item[1]) > 1]
    return "".join(
        table(*side_by_side(protocols), f"{dataset_name(dataset)}, {arch_name(arch)}: by protocol")
        for (dataset, arch), protocols in several
    )


def position_tables(suite):
    """Return a table per protocol with a measured position; if there is none, only the paper's rows."""
    measured = {protocol: frame for protocol, frame in suite.positions.items() if frame.n.any()}
    shown = measured or dict(list(suite.positions.items())[:1])
    found = [position.grid(protocol, frame) for protocol, frame in shown.items()]
    parts = [table(each.columns, each.cells, each.title) for each in found]
    return "".join(parts) + bullets(position.NOTES, class_="note") if parts else ""


def tables_section(suite):
    choices = {"both": "paper and ours", "paper": "paper", "ours": "ours"}
    measured = [measured_table(found) for found in suite.tables if found.measured]
    where = position_tables(suite)
    return "".join(
        [
            switch("view", "Columns", choices),
            *(measured or [paragraphs(["Nothing is measured yet: `make demo` or `python train.py` makes some."])]),
            by_protocol(suite),
            element("h3", "Where the random rectifiers stand") + where if where else "",
            paper_only(suite),
        ]
    )


# --- claims -----------------------------------------------------------------------------------------------------------


def badge(who, status):
    kind = KINDS[status.partition(" (")[0]]  # of "not tested (elsewhere partly)", for example
    return element("span", inline(f"{who}: {status}"), class_=f"badge {kind}")


KINDS = {"holds": "supported", "partly": "partly", "does not hold": "refuted", "undecided": "undecided"}
FILTERS = {"all": "all"} | {kind: word for word, kind in KINDS.items()}
KINDS |= {"reproduced": "supported", "not reproduced": "refuted", "unclear": "undecided", "not tested": "undecided"}


def where(section):
    return f"Section {section}" if section[0].isdigit() else section.capitalize()


def claim(entry):
    """Show the claim and its verdicts; its evidence unfolds."""
    ours = {f"ours, {protocol}": verdict for protocol, verdict in entry.ours.items()}
    badges = badge("paper", entry.paper.status) + "".join(
        badge(who, claims.text.short(verdict)) for who, verdict in ours.items()
    )
    evidence = {"On the paper's own numbers": entry.paper} | {f"On {who}": verdict for who, verdict in ours.items()}
    terms = [
        element("dt", inline(who)) + element("dd", inline(claims.text.verdict_text(verdict)))
        for who, verdict in evidence.items()
    ]
    note = paragraphs([f"Note: {entry.claim['note']}"]) if "note" in entry.claim else ""
    head = element("strong", entry.id) + element("span", f" {where(entry.claim['section'])}", class_="where")
    body = details("Evidence", element("dl", *terms), note)
    sentence = element("p", inline(entry.claim["claim"]))
    return element("li", head, sentence, badges, body, class_=f"is-{KINDS[entry.paper.status]}")


def claims_section(suite):
    counted = [{"what": what, "count": count} for what, count in claims.text.counts(suite.ledger)]
    intro = claims.text.INTRO.split("\n\n")
    reading = bullets([" ".join(item.split()) for item in intro[1].removeprefix("- ").split("\n- ")])
    return "".join(
        [
            paragraphs(["Each claim as a question to numbers, the same to the paper's tables and to our runs."]),
            table([words("what", "Verdicts on"), words("count", "Count")], counted, "Verdicts", wide=True),
            paragraphs(claims.text.short_training(suite.ledger)),
            details("How a verdict comes about", reading),
            switch("verdict", "Verdict on the paper's own numbers", FILTERS),
            element("ul", *map(claim, suite.ledger), class_="claims"),
        ]
    )


# --- figures ----------------------------------------------------------------------------------------------------------


def method_section(suite):
    """Show what needs no run: the layers, their variance, the corrupted images."""
    shown = [
        picture(path, *words)
        for name, words in GENERAL.items()
        for path in sorted({*suite.figures_dir.glob(f"{name}.png"), *suite.figures_dir.glob(f"*-{name}.png")})
    ]
    return element("div", *shown, class_="figures") + grid(variance.over_q_grid(variance.over_q()))


def network_figures(suite, network):
    folder = network.folder(suite.figures_dir)
    shown = [
        picture(folder / f"{stem}.png", caption, f"{network.title()}. {alt}")
        for stem, (caption, alt) in NETWORK.items()
        if (folder / f"{stem}.png").exists()
    ]
    found = [grid(table) for table in grids(network, suite.paper_dir)]
    return element("h3", inline(network.title())) + element("div", *shown, class_="figures") + "".join(found)


def figures_section(suite):
    return "".join(network_figures(suite, network) for network in suite.networks)


def speed_note(content):
    commits = sorted({commit(row.get("commit"), row.get("changed")) for row in content["rows"]})
    return (
        "ms: of one training step, or of the whole test set's prediction. Speed-up: how many times as fast as the row "
        f"named under over; below 1 is slower. Limit: {benchmark.limit(content)}, a large matrix "
        f"product. Measured at commit {', '.join(commits)}."
    )


def speed_section(suite):
    parts, columns = [], [replace(benchmark.COLUMNS[0], group="Measure"), *benchmark.COLUMNS[1:]]
    for path in sorted(suite.benchmarks_dir.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        caption = f"{content['hardware']}: each group measured side by side in one run"
        parts.append(table(columns, benchmark.cells(content), caption))
        parts.append(element("p", inline(speed_note(content)), class_="note"))
        if path.with_suffix(".png").exists():
            caption = f"**{content['hardware']}**: how many times as fast, on a logarithmic axis."
            parts.append(picture(path.with_suffix(".png"), caption, "Horizontal bars of the table's speed-ups."))
    return "".join(parts)


# --- where each number comes from -------------------------------------------------------------------------------------


def run_text(run):
    """Return `CIFAR-10-C, ResNet-18, SVI`; if the run is in no row of the tables, also how it differs."""
    dataset = dataset_name(run["dataset"]) + ("-C" if run["corrupted"] else "")
    moved = "" if pd.isna(run["position"]) or run["position"] == "all" else f"position={run['position']}"
    name, apart = (run["method"], run["differs"]) if pd.isna(run["row"]) else (run["row"], moved)
    return f"{dataset}, {arch_name(run['arch'])}, {name}" + (f" ({apart})" if apart else "")


RUN = [
    words("name", "Run", text=run_text),
    words("protocol", "Protocol"),
    number("seed", "Seed", "", str),
    number("accuracy", "Accuracy, %", "", decimals(2)),
    number("ece", "ECE", "", decimals(4)),
    number("seconds", "Training", "", duration),
    *(words(key, name) for key, name in (("hardware", "Hardware"), ("precision", "Precision"), ("torch", "torch"))),
    words("commit", "Commit"),
    words("finished", "Finished"),
]


def origin_section(suite):
    """Return one line per run: its hardware, its commit, its date."""
    if suite.runs.empty:
        return ""
    runs = suite.runs.sort_values("name").to_dict("records")
    lines = [
        run | {"seconds": run["result"].seconds.train, "finished": (run["result"].finished or MISSING)[:10]}
        for run in runs
    ]
    return table(RUN, lines, f"All {len(lines)} runs this page is built from")


SECTIONS = {  # anchor → (title, function from suite to HTML)
    "coverage": ("Coverage", coverage_section),
    "tables": ("The paper's tables, and ours", tables_section),
    "claims": ("The paper's claims, judged", claims_section),
    "method": ("The method, drawn", method_section),
    "figures": ("Figures and analyses, network by network", figures_section),
    "speed": ("Speed", speed_section),
    "runs": ("Where each number comes from", origin_section),
}
