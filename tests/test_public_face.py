"""What a user of the library sees: `import rbue`, predictions of tensors and loaders, docs and examples."""

import gc
import linecache
import re
import tomllib
import weakref
from itertools import product

import pytest
import torch
from commands import call, start
from conftest import ROOT, refused
from PIL import Image
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset
from torchvision.ops import StochasticDepth

import rbue
from rbue import noise
from rbue.sampling import inputs
from rbue.sampling.prediction import summarise

X = torch.randn(11, 6, generator=torch.Generator().manual_seed(0))
DATASET = TensorDataset(X, torch.zeros(11))


def network(device="cpu"):
    torch.manual_seed(0)
    return rbue.randomize(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5)).to(device), q=0.6)


def same(one, other):
    names = ("mean", "entropy", "mutual_information")
    return all(torch.allclose(getattr(one, name), getattr(other, name), atol=1e-5) for name in names)


# --- the package ------------------------------------------------------------------------------------------------------


def test_importing_and_listing_the_library_imports_no_torch():
    done = start("-c", "import rbue, sys; print(rbue.__version__, dir(rbue), rbue.UserError, 'torch' in sys.modules)")
    assert done.stdout.startswith(rbue.__version__) and done.stdout.endswith("False\n"), done.stderr


def test_every_public_name_is_there_and_no_other():
    names = {}
    exec("from rbue import *", names)
    assert set(rbue.__all__) <= set(dir(rbue)) and set(rbue.__all__) <= set(names)

    with pytest.raises(AttributeError, match="'rbue' has no attribute 'randomise'"):
        rbue.randomise  # noqa: B018


def test_without_noise_a_network_gives_the_mean_of_its_random_layers():
    random = network()
    first, last = random.get_submodule("0"), random.get_submodule("2")
    plain = rbue.deterministic(random).eval()
    torch.testing.assert_close(plain(X), last(F.leaky_relu(first(X), 0.4)))  # 1 - q of a negative input stays
    assert rbue.predict(random, X, samples=2).mutual_information.max() > 0  # the original keeps its noise
    assert "the network is a str: pass a torch.nn.Module" in refused(rbue.deterministic, "network.pt")
    parallel = nn.parallel.DistributedDataParallel.__new__(nn.parallel.DistributedDataParallel)
    assert "pass its .module" in refused(rbue.deterministic, parallel)


def test_the_version_is_written_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"] and "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"]["attr"] == "rbue.__version__"
    literal = re.search(r'^__version__ = "(.+?)"', (ROOT / "rbue/__init__.py").read_text(), re.MULTILINE)
    assert literal[1] == rbue.__version__  # a literal is read without importing the package


# --- what a prediction says -------------------------------------------------------------------------------------------


def test_mean_entropy_and_mutual_information_are_those_of_the_samples():
    found = rbue.predict(network(), X, samples=9, batch=4, keep_samples=True)
    mean = found.samples.mean(0)
    entropy, of_samples = (torch.special.entr(p).sum(-1) for p in (mean, found.samples))
    assert found.samples.shape == (9, 11, 5) and torch.allclose(found.mean, mean, atol=1e-6)
    assert torch.allclose(found.entropy, entropy, atol=1e-6)
    assert torch.allclose(found.mutual_information, entropy - of_samples.mean(0), atol=1e-6)
    assert (found.mutual_information > 1e-4).all()
    assert same(found, rbue.predict(network(), X, samples=9))


def test_a_mutual_information_below_the_rounding_of_float32_is_right():
    e = 1e-5
    samples = torch.tensor([[[0.5 + e, 0.5 - e]], [[0.5 - e, 0.5 + e]]], dtype=torch.float64)
    (_, entropy, of_samples, mutual), _ = summarise(iter(samples.split(1)), False, torch.device("cpu"))
    assert entropy == of_samples  # in float32, in which they are returned
    assert mutual.item() == pytest.approx(2 * e**2, rel=1e-3)  # ln 2 - H(0.5 + e), to the second order in e


