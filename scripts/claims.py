"""Judge the paper's claims on its own numbers and on ours. It takes seconds and needs no GPU and no torch.

python scripts/claims.py                                        # results/runs -> results/claims.md (= make claims)
python scripts/claims.py --print                                # also print the verdicts
python scripts/claims.py --readme README.md                     # also write the verdict into the README
python scripts/claims.py --results theirs --out theirs/claims.md
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs from a clone, without an install

from rbue.cli import one_sentence_errors, parse_with_plugins, parser_of_results
from rbue.errors import UserError
from rbue.report import verdict
from rbue.report.claims import build, markdown, our_frames, summary
from rbue.report.claims.text import counts
from rbue.report.known import collect_known
from rbue.report.tables import around, put_between
from rbue.report.verdict import BEGIN, END
from rbue.runs.results import MAKES, write


def arguments(argv):
    parser = parser_of_results(__doc__, "results/claims.md", "the page to write", "claims.json")
    parser.add_argument("--print", action="store_true", help="also print every claim's verdict to the terminal")
    parser.add_argument("--readme", help="also write the verdict into this README, between its markers")
    args = parse_with_plugins(parser, argv)
    if args.readme:
        around(args.readme, BEGIN, END)
    return args


def main(argv=None):
    args = arguments(argv)
    found = collect_known(args.results)
    frames = our_frames(found)
    ledger, answers = build(found, args.paper, frames), verdict.build(found, args.paper, frames)
    if args.readme and not answers:
        raise UserError(f"{args.results} holds no result for an answer, so {args.readme} keeps its own: {MAKES}")
    write(args.out, markdown(ledger, verdict.in_full(answers) if answers else ""))
    if args.readme:
        put_between(args.readme, BEGIN, END, verdict.markdown(answers))
    if args.print:
        print(f"\n{summary(ledger)}\n")
    print(f"{args.out}: " + "; ".join(f"{what}: {count}" for what, count in counts(ledger)).replace("`", ""))


if __name__ == "__main__":
    with one_sentence_errors():
        main()
