"""Rebuild the paper's Tables 1-3 and 6 from finished runs, and put our baselines beside those of other projects.

It takes seconds and needs no GPU and no torch.

python scripts/tables.py                                        # results/runs -> results/tables (= make tables)
python scripts/tables.py --print --dataset digits               # also print the digits' table
python scripts/tables.py --results theirs --out theirs/tables   # somebody else's runs
"""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs from a clone, without an install

from rbue.cli import one_sentence_errors, parse_with_plugins, parser_of_results, refuse_unknown_filter
from rbue.errors import UserError
from rbue.report import peers, position
from rbue.report.cells import build
from rbue.report.known import collect_known
from rbue.report.records import records
from rbue.report.tables import BEGIN, END, around, coverage, headline, put_between, summary, write
from rbue.runs.results import MAKES


def arguments(argv):
    parser = parser_of_results(__doc__, "results/tables", "where the tables go")
    parser.add_argument("--dataset", help="only this dataset's tables")
    parser.add_argument("--protocol", help="only this protocol's tables")
    parser.add_argument("--readme", help="also write the measured tables into this README, between its markers")
    parser.add_argument("--print", action="store_true", help="also print the measured tables to the terminal")
    args = parse_with_plugins(parser, argv)
    if args.readme and (args.dataset or args.protocol):
        parser.error("--readme needs all tables: leave out --dataset and --protocol")
    if args.readme:
        around(args.readme, BEGIN, END)
    return args


def refuse_corrupted(dataset):
    if dataset and dataset != (clean := dataset.removesuffix("_c")):
        way_out = f"'python scripts/figures.py --dataset {clean}' draws its box plots"
        raise UserError(f"--dataset {dataset} has no table in the paper: {way_out}")


def check_predictions(found):
    """Say which results do not fit their predictions. Claims and figures say so too, since they read them."""
    for result in found:
        _ = replace(result).predictions  # of a copy, so that they do not stay in memory


def main(argv=None):
    args = arguments(argv)
    wanted = {"dataset": args.dataset, "protocol": args.protocol}
    found = collect_known(args.results)
    refuse_unknown_filter(found, **wanted)
    refuse_corrupted(args.dataset)
    check_predictions(found)
    runs = records(found)
    tables = build(runs, args.paper, **wanted)
    if not tables:  # the README keeps its tables
        raise UserError(f"{args.results} holds no such results yet: {MAKES}")
    for table in tables:
        paths = write(table, args.out)
        if args.print and len(table.runs):
            print(f"\n{summary(table)}\n")
        print(f"{paths[0].with_suffix('')}.{{md,tex,csv}}: {coverage(table)}")
    for protocol, cells in position.build(runs, args.paper).items():
        if args.protocol in (None, protocol) and not args.dataset:
            paths = position.write(protocol, cells, args.out)
            print(f"{paths[0].with_suffix('')}.{{md,tex,csv}}: {(cells.n > 0).sum()} of {len(cells)} rows measured")
    beside = peers.build(runs, args.paper)
    if beside.n.any() and not (args.dataset or args.protocol):
        paths = peers.write(beside, args.out)
        print(f"{paths[0].with_suffix('')}.{{md,tex,csv}}: {(beside.n > 0).sum()} of {len(beside)} rows measured")
    if args.readme:
        put_between(args.readme, BEGIN, END, headline(tables))


if __name__ == "__main__":
    with one_sentence_errors():
        main()
