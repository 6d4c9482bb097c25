"""What a run keeps of single tokens, so that people can see where the answers went apart."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from quantwatch.flow.prompt import ProbeMode


class PromptsShown(StrEnum):
    """How much of golden prompts is kept and shown: token ids and what they mean, ids alone, or nothing of tokens."""

    FULL = "full"
    IDS = "ids"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that a server listed. logprob: natural logarithm of its probability."""

    id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenSeen:
    """One position of a golden sequence as both servers saw it.

    position: index in the sequence of the token that is predicted. id: that token. kl: the lower bound on
    KL(baseline || node) in nats, None where the node's numbers are broken. logprob_*: of the token itself, None where a
    server did not list it. baseline, node: what each listed, the most probable first. tail_*: probability outside of
    what each listed before the lists were cut to be kept. mark: how the node's numbers are broken, None where they are
    sound.
    """

    position: int
    id: int
    kl: float | None
    logprob_baseline: float | None
    logprob_node: float | None
    baseline: tuple[Candidate, ...]
    node: tuple[Candidate, ...]
    tail_baseline: float
    tail_node: float
    mark: str | None = None


@dataclass(frozen=True, slots=True)
class PromptSeen:
    """One golden sequence of a run.

    prompt_length: how many of its tokens are the prompt; what is asked is shown by the prompt's id alone. kl_mean,
    kl_max: over its positions in nats, NaN where none is usable. tokens: the positions in order.
    """

    prompt_id: str
    mode: ProbeMode
    prompt_length: int
    kl_mean: float
    kl_max: float
    tokens: tuple[TokenSeen, ...]


@dataclass(frozen=True, slots=True)
class TokensSeen:
    """What is kept of a run. prompts: the worst first. measured: of how many. texts: what ids mean, where it is known.

    texts are there only where the configuration lets words of prompts be shown.
    """

    prompts: tuple[PromptSeen, ...]
    measured: int
    texts: Mapping[int, str] = field(default_factory=dict)
