"""Every channel over a real socket: what arrives, what an answer means, and that nothing secret is ever said."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from quantwatch.act.alertmanager import Alertmanager, alert
from quantwatch.act.channel import Channel, Line, Reply, Subscriber
from quantwatch.act.hook import Hook
from quantwatch.act.notice_text import message
from quantwatch.act.slack import LONGEST_BLOCK, MOST_BLOCKS, Slack, escaped, slack_json
from quantwatch.clock import SystemClock
from quantwatch.errors import InputError
from quantwatch.flow.notice import Severity, Topic
from quantwatch.net import Endpoint, Limits, Link
from support.notices import BEGAN, notice
from support.receiver import HANGS, Receiver, received

KEY = "sk-very-secret-key"
SIGNING = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PLACE = "T0001/B0001/abcdefghijklmnop"
QUICK = Limits(connect_seconds=5, total_seconds=30)


@asynccontextmanager
async def line(url: str, *, limits: Limits = QUICK, **endpoint: Any) -> AsyncIterator[Line]:
    """The way to a channel on the system's clock."""
    async with Link(Endpoint("ops", url, **endpoint), limits) as link:
        yield Line(link, SystemClock(), secrets=[SIGNING])


async def test_a_webhook_arrives_signed_so_that_the_standard_verifies_it() -> None:
    receiver = Receiver()
    with received(receiver) as url:
        async with line(f"{url}/in", api_key=KEY) as way:
            reply = await Hook(way, name="ops", signing_secret=SIGNING).send([notice(), notice(number=2)])
    assert reply == Reply(ok=True, said="answered 200")
    first, second = receiver.posts
    assert Webhook(SIGNING).verify(first.raw, first.headers) == first.body
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert [one.headers["webhook-id"] for one in (first, second)] == [notice().id, notice(number=2).id]
    with pytest.raises(WebhookVerificationError):
        Webhook(SIGNING).verify(first.raw + b" ", first.headers)


async def test_the_body_of_a_webhook() -> None:
    receiver = Receiver()
    with received(receiver) as url:
        async with line(url) as way:
            await Hook(way, name="ops").send([notice(minutes=2)])
    (body,) = receiver.bodies
    assert "webhook-signature" not in receiver.posts[0].headers
    evidence = body.pop("evidence")
    assert evidence[0] | {"reason": ""} == {
        "metric": "kl_mean",
        "value": 0.21,
        "low": 0.18,
        "high": 0.24,
        "warn": 0.06,
        "critical": 0.13,
        "verdict": "degraded",
        "reason": "",
    }
    assert body == {
        "schema": 1,
        "id": "n-20260101-030405-00000001",
        "topic": "quality",
        "subject": "int4-a/math",
        "state": "degraded",
        "standing": True,
        "severity": "critical",
        "at": "2026-01-01T03:06:05.000+00:00",
        "since": "2026-01-01T03:04:05.000+00:00",
        "title": "[CRITICAL] int4-a: math is degraded",
        "reason": "breach 2 in a row: mean KL 0.21 is over 0.13",
        "done": "its isolation is under way, decision d-1",
        "target": "int4-a",
        "pool": "chat",
        "task_set": "math",
        "run_id": "r-1",
        "decision_id": "d-1",
        "runbook": "docs/runbook.md#alert-target-bad",
    }


async def test_of_several_webhooks_the_first_that_fails_ends_it() -> None:
    receiver = Receiver(statuses=[200, 500])
    with received(receiver) as url:
        async with line(url) as way:
            reply = await Hook(way, name="ops").send([notice(number=i) for i in range(3)])
    assert (reply.ok, len(receiver.posts)) == (False, 2)


async def test_a_slack_message_has_a_text_and_blocks_in_which_nothing_can_mention_anybody() -> None:
    receiver = Receiver()
    told = notice(target="<!channel>", reason="a & b < c > <@U1> https://x.test")
    with received(receiver) as url:
        async with line(f"{url}/services/{PLACE}") as way:
            assert (await Slack(way, runbook_url="https://wiki.test/rb").send([told])).ok
    (body,) = receiver.bodies
    texts = [block["text"]["text"] for block in body["blocks"]]
    assert body["text"] == "[CRITICAL] &lt;!channel&gt;: math is degraded"
    assert texts[0] == "*[CRITICAL] &lt;!channel&gt;: math is degraded*"
    assert "*Why:* a &amp; b &lt; c &gt; &lt;@U1&gt; https://x.test" in texts
    assert texts[-1] == "<https://wiki.test/rb#alert-target-bad|Runbook>"
    assert {block["type"] for block in body["blocks"]} == {"section"}
    assert [text for text in texts[:-1] if "<" in text or ">" in text] == []


@pytest.mark.parametrize("text", ["&" * 9000, "x" * 9000, "<a>" * 2000, "短" * 4000])
def test_a_text_fits_its_block_and_no_escape_is_cut_in_two(text: str) -> None:
    safe = escaped(text)
    assert 1000 < len(safe) <= LONGEST_BLOCK
    assert safe.endswith("...")
    assert "&" not in safe.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "")


def test_many_messages_fit_into_what_slack_takes() -> None:
    body = slack_json([message(notice(number=i)) for i in range(40)])
    assert len(body["blocks"]) == MOST_BLOCKS


