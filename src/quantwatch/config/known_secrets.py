"""The secrets of a configuration by their values, so that each is found wherever it turns up.

They are fetched from where the file says that they lie, and read where they stand in the file itself: under secret
names, in headers, and in the URLs of channels and gateways, since the address of a webhook is often all it takes to use
it.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import yaml

from quantwatch.config.secrets import secret_ref
from quantwatch.errors import InputError
from quantwatch.log import MASK, is_secret

SHORTEST = 4
"""Characters; a shorter secret is masked where it stands as a word of its own, or every text would be full of masks."""

SHORTEST_PATH = 2 * SHORTEST
"""Characters; a shorter path of a URL is no secret, and stands in many others."""

LONG_SEGMENT = 16
"""Characters; a part of a path that is as long and holds a digit is taken for a secret of its own."""

REFERENCE = re.compile(r"\b(env|file):([^\s'\",#\]}]+)")
PARAMETER = r"(?:[\w.-]{0,40}[_.-])?(?:sig|signature|key|apikey|\w{0,20}token|code|secret|password|auth)"
"""A pattern of names in a URL's query, of which the values are secret."""

NOT_PLAIN = (yaml.YAMLError, RecursionError, ValueError)

_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s'\"]+", re.IGNORECASE)
_PLACE = re.compile(r"(?:env|file):[^\s'\",#\]}]+|file:/[^\n'\"]+")
_OPEN_ADDRESSES = ("runbook_url",)


class Hides(Enum):
    """What is secret of a value in a configuration, going by its place."""

    ALL = "all"
    PATH = "path"


@dataclass(frozen=True, slots=True)
class Known:
    """values: the secrets in whatever form they may turn up. unknown: places of those that could not be fetched."""

    values: frozenset[str]
    unknown: tuple[str, ...]


def known_secrets(text: str, environ: Mapping[str, str]) -> Known:
    """All that can be known of the secrets of a configuration file, given as text; it may be broken.

    Also what variables of the environment with secret names hold.
    """
    try:
        data = yaml.safe_load(text)
    except NOT_PLAIN:
        data = None
    found = [value for name, value in environ.items() if is_secret(name) and len(value) >= 2 * SHORTEST]
    unknown: list[str] = []
    named = [f"{kind}:{name}" for kind, name in REFERENCE.findall(text)]
    # What a comment names is fetched as well; missed is only what the configuration asks for, where that can be read.
    asked = [one.strip() for _, one in _leaves(data, ()) if names_a_place(one)]
    for place in dict.fromkeys([*asked, *named]):
        value = _fetched(place, environ)
        if value:
            found += [value, *_parts(value)]
        elif data is None or place in asked:
            unknown.append(place)
    found += _in_urls(text)
    for path, value in _leaves(data, ()):
        found += _written(path, value)
    return Known(frozenset(_forms(found)), tuple(unknown))


def hides(path: tuple[str, ...]) -> Hides | None:
    """What is secret of a value under these keys: all of it, a URL's path and query, or nothing."""
    if any(is_secret(one) or one.lower() == "headers" for one in path):
        return Hides.ALL
    called = any(one in ("notifications", "gateway", "gateways") for one in path)
    return Hides.PATH if called and path[-1].endswith("url") and path[-1] not in _OPEN_ADDRESSES else None


def names_a_place(value: Any) -> bool:
    """Whether a value says where a secret lies: env:NAME or file:/path. A name is no secret."""
    return isinstance(value, str) and _PLACE.fullmatch(value.strip()) is not None


def host_alone(url: str) -> str:
    """A URL without what stands behind its host, and without who asks; what is no URL is masked whole."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return MASK
    if not parts.scheme or not host:
        return MASK
    bare = f"{parts.scheme}://{host}"
    return f"{bare}{parts.path}" if parts.path in ("", "/") and url.endswith(host + parts.path) else f"{bare}/{MASK}"


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value that is neither a mapping nor a list, with the keys above it."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _leaves(one, (*path, str(key)))
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one, path)
    else:
        yield path, value


def _fetched(place: str, environ: Mapping[str, str]) -> str | None:
    """A secret as it is used, and nothing where it cannot be had; other words with a colon look the same."""
    kind, _, name = place.partition(":")
    try:
        return secret_ref(place).resolve(environ)
    except (InputError, ValueError):
        pass
    try:  # also what no header could carry
        return environ.get(name) if kind == "env" else Path(name).read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):
        return None


def _written(path: tuple[str, ...], value: Any) -> list[str]:
    """The secrets of a value that stands in the file itself."""
    if not path or value is None or isinstance(value, bool) or names_a_place(value):
        return []
    hidden = hides(path)
    if hidden is Hides.ALL:
        return [str(value), *_parts(str(value))]
    if hidden is Hides.PATH and isinstance(value, str):
        return _parts(value) if "://" in value else [value]
    return []


def _in_urls(text: str) -> Iterator[str]:
    """Passwords and secret parameters of all URLs, also where the file is no YAML."""
    for found in _URL.finditer(text):
        try:
            parts = urlsplit(found[0])
        except ValueError:
            continue
        yield from (one for one in (parts.password,) if one)
        for name, value in parse_qsl(parts.query):
            if re.fullmatch(PARAMETER, name, re.IGNORECASE) and len(value) >= SHORTEST:
                yield value


def _parts(url: str) -> list[str]:
    """A secret URL, what stands behind its host, and what of that is long enough to be a secret by itself."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return [url]
    if not parts.scheme or not parts.netloc:
        return []
    passwords = [parts.password] if parts.password else []
    if url.rstrip("/") == f"{parts.scheme}://{parts.netloc}":
        return passwords
    behind = parts.path + (f"?{parts.query}" if parts.query else "")
    segments = [one for one in parts.path.split("/") if len(one) >= LONG_SEGMENT and re.search(r"\d", one)]
    values = [value for _, value in parse_qsl(parts.query) if len(value) >= SHORTEST_PATH]
    paths = [one for one in (behind, behind.rstrip("/"), parts.path.rstrip("/")) if len(one) >= SHORTEST_PATH]
    return [url, url.rstrip("/"), *passwords, *paths, *segments, *values]


def _forms(values: Iterable[str]) -> Iterator[str]:
    """Each value as it is, its lines, and as URLs, JSON and basic authentication would carry it."""
    for value in values:
        for one in {value, *value.splitlines()}:
            if len(one.strip()) > 1:
                yield one
                yield quote(one, safe="", errors="surrogateescape")
                yield json.dumps(one)[1:-1]
                yield base64.b64encode(one.encode("utf-8", "surrogateescape")).decode()
