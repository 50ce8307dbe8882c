"""What all formats of a table share: its columns and the notes below it."""

from collections import defaultdict
from itertools import product

from rbue.report.cells import of_paper
from rbue.report.columns import (
    METHOD,
    count,
    decimals,
    duration,
    from_to,
    hours,
    memory,
    milliseconds,
    number,
    seeded,
    shown,
    signed,
    times,
)
from rbue.report.rows import DATASETS, FULL, PROPOSED, arch_name, dataset_name, difference
from rbue.runs.compose import canonical

OURS, PAPER = {"side": "ours", "bold": "ours_bold"}, {"side": "paper", "bold": "paper_bold"}
BESIDE_PAPER = [
    number("paper_accuracy", "Accuracy, %", "paper", decimals(2), **PAPER),
    seeded("accuracy", "Accuracy, %", "ours", decimals(2), **OURS),
    number("diff_accuracy", "Accuracy, %", "diff", signed(2), side="ours"),
    number("paper_ece", "ECE", "paper", decimals(2), **PAPER),
    seeded("ece", "ECE", "ours", decimals(3), **OURS),
    number("diff_ece", "ECE", "diff", signed(3), side="ours"),
    number("paper_train_hours", "Training time", "paper", hours, **PAPER),
    number("ours_train_seconds", "Training time", "ours", duration, **OURS),
    number("ours_speedup", "Training time", "speed-up", shown("{:,.0f}×".format), side="ours"),
    number("paper_time_ratio", "Time / Single's", "paper", times, side="paper"),
    number("ours_time_ratio", "Time / Single's", "ours", times, side="ours"),
]
OURS_ALONE = [
    seeded("accuracy", "Accuracy, %", "", decimals(2), bold="ours_bold"),
    seeded("ece", "ECE", "", decimals(3), bold="ours_bold"),
    seeded("nll", "NLL", "", decimals(3)),
    number("ours_train_seconds", "Training time", "", duration, bold="ours_bold"),
    number("ours_time_ratio", "Time / Single's", "", times),
]
TERMINAL = [
    seeded("accuracy", "Accuracy %", "", decimals(2)),
    seeded("ece", "ECE", "", decimals(3)),
    seeded("nll", "NLL", "", decimals(3)),
    number("ours_train_seconds", "Train time", "", duration),
    number("ours_time_ratio", "/Single", "", times),
    number("ours_test_ms_per_image", "ms/image", "", milliseconds),
    number("ours_parameters", "Parameters", "", count),
]
ANNOUNCED = [
    number("ours_parameters", "parameters", "", count),
    number("ours_peak_train_bytes", "peak memory", "", memory),
    number("ours_test_ms_per_image", "test ms/image", "", milliseconds),
]


def columns_of(table):
    """Return the table's columns. `speed-up` is shown only for as many epochs as the paper's."""
    columns = BESIDE_PAPER if table.in_paper else OURS_ALONE
    return [METHOD, *(c for c in columns if c.key != "ours_speedup" or table.protocol in FULL)]


def announced(table):
    """Return one table for all networks: parameters, memory and test time side by side."""
    columns = [column.of(arch, arch_name(arch), column.group) for arch in table.archs for column in ANNOUNCED]
    return [METHOD, *columns], beside(dict(table.by_arch))


def beside(parts):
    """Join the cells of several tables row by row; all have the same rows."""
    lines = zip(*(part.to_dict("records") for part in parts.values()), strict=True)
    return [{"row": cells[0]["row"], **dict(zip(parts, cells, strict=True))} for cells in lines]


def title(table):
    number = f"Table {list(DATASETS).index(table.dataset) + 1} of the paper: " if table.in_paper else ""
    return f"{number}{dataset_name(table.dataset)}, protocol `{table.protocol}`"


# --- notes below every table ------------------------------------------------------------------------------------------


def coverage(table):
    papers = of_paper(table.cells)
    archs = papers.groupby("arch", sort=False)
    parts = [f"{arch_name(arch)} {(cells.n > 0).sum()}/{len(cells)}" for arch, cells in archs]
    return f"{table.measured} of {len(papers)} cells measured ({', '.join(parts)})"


def schedule_text(run):
    if run.schedule == "linear":
        return f"rising over the first {100 * run.warmup:g} % of training, then falling linearly"
    return f"divided by ten at {', '.join(f'{100 * drop:g}' for drop in run.lr_drops)} % of training"


NOT_STATED = {
    "tinyimagenet": "The paper names no augmentation for TinyImageNet, so ours is that of CIFAR. The test labels are "
    "not public, so the 10,000 validation images are the test set."
}


def from_paper(table, run):
    """Describe how a protocol differs from Section 4.1.2, which `protocol=paper` follows exactly."""
    if not table.in_paper:
        return ""
    stated = canonical(table.dataset, "paper", run.method)
    keys = [key for key in difference(run.identity, stated.identity) if key != "protocol"]
    if not keys:
        return "; as the paper states" + (", except for the augmentation" if table.dataset in NOT_STATED else "")
    return "; the paper states " + ", ".join(dict.fromkeys(stated_text(stated, key) for key in keys))


