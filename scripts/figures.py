"""Redraw the paper's figures from finished runs. It takes minutes and needs no GPU and no torch.

python scripts/figures.py                                         # results/runs -> results/figures (= make figures)
python scripts/figures.py --dataset digits --protocol demo        # only these; cifar10_c is drawn with cifar10
python scripts/figures.py --results theirs --out theirs/figures   # somebody else's runs

Without --dataset, --protocol and --arch, it writes <out>/headline: our accuracy and ECE compared with the printed ones,
and ECE against test time. It writes each figure as .pdf and .svg, and its numbers as .csv, into the folder
<out>/<protocol>/<dataset>/<arch>:
  corruptions-<source>      accuracy and ECE by severity, boxes over the corruption types; source: generated, official,
                            or unverified (the official layout, but another md5)
  corruptions-<source>-ece  median ECE by severity; -averages.md has mean errors and mCE
  diversity-jsd, -dis       4 x 4 matrices over pairs of samples; diversity.md compares mean and max with the paper's
  behaviours                accuracy against ECE, with the paper's points and ours
  framework                 a real test image, its sample predictions, their mean and entropy
  variance                  variance per layer: exact, Monte Carlo, the paper's formula, dropout; <out>/variance: over q
  posterior                 standard deviations of SVI's and IVON's weights per layer; their KL during training
  samples                   accuracy, ECE, NLL against test cost, in passes and in milliseconds
  reliability, rejection    accuracy against confidence; error against the fraction of rejected images
  twins, temperature, ood   tables: the deterministic network; temperature scaling; OOD detection
  scores                    table: more calibration errors, AURC, AUROC, AUPR, FPR95, from stored predictions
  own-corruptions           table: corruptions that the user registered, by severity
scripts/activations.py draws the layers, scripts/corruption_sheet.py the corrupted images; both need torch.
"""

import sys
from collections import defaultdict
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs from a clone, without an install

from rbue.cli import one_sentence_errors, parse_with_plugins, parser_of_results, refuse_unknown_filter
from rbue.errors import UserError
from rbue.processes import mapping
from rbue.report.figures import RESULTS, draw, draw_general, headline, left_out, makes, networks
from rbue.report.known import collect_known
from rbue.report.records import NETWORK, records
from rbue.runs.results import MAKES


def arguments(argv):
    parser = parser_of_results(__doc__, "results/figures", "where the figures go")
    for key in NETWORK:
        parser.add_argument(f"--{key}", help=f"only this {key}'s figures")
    return parse_with_plugins(parser, argv)


def stems(paths):
    return ", ".join(sorted({path.stem for path in paths if path.suffix == ".pdf"}))


def report(network, drawn, out, results):
    """Print one line about what was drawn, and one about the figures that have no data yet."""
    print(f"{network.folder(out)}: {stems([path for paths in drawn.values() for path in paths]) or 'nothing'}")
    missing = defaultdict(list)
    for figure in [figure for figure, paths in drawn.items() if not paths]:
        missing[makes(figure, network, results)].append(figure)
    told = [f"{', '.join(names)} ('{way}' makes {'them' if names[1:] else 'it'})" for way, names in missing.items()]
    if told and results != RESULTS:
        told.append("add the data_dir= and weights_dir= of your runs, if they are not the usual")
    if told:
        print(f"  Not drawn yet, since no result here has the data: {'; '.join(told)}")


def only(runs, wanted):
    """Return the records that have the wanted dataset, protocol and arch. Figures of cifar10_c are among cifar10's."""
    for key, name in wanted.items():
        runs = runs[runs[key] == (name.removesuffix("_c") if key == "dataset" else name)]
    return runs


def main(argv=None):
    args = arguments(argv)
    results = collect_known(args.results)
    wanted = {key: name for key in NETWORK if (name := getattr(args, key)) is not None}
    refuse_unknown_filter(results, **wanted)
    runs = only(records(results), wanted)
    found = networks(runs, args.paper)
    if found:
        general = draw_general(args.out)
        if not wanted:
            general += headline.draw(runs, args.paper, args.out)
        print(f"{args.out}: {stems(general)}")
    with mapping(len(found), "draws figures") as mapped:
        for network, drawn in zip(found, mapped(partial(draw, out=args.out), found), strict=True):
            report(network, drawn, args.out, args.results)
    if names := left_out(runs):
        print("Not in any figure, since a setting differs from those of its rows:", *names, sep="\n  ")
    if not found:
        raise UserError(f"{args.results} holds no results for a figure: {MAKES}")


if __name__ == "__main__":
    with one_sentence_errors():
        main()
