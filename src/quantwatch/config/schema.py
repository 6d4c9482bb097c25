"""The settings of quantwatch, one model a room. Defaults stand here and nowhere else.

Durations and sizes carry their units in the value (`5m`, `64MiB`); after loading they are seconds and bytes.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from quantwatch.config.schedule import check_cron
from quantwatch.config.secrets import SECRET_NAME, HeaderValue, Secret
from quantwatch.config.units import Count, Duration, Number, PositiveDuration, Share, Size
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.verdict import Limit, Metric

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", max_length=80)]


def _no_password(url: str) -> str:
    if "@" in urlsplit(url).netloc:
        raise ValueError("a name or password in a URL ends up in messages; use api_key or headers")
    return url


def _port(address: str) -> str:
    port = int(address.rpartition(":")[2])
    if not 1 <= port <= 65535:
        raise ValueError(f"there is no port {port}")
    return address


def _written(default: str, description: str | None = None) -> Any:
    """A default as a person would write it, with its unit."""
    return Field(default, description=description)


Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]+.*$"), AfterValidator(_no_password)]
Listen = Annotated[str, StringConstraints(pattern=r"^[^\s]+:\d{1,5}$"), AfterValidator(_port)]


class Strict(BaseModel):
    """Unknown keys are errors, values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Scheme(StrEnum):
    """Quantization schemes with their own starting limits."""

    INT8 = "int8"
    INT4 = "int4"
    FP8 = "fp8"


class PoolMode(StrEnum):
    """How far quantwatch may go on its own."""

    OBSERVE = "observe"
    DRY_RUN = "dry_run"
    APPROVE = "approve"
    ENFORCE = "enforce"