def test_samples_that_were_not_kept_are_refused():
    found = rbue.predict(network(), X, samples=2)
    with pytest.raises(rbue.UserError, match=r"did not keep its samples: .+keep_samples=True"):
        found.samples  # noqa: B018
    assert not hasattr(found, "samples")


def test_a_network_without_noise_has_no_mutual_information():
    found = rbue.predict(nn.Linear(6, 5), X)
    assert (found.mutual_information == 0).all() and (found.entropy > 0).all()


def test_memory_does_not_grow_with_the_number_of_samples(monkeypatch):
    alive, most = [], []

    def watched(logits, *settings, **more):
        most.append(sum(reference() is not None for reference in alive))
        probs = torch.softmax(logits, *settings, **more)
        alive.append(weakref.ref(probs))
        return probs

    monkeypatch.setattr(torch.Tensor, "softmax", watched)
    rbue.predict(network(), X, samples=40, batch=11)
    assert len(most) == 40 + 4 and max(most) <= 2  # four passes over a few images compare them with the whole batch


def test_memory_does_not_grow_with_the_number_of_calls():
    random = network()
    rbue.predict(random, X, samples=2)
    stored = len(linecache.cache)  # torch.fx stores the code of every graph there, and never frees it
    rbue.predict(random, X, samples=3, seed=1)
    assert len(linecache.cache) == stored

    gone = weakref.ref(random)
    del random
    gc.collect()
    assert gone() is None  # what predict keeps does not keep the network


# --- what it predicts -------------------------------------------------------------------------------------------------


class Stream(IterableDataset):
    def __iter__(self):
        return iter(X.split(3))


BATCHES = {
    "a loader of images and labels": lambda: DataLoader(DATASET, batch_size=4),
    "a list of tensors": lambda: list(X.split(3)),
    "a generator of dicts": lambda: ({"labels": None, "images": x} for x in X.split(3)),
    "an iterable dataset": lambda: Stream(),
    "one large batch, and an empty one": lambda: [(X, None), (X[:0], None)],
}


@pytest.mark.parametrize("kind", BATCHES)
def test_batches_are_predicted_as_the_tensor_is(kind):
    assert same(rbue.predict(network(), BATCHES[kind](), samples=7, batch=5), rbue.predict(network(), X, samples=7))


@pytest.mark.parametrize("by_hand", [False, True], ids=["stacked", "one by one"])
def test_a_part_is_predicted_as_it_is_within_the_whole(by_hand):
    net, chosen = (nn.Sequential(network()) if by_hand else network()), [9, 2, 5]
    whole = rbue.predict(net, X, samples=7).mean[chosen]
    loader = DataLoader(Subset(DATASET, chosen), batch_size=2)
    numbered = [{"images": X[[k]], "index": [k]} for k in chosen]
    numbers = [chosen, torch.tensor(chosen), torch.tensor(chosen, dtype=torch.int32), torch.tensor(chosen).float()]
    for images, index in [*((X[chosen], each) for each in numbers), (loader, chosen), (numbered, None)]:
        assert torch.allclose(rbue.predict(net, images, samples=7, index=index).mean, whole, atol=1e-5)
    assert not torch.allclose(rbue.predict(net, X[chosen], samples=7).mean, whole, atol=1e-3)


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ([0, 1], "it has 2 for (4|11) images"),
        (range(12), "it has 12 for 11 images"),
        (torch.rand(11), "one integer per image"),
        ([-1] * 11, "at least 0"),
        ([[0]] * 11, "one integer per image"),
        ([True] * 11, "one integer per image"),
        ("eleven", "not a str"),
    ],
)
def test_an_index_that_numbers_no_images_is_refused(index, says):
    for images in (X, X.split(4)):
        with pytest.raises(rbue.UserError, match=says):
            rbue.predict(network(), images, samples=1, index=index)


def test_a_batch_with_too_few_numbers_of_its_own_is_refused():
    with pytest.raises(rbue.UserError, match="it has 1 for 4 images"):
        rbue.predict(network(), [{"images": X[:4], "index": [3]}], samples=1)


