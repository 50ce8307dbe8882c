"""What every form of a table shares: numbers as text, the grid of a network's rows, the notes beneath."""

from collections import defaultdict
from itertools import chain, product

import pandas as pd

from rbue.report.cells import of_paper
from rbue.report.rows import ARCHS, DATASETS, FULL, PROPOSED, ROWS, canonical, difference, in_order

MISSING = "–"


# --- one number -> text -----------------------------------------------------------------------------------------------


def shown(text):
    """A formatter that prints a missing value as –."""
    return lambda value: MISSING if pd.isna(value) else text(value)


def decimals(digits):
    return shown(f"{{:.{digits}f}}".format)


def signed(digits):
    return shown(lambda value: f"{round(value, digits) + 0.0:+.{digits}f}")  # + 0.0: no "-0.00"


hours = shown("{:.1f} h".format)
times = shown("{:.2f}×".format)
count = shown("{:,.0f}".format)


@shown
def milliseconds(value):
    return f"{value:#.3g}" if value < 100 else f"{value:.0f}"


@shown
def memory(size):
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


@shown
def duration(seconds):
    """The two units a reader would say; the paper's own hours from one hour up."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{seconds / 3600:.2f} h"


def over_seeds(cell, metric, text):
    """`94.60 ± 0.20 (3)`; one seed has no ±, and n is always there."""
    if pd.isna(cell[f"ours_{metric}"]):
        return MISSING
    spread = f" ± {text(cell[f'std_{metric}'])}" if cell["n"] > 1 else ""
    return f"{text(cell[f'ours_{metric}'])}{spread} ({cell['n']})"


# --- columns: header and how a cell fills it --------------------------------------------------------------------------


def strong(text, is_bold):
    return f"**{text}**" if is_bold and text != MISSING else text


def paper_text(metric, text):
    return lambda cell: strong(text(cell[f"paper_{metric}"]), cell["paper_bold"])


def our_text(metric, text):
    return lambda cell: strong(over_seeds(cell, metric, text), cell["ours_bold"])


def our_time(cell):
    return strong(duration(cell["ours_train_seconds"]), cell["ours_bold"])


def plain(column, text):
    return lambda cell: text(cell[column])


BESIDE_PAPER = [
    ("Accuracy, %: paper", paper_text("accuracy", decimals(2))),
    ("ours", our_text("accuracy", decimals(2))),
    ("diff", plain("diff_accuracy", signed(2))),
    ("ECE: paper", paper_text("ece", decimals(2))),
    ("ours", our_text("ece", decimals(3))),
    ("diff", plain("diff_ece", signed(3))),
    ("Training time: paper", paper_text("train_hours", hours)),
    ("ours", our_time),
    ("faster", plain("ours_speedup", shown("{:,.0f}×".format))),
    ("Time / Single's: paper", plain("paper_time_ratio", times)),
    ("ours", plain("ours_time_ratio", times)),
]
HEADLINE = [BESIDE_PAPER[i] for i in (0, 1, 3, 4, 9, 10)]  # without differences and hardware's own hours
OURS_ALONE = [
    ("Accuracy, %", our_text("accuracy", decimals(2))),
    ("ECE", our_text("ece", decimals(3))),
    ("NLL", lambda cell: over_seeds(cell, "nll", decimals(3))),
    ("Training time", our_time),
    ("Time / Single's", plain("ours_time_ratio", times)),
]
TERMINAL = [
    ("Accuracy %", lambda cell: over_seeds(cell, "accuracy", decimals(2))),
    ("ECE", lambda cell: over_seeds(cell, "ece", decimals(3))),
    ("NLL", lambda cell: over_seeds(cell, "nll", decimals(3))),
    ("Train time", plain("ours_train_seconds", duration)),
    ("/Single", plain("ours_time_ratio", times)),
    ("ms/image", plain("ours_test_ms_per_image", milliseconds)),
    ("Parameters", plain("ours_parameters", count)),
]
ANNOUNCED = [
    ("parameters", plain("ours_parameters", count)),
    ("peak memory", plain("ours_peak_train_bytes", memory)),
    ("test ms/image", plain("ours_test_ms_per_image", milliseconds)),
]


def columns_of(table):
    """`faster` stands only beside as many epochs as the paper's."""
    if not table.in_paper:
        return OURS_ALONE
    return [column for column in BESIDE_PAPER if column[0] != "faster" or table.protocol in FULL]


