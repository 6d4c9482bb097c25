"""What a lab node says of itself, and what it holds requests against."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quantwatch.lab.refused import Refused, unknown_model

VERSION = "0.32.0"
"""The version of vLLM whose dialect is spoken."""

FINGERPRINT = f"vllm-{VERSION}-quantwatch-lab"
OWNER = "quantwatch-lab"


@dataclass(frozen=True, slots=True)
class Card:
    """name: under which the model is served; root: what was done to it, and the node's fault, in words.

    vocabulary: how many token ids there are. max_logprobs: -1 for all of them.
    """

    name: str
    root: str
    vocabulary: int
    max_model_len: int
    max_logprobs: int = 20

    def check_model(self, asked: object) -> None:
        """Refuse a model that is not served here; none named is fine."""
        if asked is not None and asked != self.name:
            raise unknown_model(str(asked), served=self.name)

    def check_ids(self, ids: Sequence[int]) -> None:
        """Refuse ids that are no tokens."""
        wrong = next((one for one in ids if not 0 <= one < self.vocabulary), None)
        if wrong is not None:
            raise Refused(f"Token id {wrong} is out of vocabulary")

    def check_named_ids(self, field: str, ids: Sequence[int]) -> None:
        """Refuse tokens of a field that are no tokens."""
        wrong = [one for one in ids if not 0 <= one < self.vocabulary]
        if wrong:
            said = f"token_id(s) {wrong[:5]} in {field} contain out-of-vocab token ids"
            raise Refused(f"{said}. Vocabulary size: {self.vocabulary}", param=field)

    def model_list(self, *, created: int, permission: str) -> dict[str, Any]:
        """The reply of /v1/models."""
        allowed = {"allow_create_engine": False, "allow_sampling": True, "allow_logprobs": True}
        closed = {"allow_search_indices": False, "allow_view": True, "allow_fine_tuning": False}
        head = {"id": permission, "object": "model_permission", "created": created}
        card = {
            "id": self.name,
            "object": "model",
            "created": created,
            "owned_by": OWNER,
            "root": self.root,
            "parent": None,
            "max_model_len": self.max_model_len,
            "permission": [head | allowed | closed | {"organization": "*", "group": None, "is_blocking": False}],
        }
        return {"object": "list", "data": [card]}