@pytest.mark.parametrize(
    ("images", "says"),
    [
        (DATASET, "put it into a torch.utils.data.DataLoader"),
        ({"images": X}, "images is a dict: it must be a tensor, a DataLoader"),
        (3, "images is a int"),
        ([{"pixels": X}], """a dict that has one under "images", but this one is a dict with 'pixels'"""),
        ([X.numpy()], "this one is a ndarray"),
        ([([X], 0)], "this one is a tuple"),
        ([], "images has no batch: pass at least one image, and a generator only once"),
        ([X[:0]], "images has no batch"),
        (iter(()), "images has no batch"),
        ((X, torch.zeros(len(X))), "of one batch with labels, pass the images alone"),
    ],
)
def test_what_holds_no_images_is_refused(images, says):
    with pytest.raises(rbue.UserError, match=says):
        rbue.predict(network(), images, samples=1)


def test_images_and_what_belongs_to_them_are_moved_to_the_networks_device():
    """The meta device, which computes shapes alone, stands for a GPU."""
    found = list(inputs.batches(X.split(6), None, {"mask": X}, 4, torch.device("meta")))
    assert [len(x) for x, _, _ in found] == [4, 2, 4, 1]
    assert {t.device.type for x, rows, own in found for t in (x, rows, own["mask"])} == {"meta"}
    assert inputs.device_of(network().to("meta")).type == "meta"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_network_on_a_gpu_predicts_images_from_anywhere():
    expected, nets = rbue.predict(network(), X, samples=7), (network().cuda(), network("cuda"))
    for net, images in product(nets, (X, X.cuda(), X.split(4), X.cuda().split(4))):
        found = rbue.predict(net, images, samples=7)
        home = images.device if torch.is_tensor(images) else torch.device("cpu")
        assert found.mean.device == home and torch.allclose(found.mean.cpu(), expected.mean, atol=1e-3)


# --- the network's own arguments --------------------------------------------------------------------------------------


class Scaled(nn.Module):
    """Arguments of every kind, before and behind the noise."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 16), nn.Linear(16, 5)

    def forward(self, x, before, behind=1.0, mask=None, twice=False):
        hidden = self.first(x if mask is None else x * mask)
        return self.last(F.relu(hidden * before) * behind) * (2 if twice else 1)


@pytest.mark.parametrize("traced", [True, False], ids=["stacked", "one by one"])
def test_keyword_arguments_reach_the_network_before_and_behind_the_noise(traced):
    torch.manual_seed(0)
    own = Scaled()
    net = rbue.randomize(own, q=1.0) if traced else own
    shared = torch.rand(16)  # not as many as images: all of them share it
    for given in (
        {"before": 2.0},
        {"before": torch.rand(11, 1), "behind": torch.rand(11, 1)},
        {"before": torch.tensor(3.0), "behind": shared},
        {"behind": torch.rand(11, 16), "before": shared},
    ):
        with torch.no_grad():
            expected = own(X, **given).softmax(1)
        found = rbue.predict(net, X, samples=3, batch=9, forward_kwargs=given)
        assert torch.allclose(found.mean, expected, atol=1e-5)


def test_a_network_that_takes_any_keyword_argument_gets_it():
    class Any(nn.Linear):
        def forward(self, x, **given):
            return super().forward(x) * given["scale"]

    own = Any(6, 5)
    found = rbue.predict(own, X, samples=1, forward_kwargs={"scale": 3.0})
    assert torch.allclose(found.mean, own(X, scale=3.0).softmax(1), atol=1e-6)


def test_a_keyword_argument_that_tracing_fixed_is_refused_with_a_way_out():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Scaled()

        def forward(self, x, mask):
            return self.inner(x, 1.0, mask=mask)

    net, mask = rbue.randomize(Scaled(), q=0.9), (torch.rand(11, 6) < 0.5).float()
    with pytest.raises(rbue.UserError, match=r"takes no keyword argument mask: .+ wrap your network in a module"):
        rbue.predict(net, X, forward_kwargs={"before": 1.0, "mask": mask})
    masked = rbue.randomize(Masked(), q=1.0)
    with torch.no_grad():
        expected = masked.inner.last(masked.inner.first(X * mask).relu()).softmax(1)
    assert torch.allclose(rbue.predict(masked, X, 2, forward_kwargs={"mask": mask}).mean, expected, atol=1e-5)


def test_a_tensor_argument_beside_batches_is_refused():
    with pytest.raises(rbue.UserError, match=r"has a tensor \(before\), but predict cannot assign its rows"):
        rbue.predict(rbue.randomize(Scaled(), q=0.9), X.split(4), forward_kwargs={"before": torch.rand(11, 1)})


# --- what is left behind ----------------------------------------------------------------------------------------------


class TrainedNorm(nn.Module):
    """A functional batch-norm, which tracing freezes in training mode: it changes its buffers in every pass."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(6, 5), nn.BatchNorm1d(5)

    def forward(self, x):
        return F.relu(F.batch_norm(self.layer(x), self.norm.running_mean, self.norm.running_var, training=True))


