"""What a prober of any server kind can do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from quantwatch.flow.distribution import Distribution
from quantwatch.flow.identity import Identity
from quantwatch.flow.load import Load
from quantwatch.flow.prompt import GoldenSequence, ProbeMode, Prompt
from quantwatch.probe.past import Past


@dataclass(frozen=True, slots=True)
class Ask:
    """How a sequence is to be asked about.

    positions: for the one-token modes, the indices in the sequence whose distributions are wanted, ascending. rank: the
    data-parallel rank that is to answer; None leaves it to the server. cache_salt: separates this request's entries in
    the server's prefix cache from all with another salt; a fresh one forces a cold prefix. ids: for the one-token
    modes, the tokens to be listed at each position in place of the top k, as many at each; on vLLM 0.32 such a request
    changes what other users' requests in the same batch are told.
    """

    mode: ProbeMode
    k: int
    positions: tuple[int, ...] = ()
    rank: int | None = None
    cache_salt: str | None = None
    ids: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Generation:
    """A greedy answer. ids: the generated token ids, an ending special token included.

    text: as the server decoded them, U+FFFD where it sent no valid Unicode. finish_reason: `stop`, `length`, another
    word of the server's, or None where it gave none. seconds: how long it took.
    """

    ids: tuple[int, ...]
    text: str = ""
    finish_reason: str | None = None
    seconds: float = 0.0


class Prober(Protocol):
    """One server, asked in its own dialect. Every method raises a ProbeError when there is no usable answer.

    raw_proven: set by the handshake once a reply has shown raw log-probabilities; from then on a sentinel among the top
    k proves corruption. past: what the handshakes have learned.
    """

    raw_proven: bool
    past: Past

    @property
    def ranks(self) -> int:
        """Data-parallel ranks behind the URL, each of which is probed; 1 where nobody says otherwise."""
        ...

    @property
    def name(self) -> str:
        """How messages call the server."""
        ...

    @property
    def blind(self) -> bool:
        """Whether probes went out without knowing the server's load."""
        ...

    @property
    def restarts(self) -> int:
        """How often another process was met at this address, of any cause."""
        ...

    @property
    def resting(self) -> str | None:
        """Why the server is to be left alone for now; None when it may be asked."""
        ...

    def passed(self) -> None:
        """Note that a whole window of probes has passed without a restart."""
        ...

    def insisting(self) -> "Prober":
        """The same server, asked also while it is busy; within the budget all the same."""
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

    async def token_strings(self, text: str) -> tuple[tuple[int, str], ...]:
        """Id and text of each token of bare text, as the server's tokenizer writes it."""
        ...

    async def token_text(self, token: int) -> str:
        """What one id means by itself, as the server writes it."""
        ...

    async def generate(self, ids: Sequence[int], *, limit: int, rank: int | None = None) -> Generation:
        """Continue greedily by at most `limit` tokens."""
        ...

    async def distribution(self, sequence: GoldenSequence, ask: Ask) -> Distribution:
        """Top-k log-probabilities of a golden sequence."""
        ...

    async def listed(
        self, ids: Sequence[int], *, k: int, temperature: float, rank: int | None = None
    ) -> dict[int, float]:
        """Values by token id of the first token after a prompt, as the server lists them, whatever they mean."""
        ...

    async def vocabulary(self) -> int | None:
        """How many token ids the model has; None where that cannot be learned without asking the model."""
        ...

    async def glimpse(self) -> Load | None:
        """Load and process as seen over a fresh connection; None when it does not tell. Never raises for trouble."""
        ...

    async def load(self) -> Load | None:
        """How busy the server is right now; None when it does not tell. Never raises for trouble of the server."""
        ...
