"""The settings of limits: by scheme, by task set, by part of a task set. Starting values stand here."""

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, model_validator

from quantwatch.config.strict import Name, Strict
from quantwatch.config.units import Number, Share
from quantwatch.flow.divergence import Dimension
from quantwatch.flow.prompt import LengthBucket
from quantwatch.flow.verdict import Limit, Metric


class Scheme(StrEnum):
    """Quantization schemes with their own starting limits."""

    INT8 = "int8"
    INT4 = "int4"
    FP8 = "fp8"


_OVER_ONE: dict[str, Any] = {"ge": 0, "json_schema_extra": {"exclusiveMinimum": 1}}
"""What editors are told; the sentence for people is in _above_one."""


class UpperLimit(Strict):
    """A limit on a number that is bad when it is large."""

    warn: Number | None = Field(None, ge=0, description="A value over it is a warning; nothing acts on one")
    critical: Number | None = Field(None, ge=0, description="A breach when the whole interval is over it")

    @model_validator(mode="after")
    def _order(self) -> "UpperLimit":
        if self.warn is not None and self.critical is not None and self.warn > self.critical:
            raise ValueError(f"impossible limit: warn {self.warn:g} is over critical {self.critical:g}")
        return self

    def value(self) -> Limit:
        """The limit as a noun."""
        return Limit(self.warn, self.critical)


class RatioLimit(UpperLimit):
    """A limit on perplexity of the node over perplexity of the baseline; 1 means equal."""

    warn: Number | None = Field(None, description="A value over it is a warning; nothing acts on one", **_OVER_ONE)
    critical: Number | None = Field(None, description="A breach when the whole interval is over it", **_OVER_ONE)

    @model_validator(mode="after")
    def _above_one(self) -> "RatioLimit":
        for name, value in (("warn", self.warn), ("critical", self.critical)):
            if value is not None and value <= 1:
                raise ValueError(
                    f"impossible limit: {name} {value:g}; a ratio limit must be over 1, where node equals baseline"
                )
        return self


class AgreementLimit(Strict):
    """A limit on a share that is bad when it is small."""

    warn: Share | None = Field(None, description="A value under it is a warning; nothing acts on one")
    critical: Share | None = Field(None, description="A breach when the whole interval is under it")

    @model_validator(mode="after")
    def _order(self) -> "AgreementLimit":
        if self.warn is not None and self.critical is not None and self.warn < self.critical:
            raise ValueError(
                f"impossible limit: warn {self.warn:g} is under critical {self.critical:g}; agreement falls"
            )
        return self

    def value(self) -> Limit:
        """The limit as a noun."""
        return Limit(self.warn, self.critical)


class LimitSettings(Strict):
    """Limits of one task set or scheme; what is left out comes from the next wider place."""

    kl_mean: UpperLimit | None = Field(None, description="Mean KL divergence from the baseline, in nats")
    kl_p99: UpperLimit | None = Field(
        None, description="99th percentile of the KL divergence over positions, in nats; no built-in limit"
    )
    perplexity_ratio: RatioLimit | None = Field(None, description="Perplexity over that of the baseline; 1 is equal")
    top1_agreement: AgreementLimit | None = Field(
        None, description="Share of positions where both give the same token the highest probability"
    )

    def values(self) -> dict[Metric, Limit]:
        """The limits that are given, by metric."""
        given = {metric: getattr(self, metric.value) for metric in Metric}
        return {metric: limit.value() for metric, limit in given.items() if limit is not None}


class SliceSettings(Strict):
    """Limits of parts of a task set, by value; a part without limits of its own is shown and never judged."""

    depth: dict[Literal["early", "middle", "late"], LimitSettings] = Field(
        default_factory=dict, description="Tokens 1 to 16 of the answer, 17 to 64, and the later ones"
    )
    length: dict[LengthBucket, LimitSettings] = Field(default_factory=dict, description="How long the prompt is")
    language: dict[Name, LimitSettings] = Field(
        default_factory=dict, description="Language of the prompt, as its file says"
    )
    protocol: dict[Literal["yes", "no"], LimitSettings] = Field(
        default_factory=dict, description="Tokens that the prompts file lists under protocol, and all others"
    )
    rank: dict[Name, LimitSettings] = Field(default_factory=dict, description="The data-parallel rank that answered")

    @model_validator(mode="after")
    def _no_tail(self) -> "SliceSettings":
        for (dimension, value), limits in self.values().items():
            if Metric.KL_P99 in limits:
                raise ValueError(f"{dimension}.{value}: a part has too few prompts for a limit on kl_p99; remove it")
        return self

    def values(self) -> dict[tuple[Dimension, str], dict[Metric, Limit]]:
        """The limits that are given, by dimension and value."""
        return {
            (dimension, str(value)): limits.values()
            for dimension in Dimension
            for value, limits in getattr(self, dimension.value).items()
        }


def _limits(kl: tuple[float, float], top1: tuple[float, float], ratio: tuple[float, float]) -> LimitSettings:
    return LimitSettings(
        kl_mean=UpperLimit(warn=kl[0], critical=kl[1]),
        top1_agreement=AgreementLimit(warn=top1[0], critical=top1[1]),
        perplexity_ratio=RatioLimit(warn=ratio[0], critical=ratio[1]),
    )


DEFAULT_LIMITS: dict[Scheme, LimitSettings] = {
    Scheme.INT8: _limits((0.01, 0.05), (0.96, 0.94), (1.01, 1.02)),
    Scheme.FP8: _limits((0.01, 0.05), (0.96, 0.94), (1.01, 1.02)),
    Scheme.INT4: _limits((0.06, 0.13), (0.89, 0.85), (1.05, 1.08)),
}
"""Starting limits from full-vocabulary figures of 7B and larger models, so a lower bound errs to fewer alarms."""


def limits_for(scheme: Scheme, *layers: LimitSettings) -> dict[Metric, Limit]:
    """Limits of a scheme, each metric taken from the narrowest layer that gives it (later layers are narrower)."""
    merged = DEFAULT_LIMITS[scheme].values()
    for layer in layers:
        merged |= layer.values()
    return merged
