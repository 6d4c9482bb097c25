"""Stand-ins for gateways with an admin API, without a socket: they answer as documented, and lie when told to."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from quantwatch.act.admin_api import AdminApi
from quantwatch.clock import SystemClock
from quantwatch.net import Endpoint, Link
from support.builders import QUICK

Reply = Callable[[], httpx.Response]


@dataclass(slots=True)
class AdminFake:
    """What all of them have. changes: requests that change something, as method, path and body; looks: the others.

    reply: answers every GET in its place. answer: answers every change in its place, and nothing is done then. deaf: a
    change is answered with a yes and not done. key: the header and value that every request must carry. slow: others
    may be asking before a request is seen to.
    """

    changes: list[tuple[str, str, Any]] = field(default_factory=list)
    looks: list[httpx.URL] = field(default_factory=list)
    heads: list[httpx.Headers] = field(default_factory=list)
    reply: Reply | None = None
    answer: Reply | None = None
    deaf: bool = False
    down: bool = False
    key: tuple[str, str] | None = None
    slow: bool = False

    def transport(self) -> httpx.MockTransport:
        """The gateway without a socket."""
        return httpx.MockTransport(self._in_time)

    def link(self) -> Link:
        """A connection to it."""
        return Link(Endpoint("gateway", "http://gateway"), QUICK, transport=self.transport())

    def api(self, link: Link, advice: dict[int, str], **headers: str) -> AdminApi:
        """Its admin API over a connection."""
        return AdminApi(link, SystemClock(), advice, lambda: headers)

    async def _in_time(self, request: httpx.Request) -> httpx.Response:
        if self.slow:
            await asyncio.sleep(0.001)
        return self._handle(request)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        if self.down:
            raise httpx.ConnectError("Connection refused", request=request)
        if self.key is not None and request.headers.get(self.key[0]) != self.key[1]:
            return httpx.Response(401, json={"message": "Unauthorized"})
        if request.method == "GET":
            self.looks.append(request.url)
            return self.reply() if self.reply is not None else self.shown(request)
        body = json.loads(request.content)
        self.changes.append((request.method, request.url.path, body))
        self.heads.append(request.headers)
        if self.answer is not None:
            return self.answer()
        return self.done(request, body)

    def shown(self, request: httpx.Request) -> httpx.Response:
        """What a GET answers."""
        raise NotImplementedError

    def done(self, request: httpx.Request, body: dict[str, Any]) -> httpx.Response:
        """Do a change, unless deaf, and answer it."""
        raise NotImplementedError


@dataclass(slots=True)
class FakeLitellm(AdminFake):
    """LiteLLM's proxy. deployments: id -> (model's name, blocked). from_file: ids that stand in config.yaml."""

    deployments: dict[str, tuple[str, bool]] = field(
        default_factory=lambda: {"a": ("llama", False), "b": ("llama", False), "c": ("qwen", False)}
    )
    from_file: tuple[str, ...] = ()
    database: bool = True

    def shown(self, request: httpx.Request) -> httpx.Response:
        rows = [
            {"model_name": model, "litellm_params": {}, "model_info": {"id": id_, "blocked": blocked, "db_model": True}}
            for id_, (model, blocked) in self.deployments.items()
        ]
        return httpx.Response(200, json={"data": rows}) if request.url.path == "/model/info" else httpx.Response(404)

    def done(self, request: httpx.Request, body: dict[str, Any]) -> httpx.Response:
        id_ = body["model_id"]
        if not self.database:
            return httpx.Response(500, json={"detail": {"error": "DB not connected. This endpoint needs a database"}})
        if id_ in self.from_file:
            said = "Cannot edit config-based model. Store model in DB via /model/new first."
            return httpx.Response(400, json={"error": {"message": said, "code": "400"}})
        if not self.deaf:
            self.deployments[id_] = (self.deployments[id_][0], request.url.path == "/model/block")
        return httpx.Response(200, json={"model_id": id_})


@dataclass(slots=True)
class FakeApisix(AdminFake):
    """APISIX's Admin API with one upstream, `1`. old: answers as version 2 did. nodes: in either of its forms."""

    nodes: Any = field(default_factory=lambda: {"node-a:8000": 3, "node-b:8000": 2})
    old: bool = False

    def shown(self, request: httpx.Request) -> httpx.Response:
        if request.url.path != "/apisix/admin/upstreams/1":
            return httpx.Response(404, json={"message": "Key not found"})
        inner = {"key": "/apisix/upstreams/1", "value": {"id": "1", "type": "roundrobin", "nodes": self.nodes}}
        return httpx.Response(200, json={"action": "get", "node": inner} if self.old else {**inner, "modifiedIndex": 9})

    def done(self, request: httpx.Request, body: dict[str, Any]) -> httpx.Response:  # noqa: ARG002, there is one upstream
        if not self.deaf:
            merged = isinstance(self.nodes, dict) and isinstance(body["nodes"], dict)
            self.nodes = {**self.nodes, **body["nodes"]} if merged else body["nodes"]
        return httpx.Response(200, json={"value": {"nodes": self.nodes}})


