"""HAProxy by its runtime socket: `set server` takes a server out and back and gives it a weight, `show` reads back.

One command is one connection, as the socket has it without a prompt. Nothing here outlives a reload of HAProxy; the
looks between the runs find that.
"""

import asyncio
import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from quantwatch.act.contract import Abilities, Seen, Unanswered
from quantwatch.config.gateway import Leave
from quantwatch.config.haproxy import address_of, servers_of
from quantwatch.errors import GatewayRefused
from quantwatch.flow.decision import Action, Order

LONGEST_REPLY = 4 * 2**20
"""Bytes; the state of a server is a line of about 200."""

MAINT, DRAIN = 1, 8
"""Bits of srv_admin_state that `set server` sets; the others come from health, DNS and tracked servers."""

LEFT = {Leave.DRAIN: MAINT | DRAIN, Leave.MAINT: MAINT}
"""Which of them take a server out: in drain, sticky clients still reach it."""

STATE_FORMAT = "1"
NUMBERS = ("srv_admin_state", "srv_uweight", "srv_iweight")
COLUMNS = ("be_name", "srv_name", *NUMBERS)
UP_COLUMN, UP = "srv_op_state", ("1", "2")
"""Starting and running; 0 is stopped, 3 is stopping (HAProxy's management guide, `show servers state`)."""

LEAST = 1
"""The least weight of a server that still takes over where nobody else is left; 0 would take nothing at all."""

NO_BACKEND = ("No such backend", "Can't find backend")

ADVICE = {
    "No such server": "Look at the target's gateway_name",
    "No such backend": "Look at gateway.backend and the target's gateway_name",
    "Can't find backend": "Look at gateway.backend and the target's gateway_name",
    "Permission denied": "Give the line `stats socket` of HAProxy `level admin`",
    "Backend is using a static": "Shares need `balance roundrobin` or `balance leastconn` in that backend",
    "Unknown command": "gateway.socket is no runtime socket of a worker; a master's is another one",
}


@dataclass(frozen=True, slots=True)
class Runtime:
    """The runtime socket. socket: a path, or HOST:PORT. timeout: seconds for one command, connection included."""

    socket: str
    timeout: float

    async def ask(self, command: str) -> str:
        """Send one command and give the whole reply. Raises Unanswered."""
        sent = False
        try:
            async with asyncio.timeout(self.timeout):
                reader, writer = await self._connected()
                try:
                    sent = True
                    writer.write(f"{command}\n".encode("ascii"))
                    await writer.drain()
                    return _text(await _all_of(reader))
                finally:
                    writer.close()
        except TimeoutError as exc:
            raise Unanswered(f"haproxy: no complete answer within {self.timeout:g} s", arrived=sent) from exc
        except (OSError, ValueError) as exc:
            said = "broke off" if sent else "cannot connect to"
            raise Unanswered(f"haproxy: {said} {self.socket}: {exc}", arrived=sent) from exc

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = address_of(self.socket)
        if address is None:
            return await asyncio.open_unix_connection(self.socket)
        return await asyncio.open_connection(*address)


async def _all_of(reader: asyncio.StreamReader) -> bytes:
    """Everything until the other side closes. Raises ValueError when that is too much."""
    whole = bytearray()
    while chunk := await reader.read(65_536):
        whole += chunk
        if len(whole) > LONGEST_REPLY:
            raise ValueError(f"the reply is longer than {LONGEST_REPLY} bytes")
    return bytes(whole)


def _text(reply: bytes) -> str:
    """A reply without the empty line that ends each. Raises ValueError for one that was cut short."""
    if not reply.endswith(b"\n"):
        raise ValueError("the reply is cut short")
    return reply.decode("utf-8", "replace").strip()


