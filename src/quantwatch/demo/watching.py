"""Asks the daemon as `quantwatch status` does."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import httpx

from quantwatch.demo.children import DemoFailed

LOOK_SECONDS = 0.5

Target = dict[str, Any]
"""The daemon's word on one target, in the form of expose/as_json."""


class Watching:
    """The daemon's state. target: whose. check: raises DemoFailed once it has ended. seen: hears every picture."""

    def __init__(self, admin: str, *, target: str, check: Callable[[], None], seen: Callable[[Target], None]) -> None:
        self._admin = admin
        self._check = check
        self._target = target
        self._seen = seen
        self.latest: dict[str, Any] = {}

    async def until(self, met: Callable[[Target], bool], *, seconds: float, what: str) -> Target:
        """Wait until the target is so. Raises DemoFailed with the daemon's own reasons when time is up.

        Meanwhile the daemon is asked for a run whenever it has none, as a deployment's last step would ask for one:
        its schedule alone would do the same, later.
        """
        target: Target | None = None
        try:
            async with asyncio.timeout(seconds):
                while target is None or not met(target):
                    await asyncio.sleep(LOOK_SECONDS)
                    self._check()
                    target = await self._look() or target
                    if target is not None and target["running"] is None and not target["queued"]:
                        await self._run_now()
        except TimeoutError:
            raise DemoFailed(f"{what} did not happen within {seconds:g} s; {_why(target)}") from None
        return target

    async def _run_now(self) -> None:
        with contextlib.suppress(httpx.HTTPError):
            async with httpx.AsyncClient(timeout=10.0, trust_env=False) as http:
                await http.post(f"{self._admin}/api/v1/runs", json={"target": self._target})

    async def _look(self) -> Target | None:
        try:
            async with httpx.AsyncClient(timeout=10.0, trust_env=False) as http:
                self.latest = (await http.get(f"{self._admin}/api/v1/status")).raise_for_status().json()
        except httpx.HTTPError:
            return None  # it is not up yet, or busy; the next look tells
        found = next((one for one in self.latest["targets"] if one["target"] == self._target), None)
        if found is not None:
            self._seen(found)
        return found


async def status_of(url: str) -> str:
    """The status of a GET, or why there is none."""
    try:
        async with httpx.AsyncClient(timeout=30.0, trust_env=False) as http:
            return str((await http.get(url)).status_code)
    except httpx.HTTPError as exc:
        return repr(exc)


def _why(target: Target | None) -> str:
    if target is None:
        return "the daemon did not answer"
    return f"the daemon says: {target['quality']}, routing {target['routing']}: {target['reason']}"
