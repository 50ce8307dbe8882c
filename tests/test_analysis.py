"""The analyses of a result: each number against its definition, and all of them in one run's file."""

import base64
import dataclasses
import io
import json
from itertools import product

import numpy as np
import pytest
import torch
from conftest import compose_run
from PIL import Image
from torchvision.models import ResNet18_Weights

import rbue
from rbue import methods, metrics, noise, surgery
from rbue.data import corruptions, load_ood, sources
from rbue.errors import UserError
from rbue.evaluation import analysis, evaluator
from rbue.layers import Dropout, DropReLU, LearnedGaussian, RReLU
from rbue.main import experiment
from rbue.networks import build
from rbue.report import records
from rbue.runs import devices, predictions, results

CPU = torch.device("cpu")
X = torch.randn(7, 3, 32, 32, generator=torch.Generator().manual_seed(0))
NETWORKS = {
    "dropreLU": lambda net: rbue.randomize(net, q=0.7),
    "rrelu": lambda net: rbue.randomize(net, RReLU()),
    "dropout": lambda net: surgery.add_dropout(net, Dropout(0.5), "relu"),
    "svi": lambda net: surgery.bayes(net, LearnedGaussian, sigma=0.05, prior=1.0),
}


def stochastic(kind, arch="small"):
    torch.manual_seed(0)
    net = build(arch, 10)
    net.train()(X)  # gives running statistics that are not the identity
    return NETWORKS[kind](net).eval()


# --- the deterministic network ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [DropReLU(0.7), RReLU(), Dropout(0.3)], ids=lambda m: type(m).__name__)
def test_a_layers_twin_is_the_mean_of_many_draws(layer):
    x = torch.linspace(-2, 2, 21)[None]
    drawn = surgery.wire(layer)(x.expand(40000, -1))
    assert torch.allclose(layer.deterministic()(x), drawn.mean(0, keepdim=True), atol=0.03)


def test_twins_have_the_mean_slope():
    minus = torch.tensor([-1.0])
    assert DropReLU(0.9).deterministic()(minus).item() == pytest.approx(-0.1)
    assert RReLU().deterministic()(minus).item() == pytest.approx(-11 / 48)


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_networks_twin_is_deterministic_and_the_network_stays_as_it_was(kind):
    net = stochastic(kind)
    before = rbue.predict(net, X, samples=3, keep_samples=True).samples
    twin = surgery.deterministic(net)
    assert noise.of(twin).sites == 0
    assert rbue.predict(twin, X, keep_samples=True).samples.shape[0] == 1
    assert torch.equal(rbue.predict(net, X, samples=3, keep_samples=True).samples, before)


@pytest.mark.parametrize("kind", ["dropout", "svi"])
def test_the_twin_of_dropout_and_of_svi_is_the_plain_network(kind):
    torch.manual_seed(0)
    plain = build("small", 10)
    twin = surgery.deterministic(NETWORKS[kind](plain).eval())
    assert torch.equal(twin(X), plain.eval()(X))


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_twin_folds_like_any_network(kind):
    twin = surgery.deterministic(stochastic(kind, "resnet18"))
    with torch.no_grad():
        assert torch.allclose(evaluator.compact(twin, torch.float32)(X), twin(X), atol=1e-3, rtol=1e-3)


# --- variance ---------------------------------------------------------------------------------------------------------


def enumerated(keep, choices):
    """Exact variance of Σ choices[bit][k] over independent bits that are 1 with probability `keep`."""
    outcomes = list(product((0, 1), repeat=len(choices[0])))
    weights = [np.prod([keep if bit else 1 - keep for bit in bits]) for bits in outcomes]
    sums = [sum(choices[bit][k] for k, bit in enumerate(bits)) for bits in outcomes]
    mean = np.dot(weights, sums)
    return np.dot(weights, (np.array(sums) - mean) ** 2)