def grid(cells, columns):
    """Header and one row a method, as text."""
    rows = [[cell["row"], *(fill(cell) for _, fill in columns)] for cell in cells.to_dict("records")]
    return [["Method", *(header for header, _ in columns)], *rows]


def by_arch(table):
    return [(arch, table.cells[table.cells.arch == arch]) for arch in table.archs]


def arch_name(arch):
    return ARCHS.get(arch, arch)


def dataset_name(dataset):
    clean = dataset.removesuffix("_c")
    return DATASETS.get(clean, clean) + ("-C" if clean != dataset else "")


def announced(table):
    """One table for all networks: parameters, memory and test time fit beside each other."""
    names = [name for name, _ in ANNOUNCED]
    header = ["Method", *chain(*([f"{arch_name(arch)}: {names[0]}", *names[1:]] for arch in table.archs))]
    bodies = [[row[1:] for row in grid(cells, ANNOUNCED)[1:]] for _, cells in by_arch(table)]
    return [header, *([label, *chain(*parts)] for label, *parts in zip(table.labels, *bodies, strict=True))]


def title(table):
    number = f"Table {list(DATASETS).index(table.dataset) + 1} of the paper: " if table.in_paper else ""
    return f"{number}{dataset_name(table.dataset)}, protocol `{table.protocol}`"


# --- what stands beneath every table ----------------------------------------------------------------------------------


def coverage(table):
    papers = of_paper(table.cells)
    archs = papers.groupby("arch", sort=False)
    parts = [f"{arch_name(arch)} {(cells.n > 0).sum()}/{len(cells)}" for arch, cells in archs]
    return f"{table.measured} of {len(papers)} cells measured ({', '.join(parts)})"


def schedule_text(run):
    if run.schedule == "linear":
        return f"rising over the first {100 * run.warmup:g} % of training, then falling linearly"
    return f"divided by ten at {', '.join(f'{100 * drop:g}' for drop in run.lr_drops)} % of training"


def from_paper(table, run):
    """What sets a protocol apart from Section 4.1.2, which `protocol=paper` is to the letter."""
    stated = canonical(table.dataset, "paper", run.method)
    keys = [key for key in difference(run.identity, stated.identity) if key != "protocol"]
    if not table.in_paper or not keys:
        return "; as the paper states" if table.in_paper else ""
    return "; the paper states " + ", ".join(f"{key.replace('_', ' ')} {getattr(stated, key)}" for key in keys)


def protocol_note(table):
    """The protocol as composed, not as remembered."""
    run = canonical(table.dataset, table.protocol, "single")
    if run is None:
        return f"Protocol `{table.protocol}` for {table.dataset} is not in conf/ any more."
    return (
        f"Protocol `{table.protocol}`: {run.epochs} epochs, batch {run.batch}, learning rate {run.lr:g} "
        f"{schedule_text(run)}, SGD with Nesterov momentum {run.momentum:g}, weight decay {run.weight_decay:g}, "
        f"{run.samples} samples, {run.bins} ECE bins{from_paper(table, run)}."
    )


def reading_notes(table):
    notes = ["Mean ± standard deviation over seeds (number of seeds); the number of seeds holds for the whole row."]
    if table.in_paper:
        notes += [
            "Differences are ours − paper. The paper prints ECE with two decimals, so one within ±0.005 is none.",
            "The paper's hours are an RTX 3090's: `faster` compares hardware too, the ratios to Single's time do not.",
        ]
    return notes


def bold_note(table):
    found = table.bold_found
    return (
        "Bold is the paper's \"best way to balance the three metrics\", computed for the paper's numbers and for ours "
        f"apart: of the {len(PROPOSED)} proposed rows the lowest ECE, then the highest accuracy, both to two decimals, "
        f"then the shortest time. It finds {sum(found)} of the paper's {len(found)} bold rows. "
        f"Ours has none where one of the {len(PROPOSED)} is missing."
    )


def listed(values):
    return ", ".join(sorted(set(values)))


def origin_note(table):
    runs = table.runs[table.runs.row.notna()]
    if runs.empty:
        return "Nothing measured yet."
    machines = (runs.hardware + " (" + runs.precision + ", torch " + runs.torch + ")").tolist()
    return f"Measured on {listed(machines)}; commit {listed(runs.commit)}."


