"""The settings of quantwatch, one model a room. Defaults stand here and nowhere else.

Durations and sizes carry their units in the value (`5m`, `64MiB`); after loading they are seconds and bytes.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from quantwatch.config.access import TokenSettings, on_loopback
from quantwatch.config.gateway import GatewaySettings
from quantwatch.config.limits import LimitSettings, Scheme, SliceSettings
from quantwatch.config.notifications import ChannelSettings
from quantwatch.config.schedule import check_cron
from quantwatch.config.secrets import Secret
from quantwatch.config.server import Listen, Origin, ServerSettings, written
from quantwatch.config.strict import Name, Strict
from quantwatch.config.units import Count, Duration, PositiveDuration, Share, Size
from quantwatch.config.windows import WindowSettings
from quantwatch.flow.decision import Lane, PoolMode
from quantwatch.flow.pool import OnFleetDegraded
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.tokens import PromptsShown


class TargetSettings(ServerSettings):
    """A quantized node to watch."""

    name: Name = Field(description="What metrics, history and commands call it; unique")
    scheme: Scheme = Field(description="Its quantization; decides the starting limits")
    pool: Name = Field(description="The pool that it belongs to")
    gateway_name: str | None = Field(None, description="What the gateway calls this node; its URL if left out")
    data_parallel_size: Count = Field(
        1, ge=1, le=64, description="vLLM's own, where one URL stands for several ranks; each is probed by its header"
    )


Rung = Literal["int8", "int4", "fp8", "baseline"]
Step = Annotated[Share, Field(ge=0.01, lt=1)]


class PoolSettings(Strict):
    """Nodes that stand in for one another at the gateway, and how far quantwatch may go with them."""

    mode: PoolMode = Field(PoolMode.OBSERVE, description="How far quantwatch may go on its own")
    max_isolated: Share = Field(0.34, description="Largest share of the pool out of traffic at once, rounded down")
    fallback: str | None = Field(None, description="Who takes the traffic: `baseline` or a target of another pool")
    variants: list[Rung] | None = Field(
        None,
        min_length=2,
        description="The rungs of a ladder, from the cheapest to the most faithful: schemes of the pool's targets, and "
        "`baseline` last if it is one. A breach moves the traffic up, clean runs move it down",
    )
    shift: list[Step] = Field(
        [],
        max_length=10,
        description="Ladder, where the driver can weigh: a target comes back with the first of these shares of its own "
        "weight, takes one more after each clean run of its task sets, and then all; at once if left out",
    )
    task_sets: list[Name] | None = Field(
        None, min_length=1, description="The task sets that judge this pool's targets; all of them if left out"
    )
    fallback_max_waiting: Count = Field(4, ge=0, description="A fallback with more requests waiting takes no traffic")
    fallback_max_kv_usage: Share = Field(0.8, description="A fallback with a fuller KV cache takes no traffic")
    actions_per_hour: Count = Field(4, ge=1, le=1000, description="Most isolations of the pool in any hour")
    storm_share: Share = Field(
        0.5, description="When this share of a pool of three or more breaches at once, nothing acts"
    )
    storm_cooldown: PositiveDuration = written("30m", "How long nothing acts after a storm has passed")
    on_fleet_degraded: OnFleetDegraded = Field(
        OnFleetDegraded.APPROVE,
        description="In a storm with a baseline proven sound: a person is asked about the whole pool (approve), or "
        "isolations go on as the mode has it, up to max_isolated (up_to_cap)",
    )
    release_after: Count = Field(3, ge=1, le=100, description="Clean runs in a row of every task set before a return")
    release_margin: Share = Field(
        0.2,
        description="How far inside the critical limits a clean run must lie to count towards a return, as a share of "
        "their distance from perfect (KL 0, perplexity ratio 1, agreement 1); warning limits hold as well",
    )
    minimum_hold: Duration = written("10m", "Shortest isolation, times the number of isolations so far, at most 8")
    hold_jitter: Share = Field(
        0.25, description="Share of minimum_hold that is added at most, so that nodes do not all return in one moment"
    )
    probation: Duration = written("1h", "How long a node that came back is marked as on probation")
    forgive_after: Duration = written(
        "24h", "Time in traffic with clean results after which one isolation counts no more; 0s for never"
    )
    approval_expires: PositiveDuration = written(
        "4h", "Mode approve: how long a proposal waits, and how long the same wish rests after it was rejected"
    )


class ScheduleSettings(Strict):
    """When a task set runs: every so often, or by a crontab expression in UTC."""

    every: PositiveDuration | None = Field(None, description="Time from one run to the next, 10s at least")
    cron: str | None = Field(None, description="Five fields (minute hour day month weekday), in UTC")

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


class TaskSetSettings(Strict):
    """One task set: which prompts, how often, how they are asked, and where the limits are."""

    prompts: str | None = Field(None, description="A golden prompts file; the shipped set of this name if left out")
    schedule: ScheduleSettings = Field(
        default_factory=lambda: ScheduleSettings.model_validate({"every": "15m"}), description="Every 15m if left out"
    )
    mode: ProbeMode | None = Field(None, description="The mode that the prompts file recommends if left out")
    k: Count = Field(20, ge=1, le=1000, description="Log-probabilities a position; lowered to the servers' cap")
    draw: Count = Field(24, ge=2, le=1000, description="Prompts a run, drawn with replacement")
    draw_at_most: Count = Field(
        96,
        ge=2,
        le=4000,
        description="Where a draw cannot decide, it is enlarged once, up to this",
    )
    continuation_tokens: Count = Field(96, ge=1, le=1024, description="Longest answer of the baseline to score")
    positions: Count = Field(32, ge=1, le=256, description="Positions a prompt in mode one_token")
    confirm_cycles: Count = Field(2, ge=2, le=20, description="Breaches in a row, with fresh draws, that count as one")
    confirm_mode: ProbeMode | None = Field(
        None, description="Mode of the confirming run; one_token for a set in prompt_scoring, else the set's own"
    )
    act_on: list[Lane] = Field(
        [Lane.CORRUPTED, Lane.LIMITS], description="What may lead to isolation: corrupted, limits, both, or nothing"
    )
    limits: LimitSettings = Field(default_factory=LimitSettings, description="Limits of this set, over the scheme's")
    slices: SliceSettings = Field(default_factory=SliceSettings, description="Limits of parts of this set")


class ProbeSettings(Strict):
    """What probes may cost a node."""

    timeout: PositiveDuration = written("2m", "Longest wait for the whole answer to one request")
    connect_timeout: PositiveDuration = written("5s", "Longest wait for a connection")
    max_response_size: Size = written("64MiB", "A larger answer is broken off")
    max_scored_tokens: Count = Field(1024, ge=16, description="Prompt length x concurrency in mode prompt_scoring")
    max_scored_entries: Count = Field(40_960, ge=16, description="Prompt length x k x concurrency")
    max_prompt_tokens: Count = Field(8192, ge=16, description="Tokens of one request in the other modes")
    prefixes_per_request: Count = Field(4, ge=1, le=64, description="Prefixes of one request in mode one_token")
    in_flight: Count = Field(1, ge=1, le=8, description="Requests at once to one server")
    tokens_per_minute: Count = Field(20_000, ge=64, description="Tokens of all probes of one server in any minute")
    max_waiting: Count = Field(0, ge=0, description="A node with more requests waiting is left alone")
    max_kv_usage: Share = Field(0.9, description="A node with a fuller KV cache is left alone")
    patience: Duration = written("30s", "How long to wait for a busy node before skipping")
    run_timeout: PositiveDuration = written("15m", "One run of one task set takes no longer")


class JudgeSettings(Strict):
    """How sure a verdict must be."""

    confidence: Share = Field(
        0.95, gt=0.5, lt=1, description="Chance that a round over all task sets calls no healthy target degraded"
    )


class ReferenceMode(StrEnum):
    """Where the baseline's answers come from."""

    AUTO = "auto"
    STORED = "stored"
    LIVE = "live"


