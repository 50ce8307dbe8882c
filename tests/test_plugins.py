"""A stranger's package: found, imported, composed, trained, and shown in the tables; or refused in a sentence."""

import dataclasses
import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import made_up
import pytest
import torch
from commands import call, calls, start
from conftest import PAPER, ROOT

import rbue
from rbue import cli, layers, methods, metrics, networks, noise, plugins, sampling, surgery
from rbue.config import Run, training
from rbue.errors import UserError
from rbue.runs import compose, results, sweeps
from rbue.runs.messages import sentence

EXAMPLE = ROOT / "examples" / "masksembles"
QUICK = "# @package _global_\ndefaults: [demo, _self_]\nprotocol: quick\nepochs: 1\n"
DEMO = ["dataset=digits", "arch=small", "protocol=demo"]
SCHEMA = """
from dataclasses import dataclass
from rbue.config import Run
from rbue.methods import method

@method("{name}")
@dataclass
class Own(Run):
    pass
"""


@pytest.fixture
def door(monkeypatch, tmp_path):
    """Writes packages into a folder on the path. What they register is forgotten afterwards."""
    registries = [(registry, dict(registry)) for registry in (methods.METHODS, networks.ARCHS)]
    modules = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(plugins.PLUGINS, "")
    monkeypatch.setenv(plugins.CONFIG_DIR, "")

    def write(files=()):
        for name, text in dict(files).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    yield write
    for registry, before in registries:
        registry.clear()
        registry.update(before)
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None)).startswith((str(tmp_path), str(EXAMPLE))):
            del sys.modules[name]
    for cached in (plugins.imported, compose.composed, compose.canonical, compose.network_of):
        cached.cache_clear()


def own_arch(folder, **network):
    """A folder of YAML whose arch `mine` is this network."""
    (folder / "arch").mkdir(parents=True, exist_ok=True)
    (folder / "arch" / "mine.yaml").write_text(f"# @package _global_\narch: mine\nnetwork: {json.dumps(network)}\n")
    return folder


def composed(*words):
    compose.register()
    (run,) = sweeps.runs_of([*DEMO, *words])
    return run


# --- a package that is installed --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Masksembles installed as a stranger would, in a folder of its own, and an empty folder to work in."""
    site, work = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("work")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--target", str(site)]
    copy = work / "source"
    subprocess.run(["cp", "-r", EXAMPLE, copy], check=True)  # a build leaves files behind
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(copy)], check=True)
    return site, work


def test_an_installed_method_trains_sweeps_and_is_a_row(installed):
    site, work = installed
    folder = own_arch(work / "conf", _target_="rbue.networks.small", classes_argument="classes")
    (folder / "protocol").mkdir()
    (folder / "protocol" / "quick.yaml").write_text(QUICK)
    words = ["--config-dir", folder, "method=masksembles", *DEMO, "protocol=quick"]
    sweep = ["train.py", "-m", *words, "arch=small,mine", "masks=2,4"]
    tables = ["scripts/tables.py", "--paper", PAPER, "--out", work / "tables"]
    done = calls(sweep, ["train.py", *words], [*tables, "--config-dir", folder], cwd=work, path=site)
    assert [one.returncode for one in done] == [0, 0, 0], done
    assert done[0].stdout.count("wrote results") == 4
    found = "skipped, since it is finished: results/runs/digits/small/masksembles-masks4-scale2-block-quick"
    assert found in done[1].stdout
    results = [json.loads(path.read_text()) for path in (work / "results" / "runs").rglob("result.json")]
    assert sorted(result["passes"] for result in results) == [2, 2, 4, 4]
    assert {(r["config"]["arch"], "network" in r["config"]) for r in results} == {("mine", True), ("small", False)}
    text = (work / "tables/quick/digits.md").read_text()
    for row in ("| masksembles(masks=2) ", "| masksembles "):
        assert text.count(row) >= 2, text  # one of either network
    assert "not in this table" not in text
    done = start(ROOT / tables[0], *tables[1:], cwd=work)
    assert "nothing but 4 results of arch=mine, method=masksembles, protocol=quick" in done.stderr
    assert (work / "tables/quick/digits.md").read_text() == text


