"""One night in a fleet, with a real daemon: a node goes bad and is isolated, others are held back or wait for a person.

Whatever may come from outside and be shown is hostile here: prompts, names that servers give themselves, reasons.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from quantwatch.flow.decision import Action, Ruling
from quantwatch.flow.verdict import Quality
from quantwatch.record.archive import Archive
from support.daemons import Running, Site, free_port, site, started, write_prompts
from support.gateway import Gateway, served_gateway
from support.prometheus import wait
from support.runs import node
from support.served import served
from support.tiny_node import TinyModel, TinyNode
from support.years import Past, opened, write

BAD, HELD, GOOD, PAUSED = "int8-b", "int8-c", "int8-a", "int8-d"
ASKS, ABSENT = "int4-a", "int4-b"
CHAT, BATCH = "chat", "batch"
PROBED = (GOOD, BAD, HELD, PAUSED, ASKS)

SCRIPT = "<script>window.pwned=1</script>"
IMAGE = "<img src=x onerror=window.pwned=1>"
HOSTILE = f'"><svg onload=window.pwned=1>{SCRIPT}{IMAGE}</textarea>&lt;b&gt; {{{{7*7}}}}'
"""Text that would run or load something, if anybody took it for more than text."""

ROLES = ("viewer", "operator", "admin")
TOKENS = {role: f"{role}-{'0123456789abcdef' * 2}" for role in ROLES}
"""A bearer token of each role; the caller's name is that of the role, with `ada-` before it."""

PROMPTS = (
    f"Explain what {SCRIPT} does to a page that shows it.",
    f"{IMAGE}</script><a href='javascript:window.pwned=1'>an answer</a>",
    "Add 17 and 25, then multiply by 3, step by step.",
    "SELECT name FROM keepers WHERE lamp = 'out';",
    "用中文解释量化为什么会损害数学推理。",
    "def median(values):\n    values = sorted(values)\n",
)


@dataclass(frozen=True, slots=True)
class Night:
    """What runs. nodes: by target."""

    daemon: Running
    nodes: dict[str, TinyNode]
    gateway: Gateway

    @property
    def origin(self) -> str:
        """Where the pages are."""
        return self.daemon.site.admin

    def status(self) -> dict[str, Any]:
        """The board, as programs read it."""
        answer: dict[str, Any] = self.call("GET", "/api/v1/status").json()
        return answer

    def of(self, quality: Quality) -> set[str]:
        """The targets of this quality."""
        return {one["target"] for one in self.status()["targets"] if one["quality"] == quality}

    def target(self, name: str) -> dict[str, Any]:
        """One target of the board."""
        return next(one for one in self.status()["targets"] if one["target"] == name)

    def decision(self, target: str) -> dict[str, Any]:
        """The newest decision that isolated a target."""
        return newest_isolation(self.daemon.site.store, target)

    def call(self, method: str, path: str, **body: Any) -> httpx.Response:
        """A call of the admin API, as a program makes it."""
        return admin_call(self.origin, method, path, token=TOKENS["admin"], **body)

    def become(self, quality: Quality, *targets: str, damage: float) -> None:
        """Give targets this damage, measure them, and wait for the verdict."""
        for name in targets:
            self.nodes[name].model = TinyModel(damage=damage)
            self.call("POST", "/api/v1/runs", target=name)
        waited = set(targets)
        wait(lambda: waited <= self.of(quality), f"{', '.join(targets)} were {quality}")


