"""How quantwatch speaks: one line an event, JSON for programs, columns for a person at a terminal.

No line may carry a secret or a prompt, break the shape of the log, or stop the daemon. Whatever is logged is therefore
copied into plain values first; secrets are masked and prompts left out on the way, at any depth. Lines of the libraries
that use the standard logging take the same way.
"""

import dataclasses
import itertools
import json
import logging
import math
import re
import reprlib
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from datetime import UTC, date, datetime
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Literal, TextIO

import structlog
from structlog.stdlib import ProcessorFormatter

Format = Literal["auto", "json", "console"]

MASK = "***"
DROPPED = frozenset({"prompt", "prompts", "completion", "completions", "continuation", "continuations", "text"})
"""Keys whose values are golden prompts or what models made of them."""

SECRET_WORDS = frozenset(
    {"authorization", "auth", "apikey", "token", "secret", "secrets", "password", "passwd", "passphrase", "cookie"}
    | {"cookies", "credential", "credentials", "bearer"}
)
SECRET_KEYS = frozenset({"api", "private", "signing", "access", "secret"})
"""Words that make a secret of a following `key`; a decision's key or a cache's key is none."""

HEAD = ("ts", "level", "event", "logger")
"""What every line carries; values of these names get an underscore behind them."""

LONGEST_TEXT = 16_384
LONGEST_INT = 128
"""Bits; Python refuses to write very long integers in decimal digits."""

DEEPEST = 8
MOST_ITEMS = 200

NOISY = ("httpx", "httpcore", "apscheduler", "asyncio", "uvicorn.access")
"""Libraries that tell every request or tick at INFO; their warnings are heard."""

SERVER = ("uvicorn", "uvicorn.error", "uvicorn.access")
"""Loggers that may have been given handlers of their own."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAMED = r"authorization|api[_-]?key|(?<![a-z])token|secret|password|passwd"
_REST = r"[^\s&,;'\"]+"
_IN_TEXT = (
    (re.compile(r"//[^/\s?#]*@"), f"//{MASK}@"),
    (re.compile(rf"(?i)\b(bearer|authorization:\s*basic)\s+{_REST}"), rf"\g<1> {MASK}"),
    (re.compile(rf"\bwhsec_{_REST}"), MASK),
    (re.compile(r"(?i)\b((?:set-)?cookie['\"]?\s*[:=]\s*)[^\n]+"), rf"\g<1>{MASK}"),
    # A quoted name or an equals sign: `api_key: must be ...` is a message about a key, not the key.
    (re.compile(rf"(?i)((?:{_NAMED})(?:['\"]\s*:|\s*=)\s*b?['\"]?(?:(?:basic|bearer)\s+)?){_REST}"), rf"\g<1>{MASK}"),
)
_REPR = reprlib.Repr()
_REPR.maxother = LONGEST_TEXT

_ROOT = "quantwatch"
logging.getLogger(_ROOT).addHandler(logging.NullHandler())  # silent until configure(): commands print what they mean to


@dataclasses.dataclass(frozen=True, slots=True)
class Logger:
    """Says what happened: an event in plain words, and values by name. Saying something never raises."""

    name: str = _ROOT
    values: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def bind(self, **values: object) -> "Logger":
        """A logger that says these values on every line."""
        return Logger(self.name, {**self.values, **values})

    def debug(self, event: str, /, **values: object) -> None:
        """What helps to find a fault."""
        self._say(logging.DEBUG, event, values)

    def info(self, event: str, /, **values: object) -> None:
        """What happened."""
        self._say(logging.INFO, event, values)

    def warning(self, event: str, /, **values: object) -> None:
        """What somebody should look at."""
        self._say(logging.WARNING, event, values)

    def error(self, event: str, /, **values: object) -> None:
        """What did not work."""
        self._say(logging.ERROR, event, values)

    def exception(self, event: str, /, **values: object) -> None:
        """What did not work, with the traceback of the exception in hand."""
        self._say(logging.ERROR, event, {"exc_info": True, **values})

    def _say(self, level: int, event: str, values: dict[str, object]) -> None:
        target = logging.getLogger(self.name)
        if target.isEnabledFor(level):
            named = {f"{key}_" if key in HEAD else key: value for key, value in {**self.values, **values}.items()}
            told = plain(structlog.processors.format_exc_info(target, "", {"event": event, **named}))
            (fields,), extra = ProcessorFormatter.wrap_for_formatter(target, "say", told)
            target.log(level, fields, extra=extra["extra"])


def logger(name: str = _ROOT) -> Logger:
    """A logger of a part of quantwatch; the name starts with `quantwatch`."""
    return Logger(name)


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes lines. What cannot be written (reader gone, disk full) is counted in `lost` and never raises."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.lost = 0

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802, the name is the base class's
        """Count instead of telling: the place to tell it is the one that does not work."""
        self.lost += 1


def configure(
    format: Format = "auto",  # noqa: A002, the key's name in the configuration
    level: str = "info",
    *,
    stream: TextIO | None = None,
    now: Callable[[], datetime] | None = None,
) -> LineHandler:
    """Set up the log of the process, in place of an earlier set-up. auto: columns on a terminal, else JSON lines.

    stream: standard output if left out. now: the wall clock. Returns the handler, whose `lost` counts unwritten lines.
    """
    out = sys.stdout if stream is None else stream
    handler = LineHandler(out)
    console = format == "console" or (format == "auto" and out.isatty())
    handler.setFormatter(_formatter(out if console else None, now or _utc))
    root = logging.getLogger()
    for old in [one for one in root.handlers if isinstance(one, LineHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    _hear_libraries(root.level)
    return handler


def _hear_libraries(level: int) -> None:
    for name in SERVER:
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    for name in NOISY:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    logging.captureWarnings(capture=True)


def _utc() -> datetime:
    return datetime.now(UTC)


def _formatter(terminal: TextIO | None, now: Callable[[], datetime]) -> ProcessorFormatter:
    def head(_: object, __: str, fields: MutableMapping[str, Any]) -> dict[str, Any]:
        record = fields.pop("_record")
        fields.pop("_from_structlog")
        ts = now().astimezone(UTC).isoformat(timespec="milliseconds")
        first = {"ts": ts, "level": record.levelname.lower(), "event": fields.pop("event")}
        foreign = {} if record.name == _ROOT else {"logger": record.name}
        return {**first, **foreign, **fields}

    def plain_fields(_: object, __: str, fields: MutableMapping[str, Any]) -> dict[str, Any]:
        return dict(_items(fields, ()))

    last = _json if terminal is None else _columns(terminal)
    return ProcessorFormatter(processors=[head, structlog.processors.format_exc_info, plain_fields, last])


def _json(_: object, __: str, fields: MutableMapping[str, Any]) -> str:
    # ASCII only: no character of a value can end the line, whatever a reader takes for a line's end.
    return json.dumps(fields, allow_nan=False)


def _columns(terminal: TextIO) -> Any:
    render = structlog.dev.ConsoleRenderer(
        colors=terminal.isatty(),
        timestamp_key="ts",
        sort_keys=False,
        exception_formatter=structlog.dev.plain_traceback,  # the others show local variables, secrets among them
    )
    encoding = getattr(terminal, "encoding", None) or "utf-8"

    def columns(target: object, name: str, fields: MutableMapping[str, Any]) -> str:
        shown = {_printable(key): _shown(key, value) for key, value in fields.items()}
        text = str(render(target, name, shown))
        return text.encode(encoding, "backslashreplace").decode(encoding)

    return columns


def _shown(key: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return "\n".join(map(_printable, value.splitlines())) if key == "exception" else _printable(value)


def _printable(text: str) -> str:
    """A text that can neither start a new line nor steer a terminal."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def plain(value: object) -> Any:
    """A copy of a value that is JSON, with secrets masked, prompts left out and long things cut."""
    return _plain(value, ())


