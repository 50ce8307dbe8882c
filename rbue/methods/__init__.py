"""The methods, one file each: hyperparameters, their legal ranges, how the network is built, and what differs in
training. Every file in this folder is imported. A package of your own registers its methods with `method` too
(docs/extending.md).
"""

import copy
import io
import pkgutil
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import fields
from importlib import import_module

from omegaconf import MISSING

from rbue.config import Run
from rbue.errors import UserError, describe, refuse_second

METHODS: dict[str, type[Run]] = {}


def method(name: str):
    """Register the decorated subclass of Run as method=name."""

    def register(schema: type[Run]) -> type[Run]:
        refuse_schema(name, schema)
        refuse_second(f"method={name}", METHODS.get(name), schema)
        METHODS[name] = schema
        return schema

    return register


def refuse_schema(name, schema):
    """Refuse a class that is no method, and a field that does not say what it decides."""
    if not (isinstance(schema, type) and issubclass(schema, Run)):
        raise UserError(f"method={name} is {schema!r:.60}: it must be a subclass of rbue.config.Run")
    if "__dataclass_fields__" not in vars(schema):
        raise UserError(f"method={name}: write @dataclass between @method and class {schema.__name__}")
    if untold := [field.name for field in fields(schema) if "part" not in field.metadata]:
        raise UserError(
            f"method={name}: write '{untold[0]}: ... = training()' or evaluation() in class {schema.__name__}, to say "
            "whether the field decides weights or only metrics, and write its value into the YAML"
        )


def build(run, classes, images, shown=None):
    """Build the run's network. Its initial weights follow from the seed and are the same on every device. `shown` are
    two images: weights that the network does not use on them are frozen."""
    import torch

    from rbue.surgery import wire_if_needed

    with torch.random.fork_rng(devices=[]), named_errors(run):
        torch.manual_seed(run.seed)
        network = plain_network(run, classes)
        if shown is not None:
            fill_lazy(network, shown)
            freeze_unused(network, shown)
    with named_errors(run):
        with foreign_code("the method's build fails"):
            built = run.build(network, images)
        if not isinstance(built, torch.nn.Module):
            raise UserError(f"the method's build returns a {type(built).__name__}, which is not a torch.nn.Module")
    return wire_if_needed(built)


def fill_lazy(network, images):
    """Let layers such as nn.LazyLinear make their weights now, so that these follow from the seed."""
    from torch.nn.parameter import is_lazy

    from rbue.tracing import in_mode

    if any(map(is_lazy, network.parameters())):
        with suppress(Exception), in_mode(network, False):  # `try_out` says what is wrong
            network(images / 255)


def freeze_unused(network, images):
    """Freeze the weights that the logits do not depend on, so that no method gives them a posterior and a KL. A weight
    that either mode uses is kept: in training, a forward may leave out layers at random."""
    try:
        tried = copy.deepcopy(network)  # a pass in training mode changes batch-norm's statistics
        unused = {p for p in tried.parameters() if p.requires_grad}
        for mode in (False, True):
            with redirect_stderr(io.StringIO()):
                unused -= weights_behind(tried.train(mode)(images / 255)) if unused else set()
    except Exception:  # `try_out` says what is wrong
        return
    for own, copied in zip(network.parameters(), tried.parameters(), strict=True):
        if copied in unused:
            own.requires_grad_(False)


def weights_behind(output):
    """Return the weights that a tensor depends on, from its autograd graph. A backward pass would take longer."""
    seen, queue = {None}, [output.grad_fn]
    while queue:
        if (node := queue.pop()) not in seen:
            seen.add(node)
            queue += [source for source, _ in node.next_functions]
    return {node.variable for node in seen if hasattr(node, "variable")}


def plain_network(run, classes):
    """Build the deterministic network of run.arch: from `network` in its YAML, or else the one registered by name."""
    from rbue import networks

    if run.network is None:
        with foreign_code("the network cannot be made"):
            return networks.build(run.arch, classes)
    settings = {"classes_argument": "num_classes"} | run.network
    name = settings.pop("classes_argument")
    if (own := settings.get(name, classes)) != classes:
        raise UserError(f"its network has {name}: {own}, but the dataset has {classes} classes: leave it out")
    return networks.quick(instantiated(settings, **{name: classes}))


