"""Takes secrets out of what is to leave the machine: by their names, by what they look like, and by their values.

The values are known where they can be: a configuration says where each of its secrets lies. Whatever is masked is
counted by place and kind, so that a person can see what was found, and never what it was.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from quantwatch.config.known_secrets import (
    NOT_PLAIN,
    PARAMETER,
    SHORTEST,
    Hides,
    hides,
    host_alone,
    known_secrets,
    names_a_place,
)
from quantwatch.log import MASK, is_secret, masked

LOOKS = (
    re.compile(r"(?i)\b((?:password|passwd|passphrase|secret)\s*:\s*['\"]?)[^\s,;'\"]+"),
    re.compile(
        r"(?i)\b((?:[\w-]{0,64}token|api[_-]?key|authorization)\s*:\s*)"
        r"(?:'[^']*'|\"[^\"]*\"|(?=\S{0,200}\d)[^\s,;]{6,})"
    ),
    re.compile(rf"(?i)((?:[?&;]|\\u0026){PARAMETER}=)[^\s&#'\"\\]+"),
    re.compile(r"(?i)(\bhooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/)[^\s'\"\\]+"),
    re.compile(r"(?i)(\bapi/(?:v\d+/)?webhooks/)[^\s'\"\\]+"),
    re.compile(r"(?i)(\.(?:office|office365)\.com/webhook\w*/)[^\s'\"\\]+"),
    re.compile(r"(?i)(\bapi\.telegram\.org/bot)[^\s'\"\\]+"),
    re.compile(r"(?i)(/hooks/)[^\s'\"\\]{16,}"),
)
"""`password: ...` in a line, and addresses of webhooks, which let in whoever has them. The log lets these stand, where
they are mostly messages about a setting; here a word that is masked too many costs nothing.
"""

_SAID = r"(?:prompt|completion|continuation|text|content)s?|messages|token_ids|prompt_ids|input_ids"
SPOKEN_KEY = re.compile(rf"(?i)(?:.*[^a-z])?(?P<name>{_SAID})")
"""Keys whose values are prompts, or what models made of them, in words or in tokens."""

SPOKEN = re.compile(
    rf"(?i)(?<![a-z])(?P<name>{_SAID})(?P<mark>(?:\\*['\"])?\s*[:=]\s*)"
    r"(?P<value>[bur]?\"(?:[^\"\\]|\\.)*(?:\"|\\?$)|[bur]?'(?:[^'\\]|\\.)*(?:'|\\?$)|[\\\[{].*|(?<==)(?!-?[\d.]+(?:[\s,})\]]|$))[^\s'\",}].*)"
)
"""The same in a line that is no JSON: a quoted value, else the rest of the line. After a colon and without quotes it
may as well be a sentence about a setting.
"""

ID = re.compile(r"(?=.*[\d_.:-])[a-z0-9](?:[\w.:-]{0,98}\w)?", re.IGNORECASE | re.ASCII)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
MOST_TRIES = 20
"""How many braces of a line may begin no JSON before the rest counts as text."""


@dataclass(slots=True)
class Redaction:
    """Masks secrets. values: secrets that are known, in whatever form they may turn up. found: what was masked.

    unknown: places of secrets that could not be fetched, so that nothing but their look gives them away.
    """

    values: frozenset[str] = frozenset()
    found: Counter[tuple[str, str]] = field(default_factory=Counter)
    unknown: tuple[str, ...] = ()
    _longest_first: list[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._longest_first = sorted(self.values, key=len, reverse=True)

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
        shown = self._setting(data, place, path=())
        return yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=100)

    def _setting(self, value: Any, place: str, *, path: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {key: self._setting(one, place, path=(*path, str(key))) for key, one in value.items()}
        if isinstance(value, list):
            return [self._setting(one, place, path=path) for one in value]
        hidden = hides(path) if path else None
        if hidden is not None and value is not None and not isinstance(value, bool) and not names_a_place(value):
            shown = self.text(host_alone(str(value)), place) if hidden is Hides.PATH else MASK
            if shown != value:
                self.found[place, "value of a secret setting"] += 1
            return shown
        return self.text(value, place) if isinstance(value, str) else value

    def _items(self, value: Mapping[Any, Any], place: str) -> Iterator[tuple[str, Any]]:
        for key, one in value.items():
            name = self.text(str(key), place)
            if _is_spoken(name) and not _is_harmless(name, one):
                self.found[place, "prompt or answer"] += 1
            elif is_secret(name) and isinstance(one, str):
                self.found[place, "value of a secret name"] += 1
                yield name, MASK
            else:
                yield name, self.document(one, place)

    def _line(self, line: str, place: str) -> str:
        """A line, whatever stands before and behind the JSON in it: a journal's time and host, a container's stream."""
        if any("{" in one and one in line for one in self.values):
            line = self._known(line)  # or the secret itself would be taken apart
        shown, done, tries, at = list[str](), 0, 0, line.find("{")
        while at >= 0 and tries < MOST_TRIES:
            try:
                content, end = json.JSONDecoder().raw_decode(line, at)
                whole = json.dumps(self.document(content, place), ensure_ascii=False)
            except (ValueError, RecursionError):  # no JSON after all, or such as nobody writes
                tries, at = tries + 1, line.find("{", at + 1)
                continue
            shown += [self._plain(line[done:at], place), whole]
            done, at = end, line.find("{", end)
        return "".join([*shown, self._plain(line[done:], place)])

    def _plain(self, text: str, place: str) -> str:
        known = self._known(text)
        if known != text:
            self.found[place, "known secret"] += 1
        looked = masked(known)
        for pattern in LOOKS:
            looked = pattern.sub(rf"\g<1>{MASK}", looked)
        if looked != known:
            self.found[place, "password, token or cookie by its look"] += 1
        silent = SPOKEN.sub(_unspoken, looked)
        if silent != looked:
            self.found[place, "prompt or answer"] += 1
        return self._known(silent)

    def _known(self, text: str) -> str:
        for value in self._longest_first:
            if len(value) >= SHORTEST:
                text = text.replace(value, MASK)
            elif value in text:
                text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", MASK, text)
        return text


def redaction(text: str, environ: Mapping[str, str] = os.environ) -> Redaction:
    """What masks the secrets of a configuration file, given as text: they are fetched, to be found wherever they are.

    Also those that stand in the file itself, in its URLs, and in variables of the environment with secret names.
    """
    known = known_secrets(text, environ)
    return Redaction(known.values, unknown=known.unknown)


def _is_spoken(name: str) -> bool:
    return SPOKEN_KEY.fullmatch(name) is not None


def _is_harmless(name: str, value: Any) -> bool:
    """Whether a value under such a key is a count, or the id of a prompt."""
    if value is None or isinstance(value, bool | int | float):
        return True
    return isinstance(value, str) and _is_named(name) and ID.fullmatch(value) is not None


def _is_named(name: str) -> bool:
    return name.lower() in ("prompt", "prompts")


def _unspoken(found: re.Match[str]) -> str:
    value = found["value"].strip("'\"")
    harmless = NUMBER.fullmatch(value) or (_is_named(found["name"]) and ID.fullmatch(value))
    return found[0] if harmless else f"{found['name']}{found['mark']}{MASK}"


def _key_alone(line: str) -> str:
    found = re.match(r"\s*(?:- )?[\w.-]+:", line)
    return f"{found[0]} {MASK}" if found is not None else MASK
