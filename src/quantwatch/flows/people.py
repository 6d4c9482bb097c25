"""What people say to a running watch: pause, resume, accept the baseline as it is. Each word is written down first."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from quantwatch.clock import Clock
from quantwatch.errors import InputError, StoreError
from quantwatch.flow.run import fresh_id
from quantwatch.flow.state import ROLLOUT, WINDOW, Axis, Human, Pause, Transition
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.memory import Memory
from quantwatch.flows.yardstick import Yardstick
from quantwatch.log import logger

log = logger()


@dataclass(frozen=True, slots=True)
class People:
    """Carries out what people say."""

    memory: Memory
    keeper: Keeper
    yardstick: Yardstick
    clock: Clock
    random: Random

    async def pause(self, scope: str, *, reason: str, author: str, seconds: float | None) -> Pause:
        """Let nothing act within a scope until the time is over or somebody resumes. Raises StoreError."""
        now = self.clock.now()
        until = None if seconds is None else now + timedelta(seconds=seconds)
        pause = Pause(fresh_id("p", now, self.random), scope, reason, author, now, until)
        await self.keeper.write(lambda store: store.add_pause(pause))
        self.memory.pauses.append(pause)
        log.warning("paused", scope=scope, reason=reason, author=author, pause_id=pause.id)
        return pause

    async def resume(self, pause_id: str, *, author: str, reason: str = "") -> bool:
        """End a pause; False where there is none. Raises StoreError, and InputError for a window, which nobody ends.

        Who did it and why stands among the changes of what was paused.
        """
        if pause_id.startswith(WINDOW):
            name = pause_id.removeprefix(WINDOW)
            raise InputError(f"{name} is a window of the configuration; take it out there and `quantwatch reload`")
        known = [one for one in self.memory.pauses if one.id == pause_id]
        if not known:
            return False
        now = self.clock.now()
        if pause_id not in {one.id for one in self.memory.unkept}:  # one of our own that was never written down
            about = known[0].scope.removeprefix(ROLLOUT).removeprefix("target:")
            said = self._said(about, _because(f"resume {pause_id}", reason), author=author)
            await self.keeper.write(lambda store: store.end_pause(pause_id, now, [said]))
        self.memory.unkept = [one for one in self.memory.unkept if one.id != pause_id]
        self.memory.pauses = [one for one in self.memory.pauses if one.id != pause_id]
        log.warning("resumed", scope=known[0].scope, author=author, reason=reason, pause_id=pause_id)
        return True

    async def asked_to_run(self, target: str, task_sets: Sequence[str], *, author: str, reason: str = "") -> None:
        """Write down who asked for runs now, and why. Raises nothing: measuring needs no store."""
        what = _because(f"run {', '.join(task_sets)}", reason)
        said = self._said(target, what, author=author, task_set=task_sets[0] if len(task_sets) == 1 else None)
        with contextlib.suppress(StoreError):
            await self.keeper.write(lambda store: store.add_changes([said]))

    def _said(self, about: str, what: str, *, author: str, task_set: str | None = None) -> Transition:
        """A person's word that leaves the human axis as it is. about: a target, or another scope of a pause."""
        state = self.memory.targets.get(about)
        human = str(Human.NONE if state is None else state.human)
        return Transition(self.clock.now(), about, Axis.HUMAN, human, human, what, task_set, author=author)

    async def accept_baseline(self, *, author: str, reason: str) -> str:
        """Take the baseline that is met next for the yardstick; its stored answers no longer count.

        Raises StoreError.
        """
        now = self.clock.now()
        dropped = await self.keeper.write(lambda store: store.drop_references(at=now))
        self.yardstick.accept()
        self.memory.checks.clear()
        log.warning("baseline accepted as it is now", author=author, reason=reason, dropped=dropped)
        return f"{dropped} stored answers no longer count; the baseline that the next runs meet gives new ones"


def _because(what: str, reason: str) -> str:
    """What a person did, and why where they said so."""
    return f"{what}: {reason}" if reason else what
