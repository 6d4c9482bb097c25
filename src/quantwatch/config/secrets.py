"""Secrets are named in the file, never written there: `env:NAME` or `file:/path`."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, WithJsonSchema

from quantwatch.errors import InputError

SECRET_NAME = re.compile("key|secret|token|authorization|password|cookie", re.IGNORECASE)
"""Names that mark what stands behind them as secret."""


def without_userinfo(text: str) -> str:
    """A text for messages, with name and password taken out of its URLs."""
    return re.sub(r"//[^/@]*@", "//...@", text)


@dataclass(frozen=True, slots=True)
class SecretRef:
    """Where a secret lies."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    def resolve(self, environ: Mapping[str, str] = os.environ) -> str:
        """Fetch the secret, without white space around it. Raises InputError, naming the place but never the value."""
        value = (self._from_environment(environ) if self.kind == "env" else self._from_file()).strip()
        if not (value.isascii() and value.isprintable()):
            raise InputError(f"the secret {self} holds characters that no HTTP header can carry")
        return value

    def _from_environment(self, environ: Mapping[str, str]) -> str:
        value = environ.get(self.name, "")
        if not value.strip():
            raise InputError(f"the environment variable {self.name} is not set or empty")
        return value

    def _from_file(self) -> str:
        try:
            value = Path(self.name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise InputError(f"the secret file {self.name} cannot be read: {type(exc).__name__}") from exc
        if not value.strip():
            raise InputError(f"the secret file {self.name} is empty")
        return value


def secret_ref(value: Any) -> SecretRef:
    """Parse `env:NAME` or `file:/path`. Raises ValueError without repeating what was found: it may be the secret."""
    if isinstance(value, SecretRef):
        return value
    if isinstance(value, str):
        kind, _, name = value.partition(":")
        if kind in ("env", "file") and name:
            return SecretRef(kind, name)
    raise ValueError("secrets are not written here; use env:NAME or file:/path/to/secret")


Secret = Annotated[
    SecretRef,
    BeforeValidator(secret_ref),
    WithJsonSchema(
        {"type": "string", "pattern": "^(env|file):.+$", "examples": ["env:NODE_KEY", "file:/run/secrets/k"]}
    ),
]


def header_value(value: Any) -> Any:
    """A header's text, or the secret that it names."""
    return secret_ref(value) if isinstance(value, str) and value.startswith(("env:", "file:")) else value


HeaderValue = Annotated[str | SecretRef, BeforeValidator(header_value), WithJsonSchema({"type": "string"})]


def named_secrets(headers: Any) -> Any:
    """Headers as they are. Raises ValueError for one that looks like a secret and stands in the file itself."""
    for name, value in headers.items() if isinstance(headers, dict) else ():
        if SECRET_NAME.search(str(name)) and not str(value).startswith(("env:", "file:")):
            raise ValueError(f"the header {name} looks like a secret; use env:NAME or file:/path")
    return headers


def secrets_of(settings: BaseModel, path: str = "") -> Iterator[tuple[str, SecretRef]]:
    """Every secret that a model names, with its key in dotted form."""
    for name in type(settings).model_fields:
        yield from _secrets_in(getattr(settings, name), f"{path}.{name}" if path else name)


def _secrets_in(value: Any, path: str) -> Iterator[tuple[str, SecretRef]]:
    if isinstance(value, SecretRef):
        yield path, value
    elif isinstance(value, BaseModel):
        yield from secrets_of(value, path)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _secrets_in(item, f"{path}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _secrets_in(item, f"{path}[{i}]")
