import copy
import signal
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from conftest import have_same_weights, make_step
from torch import nn

from rbue import methods, networks, training
from rbue.errors import UserError
from rbue.evaluation import evaluator
from rbue.methods import METHODS
from rbue.runs import devices, provenance, results
from rbue.training import checkpoints, loop, packs
from rbue.training.signals import Stop
from rbue.training.step import learning_rates

CPU = torch.device("cpu")


class Killed(BaseException):
    pass


SHORT = ("epochs=4", "checkpoint_every=1")


def kill(run, data, monkeypatch):
    """Train a run that is killed one step after the checkpoint of its second epoch."""
    train_epoch = loop.train_epoch

    def dies_in_epoch_two(group, advance, epoch, bar, stop):
        if epoch == 2:
            advance()  # a step after the last checkpoint
            raise Killed
        return train_epoch(group, advance, epoch, bar, stop)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(loop, "train_epoch", dies_in_epoch_two)
        training.load_or_train([run], data, CPU)


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"deep_ensemble"}))
def test_a_killed_run_resumes_to_the_same_weights(method, digits_run, few_digits, monkeypatch, tmp_path):
    settings = (f"method={method}", *SHORT)
    whole, killed = digits_run(*settings), digits_run(*settings, f"weights_dir={tmp_path}/killed")
    training.load_or_train([whole], few_digits, CPU)
    kill(killed, few_digits, monkeypatch)
    training.load_or_train([killed], few_digits, CPU)
    assert have_same_weights(whole, killed)
    assert not (results.weights_folder(killed) / "checkpoint.pt").exists()


