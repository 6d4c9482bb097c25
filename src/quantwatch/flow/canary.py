"""What a node's free answers and distributions look like, and what is odd about them."""

from dataclasses import dataclass
from enum import StrEnum


class Sign(StrEnum):
    """One kind of oddity. What each stands for: docs/measurement.md, section "Text canary"."""

    ONE_ID = "one_id"
    ID_ZERO = "id_zero"
    LOOP = "loop"
    REPLACEMENT_FLOOD = "replacement_flood"
    SCRIPT_SALAD = "script_salad"
    REPETITION = "repetition"
    REPLACEMENT = "replacement"
    FOREIGN_SCRIPT = "foreign_script"
    LENGTH = "length"
    EMPTY = "empty"
    NOT_JSON = "not_json"
    TOOL_CALL_AS_TEXT = "tool_call_as_text"
    UNKNOWN_NAME = "unknown_name"
    SCHEMA_MISMATCH = "schema_mismatch"
    ENTROPY_HIGH = "entropy_high"
    ENTROPY_LOW = "entropy_low"
    TOP1_LOW = "top1_low"
    ZERO_DRIFT = "zero_drift"


class Weight(StrEnum):
    """What a sign may do. A proof that two prompts show makes a node corrupted; a warning never acts.

    A loop is a warning, and as good as a proof once several prompts in a row show one (flows/canary.py).
    """

    PROOF = "proof"
    WARNING = "warning"
    NOTE = "note"


PROOFS = frozenset({Sign.ONE_ID, Sign.ID_ZERO, Sign.REPLACEMENT_FLOOD, Sign.SCRIPT_SALAD})
"""What no healthy model shows where its baseline, asked the same, does not."""


STRUCTURE = frozenset({Sign.NOT_JSON, Sign.TOOL_CALL_AS_TEXT, Sign.UNKNOWN_NAME, Sign.SCHEMA_MISMATCH})
"""What is wrong with an answer that should satisfy a schema."""


def weight_of(sign: Sign) -> Weight:
    """What a sign may do."""
    if sign in PROOFS:
        return Weight.PROOF
    return Weight.NOTE if sign is Sign.ZERO_DRIFT else Weight.WARNING


@dataclass(frozen=True, slots=True)
class FreeAnswer:
    """A greedy answer to a prompt.

    ids: generated token ids. text: what they mean. limit: tokens that were allowed. finish_reason: as the server says.
    """

    ids: tuple[int, ...]
    text: str
    limit: int
    finish_reason: str | None = None

    @property
    def cut(self) -> bool:
        """Whether the limit ended it. A server that gives no reason has used up its tokens, or it has not."""
        return self.finish_reason == "length" or (self.finish_reason is None and len(self.ids) >= self.limit)

    @property
    def ended(self) -> bool:
        """Whether the server says that the model ended it."""
        return self.finish_reason is not None and not self.cut

    @property
    def blank(self) -> bool:
        """Whether it holds no text."""
        return not self.text.strip()


@dataclass(frozen=True, slots=True)
class Seen:
    """A sign, and the sentence that tells it. prompt_id: None where it is about all prompts of a set."""

    sign: Sign
    said: str
    prompt_id: str | None = None

    @property
    def weight(self) -> Weight:
        """What it may do."""
        return weight_of(self.sign)


@dataclass(frozen=True, slots=True)
class Canary:
    """What one task set's free answers and distributions showed of one node.

    answers: free answers that came. structured: those of them that were held against a schema. seen: signs that the
    baseline, asked the same, does not show.
    """

    answers: int = 0
    structured: int = 0
    seen: tuple[Seen, ...] = ()


NO_CANARY = Canary()
"""Nothing was answered freely, and nothing was odd."""
