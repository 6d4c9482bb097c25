"""Distributions of KL values as a picture. Needs the extra `plots`; nothing else here imports matplotlib."""

import importlib.util
import io
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from quantwatch.cli.text_plot import limit_marks
from quantwatch.errors import InputError
from quantwatch.flow.calibration import BINS_A_DECADE, LOWEST_DECADE, Calibrated, SetCalibration, Spread
from quantwatch.record.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LIBRARY = "matplotlib"
STYLES = ("solid", "dashed", "dotted", "solid", "solid")
"""Distributions of servers against themselves often lie on one another."""


def require_plots(library: str = LIBRARY) -> None:
    """Raise InputError unless pictures can be drawn. Imports nothing, so it costs no time."""
    if importlib.util.find_spec(library) is None:
        raise InputError("--plot needs the extra package matplotlib: pip install 'quantwatch[plots]'")


def write_plot(whole: Calibrated, path: Path) -> None:
    """One panel a target and task set: distributions on a logarithmic axis, proposed limits as lines.

    Raises InputError when the file cannot be written.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    sets = [one for one in whole.sets if one.spreads]
    figure = Figure(figsize=(8.0, 1.2 + 2.6 * max(len(sets), 1)), layout="constrained")
    for number, one in enumerate(sets, 1):
        _panel(figure.add_subplot(len(sets), 1, number), one)
    figure.suptitle(f"quantwatch calibrate, {whole.at:%Y-%m-%d %H:%M} UTC")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    try:
        write_whole(path, picture.getvalue())
    except OSError as exc:
        raise InputError(f"{path}: cannot be written: {exc.strerror}") from exc


def _panel(axes: "Axes", one: SetCalibration) -> None:
    for spread, style in zip(one.spreads, cycle(STYLES), strict=False):
        edges, heights = _steps(spread)
        axes.stairs(heights, edges, label=f"{spread.name} (median {spread.median:.2g})", linestyle=style)
    for letter, value in limit_marks(one):
        axes.axvline(value, color="black" if letter == "c" else "grey", linestyle="--", linewidth=1.0)
        said = {"w": "warn ", "c": "critical "}[letter]
        axes.text(value, 1.0, said, transform=axes.get_xaxis_transform(), rotation=90, ha="right", va="top")
    axes.set_xscale("log")
    axes.set_title(one.name)
    axes.set_xlabel("KL in nats; exact zeros stand at the left end")
    axes.set_ylabel("share of values")
    axes.legend(fontsize="small")


def _steps(spread: Spread) -> tuple[list[float], list[float]]:
    """Bin edges in nats and the share of the values in each bin; exact zeros stand in the first."""
    total = max(spread.total, 1)
    edges = [10.0 ** (LOWEST_DECADE + i / BINS_A_DECADE) for i in range(len(spread.counts) + 1)]
    heights = [count / total for count in spread.counts]
    heights[0] += spread.zeros / total
    return edges, heights
