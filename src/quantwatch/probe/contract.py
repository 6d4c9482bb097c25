"""What a prober of any server kind can do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from quantwatch.flow.distribution import Distribution
from quantwatch.flow.identity import Identity
from quantwatch.flow.prompt import GoldenSequence, ProbeMode, Prompt


@dataclass(frozen=True, slots=True)
class Ask:
    """How a sequence is to be asked about.

    positions: for the one-token modes, the indices in the sequence whose distributions are wanted, ascending.
    """

    mode: ProbeMode
    k: int
    positions: tuple[int, ...] = ()


class Prober(Protocol):
    """One server, asked in its own dialect. Every method raises a ProbeError when there is no usable answer.

    raw_proven: set by the handshake once a reply has shown raw log-probabilities; from then on a sentinel among the top
    k proves corruption.
    """

    raw_proven: bool

    @property
    def name(self) -> str:
        """How messages call the server."""
        ...

    @property
    def blind(self) -> bool:
        """Whether probes went out without knowing the server's load."""
        ...

    async def identify(self) -> Identity:
        """Ask who the server is. Raises Misconfigured when it does not serve the model asked for."""
        ...

    async def tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        """Token ids of a golden prompt, through the server's own tokenizer and chat template."""
        ...

    async def tokenize_text(self, text: str, *, special: bool) -> tuple[int, ...]:
        """Token ids of bare text. special: whether the server adds its beginning-of-sequence token."""
        ...

    async def generate(self, ids: Sequence[int], *, limit: int) -> tuple[int, ...]:
        """Continue greedily by at most `limit` tokens."""
        ...

    async def distribution(self, sequence: GoldenSequence, ask: Ask) -> Distribution:
        """Top-k log-probabilities of a golden sequence."""
        ...