def cost_notes(table):
    """How time and memory were measured. Equal shares of a pack's are what it cost, but not how the rows compare."""
    runs = table.runs[table.runs.row.notna()]
    by_step = "Training time is that of a step with the GPU to itself, times the number of steps"
    share = "Training time is an equal share of what networks side by side on one GPU took, so without a ratio"
    hidden = "Peak memory is not known (networks trained side by side share it, or it was not measured)"
    kinds = ((by_step, runs.by_step), (share, runs.shared), (hidden, runs.peak_train_bytes.isna()))
    return [f"{note}{rows_of(runs, which)}." for note, which in kinds if which.any()]


def rows_of(runs, which):
    """Of which networks' rows a note holds, where it does not hold of all."""
    if which.all():
        return ""
    held = {arch: in_order(set(part.row)) for arch, part in runs[which].groupby("arch", sort=False)}
    return ": " + "; ".join(f"{arch_name(arch)} {', '.join(rows)}" for arch, rows in held.items())


FAR = {"accuracy": (0.5, "{} {:+.2f} pp"), "ece": (0.015, "{} ECE {:+.3f}")}  # beyond this one asks why


def difference_notes(table):
    """Cells far from the paper's, under the reason that results/paper/explained.json has for them."""
    found = defaultdict(list)
    for cell, (metric, (limit, text)) in product(table.cells.to_dict("records"), FAR.items()):
        if abs(apart := cell[f"diff_{metric}"]) > limit:  # a missing cell's is NaN, which is beyond nothing
            name = f"{arch_name(cell['arch'])} {cell['row']}"
            found[reason(table.explained, cell | {"metric": metric})].append(text.format(name, apart))
    return [f"Far from the paper's: {', '.join(cells)}. {why}." for why, cells in found.items()]


def reason(explained, cell):
    """Of the entries that hold for this cell, the one that says most exactly where."""
    fits = [entry for entry in explained if entry["where"].items() <= cell.items()]
    return max(fits, key=lambda entry: len(entry["where"]), default={"why": "Not explained"})["why"]


def total_note(table):
    """What the table cost: a training that two rows share counts once."""
    runs = table.runs[table.runs.row.notna()]
    trainings = {name: seconds for each in runs.trainings for name, seconds in each.items()}
    if not table.in_paper or not trainings:
        return []
    hours, took = table.cells.paper_train_hours[table.cells.n > 0].sum(), duration(sum(trainings.values()))
    papers = f" One of each of these rows took the paper {hours:.1f} h." if table.protocol in FULL else ""
    return [f"Trainings behind this table: {len(trainings)}, {took} in all, without compiling.{papers}"]


def ensemble_note(table):
    """Ensembles of seeds s and s+1 have all but one member in common, which their ± does not show."""
    label, settings = next((label, s) for label, s in ROWS if s["method"] == "deep_ensemble")
    seeds = table.runs[table.runs.row == label].sort_values("seed").groupby("arch").seed
    if not (seeds.diff() < settings["members"]).any():
        return []
    return [f"{label}: the ensembles of neighbouring seeds share members, so their ± is too small."]


def outside(table):
    """Runs of this dataset and protocol that no table shows: 'name (epochs=2): 94.60 %, ECE 0.021' each."""
    runs = table.runs[table.runs.row.isna() & table.runs.position_row.isna()]
    scores = [f"{decimals(2)(run.accuracy)} %, ECE {decimals(3)(run.ece)}" for run in runs.itertuples()]
    return [f"`{run.name}` ({run.differs}): {score}" for run, score in zip(runs.itertuples(), scores, strict=True)]


def outside_note(table):
    runs = len(outside(table))
    several = f"{runs} runs are" if runs > 1 else "1 run is"
    return f"{several} not in this table, since a setting differs from what its rows stand for"


def outside_lines(table):
    return [f"{outside_note(table)}:", *outside(table)] if outside(table) else []


def notes(table):
    return [
        protocol_note(table),
        origin_note(table),
        *reading_notes(table),
        bold_note(table),
        *cost_notes(table),
        *total_note(table),
        *difference_notes(table),
        *ensemble_note(table),
    ]