def test_an_alert_keeps_its_labels_and_changes_its_words() -> None:
    now = BEGAN + timedelta(minutes=7)
    one, other = alert(notice(), now=now), alert(notice(state="corrupted", reason="NaN"), now=now)
    assert one["labels"] == {
        "alertname": "QuantwatchQuality",
        "severity": "critical",
        "target": "int4-a",
        "pool": "chat",
        "task_set": "math",
    }
    assert one["labels"] == other["labels"]
    assert one["annotations"]["summary"] != other["annotations"]["summary"]
    assert (one["startsAt"], one["endsAt"]) == ("2026-01-01T03:04:05+00:00", "2026-01-01T03:16:05+00:00")


def test_an_alert_that_is_over_ended_when_it_did() -> None:
    over = alert(notice(minutes=5, standing=False), now=BEGAN + timedelta(hours=3))
    assert over["endsAt"] == "2026-01-01T03:09:05+00:00"
    assert alert(notice(standing=False), now=BEGAN)["endsAt"] == "2026-01-01T03:04:06+00:00"


def test_what_is_about_no_target_is_named_by_its_subject() -> None:
    told = notice(Topic.BASELINE_MOVED, subject="baseline", target=None, pool=None, task_set=None)
    one = alert(told, now=BEGAN)
    assert one["labels"] == {"alertname": "QuantwatchBaselineMoved", "severity": "critical", "subject": "baseline"}


KINDS = {
    "alertmanager": Alertmanager,
    "slack": Slack,
    "webhook": lambda way: Hook(way, name="ops", signing_secret=SIGNING),
}
EACH = pytest.mark.parametrize("kind", KINDS)
AGAIN = {429: True, 425: True, 408: True, 500: True, 503: True, 400: False, 401: False, 404: False, 410: False}


async def sent(kind: str, url: str, **given: Any) -> Reply:
    async with line(url, api_key=KEY, **given) as way:
        channel: Channel = KINDS[kind](way)  # type: ignore[operator]
        return await channel.send([notice()])


@EACH
@pytest.mark.parametrize(("status", "again"), AGAIN.items())
async def test_what_a_status_means(kind: str, status: int, again: bool) -> None:
    with received(Receiver(always=status, retry_after="7", said="no <b>luck</b>\n")) as url:
        reply = await sent(kind, url)
    assert (reply.ok, reply.again, reply.retry_after) == (False, again, 7.0)
    assert reply.said == f"answered {status}: no b luck b"


@EACH
async def test_a_hanging_channel_is_left_in_time(kind: str) -> None:
    with received(Receiver(always=HANGS)) as url:
        reply = await sent(kind, url, limits=Limits(connect_seconds=1, total_seconds=0.2))
    assert (reply.ok, reply.again) == (False, True)


@EACH
async def test_a_closed_port_may_be_tried_again(kind: str) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    reply = await sent(kind, f"http://127.0.0.1:{port}/services/{PLACE}")
    assert (reply.ok, reply.again) == (False, True)
    assert PLACE not in reply.said


@EACH
async def test_a_redirect_is_final_and_its_address_is_not_repeated(kind: str) -> None:
    with received(Receiver(always=307)) as url:
        reply = await sent(kind, f"{url}/services/{PLACE}")
    assert (reply.ok, reply.again) == (False, False)
    assert "redirects" in reply.said
    assert PLACE not in reply.said
    assert "abcdefghijklmnop" not in reply.said


@EACH
async def test_an_answer_that_repeats_our_secrets_is_not_repeated(kind: str) -> None:
    told = f"bad key {KEY} for {PLACE.rpartition('/')[2]} {SIGNING[:20]}"
    with received(Receiver(always=403, said=told)) as url:
        reply = await sent(kind, f"{url}/services/{PLACE}")
    assert KEY not in reply.said
    assert "abcdefghijklmnop" not in reply.said


async def test_a_channel_that_speaks_no_tls_is_final() -> None:
    with received(Receiver()) as url:
        reply = await sent("slack", url.replace("http:", "https:"))
    assert (reply.ok, reply.again) == (False, False), ssl.OPENSSL_VERSION


@pytest.mark.parametrize("secret", ["whsec_", "whsec_#", ""])
def test_a_signing_secret_that_cannot_be_used_is_named_by_its_channel(secret: str) -> None:
    async def make() -> None:
        async with line("http://ops.test") as way:
            Hook(way, name="ops", signing_secret=secret)

    with pytest.raises(InputError, match="signing_secret of notifications ops"):
        asyncio.run(make())


def test_a_channel_hears_what_it_wants() -> None:
    def wants(told: Any, severity: Severity = Severity.WARNING, pools: frozenset[str] | None = None) -> bool:
        return Subscriber("ops", Slack(None), severity, pools, 60.0).wants(told)  # type: ignore[arg-type]  # not sent

    assert wants(notice())
    assert wants(notice(Topic.ROUTING))
    assert not wants(notice(Topic.WOULD_HAVE))
    assert wants(notice(Topic.WOULD_HAVE), Severity.INFO)
    assert not wants(notice(Topic.ROUTING), Severity.CRITICAL)
    assert wants(notice(), pools=frozenset({"chat"}))
    assert not wants(notice(), pools=frozenset({"other"}))
    assert wants(notice(Topic.BASELINE_MOVED, pool=None), pools=frozenset({"other"}))


def test_every_body_is_ascii_json_without_nan() -> None:
    assert json.dumps(slack_json([message(notice(reason="短 \ud800"))]), allow_nan=False).isascii()
