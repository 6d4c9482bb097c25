"""What a lab node does to its model, as data. No torch here, so that the command line can read it quickly."""

from dataclasses import dataclass
from enum import StrEnum


class Scheme(StrEnum):
    """How the linear layers of the decoder compute."""

    FP32 = "fp32"
    W8A8 = "w8a8"
    W8A8_STATIC = "w8a8-static"
    W8 = "w8"
    W4_G64 = "w4-g64"


class KvBits(StrEnum):
    """How keys and values are stored."""

    INT8 = "int8"
    INT4 = "int4"


class Observer(StrEnum):
    """How a static activation scale is chosen from what calibration has seen."""

    MINMAX = "minmax"
    HISTOGRAM = "histogram"
    PERCENTILE = "percentile"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that is done to a full-precision model before it serves.

    outliers: factor of the injected outlier channels. smooth: migration strength alpha of SmoothQuant, 0 to 1.
    kv: None stores keys and values as they are. observer: read by w8a8-static alone. seed: draws the outlier channels.
    """

    scheme: Scheme = Scheme.FP32
    outliers: float | None = None
    smooth: float | None = None
    kv: KvBits | None = None
    observer: Observer = Observer.MINMAX
    seed: int = 0

    def describe(self) -> str:
        """One line for people, such as "w8a8, outliers x100, smoothed 0.5"."""
        parts = [f"{self.scheme} ({self.observer})" if self.scheme is Scheme.W8A8_STATIC else str(self.scheme)]
        if self.outliers is not None:
            parts.append(f"outliers x{self.outliers:g}")
        if self.smooth is not None:
            parts.append(f"smoothed {self.smooth:g}")
        if self.kv is not None:
            parts.append(f"kv {self.kv}")
        return ", ".join(parts)

    @property
    def calibrates(self) -> bool:
        """Whether the recipe needs calibration prompts."""
        return self.smooth is not None or self.scheme is Scheme.W8A8_STATIC