def stated_text(run, key):
    """Return one setting in words. All settings of the learning rate have the same words."""
    if key in ("lr", "lr_drops", "schedule", "warmup"):
        return f"learning rate {run.lr:g} {schedule_text(run)}"
    return f"{run.epochs} epochs" if key == "epochs" else f"{key.replace('_', ' ')} {getattr(run, key)}"


def protocol_note(table):
    """Describe the protocol from its composed config."""
    run = canonical(table.dataset, table.protocol, "single")
    if run is None:
        return f"Protocol `{table.protocol}` for {table.dataset} is not in conf/ any more."
    return (
        f"Protocol `{table.protocol}`: {run.epochs} epochs, batch {run.batch}, learning rate {run.lr:g} "
        f"{schedule_text(run)}, SGD with Nesterov momentum {run.momentum:g}, weight decay {run.weight_decay:g}, "
        f"{augmentation_text(run)}, {run.samples} samples, {run.bins} ECE bins{from_paper(table, run)}."
    )


def augmentation_text(run):
    crop = f"random crops after padding by {run.crop} pixels" if run.crop else ""
    return " and ".join(filter(None, (crop, "random flips" if run.flip else ""))) or "no augmentation"


def reading_notes(table):
    notes = [NOT_STATED[table.dataset]] if table.in_paper and table.dataset in NOT_STATED else []
    notes += ["Our numbers are mean ± standard deviation over seeds. The number of seeds of the row is in brackets."]
    if table.in_paper:
        notes += [
            "`diff` is ours − paper. The paper prints ECE with two decimals, so rounding alone explains up to ±0.005.",
            f"The paper's hours are from an RTX 3090. {hours_note(table)}",
        ]
    return notes


def hours_note(table):
    """Say what can be compared with the paper's hours. A table of other protocols has no column `speed-up`."""
    if table.protocol in FULL:
        return "`speed-up` is their ratio to ours, so it also compares the hardware; ratios to Single do not."
    return "Ours are from another GPU and another protocol, so compare only the ratios to Single."


def posterior_note(table):
    """Note that the SVI row is not converged."""
    measured = table.cells[table.cells.n > 0]
    if "SVI" not in set(measured.row):
        return []
    return [
        "SVI is not converged: with one learning rate for means and standard deviations of the weights, SGD changes "
        "the standard deviations little. With `rho_optimizer=adam`, they converge, and the network underfits (tested "
        "on CIFAR-10)."
    ]


def bold_note(table):
    found = table.bold_found
    return (
        f'Bold marks the paper\'s "best way to balance the three metrics" among the {len(PROPOSED)} variants of RBUE: '
        "the lowest ECE, then the highest accuracy, both rounded to two decimals, then the shortest time. This rule "
        f"finds {sum(found)} of the paper's {len(found)} bold rows. It is applied to the paper's numbers and to ours "
        f"separately. If one of our {len(PROPOSED)} variants is missing, none of them is bold."
    )


def origin_note(table):
    runs = table.inside
    if runs.empty:
        return "Nothing measured yet."
    trained = trained_in(runs)
    tested = runs.precision.replace({"float16": "fp16", "float32": "fp32", "bfloat16": "bf16"})
    precision = tested.where(trained == tested, "trained in " + trained + ", tested in " + tested)
    machines = runs.hardware + " (" + precision + ", torch " + runs.torch + ")"
    machines, commits = (", ".join(sorted(set(names))) for names in (machines, runs.commit))
    return f"Measured on {machines}; commit {commits}."


def trained_in(runs):
    return runs.result.map(lambda result: result.config.get("precision", "unknown"))


def precision_note(table):
    """Say which rows average networks that were trained in several precisions, as on a GPU and on a CPU."""
    runs = table.inside
    trained = trained_in(runs)
    mixed = trained.groupby([runs.arch, runs.row]).transform("nunique") > 1
    if not mixed.any():
        return []
    precisions = " and ".join(sorted(set(trained[mixed])))
    return [f"Networks trained in {precisions} are averaged, also if they have the same seed{rows_of(runs, mixed)}."]


def cost_notes(table):
    """Describe how time and memory were measured. Equal shares of a pack's time do not compare rows."""
    runs = table.inside
    by_step = "Training time is the time of one step, measured alone on the GPU, times the number of steps"
    share = "Training time is an equal share of the time of networks trained at once on one GPU, so it has no ratio"
    busy = "Training time on a CPU depends on other programs, so it has no ratio"
    versions = "The ratio to Single's time compares two versions of the code"
    hidden = "Peak memory is unknown, since it was not measured for one network alone"
    untimed = "Test time is unknown, since other processes used the GPU or since it was not measured"
    kinds = [(by_step, runs.by_step), (versions, runs.other_code), (share, runs.shared), (busy, runs.on_cpu)]
    kinds += [(hidden, runs.peak_train_bytes.isna()), (untimed, runs.test_ms_per_image.isna())]
    borrowed = "Where the time of a seed is unknown, the mean of the other seeds of its row is used"
    kinds += [(borrowed, runs.borrowed)]
    slower = "At test time, the network was not compiled, which makes a pass slower"
    kinds += [(slower, runs.uncompiled & runs.test_ms_per_image.notna())]
    return [f"{note}{rows_of(runs, which)}." for note, which in kinds if which.any()]


