"""What can be asked of the daemon: checked, put on record with the caller, and handed over.

The API and the forms of the pages take this way alike, so that neither can do what the other may not.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from quantwatch.expose.access import Entry
from quantwatch.expose.body import BodyError, Fields
from quantwatch.flow.access import Role
from quantwatch.flow.board import Board
from quantwatch.flow.foresight import Foreseen
from quantwatch.flow.state import ROLLOUT, Pause
from quantwatch.flow.word import Heard, Word
from quantwatch.log import logger

log = logger("quantwatch.admin")

LONGEST_PAUSE = 366 * 86_400.0
"""Seconds; who needs more leaves the end open."""

LEAST: dict[str, Role] = {
    "reload": Role.ADMIN,
    "accept_baseline": Role.ADMIN,
    "pause": Role.OPERATOR,
    "resume": Role.OPERATOR,
    "isolate": Role.OPERATOR,
    "hold": Role.OPERATOR,
    "release": Role.OPERATOR,
    "confirm_healthy": Role.OPERATOR,
    "approve": Role.OPERATOR,
    "reject": Role.OPERATOR,
    "run": Role.OPERATOR,
}
"""Everything that changes something, and the least role for it. To read needs VIEWER."""

WORDS: dict[str, tuple[str, ...]] = {
    "isolate": ("seconds", "force"),
    "hold": ("seconds",),
    "release": (),
    "confirm_healthy": (),
}
"""Words about a target, and which fields each has beside target, author and reason."""

FIELDS: dict[str, tuple[str, ...]] = {
    "pause": ("scope", "reason", "author", "seconds"),
    "resume": ("author", "reason"),
    "accept_baseline": ("author", "reason"),
    "approve": ("author", "reason"),
    "reject": ("author", "reason"),
    "run": ("target", "task_set", "author", "reason"),
    **{name: ("target", "author", "reason", *also) for name, also in WORDS.items()},
}
"""The fields of each call that has any."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What came of reading the configuration again. changes: one line each, without secrets."""

    ok: bool
    message: str
    changes: tuple[str, ...] = ()


class Admin(Protocol):
    """What can be asked of the daemon. InputError: the caller's fault; StoreError: nothing was done."""

    async def reload(self) -> Reloaded:
        """Read the configuration again; the old one stays when the new one cannot be used."""
        ...

    async def pause(self, scope: str, reason: str, *, author: str, seconds: float | None) -> Pause:
        """Stop acting within a scope, for some seconds or until resumed."""
        ...

    async def resume(self, pause_id: str, *, author: str, reason: str) -> bool:
        """End a pause; False when there is none of that id."""
        ...

    async def accept_baseline(self, *, author: str, reason: str) -> str:
        """Take the baseline as it is now for the yardstick; says what was accepted."""
        ...

    async def isolate(self, word: Word) -> Heard:
        """Take a target out of traffic and keep it out."""
        ...

    async def hold(self, word: Word) -> Heard:
        """Let nothing automatic change a target's routing."""
        ...

    async def release(self, word: Word) -> Heard:
        """Bring an isolated target back, and free it from what people have said."""
        ...

    async def confirm_healthy(self, word: Word) -> Heard:
        """Let what was measured of a target up to now count no more, and bring it back."""
        ...

    async def approve(self, proposal: str, *, author: str, reason: str) -> Heard:
        """Give the order that a proposal asks for."""
        ...

    async def reject(self, proposal: str, *, author: str, reason: str) -> Heard:
        """Close a proposal without an order."""
        ...

    async def run_now(self, target: str, task_set: str | None, *, author: str, reason: str) -> int:
        """Queue runs of a target, of one task set or all; says how many."""
        ...

    async def foresee(self, call: str, about: str, *, force: bool = False) -> Foreseen:
        """What a call about a target, a proposal or a scope would lead to now; changes nothing."""
        ...


Counted = Callable[[str, str], None]
"""Is told each call and the caller's role."""