# --- Masksembles itself -----------------------------------------------------------------------------------------------


@pytest.fixture
def masksembles(door, monkeypatch):
    """The example's layers, and its package as a plugin that the user names."""
    monkeypatch.syspath_prepend(EXAMPLE)
    plugins.choose(["rbue_masksembles"])
    import rbue_masksembles.layers

    return rbue_masksembles.layers


@pytest.mark.parametrize(
    ("channels", "n", "scale"), [(16, 4, 2.0), (512, 4, 2.0), (512, 8, 3.0), (10, 4, 1.0), (8, 4, 10.0)]
)
def test_masks_are_of_one_size_keep_every_channel_and_overlap_by_the_scale(masksembles, channels, n, scale):
    masks = masksembles.draw_masks(channels, n, scale, torch.Generator().manual_seed(0))
    ones = masks.sum(1)
    assert masks.shape == (n, channels) and masks.any(0).all() and (ones == ones[0]).all()
    shared = [(a & b).sum() / ones[0] for a, b in itertools.combinations(masks, 2)]
    tolerance = 0.03 if channels == 512 else 0.11  # masks of few channels hold whole numbers of them
    assert float(sum(shared)) / len(shared) == pytest.approx(1 / scale, abs=tolerance)


def test_in_training_each_group_of_the_batch_has_its_mask(masksembles):
    layer, x = masksembles.Masks(4, 2.0), torch.ones(10, 16, 3, 3)
    kept = layer.train()(x)
    groups = [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    assert torch.equal(kept, layer.masks[groups][:, :, None, None].expand_as(x).float())


def test_in_testing_sample_k_has_mask_k_stacked_or_one_by_one_and_compiled(masksembles):
    plain = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
    network, x = surgery.add_dropout(plain, masksembles.Masks(4, 2.0), "last").eval(), torch.randn(5, 6)
    network(x)
    (layer,) = (m for m in network.modules() if isinstance(m, masksembles.Masks))
    hidden = plain[:2](x)
    by_hand = torch.stack([plain[2](torch.where(mask, hidden, 0)).softmax(-1) for mask in layer.masks])
    for batch in (500, 2):  # all samples in one pass, or a pass per sample
        found = sampling.predict(network, x, samples=4, batch=batch, keep_samples=True)
        torch.testing.assert_close(found.samples, by_hand)
    compiled = torch.compile(network, fullgraph=True, dynamic=False, backend="aot_eager")
    for k in range(4):
        with torch.no_grad(), noise.counted(network, 0, torch.tensor([k]), torch.arange(5)):
            torch.testing.assert_close(compiled(x).softmax(-1), by_hand[k])
    twin = surgery.fold(surgery.deterministic(network))
    torch.testing.assert_close(twin(x), plain[2](hidden * layer.masks.float().mean(0)))


def test_masks_are_saved_with_the_weights_and_belong_to_the_seed(masksembles, digits):
    from rbue.training.checkpoints import build

    run = composed("method=masksembles", "masks=2")
    assert run.name == "digits/small/masksembles-masks2-scale2-block-demo-seed0-" + run.name[-8:] and run.passes == 2
    first, again, other = (build(r, digits).state_dict() for r in (run, run, replace(run, seed=1)))
    (key,) = (name for name in first if name.endswith("masks"))
    assert torch.equal(first[key], again[key]) and not torch.equal(first[key], other[key])
    build(replace(run, seed=1), digits).load_state_dict(first)


# --- words and names --------------------------------------------------------------------------------------------------


def test_words_name_plugins_and_are_taken_out(door, monkeypatch):
    door({"one.py": "", "two.py": ""})
    words = ["-m", "plugins=[one, two]", "method=single", "seed=0,1"]
    assert cli.take_plugins(words) == ["-m", "method=single", "seed=0,1"]
    assert plugins.named() == ["one", "two"] and [m.__name__ for m in plugins.load()] == ["one", "two"]
    monkeypatch.setenv("COMP_LINE", "python train.py plugins=one method=")
    cli.take_plugins_of_completion()
    assert os.environ["COMP_LINE"] == "python train.py method="


def test_a_named_plugin_changes_no_name(door):
    before = composed("method=dropreLU").name
    door({"one/__init__.py": SCHEMA.format(name="own"), "one/conf/method/own.yaml": own_yaml("own")})
    cli.take_plugins(["plugins=one"])
    assert composed("method=dropreLU").name == before and composed("method=own").method == "own"


def own_yaml(name, defaults="defaults: [/hydra/schema/{name}, _self_]\n"):
    return f"# @package _global_\n{defaults}method: {{name}}\n".format(name=name)


# --- networks ---------------------------------------------------------------------------------------------------------


def test_a_network_by_target_is_built_and_is_part_of_the_identity(door, digits):
    from rbue.training.checkpoints import build

    folder = own_arch(door() / "a", _target_="torchvision.models.mobilenet_v3_small", weights=None)
    plugins.choose(folder=folder)
    run = composed("arch=mine")
    assert build(run, digits).get_submodule("classifier.3").out_features == 10
    assert run.identity["network"]["_target_"].endswith("small") and run.name.startswith("digits/mine/single-demo")
    other = composed("arch=mine", "+network.width_mult=0.5")
    assert other.training_name != run.training_name and "network" not in composed().identity
    first, second = build(replace(run, seed=1), digits), build(replace(run, seed=1), digits)
    assert all(map(torch.equal, first.state_dict().values(), second.state_dict().values()))


def test_a_network_is_registered_by_its_function(door, digits):
    code = "from rbue import networks\n@networks.network('mine')\ndef mine(classes): return networks.small(classes)"
    door({"one/__init__.py": code, "one/conf/arch/mine.yaml": "# @package _global_\narch: mine\n"})
    plugins.choose(["one"])
    run = composed("arch=mine")
    assert run.network is None and methods.build(run, 7, 100)(torch.zeros(2, 3, 32, 32)).shape == (2, 7)


@pytest.mark.filterwarnings("error")
def test_a_change_of_ones_own_method_or_network_is_told_with_old_weights_and_results(door, tmp_path):
    from rbue.main import experiment, skipped

    nets = (
        "from torch import nn\ndef flat(num_classes): return nn.Sequential(nn.Flatten(), nn.Linear(3072, num_classes))"
    )
    files = {"one/__init__.py": SCHEMA.format(name="own"), "one/conf/method/own.yaml": own_yaml("own"), "nets.py": nets}
    plugins.choose(["one"], own_arch(door(files) / "a", _target_="nets.flat"))
    words = ["epochs=1", f"results_dir={tmp_path}/results", f"weights_dir={tmp_path}/weights"]
    run = composed("arch=mine", "method=own", *words)
    result = experiment(run)
    assert [*result.trainings[0].own_code] == ["one", "nets"]
    door({"nets.py": f'"""A comment."""\n{nets}  # another'})
    assert "other code" not in skipped(run, result)
    experiment(run)
    door({"nets.py": nets + "\nSIZE = 3"})
    assert "skipped, since it is finished, but with other code of nets: " in skipped(run, result)
    with pytest.warns(
        UserWarning, match=r"weights\.pt was trained with other code of nets: move it away to train again"
    ):
        experiment(run)
    assert experiment(composed(*words)).trainings[0].own_code is None  # the suite's own code is no user's


BRANCHES = """
from torch import nn
class Branches(nn.Linear):
    def __init__(self, num_classes): super().__init__(3, num_classes)
    def forward(self, x): return super().forward(x.mean((2, 3)) if x.sum() > 0 else x)
class Always(nn.Module):
    def forward(self, x): return nn.functional.dropout(x, 0.5, True)
def flattened(*layers): return nn.Sequential(nn.Flatten(), *layers)
def thousand(num_classes): return flattened(nn.Linear(3072, 1000))
def flat(num_classes): return flattened(nn.Linear(5, num_classes))
def soft(num_classes): return flattened(nn.Linear(3072, num_classes), nn.Softmax(1))
def frozen(num_classes): return flattened(nn.Linear(3072, num_classes)).requires_grad_(False)
class Detached(nn.Linear):
    def __init__(self, num_classes): super().__init__(3072, num_classes)
    def forward(self, x): return super().forward(x.flatten(1)).detach()
def chance(num_classes): return flattened(Always(), nn.Linear(3072, num_classes))
def batchy(num_classes):
    return nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), flattened(nn.Linear(3072, num_classes)))
"""


def refusal_of_torch():
    """Torch's own words for a layer of the wrong width. Newer versions put "addmm: " before them."""
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied") as refused:
        torch.nn.Linear(5, 10)(torch.zeros(2, 3072))
    return f"RuntimeError: {refused.value}"


WRONG_NETWORKS = {
    "no.such.module": "arch=mine (no.such.module) with method=single: the network cannot be made (",
    "torch.nn.Flatten": "): name its argument for the number of classes, as in 'classes_argument: classes'",
    "builtins.dict": "its _target_ returns a dict, which is not a torch.nn.Module",
    "branches.Branches": "arch=mine (branches.Branches) with method=single: Branches cannot be traced by torch.fx",
    "branches.thousand": "the network must return (2, 10) for 2 images, but returns (2, 1000)",
    "branches.batchy": "the prediction of an image depends on the other images of its batch",
    "branches.frozen": "the network has no weights to train: all are frozen (requires_grad=False) or unused",
    "branches.Detached": "the network has no weights to train: all are frozen (requires_grad=False) or unused",
    "branches.chance": "or on randomness outside rbue's stochastic layers",
    "branches.soft": "the network returns probabilities, but the loss needs logits: leave out its last softmax",
    "branches.flat": "the network cannot take images (3, 32, 32) (" + refusal_of_torch() + ")",
}


@pytest.mark.parametrize("target", WRONG_NETWORKS)
def test_a_wrong_network_is_a_sentence(target, door, digits):
    from rbue.training.checkpoints import build

    plugins.choose(folder=own_arch(door({"branches.py": BRANCHES}), _target_=target))
    with pytest.raises(UserError) as refused:
        build(composed("arch=mine"), digits)
    assert WRONG_NETWORKS[target] in str(refused.value) and "\n" not in str(refused.value)


def test_a_number_of_classes_that_is_not_the_datasets_is_refused(door, digits):
    from rbue.training.checkpoints import build

    small = {"_target_": "rbue.networks.small", "classes_argument": "classes"}
    plugins.choose(folder=own_arch(door(), **small, classes=7))
    with pytest.raises(UserError, match="its network has classes: 7, but the dataset has 10 classes: leave it out"):
        build(composed("arch=mine"), digits)


def test_a_network_that_squeezes_a_batch_of_one_image_away_is_taken(digits):
    squeezing = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), Squeeze(), torch.nn.Linear(3, 10))
    assert methods.try_out(composed(), squeezing, digits.train_images, 10) is squeezing


