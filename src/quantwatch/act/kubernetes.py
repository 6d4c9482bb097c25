"""Kubernetes: a label of a pod, by which a Service takes it in or leaves it out; EndpointSlices tell what came of it.

Exchange, all documented API calls: `GET /api/v1/namespaces/NS/pods/POD` (or `?labelSelector=`), `PATCH` of the same
with `application/strategic-merge-patch+json`. The patch carries uid and resourceVersion of what was looked at, so that
the API server answers 409 where the pod is another by now, and we look again. `GET .../services/SERVICE` shows its
selector, and `GET /apis/discovery.k8s.io/v1/namespaces/NS/endpointslices?labelSelector=kubernetes.io/service-name=...`
shows who is in traffic: a ready endpoint, where `ready` is true or left out.

The label must stand in the pod template and in the Service's selector, but not in the selector of the ReplicaSet, which
would make another pod in place of the one that left.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from quantwatch.act.admin_api import AdminApi
from quantwatch.act.contract import Abilities, Seen, Unanswered
from quantwatch.act.in_turn import InTurn
from quantwatch.config.kubernetes import pod_of
from quantwatch.errors import GatewayError, GatewayRefused
from quantwatch.flow.decision import Action, Order

IN, OUT = "in", "out"
"""Values of the label."""

DECISION, REASON = "quantwatch.io/decision", "quantwatch.io/reason"
"""Annotations of a pod that is out by our order; they tell everybody, and us, whose doing it is."""

STRATEGIC = "application/strategic-merge-patch+json"
CONFLICT = 409
OVER = ("Succeeded", "Failed")
LONGEST_REASON = 500

ADVICE = {
    401: "Look at gateway.api_key, by default the token of the service account that is mounted in the pod",
    403: "Give the service account the rights of configs/kubernetes/driver-rbac.yaml in gateway.namespace",
    404: "Look at gateway.namespace, gateway.service and the target's gateway_name",
    422: "Look at gateway.label and the pod",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where pods are. service: of pods that name none. label: its key."""

    namespace: str
    service: str | None
    label: str


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as the API server has it. stands: the value of the label. decision: by which it is out, if by one of ours.

    ready: whether the Service's endpoints have it in traffic. others: the names of all others that they have.
    """

    name: str
    uid: str
    version: str
    stands: str | None
    decision: str | None
    service: str
    ready: bool
    others: frozenset[str]


class KubernetesDriver(InTurn):
    """A driver for the pods of one namespace. A gateway_name is `POD` or `SERVICE:POD`."""

    name = "kubernetes"
    abilities = Abilities(reads_back=True, proven=False, calls=True)

    def __init__(self, api: AdminApi, place: Place) -> None:
        super().__init__()
        self._api = api
        self._place = place

    async def _look_and_do(self, order: Order) -> str:
        pod = await self._pod(order)
        if pod.stands not in (IN, OUT):
            raise GatewayRefused(
                f"pod {pod.name} has no label {self._place.label} of {IN} or {OUT}, so nothing was done. Give the pod "
                f"template the label {self._place.label}: {IN}, and the Service the same in its selector"
            )
        if order.action is Action.RELEASE:
            if pod.stands == IN:
                return f"pod {pod.name} is labelled {IN} already"
            return await self._patch(order, pod, IN)
        if pod.stands == OUT:
            return self._out_already(pod)
        await self._refuse_what_would_not_help(pod)
        return await self._patch(order, pod, OUT)

    async def observe(self, order: Order) -> Seen:
        """By the Service's endpoints and the label together; UNKNOWN on any trouble."""
        try:
            pod = await self._pod(order)
        except GatewayError:
            return Seen.UNKNOWN
        if pod.stands not in (IN, OUT):
            return Seen.UNKNOWN
        if pod.stands == OUT:
            return Seen.ROUTABLE if pod.ready else Seen.ISOLATED
        still_ill = order.action is Action.RELEASE and not pod.ready
        return Seen.UNKNOWN if still_ill else Seen.ROUTABLE

    async def by_hand(self, order: Order) -> str:
        """The order as one line in a shell."""
        _, pod = self._named(order)
        value = OUT if order.action is Action.ISOLATE else IN
        which = f"-l {pod}" if "=" in pod else pod
        return f"kubectl -n {self._place.namespace} label --overwrite pod {which} {self._place.label}={value}"

    def _out_already(self, pod: Pod) -> str:
        if pod.decision is None:
            raise GatewayRefused(f"pod {pod.name} is labelled {OUT} already, and not by quantwatch; nothing was done")
        return f"pod {pod.name} is labelled {OUT} already"

    async def _refuse_what_would_not_help(self, pod: Pod) -> None:
        """A label that the Service does not look at changes nothing, and the last one stays."""
        told = await self._api.read(f"{self._core}/services/{pod.service}")
        selector = _at(told, "spec", "selector")
        if not isinstance(selector, dict) or selector.get(self._place.label) != IN:
            raise GatewayRefused(
                f"service {pod.service} does not select by {self._place.label}={IN}, so a label would change nothing; "
                "nothing was done. Add it to the Service's selector, once every pod of it has the label"
            )
        if not pod.others - await self._labelled_out():
            raise GatewayRefused(
                f"pod {pod.name} is the last ready endpoint of service {pod.service}; it stays in traffic"
            )

    async def _patch(self, order: Order, pod: Pod, value: str) -> str:
        notes = {DECISION: order.decision, REASON: order.reason[:LONGEST_REASON]}
        body = {
            "metadata": {
                "uid": pod.uid,
                "resourceVersion": pod.version,
                "labels": {self._place.label: value},
                "annotations": notes if value == OUT else dict.fromkeys(notes),
            }
        }
        path = f"{self._core}/pods/{quote(pod.name, safe='')}"
        answer = await self._api.change(
            "PATCH", path, body, query={"fieldManager": "quantwatch"}, content_type=STRATEGIC
        )
        if answer.status == CONFLICT:
            raise Unanswered(f"{self._api.name} answered 409: pod {pod.name} changed meanwhile", arrived=False)
        return f"{self._api.yes(answer)}, pod {pod.name} is labelled {value}"

    async def _pod(self, order: Order) -> Pod:
        """The order's pod as it stands. Raises GatewayError; nothing has been changed then."""
        service, wanted = self._named(order)
        told = await self._found(wanted)
        meta = told.get("metadata")
        name, uid, version = (_text(meta, key) for key in ("name", "uid", "resourceVersion"))
        if name is None or uid is None or version is None:
            raise GatewayRefused(f"{self._api.name} answered what is no pod. Look at gateway.url")
        ready = await self._ready(service)
        return Pod(
            name=name,
            uid=uid,
            version=version,
            stands=_text(_at(meta, "labels"), self._place.label),
            decision=_text(_at(meta, "annotations"), DECISION),
            service=service,
            ready=name in ready,
            others=frozenset(ready - {name}),
        )

    async def _found(self, wanted: str) -> Mapping[str, Any]:
        """A pod by its name, or the only living one with these labels."""
        if "=" not in wanted:
            told = await self._api.read(f"{self._core}/pods/{quote(wanted, safe='')}")
            return told if isinstance(told, dict) else {}
        listed = await self._items(f"{self._core}/pods", {"labelSelector": wanted})
        alive = [one for one in listed if _alive(one)]
        if len(alive) != 1:
            names = ", ".join(sorted(str(_at(one, "metadata", "name")) for one in alive)) or "none"
            raise GatewayRefused(
                f"the labels {wanted} must find one pod, and find {names}. Look at the target's gateway_name"
            )
        return alive[0]

    async def _ready(self, service: str) -> set[str]:
        """The pods that a Service sends requests to."""
        query = {"labelSelector": f"kubernetes.io/service-name={service}"}
        slices = await self._items(
            f"/apis/discovery.k8s.io/v1/namespaces/{self._place.namespace}/endpointslices", query
        )
        if not slices:
            raise GatewayRefused(f"service {service} has no endpoints at all. {ADVICE[404]}")
        endpoints = [one for each in slices for one in _at(each, "endpoints") or [] if isinstance(one, dict)]
        return {
            str(_at(one, "targetRef", "name"))
            for one in endpoints
            if _at(one, "conditions", "ready") is not False and _at(one, "targetRef", "kind") == "Pod"
        }

    async def _labelled_out(self) -> set[str]:
        """Pods that are to leave; the endpoints follow a label only after a while."""
        listed = await self._items(f"{self._core}/pods", {"labelSelector": f"{self._place.label}={OUT}"})
        return {str(_at(one, "metadata", "name")) for one in listed}

    async def _items(self, path: str, query: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        told = await self._api.read(path, query=query)
        items = _at(told, "items")
        if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
            raise GatewayRefused(f"{self._api.name} answered what is no list. Look at gateway.url")
        return items

    def _named(self, order: Order) -> tuple[str, str]:
        try:
            return pod_of(order.node, self._place.service)
        except ValueError as exc:
            raise GatewayRefused(f"{exc}. Look at the target's gateway_name") from None

    @property
    def _core(self) -> str:
        return f"/api/v1/namespaces/{self._place.namespace}"


def _at(told: Any, *path: str) -> Any:
    """What stands there; None where nothing does."""
    for key in path:
        told = told.get(key) if isinstance(told, dict) else None
    return told


def _text(told: Any, key: str) -> str | None:
    value = _at(told, key)
    return value if isinstance(value, str) and value else None


def _alive(pod: Mapping[str, Any]) -> bool:
    return _at(pod, "metadata", "deletionTimestamp") is None and _at(pod, "status", "phase") not in OVER