class TlsSettings(Strict):
    """Certificates for one server: who signs it, and who we are."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    @model_validator(mode="after")
    def _pair(self) -> "TlsSettings":
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file go together")
        return self


class ServerSettings(Strict):
    """An inference server: where it is and how to get in."""

    url: Url
    model: str | None = Field(None, description="Model name at this server; its only model if left out")
    api_key: Secret | None = None
    headers: dict[str, HeaderValue] = Field(default_factory=dict)
    tls: TlsSettings = Field(default_factory=TlsSettings)

    @field_validator("headers", mode="before")
    @classmethod
    def _auth_is_secret(cls, headers: Any) -> Any:
        for name, value in headers.items() if isinstance(headers, dict) else ():
            if SECRET_NAME.search(str(name)) and not str(value).startswith(("env:", "file:")):
                raise ValueError(f"the header {name} looks like a secret; use env:NAME or file:/path")
        return headers


class TargetSettings(ServerSettings):
    """A quantized node to watch."""

    name: Name
    scheme: Scheme
    pool: Name
    gateway_name: str | None = Field(None, description="What the gateway calls this node; its URL if left out")


class PoolSettings(Strict):
    """Nodes that stand in for one another at the gateway."""

    mode: PoolMode = PoolMode.OBSERVE
    max_isolated: Share = Field(0.34, description="Largest share of the pool that may be isolated at once")
    fallback: str | None = Field(None, description="Who takes the traffic: `baseline` or a target of another pool")


class GatewaySettings(Strict):
    """How a node is taken out of traffic."""

    driver: Literal["dry_run", "webhook", "verdict"] = "dry_run"
    url: Url | None = None
    signing_secret: Secret | None = None
    timeout: PositiveDuration = _written("10s")

    @model_validator(mode="after")
    def _webhook_needs_url(self) -> "GatewaySettings":
        if self.driver == "webhook" and self.url is None:
            raise ValueError("driver webhook needs a url")
        if self.driver != "webhook" and self.url is not None:
            raise ValueError(
                f"driver {self.driver} calls nothing, so url has no meaning; remove it or use driver webhook"
            )
        return self


class ScheduleSettings(Strict):
    """When a task set runs: every so often, or by a crontab expression in UTC."""

    every: PositiveDuration | None = None
    cron: str | None = None

    @field_validator("cron")
    @classmethod
    def _cron(cls, value: str | None) -> str | None:
        if value is not None:
            check_cron(value)
        return value

    @model_validator(mode="after")
    def _one(self) -> "ScheduleSettings":
        if (self.every is None) == (self.cron is None):
            raise ValueError("give exactly one of every and cron")
        if self.every is not None and self.every < 10:
            raise ValueError(f"every {self.every:g}s is too often; 10s is the least")
        return self


class UpperLimit(Strict):
    """A limit on a number that is bad when it is large."""

    warn: Number | None = Field(None, ge=0)
    critical: Number | None = Field(None, ge=0)

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

    warn: Share | None = None
    critical: Share | None = None

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

    kl_mean: UpperLimit | None = None
    kl_p99: UpperLimit | None = None
    perplexity_ratio: RatioLimit | None = None
    top1_agreement: AgreementLimit | None = None

    def values(self) -> dict[Metric, Limit]:
        """The limits that are given, by metric."""
        given = {metric: getattr(self, metric.value) for metric in Metric}
        return {metric: limit.value() for metric, limit in given.items() if limit is not None}


class TaskSetSettings(Strict):
    """One task set: which prompts, how often, how they are asked, and where the limits are."""

    prompts: str | None = Field(None, description="A golden prompts file; the shipped set of this name if left out")
    schedule: ScheduleSettings = Field(
        default_factory=lambda: ScheduleSettings.model_validate({"every": "15m"}), description="Every 15m if left out"
    )
    mode: ProbeMode | None = Field(None, description="The mode that the prompts file recommends if left out")
    k: Count = Field(20, ge=1, le=1000)
    draw: Count = Field(24, ge=2, le=1000, description="Prompts a run, drawn with replacement")
    continuation_tokens: Count = Field(96, ge=1, le=1024)
    positions: Count = Field(32, ge=1, le=256, description="Positions a prompt in mode one_token")
    confirm_cycles: Count = Field(2, ge=1, le=20)
    limits: LimitSettings = Field(default_factory=LimitSettings)


class ProbeSettings(Strict):
    """What probes may cost a node."""

    timeout: PositiveDuration = _written("2m")
    connect_timeout: PositiveDuration = _written("5s")
    max_response_size: Size = _written("64MiB")
    max_scored_tokens: Count = Field(1024, ge=16, description="Prompt length x concurrency in mode prompt_scoring")
    max_scored_entries: Count = Field(40_960, ge=16, description="Prompt length x k x concurrency")
    max_prompt_tokens: Count = Field(8192, ge=16, description="Tokens of one request in the other modes")
    prefixes_per_request: Count = Field(4, ge=1, le=64)
    in_flight: Count = Field(1, ge=1, le=8)
    max_waiting: Count = Field(0, ge=0, description="A node with more requests waiting is left alone")
    max_kv_usage: Share = 0.9
    patience: Duration = _written("30s")


class StoreSettings(Strict):
    """Where runs and decisions are kept."""

    path: str = "/var/lib/quantwatch/quantwatch.db"
    keep: PositiveDuration = _written("90d", "Age after which runs are pruned")


class ListenSettings(Strict):
    """Where quantwatch itself listens."""

    listen: Listen = "0.0.0.0:9469"
    admin_listen: Listen = "127.0.0.1:9470"


class LogSettings(Strict):
    """How quantwatch speaks."""

    format: Literal["auto", "json", "console"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


class BaselineSettings(ServerSettings):
    """The full-precision server that the nodes are held against."""

    gateway_name: str | None = Field(None, description="What the gateway calls it, when it is a fallback")


class Settings(Strict):
    """The whole configuration file."""

    schema_version: Literal[1] = Field(alias="schema")
    baseline: BaselineSettings
    targets: list[TargetSettings] = Field(min_length=1)
    pools: dict[Name, PoolSettings] = Field(min_length=1)
    task_sets: dict[Name, TaskSetSettings] = Field(min_length=1)
    limits: dict[Scheme, LimitSettings] = Field(default_factory=dict, description="Limits by scheme, over the defaults")
    gateway: GatewaySettings = Field(default_factory=GatewaySettings)
    probe: ProbeSettings = Field(default_factory=ProbeSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    server: ListenSettings = Field(default_factory=ListenSettings)
    logging: LogSettings = Field(default_factory=LogSettings)


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


def settings_schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of the configuration file."""
    schema = Settings.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "quantwatch configuration", **schema}
