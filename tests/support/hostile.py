"""A fleet whose every name is hostile, as a store of another version or a program of somebody else could hold it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from quantwatch.flow.board import Board, PoolBoard, TargetBoard, TaskSetBoard
from quantwatch.flow.decision import Action, PoolMode
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.proposal import Proposal
from quantwatch.flow.state import Human, Pause, Routing
from quantwatch.flow.verdict import Quality
from quantwatch.pages.app import LivePage
from quantwatch.pages.reading import Reading
from quantwatch.pages.site import Site
from support.boards import board, isolated, measured, target_board
from support.night import HOSTILE
from support.stored import after, decision, run
from support.years import Past, decide, decided, opened, write

LONG = "int8-" + "x" * 195
FOREIGN = "节点/α β/../%2e%2e?a=1&b=2#c;d\\e"
NAMES = (LONG, FOREIGN, HOSTILE, "'><b>", "int8-a")
TASK_SET = f"数学 {HOSTILE}"
POOL = f"pool/{HOSTILE}"
NOW = datetime.now(UTC).replace(microsecond=0)


def fleet() -> Board:
    """Every name in every state that shows it."""
    targets = tuple(_target(number, name) for number, name in enumerate(NAMES))
    pool = PoolBoard(POOL, PoolMode.APPROVE, len(targets), 1, 2, storm=True)
    pool = replace(pool, missing=(LONG, HOSTILE), rungs=(HOSTILE, "b"))
    paused = Pause("p-1", f"target:{LONG}", HOSTILE, f"ada {HOSTILE}", NOW, None)
    late = NOW + timedelta(hours=4)
    wish = Proposal("d-1", FOREIGN, POOL, Action.ISOLATE, HOSTILE, "r-1", NOW, late, objections=HOSTILE)
    asked = TaskSetBoard(TASK_SET, "f" * 64, prompts=200, draw=24, k=20, mode=ProbeMode.PROMPT_SCORING)
    whole = board(*targets, pauses=(paused,), store_trouble=HOSTILE, gateway_trouble=HOSTILE)
    baseline = replace(whole.baseline, trouble=HOSTILE)
    return replace(whole, pools=(pool,), proposals=(wish,), task_sets=(asked,), baseline=baseline)


def _target(number: int, name: str) -> TargetBoard:
    quality = Quality.DEGRADED if number < 2 else Quality.OK
    sets = (measured(name, TASK_SET, reason=HOSTILE, quality=quality),)
    more: dict[str, Any] = {"running": TASK_SET, "pool": POOL, "reason": HOSTILE}
    if number == 0:
        return isolated(name, *sets, **more)
    if number == 1:
        return target_board(name, *sets, quality=quality, routing=Routing.CONTRADICTED, **more)
    if number == 2:
        more |= {"human": Human.HELD, "human_author": HOSTILE, "human_reason": HOSTILE}
    return target_board(name, *sets, **more)


def remembered(file: Path) -> None:
    """What the store holds of them."""
    with opened(file) as store:
        write(store, [Past(name, TASK_SET, POOL, 30, NOW, bad=2) for name in NAMES])
        store.add_run(run(0, id="r-1"), after(run(0, id="r-1")))
        decide(store, [decision("d-1", 0), *decided(NAMES, pool=POOL, each=2, end=NOW)])


def live(file: Path, whole: Board) -> Starlette:
    """The pages over a board and a store, without a daemon."""
    site = Site(lambda: whole, Reading(file), lambda: datetime.now(UTC))
    pages = LivePage(site)

    async def failed(request: Request, exc: Exception) -> Response:
        reply = await pages.failed(request, exc)
        assert reply is not None, "only paths of pages are asked for"
        return reply

    return Starlette(routes=pages.routes, exception_handlers={HTTPException: failed, Exception: failed})