class ReferenceSettings(Strict):
    """The baseline's answers as an artefact: made once by `quantwatch enroll`, then only the nodes are asked."""

    mode: ReferenceMode = Field(
        ReferenceMode.AUTO,
        description="Enrolled answers, the live baseline, or auto: enrolled ones once there are any",
    )
    path: str = written("references", "Folder of the enrolled answers; a relative path starts beside the store")
    k: Count = Field(100, ge=1, le=5000, description="Log-probabilities a position to enroll; lowered to the cap")
    self_check: PositiveDuration = written("1h", "How often the baseline is held against its enrolled answers")


class StoreSettings(Strict):
    """Where runs and decisions are kept."""

    path: str = written(
        "/var/lib/quantwatch/quantwatch.db", "A file on a local disk; a relative path starts beside this file"
    )
    keep: PositiveDuration = written("90d", "Age after which runs are pruned")
    keep_decisions: PositiveDuration = written("400d", "Age after which decisions and transitions are pruned")


class ListenSettings(Strict):
    """Where quantwatch itself listens."""

    listen: Listen = written("0.0.0.0:9469", "Address of metrics, health and verdicts")
    admin_listen: Listen = written("127.0.0.1:9470", "Address of pages and admin calls")
    agent_listen: Listen | None = Field(
        None,
        description="Address where HAProxy's agent-check is answered, by the rule of /verdict; nowhere if left out",
    )
    admin_token: Secret | None = Field(
        None, description="Bearer token of the admin listener with role admin; beyond loopback this or tokens is needed"
    )
    tokens: list[TokenSettings] = Field([], description="Who else may use the admin listener, and how far")
    page: Literal["open", "token"] | None = Field(
        None,
        description="Who may read the pages: whoever reaches them (open), or callers with a token (token); open on "
        "loopback and token elsewhere if left out",
    )
    page_url: Origin | None = Field(
        None,
        description="Where browsers find the pages, as https://HOST, if not at admin_listen itself but through a proxy",
    )
    drain: Duration = written("20s", "How long running probes may go on after SIGTERM")

    @property
    def secured(self) -> bool:
        """Whether any token is configured."""
        return self.admin_token is not None or bool(self.tokens)

    @model_validator(mode="after")
    def _token_beyond_loopback(self) -> "ListenSettings":
        if not self.secured and not on_loopback(self.admin_listen):
            raise ValueError(
                f"admin_listen {self.admin_listen} can be reached from elsewhere, so it needs admin_token or tokens"
            )
        if not self.secured and self.page == "token":
            raise ValueError("page: token lets nobody read without admin_token or tokens; give one, or leave page out")
        return self