@pytest.mark.parametrize("q", [0.5, 0.8, 0.95])
def test_variances_are_those_of_all_masks_and_the_papers_is_not(q):
    x = [-2.0, -1.0, -0.5, 0.25, 0.5, 1.5, 3.0, -0.1]
    rectified = [max(value, 0) for value in x]
    found = analysis.variances(q, torch.tensor([x], dtype=torch.float64))
    assert found["closed"] == pytest.approx(enumerated(q, [x, rectified]))
    assert found["dropout"] == pytest.approx(enumerated(1 - q, [rectified, [0] * len(x)]))
    epsilon = enumerated(q, [[0] * len(x), rectified])
    assert found["paper"] == pytest.approx(q * (1 - q) * sum(value**2 for value in x) + epsilon)
    assert found["elements"] == 8


def test_each_layer_of_a_network_is_measured_on_the_inputs_it_gets(digits):
    run = compose_run("dataset=digits", "arch=small", "method=dropreLU", "q=0.7")
    net = stochastic("dropreLU")
    rows = analysis.variance(run, net, digits, CPU)
    assert [row["name"] for row in rows] == ["droprelu_0", "droprelu_1", "droprelu_2"]
    assert [row["elements"] for row in rows] == [16 * 16 * 16, 32 * 8 * 8, 32 * 4 * 4]
    images = (digits.test_images[: analysis.IMAGES] / 255 - digits.mean.view(3, 1, 1)) / digits.std.view(3, 1, 1)
    first = net.get_submodule("1")(net.get_submodule("0")(images)).double()
    expected = 0.7 * 0.3 * first.clamp(max=0).square().flatten(1).sum(1).mean().item()
    assert rows[0]["closed"] == pytest.approx(expected, rel=1e-4)
    assert all(abs(row["monte_carlo"] / row["closed"] - 1) < 0.1 < row["paper"] / row["closed"] - 1 for row in rows)
    assert not any(module._forward_pre_hooks for module in net.modules())


def test_a_later_layer_is_measured_in_sample_zero_of_testing(digits, monkeypatch):
    monkeypatch.setattr(analysis, "DRAWS", 2)
    run = compose_run("dataset=digits", "arch=small", "method=dropreLU", "q=0.7", "seed=4")
    net, inputs = stochastic("dropreLU"), []
    rows = analysis.variance(run, net, digits, CPU)
    images = (digits.test_images[: analysis.IMAGES] / 255 - digits.mean.view(3, 1, 1)) / digits.std.view(3, 1, 1)
    net.get_submodule("droprelu_2").register_forward_pre_hook(lambda _, given: inputs.extend(given))
    with torch.no_grad(), noise.counted(net, 4 + (2 << 32), 0, torch.arange(len(images))):
        net(images)
    assert rows[2]["closed"] == pytest.approx(analysis.variances(0.7, *inputs)["closed"], rel=1e-4)


class LastFirst(torch.nn.Module):
    """A network that lists its layers in another order than it calls them."""

    def __init__(self):
        super().__init__()
        self.late, self.early = DropReLU(0.5), DropReLU(0.7)

    def forward(self, x):
        return self.late(self.early(x)).flatten(1)


def test_layers_are_counted_in_the_order_of_execution(digits):
    run = compose_run("dataset=digits", "arch=small", "method=dropreLU", "q=0.7")
    rows = analysis.variance(run, surgery.wire(LastFirst()), digits, CPU)
    assert [(row["site"], row["name"]) for row in rows] == [(0, "early"), (1, "late")]


def test_the_size_of_a_pass_does_not_change_the_variance(digits, monkeypatch):
    run = compose_run("dataset=digits", "arch=small", "method=dropreLU", "q=0.7")
    net, found = stochastic("dropreLU"), []
    for elements in (2**18, 2**25):
        monkeypatch.setattr(analysis, "AT_ONCE", elements)
        found.append([row["monte_carlo"] for row in analysis.variance(run, net, digits, CPU)])
    assert found[0] == pytest.approx(found[1], rel=1e-9)


