"""Activations as pictures: a histogram for each place of a layer, and a heat map of channels over layers."""

import io
from collections.abc import Mapping, Sequence

import matplotlib as mpl
from torch import Tensor

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "quantwatch"  # the same numbers give the same file
from matplotlib.figure import Figure  # noqa: E402, the backend is chosen before
from matplotlib.ticker import MaxNLocator  # noqa: E402, as above

from quantwatch.toolkit.growth import Layer  # noqa: E402
from quantwatch.toolkit.statistics import TENSOR_BINS  # noqa: E402

WIDTH = 9.0


def heat_map(places: Mapping[str, Tensor]) -> Figure:
    """log10 of the absmax of every channel in every layer, a panel a place. places: (layers, channels) each."""
    figure = Figure(figsize=(WIDTH, 1.0 + 2.2 * len(places)), layout="constrained")
    for number, (place, absmax) in enumerate(places.items(), 1):
        axes = figure.add_subplot(len(places), 1, number)
        floor = max(float(absmax.max()) * 1e-6, 1e-12)
        values = absmax.clamp(min=floor).log10()
        shown = axes.imshow(values.tolist(), aspect="auto", interpolation="nearest", cmap="magma")
        axes.set_title(place, fontsize="medium")
        axes.set_ylabel("layer")
        figure.colorbar(shown, ax=axes, label="log10 max|x|")
    figure.axes[-2].set_xlabel("channel")
    return figure


def histograms(places: Mapping[str, Tensor], *, octaves: int = 32) -> Figure:
    """How often |x| was how large, a panel a place; the INT8 scale of one tensor is marked, and its half.

    places: counts in TENSOR_BINS, (number,) each. What is left of the half rounds to 0. octaves: bars a panel.
    """
    figure = Figure(figsize=(WIDTH, 1.0 + 2.0 * len(places)), layout="constrained")
    step = TENSOR_BINS.number // octaves // 4
    edges = TENSOR_BINS.edges()[::step].clone()
    edges[0] = edges[1] / 2  # a logarithmic axis has no 0
    for number, (place, counts) in enumerate(places.items(), 1):
        axes = figure.add_subplot(len(places), 1, number)
        heights = counts.view(-1, step).sum(1).double() / max(int(counts.sum()), 1)
        axes.stairs(heights.tolist(), edges.tolist(), fill=True, alpha=0.6)
        scale = _largest(counts) / 127
        axes.axvline(scale, color="black", linewidth=1.0, label=f"one INT8 step, S = {scale:.3g}")
        axes.axvline(scale / 2, color="grey", linewidth=1.0, linestyle="--", label="below it everything rounds to 0")
        axes.set_xscale("log")
        axes.set_title(place, fontsize="medium")
        axes.set_ylabel("share")
        axes.legend(fontsize="small")
    figure.axes[-1].set_xlabel("|x|, all layers; exact zeros stand at the left end")
    return figure


def growth_curve(name: str, layers: Sequence[Layer]) -> Figure:
    """Error and drift behind every layer, and what each layer adds to the drift."""
    figure = Figure(figsize=(WIDTH, 5.0), layout="constrained")
    numbers = [one.number for one in layers]
    above, below = figure.add_subplot(2, 1, 1), figure.add_subplot(2, 1, 2)
    above.plot(numbers, [100 * one.relative for one in layers], marker="o", markersize=3)
    above.set_ylabel("mean |error|, % of |value|")
    above.set_title(f"{name}: the residual stream behind each layer", fontsize="medium")
    below.bar(numbers, [one.added for one in layers], alpha=0.6, label="added in the layer")
    below.plot(numbers, [one.drift for one in layers], color="black", label="so far")
    below.set_ylabel("1 - mean cosine")
    below.set_xlabel("layer")
    below.legend(fontsize="small")
    return figure


def observer_curves(name: str, curves: Mapping[str, Sequence[tuple[int, float]]]) -> Figure:
    """Mean KL over the number of calibration prompts, a line an observer; both axes are logarithmic."""
    figure = Figure(figsize=(WIDTH, 4.5), layout="constrained")
    axes = figure.add_subplot(1, 1, 1)
    for observer, points in curves.items():
        axes.plot([at for at, _ in points], [max(kl, 1e-9) for _, kl in points], marker="o", label=observer)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("calibration prompts")
    axes.set_ylabel("mean KL in nats")
    axes.set_title(name, fontsize="medium")
    axes.legend(fontsize="small")
    return figure


def limit_bars(title: str, values: Mapping[str, tuple[float, float, float]], limits: Mapping[str, float]) -> Figure:
    """A number for each name with its interval, (value, low, high), and the limit that it is held against."""
    figure = Figure(figsize=(WIDTH, 1.2 + 0.4 * len(values)), layout="constrained")
    axes = figure.add_subplot(1, 1, 1)
    places = range(len(values))
    ends = [[max(value - low, 0.0) for value, low, _ in values.values()]]
    ends += [[max(high - value, 0.0) for value, _, high in values.values()]]
    axes.barh(places, [value for value, _, _ in values.values()], xerr=ends, alpha=0.6, capsize=3)
    for place, name in enumerate(values):
        if name in limits:
            axes.plot([limits[name]] * 2, [place - 0.4, place + 0.4], color="black", linewidth=2.0)
    axes.set_yticks(places, list(values))
    axes.invert_yaxis()
    axes.set_xlabel(f"mean KL in nats, with its interval{'; black: the critical limit' if limits else ''}")
    axes.set_title(title, fontsize="medium")
    return figure


def cause_bars(title: str, alone: Sequence[float], along: Sequence[Layer]) -> Figure:
    """What each layer does alone, and the error of the residual stream behind it with all of them quantized."""
    figure = Figure(figsize=(WIDTH, 5.0), layout="constrained")
    above, below = figure.add_subplot(2, 1, 1), figure.add_subplot(2, 1, 2)
    above.bar(range(len(alone)), alone, alpha=0.6)
    above.set_ylabel("mean KL of the layer alone")
    above.set_title(title, fontsize="medium")
    below.plot([one.number for one in along], [100 * one.relative for one in along], marker="o", markersize=3)
    below.set_ylabel("error of the stream, %")
    below.set_xlabel("layer")
    for axes in (above, below):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _largest(counts: Tensor) -> float:
    """Upper edge of the last bin that holds anything."""
    held = counts.nonzero()
    return float(TENSOR_BINS.edges()[int(held[-1]) + 1]) if len(held) else 0.0


def drawn(figure: Figure, kinds: Sequence[str]) -> dict[str, bytes]:
    """The figure as files: `png`, `svg`."""
    return {kind: _drawn(figure, kind) for kind in kinds}


def _drawn(figure: Figure, kind: str) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format=kind, dpi=110, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()