def _plain(value: object, above: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= LONGEST_INT else without_secrets(hex(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str | PurePath):
        return without_secrets(str(value))
    return value.isoformat() if isinstance(value, date) else _nested(value, above)


def _nested(value: object, above: tuple[int, ...]) -> Any:
    if len(above) >= DEEPEST or id(value) in above:
        return "..."
    inside = (*above, id(value))
    if isinstance(value, dict | MappingProxyType):
        return dict(_items(value, inside))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shown = [one.name for one in dataclasses.fields(value) if one.repr]
        return dict(_items({name: getattr(value, name, None) for name in shown}, inside))
    if isinstance(value, list | tuple | set | frozenset):
        return _listed(list(value)[:MOST_ITEMS], inside)
    return without_secrets(_REPR.repr_instance(value, 1))


def _listed(values: list[Any], above: tuple[int, ...]) -> list[Any]:
    """A list; in a pair of a name and a value, as headers are, the name decides about the value."""
    if len(values) == 2:
        name = values[0].decode("latin-1") if isinstance(values[0], bytes) else values[0]
        if isinstance(name, str) and is_secret(name):
            return [name, MASK]
    return [_plain(one, above) for one in values]


def _items(fields: Any, above: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    for name, value in list(fields.items())[:MOST_ITEMS]:
        key = name if isinstance(name, str) else str(_plain(name, above))
        if key.lower() in DROPPED:
            continue
        secret = is_secret(key) and value is not None and not isinstance(value, bool)
        yield without_secrets(key), MASK if secret else _plain(value, above)


def is_secret(key: str) -> bool:
    """Whether what stands under this key is secret: `api_key`, `X-Auth-Token`, `signingSecret`; not `max_tokens`."""
    words = [word.lower() for word in _WORD.findall(key)]
    keyed = any(one in SECRET_KEYS and two == "key" for one, two in itertools.pairwise(words))
    return keyed or not SECRET_WORDS.isdisjoint(words)


def without_secrets(text: str) -> str:
    """A text with passwords of URLs, tokens and cookies masked, cut where it is very long."""
    text = masked(text)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}... ({len(text)} characters)"


def masked(text: str) -> str:
    """A text of any length with passwords of URLs, tokens and cookies masked, and all else as it was."""
    for pattern, instead in _IN_TEXT:
        text = pattern.sub(instead, text)
    return text