class ExposeSettings(Strict):
    """How much quantwatch shows."""

    token_histogram: bool = Field(default=True, description="The KL of single positions as a histogram; many series")
    prompts: PromptsShown = Field(
        PromptsShown.IDS,
        description="What is kept and shown of the tokens behind a run: ids and their texts (full), ids alone, or "
        "nothing (off)",
    )

    @field_validator("prompts", mode="before")
    @classmethod
    def _off(cls, value: object) -> object:
        """YAML reads a bare `off` as false."""
        return "off" if value is False else value


class LogSettings(Strict):
    """How quantwatch speaks."""

    format: Literal["auto", "json", "console"] = Field("auto", description="auto: console on a terminal, else JSON")
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least that is told")


class BaselineSettings(ServerSettings):
    """The full-precision server that the nodes are held against."""

    gateway_name: str | None = Field(None, description="What the gateway calls it, when it is a fallback")


class Settings(Strict):
    """The whole configuration file."""

    schema_version: Literal[1] = Field(alias="schema", description="The form of this file")
    baseline: BaselineSettings = Field(description="The full-precision server that the nodes are held against")
    targets: list[TargetSettings] = Field(min_length=1, description="The quantized nodes to watch")
    pools: dict[Name, PoolSettings] = Field(min_length=1, description="Nodes that stand in for one another, by name")
    task_sets: dict[Name, TaskSetSettings] = Field(
        min_length=1, description="What is measured, by name; the name of a shipped set brings its prompts"
    )
    limits: dict[Scheme, LimitSettings] = Field(
        default_factory=dict, description="Limits by scheme, over the built-in ones"
    )
    gateway: GatewaySettings = Field(
        default_factory=GatewaySettings, description="How a node is taken out of traffic and back"
    )
    notifications: list[ChannelSettings] = Field([], description="Who is told of changes, and of which")
    windows: list[WindowSettings] = Field([], description="Times, known beforehand, in which nothing acts")
    probe: ProbeSettings = Field(default_factory=ProbeSettings, description="What probes may cost a node")
    judge: JudgeSettings = Field(default_factory=JudgeSettings, description="How sure a verdict must be")
    references: ReferenceSettings = Field(
        default_factory=ReferenceSettings, description="The baseline's answers as an artefact"
    )
    store: StoreSettings = Field(default_factory=StoreSettings, description="Where runs and decisions are kept")
    server: ListenSettings = Field(default_factory=ListenSettings, description="Where quantwatch itself listens")
    expose: ExposeSettings = Field(default_factory=ExposeSettings, description="How much quantwatch shows")
    logging: LogSettings = Field(default_factory=LogSettings, description="How quantwatch speaks")


def settings_schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of the configuration file."""
    schema = Settings.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "quantwatch configuration", **schema}