@pytest.mark.parametrize("fails", [False, True])
def test_modes_buffers_gradients_and_generators_are_as_they_were(fails):
    net = rbue.randomize(TrainedNorm(), q=0.5).train()
    net.norm.eval()
    net(X).sum().backward()

    def state():
        return [*net.state_dict().values(), net.layer.weight.grad, torch.get_rng_state()]

    before, modes = [t.clone() for t in state()], [m.training for m in net.modules()]
    if fails:
        with pytest.raises(rbue.UserError, match="this one is a str"):
            rbue.predict(net, [X, "no images"], samples=2)
    else:
        rbue.predict(net, X, samples=2)
    assert all(torch.equal(one, other) for one, other in zip(before, state(), strict=True))
    assert modes == [m.training for m in net.modules()] and torch.is_grad_enabled()


def test_a_buffer_that_forward_assigns_is_put_back():
    class Counting(nn.Linear):
        def __init__(self):
            super().__init__(6, 5)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls = self.calls + 1
            return super().forward(x)

    net = nn.Sequential(rbue.DropReLU(0.5), Counting())
    own = net[1].calls
    rbue.predict(net, X, samples=2)
    assert net[1].calls is own and own == 0


def test_a_buffer_that_forward_fills_as_a_cache_stays():
    class Cached(nn.Linear):
        def __init__(self):
            super().__init__(6, 5)
            self.size = None
            self.register_buffer("table", None, persistent=False)

        def forward(self, x):
            if self.size != x.shape[1]:
                self.size, self.table = x.shape[1], torch.linspace(0, 1, x.shape[1])
            return super().forward(x + self.table)

    net = nn.Sequential(rbue.DropReLU(0.5), Cached())
    assert same(rbue.predict(net, X, samples=2, batch=4), rbue.predict(net, X, samples=2))
    assert net(X).shape == (11, 5)


def test_a_single_image_and_a_batch_of_tokens_are_told_from_the_shape_that_is_named():
    net = rbue.randomize(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(-3), nn.Linear(144, 3)), q=0.5)
    found = refused(rbue.predict, net, torch.zeros(3, 8, 8), samples=2)
    assert found.endswith("images must come first (predict reads the shape (3, 8, 8) as 3 images of (8, 8))")


