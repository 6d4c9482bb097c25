"""Takes secrets out of what is to leave the machine: by their names, by what they look like, and by their values.

The values are known where they can be: a configuration says where each of its secrets lies. Whatever is masked is
counted by place and kind, so that a person can see what was found, and never what it was.
"""

import base64
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import yaml

from quantwatch.config.secrets import secret_ref
from quantwatch.errors import InputError
from quantwatch.log import DROPPED, LONGEST_TEXT, MASK, is_secret, without_secrets

REFERENCE = re.compile(r"\b(env|file):([^\s'\",#\]}]+)")
SHORTEST = 4
"""Characters; a shorter secret is masked where it stands as a word of its own, or every text would be full of masks."""

SAID = (
    re.compile(r"(?i)\b((?:password|passwd|passphrase|secret)\s*:\s*['\"]?)[^\s,;'\"]+"),
    re.compile(r"(?i)\b((?:[\w-]*token|api[_-]?key|authorization)\s*:\s*)(?:'[^']*'|\"[^\"]*\"|(?=\S*\d)[^\s,;]{6,})"),
)
"""`password: ...` in a line. The log lets these stand, where they are mostly messages about a setting; here a word that
is masked too many costs nothing.
"""

LONGEST_PIECE = LONGEST_TEXT // 2
NOT_PLAIN = (yaml.YAMLError, RecursionError, ValueError)


@dataclass(slots=True)
class Redaction:
    """Masks secrets. values: secrets that are known, in whatever form they may turn up. found: what was masked."""

    values: frozenset[str] = frozenset()
    found: Counter[tuple[str, str]] = field(default_factory=Counter)

    def text(self, text: str, place: str) -> str:
        """A text of any length, line by line. place: what it is called in the list of what was found."""
        return "\n".join(self._line(line, place) for line in text.split("\n"))

    def document(self, value: Any, place: str) -> Any:
        """A copy of JSON: values of secret names masked, prompts and answers left out, texts as in `text`."""
        if isinstance(value, Mapping):
            return dict(self._items(value, place))
        if isinstance(value, list | tuple):
            return [self.document(one, place) for one in value]
        return self.text(value, place) if isinstance(value, str) else value

    def configuration(self, text: str, place: str) -> str:
        """A YAML file without comments and secrets; where it cannot be read as YAML, its keys alone.

        What names the place of a secret (env:NAME, file:/path) stays: a name is no secret.
        """
        try:
            data = yaml.safe_load(text)
        except NOT_PLAIN:
            self.found[place, "values of a file that is no valid YAML"] += 1
            return self.text("\n".join(_key_alone(line) for line in text.splitlines()), place)
        shown = self._setting(data, place, secret=False)
        return yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=100)

    def _setting(self, value: Any, place: str, *, secret: bool) -> Any:
        if isinstance(value, dict):
            return {
                key: self._setting(one, place, secret=secret or is_secret(str(key)) or key == "headers")
                for key, one in value.items()
            }
        if isinstance(value, list):
            return [self._setting(one, place, secret=secret) for one in value]
        if secret and value is not None and not isinstance(value, bool) and not _names_a_place(value):
            self.found[place, "value of a secret setting"] += 1
            return MASK
        return self.text(value, place) if isinstance(value, str) else value

    def _items(self, value: Mapping[Any, Any], place: str) -> Iterator[tuple[str, Any]]:
        for key, one in value.items():
            name = self.text(str(key), place)
            if name.lower() in DROPPED and isinstance(one, str | list) and not _is_id(one):
                self.found[place, "prompt or answer"] += 1
            elif is_secret(name) and isinstance(one, str):
                self.found[place, "value of a secret name"] += 1
                yield name, MASK
            else:
                yield name, self.document(one, place)

    def _line(self, line: str, place: str) -> str:
        if line.lstrip().startswith("{"):
            try:
                return json.dumps(self.document(json.loads(line), place), ensure_ascii=False)
            except (ValueError, RecursionError):
                pass  # no JSON after all, or such as nobody writes
        known = self._known(line)
        if known != line:
            self.found[place, "known secret"] += 1
        # Very long lines are masked in pieces, since the masking of log lines would cut them.
        pieces = [known[i : i + LONGEST_PIECE] for i in range(0, len(known), LONGEST_PIECE)]
        masked = "".join(without_secrets(one) for one in pieces)
        for pattern in SAID:
            masked = pattern.sub(rf"\g<1>{MASK}", masked)
        if masked != known:
            self.found[place, "password, token or cookie by its look"] += 1
        return self._known(masked)

    def _known(self, text: str) -> str:
        for value in sorted(self.values, key=len, reverse=True):
            if len(value) >= SHORTEST:
                text = text.replace(value, MASK)
            elif value in text:
                text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", MASK, text)
        return text


def redaction(text: str, environ: Mapping[str, str] = os.environ) -> Redaction:
    """What masks the secrets of a configuration file, given as text: they are fetched, to be found wherever they are.

    Also those that stand in the file itself, in its URLs, and in variables of the environment with secret names.
    """
    named = [value for name, value in environ.items() if is_secret(name) and len(value) >= 2 * SHORTEST]
    fetched = [value for kind, name in REFERENCE.findall(text) if (value := _fetched(kind, name, environ))]
    return Redaction(frozenset(_forms([*named, *fetched, *_written(text)])))


def _fetched(kind: str, name: str, environ: Mapping[str, str]) -> str | None:
    """A secret as it is used, and nothing where it cannot be had; other words with a colon look the same."""
    try:
        return secret_ref(f"{kind}:{name}").resolve(environ)
    except (InputError, ValueError):
        pass
    try:  # also what no header could carry
        return environ.get(name) if kind == "env" else Path(name).read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):
        return None


def _written(text: str) -> Iterator[str]:
    """Secrets in the file itself: values of secret names and of headers, and passwords of URLs."""
    for found in re.finditer(r"[a-z][a-z0-9+.-]*://[^\s'\"]+", text, re.IGNORECASE):
        try:
            parts = urlsplit(found[0])
        except ValueError:
            continue
        yield from (one for one in (parts.password,) if one)
    try:
        yield from _secret_values(yaml.safe_load(text), secret=False)
    except NOT_PLAIN:
        return


def _secret_values(value: Any, *, secret: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _secret_values(one, secret=secret or is_secret(str(key)))
    elif isinstance(value, list):
        for one in value:
            yield from _secret_values(one, secret=secret)
    elif secret and isinstance(value, str | int) and not isinstance(value, bool) and not _names_a_place(value):
        yield str(value)


def _forms(values: Iterable[str]) -> Iterator[str]:
    """Each value as it is, its lines, and as URLs, JSON and basic authentication would carry it."""
    for value in values:
        for one in {value, *value.splitlines()}:
            if len(one.strip()) > 1:
                yield one
                yield quote(one, safe="")
                yield json.dumps(one)[1:-1]
                yield base64.b64encode(one.encode()).decode()


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[\w.:-]{1,100}", value, re.ASCII) is not None


def _names_a_place(value: Any) -> bool:
    return isinstance(value, str) and REFERENCE.fullmatch(value.strip()) is not None


def _key_alone(line: str) -> str:
    found = re.match(r"\s*(?:- )?[\w.-]+:", line)
    return f"{found[0]} {MASK}" if found is not None else MASK
