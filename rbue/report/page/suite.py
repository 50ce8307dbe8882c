"""Everything that the page is built from, computed once."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from rbue.report import cells, claims, position, verdict
from rbue.report.figures import networks
from rbue.report.figures.style import COLOURS
from rbue.report.records import records
from rbue.report.rows import ROWS, arch_name, by_protocol, dataset_name, name_order, paper_order
from rbue.report.tables import by_network, count_measured


@dataclass(frozen=True)
class Suite:
    runs: pd.DataFrame  # one row per run
    paper_dir: Path
    figures_dir: Path
    benchmarks_dir: Path
    tables: list
    positions: dict
    ledger: list
    networks: list
    findings: list

    @classmethod
    def of(cls, results, paper_dir, figures_dir, benchmarks_dir):
        runs, frames = records(results), claims.our_frames(results)  # resampling takes seconds, so it is done once
        return cls(
            runs,
            Path(paper_dir),
            Path(figures_dir),
            Path(benchmarks_dir),
            tables=cells.build(runs, paper_dir),
            positions=position.build(runs, paper_dir),
            ledger=claims.build(results, paper_dir, frames),
            networks=networks(runs, paper_dir),
            findings=verdict.build(results, paper_dir, frames),
        )

    @property
    def folder(self):
        """The page's own folder, where its links start."""
        return self.figures_dir.parent

    @property
    def measured(self):
        """The number of the paper's cells that are measured under any protocol."""
        return count_measured(self.compared)

    @cached_property
    def compared(self):
        """{(dataset, arch): {protocol: the paper's rows}} of networks with a measured row."""
        return by_network(self.tables)

    def best(self, dataset, arch):
        """Return the protocol that stands for a network: the one with the most of the paper's rows, which the paper's
        figures need; of two, the full schedule."""
        found = [network for network in self.networks if (network.dataset, network.arch) == (dataset, arch)]
        return min(found, key=lambda n: (-n.papers_rows, by_protocol(n.protocol))).protocol

    def rows(self):
        """Return (row, colour) of every row of the tables and figures."""
        methods = {label: settings["method"] for label, settings in ROWS}
        shown = self.runs[self.runs.row.notna()]
        methods |= dict(zip(shown.row, shown.method, strict=True))
        return [(row, COLOURS[method]) for row, method in methods.items()]

    def filters(self):
        """Return {what: {value: name}} of what a reader may choose from."""
        places = sorted({(run.dataset, run.arch) for run in self.runs.itertuples()}, key=paper_order)
        protocols = sorted(set(self.runs.protocol), key=by_protocol)
        return {
            "dataset": {dataset: dataset_name(dataset) for dataset, _ in places},
            "network": {arch: arch_name(arch) for _, arch in sorted(places, key=lambda place: name_order(place[1]))},
            "protocol": {protocol: protocol for protocol in protocols},
        }


def links(suite, stem, forms):
    """Return (name, relative address) of the files near the page that exist: a table's CSV, a figure's PDF."""
    paths = {name: stem.with_name(f"{stem.name}.{suffix}") for name, suffix in forms.items()}
    return [(name, path.relative_to(suite.folder).as_posix()) for name, path in paths.items() if path.exists()]