def rows_of(runs, which):
    """Name the networks and rows that a note is about; empty if it is about all."""
    if which.all():
        return ""
    return ": " + "; ".join(
        arch_name(arch) + some_rows(part, which) for arch, part in runs.groupby("arch") if which[part.index].any()
    )


def some_rows(runs, which):
    """Name the rows of one network that a note is about. If many are, name the others; empty if it is about all."""
    held = runs.row[which[runs.index]].unique()
    others = runs.row[~runs.row.isin(held)].unique()
    if not len(others):
        return ""
    return f" (all measured rows but {', '.join(others)})" if len(others) < len(held) > 3 else f" ({', '.join(held)})"


FAR = {  # metric: the difference above which it needs an explanation, its name, and the form of a difference
    "accuracy": (0.5, "accuracy", "{:+.2f} points"),
    "ece": (0.015, "ECE", "{:+.3f}"),
}
MANY = 8  # differences that are too many to list


def difference_notes(table):
    """Name the cells far from the paper's, grouped by the reason in results/paper/explained.json."""
    found = defaultdict(list)
    for cell, (metric, (limit, *_)) in product(table.cells.to_dict("records"), FAR.items()):
        if abs(apart := cell[f"diff_{metric}"]) > limit:  # NaN, of a missing cell, is never greater
            why = reason(table.explained, cell | {"metric": metric})
            found[why].append((metric, arch_name(cell["arch"]), cell["row"], apart))
    return [
        f"Far from the paper's number (points: percentage points): {far_text(cells)}. {why}."
        for why, cells in found.items()
    ]


def far_text(cells):
    """List the differences, (metric, network, row, difference) each; of many, only their numbers and ranges."""
    if len(cells) > MANY:
        return far_in_short(cells)
    rows = defaultdict(list)
    for metric, arch, row, apart in cells:
        _, name, form = FAR[metric]
        rows[f"{arch} {row}"].append(f"{name} {form.format(apart)}")
    return "; ".join(f"{row}: {', '.join(apart)}" for row, apart in rows.items())


def far_in_short(cells):
    """Return `VGG-13: accuracy of 9 rows (+3.42 points to +7.21 points) and ECE of 9 rows (-0.144 to -0.044)`."""
    told = []
    for metric, (_, name, form) in FAR.items():
        if gaps := [apart for kind, _, _, apart in cells if kind == metric]:
            told.append(f"{name} of {len(gaps)} rows ({from_to(gaps, form.format)})")
    return f"{', '.join(dict.fromkeys(arch for _, arch, _, _ in cells))}: {' and '.join(told)}"


def reason(explained, cell):
    """Return the reason of the most specific entry that matches the cell."""
    fits = [entry for entry in explained if entry["where"].items() <= cell.items()]
    return max(fits, key=lambda entry: len(entry["where"]), default={"why": "Not explained"})["why"]


def total_note(table):
    """Sum up the table's training time. A training that two rows share counts once."""
    runs = table.inside
    trainings = {part.name: part.seconds or 0.0 for result in runs.result for part in result.trainings}
    if not table.in_paper or not trainings:
        return []
    hours, took = table.cells.paper_train_hours[table.cells.n > 0].sum(), duration(sum(trainings.values()))
    papers = f" In the paper, one training of each row takes {hours:.1f} h in total." if table.protocol in FULL else ""
    several = f"{len(trainings)} trainings. They took {took} in total"
    needed = several if len(trainings) > 1 else f"1 training. It took {took}"
    return [f"This table needed {needed}, without compilation.{papers}"]


def outside(table):
    """Describe the runs of this dataset and protocol that no table shows: one line about them, then one line per run,
    such as 'name (epochs=2): 94.60 %, ECE 0.021'."""
    runs = table.runs[table.runs.row.isna()].sort_values("name").itertuples()
    lines = [f"`{run.name}` ({run.differs}): {run.accuracy:.2f} %, ECE {run.ece:.3f}" for run in runs]
    several = f"{len(lines)} runs are" if len(lines) > 1 else "1 run is"
    return [f"{several} not in this table, since a setting differs from those of its rows:", *lines] if lines else []


def notes(table):
    return [
        protocol_note(table),
        origin_note(table),
        *precision_note(table),
        *reading_notes(table),
        bold_note(table),
        *posterior_note(table),
        *cost_notes(table),
        *total_note(table),
        *difference_notes(table),
    ]
