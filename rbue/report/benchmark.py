"""The benchmark's rows as a table and a figure: ratios first, since milliseconds are the hardware's."""

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

COLUMNS = ("measure", "ms", "images/s", "speed-up", "over", "peak MB", "of limit")


def table(content):
    rows = [COLUMNS, *(cells(row) for row in content["rows"])]
    widths = [max(len(row[k]) for row in rows) for k in range(len(COLUMNS))]
    lines = ["  ".join(justified(row, widths)) for row in rows]
    limit = f"{content['hardware']}: limit {content['matmul_flops'] / 1e12:.1f} TFLOP/s, a large matrix product"
    return "\n".join([limit, *lines])


def justified(row, widths):
    return [
        text.ljust(w) if k in (0, 4) else text.rjust(w) for k, (text, w) in enumerate(zip(row, widths, strict=True))
    ]


def cells(row):
    def shown(key, text):
        return text.format(row[key]) if row.get(key) is not None else "–"

    memory = shown("peak_memory_bytes", "{}")
    return (
        f"{row['group']}: {row['name']}",
        f"{row['ms']:,.2f}",
        shown("images_per_second", "{:,.0f}"),
        times(row["ratio"]) if row.get("ratio") else "–",
        row.get("against") or "–",
        memory if memory == "–" else f"{int(memory) / 1e6:,.0f}",
        shown("share_of_limit", "{:.1%}"),
    )


def times(ratio):
    """Where a few percent matter, they show."""
    return f"{ratio:.3f}×" if ratio < 2 else f"{ratio:,.2f}×"


def draw(content, path):
    """Horizontal bars of every ratio, on a logarithmic axis, the baseline at 1."""
    rows = [row for row in content["rows"] if row.get("ratio")][::-1]
    figure, axis = plt.subplots(figsize=(9, 0.34 * len(rows) + 1.2), layout="constrained")
    labels = [f"{row['group']}: {row['name']}\nover {row['against']}" for row in rows]
    bars = axis.barh(labels, [row["ratio"] for row in rows], color="#0072B2", height=0.6)
    axis.bar_label(bars, [times(row["ratio"]) for row in rows], padding=3, fontsize=7)
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set(xscale="log", xlabel="times as fast", title=content["hardware"])
    axis.tick_params(axis="y", labelsize=6)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=160)
    plt.close(figure)