def admin_call(origin: str, method: str, path: str, *, token: str | None = None, **body: Any) -> httpx.Response:
    """A call of an admin API, which must be answered well."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    answer = httpx.request(method, origin + path, json=body or None, headers=headers, trust_env=False, timeout=30)
    assert answer.status_code < 400, answer.text
    return answer


def newest_isolation(store: Path, target: str) -> dict[str, Any]:
    """The newest decision to isolate a target that was carried out, and the run it rests on."""
    with Archive.open(store) as archive:
        made = archive.decisions(target=target)
    newest = next(one for one in made if one.ruling is Ruling.ACT and one.action is Action.ISOLATE)
    return {"id": newest.id, "run": newest.run}


def place(folder: Path, stack: ExitStack, gateway: Gateway) -> tuple[Site, dict[str, TinyNode]]:
    """The configuration, with servers behind it, and the targets' nodes."""
    nodes = {name: node(version=f"0.32.0{HOSTILE}" if name == BAD else "0.32.0") for name in PROBED}
    at = stack.enter_context(served_gateway(gateway)).url
    write_prompts(folder, "questions", texts=PROMPTS)
    where = site(
        folder,
        stack.enter_context(served(TinyNode())),
        {name: stack.enter_context(served(one)) for name, one in nodes.items()},
        pools={
            CHAT: {"mode": "enforce", "max_isolated": "25%", "storm_share": "100%"},
            BATCH: {"mode": "approve", "max_isolated": "50%", "storm_share": "100%"},
        },
        gateway={"driver": "webhook", "url": f"{at}/act", "state_url": f"{at}/state"},
        limits={"int8": {"kl_p99": {"warn": 0.2, "critical": 0.6}}},
        server={"tokens": list(_tokens(folder))},
        expose={"prompts": "full"},
    )
    for one in where.content["targets"]:
        if one["name"] == ASKS:
            one |= {"scheme": "int4", "pool": BATCH}
    gone = {"name": ABSENT, "url": f"http://127.0.0.1:{free_port()}", "scheme": "int4", "pool": BATCH}
    where.content["targets"].append(gone)
    where.content["task_sets"] = {
        name: {**where.content["task_sets"]["letters"], "prompts": f"{name}.yaml"} for name in ("letters", "questions")
    }
    return where.write(), nodes


def _tokens(folder: Path) -> Iterator[dict[str, str]]:
    for role, token in TOKENS.items():
        file = folder / f"{role}.token"
        file.write_text(token)
        file.chmod(0o600)
        yield {"name": f"ada-{role}", "role": role, "token": f"file:{file}"}


def remember(where: Site, *, until: datetime) -> None:
    """A day before the daemon came, so that there is something to draw."""
    scheme = {ASKS: (BATCH, 0.02), ABSENT: (BATCH, 0.02)}
    pasts = []
    for name in (*PROBED, ABSENT):
        pool, level = scheme.get(name, (CHAT, 0.004))
        for number, task_set in enumerate(("letters", "questions")):
            end = until - timedelta(minutes=20 + number)
            pasts.append(Past(name, task_set, pool, 96, end, level=level, bad=2 if name == BAD else 0))
    with opened(where.store) as store:
        write(store, pasts)


@contextmanager
def night_of(folder: Path) -> Iterator[Night]:
    """The night as it stands once everything has happened."""
    gateway = Gateway()
    with ExitStack() as stack:
        where, nodes = place(folder, stack, gateway)
        remember(where, until=datetime.now(UTC))
        scene = Night(stack.enter_context(started(where)).ready(), nodes, gateway)
        scene.call("POST", "/api/v1/runs", target=ABSENT)
        scene.become(Quality.OK, *PROBED, damage=0.0)
        scene.become(Quality.DEGRADED, BAD, damage=1.5)
        wait(lambda: scene.target(BAD)["routing"] == "out", "isolated")
        scene.become(Quality.DEGRADED, HELD, ASKS, damage=1.5)
        wait(lambda: scene.status()["proposals"], "asked a person")
        wait(lambda: scene.target(ABSENT)["quality"] == Quality.UNKNOWN, "missed the one that is not there")
        said = {"reason": f"new driver {HOSTILE}", "author": f"ada{SCRIPT}", "seconds": 7200}
        scene.call("POST", "/api/v1/pauses", scope=f"target:{PAUSED}", **said)
        yield scene
