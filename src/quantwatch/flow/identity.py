"""Who a server says it is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """What a server tells about itself.

    started: process start in seconds since 1970, from its /metrics. tokenizer: digest of its ids for awkward texts.
    Fields are None where the server does not say.
    """

    name: str
    url: str
    model: str
    root: str | None = None
    max_model_len: int | None = None
    version: str | None = None
    started: float | None = None
    tokenizer: str | None = None
