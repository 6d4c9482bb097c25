"""What people want to know of, as it is now: read from what the daemon knows, so that a restart finds the same."""

from collections.abc import Iterator
from dataclasses import replace

from quantwatch.flow.notice import Matter, Topic
from quantwatch.flow.verdict import Finding
from quantwatch.flows.fleet_matters import fleet_matters
from quantwatch.flows.memory import Memory
from quantwatch.flows.people_matters import of_proposals, of_word
from quantwatch.flows.target_matters import of_routing, of_target
from quantwatch.flows.view import View
from quantwatch.record.documents import findings_of


def matters(view: View) -> Iterator[Matter]:
    """Every matter that is known to stand or to be over. What is not known now is left out, and stays as it was."""
    configured = view.watchlist.targets
    for target in configured.values():
        yield from of_target(target, view)
    routed = [view.state(one) for one in configured.values()]
    for state in (*routed, *view.memory.left_behind(configured)):
        yield from of_routing(state, view)
        yield from of_word(state)
    yield from of_proposals(view)
    yield from fleet_matters(view)


def over(matter: Matter, view: View) -> Matter | None:
    """The end of a matter that was told and is not among those that are known now; None where it may still stand."""
    watchlist, target = view.watchlist, view.watchlist.targets.get(matter.target or "")
    if matter.topic is Topic.PAUSED:
        return replace(matter, standing=False, state="over", reason="the pause has ended", done="")
    if matter.topic is Topic.PROPOSAL:
        return replace(matter, standing=False, state="over", reason="it no longer waits", done="")
    gone = (
        (matter.target is not None and target is None)
        or (matter.pool is not None and matter.pool not in watchlist.pools)
        or (matter.task_set is not None and matter.task_set not in watchlist.task_sets)
    )
    return replace(matter, standing=False, state="gone", reason="it left the configuration", done="") if gone else None


def with_evidence(matter: Matter, memory: Memory) -> Matter:
    """A matter of a task set with the numbers behind it."""
    if matter.topic is not Topic.QUALITY or matter.target is None or matter.task_set is None:
        return matter
    pair = (matter.target, matter.task_set)
    proof: tuple[Finding, ...] = memory.findings(*pair) if matter.standing else ()
    return replace(matter, evidence=proof or findings_of(memory.numbers.get(pair, {})))
