"""Train and evaluate one uncertainty method on one network and dataset.

python train.py method=dropreLU q=0.9 arch=resnet18          # one cell of the paper's Table 1
python train.py -m method=dropreLU q=0.8,0.9 seed=0,1        # a sweep: every combination
python train.py -m sweep=table1 seed=0,1                     # a sweep: every cell of Table 1, twice
python train.py --help                                       # every group and knob
"""

import gc
import sys

import hydra

from rbue import config, results
from rbue.cli import failures_kept, for_hydra, one_sentence_errors, parse

config.register()


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg):
    with one_sentence_errors():
        run = parse(cfg)
        with failures_kept(run), results.opened(run) as result:
            if result is None:
                result = experiment(run)
                print(f"wrote {results.folder(run)}/result.json")
            else:
                print(f"finished already, so skipped: {results.folder(run)} (another results_dir= runs it again)")
            print(results.summary(result), flush=True)


def experiment(run):
    """data → networks → fit → predict → score → write"""
    from rbue import analysis, data, devices, inference, metrics, shift, training  # torch takes seconds: not for a TAB

    device = devices.choose(run.device, run.per_gpu)
    images = data.of(run)
    sets = shift.sets(run, images)
    networks, records = training.trained(run.trainings, images, device)
    test = inference.Tester(run, networks, images, device)
    evaluated, cost = test(images.test_images)
    report = metrics.report(evaluated, images.test_labels, run.bins) | shift.report(run, test, sets)
    more, predictions = analysis.report(run, networks, test, images, evaluated)
    return results.record(run, report | more, records, cost, predictions)


if __name__ == "__main__":
    gc.set_threshold(10_000)  # torch and its compiler make a million objects that stay: search them less often
    with one_sentence_errors():
        sys.argv = for_hydra(sys.argv)
        main()