class Squeeze(torch.nn.Module):
    def forward(self, x):
        return x.squeeze()


def test_a_methods_network_of_random_layers_by_hand_draws_from_one_source(digits):
    class ByHand(Run):
        def build(self, network, images):
            layers = torch.nn.Flatten(), rbue.Dropout(0.5), torch.nn.Linear(3072, 10), rbue.DropReLU(0.5)
            return torch.nn.Sequential(*layers)

    run = composed()
    run.__class__ = ByHand
    network = methods.try_out(run, methods.build(run, 10, 100), digits.train_images, 10)
    assert noise.of(network).sites == 2 and network[1].noise is network[3].noise


def test_a_layer_without_a_deterministic_form_is_named_before_the_training(digits):
    class Own(layers.StochasticLayer):
        def forward(self, x):
            return x.relu()

    run = composed()
    network = surgery.randomize(methods.build(run, 10, 100), Own())
    with pytest.raises(UserError, match=r"with method=single: Own has no method deterministic\(\): write one"):
        methods.try_out(run, network, digits.train_images, 10)


class Lazy(torch.nn.Sequential):
    def __init__(self, num_classes):
        super().__init__(torch.nn.Flatten(), torch.nn.LazyLinear(8), torch.nn.ReLU(), torch.nn.LazyLinear(num_classes))