def test_an_error_of_a_traced_network_prints_no_traceback(capfd):
    class Product(nn.Linear):
        def forward(self, x):
            return x.relu() @ self.weight.T

    class Early(nn.Linear):
        def forward(self, x):
            return (x @ self.weight.T).relu()

    for samples, kind in product((1, 2), (Product, Early)):
        net = rbue.randomize(kind(6, 3), q=0.5)
        assert "the network fails on images of shape (4, 7)" in refused(rbue.predict, net, torch.zeros(4, 7), samples)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize(
    "images, why",
    [
        (torch.zeros(4, 1, 8, 8), r"\(4, 1, 8, 8\) and type float32: .*expected input.* to have 3 channels"),
        (torch.zeros(5, 8, 8), r"\(5, 8, 8\) and type float32: .*to have 3 channels, but got 5"),
        (torch.zeros(4, 3, 2, 2), r"\(4, 3, 2, 2\) and type float32: .*Kernel size can't be greater"),
        (torch.zeros(4, 3, 8, 8, dtype=torch.uint8), r"\(4, 3, 8, 8\) and type uint8: "),
        ([torch.zeros(4, 3, 8, 8), torch.zeros(2, 1, 8, 8)], r"\(2, 1, 8, 8\) and type float32: "),
    ],
)
def test_images_that_the_network_cannot_use_are_named(images, why, by_hand):
    parts = nn.Conv2d(3, 4, 3), rbue.DropReLU(0.5) if by_hand else nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    net = nn.Sequential(*parts, nn.Linear(4, 3))
    found = refused(rbue.predict, net if by_hand else rbue.randomize(net, q=0.5), images, samples=2)
    assert re.match(f"the network fails on images of shape {why}", found)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_samples_of_random_layers_that_torch_hides_are_refused():
    traced = torch.jit.trace(network(), X, check_trace=False)
    exported = torch.export.export(network(), (X,)).module()
    for origin, net in (("jit", traced), ("jit", nn.Sequential(traced)), ("export", exported)):
        assert f"pass the network as it was before torch.{origin}" in refused(rbue.predict, net, X, samples=2)
        assert f"pass the network as it was before torch.{origin}" in refused(rbue.deterministic, net)
    plain = nn.Linear(6, 5)
    found = rbue.predict(torch.jit.trace(plain, X), X, samples=1)
    assert torch.allclose(found.mean, plain(X).softmax(1))


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_memory_that_runs_out_is_not_blamed_on_the_images(error):
    class Large(nn.Linear):
        def forward(self, x):
            raise error

    with pytest.raises(type(error)) as found:
        rbue.predict(Large(6, 5), X, samples=1)
    assert found.value is error


def test_an_argument_that_the_network_needs_is_named():
    class Pair(nn.Linear):
        def forward(self, x, other):
            return super().forward(x + other).relu()

    network = rbue.randomize(Pair(8, 3), q=0.9)
    with pytest.raises(rbue.UserError, match=r"also needs other: pass it as in forward_kwargs=\{'other': \.\.\.\}"):
        rbue.predict(network, torch.randn(4, 8))


def test_logits_of_something_else_than_images_are_refused():
    class Crops(nn.Module):
        def forward(self, x):
            return x.relu().repeat(2, 1)

    for net in (rbue.randomize(Crops(), q=0.5), nn.Sequential(Crops(), rbue.DropReLU(1.0)), Crops()):
        with pytest.raises(rbue.UserError, match=r"rows of logits for [0-9]+ images"):
            rbue.predict(net, X, samples=2)


# --- docs and examples ------------------------------------------------------------------------------------------------


def run_documented(word, **names):
    """Run the code block of docs/library.md that contains a word, and return its names."""
    document = (ROOT / "docs" / "library.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", document, re.DOTALL) if word in block)
    names |= {"rbue": rbue, "torch": torch, "nn": nn}
    exec(code, names)
    return names


def test_the_documented_loader_runs_and_keeps_its_promise():
    names = run_documented("Subset", network=network(), dataset=DATASET)
    assert names["again"].samples.shape == (100, 10, 5)
    assert torch.allclose(names["again"].mean, names["first"].mean[names["chosen"]], atol=1e-5)


def test_the_documented_way_to_put_random_layers_in_by_hand_gives_each_call_its_own():
    shared = nn.ReLU()
    net = nn.Sequential(nn.Linear(6, 8), shared, nn.Sequential(nn.Linear(8, 8), shared), nn.Linear(8, 3))
    run_documented("set_submodule", network=net)
    assert len({m for m in net.modules() if isinstance(m, rbue.DropReLU)}) == 2
    assert (rbue.predict(net, X, samples=5).mutual_information > 0).all()


def test_the_documented_wrapper_makes_classes_of_one_logit():
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    found = rbue.predict(run_documented("class Classes", network=net)["network"], X, samples=5)
    assert torch.allclose(found.mean.sum(1), torch.ones(len(X))) and (found.mutual_information > 0).all()


