"""What people do on the pages: who they are there, what each action is about, and how it is carried out."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request

from quantwatch.errors import InputError, NeedsForce, StoreError
from quantwatch.expose.access import Access, Entry
from quantwatch.expose.body import BodyError, Fields
from quantwatch.expose.calls import FIELDS, LEAST, LONGEST_PAUSE, Calls
from quantwatch.expose.guard import ENTRY
from quantwatch.flow.board import PoolBoard, TargetBoard
from quantwatch.flow.foresight import Foreseen
from quantwatch.flow.proposal import Proposal
from quantwatch.flow.state import Pause
from quantwatch.pages.plans import Outcome, Plan, Plans

ABOUT = {
    "pause": "scope",
    "resume": "pause",
    "hold": "target",
    "isolate": "target",
    "release": "target",
    "confirm_healthy": "target",
    "run": "target",
    "approve": "proposal",
    "reject": "proposal",
}
"""The actions of the pages, and what each is about."""

ORDERING = ("isolate", "release", "confirm_healthy", "approve")
"""Actions that can lead to an order, which the gateway has not answered yet when the page tells of it."""

TIMED = ("pause", "hold", "isolate")
"""Actions that hold for a while."""

LASTING = ("1800", "3600", "14400", "28800", "86400", "259200")
"""Seconds that a form offers."""


BROKEN_OFF = Outcome("act.broken", failed="an error of quantwatch itself broke it off; the log has it")


SHOWN_ANEW = Outcome("act.failed", failed="more objects than was shown; it was shown anew, to be confirmed again")


@dataclass(frozen=True, slots=True)
class Who:
    """The person in front of a page. role: None for a reader. csrf: what their forms carry, None without a session.

    known: by a token of their own, so that they need not say who they are. secured: whether any token is configured.
    """

    name: str
    role: str | None
    csrf: str | None
    known: bool
    secured: bool
    calls: frozenset[str] = frozenset()

    def may(self, call: str) -> bool:
        """Whether the pages let them do this."""
        return self.secured and call in self.calls


@dataclass(frozen=True, slots=True)
class Subject:
    """What an action is about, as it stands now; only what fits is there."""

    name: str
    target: TargetBoard | None = None
    pool: PoolBoard | None = None
    proposal: Proposal | None = None
    pause: Pause | None = None


class Acting:
    """Takes what the forms send the way that the API takes."""

    def __init__(self, calls: Calls, access: Access) -> None:
        self.calls = calls
        self.access = access
        self.plans = Plans(access.clock)

    def who(self, request: Request) -> Who | None:
        """Whom a page is for; None where nobody was let in by the guard."""
        entry: Entry | None = request.scope.get(ENTRY)
        if entry is None:
            return None
        caller, session = entry.caller, entry.session
        role = caller.role.value if caller.role is not None else None
        may = frozenset(call for call, least in LEAST.items() if caller.may(least))
        csrf = session.csrf if session is not None else None
        return Who(caller.name, role, csrf, caller.named, bool(self.access.keys), may)

    def choices(self, call: str) -> list[str]:
        """Everything that an action can be about now."""
        board = self.calls.board()
        targets = [one.state.target for one in board.targets]
        match ABOUT[call]:
            case "target":
                return targets
            case "proposal":
                return [one.decision for one in board.proposals]
            case "pause":
                return [one.id for one in board.pauses if not one.window]
            case _:
                return ["all", *(f"pool:{one.name}" for one in board.pools), *(f"target:{one}" for one in targets)]

    def subject(self, call: str, name: str) -> Subject | None:
        """What an action is about; None where there is no such thing."""
        board, kind = self.calls.board(), ABOUT[call]
        if name not in self.choices(call):
            return None
        pools = {one.name: one for one in board.pools}
        if kind == "target":
            target = board.target(name)
            return Subject(name, target, pools.get(target.state.pool)) if target is not None else None
        if kind == "proposal":
            proposal = next(one for one in board.proposals if one.decision == name)
            return Subject(name, board.target(proposal.target), pools.get(proposal.pool), proposal)
        if kind == "pause":
            return Subject(name, pause=next(one for one in board.pauses if one.id == name))
        return Subject(name, board.target(name.removeprefix("target:")), pools.get(name.removeprefix("pool:")))

    def checked(self, entry: Entry, call: str, given: Mapping[str, str]) -> dict[str, object]:
        """The fields of a call out of a form. Raises BodyError, naming the one that is at fault."""
        typed = Fields({**given, "seconds": _number(given.get("seconds")), "force": given.get("force") == "yes"})
        about, kind = typed.text("about"), ABOUT[call]
        if self.subject(call, about) is None:
            raise BodyError("about", "is not there, or not there any more")
        reason = typed.text("reason")
        author = typed.maybe_text("author")
        if entry.caller.author(author) is None:
            raise BodyError("author", "is missing")
        seconds = typed.seconds("seconds", most=LONGEST_PAUSE)
        task_set = typed.maybe_text("task_set")
        if call == "run" and task_set is not None:
            target = self.calls.board().target(about)
            if target is None or task_set not in [one.state.task_set for one in target.sets]:
                raise BodyError("task_set", "the target has no task set of this name")
        fields: dict[str, object] = {"reason": reason, "author": author, "seconds": seconds, "task_set": task_set}
        fields |= {kind: about, "force": typed.flag("force")}
        return {name: value for name, value in fields.items() if name in FIELDS[call]}

    async def foreseen(self, call: str, about: str, *, force: bool) -> Foreseen:
        """What an action would lead to now; one that cannot even be foreseen is refused."""
        try:
            return await self.calls.admin.foresee(call, about, force=force)
        except (InputError, StoreError) as exc:
            return Foreseen(refused=str(exc))

    async def carried_out(self, entry: Entry, plan: Plan) -> Outcome | Foreseen:
        """Do what was confirmed; tells why where nothing was done. Whatever breaks it off leaves an outcome as well.

        Who insists does so against what they were shown. Where more objects by now nothing is done, and what would
        come of it is given instead.
        """
        outcome = BROKEN_OFF
        try:
            if plan.fields.get("force"):
                foreseen = await self.foreseen(plan.call, plan.about, force=True)
                if foreseen.brakes - plan.brakes:
                    outcome = SHOWN_ANEW
                    return foreseen
            outcome = await self._done(entry, plan)
        except (InputError, StoreError) as exc:
            outcome = Outcome("act.failed", failed=str(exc), forcible=isinstance(exc, NeedsForce))
        finally:
            plan.outcome = outcome
        return outcome

    async def _done(self, entry: Entry, plan: Plan) -> Outcome:
        call, about, fields, calls = plan.call, plan.about, Fields(plan.fields), self.calls
        if call == "pause":
            pause = await calls.pause(entry, fields)
            return Outcome("act.done.pause", {"about": pause.scope, "id": pause.id})
        if call == "resume":
            if not await calls.resume(entry, about, fields):
                return Outcome("act.failed", failed="there is no pause of this id")
            return Outcome("act.done.resume", {"about": about})
        if call == "run":
            return Outcome("act.done.run", {"about": about, "n": await calls.run(entry, fields)})
        if call == "approve":
            heard = await calls.approve(entry, about, fields)
        elif call == "reject":
            heard = await calls.reject(entry, about, fields)
        else:
            heard = await calls.word(entry, call, fields)
        ordered = heard.decision is not None and call in ORDERING
        key = f"act.ordered.{call}" if ordered else f"act.done.{call}"
        return Outcome(key, {"about": about}, heard.decision, heard.told, ordered=ordered)


def owner_of(entry: Entry) -> str:
    """Whose confirmation counts for what this request asks: the browser's own, or the token's."""
    return f"session {entry.session.csrf}" if entry.session is not None else f"token {entry.caller.name}"


def _number(text: str | None) -> float | str | None:
    """Seconds out of a form; what is no number stays as it is, and is refused as one later."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return text