@pytest.mark.parametrize("method", ["single", "svi"])
def test_lazy_weights_follow_from_the_seed(method, digits):
    made = []
    for seed in (0, 1, 1):
        run = composed(f"seed={seed}", f"method={method}")
        run.network = {"_target_": f"{__name__}.Lazy"}
        network = methods.build(run, 10, 100, digits.train_images[:2])
        assert network.training
        made.append(next(methods.try_out(run, network, digits.train_images, 10).parameters()))
    assert torch.equal(made[1], made[2]) and not torch.equal(made[0], made[1])


def raise_anything(*arguments):
    raise KeyError("width")


def test_a_method_whose_build_raises_is_named(monkeypatch):
    run = composed()
    monkeypatch.setattr(type(run), "build", raise_anything)
    with pytest.raises(
        UserError, match=r"^arch=small .* with method=single: the method's build fails \(KeyError: 'width'\)$"
    ):
        methods.build(run, 10, 100)


def test_a_registered_network_that_raises_is_named(monkeypatch):
    monkeypatch.setitem(networks.ARCHS, "small", raise_anything)
    with pytest.raises(
        UserError, match=r"^arch=small .* with method=single: the network cannot be made \(KeyError: 'width'\)$"
    ):
        methods.build(composed(), 10, 100)