def instantiated(settings, **arguments):
    """Return the module that Hydra creates from `_target_` and its arguments."""
    from hydra.utils import instantiate
    from torch import nn

    if "_target_" not in settings:
        raise UserError("its network has no _target_, the class or function that makes it")
    try:
        made = instantiate(settings, **arguments)
    except Exception as error:  # a network's own code may raise anything
        why = describe(error.__cause__ or error)
        unknown = any(f"unexpected keyword argument '{name}'" in why for name in arguments)
        way_out = ": name its argument for the number of classes, as in 'classes_argument: classes'" if unknown else ""
        raise UserError(f"the network cannot be made ({why}){way_out}") from error
    if not isinstance(made, nn.Module):
        raise UserError(f"its _target_ returns a {type(made).__name__}, which is not a torch.nn.Module")
    return made


def try_out(run, network, images, classes):
    """Pass two images through the network, and refuse it unless it returns one logit per class for each image, which
    depends on that image and on rbue's noise alone."""
    import torch

    from rbue import noise
    from rbue.surgery import deterministic

    def pass_through(batch):
        with noise.counted(network, 0, 0, torch.arange(len(batch))), redirect_stderr(io.StringIO()):
            return network(batch / 255)  # torch.fx prints the traceback as well as raising it

    modes, two = {module: module.training for module in network.modules()}, images[:2]
    with named_errors(run), torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            network.eval()
            # not a batch of one image: a network may return another shape for it, as x.squeeze() does
            logits, doubled = pass_through(two), pass_through(two[:1].expand_as(two))
        except Exception as error:  # layers that do not fit each other, or these images
            raise UserError(f"the network cannot take images {tuple(two.shape[1:])} ({describe(error)})") from error
        check_logits(logits, doubled, classes)
        refuse_untrainable(network)
        if noise.of(network).sites:  # it is evaluated without noise, too
            with foreign_code("the network without noise cannot be made"):
                deterministic(network)
    for module, mode in modes.items():
        module.training = mode
    return network


def check_logits(logits, doubled, classes):
    """Refuse outputs of a wrong shape, and a network whose output for an image depends on the other image."""
    import torch

    from rbue.sampling import are_probabilities, equal_up_to_rounding, probabilities

    if not torch.is_tensor(logits) or logits.shape != (2, classes):
        got = tuple(logits.shape) if torch.is_tensor(logits) else type(logits).__name__
        raise UserError(f"the network must return {(2, classes)} for 2 images, but returns {got}")
    if are_probabilities(logits):
        raise UserError("the network returns probabilities, but the loss needs logits: leave out its last softmax")
    if logits.isfinite().all() and not equal_up_to_rounding(*map(probabilities, (logits[:1], doubled[:1])), 1e-3):
        raise UserError(
            "the prediction of an image depends on the other images of its batch (as with batch-norm without "
            "running statistics), or on randomness outside rbue's stochastic layers"
        )


def refuse_untrainable(network):
    """Refuse a network in which all weights are frozen or unused."""
    if not any(p.requires_grad for p in network.parameters()):
        raise UserError("the network has no weights to train: all are frozen (requires_grad=False) or unused")


@contextmanager
def foreign_code(sentence):
    """Turn what a plugin's code raises, which may be anything, into a sentence."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{sentence} ({describe(error)})") from error


@contextmanager
def named_errors(run):
    """Say which network an error is about and where it comes from."""
    try:
        yield
    except UserError as error:
        raise UserError(f"arch={run.arch} ({origin(run)}) with method={run.method}: {error}") from error


def origin(run):
    """Return where the run's network comes from: the module that registers it, or the `_target_` in its YAML."""
    from rbue.networks import ARCHS

    if run.network is not None:
        return run.network.get("_target_", "network without _target_")
    return ARCHS[run.arch].__module__ if run.arch in ARCHS else "not registered"


def draws_samples(name):
    """Whether the method averages `samples` predictions. If it does not, it declares `samples: int = unused()`."""
    (samples,) = (f for f in fields(METHODS.get(name, Run)) if f.name == "samples")
    return samples.metadata["part"] != "unused"


def complete(identity):
    """Add the neutral values that an identity leaves out: an absent setting has its neutral value."""
    schema = METHODS.get(identity["method"], Run)
    neutral = {f.name: f.metadata["neutral"] for f in fields(schema) if f.metadata["neutral"] is not MISSING}
    return neutral | identity


for _file in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_file.name}")
