"""What comes in through the admin listener, handed to those who do it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quantwatch.errors import InputError
from quantwatch.expose.calls import Reloaded
from quantwatch.flow.foresight import Foreseen
from quantwatch.flow.prompt import Prompt
from quantwatch.flow.run import Trigger
from quantwatch.flow.state import Pause
from quantwatch.flow.word import Heard, Word

if TYPE_CHECKING:
    from quantwatch.flows.people import People
    from quantwatch.flows.watch import Watch


@dataclass(slots=True)
class Desk:
    """Answers people and scripts. watch, people: None while the daemon is starting."""

    reload_: Callable[[], Awaitable[Reloaded]]
    watch: "Watch | None" = None
    people: "People | None" = None

    async def reload(self) -> Reloaded:
        """Read the configuration again."""
        return await self.reload_()

    async def pause(self, scope: str, reason: str, *, author: str, seconds: float | None) -> Pause:
        """Let nothing act within a scope. Raises StoreError."""
        return await self._people().pause(scope, reason=reason, author=author, seconds=seconds)

    async def resume(self, pause_id: str, *, author: str, reason: str = "") -> bool:
        """End a pause; False where there is none. Raises StoreError."""
        return await self._people().resume(pause_id, author=author, reason=reason)

    async def accept_baseline(self, *, author: str, reason: str) -> str:
        """Take the baseline as it is now for the yardstick. Raises StoreError."""
        return await self._people().accept_baseline(author=author, reason=reason)

    async def isolate(self, word: Word) -> Heard:
        """Take a target out and keep it out. Raises InputError where that cannot be, StoreError."""
        from quantwatch.flows.words import isolate

        return await isolate(self._watch(), word)

    async def hold(self, word: Word) -> Heard:
        """Let nothing automatic change a target's routing. Raises InputError, StoreError."""
        from quantwatch.flows.words import hold

        return await hold(self._watch(), word)

    async def release(self, word: Word) -> Heard:
        """Bring a target back and free it. Raises InputError where that cannot be, StoreError."""
        from quantwatch.flows.release import release

        return await release(self._watch(), word)

    async def confirm_healthy(self, word: Word) -> Heard:
        """Let what was measured up to now count no more. Raises InputError, StoreError."""
        from quantwatch.flows.release import confirm_healthy

        return await confirm_healthy(self._watch(), word)

    async def approve(self, proposal: str, *, author: str, reason: str = "") -> Heard:
        """Give the order that a proposal asks for. Raises InputError where that cannot be, StoreError."""
        from quantwatch.flows.approve import approve

        return await approve(self._watch(), proposal, author=author, reason=reason)

    async def reject(self, proposal: str, *, author: str, reason: str) -> Heard:
        """Close a proposal. Raises InputError where there is none, StoreError."""
        from quantwatch.flows.approve import reject

        return await reject(self._watch(), proposal, author=author, reason=reason)

    async def run_now(self, target: str, task_set: str | None, *, author: str = "a person", reason: str = "") -> int:
        """Queue runs of a target, of one task set or of all, and write down who asked; gives how many were queued."""
        if self.watch is None or target not in self.watch.watchlist.targets:
            return 0
        names = [task_set] if task_set is not None else list(self.watch.watchlist.targets[target].sets)
        queued = [name for name in names if self.watch.due(target, name, Trigger.MANUAL)]
        if queued and self.people is not None:
            await self.people.asked_to_run(target, queued, author=author, reason=reason)
        return len(queued)

    async def foresee(self, call: str, about: str, *, force: bool = False) -> Foreseen:
        """What a call would lead to now. Raises InputError while the daemon is starting."""
        from quantwatch.flows.foresee import foresee

        return await foresee(self._watch(), call, about, force=force)

    def golden(self, task_set: str) -> tuple[Prompt, ...] | None:
        """The prompts of a task set as they are asked; None while the daemon is starting, or for an unknown one."""
        watched = self.watch.watchlist.targets.values() if self.watch is not None else ()
        return next((one.sets[task_set].prompts.prompts for one in watched if task_set in one.sets), None)

    def _watch(self) -> "Watch":
        if self.watch is None:
            raise InputError("quantwatch is still starting; try again in a moment")
        return self.watch

    def _people(self) -> "People":
        if self.people is None:
            raise InputError("quantwatch is still starting; try again in a moment")
        return self.people