# --- what is wrong with a plugin --------------------------------------------------------------------------------------


def refusal(*names, folder=None, words=()):
    with pytest.raises(Exception) as refused:
        plugins.choose(names, folder)
        composed(*words)
    return sentence(refused.value, words)


def test_what_cannot_be_imported_is_named_with_the_reason(door):
    door({"broken.py": "1 / 0"})
    wrong = "the plugin broken cannot be imported (ZeroDivisionError: division by zero): correct its code"
    assert refusal("broken") == wrong
    os.environ[plugins.PLUGINS] = ""
    absent = refusal("absent")
    assert "the plugin absent cannot be imported (ModuleNotFoundError: No module named" in absent
    assert "is it installed, or its folder on PYTHONPATH?" in absent


def test_a_name_that_is_taken_is_refused_with_both_places(door, monkeypatch):
    door({"twice.py": SCHEMA.format(name="single")})
    twice = "method=single is defined twice, as rbue.methods.single.Single and as twice.Own: rename one of the two"
    assert refusal("twice") == f"the plugin twice cannot be imported: {twice}"
    with monkeypatch.context() as patched:
        patched.setattr(plugins, "installed", lambda: ["twice"])
        assert refusal("twice").endswith(f"{twice}, or uninstall twice")
    os.environ[plugins.PLUGINS] = ""
    door({"net.py": "from rbue.networks import network\n@network('small')\ndef small(classes): pass"})
    assert "arch=small is defined twice, as rbue.networks.small and as net.small: rename one" in refusal("net")
    os.environ[plugins.PLUGINS] = ""
    folder = door({"dir/arch/small.yaml": "# @package _global_\narch: small\n"}) / "dir"
    assert refusal(folder=folder).endswith("conf/arch/small.yaml has the same name: rename one of the two")


def test_a_method_without_its_yaml_is_refused(door):
    door({"bare/__init__.py": SCHEMA.format(name="own")})
    assert "bare registers method=own, which has no YAML: write conf/method/own.yaml" in refusal("bare")
    assert "list it in package-data if you install it" in refusal("bare")


