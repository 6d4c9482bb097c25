"""How far a node is from its baseline on one task set."""

import math
from dataclasses import dataclass
from enum import StrEnum

from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.verdict import Interval


class Estimator(StrEnum):
    """Which lower bound on KL(P||Q) a number is; results of different estimators are never compared."""

    BUCKET = "bucket"
    SHARP = "sharp"
    EXACT_IDS = "exact_ids"


class Dimension(StrEnum):
    """By what the positions of a task set are told apart."""

    DEPTH = "depth"
    LENGTH = "length"
    LANGUAGE = "language"
    PROTOCOL = "protocol"
    RANK = "rank"


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


NOTHING = Estimate(math.nan)
"""An estimate of no positions at all."""


KL_BOUNDS = (
    *(1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3),
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
)
"""Upper bounds in nats of the cells of a Spread, three a decade."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How the KL of single positions is spread over the cells of KL_BOUNDS, and one more for all that is over them.

    counts: positions in each cell, its upper bound included. largest: the largest KL in each, NaN in an empty one.
    total: sum over all positions. All in nats.
    """

    counts: tuple[int, ...]
    largest: tuple[float, ...]
    total: float


@dataclass(frozen=True, slots=True)
class Slice:
    """The numbers of a part of a task set, as in Divergence.

    dimension, value: which part. depth: `early` (the first 16 tokens of the answer), `middle` (up to 64), `late`.
    length, language: of the prompt. protocol: `yes` where the answer's token belongs to a protocol (braces, tags), else
    `no`. rank: the data-parallel rank that answered.
    """

    dimension: Dimension
    value: str
    prompts: int
    distinct_prompts: int
    positions: int
    kl_mean: Estimate
    perplexity_ratio: Estimate
    top1_agreement: Estimate

    @property
    def name(self) -> str:
        """How messages call it: `language zh`."""
        return f"{self.dimension} {self.value}"


@dataclass(frozen=True, slots=True)
class Divergence:
    """KL, perplexity and agreement of a node against its baseline over n positions, KL in nats.

    prompts: draws; distinct_prompts: how many different prompts they were.

    kl_*: lower bounds on KL(baseline || node) over the whole vocabulary. perplexity_ratio: node / baseline on the
    golden continuation. logprob_delta: mean of node minus baseline there, in nats; its negative is the logarithm of the
    ratio. entropy_*: mean entropy in nats of the listed tokens and one cell for the rest, a lower bound. topk_overlap:
    mean share of the top k that both sides list. variation_low, variation_high: the mean total variation distance is
    within them. slices: the same numbers by part. top1_agreement: share of positions with the same most probable token.
    tail_mass_*: mean probability outside the listed tokens. coverage: mean baseline probability on tokens that both
    sides list.
    uninformative_positions: coverage under the limit; their bound says little. spread: the KL of single positions.
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
    logprob_delta: Estimate = NOTHING
    entropy_baseline: float = math.nan
    entropy_node: float = math.nan
    topk_overlap: float = math.nan
    variation_low: float = math.nan
    variation_high: float = math.nan
    slices: tuple[Slice, ...] = ()
    spread: Spread | None = None
