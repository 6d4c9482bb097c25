"""How far a node is from its baseline on one task set."""

from dataclasses import dataclass
from enum import StrEnum

from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.verdict import Interval


class Estimator(StrEnum):
    """Which lower bound on KL(P||Q) a number is; results of different estimators are never compared."""

    BUCKET = "bucket"


class Evidence(StrEnum):
    """Whether the prompts are a random draw from a pool or all there is.

    A draw carries sampling error, so a limit is breached only when the interval says so. A census (ready sequences
    given by the user) is measured completely, so its own figures decide.
    """

    DRAW = "draw"
    CENSUS = "census"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its interval over prompts; None where fewer than two prompts leave no interval."""

    value: float
    interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class Divergence:
    """KL, perplexity and agreement of a node against its baseline over n positions, KL in nats.

    prompts: draws; distinct_prompts: how many different prompts they were.

    kl_*: lower bounds on KL(baseline || node) over the whole vocabulary. perplexity_ratio: node / baseline on the
    golden continuation. top1_agreement: share of positions with the same most probable token. tail_mass_*: mean
    probability outside the listed tokens. coverage: mean baseline probability on tokens that both sides list.
    uninformative_positions: coverage under the limit; their bound says little.
    """

    estimator: Estimator
    mode: ProbeMode
    k: int
    evidence: Evidence
    prompts: int
    distinct_prompts: int
    positions: int
    kl_mean: Estimate
    kl_p99: Estimate
    kl_median: float
    kl_max: float
    perplexity_baseline: float
    perplexity_node: float
    perplexity_ratio: Estimate
    top1_agreement: Estimate
    tail_mass_baseline: float
    tail_mass_node: float
    coverage: float
    uninformative_positions: int
    corrupted_positions: int