def test_a_yaml_without_its_schema_is_refused(door):
    door({"loose/__init__.py": SCHEMA.format(name="own"), "loose/conf/method/own.yaml": own_yaml("own", "")})
    said = refusal("loose", words=["method=own"])
    assert "loose/conf/method/own.yaml has no schema" in said and "defaults: [/hydra/schema/own, _self_]" in said


def test_a_yaml_without_the_value_of_a_setting_is_refused(door):
    code = SCHEMA.format(name="own").replace("Run\n", "Run, training\n").replace("pass", "s: float = training()")
    door({"empty/__init__.py": code, "empty/conf/method/own.yaml": own_yaml("own")})
    assert refusal("empty", words=["method=own"]) == "s has no value: write the line 's: ...' into the method's YAML"


@pytest.mark.parametrize(
    ("group", "key", "usual"), [("protocol", "schedule", "paper"), ("dataset", "epochs", "cifar10")]
)
def test_a_yaml_without_defaults_is_named(group, key, usual, door):
    folder = door({f"dir/{group}/bare.yaml": f"# @package _global_\n{group}: bare\n"}) / "dir"
    way_out = f"write the line '{key}: ...' into {group}/bare.yaml, or inherit it with 'defaults: [{usual}, _self_]'"
    words = ["protocol=matched", f"{group}=bare"]
    assert refusal(folder=folder, words=words) == f"{key} has no value: {way_out}"


def test_a_yaml_without_its_first_line_is_named(door):
    folder = door({"dir/protocol/np.yaml": "defaults: [demo, _self_]\nprotocol: np\n"}) / "dir"
    said = refusal(folder=folder, words=["protocol=np"])
    assert said == "protocol/np.yaml lacks its first line '# @package _global_'"


def test_a_yaml_without_its_package_is_refused(door):
    folder = door({"dir/method/stray.yaml": own_yaml("stray")}) / "dir"
    said = "method=stray is named in a YAML, but no package registers it"
    assert said in refusal(folder=folder, words=["method=stray"])
    door({"dir/method/stray.yaml": own_yaml("stray", "")})
    assert said in refusal(folder=folder, words=["method=stray"])


@pytest.mark.parametrize(
    ("line", "wrong"), [("arch: other\n", "names its network arch=other"), ("", "does not name its network")]
)
def test_a_network_whose_yaml_has_another_name_is_refused(line, wrong, door):
    network = "network: {_target_: rbue.networks.small, classes_argument: classes}\n"
    folder = door({"dir/arch/mine.yaml": f"# @package _global_\n{line}{network}"}) / "dir"
    said = refusal(folder=folder, words=["arch=mine"])
    assert said.endswith(f"arch/mine.yaml {wrong}: write the line 'arch: mine' into it")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("network: torchvision.models.resnet50", "a wrong value of network (Cannot assign str to Dict[str, Any])"),
        ("epochs: many", "a wrong value of epochs (Value 'many' of type 'str' could not be converted to Integer)"),
        ("flp: false", "the line 'flp: ...', which is not a setting: did you mean flip?"),
        ("zzz: 1", "the line 'zzz: ...', which is not a setting: python train.py --cfg job shows all settings"),
    ],
)
def test_a_wrong_line_of_a_yaml_is_named_with_its_file(line, said, door):
    folder = door({"dir/arch/mine.yaml": f"# @package _global_\narch: mine\n{line}\n"}) / "dir"
    assert refusal(folder=folder, words=["arch=mine"]).startswith(f"arch/mine.yaml has {said}")


@pytest.mark.parametrize("group", ["dataset", "protocol"])
def test_a_yaml_that_would_be_stored_under_the_name_in_its_defaults_is_refused(group, door):
    usual = {"dataset": "digits", "protocol": "demo"}[group]
    folder = door({f"dir/{group}/mine.yaml": f"# @package _global_\ndefaults: [{usual}, _self_]\nlr: 0.5\n"}) / "dir"
    said = refusal(folder=folder, words=[f"{group}=mine"])
    assert said.endswith(f"{group}/mine.yaml does not name its {group}: write the line '{group}: mine' into it")