def test_networks_without_droprelu_have_no_such_variance(digits):
    run = compose_run("dataset=digits", "arch=small")
    assert analysis.variance(run, stochastic("rrelu"), digits, CPU) is None


# --- OOD images -------------------------------------------------------------------------------------------------------


def test_a_dataset_that_is_not_on_disk_is_not_downloaded(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(sources, "fetch", lambda *_: pytest.fail("this would download"))
    with pytest.raises(UserError, match="make data DATASET=cifar100 fetches it"):
        load_ood("cifar10", None, tmp_path)
    run = compose_run("dataset=cifar10", f"data_dir={tmp_path}")
    assert analysis.evaluate_foreign(run, None, None) is None and analysis.ood(run, None, None) is None
    assert "no images out of distribution" in caplog.text and not list(tmp_path.iterdir())


def test_corruptions_take_turns_and_frost_has_none(digits):
    images = digits.test_images[:40]
    mixed = load_ood("digits", dataclasses.replace(digits, test_images=images), "nowhere")
    types = [name for name in corruptions.TYPES if name != "frost"]
    for index in (0, 7, 25, 39):
        name = types[index % 18]
        alone = corruptions.corrupt(images[index : index + 1], name, 5, torch.tensor([index]))
        assert torch.equal(mixed[index], alone[0])


def test_auroc_compares_the_entropies_of_the_two_sets(digits_run, digits):
    run = digits_run("method=dropreLU", "samples=2")
    test = evaluator.Evaluator(run, [methods.build(run, 10, 1437).eval()], digits, CPU)
    certain = torch.eye(10)[digits.test_labels]
    evaluated = evaluator.Evaluated(certain, torch.zeros(360), certain[None], {})
    found = analysis.ood(run, evaluated, analysis.evaluate_foreign(run, test, digits))
    assert (found["dataset"], found["auroc"], found["auroc_confidence"], found["images"]) == ("digits_c", 1, 1, 360)
    assert 0 < found["entropy"] < np.log(10)


def evaluated_samples(images, samples=3, sharpness=3.0, seed=0):
    """Predictions of random samples. Their probabilities are multiples of 1/8, so that scores have ties."""
    logits = sharpness * torch.randn(samples, images, 3, generator=torch.Generator().manual_seed(seed))
    eighths = (8 * logits.softmax(-1)).floor()
    probs = torch.cat([eighths[..., :2], 8 - eighths[..., :2].sum(-1, keepdim=True)], -1) / 8
    return evaluator.Evaluated(probs.mean(0), metrics.entropy(probs.double()).mean(0), probs, {})


def test_the_auroc_of_each_score_is_that_of_a_loop_over_pairs_of_images(digits_run):
    inside, outside = evaluated_samples(60), evaluated_samples(40, sharpness=1.0, seed=1)
    found = analysis.ood(digits_run(), inside, outside)

    def expected(score):
        pairs = [*product(score(inside).tolist(), score(outside).tolist())]
        assert any(a == b for a, b in pairs)
        return sum((b > a) + (b == a) / 2 for a, b in pairs) / len(pairs)

    def entropy(each):
        return metrics.entropy(each.mean.double())

    assert found["auroc"] == pytest.approx(expected(entropy), abs=1e-12)
    assert found["auroc_confidence"] == pytest.approx(expected(lambda each: 1 - each.mean.max(1).values), abs=1e-12)
    mutual = expected(lambda each: (entropy(each) - metrics.entropy(each.first.double()).mean(0)).clamp_min(0))
    assert found["auroc_mutual_information"] == pytest.approx(mutual, abs=1e-12)


def test_confidence_is_the_largest_mean_probability_of_test_images_and_of_ood_images():
    inside, outside = evaluated_samples(60), evaluated_samples(40, seed=1)
    kept = analysis.predictions(inside, torch.zeros(60, dtype=torch.long), outside)
    for each, confidence in ((inside, kept.confidence), (outside, kept.foreign_confidence)):
        assert confidence.tolist() == [max(row) for row in each.first.double().mean(0).float().tolist()]
    assert kept.foreign_sample_entropy.tolist() == outside.sample_entropy.tolist()


def test_equal_samples_have_no_mutual_information_and_others_never_a_negative_one(digits_run):
    probs = evaluated_samples(60).first
    for samples in (probs, probs[:1].expand(3, -1, -1)):
        mean, of_samples = metrics.entropy(samples.mean(0)), metrics.entropy(samples).mean(0)
        mutual = metrics.mutual_information(mean, of_samples)
        assert (mutual >= 0).all() and (mutual.max() > 0.1 if samples is probs else mutual.max() < 1e-6)
    single = evaluator.Evaluated(probs[0], metrics.entropy(probs[0]), probs[:1], {})
    assert analysis.ood(digits_run(), single, single)["auroc_mutual_information"] is None


# --- the posterior ----------------------------------------------------------------------------------------------------


def test_a_posterior_is_described_by_the_quantiles_of_its_deviations():
    network = surgery.bayes(torch.nn.Sequential(torch.nn.Linear(100, 1)), LearnedGaussian, sigma=0.02, prior=1.0)
    _, site = surgery.posteriors(network)[0]
    sigma = torch.linspace(0.1, 1.1, 101)[:100]
    site.rho.data.copy_(sigma.expm1().log()[None])
    weight, bias = analysis.posterior(network)
    assert (weight["name"], weight["elements"], weight["start"]) == ("0.weight", 100, 0.02)
    assert weight["sigma"] == pytest.approx([0.1 + 0.99 * share for share in (0.05, 0.25, 0.5, 0.75, 0.95)])
    assert bias["name"] == "0.bias" and bias["sigma"] == pytest.approx([0.02] * 5)


# --- the example ------------------------------------------------------------------------------------------------------


def test_the_example_is_the_most_uncertain_image_that_is_predicted_rightly(digits, monkeypatch):
    run = compose_run("dataset=digits", "arch=small")
    probs = (3 * torch.randn(4, 360, 10, generator=torch.Generator().manual_seed(0))).softmax(-1)
    mean = probs.mean(0)
    evaluated = evaluator.Evaluated(mean, metrics.entropy(probs).mean(0), probs, {})
    shown = analysis.example(run, evaluated, digits)
    index = shown["index"]
    entropy, right = metrics.entropy(mean.double()), mean.argmax(1) == digits.test_labels
    assert right[index] and entropy[index] == entropy[right].max() == shown["entropy"]
    assert shown["label"] == str(digits.test_labels[index].item()) and shown["classes"] == list("0123456789")
    assert torch.equal(torch.tensor(shown["samples"]), probs[:, index])
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(shown["png"]))))
    assert np.array_equal(pixels, digits.test_images[index].permute(1, 2, 0))
    monkeypatch.setitem(analysis.NOT_SHOWN, "digits", [index, 10_000])
    other = analysis.example(run, evaluated, digits)
    assert other["entropy"] == entropy[right].sort().values[-2] < shown["entropy"]