class HaproxyDriver:
    """One HAProxy. backend: of servers that name none. leave: the state that takes a server out."""

    name = "haproxy"
    abilities = Abilities(reads_back=True, proven=True, calls=True, weighs=True)

    def __init__(self, runtime: Runtime, *, backend: str | None = None, leave: Leave = Leave.DRAIN) -> None:
        self._runtime = runtime
        self._backend = backend
        self._leave = leave

    async def call(self, order: Order) -> str:
        """Set every server of the node. Raises Unanswered or GatewayRefused, the latter before anything is changed."""
        servers = self._servers(order.node)
        state = self._leave.value if order.action is Action.ISOLATE else "ready"
        if len(servers) > 1:
            await self._know(servers)
        for i, server in enumerate(servers):
            await self._set(server, state, half_done=i > 0)
        return f"haproxy set {' and '.join(servers)} to {state}"

    async def observe(self, order: Order) -> Seen:
        """As wished where every server of the node is; what is half done is the opposite. UNKNOWN on any trouble."""
        try:
            bits = [one.admin for one in await self._states(self._servers(order.node))]
        except (GatewayRefused, Unanswered):
            return Seen.UNKNOWN
        if order.action is Action.ISOLATE:
            return Seen.ISOLATED if all(one & LEFT[self._leave] for one in bits) else Seen.ROUTABLE
        return Seen.ISOLATED if any(one & (MAINT | DRAIN) for one in bits) else Seen.ROUTABLE

    async def present(self, nodes: Sequence[str]) -> frozenset[str]:
        """Those all of whose servers exist, are up, and take new requests. Raises GatewayError."""
        servers = {node: self._named(node) for node in nodes}
        serve: set[str] = set()
        for backend in sorted({one.partition("/")[0] for named in servers.values() for one in named}):
            said = await self._runtime.ask(f"show servers state {backend}")
            if said.startswith(f"{STATE_FORMAT}\n"):
                serve |= serving(said)
            elif not said.startswith(NO_BACKEND):
                raise GatewayRefused(_refusal(said, backend))
        return frozenset(node for node, named in servers.items() if named and serve.issuperset(named))

    def _named(self, node: str) -> tuple[str, ...]:
        """The servers of a node; none for a name that cannot be one's."""
        try:
            return servers_of(node, self._backend)
        except ValueError:
            return ()

    async def weigh(self, node: str, percent: int) -> str:
        """Give every server of a node this share of the weight in haproxy.cfg; 0 is weight 1.

        Raises Unanswered, or GatewayRefused for a weight too small to be shared and for a `backup` server, which gets
        either everything or nothing.
        """
        servers = self._servers(node)
        for server, now in zip(servers, await self._states(servers), strict=True):
            await self._may_share(server, now, percent)
            await self._tell(server, f"weight {LEAST if percent == 0 else f'{percent}%'}", half_done=False)
        return f"haproxy gave {' and '.join(servers)} {percent} % of the weight"

    async def weight(self, node: str) -> int | None:
        """The smallest share among the servers of a node, 0 for weight 1; None on any trouble."""
        try:
            return min(one.percent for one in await self._states(self._servers(node)))
        except (GatewayRefused, Unanswered):
            return None

    async def _may_share(self, server: str, now: "Server", percent: int) -> None:
        if now.share(percent or 2) <= LEAST:
            said = f"{server} has weight {now.configured}, too coarse for shares; write `weight 100` in haproxy.cfg"
            raise GatewayRefused(f"haproxy: {said}")
        backend, _, name = server.partition("/")
        if name in backups(await self._runtime.ask(f"show stat {backend} 4 -1")):
            said = f"{server} is a backup server, which gets everything or nothing"
            raise GatewayRefused(f"haproxy: {said}; take `backup` out, or leave pools.NAME.shift out")

    def _servers(self, node: str) -> tuple[str, ...]:
        try:
            return servers_of(node, self._backend)
        except ValueError as exc:
            raise GatewayRefused(f"{exc}. Look at the target's gateway_name") from None

    async def _know(self, servers: tuple[str, ...]) -> None:
        """See that all of them exist before the first is changed."""
        try:
            await self._states(servers)
        except Unanswered as exc:
            raise Unanswered(str(exc), arrived=False) from exc

    async def _set(self, server: str, state: str, *, half_done: bool) -> None:
        """Set one server. half_done: others of the node are set already, so no refusal can say that nothing changed."""
        await self._tell(server, f"state {state}", half_done=half_done)

    async def _tell(self, server: str, what: str, *, half_done: bool) -> None:
        try:
            said = await self._runtime.ask(f"set server {server} {what}")
        except Unanswered as exc:
            raise Unanswered(str(exc), arrived=exc.arrived or half_done) from exc
        if said and half_done:
            raise Unanswered(f"{_refusal(said, server)}; other servers of this node are set to {what} already")
        if said:
            raise GatewayRefused(_refusal(said, server))

    async def _states(self, servers: tuple[str, ...]) -> list["Server"]:
        """How each stands. Raises Unanswered or GatewayRefused."""
        found: dict[str, Server] = {}
        for backend in dict.fromkeys(one.partition("/")[0] for one in servers):
            said = await self._runtime.ask(f"show servers state {backend}")
            if not said.startswith(f"{STATE_FORMAT}\n"):
                raise GatewayRefused(_refusal(said, backend))
            found |= states(said)
        missing = [one for one in servers if one not in found]
        if missing:
            raise GatewayRefused(_refusal("No such server", missing[0]))
        return [found[one] for one in servers]