def test_a_protocol_may_set_what_the_suites_main_file_sets(door):
    own = "# @package _global_\ndefaults: [demo, _self_]\nprotocol: mine\n"
    plugins.choose(folder=door({"dir/protocol/mine.yaml": f"{own}bins: 15\nholdout: 300\nprecision: bf16\n"}) / "dir")
    run = composed("protocol=mine")
    assert (run.bins, run.holdout, run.precision) == (15, 300, "bf16")
    assert composed("protocol=mine", "bins=20").bins == 20


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("lr: -1", "dataset=digits protocol=mine method=single has no rows, since it cannot be composed: lr=-1.0 must"),
        ("lrr: 3", "protocol/mine.yaml has the line 'lrr: ...', which is not a setting: did you mean lr?"),
    ],
)
def test_a_protocol_with_a_mistake_is_named_since_its_results_have_no_row(line, says, door, capsys):
    own = f"# @package _global_\ndefaults: [demo, _self_]\nprotocol: mine\n{line}\n"
    plugins.choose(folder=door({"dir/protocol/mine.yaml": own}) / "dir")
    compose.register()
    assert compose.canonical("digits", "mine", "single") is None and capsys.readouterr().err.count(says) == 1
    assert compose.canonical("digits", "nowhere", "single") is None and not capsys.readouterr().err


def test_a_yaml_may_refer_to_the_seed_in_a_sweep_too(door):
    own = "# @package _global_\ndefaults: [demo, _self_]\nprotocol: mine\nholdout: ${oc.select:seed}\n"
    plugins.choose(folder=door({"dir/protocol/mine.yaml": own}) / "dir")
    assert [run.holdout for run in sweeps.runs_of(["protocol=mine", "seed=1,2"])] == [1, 2]
    spaced = sweeps.runs_of(["protocol=demo", "seed=1,2", "data_dir=of ${ seed }"])
    assert [run.data_dir for run in spaced] == ["of 1", "of 2"]


def test_a_launch_does_not_change_what_a_protocol_says(door):
    own = "# @package _global_\ndefaults: [demo, _self_]\nprotocol: mine\nprecision: fp32\n"
    launch = "# @package _global_\ndefaults: [{override /hydra/launcher: packed}]\nprecision: bf16\nper_gpu: 2\n"
    plugins.choose(folder=door({"dir/protocol/mine.yaml": own, "dir/launch/far.yaml": launch}) / "dir")
    far = composed("protocol=mine", "launch=far")
    assert far.name == composed("protocol=mine").name and (far.precision, far.per_gpu) == ("fp32", 2)
    assert composed("launch=far").precision == "bf16"  # the suite's protocols name no precision
    assert composed("launch=far", "precision=fp32").precision == "fp32"


@pytest.mark.parametrize(
    ("file", "base", "line"),
    [
        ("method/strong", "dropreLU", "bins: 15"),
        ("dataset/mine", "digits", "samples: 5"),
        ("arch/mine", "", "warmup: 0.1"),
        ("launch/mine", "packed", "samples: 5"),
        ("launch/mine", "packed", "batch: 64"),
    ],
)
def test_a_line_that_has_no_effect_is_refused(file, base, line, door):
    group, name = file.split("/")
    named = "" if group in ("method", "launch") else f"{group}: {name}\n"
    text = f"# @package _global_\ndefaults: [{base}{', ' * bool(base)}_self_]\n{named}{line}\n"
    said = refusal(folder=door({f"dir/{file}.yaml": text}) / "dir")
    wrong = f"dir/{file}.yaml has the line '{line.split()[0]} ...', which has no effect in a {group}'s YAML"
    assert said.endswith(f"{wrong}: write it into a protocol's YAML")


def test_a_preset_of_a_method_keeps_the_methods_name(door):
    preset = "# @package _global_\ndefaults: [dropreLU, _self_]\nq: 0.95\n"
    plugins.choose(folder=door({"dir/method/strong.yaml": preset}) / "dir")
    assert composed("method=strong").name == composed("method=dropreLU", "q=0.95").name


