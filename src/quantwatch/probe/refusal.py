"""Replies that are no answer: HTTP errors -> the error that says whose fault it is.

A 400 that is our fault (k too large, prompt too long) and a 400 that is the node's (NaN) share a type, so message and
`param` decide. Sources: vLLM 0.32 replies recorded in tests/data, and the error bodies of 0.8 to 0.33.
"""

import re
from typing import Any, NoReturn

from quantwatch.errors import Misconfigured, NodeBusy, NodeFailed, OverBudget, OverCap, ReplyCorrupted, ReplyInvalid
from quantwatch.net import Answer
from quantwatch.probe.wire import loads

JSON_FLOAT = re.compile(r"out of range float values are not json compliant", re.IGNORECASE)
ALLOWED = re.compile(r"max(?:imum)? allowed:?\s*(\d+)", re.IGNORECASE)
REPEATED = re.compile(r"""[{,\s]*['"](?:input|prompt|messages|text|body)['"]\s*:""")
"""Where a refusal begins to repeat what it was sent."""

LONGEST = 300
READ = 4000
"""Characters of a message that are told, and that are looked at for it: some servers repeat a whole request."""

CAP_PARAMS = frozenset({"logprobs", "prompt_logprobs", "top_logprobs"})
LENGTH_PARAMS = frozenset({"input_tokens", "max_tokens", "prompt"})


def refuse(answer: Answer, *, node: str) -> NoReturn:
    """Raise the error that a non-200 answer to a sampling-neutral request stands for."""
    message, param = _error(answer.body)
    if answer.status in (400, 500) and JSON_FLOAT.search(message):
        raise ReplyCorrupted(
            f"HTTP {answer.status}: the server cannot write its log-probabilities as JSON, they are NaN or infinite",
            node=node,
            advice="The model computes broken numbers: take the node out and check its weights, scales and kernels",
        )
    if answer.status in (401, 403):
        raise Misconfigured(f"HTTP {answer.status}: {message}", node=node, advice="Check the API key of this server")
    if answer.status == 404:
        raise Misconfigured(f"HTTP 404: {message}", node=node, advice="Check the URL and the model name")
    if answer.status in (429, 503):
        raise NodeBusy(f"HTTP {answer.status}: {message}", node=node, advice="Ask again later or more slowly")
    if answer.status == 400 and param in CAP_PARAMS:
        allowed = ALLOWED.search(message)
        raise OverCap(f"HTTP 400: {message}", node=node, allowed=int(allowed[1]) if allowed else None)
    if answer.status == 400 and (param in LENGTH_PARAMS or "context length" in message):
        raise OverBudget(f"HTTP 400: {message}", node=node, advice="Use shorter prompts for this server")
    if answer.status >= 500:
        raise NodeFailed(f"HTTP {answer.status}: {message}", node=node, advice="Look at the server's log")
    raise ReplyInvalid(f"HTTP {answer.status}: {message}", node=node, advice="Is this a vLLM server's own address?")


def _error(body: bytes) -> tuple[str, str | None]:
    """Message and `param` of an error body of any shape; never longer than a line."""
    raw = _json(body)
    error = raw.get("error", raw) if isinstance(raw, dict) else raw
    if isinstance(error, dict):
        param = error.get("param")
        return _line(error.get("message", error)), param if isinstance(param, str) else None
    return _line(error), None


def _json(body: bytes) -> Any:
    try:
        return loads(body)
    except ValueError:
        return body[: 4 * READ].decode("utf-8", "replace") or "empty reply"


def _line(said: Any) -> str:
    """One short line without the request that servers repeat: a prompt is nobody's business."""
    try:
        text = str(said)[:READ]
    except RecursionError:
        return "an error nested too deeply to be told"
    flat = REPEATED.split(" ".join(text.split()), maxsplit=1)[0]
    shown = "".join(one if one.isprintable() else "\ufffd" for one in flat)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 3] + "..."
