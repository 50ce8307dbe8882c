"""The entry of train.py and `python -m rbue`: a command line in, one result.json per run out."""

import gc
import sys

import hydra

from rbue.cli import (
    failures_kept,
    for_hydra,
    one_sentence_errors,
    parse,
    prepare_hydra,
    refuse_unknown_options,
    take_plugins,
    take_plugins_of_completion,
)
from rbue.runs import results
from rbue.runs.compose import register_once
from rbue.runs.places import CONF


def main():
    """Run the words of the command line, one job or a sweep."""
    gc.set_threshold(10_000)  # torch and its compiler make a million objects that stay: search them less often
    prepare_hydra()
    with one_sentence_errors():
        take_plugins_of_completion()
        words = take_plugins(sys.argv[1:])
        refuse_unknown_options(words)
        sys.argv = for_hydra([sys.argv[0], *words])
        register_once()
        run_job()


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def run_job(cfg):
    """One job: a finished run is skipped, any other is trained, evaluated and written."""
    with one_sentence_errors():
        run = parse(cfg)
        with failures_kept(run), results.find_or_lock(run) as result:
            if result is None:
                result = experiment(run)
                print(f"wrote {results.folder(run)}/result.json")
            else:
                print(f"finished already, so skipped: {results.folder(run)} (another results_dir= runs it again)")
            print(results.summary(result), flush=True)


def experiment(run):
    """data → networks → fit → predict → score → write"""
    from rbue import data, metrics, training  # torch takes seconds: not for a TAB
    from rbue.evaluation import analysis, corruption, evaluator
    from rbue.runs import devices

    device = devices.choose(run.device, run.per_gpu)
    images = data.load_for(run)
    sets = corruption.sets(run, images)
    networks, records = training.load_or_train(run.trainings, images, device)
    test = evaluator.Evaluator(run, networks, images, device)
    evaluated, cost = test(images.test_images)
    report = metrics.report(evaluated, images.test_labels, run.bins) | corruption.report(run, test, sets)
    more, predictions = analysis.report(run, networks, test, images, evaluated)
    return results.write_result(run, report | more, records, cost, predictions)