@dataclass(frozen=True, slots=True)
class Server:
    """How a server stands. admin: bits of srv_admin_state. weight: as it is now. configured: as in haproxy.cfg."""

    admin: int
    weight: int
    configured: int

    def share(self, percent: int) -> int:
        """The weight that HAProxy makes of a share: rounded down."""
        return self.configured * percent // 100

    @property
    def percent(self) -> int:
        """The largest share that makes the weight of now, 0 for the least; 100 where nothing was ever set."""
        if self.weight >= self.configured:
            return 100
        return 0 if self.weight <= LEAST else (100 * (self.weight + 1) - 1) // self.configured


def states(reply: str) -> dict[str, Server]:
    """Every `BACKEND/SERVER` in a reply of `show servers state`; lines that are odd are left out."""
    return {name: Server(*(int(row[one]) for one in NUMBERS)) for name, row in _rows(reply)}


def serving(reply: str) -> set[str]:
    """Every `BACKEND/SERVER` that takes new requests: no word of a person against it, some weight, up or starting."""
    return {
        name
        for name, row in _rows(reply)
        if row["srv_admin_state"] == "0" and int(row["srv_uweight"]) > 0 and row.get(UP_COLUMN, "2") in UP
    }


def _rows(reply: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The servers of a reply by `BACKEND/SERVER`, each with its columns."""
    _, _, rest = reply.partition("\n")
    head, *lines = rest.splitlines() or [""]
    columns = head.removeprefix("#").split()
    if not set(COLUMNS) <= set(columns):
        return
    for values in (line.split() for line in lines):
        # a row that does not fit the head would be read in the wrong column
        row = dict(zip(columns, values, strict=False)) if len(values) == len(columns) else {}
        if row and all(_number(row[one]) for one in NUMBERS):
            yield f"{row['be_name']}/{row['srv_name']}", row


def backups(reply: str) -> set[str]:
    """The names of `backup` servers in a reply of `show stat`, which is CSV with a head."""
    rows = csv.DictReader(io.StringIO(reply.removeprefix("# ")))
    return {row["svname"] for row in rows if row.get("bck") == "1"}


def _number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _refusal(said: str, name: str) -> str:
    cure = next((advice for start, advice in ADVICE.items() if said.startswith(start)), "Look at its log")
    return f"haproxy says of {name}: {_line(said) or 'nothing'}. {cure}"


def _line(said: str) -> str:
    """The first line, short enough for a message."""
    return said.partition("\n")[0][:200].rstrip(". ")
