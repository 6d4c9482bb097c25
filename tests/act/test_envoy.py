"""Envoy's word on the file driver's file, told by a stand-in: hosts, panics, and everything that cannot be read."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from quantwatch.act.contract import Seen
from quantwatch.act.envoy import Cluster, EnvoyFile
from quantwatch.net import Endpoint, Link
from support.builders import QUICK
from support.filing import Filing, isolate, release

HERE, THERE, V6 = "10.0.0.1:8000", "10.0.0.2:8000", "[::1]:8000"


@dataclass(slots=True)
class Fake:
    """An admin interface. hosts: what EDS says of each; ill: how many more fail their health check."""

    hosts: dict[str, str] = field(default_factory=lambda: {HERE: "HEALTHY", THERE: "HEALTHY", V6: "HEALTHY"})
    ill: int = 0
    panics: int = 0
    reply: httpx.Response | None = None
    asked: list[str] = field(default_factory=list)

    def link(self) -> Link:
        """A connection to it."""
        return Link(Endpoint("envoy", "http://envoy"), QUICK, transport=httpx.MockTransport(self._handle))

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.params.get("filter", ""))
        if self.reply is not None:
            return self.reply
        return httpx.Response(200, json=self._clusters() if request.url.path == "/clusters" else self._stats())

    def _clusters(self) -> dict[str, Any]:
        hosts = []
        for one, status in self.hosts.items():
            host, _, port = one.rpartition(":")
            address = {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}}
            hosts.append({"address": address, "health_status": {"eds_health_status": status}})
        return {"cluster_statuses": [{"name": "other"}, {"name": "llm", "host_statuses": hosts}]}

    def _stats(self) -> dict[str, Any]:
        drained = list(self.hosts.values()).count("DRAINING")
        healthy = list(self.hosts.values()).count("HEALTHY") - self.ill
        values = {"membership_healthy": healthy, "membership_total": len(self.hosts), "membership_excluded": drained}
        values["lb_healthy_panic"] = self.panics
        stats: list[dict[str, Any]] = [{"name": f"cluster.llm.{key}", "value": one} for key, one in values.items()]
        return {"stats": [*stats, {"histograms": {}}]}


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
async def cluster(fake: Fake) -> AsyncIterator[Cluster]:
    async with fake.link() as link:
        yield Cluster(link, "llm")


STATUSES = [
    ("HEALTHY", Seen.ROUTABLE),
    ("DEGRADED", Seen.ROUTABLE),
    ("UNKNOWN", Seen.ROUTABLE),
    ("DRAINING", Seen.ISOLATED),
    ("UNHEALTHY", Seen.ISOLATED),
    ("TIMEOUT", Seen.ISOLATED),
]


@pytest.mark.parametrize(("status", "seen"), STATUSES)
@pytest.mark.parametrize("address", [HERE, V6])
async def test_a_host_stands_as_envoy_says(address: str, status: str, seen: Seen, fake: Fake, cluster: Cluster) -> None:
    fake.hosts[address] = status
    fake.hosts["10.0.0.4:1"] = "HEALTHY"
    assert await cluster.sees(address) is seen


async def test_only_the_cluster_s_own_numbers_are_asked_for(fake: Fake, cluster: Cluster) -> None:
    await cluster.sees(HERE)
    names = "membership_healthy|membership_total|membership_excluded|lb_healthy_panic"
    assert fake.asked == ["", rf"^cluster\.llm\.({names})$"]


async def test_a_host_that_is_not_listed_is_unknown(cluster: Cluster) -> None:
    assert await cluster.sees("10.0.0.9:8000") is Seen.UNKNOWN


async def test_a_panic_that_grows_is_traffic_to_everybody(fake: Fake, cluster: Cluster) -> None:
    fake.hosts[HERE] = "DRAINING"
    fake.ill = 2
    looks = [await cluster.sees(HERE)]
    fake.panics = 5
    looks += [await cluster.sees(HERE), await cluster.sees(HERE)]  # it stays one while nobody asks anything
    fake.ill = 0
    looks.append(await cluster.sees(HERE))

    assert looks == [Seen.UNKNOWN, Seen.ROUTABLE, Seen.ROUTABLE, Seen.ISOLATED]


async def test_few_healthy_hosts_without_a_panic_are_believed_at_the_second_look(fake: Fake, cluster: Cluster) -> None:
    """A threshold of 0, or nobody asks anything."""
    fake.hosts[HERE] = "DRAINING"
    fake.ill, fake.panics = 2, 7
    assert [await cluster.sees(HERE) for _ in range(3)] == [Seen.UNKNOWN, Seen.ISOLATED, Seen.ISOLATED]


@pytest.mark.parametrize(("ill", "first"), [(1, Seen.ISOLATED), (2, Seen.UNKNOWN)])
async def test_less_than_half_of_those_that_do_not_drain_may_be_a_panic(
    ill: int, first: Seen, fake: Fake, cluster: Cluster
) -> None:
    """Of three others one may be ill; with two there is one healthy of three."""
    fake.hosts |= {HERE: "DRAINING", "10.0.0.4:8000": "HEALTHY"}
    fake.ill = ill
    assert await cluster.sees(HERE) is first


async def test_a_panic_of_before_says_nothing_of_now(fake: Fake, cluster: Cluster) -> None:
    fake.ill = 3
    await cluster.sees(HERE)
    fake.ill, fake.panics = 0, 9
    fake.hosts[HERE] = "DRAINING"
    assert await cluster.sees(HERE) is Seen.ISOLATED


async def test_a_high_threshold_shows_in_its_panics(fake: Fake, cluster: Cluster) -> None:
    """With healthy_panic_threshold over 50 Envoy panics while most are well."""
    fake.hosts[HERE] = "UNHEALTHY"
    first = await cluster.sees(HERE)
    fake.panics = 3
    assert (first, await cluster.sees(HERE)) == (Seen.ISOLATED, Seen.ROUTABLE)


async def test_a_restart_of_envoy_is_no_panic(fake: Fake, cluster: Cluster) -> None:
    fake.hosts[HERE], fake.panics = "DRAINING", 9
    first = await cluster.sees(HERE)
    fake.panics = 0
    assert (first, await cluster.sees(HERE)) == (Seen.ISOLATED, Seen.ISOLATED)


ODD = [b"", b"{}", b"[]", b"null", b'{"cluster_statuses": [{}]}', b'{"cluster_statuses": 5}', b"[" * 50_000]


@pytest.mark.parametrize("body", ODD)
async def test_what_cannot_be_read_is_unknown(body: bytes, fake: Fake, cluster: Cluster) -> None:
    fake.reply = httpx.Response(200, content=body)
    assert await cluster.sees(HERE) is Seen.UNKNOWN


@pytest.mark.parametrize("status", [404, 503])
async def test_a_no_is_unknown(status: int, fake: Fake, cluster: Cluster) -> None:
    fake.reply = httpx.Response(status, json={"cluster_statuses": []})
    assert await cluster.sees(HERE) is Seen.UNKNOWN


async def test_numbers_that_are_missing_are_unknown(fake: Fake, cluster: Cluster) -> None:
    clusters = httpx.Response(200, json=fake._clusters())
    fake.reply = clusters
    assert await cluster.sees(HERE) is Seen.UNKNOWN


async def test_envoy_has_the_last_word_on_a_file_that_is_ours(tmp_path: Path, fake: Fake) -> None:
    filing = Filing(tmp_path).begun()
    async with fake.link() as link:
        driver = EnvoyFile(filing.driver(), Cluster(link, "llm"), {"int4-a": HERE})
        said = await driver.call(isolate())
        late = await driver.observe(isolate())
        fake.hosts[HERE] = "DRAINING"
        taken_over = await driver.observe(isolate())
        await driver.call(release())
        not_yet = await driver.observe(release())
        filing.file.write_text("by hand\n")
        lost = await driver.observe(release())

    assert said.endswith("is written and taken over")
    assert (late, taken_over, not_yet, lost) == (Seen.ROUTABLE, Seen.ISOLATED, Seen.ISOLATED, Seen.UNKNOWN)


async def test_a_target_without_an_address_is_unknown(tmp_path: Path, fake: Fake) -> None:
    async with fake.link() as link:
        driver = EnvoyFile(Filing(tmp_path).begun().driver(), Cluster(link, "llm"), {})
        assert await driver.observe(isolate()) is Seen.UNKNOWN