def unheard(_: str, __: str) -> None:
    """Count nothing."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Takes calls of those who may."""

    board: Callable[[], Board]
    admin: Admin
    counted: Counted = unheard

    async def reload(self, entry: Entry) -> Reloaded:
        """Read the configuration again."""
        self._called(entry, "reload")
        return await self.admin.reload()

    async def pause(self, entry: Entry, fields: Fields) -> Pause:
        """Stop acting within a scope. Raises BodyError."""
        scope, reason, author = self.scope(fields), fields.text("reason"), self._author(entry, fields)
        seconds = fields.seconds("seconds", most=LONGEST_PAUSE)
        if scope.startswith(ROLLOUT) and seconds is None:
            raise BodyError("seconds", "a rollout has an end; give how long it may last")
        self._called(entry, "pause", scope=scope, reason=reason, author=author, seconds=seconds)
        return await self.admin.pause(scope, reason, author=author, seconds=seconds)

    async def resume(self, entry: Entry, pause_id: str, fields: Fields) -> bool:
        """End a pause. Raises BodyError."""
        author, reason = self._author(entry, fields), _reason(fields)
        self._called(entry, "resume", pause=pause_id, author=author, **_given(reason))
        return await self.admin.resume(pause_id, author=author, reason=reason)

    async def accept_baseline(self, entry: Entry, fields: Fields) -> str:
        """Take the baseline as it is now for the yardstick. Raises BodyError."""
        author, reason = self._author(entry, fields), fields.text("reason")
        self._called(entry, "accept_baseline", author=author, reason=reason)
        return await self.admin.accept_baseline(author=author, reason=reason)

    async def word(self, entry: Entry, name: str, fields: Fields) -> Heard:
        """What a person says about a target; WORDS tells which fields each word has. Raises BodyError."""
        do: Callable[[Word], Awaitable[Heard]] = getattr(self.admin, name)
        word = Word(
            fields.text("target"),
            self._author(entry, fields),
            fields.text("reason"),
            seconds=fields.seconds("seconds", most=LONGEST_PAUSE),
            force=fields.flag("force"),
        )
        self._called(entry, name, **{one: getattr(word, one) for one in FIELDS[name]})
        return await do(word)

    async def approve(self, entry: Entry, proposal: str, fields: Fields) -> Heard:
        """Give the order that a proposal asks for. Raises BodyError."""
        author, reason = self._author(entry, fields), _reason(fields)
        self._called(entry, "approve", proposal=proposal, author=author, **_given(reason))
        return await self.admin.approve(proposal, author=author, reason=reason)

    async def reject(self, entry: Entry, proposal: str, fields: Fields) -> Heard:
        """Close a proposal. Raises BodyError."""
        author, reason = self._author(entry, fields), fields.text("reason")
        self._called(entry, "reject", proposal=proposal, author=author, reason=reason)
        return await self.admin.reject(proposal, author=author, reason=reason)

    async def run(self, entry: Entry, fields: Fields) -> int:
        """Queue runs of a target. Raises BodyError."""
        target, task_set = fields.text("target"), fields.maybe_text("task_set")
        found = self.board().target(target)
        if found is None:
            raise BodyError("target", "there is no target of this name")
        if task_set is not None and task_set not in [one.state.task_set for one in found.sets]:
            raise BodyError("task_set", "the target has no task set of this name")
        who, reason = entry.caller.author(fields.maybe_text("author")), _reason(fields)
        self._called(entry, "run", target=target, task_set=task_set, author=who, **_given(reason))
        return await self.admin.run_now(target, task_set, author=who or entry.caller.name, reason=reason)

    def scope(self, fields: Fields) -> str:
        """A scope that names something: a pause of what does not exist would look like one and hold nothing."""
        scope, board = fields.text("scope"), self.board()
        known = scope.removeprefix(ROLLOUT)
        pools = [f"pool:{one.name}" for one in board.pools]
        targets = [f"target:{one.state.target}" for one in board.targets]
        if known not in ["all", *pools, *targets]:
            raise BodyError("scope", "must be all, pool:NAME or target:NAME, of a pool or target that is configured")
        return scope

    def _author(self, entry: Entry, fields: Fields) -> str:
        author = entry.caller.author(fields.maybe_text("author"))
        if author is None:
            raise BodyError("author", "is missing")
        return author

    def _called(self, entry: Entry, call: str, **values: Any) -> None:
        """Put a call that changes something on record before it is carried out."""
        caller = entry.caller
        role = caller.role.value if caller.role is not None else "none"
        self.counted(call, role)
        log.warning("admin call", call=call, client=entry.client, caller=caller.name, role=role, **values)


def _reason(fields: Fields) -> str:
    """The reason of a call that need not have one."""
    return fields.maybe_text("reason") or ""


def _given(reason: str) -> dict[str, str]:
    """The same for the log, which leaves out what is empty."""
    return {"reason": reason} if reason else {}
