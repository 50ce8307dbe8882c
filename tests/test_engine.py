"""The fast path of the GPU computes what plain PyTorch does. Most tests are skipped without a GPU."""

import gc
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from conftest import compose_run, make_step
from test_training import partly_trained
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters

from rbue import methods, metrics, networks, noise
from rbue.evaluation import evaluator
from rbue.training import capture, loop
from rbue.training.checkpoints import load_trained

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(autouse=True)
def full_precision(monkeypatch):
    """TensorFloat32 rounds to 10 bits, so two correct trainings would diverge within a few steps."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def digits_step(data, *settings, device="cuda"):
    return make_step(compose_run("dataset=digits", "arch=small", "protocol=demo", *settings), data, device)


def losses(advance, steps, count=12):
    taken = []
    for _ in range(count):
        for step in steps:
            step.sums.zero_()
        advance()
        taken.append([step.sums[0].item() for step in steps])
    return torch.tensor(taken)


def gradients(step):
    index, keys, drawn = step.compiled_prepare(step.count)
    with noise.using(step.noise, drawn):
        return torch.autograd.grad(step.compiled_objective(index, keys, step.count)[0], step.parameters)


@gpu
@pytest.mark.parametrize("method", ["single", "mc_dropout", "svi", "ivon", "dropreLU", "rrelu"])
def test_compiled_gradients_are_the_eager_ones(method, digits):
    plain, fast = (digits_step(digits, f"method={method}", "precision=fp32") for _ in range(2))
    fast.compiled_objective = torch.compile(fast.objective, dynamic=False, fullgraph=True)
    for exact, ours in zip(gradients(plain), gradients(fast), strict=True):
        assert (exact - ours).norm() <= 0.02 * exact.norm() + 1e-6  # a rounded zero may cross a kink


@gpu
@pytest.mark.parametrize("network", [networks.ARCHS["small"], partly_trained])
@pytest.mark.parametrize("method", ["single", "mc_dropout", "svi", "ivon", "dropreLU", "rrelu"])
def test_the_captured_loss_curve_follows_the_eager_one(method, network, digits, monkeypatch):
    monkeypatch.setitem(networks.ARCHS, "small", network)
    plain, fast = (digits_step(digits, f"method={method}", "precision=fp32") for _ in range(2))
    advance, how = capture.accelerate([fast], torch.device("cuda"))
    assert how == "captured"
    assert torch.allclose(losses(plain, [plain]), losses(advance, [fast]), atol=0.02)


@pytest.mark.parametrize("method", ["single", "svi", "ivon"])
def test_compiled_gradients_of_a_partly_frozen_network_are_the_eager_ones(method, digits, monkeypatch):
    monkeypatch.setitem(networks.ARCHS, "small", partly_trained)
    step = digits_step(digits, f"method={method}", device="cpu")
    exact = gradients(step)
    step.compiled_objective = torch.compile(step.objective, backend="aot_eager", fullgraph=True)
    assert all(map(torch.equal, gradients(step), exact))


@gpu
def test_a_packed_run_equals_the_same_run_alone(digits):
    settings = [("seed=0",), ("seed=1",), ("method=dropreLU",)]
    alone = [digits_step(digits, "precision=fp32", *s) for s in settings]
    packed = [digits_step(digits, "precision=fp32", *s) for s in settings]
    advance, _ = capture.accelerate(packed, torch.device("cuda"))
    together = losses(advance, packed)
    for k, step in enumerate(alone):
        single, _ = capture.accelerate([step], torch.device("cuda"))
        assert torch.allclose(losses(single, [step])[:, 0], together[:, k], atol=0.02)


@gpu
def test_a_captured_step_outlives_whoever_made_it(digits):
    advance, _ = capture.accelerate([digits_step(digits, "precision=fp32")], torch.device("cuda"))
    gc.collect()
    torch.cuda.empty_cache()  # frees memory without an owner
    plain, step = digits_step(digits, "precision=fp32"), advance.__self__.steps[0]
    assert torch.allclose(losses(plain, [plain]), losses(advance, [step]), atol=0.02)
    assert step.count == plain.count == 12


@gpu
def test_timing_a_packed_network_alone_leaves_its_training_where_it_was(digits):
    steps = [digits_step(digits, f"seed={seed}") for seed in range(2)]
    advance, _ = capture.accelerate(steps, torch.device("cuda"))
    advance()
    before = [t.detach().clone() for t in steps[0].tensors()]  # an autograd history would tie it to this stream
    assert 0 < capture.seconds_alone(steps[0], torch.device("cuda")) < 1
    assert all(torch.equal(a, b) for a, b in zip(before, steps[0].tensors(), strict=True))


@gpu
def test_the_memory_of_a_training_is_the_same_alone_and_in_a_pack(digits, digits_run):
    device = torch.device("cuda")
    ballast = torch.empty(2**30, dtype=torch.uint8, device=device)  # what an earlier evaluation may leave there
    runs = [digits_run("arch=resnet18", "method=svi", "epochs=1", "precision=bf16", f"seed={k}") for k in range(5)]
    for pack in (runs[:1], runs[1:]):
        assert not loop.fit(pack, digits, device)
    records = [load_trained(run, digits, device)[1] for run in runs]
    sizes, weights = [r["alone_peak_memory_bytes"] for r in records], 4 * records[0]["parameters"]
    assert 2 * weights < min(sizes) and max(sizes) < 2 * weights + ballast.nbytes / 2
    assert max(sizes) - min(sizes) < weights  # the work spaces of libraries differ


def test_timing_a_step_leaves_out_the_seconds_of_warming_up(digits, monkeypatch):
    step, takes, now = digits_step(digits, device="cpu"), iter([9, 3, 1, 1, 7, 1, 2]), [0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def replay():
        step()
        now[0] += next(takes)

    step()
    before = [t.detach().clone() for t in step.tensors()]
    assert capture.seconds_alone(step, torch.device("cpu"), replay, replays=1, warm_up=10) == 1
    assert not list(takes)
    assert all(torch.equal(a, b) for a, b in zip(before, step.tensors(), strict=True))


@gpu
@pytest.mark.parametrize("method", ["single", "mc_dropout", "svi", "ivon", "dropreLU", "rrelu"])
def test_captured_predictions_are_the_eager_ones(method, digits):
    device, settings = torch.device("cuda"), ("dataset=digits", "arch=small", "protocol=demo", "samples=20")
    run = compose_run(*settings, f"method={method}")
    plain = compose_run(*settings, f"method={method}", "precision=fp32", "engine=eager")
    network = methods.build(run, 10, 1437).to(device).eval()
    fast, cost = evaluator.Evaluator(run, [network], digits, device)(digits.test_images)
    slow, _ = evaluator.Evaluator(plain, [network], digits, device)(digits.test_images)
    assert cost["engine"] == "captured"
    assert torch.allclose(fast.mean, slow.mean, atol=5e-3)


@gpu
def test_captured_members_of_an_ensemble_keep_apart(digits):
    """They share memory, since they take turns."""
    device, settings = torch.device("cuda"), ("dataset=digits", "arch=small", "protocol=demo")
    members = [methods.build(compose_run(*settings, f"seed={seed}"), 10, 1437).to(device).eval() for seed in range(3)]
    fast, slow = (
        evaluator.Evaluator(compose_run(*settings, *how), members, digits, device)(digits.test_images)
        for how in (("eval_batch=100",), ("precision=fp32", "engine=eager"))
    )
    assert fast[1]["engine"] == "captured"
    for kind in ("first", "mean"):
        assert torch.allclose(getattr(fast[0], kind), getattr(slow[0], kind), atol=5e-3)


@gpu
@pytest.mark.parametrize("method", ["mc_dropout", "dropreLU", "rrelu"])
def test_a_trained_network_scores_on_the_fast_path_what_it_scores_in_fp32(method, digits):
    device, settings = torch.device("cuda"), ("dataset=digits", "arch=small", "protocol=demo", "samples=100")
    step = digits_step(digits, f"method={method}")
    for _ in range(100):
        step()
    fast, plain = (
        evaluator.Evaluator(compose_run(*settings, f"method={method}", *how), [step.network], digits, device)
        for how in ((), ("precision=fp32", "engine=eager"))
    )
    ours, exact = (metrics.score(test(digits.test_images)[0].mean, digits.test_labels) for test in (fast, plain))
    assert ours["accuracy"] == pytest.approx(exact["accuracy"], abs=0.003)  # one image of 360
    assert ours["ece"] == pytest.approx(exact["ece"], abs=0.003)


@gpu
def test_a_set_larger_than_the_test_set_is_predicted_to_its_end(digits):
    device = torch.device("cuda")
    run = compose_run("dataset=digits", "arch=small", "protocol=demo", "samples=5", "method=dropreLU")
    few = replace(digits, test_images=digits.test_images[:70], test_labels=digits.test_labels[:70])
    network = methods.build(run, 10, 1437).to(device).eval()
    whole, split = (evaluator.Evaluator(run, [network], data, device)(digits.test_images)[0] for data in (digits, few))
    assert len(split.mean) == len(digits.test_images) and torch.allclose(split.mean, whole.mean, atol=5e-3)


def test_without_a_gpu_steps_run_one_after_the_other():
    called = []
    advance, how = capture.accelerate([lambda: called.append(1), lambda: called.append(2)], torch.device("cpu"))
    advance()
    assert how == "eager" and called == [1, 2]


SEARCHES = {
    "q": ["method=dropreLU q=0.4 seed=0", "method=dropreLU q=0.6 seed=1"],
    "p": ["method=mc_dropout p=0.2", "method=mc_dropout p=0.5"],
    "beta": ["method=svi beta=1 sigma=0.003", "method=svi beta=0.1 sigma=0.01 tempered_prior=true kl_warmup=0.5"],
    "optimizer": ["method=svi rho_optimizer=sgd", "method=svi rho_optimizer=adam"],
}


@pytest.mark.parametrize("lines", SEARCHES.values(), ids=SEARCHES)
def test_a_search_over_these_settings_compiles_once(digits, lines):
    steps = [digits_step(digits, *line.split(), device="cpu") for line in lines]
    capture.share_code([step.network for step in steps])
    exact, counter = [gradients(step) for step in steps], CompileCounter()
    for step, own in zip(steps, exact, strict=True):
        step.compiled_objective = torch.compile(step.objective, backend=counter, fullgraph=True)
        assert all(map(torch.equal, gradients(step), own))
    assert counter.frame_count == 1


def test_what_the_compiler_is_told_is_known_to_this_torch(digits, monkeypatch):
    """If a new version drops a name, every GPU would lose its compiled step, with only one line in the log."""
    monkeypatch.setattr(capture, "capture_graph", lambda steps, device: SimpleNamespace(replay="compiled"))
    assert capture.capture([digits_step(digits, device="cpu")], torch.device("cpu")) == "compiled"


@gpu
def test_a_second_start_finds_random_layers_compiled(digits, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    for _ in range(2):
        counters.clear()
        capture.capture([digits_step(digits, "method=dropreLU")], torch.device("cuda"))
    found = counters["aot_autograd"]
    assert found["autograd_cache_hit"] == 2 and found["autograd_cache_bypass"] == found["autograd_cache_miss"] == 0


def test_a_step_past_the_last_keeps_its_learning_rate(digits):
    """Warm-up and timing do so, also for a training that resumes just before its end."""
    step = digits_step(digits, "epochs=1", device="cpu")
    step.count.fill_(step.total + 2)
    step()
    assert step.lr == step.rates[-1]


def test_a_failed_capture_leaves_the_training_where_it_was(digits):
    step = digits_step(digits, "method=svi", device="cpu")
    step()
    before = [t.clone() for t in step.tensors()]
    with pytest.raises(RuntimeError, match="no graph"), capture.restoring([step]):
        step()
        raise RuntimeError("no graph")
    assert all(torch.equal(a, b) for a, b in zip(before, step.tensors(), strict=True))
