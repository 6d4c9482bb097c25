"""Servers given on the command line: --baseline, --node, --model, --api-key, --ca-file."""

from urllib.parse import urlsplit

from quantwatch.config.secrets import secret_ref, without_userinfo
from quantwatch.errors import InputError
from quantwatch.net import Endpoint, base_url

ServerWithModel = tuple[Endpoint, str | None]


def server(given: str, model: str | None, api_key: str | None, ca_file: str | None) -> ServerWithModel:
    """An endpoint out of URL or NAME=URL. Raises InputError for what is no usable address."""
    name, separator, url = given.partition("=")
    if not separator or "://" in name:
        name, url = "", given
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    shown = without_userinfo(url)
    if not usable:
        raise InputError(f"{shown}: no usable URL; http://HOST:PORT is wanted")
    if "@" in parts.netloc:
        raise InputError(f"{shown}: a name or password in a URL ends up in messages; use --api-key")
    return Endpoint(name or parts.netloc, url, api_key=api_key, ca_file=ca_file), model


def secret(given: str | None) -> str | None:
    """The key behind --api-key. Raises InputError when it cannot be fetched."""
    if given is None:
        return None
    try:
        return secret_ref(given).resolve()
    except ValueError as exc:
        raise InputError(f"--api-key: {exc}") from exc


def refuse_equal(nodes: list[ServerWithModel]) -> None:
    """Names and addresses must tell the servers apart. Raises InputError when they do not."""
    for what, values in (
        ("are called", [endpoint.name for endpoint, _ in nodes]),
        ("have the URL", [base_url(endpoint.url) for endpoint, _ in nodes]),
    ):
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise InputError(f"two nodes {what} {', '.join(twice)}; name each once: --node NAME=URL")
    if "baseline" in [endpoint.name for endpoint, _ in nodes]:
        raise InputError("no node can be called baseline; give it another name: --node NAME=URL")
