"""The paper's Tables 1 to 3 and 6 next to ours, with the protocols that were measured, and other projects' numbers."""

from rbue.report import cells, peers, position
from rbue.report.columns import METHOD, decimals, number
from rbue.report.page.markup import in_common, own, slug, table
from rbue.report.page.suite import links
from rbue.report.records import PLACE
from rbue.report.rows import DATASETS, dataset_name, name_order, place_name
from rbue.report.tables import side_by_side
from rbue.report.text import announced, columns_of, coverage, notes

EVERY = "All tables"
FORMS = {"CSV": "csv", "LaTeX": "tex", "Markdown": "md"}
PAPER_ALONE = [
    METHOD,
    number("paper_accuracy", "Accuracy, %", "", decimals(2), bold="paper_bold"),
    number("paper_ece", "ECE", "", decimals(2), bold="paper_bold"),
    number("paper_train_hours", "Training hours", "", decimals(1), bold="paper_bold"),
]


def name_of(dataset, *arch):
    """Return `Table 1, CIFAR-10` or `Table 1, CIFAR-10 with VGG-13`, as the paper numbers it."""
    known = list(DATASETS)
    number = f"Table {known.index(dataset) + 1}, " if dataset in known else ""
    return number + (place_name(dataset, *arch) if arch else dataset_name(dataset))


def measured_tables(suite):
    return [found for found in suite.tables if found.cells.n.any()]


def common_notes(suite):
    """Return {kind: notes} that all tables have in common, and then those that all tables of a protocol have."""
    noted = [(protocol_of(found), notes(found)) for found in measured_tables(suite)]
    everywhere = in_common((EVERY, each) for _, each in noted)
    return everywhere | in_common((protocol, own(each, everywhere.get(EVERY, []))) for protocol, each in noted)


def protocol_of(found):
    return f"Protocol `{found.protocol}`"


def own_notes(found, common):
    return own(notes(found), [note for kind in (EVERY, protocol_of(found)) for note in common.get(kind, [])])


def by_dataset(suite, common):
    """Return the datasets with a measured table, in the paper's order, with their networks and their own notes."""
    measured = measured_tables(suite)
    datasets = sorted({found.dataset for found in measured}, key=name_order)
    parts = [(dataset, [t for t in measured if t.dataset == dataset]) for dataset in datasets]
    return [dataset_part(suite, dataset, found, common) for dataset, found in parts]


def dataset_part(suite, dataset, found, common):
    archs = sorted({arch for t in found for arch, rows in t.by_arch if rows.n.any()}, key=name_order)
    return {
        "id": slug("tables", dataset),
        "title": name_of(dataset),
        "tags": {"dataset": dataset},
        "coverage": [f"`{t.protocol}`: {coverage(t)}." for t in found],
        "networks": [network_part(suite, dataset, arch, found) for arch in archs],
        "costs": [costs(t) for t in found],
        "notes": [(protocol_of(t), rest) for t in found if (rest := own_notes(t, common))],
    }


def network_part(suite, dataset, arch, found):
    """Return the network's best protocol as a table, its protocols side by side, and the other protocols, folded."""
    parts = {
        t.protocol: measured_table(suite, t, arch, rows)
        for t in found
        for name, rows in t.by_arch
        if name == arch and rows.n.any()
    }
    best = suite.best(dataset, arch)
    return {
        "tags": {"dataset": dataset, "network": arch},
        "main": parts.pop(best if best in parts else next(iter(parts))),
        "compared": side_table(suite, dataset, arch),
        "others": list(parts.values()),
    }


def measured_table(suite, found, arch, rows):
    rows = cells.worth_showing(rows)
    tags = {"dataset": found.dataset, "network": arch, "protocol": found.protocol}
    whose = "the paper's numbers and ours" if rows.paper_accuracy.notna().any() else "our numbers"
    caption = f"{name_of(found.dataset, arch)}: {whose}, protocol `{found.protocol}`"
    more = {"links": table_links(suite, found.protocol, found.dataset), "tags": tags}
    return table(columns_of(found), rows.to_dict("records"), caption, slug("table", *tags.values()), **more)


def table_links(suite, protocol, name):
    return links(suite, suite.folder / "tables" / protocol / name, FORMS)


def side_table(suite, dataset, arch):
    """Compare one network under its protocols: the effect of weight decay and epochs. None if there is one."""
    protocols = suite.compared.get((dataset, arch), {})
    if len(protocols) < 2:
        return None
    caption = f"{name_of(dataset, arch)}: by protocol"
    return table(*side_by_side(protocols), caption, slug("table", dataset, arch, "by protocol"))


def costs(found):
    """Return parameters, memory and test time, which the paper announces but does not print."""
    caption = f"{name_of(found.dataset)}: parameters, memory and test time, protocol `{found.protocol}`"
    return table(*announced(found), caption, slug("costs", found.dataset, found.protocol))


def unmeasured(suite):
    """Return the paper's numbers for networks without a measurement."""
    printed = cells.paper_cells(suite.paper_dir).rename(columns={m: f"paper_{m}" for m in [*cells.PRINTED, "bold"]})
    return [
        table(
            PAPER_ALONE,
            rows.to_dict("records"),
            f"{name_of(dataset, arch)}: the paper's numbers",
            slug("paper", dataset, arch),
            tags={"dataset": dataset, "network": arch},
        )
        for (dataset, arch), rows in printed.groupby(PLACE, sort=False)
        if (dataset, arch) not in suite.compared
    ]


def positions(suite):
    """Return Table 6 per protocol with a measured position; if there is none, the paper's rows alone."""
    measured = {protocol: frame for protocol, frame in suite.positions.items() if frame.n.any()}
    shown = measured or dict(list(suite.positions.items())[:1])
    return [
        table(
            position.COLUMNS,
            frame.to_dict("records"),
            f"Table 6: position of the random rectifiers, protocol `{protocol}`",
            slug("table position", protocol),
            links=table_links(suite, protocol, "position"),
            tags={"protocol": protocol},
            notes=position.epochs_note(protocol, frame),
        )
        for protocol, frame in shown.items()
    ]


def others(suite):
    """Return our baselines beside those of other projects; None if none of the rows is measured."""
    frame = peers.build(suite.runs, suite.paper_dir)
    if not frame.n.any():
        return None
    more = {"links": links(suite, suite.folder / "tables" / "peers", FORMS), "notes": peers.notes(frame)}
    found = table(peers.COLUMNS, frame.to_dict("records"), peers.TITLE, "table-peers", **more)
    return {"answer": peers.answer(frame), "table": found}