@dataclass(slots=True)
class FakeKong(AdminFake):
    """Kong's Admin API with one upstream, `llm`. ill: targets that are not well. control_plane: it tells no health."""

    weights: dict[str, int] = field(default_factory=lambda: {"node-a:8000": 100, "node-b:8000": 50})
    ill: set[str] = field(default_factory=set)
    control_plane: bool = False

    def shown(self, request: httpx.Request) -> httpx.Response:
        root = "/upstreams/llm"
        rows = [{"target": name, "weight": weight, "created_at": 1.5} for name, weight in self.weights.items()]
        if request.url.path == f"{root}/targets/all":
            return httpx.Response(200, json={"data": rows, "next": None})
        if request.url.path == f"{root}/health" and not self.control_plane:
            told = [{**row, "health": "UNHEALTHY" if row["target"] in self.ill else "HEALTHY"} for row in rows]
            return httpx.Response(200, json={"data": told, "next": None})
        return httpx.Response(404, json={"message": "Not found"})

    def done(self, request: httpx.Request, body: dict[str, Any]) -> httpx.Response:
        name = request.url.path.rpartition("/")[2]
        if name not in self.weights:
            return httpx.Response(404, json={"message": "Not found"})
        if not self.deaf:
            self.weights[name] = body["weight"]
        return httpx.Response(200, json={"target": name, "weight": body["weight"]})


LABEL = "quantwatch.io/traffic"
SERVICE = {"app": "vllm", LABEL: "in"}


@dataclass(slots=True)
class FakeKubernetes(AdminFake):
    """An API server with the namespace `llm` and the Service `vllm`. pods: by name, as they come in the reply.

    lag: the endpoints do not follow the labels yet.
    """

    pods: dict[str, Any] = field(default_factory=lambda: {name: pod(name) for name in ("vllm-0", "vllm-1")})
    selector: dict[str, str] = field(default_factory=lambda: dict(SERVICE))
    versions: int = 100
    stale: list[str] = field(default_factory=list)
    lag: bool = False

    def shown(self, request: httpx.Request) -> httpx.Response:
        path, query = request.url.path, request.url.params
        if path == "/apis/discovery.k8s.io/v1/namespaces/llm/endpointslices":
            mine = query["labelSelector"] == "kubernetes.io/service-name=vllm"
            return httpx.Response(200, json={"items": [self._slice()] if mine else []})
        if path == "/api/v1/namespaces/llm/services/vllm":
            return httpx.Response(200, json={"spec": {"selector": self.selector}})
        if path == "/api/v1/namespaces/llm/pods":
            wanted = dict(one.split("=") for one in query["labelSelector"].split(","))
            found = [one for one in self.pods.values() if wanted.items() <= one["metadata"]["labels"].items()]
            return httpx.Response(200, json={"items": found})
        name = path.removeprefix("/api/v1/namespaces/llm/pods/")
        if name in self.pods:
            return httpx.Response(200, json=self.pods[name])
        return httpx.Response(404, json={"kind": "Status", "message": f'pods "{name}" not found', "code": 404})

    def done(self, request: httpx.Request, body: dict[str, Any]) -> httpx.Response:
        meta, new = self.pods[request.url.path.rpartition("/")[2]]["metadata"], body["metadata"]
        if self.stale:
            meta["resourceVersion"] = self.stale.pop()  # somebody else was quicker
        if (new["uid"], new["resourceVersion"]) != (meta["uid"], meta["resourceVersion"]):
            return httpx.Response(409, json={"kind": "Status", "message": "the object has been modified", "code": 409})
        if not self.deaf:
            for part in ("labels", "annotations"):
                whole = {**meta[part], **new[part]}
                meta[part] = {key: value for key, value in whole.items() if value is not None}
            self.versions += 1
            meta["resourceVersion"] = str(self.versions)
        return httpx.Response(200, json={})

    def _slice(self) -> dict[str, Any]:
        chosen = [
            one for one in self.pods.values() if self.lag or self.selector.items() <= one["metadata"]["labels"].items()
        ]
        return {"endpoints": [endpoint(one) for one in chosen]}


def pod(name: str, *, ready: bool | None = True, **labels: str) -> dict[str, Any]:
    """A pod as an API server gives it. ready: of its endpoint, None where that leaves it out."""
    return {
        "kind": "Pod",
        "ready": ready,  # no field of Kubernetes; the stand-in's own
        "metadata": {
            "name": name,
            "uid": f"uid of {name}",
            "resourceVersion": "7",
            "labels": {"app": "vllm", LABEL: "in", "pod": name, **labels},
            "annotations": {"other": "kept"},
        },
        "status": {"phase": "Running"},
    }


def endpoint(one: dict[str, Any]) -> dict[str, Any]:
    """A pod's endpoint."""
    conditions = {} if one["ready"] is None else {"ready": one["ready"]}
    return {"conditions": conditions, "targetRef": {"kind": "Pod", "name": one["metadata"]["name"]}}
