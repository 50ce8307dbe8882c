"""The entry point of train.py and `python -m rbue`, which writes one result.json per run."""

import gc
import sys

import hydra

from rbue import cli
from rbue.runs import provenance, results
from rbue.runs.compose import register
from rbue.runs.places import CONF


def main():
    """Run the command line: one job or a sweep."""
    gc.set_threshold(10_000)  # torch and its compiler keep a million objects alive: collect garbage less often
    cli.prepare_hydra()
    with cli.one_sentence_errors(cli.CONTINUES), cli.told_signals():
        cli.take_plugins_of_completion()
        sys.argv[1:] = cli.for_hydra(cli.take_plugins(sys.argv[1:]))
        register()
        run_job()


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def run_job(cfg):
    """Run one job: skip a finished run; train and evaluate any other, and write its result."""
    with cli.one_sentence_errors(cli.CONTINUES):
        cli.end_with_sweep()
        run = cli.parse(cfg)
        cli.announce(run)
        with cli.failures_kept(run), results.find_or_lock(run) as result:
            if result is None:
                result = experiment(run)
                print(f"wrote {results.folder(run)}/result.json")
            else:
                print(skipped(run, result))
            print(results.summary(result), flush=True)


def skipped(run, result):
    """Say that a run is finished, and which metrics of the loaded plugins its result lacks."""
    if lacking := results.lacking(result):
        way_out = f"move {results.folder(run)} away to test again (its weights are kept)"
        return f"skipped, since it is finished; its result has no metric {', '.join(lacking)}: {way_out}"
    trained = zip(run.trainings, result.trainings, strict=False)
    changed = dict.fromkeys(name for part, record in trained for name in provenance.changed_code(part, record.own_code))
    other = f", but with other code of {', '.join(changed)}" if changed else ""
    way_out = "a new results_dir= tests it again; with a new weights_dir= too, it is also trained again"
    return f"skipped, since it is finished{other}: {results.folder(run)} ({way_out})"


def experiment(run):
    """Load the data, train the networks, predict, compute the metrics and write the result."""
    provenance.at_start()
    from rbue import data, metrics, training  # imports torch, which takes seconds: shell completion must not wait
    from rbue.evaluation import analysis, corruption, evaluator
    from rbue.runs import devices

    device = devices.choose(run.device, run.per_gpu)
    images = data.load_for(run)
    sets = corruption.sets(run, images)
    networks, records = training.load_or_train(run.trainings, images, device)
    test = evaluator.Evaluator(run, networks, images, device)
    evaluated, cost = test.timed(images.test_images)
    report = metrics.report(evaluated, images.test_labels, run.bins) | corruption.report(run, test, sets)
    more, predictions = analysis.report(run, networks, test, images, evaluated)
    return results.write_result(run, report | more, records, cost, predictions)
