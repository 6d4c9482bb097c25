"""Every exception of the product.

QuantwatchError
├── InputError            the user's files or arguments are at fault: exit code 3
│   ├── ConfigError       carries every problem of a file at once
│   ├── PromptError       a golden prompt file or a sequences file
│   └── NeedsForce        a person's order that is refused, and carried out all the same where it is forced
├── StoreError            the store cannot be read or written; nothing acts until it can
├── GatewayError          a call to the gateway did not do what was asked
│   ├── GatewayUnavailable  no answer, or one that asks to come again: tried again with the same decision id
│   └── GatewayRefused      it said no; asking again cannot help
└── ProbeError            one request gave no usable answer; says whose fault and whether asking again can help
    ├── NodeUnreachable   the request never completed: unknown
    ├── NodeTimeout       no answer in time: unknown
    ├── NodeFailed        5xx, or a reply cut short or over the size limit: unknown
    ├── NodeRestarted     another process answers than at the beginning of the run: unknown
    ├── NodeBusy          429, 503 or the load gate: skipped
    ├── Misconfigured     401, 403, 404, wrong model: a person has to act
    ├── OverCap           the server allows fewer logprobs than asked for; asked again with fewer
    ├── OverBudget        the probe would cost the node more than its budget allows: skipped
    ├── ReplyInvalid      the answer cannot be used as a measurement: never the node's quality
    └── ReplyCorrupted    the answer proves broken numbers inside the model
"""

from collections.abc import Sequence
from dataclasses import dataclass


class QuantwatchError(Exception):
    """Root of all errors that quantwatch raises on purpose."""


class InputError(QuantwatchError):
    """The user's files or arguments are at fault; the message says where and what to do."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a file: where it is, what was found, what is allowed."""

    file: str
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


class ConfigError(InputError):
    """A file that cannot be used, with every problem found in it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class PromptError(InputError):
    """A golden prompt file or a sequences file that cannot be used."""


class NeedsForce(InputError):
    """A person's order is refused, and carried out all the same where it is forced; how, each surface says itself."""


class StoreError(QuantwatchError):
    """The store cannot be read or written; the message says why and what to do."""


class GatewayError(QuantwatchError):
    """A call to the gateway did not do what was asked."""


class GatewayUnavailable(GatewayError):
    """No answer, or one that asks to come again later; the same call may be sent again."""


class GatewayRefused(GatewayError):
    """The gateway said no; sending the same call again cannot help."""


class ProbeError(QuantwatchError):
    """One request gave no usable answer.

    node: the name of the server asked. advice: one sentence for the person who reads it. retryable: whether the same
    request can succeed a moment later.
    """

    retryable = False

    def __init__(self, reason: str, *, node: str, advice: str = "") -> None:
        self.reason = reason.rstrip(". ")
        self.node = node
        self.advice = advice
        super().__init__(f"{node}: {self.reason}" + (f". {advice}" if advice else ""))


class NodeUnreachable(ProbeError):
    """The request never completed: refused, reset, no such host, TLS trouble."""

    retryable = True


class NodeTimeout(ProbeError):
    """No answer in time. Not retried: the first request may still be running on the node."""


class NodeFailed(ProbeError):
    """The server answered with 5xx, broke off, or sent more than the size limit."""


class NodeRestarted(ProbeError):
    """The server's process restarted while it was probed; nothing more is sent to it in this run."""


class NodeBusy(ProbeError):
    """The node has better things to do: 429, 503 or the load gate."""


class Misconfigured(ProbeError):
    """Key, address or model name are wrong; trying again cannot help."""


class OverCap(ProbeError):
    """The server caps the number of logprobs below what was asked for."""

    def __init__(self, reason: str, *, node: str, allowed: int | None) -> None:
        super().__init__(
            reason, node=node, advice="Ask with a smaller k or start the server with a larger --max-logprobs"
        )
        self.allowed = allowed


class OverBudget(ProbeError):
    """The probe would cost the node more than the budget allows; it was not sent."""


class ReplyInvalid(ProbeError):
    """The reply cannot be used as a measurement. Says nothing about the node's quality."""


class ReplyCorrupted(ProbeError):
    """The reply proves that the model computes broken numbers (NaN, infinities, ids out of range)."""
