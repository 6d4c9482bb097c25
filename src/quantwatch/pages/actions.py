"""The forms by which people act: what shall be done, what that would lead to, and what came of it."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from quantwatch.expose.access import Entry
from quantwatch.expose.body import BodyError, read_form
from quantwatch.expose.calls import LEAST
from quantwatch.expose.guard import DOOR, entry_of
from quantwatch.expose.replies import see_other
from quantwatch.flow.foresight import Foreseen
from quantwatch.pages.acting import ABOUT, LASTING, TIMED, Acting, owner_of
from quantwatch.pages.plans import Plan
from quantwatch.pages.site import Site

KNOWN = ("csrf", "confirmation", "about", "reason", "author", "seconds", "force", "task_set")


def routes(site: Site, acting: Acting) -> Sequence[BaseRoute]:
    """The list of actions, and the form of each."""
    forms = _Forms(site, acting)
    return [
        Route("/actions", forms.index),
        Route("/actions/{call}", forms.form, methods=["GET"]),
        Route("/actions/{call}", forms.send, methods=["POST"]),
    ]


class _Forms:
    def __init__(self, site: Site, acting: Acting) -> None:
        self._site = site
        self._acting = acting

    async def index(self, request: Request) -> Response:
        return await self._site.page(request, "actions.html", page_rules=self._acting.access.rules)

    async def form(self, request: Request) -> Response:
        call = _call(request)
        against = await self._against(request, call)
        if against is not None:
            return against
        given = {"about": request.query_params.get("about", ""), "seconds": "" if call == "isolate" else "3600"}
        return await self._form(request, call, given)

    async def send(self, request: Request) -> Response:
        call, entry = _call(request), entry_of(request)
        against = await self._against(request, call)
        if against is not None:
            return against
        try:
            given = await read_form(request, known=KNOWN)
        except BodyError as exc:
            return await self._form(request, call, {}, fault=exc, status=exc.status)
        if entry.session is not None and not entry.session.wrote(given.get("csrf", "")):
            return await self._refused(request, entry, reason="csrf", key="act.csrf")
        if "confirmation" in given:
            return await self._confirmed(request, entry, call, given["confirmation"])
        return await self._checked(request, entry, call, given)

    async def _checked(self, request: Request, entry: Entry, call: str, given: Mapping[str, str]) -> Response:
        """The page that tells what would happen, and asks whether it shall."""
        acting = self._acting
        try:
            fields = acting.checked(entry, call, given)
        except BodyError as exc:
            return await self._form(request, call, given, fault=exc, status=exc.status)
        about, force = given["about"].strip(), given.get("force") == "yes"
        foreseen = await acting.foreseen(call, about, force=force)
        return await self._shown(request, call, given, foreseen=foreseen, fields=fields)

    async def _shown(
        self,
        request: Request,
        call: str,
        given: Mapping[str, str],
        *,
        foreseen: Foreseen,
        fields: Mapping[str, object],
        anew: bool = False,
    ) -> Response:
        """What would happen. anew: it has been shown already, and more objects by now."""
        acting, entry, about = self._acting, entry_of(request), given["about"].strip()
        subject = acting.subject(call, about)
        if subject is None:
            fault = BodyError("about", "is not there, or not there any more")
            return await self._form(request, call, given, fault=fault, status=409)
        id_ = None
        if foreseen.refused is None:
            owner, brakes = owner_of(entry), foreseen.brakes
            id_ = acting.plans.add(call, about, fields, owner=owner, given=given, brakes=brakes)
        values = {"call": call, "subject": subject, "foreseen": foreseen, "confirmation": id_}
        values |= {"given": given, "anew": anew}
        author = entry.caller.author(given.get("author"))
        status = 200 if foreseen.refused is None and not anew else 409
        return await self._site.page(request, "act_confirm.html", status=status, author=author, **values)

    async def _confirmed(self, request: Request, entry: Entry, call: str, id_: str) -> Response:
        """Do it, once."""
        plan = self._acting.plans.find(id_, owner=owner_of(entry))
        if plan is None or plan.call != call:
            return await self._refused(request, entry, reason="replay", key="act.gone", status=409)
        if plan.begun is not None:
            self._acting.access.refused("replay", entry.client, path=request.url.path, caller=entry.caller)
            return await self._done(request, plan, status=409, again=True)
        self._acting.plans.begin(id_)
        came = await self._acting.carried_out(entry, plan)
        if isinstance(came, Foreseen):
            return await self._shown(request, call, plan.given, foreseen=came, fields=plan.fields, anew=True)
        return await self._done(request, plan, status=200 if came.failed is None else 409)

    async def _done(self, request: Request, plan: Plan, *, status: int, again: bool = False) -> Response:
        return await self._site.page(request, "act_done.html", status=status, plan=plan, again=again)

    async def _form(
        self,
        request: Request,
        call: str,
        given: Mapping[str, str],
        *,
        fault: BodyError | None = None,
        status: int = 200,
    ) -> Response:
        acting = self._acting
        subject = acting.subject(call, given.get("about", ""))
        values: dict[str, Any] = {"call": call, "kind": ABOUT[call], "given": given, "fault": fault}
        values |= {"subject": subject, "choices": () if subject else acting.choices(call)}
        values |= {"timed": call in TIMED, "lasting": LASTING}
        return await self._site.page(request, "act_form.html", status=status, **values)

    async def _against(self, request: Request, call: str) -> Response | None:
        """The answer to somebody who may not; None for who may."""
        entry, least = entry_of(request), LEAST[call]
        if not self._acting.access.keys:
            rules = self._acting.access.rules
            return await self._site.page(request, "act_off.html", status=403, page_rules=rules)
        if entry.caller.role is None:
            asked = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
            return see_other(f"{DOOR}?next={quote(asked, safe='/')}")
        if not entry.caller.may(least):
            name, role = entry.caller.name, entry.caller.role.value
            values = {"least": least.value, "name": name, "role": role}
            return await self._refused(request, entry, reason="forbidden", key="act.forbidden", values=values)
        return None

    async def _refused(
        self,
        request: Request,
        entry: Entry,
        *,
        reason: str,
        key: str,
        status: int = 403,
        values: Mapping[str, str] | None = None,
    ) -> Response:
        self._acting.access.refused(reason, entry.client, path=request.url.path, caller=entry.caller)
        return await self._site.page(request, "act_refused.html", status=status, key=key, values=values or {})


def _call(request: Request) -> str:
    call: str = request.path_params["call"]
    if call not in ABOUT:
        raise HTTPException(404)
    return call