def test_what_the_documents_say_of_names_and_order_is_so():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.ones(6)
            self.register_buffer("shift", torch.zeros(6), persistent=False)
            self.last, self.block = nn.Linear(6, 3), nn.Sequential(nn.Linear(6, 6), nn.ReLU())

        def forward(self, x):
            return self.last(self.block(x * self.scale + self.shift))

    own = Scaled()
    new = rbue.randomize(own, q=0.5)
    assert new.state_dict().keys() - own.state_dict().keys() == {"scale", "shift"}
    new.load_state_dict(own.state_dict(), strict=False)
    assert [name.split(".")[0] for name, _ in own.named_parameters()] == ["last", "last", "block", "block"]
    assert [name.split(".")[0] for name, _ in new.named_parameters()] == ["block", "block", "last", "last"]
    new.last = nn.Linear(6, 5)
    assert new(X).shape == (11, 5)


def test_the_example_with_a_training_loop_tells_wrong_from_right():
    done = call("examples/own_training_loop.py")
    accuracy, kept, right, wrong = (float(line.split()[-1]) for line in done.stdout.splitlines())
    assert 0.9 < accuracy < kept and right < wrong, done.stderr


def test_the_example_with_a_torchvision_network_reads_image_files(tmp_path):
    for name, shade in (("dark.png", 20), ("light.png", 200)):
        Image.new("RGB", (60, 40), (shade, shade, shade)).save(tmp_path / name)
    files = [str(tmp_path / name) for name in ("dark.png", "light.png")]
    done = start(
        "examples/pretrained_torchvision.py", "--random-weights", "--network=squeezenet1_1", "--samples=2", *files
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 8, done.stderr
    assert re.fullmatch(r".+light.png: entropy \d\.\d+ nats, mutual information \d\.\d+ nats", lines[4])
    assert all(re.fullmatch(r" +\d+\.\d%  .+", line) for line in lines[5:])


# --- networks that cannot be stacked ----------------------------------------------------------------------------------


class Meeting(nn.Module):
    """Images of a batch meet behind the noise."""

    def __init__(self, meet):
        super().__init__()
        self.first, self.last, self.meet = nn.Linear(8, 8), nn.Linear(8, 3), meet

    def forward(self, x):
        return self.last(self.meet(self.first(x).relu()))


MEETINGS = {
    "statistic": lambda h: h - h.mean(0),
    "numel": lambda h: h / h.numel(),
    "einsum": lambda h: torch.einsum("bi,ci->bc", h, h) @ h,
    "constant": lambda h: h * torch.ones(6, 8),
}


@pytest.mark.parametrize("kind", MEETINGS)
def test_a_network_whose_images_meet_is_sampled_one_pass_per_sample(kind):
    torch.manual_seed(0)
    network, x = rbue.randomize(Meeting(MEETINGS[kind]), q=0.5), torch.randn(6, 8)
    found = rbue.predict(network, x, samples=5, keep_samples=True).samples
    rows = torch.arange(6)
    for k in range(5):
        with noise.counted(network, noise.TEST, k, rows), torch.no_grad():
            torch.testing.assert_close(found[k], network(x).softmax(-1))


def test_a_layer_that_is_called_twice_draws_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.activation = rbue.DropReLU(0.5)

        def forward(self, x):
            return torch.stack([self.activation(x).sum(1), self.activation(x).sum(1)], 1)

    drawn = rbue.predict(Twice(), -torch.ones(2, 64), samples=20, keep_samples=True).samples
    assert (drawn[..., 0] != drawn[..., 1]).float().mean() > 0.8


@pytest.mark.parametrize("kind", ["traced", "by hand", "deterministic"])
def test_a_forward_that_overwrites_its_images_gets_them_unchanged_in_each_pass(kind):
    class Scaled(nn.Sequential):
        def forward(self, x):
            return super().forward(x.sub_(0.5).mul_(2))

    torch.manual_seed(0)
    activation = rbue.DropReLU(0.5) if kind == "by hand" else nn.ReLU()
    network, x = Scaled(nn.Linear(8, 8), activation, nn.Linear(8, 3)), torch.randn(6, 8)
    network = rbue.randomize(network, q=0.5) if kind == "traced" else network
    before, found = x.clone(), rbue.predict(network, x, samples=1 if kind == "deterministic" else 5, keep_samples=True)
    assert torch.equal(x, before)
    for k, drawn in enumerate(found.samples):
        with noise.counted(network, noise.TEST, k, torch.arange(6)), torch.no_grad():
            torch.testing.assert_close(drawn, network(before.clone()).softmax(-1))


@pytest.mark.parametrize("kind", ["traced", "by hand", "deterministic"])
def test_a_forward_that_overwrites_another_argument_gets_it_unchanged_in_each_pass(kind):
    class Scaled(nn.Sequential):
        def forward(self, x, scale):
            return super().forward(x) * scale.mul_(2)

    activation = rbue.DropReLU(1.0) if kind == "by hand" else nn.ReLU()
    network, x, scale = Scaled(nn.Linear(8, 8), activation, nn.Linear(8, 3)), torch.randn(6, 8), torch.ones(1)
    given = rbue.randomize(network, q=1.0) if kind == "traced" else network
    samples = 1 if kind == "deterministic" else 4
    found = rbue.predict(given, x, samples=samples, batch=6, forward_kwargs={"scale": scale}, keep_samples=True)
    assert scale.item() == 1
    for drawn in found.samples:
        torch.testing.assert_close(drawn, network(x, torch.ones(1)).softmax(-1), check_dtype=False)


@pytest.mark.parametrize("traced", [True, False])
def test_tensors_inside_of_an_argument_are_unchanged_in_each_pass(traced):
    class Shifted(nn.Sequential):
        def forward(self, x, extra):
            return super().forward(x) + extra["shift"].add_(1)

    own = Shifted(nn.Linear(6, 8), nn.ReLU() if traced else rbue.DropReLU(1.0), nn.Linear(8, 3))
    given, extra = rbue.randomize(own, q=1.0) if traced else own, {"shift": torch.zeros(3)}
    found = rbue.predict(given, X, samples=4, forward_kwargs={"extra": extra}, keep_samples=True).samples
    assert extra["shift"].sum() == 0 and torch.equal(found[0], found[3])


class Merging(nn.Linear):
    """Like a layer of LoRA: train() and eval() change its weight."""

    merged = False

    def train(self, mode=True):
        if self.merged == mode:
            self.weight.data += -1 if mode else 1
            self.merged = not mode
        return super().train(mode)


def test_a_train_of_ones_own_is_called_after_a_prediction_too():
    own = nn.Sequential(Merging(6, 8), rbue.DropReLU(0.5), nn.Linear(8, 3)).train()
    weight = own[0].weight.clone()
    rbue.predict(own, X, samples=2)
    assert own[0].training and not own[0].merged and torch.allclose(own[0].weight, weight, atol=1e-6)


def test_a_prediction_leaves_nothing_behind_in_the_network():
    own = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), StochasticDepth(0.5, "row"), nn.Linear(8, 3))
    random = rbue.randomize(own, q=0.5)
    before = dict(random.meta)
    rbue.predict(random, X, samples=2)
    assert random.meta == before


def test_a_sparse_buffer_is_no_obstacle_to_a_prediction():
    own = nn.Sequential(nn.Linear(6, 8), rbue.DropReLU(0.5), nn.Linear(8, 3))
    own.register_buffer("adjacency", torch.eye(3).to_sparse())
    assert rbue.predict(own, X, samples=2).mean.shape == (len(X), 3)


def test_a_network_in_data_parallel_is_predicted_by_itself(monkeypatch):
    def on_two_devices(self, x):
        return torch.cat([self.module(part) for part in x.chunk(2)])

    monkeypatch.setattr(nn.DataParallel, "forward", on_two_devices)
    random = network()
    assert same(rbue.predict(nn.DataParallel(random), X, samples=3), rbue.predict(random, X, samples=3))


def test_a_network_without_a_stochastic_layer_is_named():
    with pytest.warns(UserWarning, match="the network has no stochastic layer"):
        rbue.predict(nn.Linear(8, 3), torch.randn(2, 8), samples=3)