def test_there_is_no_example_where_nothing_is_right(digits):
    wrong, run = torch.eye(10)[(digits.test_labels + 1) % 10], compose_run("dataset=digits", "arch=small")
    assert analysis.example(run, evaluator.Evaluated(wrong, metrics.entropy(wrong), wrong[None], {}), digits) is None


def test_every_class_has_one_name():
    for dataset, names in sources.CLASSES.items():
        assert len(set(names)) == sources.DATASETS[dataset].classes
        assert dataset != "cifar100" or list(names) == sorted(names)  # its official order is alphabetical


def test_the_classes_of_tinyimagenet_are_named_in_the_order_of_imagenets():
    known = ResNet18_Weights.IMAGENET1K_V1.meta["categories"]  # in the order of the WordNet ids, as are our labels
    places = [known.index(name.replace("_", " ")) for name in sources.CLASSES["tinyimagenet"]]
    assert places == sorted(places) and places[0] == known.index("goldfish")


# --- one run ----------------------------------------------------------------------------------------------------------

KEYS = {"reliability", "rejection", "temperature", "ood", "twin", "variance", "posterior", "example"}


@pytest.mark.parametrize(
    ("method", "absent"),
    [
        ("method=single", {"twin", "variance", "posterior"}),
        ("method=dropreLU", {"posterior"}),
        ("method=svi", {"variance"}),
        ("method=mc_dropout", {"variance", "posterior"}),
        ("method=deep_ensemble members=2", {"twin", "variance", "posterior"}),
    ],
)
def test_a_runs_file_has_every_number(method, absent, digits_run, few_digits, monkeypatch):
    monkeypatch.setattr(sources, "load", lambda *_: few_digits)
    run = digits_run("epochs=1", "samples=3", *method.split())
    experiment(run)
    text = (results.folder(run) / "result.json").read_text()
    written = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert {key for key in KEYS if written[key] is None} == absent
    several = run.method != "single"
    assert set(written["diversity"] or {}) == ({"jsd", "dis", "intervals"} if several else set())
    assert sum(written["reliability"]["count"]) == 360
    assert written["rejection"]["accuracy"][0] == pytest.approx(written["metrics"]["accuracy"])
    assert written["images"] == 360 and len(written["trainings"][0]["curve"]["loss"]) == 1
    kept = results.find(run).predictions
    assert (kept.predicted == kept.label).mean() == pytest.approx(written["metrics"]["accuracy"])
    assert kept.entropy.mean() == pytest.approx(written["metrics"]["entropy"], rel=1e-3)
    assert kept.foreign_entropy.mean() == pytest.approx(written["ood"]["entropy"], rel=1e-3)
    aurocs = [written["ood"][f"auroc{score}"] for score in ("", "_confidence", "_mutual_information")]
    assert [auroc is not None for auroc in aurocs] == [True, True, several]
    assert predictions.auroc(-kept.confidence, -kept.foreign_confidence) == pytest.approx(aurocs[1], abs=5e-3)
    sides = (kept.entropy, kept.sample_entropy), (kept.foreign_entropy, kept.foreign_sample_entropy)
    for mean, of_samples in sides:
        assert (mean >= of_samples * 0.998).all()  # up to rounding, mutual information is not negative
        assert several or mean == pytest.approx(of_samples, rel=2e-3, abs=1e-6)


@pytest.mark.parametrize("per_gpu", [1, 3])
def test_processes_that_share_a_gpu_store_no_times_to_compare(per_gpu, digits_run, few_digits, monkeypatch):
    monkeypatch.setattr(sources, "load", lambda *_: few_digits)
    gpu, processes_on = torch.device("cuda"), devices.processes_on
    assert [processes_on(device, per_gpu) for device in (gpu, CPU)] == [per_gpu, 1]
    assert processes_on(gpu, None) == 1
    monkeypatch.setattr(devices, "processes_on", lambda _, per_gpu: processes_on(gpu, per_gpu))
    result = experiment(digits_run("epochs=1", "samples=3", "method=dropreLU", f"per_gpu={per_gpu}"))
    times = result.test_ms_per_image, result.seconds.alone, result.twin.get("ms_per_image")
    assert [time is None for time in times] == [per_gpu > 1] * 3
    assert records.record(result)["shared"] == (per_gpu > 1)


def test_under_corruption_nothing_is_said_twice(digits_run):
    assert analysis.report(digits_run("dataset=digits_c"), None, None, None, None) == ({}, None)
