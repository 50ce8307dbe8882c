"""How the numbers were made: protocols, coverage, speed, and one line per run."""

import json
from collections import Counter, defaultdict
from dataclasses import replace

import pandas as pd

from rbue.report import benchmark
from rbue.report.claims.scopes import EVERYWHERE
from rbue.report.columns import MISSING, decimals, duration, number, words
from rbue.report.page.markup import slug, table
from rbue.report.page.pictures import benchmark_picture
from rbue.report.page.suite import links
from rbue.report.records import commit
from rbue.report.rows import FULL, HYPERPARAMETER, LABELS, NAMES, ROWS, arch_name, dataset_name, protocol_settings
from rbue.report.tables import of_them_full


def counts(suite):
    """Return (number, text) of the cards on top."""
    papers = Counter(entry.paper.status for entry in suite.ledger if entry.is_papers and entry.paper.by != "reading")
    hardware = sorted(set(suite.runs.hardware))
    return [
        (f"{suite.measured} of 90", f"cells of the paper's Tables 1–3 measured{of_them_full(suite.compared)}"),
        (
            f"{papers['holds']} of {papers.total()}",
            "claims are fully supported by the paper's own numbers or by algebra",
        ),
        (
            f"{papers['does not hold']} of {papers.total()}",
            "claims are refuted by the paper's own numbers or by algebra",
        ),
        (str(len(suite.runs)), f"runs on {', '.join(hardware) or 'nothing yet'}"),
    ]


MEANINGS = {
    "paper": "trains as Section 4.1.2 of the paper states",
    "matched": "trains like `paper`, but with the weight decay that fits the printed accuracies better",
    "fast": "trains like `matched`, but for fewer epochs and with a linear schedule",
    "demo": "trains for a few epochs on handwritten digits",
}


def protocols(suite):
    """Return (name, meaning, settings) of each protocol on the page, from its config."""
    found = suite.runs[~suite.runs.corrupted].groupby("protocol").dataset.unique().items()
    ordered = sorted(found, key=lambda item: (item[0] not in FULL, item[0] != "paper", item[0]))
    return [
        (name, MEANINGS.get(name, "is your own protocol"), protocol_settings(name, datasets))
        for name, datasets in ordered
    ]


# --- coverage ---------------------------------------------------------------------------------------------------------


def coverage_cell(place, found):
    measured = {label: ",\n".join(found[*place, label]) for label in LABELS if (*place, label) in found}
    name = f"{dataset_name(place[0])}, {arch_name(place[1])}"
    return dict.fromkeys(LABELS, MISSING) | measured | {"row": name, "done": len(measured)}


def coverage_columns():
    """Return the paper's rows as columns, with their hyperparameter below the method's name."""
    hyperparameters = {label: own.get(HYPERPARAMETER.get(own["method"]), "") for label, own in ROWS}
    rows = [words(label, NAMES[own["method"]], str(hyperparameters[label])) for label, own in ROWS]
    return [words("row", "Network"), number("done", "Rows", "", f"{{}} of {len(LABELS)}".format), *rows]


def coverage(suite):
    own = sorted({(t.dataset, arch) for t in suite.tables if not t.in_paper for arch in t.archs})
    places = EVERYWHERE + own
    found = defaultdict(list)
    for cell in (cell for t in suite.tables for cell in t.cells[t.cells.n > 0].itertuples()):
        found[cell.dataset, cell.arch, cell.row].append(f"{cell.protocol} {cell.n}")
    text = (
        f"{suite.measured} of the paper's 90 cells are measured{of_them_full(suite.compared)}. A cell names the "
        "protocol and the number of seeds. A run counts only if all its settings are those of the cell."
    )
    rows = [coverage_cell(place, found) for place in places]
    caption = "What is measured: protocol and number of seeds"
    return table(coverage_columns(), rows, caption, "coverage", notes=[text], wide=True)


# --- speed ------------------------------------------------------------------------------------------------------------


def speed_note(content):
    commits = sorted({commit(row.get("commit"), row.get("changed")) for row in content["rows"]})
    return (
        "ms: time of one training step, or of predicting the test set. Speed-up: how many times as fast as the row "
        f"that the column “compared with” names; below 1 is slower. Limit: the speed of a large matrix product, "
        f"{benchmark.limit(content)}. Measured at commit {', '.join(commits)}."
    )


def speed(suite):
    """Return (table, picture) per benchmarked hardware."""
    columns = [replace(benchmark.COLUMNS[0], group="Measure"), *benchmark.COLUMNS[1:]]
    found = []
    for path in sorted(suite.benchmarks_dir.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        caption = f"{content['hardware']}: the rows of each group are measured in the same run"
        beside = suite.benchmarks_dir.parent == suite.folder
        files = links(suite, path.with_suffix(""), {"JSON": "json"}) if beside else []
        more = {"notes": [speed_note(content)], "links": files}
        rows = table(columns, benchmark.cells(content), caption, slug("speed", path.stem), **more)
        found.append((rows, benchmark_picture(path, content["hardware"])))
    return found


# --- where each number comes from -------------------------------------------------------------------------------------


def run_text(run):
    """Return `CIFAR-10-C, ResNet-18, SVI`; if the run is in no row of the tables, also how it differs."""
    dataset = dataset_name(run["dataset"]) + ("-C" if run["corrupted"] else "")
    moved = "" if pd.isna(run["position"]) or run["position"] == "all" else f"position={run['position']}"
    name, apart = (run["method"], run["differs"]) if pd.isna(run["row"]) else (run["row"], moved)
    return f"{dataset}, {arch_name(run['arch'])}, {name}" + (f" ({apart})" if apart else "")


MEASURED_WITH = {"hardware": "Hardware", "precision": "Precision", "torch": "torch"}
RUN = [
    words("name", "Run", text=run_text),
    words("protocol", "Protocol"),
    number("seed", "Seed", "", str),
    number("accuracy", "Accuracy, %", "", decimals(2)),
    number("ece", "ECE", "", decimals(4)),
    number("seconds", "Training, as run", "", duration),
    *(words(key, name) for key, name in MEASURED_WITH.items()),
    words("commit", "Commit"),
    words("finished", "Finished"),
]


def runs(suite):
    """Return one line per run: its hardware, its commit, its date. None without runs."""
    if suite.runs.empty:
        return None
    lines = [
        run | {"seconds": run["result"].seconds.train, "finished": (run["result"].finished or MISSING)[:10]}
        for run in suite.runs.sort_values("name").to_dict("records")
    ]
    caption = f"All {len(lines)} runs that this page is built from"
    shared = "Networks that were trained at once share their time equally here. Most tables show the time of a "
    shared += "training alone; their notes say how it was measured."
    same = {key: lines[0][key] for key in MEASURED_WITH if len({line[key] for line in lines}) == 1}
    once = ", ".join(f"{MEASURED_WITH[key].lower()} {value}" for key, value in same.items())
    notes = [f"The same for all runs: {once}.", shared] if same else [shared]
    columns = [column for column in RUN if column.key not in same]
    return table(columns, lines, caption, "all-runs", wide=True, notes=notes)
