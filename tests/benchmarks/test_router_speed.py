"""How long an order takes at a real router, from its beginning to the state that was read back, under traffic."""

import statistics
import time
from pathlib import Path

import pytest

from quantwatch.act.carry_out import carry_out
from quantwatch.act.router import Router
from quantwatch.clock import SystemClock
from quantwatch.flow.decision import Action, Intent, Result
from support.gateway import MemoryLedger, order
from support.routers import DRIVERS, bench, program, traffic

pytestmark = pytest.mark.benchmark

ROUNDS = 7


async def timed(driver: Router, node: str, action: Action, *, decision: str) -> float:
    """Seconds from the order to its verified end."""
    clock = SystemClock()
    wanted = order(action, node=node, driver=driver.name, decision=decision)
    started = time.perf_counter()
    outcome = await carry_out(
        Intent(wanted, clock.now()),
        driver,
        MemoryLedger(),
        clock,
        give_up_seconds=60,
        wanted=lambda: None,
        tell=lambda _: None,
    )
    assert outcome.result is Result.VERIFIED, outcome
    return time.perf_counter() - started


@pytest.mark.parametrize("kind", DRIVERS)
async def test_an_order_to_its_verified_end(kind: str, tmp_path: Path) -> None:
    if program(kind) is None:
        pytest.skip(f"{kind} is not installed")
    seconds: dict[Action, list[float]] = {action: [] for action in Action}
    with bench(kind, tmp_path) as one, traffic(one.router) as seen:
        driver = one.driver()
        for number in range(ROUNDS):
            for action in Action:
                seconds[action].append(await timed(driver, one.urls[0], action, decision=f"d-{number}"))
        await one.close()
    said = ((action, statistics.median(took), max(took)) for action, took in seconds.items())
    told = ", ".join(f"{action.value} {median:.3f} s (slowest {slowest:.3f} s)" for action, median, slowest in said)
    print(f"\n{kind}: {told}; {len(seen.statuses)} requests meanwhile, {len(seen.failed)} failed")  # noqa: T201, for the record
    assert seen.failed == []
