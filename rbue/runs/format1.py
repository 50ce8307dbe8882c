"""Results of format 1 as format 2, which names the precision that was used and leaves out settings without effect."""

from rbue import config, methods
from rbue.methods.mc_dropout import placement_of


def upgrade(content):
    """Convert the content of a format-1 file to format 2: the settings that were used, and the names that follow."""
    settings = used(content)
    named = zip(content.get("trainings") or [], training_names(settings), strict=False)
    trainings = [training | {"name": name} for training, name in named]
    counted = (content.get("reliability") or {}).get("count")  # every test image is in one bin
    known = {"name": config.name_of(settings), "images": sum(counted) if counted else None}
    return content | {"format": 2, "config": settings, "trainings": trainings} | known


def used(content):
    """Return the config with the precision that `precision=auto` chose, without settings that its method ignores."""
    settings = dict(content["config"])
    records = [*(content.get("trainings") or []), content.get("environment") or {}]
    hardware = next((str(r["hardware"]) for r in records if r.get("hardware")), "CPU")
    if settings.get("precision") == "auto":
        settings["precision"] = "fp32" if "CPU" in hardware else "bf16"
    if "placement" in settings:
        settings["placement"] = placement_of(settings["arch"], settings["placement"])
    parts = parts_of(settings["method"])
    return {key: value for key, value in settings.items() if parts.get(key) != "unused"}


def parts_of(method):
    """Return what each setting of a method decides: {its name: "training", "evaluation", "local" or "unused"}."""
    return {name: part for name, part, _ in config.declared(methods.METHODS.get(method, config.Run))}


def training_names(settings):
    """Return the names of a run's trainings, in order. Those of an ensemble are Single runs of consecutive seeds."""
    members = settings.get("members", 1)
    method = "single" if "members" in settings else settings["method"]
    parts = parts_of(method)
    own = {key: value for key, value in settings.items() if parts.get(key) == "training"}
    own |= {"method": method, "dataset": settings["dataset"].removesuffix("_c")}
    return [config.name_of(own | {"seed": settings["seed"] + k}) for k in range(members)]