def with_dropout(classes):
    """A network with a random layer of torch's own."""
    return nn.Sequential(nn.Conv2d(3, 4, 3, stride=4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.LazyLinear(classes))


def test_a_training_says_after_how_many_epochs_it_resumes(digits_run, few_digits, monkeypatch, capsys):
    run = digits_run(*SHORT)
    kill(run, few_digits, monkeypatch)
    assert "resumed" not in capsys.readouterr().err
    training.load_or_train([run], few_digits, CPU)
    assert "in fp32, resumed after epoch 2\n" in capsys.readouterr().err


def test_a_seed_also_fixes_the_random_layers_of_ones_own_network(digits_run, few_digits, monkeypatch, tmp_path):
    monkeypatch.setitem(networks.ARCHS, "small", with_dropout)
    names = ("whole", "again", "killed", "other")
    runs = {name: digits_run(*SHORT, f"weights_dir={tmp_path}/{name}") for name in names}
    runs["other"] = digits_run(*SHORT, "seed=1", f"weights_dir={tmp_path}/other")
    kill(runs["killed"], few_digits, monkeypatch)
    for run in runs.values():
        training.load_or_train([run], few_digits, CPU)
    same = {name for name in names if have_same_weights(runs["whole"], runs[name])}
    assert same == {"whole", "again", "killed"}


def test_a_record_names_all_code_that_trained_a_run(digits_run, few_digits, monkeypatch):
    run = digits_run(*SHORT)
    monkeypatch.setattr(loop, "step_code", lambda: "old")
    kill(run, few_digits, monkeypatch)
    monkeypatch.setattr(loop, "step_code", lambda: "new")
    _, (record,) = training.load_or_train([run], few_digits, CPU)
    assert record["code"] == "old+new" and record["torch"] == provenance.package_version("torch")


def test_checkpoints_are_written_as_often_as_asked(digits_run, few_digits, monkeypatch):
    written, save = [], loop.Training.save_checkpoint
    monkeypatch.setattr(loop.Training, "save_checkpoint", lambda self: written.append(len(self.curve)) or save(self))
    training.load_or_train([digits_run("epochs=6", "checkpoint_every=2")], few_digits, CPU)
    assert written == [2, 4]  # the last epoch's weights are the result


class Head(nn.Linear):
    """A layer that depends on the mode, so it is not traced into. It has weights that forward does not use."""

    def __init__(self, inputs, classes):
        super().__init__(inputs, classes)
        self.unused = nn.Linear(inputs, classes)

    def forward(self, x):
        return super().forward(x) if self.training else super().forward(x).clone()


def partly_trained(classes):
    layers = nn.Conv2d(3, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Flatten()
    network = nn.Sequential(*layers, Head(4 * 36, classes))
    network[:2].requires_grad_(False)
    return network


def with_buffers(classes):
    """The same network with buffers, which no optimizer knows, in place of its frozen and unused weights."""
    network = partly_trained(classes)
    for module in (network[0], network[1], network[-1].unused):
        for name, weight in list(module.named_parameters()):
            delattr(module, name)
            module.register_buffer(name, weight.data)
    return network


@pytest.mark.parametrize("method", ["single", "dropreLU", "svi", "ivon"])
def test_frozen_and_unused_weights_are_left_alone(method, digits_run, few_digits, monkeypatch, tmp_path):
    names = ("own", "killed", "buffers")
    own, killed, buffers = (digits_run(f"method={method}", *SHORT, f"weights_dir={tmp_path}/{name}") for name in names)
    monkeypatch.setitem(networks.ARCHS, "small", with_buffers)
    training.load_or_train([buffers], few_digits, CPU)
    monkeypatch.setitem(networks.ARCHS, "small", partly_trained)
    (network,), _ = training.load_or_train([own], few_digits, CPU)
    kill(killed, few_digits, monkeypatch)
    training.load_or_train([killed], few_digits, CPU)
    assert have_same_weights(own, buffers) and have_same_weights(own, killed)
    start = checkpoints.build(own, few_digits).state_dict()
    moved = {name for name, weight in network.state_dict().items() if not torch.equal(weight, start[name])}
    assert moved >= {name for name, p in network.named_parameters() if p.requires_grad}


class LeftOut(nn.Linear):
    """A layer that one mode leaves out. Other layers may do so at random, as in stochastic depth."""

    def __init__(self, mode):
        super().__init__(16, 16)
        self.mode = mode

    def forward(self, x):
        return x if self.training is self.mode else super().forward(x)


@pytest.mark.parametrize("training_only", [True, False])
def test_a_layer_that_one_mode_leaves_out_is_not_frozen(training_only, digits_run, few_digits, monkeypatch):
    layers = nn.Flatten(), nn.Linear(3072, 16), LeftOut(not training_only), nn.Linear(16, 10)
    monkeypatch.setitem(networks.ARCHS, "small", lambda _: nn.Sequential(*copy.deepcopy(layers)))
    (network,), _ = training.load_or_train([digits_run("epochs=1")], few_digits, CPU)
    pairs = zip(network.parameters(), nn.Sequential(*layers).parameters(), strict=True)
    moved = [not torch.equal(*pair) for pair in pairs]
    assert moved == [True, True, training_only, training_only, True, True]
    assert all(p.requires_grad for p in network.parameters())


def test_a_network_that_comes_in_eval_mode_is_trained_in_training_mode(digits_run, few_digits, monkeypatch):
    small = networks.ARCHS["small"]
    monkeypatch.setitem(networks.ARCHS, "small", lambda classes: small(classes).eval())
    step = make_step(digits_run(), few_digits)
    assert all(module.training for module in step.network.modules())


def test_seeds_differ_from_the_first_weight_on(digits_run):
    a, b = (methods.build(digits_run(f"seed={s}"), 10, 100).state_dict() for s in (0, 1))
    assert not torch.equal(a["0.weight"], b["0.weight"])


def test_a_loss_that_is_not_a_number_stops_the_run(digits_run, few_digits):
    run = digits_run("lr=1e30", "schedule=step", "warmup=0", "epochs=3")
    said = r"the loss of digits/small/single-demo-seed0-\w+ is nan in epoch 1: lower lr=1e\+30"
    with pytest.raises(UserError, match=said):
        training.load_or_train([run], few_digits, CPU)
    assert not (results.weights_folder(run) / "weights.pt").exists()


def test_a_penalty_that_is_not_a_number_is_not_blamed_on_the_loss(digits_run, few_digits):
    run, steps = digits_run("lr=0.1"), SimpleNamespace(sums=torch.tensor([3.0, 5.0, torch.nan]), per_epoch=10)
    training_run = SimpleNamespace(run=run, step=steps)
    said = str(loop.Training.finish_epoch(training_run, 2))
    assert said == f"the penalty (KL) of {run.training_name} is nan in epoch 3: lower lr=0.1"


@pytest.mark.parametrize("name", ["weights.pt", "checkpoint.pt"])
def test_a_truncated_file_is_named_and_left_alone(name, digits_run, few_digits):
    run = digits_run("epochs=1")
    path = results.weights_folder(run) / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PK\x03\x04 half a file")
    with pytest.raises(UserError, match=f"{name} cannot be read"):
        training.load_or_train([run], few_digits, CPU)
    assert path.read_bytes() == b"PK\x03\x04 half a file"


def test_ensembles_of_consecutive_seeds_are_consecutive_single_runs(digits_run):
    ensembles = [digits_run("method=deep_ensemble", "members=3", f"seed={seed}") for seed in (0, 1, 2)]
    members = [member.training_name for ensemble in ensembles for member in ensemble.trainings]
    assert members == [digits_run(f"seed={seed}").training_name for seed in range(9)]


@pytest.mark.parametrize("processes", [1, 4])
def test_a_training_on_a_shared_gpu_is_not_timed_alone(processes, digits_run, few_digits, monkeypatch):
    monkeypatch.setattr(loop.devices, "processes_on", lambda *_: processes)
    monkeypatch.setattr(loop.capture, "accelerate", lambda steps, *_: (steps[0], "captured"))
    monkeypatch.setattr(loop.capture, "seconds_alone", lambda *_: 0.5)
    run = digits_run("epochs=1")
    loop.fit([run], few_digits, CPU)
    saved = torch.load(results.weights_folder(run) / "weights.pt", weights_only=True)["record"]
    assert saved["alone"] == (2.0 if processes == 1 else None) and saved["packed"] == processes  # four steps
    pair = [loop.Training(run, make_step(run, few_digits)) for _ in range(2)]
    loop.share_time(pair, time.perf_counter() - 8)
    assert [t.seconds for t in pair] == [pytest.approx(4 / processes, abs=0.1)] * 2


@pytest.mark.parametrize("packed", [1, 2])
def test_a_packed_network_is_not_timed_by_the_step_of_the_whole_pack(packed, digits_run, few_digits, monkeypatch):
    timed, advance = [], []

    def accelerate(steps, *_):
        advance.append(lambda: [step() for step in steps])
        return advance[0], "captured"

    monkeypatch.setattr(loop.capture, "accelerate", accelerate)
    monkeypatch.setattr(loop.capture, "capture_graph", lambda steps, _: SimpleNamespace(replay=steps))
    monkeypatch.setattr(loop.capture, "seconds_alone", lambda step, device, replay: timed.append((step, replay)) or 1.0)
    loop.fit([digits_run("epochs=1", f"seed={seed}") for seed in range(packed)], few_digits, CPU)
    assert [replay for _, replay in timed] == (advance if packed == 1 else [[step] for step, _ in timed])
    assert len(timed) == packed


def test_runs_trained_side_by_side_are_what_they_are_alone(digits_run, few_digits, tmp_path):
    settings = [("seed=0",), ("seed=1",), ("method=dropreLU",), ("method=svi",)]
    alone = [digits_run("epochs=2", *s) for s in settings]
    packed = [digits_run("epochs=2", *s, f"weights_dir={tmp_path}/packed") for s in settings]
    training.load_or_train(alone, few_digits, CPU)
    loop.fit(packed, few_digits, CPU)
    assert all(map(have_same_weights, alone, packed))


def test_the_peak_of_memory_is_that_of_warming_up_where_replays_take_none(digits, few_digits, digits_run, monkeypatch):
    peaks = iter([7, 5, 3, 8, 2])  # in order: warm-up, set-up, training; preparing predictions, predicting
    monkeypatch.setattr(devices, "peak_memory", lambda device: next(peaks))
    run = digits_run("epochs=1")
    (network,), (record,) = training.load_or_train([run], few_digits, CPU)
    assert record["alone_peak_memory_bytes"] == 7
    assert evaluator.Evaluator(run, [network], digits, CPU)(digits.test_images[:9])[1]["peak_memory_bytes"] == 8


class Memory:
    """Stands for the memory of a GPU, of which earlier work has taken 100 bytes."""

    def __init__(self, monkeypatch):
        self.now = self.highest = 100
        monkeypatch.setattr(devices, "held", lambda *_: self.now)
        monkeypatch.setattr(devices, "measured", self.measured)

    def take(self, count):
        self.now += count
        self.highest = max(self.highest, self.now)

    @contextmanager
    def measured(self, device):
        self.highest, cost = self.now, {}
        yield cost
        cost |= {"peak_memory_bytes": self.highest, "seconds": 1.0, "hardware": "a GPU"}

    def taking(self, count, function):
        """Return a function that also takes memory."""
        return lambda *arguments: self.take(count) or function(*arguments)

    def captured(self, steps, activations):
        """Take what capturing a graph takes: copies of all tensors, and what a step needs. Only the graph stays."""
        copies = sum(t.nbytes for step in steps for t in step.tensors())
        self.take(copies + activations * len(steps))
        self.now -= copies
        return lambda: [step() for step in steps]


@pytest.mark.parametrize("packed", [1, 2])
def test_the_memory_of_a_training_is_what_it_needs_alone(packed, digits_run, few_digits, monkeypatch):
    memory, images, step = Memory(monkeypatch), loop.Images, loop.Step

    def allocated(made, size):
        memory.take(size(made))
        return made

    monkeypatch.setattr(loop, "Images", lambda *a: allocated(images(*a), lambda found: found.padded.nbytes))
    monkeypatch.setattr(loop, "Step", lambda *a: allocated(step(*a), lambda s: sum(t.nbytes for t in s.tensors())))
    monkeypatch.setattr(loop.capture, "accelerate", lambda steps, *_: (memory.captured(steps, 7000), "captured"))
    monkeypatch.setattr(loop.capture, "seconds_alone", lambda *_: memory.take(0) or 1.0)
    monkeypatch.setattr(
        loop.capture, "capture_graph", lambda steps, _: SimpleNamespace(replay=memory.captured(steps, 7000))
    )
    runs = [digits_run("epochs=1", f"seed={seed}") for seed in range(packed)]
    loop.fit(runs, few_digits, CPU)
    weights = sum(t.nbytes for t in make_step(runs[0], few_digits).tensors())
    needed = weights + images(few_digits, runs[0].crop, CPU).padded.nbytes + 7000
    records = [checkpoints.load_trained(run, few_digits, CPU)[1] for run in runs]
    assert [record["alone_peak_memory_bytes"] for record in records] == [needed] * packed


def test_what_earlier_work_left_on_the_gpu_is_not_counted(digits, digits_run, few_digits, monkeypatch):
    memory = Memory(monkeypatch)
    monkeypatch.setattr(loop.capture, "accelerate", memory.taking(7, loop.capture.accelerate))
    monkeypatch.setattr(evaluator, "fast", memory.taking(8, evaluator.fast))
    run = digits_run("epochs=1")
    (network,), (record,) = training.load_or_train([run], few_digits, CPU)
    assert record["alone_peak_memory_bytes"] == 7
    assert evaluator.Evaluator(run, [network], digits, CPU)(digits.test_images[:9])[1]["peak_memory_bytes"] == 8


def test_the_memory_of_one_network_of_a_pack_is_unknown_unless_measured_alone(digits_run, few_digits, monkeypatch):
    """The peak of a pack is no sum over its networks: they warm up one after the other."""
    runs = [digits_run("epochs=1", f"seed={seed}") for seed in range(2)]
    loop.fit(runs, few_digits, CPU)
    trained = [checkpoints.load_trained(run, few_digits, CPU)[1] for run in runs]
    assert [(record["alone_peak_memory_bytes"], record["packed"]) for record in trained] == [(None, 2)] * 2


def test_an_ensemble_needs_the_memory_of_its_largest_training_if_all_are_known(digits_run):
    ensemble = digits_run("epochs=1", "method=deep_ensemble", "members=2")
    cost = dict.fromkeys(("seconds", "ms_per_image", "first_ms_per_image", "images", "passes"), 1) | {"software": {}}
    cost |= dict.fromkeys(("hardware", "precision", "engine", "peak_memory_bytes"))
    for peaks, largest in (((5, 9), 9), ((5, None), None)):
        records = [{"seconds": 1, "alone": 1, "parameters": 1, "alone_peak_memory_bytes": peak} for peak in peaks]
        assert results.content_of(ensemble, {}, records, cost)["peak_memory_bytes"]["alone"] == largest
    shares = [{"seconds": 1, "alone": 1, "parameters": 1, "peak_memory_bytes": 7}] * 2  # as earlier versions stored
    assert results.content_of(ensemble, {}, shares, cost)["peak_memory_bytes"]["alone"] is None


def test_trainings_that_have_progressed_alike_and_furthest_come_first(digits_run, monkeypatch):
    monkeypatch.setattr(packs, "steps_done", lambda run: [0, 5, 0, 5, 9][run.seed])
    runs = [digits_run("pack=2", f"seed={seed}") for seed in range(5)]
    assert [[r.seed for r in g] for g in packs.packs(runs, torch.device("cuda"))] == [[4], [1, 3], [0, 2]]


def test_signals_have_their_own_handlers_again_after_a_training():
    before = [signal.getsignal(number) for number in Stop.SIGNALS]
    with Stop():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(number) for number in Stop.SIGNALS] == before


def test_a_gpu_takes_runs_of_one_schedule_together(digits_run):
    runs = [digits_run("pack=2", *s) for s in (("seed=0",), ("seed=1",), ("seed=2",), ("epochs=3",))]
    groups = [[r.seed for r in g] for g in packs.packs(runs, torch.device("cuda"))]
    assert sorted(map(len, groups)) == [1, 1, 2]
    assert all(len(g) == 1 for g in packs.packs(runs, CPU))


def test_runs_on_other_images_are_packed_apart(digits_run, monkeypatch):
    sources = [(), ("size=24",), ("size=16",), ("size=24", "data_dir=elsewhere"), ("holdout=9",), ("crop=1",), ()]
    runs = [digits_run(*settings, f"seed={seed}") for seed, settings in enumerate(sources)]
    loaded, trained = [], {}

    def fit(pack, data, device):
        trained.update({run.seed: data.source for run in pack})
        return {run.training_name: None for run in pack}  # as if failed, so that no weights are written

    def source(run):
        return run.size, run.data_dir, run.holdout

    def load_for(run):
        loaded.append(run)
        return SimpleNamespace(classes=10, source=source(run))

    monkeypatch.setattr(packs.datasets, "load_for", load_for)
    monkeypatch.setattr(packs, "fit", fit)
    list(training.train_in_packs(runs))
    assert trained == {run.seed: source(run) for run in runs}
    assert len(loaded) == 6  # once for each of them


def test_what_is_trained_is_not_trained_again(digits_run, few_digits, monkeypatch):
    run = digits_run("epochs=1")
    training.load_or_train([run], few_digits, CPU)
    monkeypatch.setattr(packs, "fit", None)
    (network,), (record,) = training.load_or_train([run], few_digits, CPU)
    assert not network.training and record["epoch"] == 1 and record["code"] == provenance.step_code()


def test_a_step_is_nesterovs_on_normalised_images_with_weight_decay(digits_run, few_digits):
    rates = "lr=0.1 lr_drops=[] momentum=0.9 weight_decay=0.01"
    run = digits_run(*f"protocol=paper crop=0 flip=false batch=64 epochs=1 {rates}".split())
    step = make_step(run, few_digits)
    network = methods.build(run, 10, 256).train()
    shape = (1, 3, 1, 1)
    images = (few_digits.train_images / 255 - few_digits.mean.view(shape)) / few_digits.std.view(shape)
    before = [p.detach().clone() for p in network.parameters()]
    velocities = [torch.zeros_like(p) for p in network.parameters()]
    for batch in step.order[:2]:
        step()
        loss = torch.nn.functional.cross_entropy(network(images[batch]), few_digits.train_labels[batch])
        network.zero_grad()
        loss.backward()
        for p, velocity in zip(network.parameters(), velocities, strict=True):
            gradient = p.grad + 0.01 * p.data
            velocity.mul_(0.9).add_(gradient)
            p.data -= 0.1 * (gradient + 0.9 * velocity)
    trained = zip(before, step.network.parameters(), network.parameters(), strict=True)
    assert all((ours - expected).norm() < 0.01 * (expected - start).norm() for start, ours, expected in trained)


def test_ivon_trains_a_network_without_batch_norm(digits_run, few_digits, monkeypatch):
    linear = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
    monkeypatch.setitem(networks.ARCHS, "small", lambda classes: linear)
    step = make_step(digits_run("method=ivon"), few_digits)
    for _ in range(2):
        step()
    assert not torch.equal(step.parameters[0], linear[1].weight) and len(step.optimizers) == 1


def test_every_epoch_has_an_order_of_its_own(digits_run, few_digits):
    step, orders = make_step(digits_run("batch=50"), few_digits), []
    for epoch in (0, 1, 0):
        step.shuffle(epoch)
        orders.append(step.order.flatten().tolist())
    assert orders[0] != orders[1] and orders[0] == orders[2]
    assert all(len(set(order)) == 250 for order in orders)  # each image once, without the six of the partial batch


def test_the_papers_learning_rate_falls_tenfold_at_its_fractions(digits_run):
    rates = learning_rates(digits_run("schedule=step", "warmup=0", "lr=0.1", "lr_drops=[0.45,0.675,0.9]"), 1000)
    expected = [(0, 0.1), (449, 0.1), (450, 0.01), (674, 0.01), (675, 0.001), (899, 0.001), (900, 1e-4), (999, 1e-4)]
    assert all(rates[step].item() == pytest.approx(rate) for step, rate in expected)


def test_the_papers_schedule_may_rise_first(digits_run):
    rates = learning_rates(digits_run("schedule=step", "warmup=0.2", "lr=0.1", "lr_drops=[0.1,0.5]"), 100)
    expected = [(0, 0), (5, 0.025), (15, 0.0075), (20, 0.01), (49, 0.01), (50, 0.001), (99, 0.001)]
    assert all(rates[step].item() == pytest.approx(rate) for step, rate in expected)


def test_the_fast_learning_rate_rises_and_falls_once(digits_run):
    rates = learning_rates(digits_run("schedule=linear", "warmup=0.2", "lr=0.2"), 100)
    assert rates.argmax() == 20 and rates.max().item() == pytest.approx(0.2)
    assert rates[0] == 0 and rates[99].item() == pytest.approx(0.2 / 80)


def test_svi_lowers_its_kl_and_learns(digits_run, few_digits):
    run = digits_run("method=svi", "rho_optimizer=adam", "epochs=12", "kl_warmup=0.5", "rho_lr=0.05")
    training.load_or_train([run], few_digits, CPU)
    rows = [line.split(",") for line in (results.weights_folder(run) / "curve.csv").read_text().splitlines()]
    kl, accuracy = ([float(row[rows[0].index(name)]) for row in rows[1:]] for name in ("kl", "accuracy"))
    assert kl[-1] < 0.9 * kl[0]
    assert accuracy[-1] > accuracy[0] + 0.3


def test_the_weight_of_the_kl_rises_to_beta(digits_run, few_digits):
    step = make_step(digits_run("method=svi", "beta=0.5", "kl_warmup=0.8", "batch=64", "epochs=5"), few_digits)
    rises = [(0, 0), (4, 0.125), (8, 0.25), (16, 0.5), (19, 0.5)]  # 20 steps
    assert all(float(step.penalty_weight(torch.tensor([count]))) == pytest.approx(weight) for count, weight in rises)


def test_bf16_trains_and_tests_on_a_cpu_too(digits_run, few_digits):
    run = digits_run("epochs=2", "precision=bf16")
    networks, (record,) = training.load_or_train([run], few_digits, CPU)
    evaluated, _ = evaluator.Evaluator(run, networks, few_digits, CPU)(few_digits.test_images)
    assert record["loss"] < 2.3 and torch.isfinite(evaluated.mean).all()


@pytest.mark.parametrize("kind", ["adam", "two"])
def test_optimizers_of_a_method_of_ones_own_keep_their_rates_when_resumed(kind, digits_run, few_digits):
    run = digits_run()

    def optimizers(network, lr):
        first, *rest = network.parameters()
        two = [run.sgd([{"params": [first]}], lr), run.sgd([{"params": rest}], lr)]
        return two if kind == "two" else [torch.optim.Adam(network.parameters(), lr=1e-3)]

    run.optimizers = optimizers
    whole, killed, resumed = (make_step(run, few_digits) for _ in range(3))
    for step, count in ((whole, 6), (killed, 3)):
        for _ in range(count):
            step()
    resumed.load(copy.deepcopy(killed.state()))
    for _ in range(3):
        resumed()
    for one, other in zip(whole.network.parameters(), resumed.network.parameters(), strict=True):
        assert torch.equal(one, other)
