"""HAProxy's runtime socket, played: one command a connection, the replies of 2.6, and what can go wrong with them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

HEAD = (
    "# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight "
    "srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state "
    "bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr "
    "srv_agent_addr srv_agent_port"
)
BITS = {"ready": 0, "maint": 1, "drain": 8}


@dataclass(slots=True)
class RuntimeSocket:
    """Servers by `BACKEND/SERVER` with their admin state, and the commands that came.

    replies: for the next commands, one each, None for a good one. hangs: takes commands and says nothing. weights: of
    servers that were given one; configured: of all of them in haproxy.cfg. static: `balance` knows no shares.
    gate: every answer waits for it.
    """

    path: Path
    states: dict[str, int]
    replies: list[bytes | None] = field(default_factory=list)
    hangs: bool = False
    commands: list[str] = field(default_factory=list)
    weights: dict[str, int] = field(default_factory=dict)
    configured: int = 100
    backups: set[str] = field(default_factory=set)
    static: bool = False
    gate: asyncio.Event | None = None

    @property
    def changes(self) -> list[str]:
        """The commands that change something."""
        return [one for one in self.commands if one.startswith("set ")]

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one command."""
        command = (await reader.readline()).decode().rstrip("\n")
        self.commands.append(command)
        if self.hangs:
            await reader.read()
        if self.gate is not None:
            await self.gate.wait()
        given = self.replies.pop(0) if self.replies else None
        writer.write(given if given is not None else f"{self._reply(command)}\n".encode())
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    def _reply(self, command: str) -> str:
        words = command.split(" ")
        match words:
            case ["set", "server", server, "state", ("ready" | "maint" | "drain") as state]:
                if server.partition("/")[0] not in self._backends:
                    return "No such backend.\n"
                if server in self.states:
                    self.states[server] = BITS[state]
                return "" if server in self.states else "No such server.\n"
            case ["set", "server", server, "weight", share]:
                return self._weighed(server, share)
            case ["show", "stat", backend, "4", "-1"]:
                own = [one.partition("/") for one in self.states if one.startswith(f"{backend}/")]
                lines = [f"{backend},{name},1,{int(name in self.backups)}," for _, _, name in own]
                return "\n".join(["# pxname,svname,act,bck,", *lines, ""])
            case ["show", "servers", "state", backend]:
                return self._shown(backend) if backend in self._backends else "Can't find backend.\n"
        return "Unknown command. Please enter one of the following commands only:\n  help\n"

    def _weighed(self, server: str, share: str) -> str:
        if server not in self.states:
            return "No such server.\n"
        part = share.endswith("%")
        weight = self.configured * int(share[:-1]) // 100 if part else int(share)
        if self.static and weight not in (0, self.configured):
            return "Backend is using a static LB algorithm and only accepts weights '0%' and '100%'.\n"
        self.weights[server] = weight
        return ""

    @property
    def _backends(self) -> set[str]:
        return {one.partition("/")[0] for one in self.states}

    def _shown(self, backend: str) -> str:
        def weights(one: str) -> str:
            return f"{self.weights.get(one, self.configured)} {self.configured} 0 1 0 2 0 0 0 0 -"

        lines = [
            f"3 {backend} {i} {one.partition('/')[2]} 127.0.0.1 2 {bits} {weights(one)} 18081 - 0 0 - - 0"
            for i, (one, bits) in enumerate(self.states.items(), 1)
            if one.startswith(f"{backend}/")
        ]
        return "\n".join(["1", HEAD, *lines, ""])


@contextlib.asynccontextmanager
async def runtime_socket(folder: Path, **states: int) -> AsyncIterator[RuntimeSocket]:
    """Serve one; the servers are of backend `llm`."""
    played = RuntimeSocket(folder / "admin.sock", {f"llm/{name}": bits for name, bits in states.items()})
    server = await asyncio.start_unix_server(played.answer, played.path)
    try:
        yield played
    finally:
        server.close()
        played.path.unlink(missing_ok=True)
