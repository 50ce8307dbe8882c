"""Put every table, figure and claim into one HTML file. It takes seconds and needs no GPU, no torch and no network.

python scripts/report.py                                                         # results/report.html (= make report)
python scripts/report.py --results outputs/demo/runs --out outputs/demo/report.html

The page contains the figures and benchmarks from the folders `figures` and `benchmarks` next to it. So run
scripts/figures.py first.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs from a clone, without an install

from rbue.cli import one_sentence_errors, parse_with_plugins, parser_of_results
from rbue.report.known import collect_known
from rbue.report.page import build
from rbue.runs.results import write


def arguments(argv):
    return parse_with_plugins(parser_of_results(__doc__, "results/report.html", "the page"), argv)


def main(argv=None):
    args = arguments(argv)
    out = Path(args.out)
    page = build(collect_known(args.results), args.paper, out.parent / "figures", out.parent / "benchmarks")
    write(out, page)
    if not (figures := out.parent / "figures").is_dir():
        print(f"  It has no figures, since there is no {figures}: scripts/figures.py --out makes them there")
    print(f"{out}: {len(page) / 1e6:.1f} MB, open it in any browser: {out.resolve().as_uri()}")


if __name__ == "__main__":
    with one_sentence_errors():
        main()
