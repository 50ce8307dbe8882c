"""How uncertainty is estimated (Section 3.3): a real test image, its sampled predictions, their mean, its entropy."""

import base64
from io import BytesIO
from math import log

import numpy as np
import pandas as pd
from matplotlib.image import imread
from matplotlib.patches import ConnectionPatch

from rbue.report.figures.frames import picked
from rbue.report.figures.style import COLOURS, INK, WIDTH, canvas, head, save, shortened, styled

PASSES, CLASSES = 4, 10  # shown in the figure
ROW = "MC-DropReLU(0.8)"  # its samples differ the most
NAMES = [f"pass {k + 1}" for k in range(PASSES)]
MOSAIC = [["image", ".", name, ".", "mean", ".", "entropy"] for name in NAMES]
WIDTHS = (1.5, 0.25, 1.6, 0.25, 1.9, 0.15, 0.55)  # the narrow columns hold arrows


# --- load, frame ------------------------------------------------------------------------------------------------------


def load(network):
    """Return the run whose example is drawn: ROW, else another DropReLU, else any run with several passes; or None."""
    frame = picked(network, several_passes)
    if frame.empty:
        return None
    far = (frame.row != ROW).astype(int) + (frame.method != "dropreLU")
    return frame.loc[far.idxmin()]


def several_passes(result):
    """Return the numbers of a run, or None: a single pass is no estimate from samples."""
    example = result.example
    return {"example": example, "samples": result.passes} if example and len(example.samples) > 1 else None


def likeliest(example):
    """Return the classes that are drawn, in the dataset's order."""
    return sorted(np.argsort(example.mean)[::-1][:CLASSES].tolist())


def readable(name):
    """Return a class's name as a title: with spaces instead of underscores, and short enough for a panel."""
    return shortened(name.replace("_", " "), 24)


def numbers(run):
    """Return the bars' numbers: one row per (pass, class)."""
    passes = [*enumerate(run.example.samples, 1), ("mean", run.example.mean)]
    return pd.DataFrame(
        {"row": run.row, "image": run.example.index, "pass": k, "class": name, "probability": probability}
        for k, probabilities in passes
        for name, probability in zip(run.example.classes, probabilities, strict=True)
    )


# --- draw -------------------------------------------------------------------------------------------------------------


def arrow(figure, left, right):
    """Draw an arrow from the middle of one panel's right edge to the middle of another's left edge."""
    ends = {"xyA": (1.02, 0.5), "coordsA": left.transAxes, "xyB": (-0.02, 0.5), "coordsB": right.transAxes}
    patch = ConnectionPatch(**ends, arrowstyle="-|>", color=INK, linewidth=0.8, mutation_scale=9)
    patch.set_in_layout(False)
    figure.add_artist(patch)


def bars(axis, probabilities, example, colour):
    """Draw all bars on one scale, up to a little more than the highest probability of any pass."""
    shown, most = likeliest(example), max(map(max, [*example.samples, example.mean]))
    axis.bar(range(len(shown)), [probabilities[k] for k in shown], color=colour, width=0.75)
    axis.set(ylim=(0, 1.05 * most), xticks=[], yticks=[], xlim=(-0.6, len(shown) - 0.4))
    axis.grid(visible=False)


def show_image(axis, example):
    axis.imshow(imread(BytesIO(base64.b64decode(example.png)), format="png"), interpolation="nearest", cmap="gray")
    axis.set(xticks=[], yticks=[], title=f"Test image {example.index}:\n{readable(example.label)}")
    axis.spines[:].set_visible(False)
    axis.grid(visible=False)


def show_mean(axis, example, colour):
    bars(axis, example.mean, example, colour)
    names, most = [readable(name) for name in example.classes], int(np.argmax(example.mean))
    rotation = 90 if max(map(len, names)) > 2 else 0
    axis.set_xticks(range(len(likeliest(example))), [names[k] for k in likeliest(example)], rotation=rotation)
    axis.set_title(f"Mean of all passes:\n{names[most]}, {example.mean[most]:.0%}")
    axis.set_ylabel("Probability", loc="top")  # arrows end below it


def show_entropy(axis, example):
    """Draw a gauge from zero to the maximal entropy."""
    most = log(len(example.classes))
    axis.bar([0], [example.entropy], color=(INK, 0.6), width=0.5)
    axis.set(ylim=(0, most), xlim=(-0.6, 0.6), xticks=[], title=f"Entropy:\n{example.entropy:.2f} nats")
    axis.set_yticks([0, most], ["0", f"ln {len(example.classes)}"])
    axis.grid(visible=False)


def height(example):
    """Return the figure's height in inches. The names below the bars take the panels' room if they are long."""
    longest = max(len(readable(example.classes[k])) for k in likeliest(example))
    return 4 + 0.1 * max(0, longest - 13)


@styled
def diagram(run, title):
    figure, axes = canvas(WIDTH, height(run.example), MOSAIC, width_ratios=WIDTHS)
    example, colour = run.example, COLOURS[run.method]
    show_image(axes["image"], example)
    for name in NAMES[len(example.samples) :]:
        axes[name].set_axis_off()
    for name, probabilities in zip(NAMES, example.samples, strict=False):
        bars(axes[name], probabilities, example, colour)
        axes[name].set_title(name, loc="right", pad=1)
        arrow(figure, axes["image"], axes[name])
        arrow(figure, axes[name], axes["mean"])
    show_mean(axes["mean"], example, colour)
    show_entropy(axes["entropy"], example)
    arrow(figure, axes["mean"], axes["entropy"])
    head(figure, title)
    return figure


def draw(network, folder):
    run = load(network)
    if run is None:
        return []
    title = f"{network.title()}: {run.row}, {len(run.example.samples)} of {run.samples} passes"
    title += "\nbars of a pass: the same classes and the same scale as for the mean"
    return save(diagram(run, title), folder / "framework", numbers(run))
