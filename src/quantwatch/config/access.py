"""Who may use the admin listener: tokens by name and role, and who may read the pages without one."""

import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from quantwatch.config.secrets import Secret, SecretRef
from quantwatch.config.strict import Name, Strict
from quantwatch.errors import InputError
from quantwatch.flow.access import ADMIN_TOKEN, Caller, Role

if TYPE_CHECKING:
    from quantwatch.config.schema import ListenSettings

SHORTEST = 16
"""Characters of a token; what is shorter can be guessed. `openssl rand -hex 32` makes a good one."""

MAKE_ONE = "make one with `openssl rand -hex 32`"
OWN_TOKEN = "QUANTWATCH_TOKEN_FILE"  # noqa: S105, a name
"""Environment variable that names the file of the token that commands bear."""

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class TokenSettings(Strict):
    """A token of the admin listener: whose it is, and what it opens."""

    name: Name = Field(description="Whose it is; stands in the record of everything that is done with it; unique")
    role: Role = Field(
        description="viewer reads; operator also pauses, holds, isolates, releases, approves, runs; admin also reloads "
        "and accepts the baseline"
    )
    token: Secret = Field(description=f"The bearer token, {SHORTEST} characters at least; read again at each reload")


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it was read. key: where it stands in the configuration."""

    caller: Caller
    secret: str = field(repr=False)
    key: str = ""


def on_loopback(address: str) -> bool:
    """Whether a `HOST:PORT` of the configuration can be reached from this machine alone."""
    return address.rpartition(":")[0].strip("[]") in LOOPBACK


def read_tokens(server: "ListenSettings") -> tuple[Token, ...]:
    """Fetch all tokens, as they are now. Raises InputError with the key of one that cannot be used, never its value."""
    found: list[Token] = []
    for key, caller, ref in _given(server):
        try:
            secret = ref.resolve()
        except InputError as exc:
            raise InputError(f"{key}: {exc}") from exc
        if caller.named and len(secret) < SHORTEST:
            raise InputError(
                f"{key}: the token in {ref} has {len(secret)} characters; {SHORTEST} are the least, {MAKE_ONE}"
            )
        twin = next((one for one in found if one.secret == secret), None)
        if twin is not None:
            raise InputError(f"{key}: the same token as {twin.key}, so nobody could tell whose it is; {MAKE_ONE}")
        found.append(Token(caller, secret, key))
    return tuple(found)


def callers_token(server: "ListenSettings", environ: Mapping[str, str]) -> str | None:
    """The token that a command on this machine bears; None where the daemon wants none.

    The caller's own, if OWN_TOKEN names a file. Else, of the tokens in the configuration that this user can read, the
    one that opens most. Raises InputError where there are tokens and none can be read.
    """
    own = environ.get(OWN_TOKEN)
    if own:
        return SecretRef("file", own).resolve(environ)
    ranked = sorted(_given(server), key=lambda one: list(Role).index(one[1].role or Role.VIEWER), reverse=True)
    troubles = []
    for key, _, ref in ranked:
        try:
            return ref.resolve(environ)
        except InputError as exc:
            troubles.append(f"{key}: {exc}")
    if troubles:
        raise InputError(f"no token can be read here, and {OWN_TOKEN} names none: {'; '.join(troubles)}")
    return None


def token_advice(server: "ListenSettings") -> Iterator[str]:
    """What to know of tokens before a daemon reads them, and of those that it takes all the same; starts with the key.

    One that cannot be fetched here is left to others: the file may be checked on another machine.
    """
    if all(_length(ref) is not None for _, _, ref in _given(server)):
        try:
            read_tokens(server)
        except InputError as exc:
            yield str(exc)
    for key, caller, ref in _given(server):
        if ref.kind == "file" and _open_to_all(Path(ref.name)):
            yield f"{key}: every user of this machine can read {ref.name}; `chmod o-rwx` it"
        length = _length(ref)
        if not caller.named and length is not None and length < SHORTEST:
            yield f"{key}: the token has fewer than {SHORTEST} characters and can be guessed; {MAKE_ONE}"
    if server.page == "open" and not on_loopback(server.admin_listen):
        yield f"server.page: open shows the pages to everybody who reaches {server.admin_listen}"


def token_faults(server: "ListenSettings") -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What is wrong with the tokens by their names and places alone, with the path of each fault."""
    names = [one.name for one in server.tokens]
    refs = [server.admin_token, *(one.token for one in server.tokens)]
    for i, one in enumerate(server.tokens):
        path = ("server", "tokens", i)
        if one.name in names[:i]:
            yield (*path, "name"), f"{one.name} is the name of server.tokens[{names.index(one.name)}] already"
        if one.name == ADMIN_TOKEN:
            yield (*path, "name"), f"{ADMIN_TOKEN} is what the caller with server.admin_token is called; take another"
        if one.token in refs[: i + 1]:
            earlier = refs.index(one.token)
            where = "server.admin_token" if earlier == 0 else f"server.tokens[{earlier - 1}]"
            yield (*path, "token"), f"{where} has its token there already; each caller needs a token of their own"


def _given(server: "ListenSettings") -> Sequence[tuple[str, Caller, SecretRef]]:
    given = [(f"server.tokens[{one.name}]", Caller(one.name, one.role, named=True), one.token) for one in server.tokens]
    if server.admin_token is None:
        return given
    return [("server.admin_token", Caller(ADMIN_TOKEN, Role.ADMIN), server.admin_token), *given]


def _open_to_all(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False  # whoever reads it tells why that cannot be


def _length(ref: SecretRef) -> int | None:
    try:
        return len(ref.resolve())
    except InputError:
        return None