def test_a_name_may_be_a_number(door):
    protocol = "# @package _global_\ndefaults: [demo, _self_]\nprotocol: 2024\n"
    plugins.choose(folder=door({"dir/protocol/2024.yaml": protocol}) / "dir")
    assert composed("protocol='2024'").protocol == "2024"


def test_a_config_dir_that_is_not_there_is_refused(door):
    assert "nowhere is not a folder" in refusal(folder=door() / "nowhere")


# --- classes that are no methods --------------------------------------------------------------------------------------


def test_a_class_that_is_no_method_is_refused_with_the_line_to_write():
    class Plain:
        pass

    class Forgotten(Run):
        z: float = training()

    @dataclasses.dataclass
    class WithDefault(Run):
        z: float = 1.0

    for schema, said in (
        (Plain, r"it must be a subclass of rbue\.config\.Run"),
        (Forgotten, "write @dataclass between @method and class Forgotten"),
        (WithDefault, r"write 'z: ... = training\(\)' or evaluation\(\) in class WithDefault"),
    ):
        with pytest.raises(UserError, match=said):
            methods.method("mine")(schema)
    assert "mine" not in methods.METHODS


@pytest.mark.parametrize("value", [float("nan"), "much", None])
def test_a_faulty_metric_is_refused_before_the_training(value, monkeypatch, digits):
    from rbue.training import packs

    monkeypatch.setattr(packs, "fit", lambda *_: pytest.fail("trained"))
    monkeypatch.setitem(metrics.OWN, "odd", lambda probs, labels: value)
    with pytest.raises(UserError, match="metric odd returns"):
        packs.load_or_train([composed()], digits, torch.device("cpu"))
    monkeypatch.setattr(packs.datasets, "load_for", lambda run: digits)
    (failed,) = packs.train_on_one_source([composed()])
    assert all("metric odd returns" in str(why) for why in failed.values()) and failed


def test_a_skipped_run_says_which_metrics_its_result_lacks(monkeypatch):
    from rbue.main import skipped

    run, result = composed(), SimpleNamespace(metrics={"accuracy": 0.9}, trainings=[])
    assert skipped(run, result).startswith("skipped, since it is finished: results/runs/digits/small/single")
    monkeypatch.setitem(metrics.OWN, "margin", len)
    said = skipped(run, result)
    assert said.startswith("skipped, since it is finished; its result has no metric margin: move results/runs/digits/")
    assert said.endswith(" away to test again (its weights are kept)")


def test_a_sweep_says_which_finished_results_lack_a_metric(monkeypatch, tmp_path):
    words = [*DEMO, "epochs=1"]
    first = call("train.py", "-m", *words, cwd=tmp_path)
    assert "training on" in first.stderr and "lack metric" not in first.stdout
    monkeypatch.setitem(metrics.OWN, "margin", lambda probs, labels: 0.5)
    others = [made_up.result("Single", where=made_up.DIGITS, epochs=1, seed=seed) for seed in (1, 2, 3)]
    made_up.write(tmp_path / "results" / "runs", others)
    said = call("train.py", "-m", *words, "seed=0,1,2,3", cwd=tmp_path).stdout.splitlines()[-1]
    assert said.startswith("4 of 4 finished results lack metric margin (digits/small/single-demo-seed0-")
    assert said.count("single-demo") == 3 and " and 1 more): add another results_dir=" in said
    again = call("train.py", "-m", *words, "results_dir=again", cwd=tmp_path)
    assert "training on" not in again.stderr
    assert [result.metrics["margin"] for result in results.collect(tmp_path / "again")] == [0.5]


def test_a_metric_that_fails_is_named(monkeypatch):
    monkeypatch.setitem(metrics.OWN, "broken", lambda probs, labels: {}["x"])
    with pytest.raises(UserError, match=r"metric broken failed .*KeyError"):
        metrics.score(torch.full((4, 2), 0.5), torch.zeros(4).long())
    assert "broken" not in metrics.score(torch.full((4, 2), 0.5), torch.zeros(4).long(), own=False)
