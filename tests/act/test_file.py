"""The file driver with real files and commands: what is written when, what a refusal leaves, and what a crash leaves.

What real gateways make of it stands in tests/gateways.
"""

import asyncio
import json
import os
import signal
import stat
import time
from pathlib import Path

import pytest

from quantwatch.act.contract import Seen, Unanswered
from quantwatch.act.file import Commands, FileDriver
from quantwatch.act.place import Place, Record, Undo, digest
from quantwatch.act.template import Node, Template
from quantwatch.errors import GatewayRefused, InputError
from support.daemons import until
from support.filing import TEMPLATE, Filing, isolate, node, release

BREAKS = TEMPLATE.replace(" down", " bad")
"""A template whose isolated nodes the gateway does not take."""


@pytest.fixture
def filing(tmp_path: Path) -> Filing:
    return Filing(tmp_path).begun()


async def seen(filing: Filing, *names: str) -> list[Seen]:
    """How targets stand by a driver of a new life."""
    return [await filing.driver().observe(isolate(one)) for one in names or ("int4-a", "int4-b")]


async def test_an_isolation_is_written_checked_and_taken_over_once(filing: Filing) -> None:
    said = await filing.driver().call(isolate())

    assert filing.file.read_text() == filing.text("int4-a") == "\ngw-int4-a down;\n\ngw-int4-b;\n\n"
    assert filing.reloads == 1
    assert said == f"{filing.file} is written and taken over"


async def test_a_new_life_reads_who_is_isolated_and_brings_it_back(filing: Filing) -> None:
    before = await seen(filing)
    await filing.driver().call(isolate())
    between = await seen(filing)
    await filing.driver().call(release())

    assert before == [Seen.ROUTABLE, Seen.ROUTABLE]
    assert between == [Seen.ISOLATED, Seen.ROUTABLE]
    assert await seen(filing) == [Seen.ROUTABLE, Seen.ROUTABLE]
    assert filing.file.read_text() == filing.text()


async def test_orders_of_two_nodes_at_once_do_not_lose_one_another(filing: Filing) -> None:
    filing.reload = "sleep 0.2; echo >> reloads"
    driver = filing.driver()

    await asyncio.gather(driver.call(isolate()), driver.call(isolate("int4-b")))

    assert filing.file.read_text() == filing.text("int4-a", "int4-b")
    assert await seen(filing) == [Seen.ISOLATED, Seen.ISOLATED]


async def test_two_drivers_on_one_file_do_not_lose_one_another(filing: Filing) -> None:
    """As an old and a new configuration have them for a moment."""
    filing.reload = "sleep 0.2; echo >> reloads"

    await asyncio.gather(filing.driver().call(isolate()), filing.driver().call(isolate("int4-b")))

    assert filing.file.read_text() == filing.text("int4-a", "int4-b")


async def test_a_file_that_another_process_holds_is_waited_for_and_no_longer(filing: Filing) -> None:
    filing.seconds = 0.1
    with Place(filing.file).locked(1), pytest.raises(Unanswered, match="held by another process") as caught:
        await filing.driver().call(isolate())

    assert caught.value.arrived is False
    assert filing.file.read_text() == filing.text()


async def test_a_cancelled_call_comes_to_its_end_before_the_next_begins(filing: Filing) -> None:
    filing.reload = "sleep 0.3; echo >> reloads"
    driver = filing.driver()
    task = asyncio.create_task(driver.call(isolate()))
    await until(filing.record.exists)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    await driver.call(isolate("int4-b"))

    assert filing.reloads == 2
    assert await seen(filing) == [Seen.ISOLATED, Seen.ISOLATED]


async def test_what_the_gateway_does_not_take_leaves_the_old_file(filing: Filing) -> None:
    await filing.driver().call(isolate("int4-b"))
    filing.template = TEMPLATE.replace(" down", "{% if target.name == 'int4-a' %} bad{% else %} down{% endif %}")
    old = filing.file.read_bytes()

    with pytest.raises(GatewayRefused, match=r"sh ended with 3: the word bad stands there; .* is as it was before"):
        await filing.driver().call(isolate())

    assert filing.file.read_bytes() == old
    assert filing.reloads == 1
    assert await seen(filing) == [Seen.ROUTABLE, Seen.ISOLATED]


async def test_a_file_that_was_not_there_is_gone_again_when_it_does_not_pass(filing: Filing) -> None:
    filing.file.unlink()
    filing.template = BREAKS

    for _ in range(2):
        with pytest.raises(GatewayRefused, match="the word bad"):
            await filing.driver().call(isolate())
        assert not filing.file.exists()
    filing.template = TEMPLATE
    await filing.driver().call(isolate())

    assert await seen(filing) == [Seen.ISOLATED, Seen.ROUTABLE]


async def test_a_check_that_hangs_is_ended_with_its_children_and_tried_again(filing: Filing) -> None:
    filing.validate, filing.seconds = "sleep 600 & sleep 600", 0.3
    began = time.monotonic()

    with pytest.raises(Unanswered, match=r"did not end within 0\.3 s") as caught:
        await filing.driver().call(isolate())

    assert caught.value.arrived is False
    assert time.monotonic() - began < 300, "the children were waited for"
    assert filing.file.read_text() == filing.text()
    assert await seen(filing) == [Seen.ROUTABLE, Seen.ROUTABLE]


async def test_a_command_that_leaves_a_daemon_behind_is_not_waited_for(filing: Filing) -> None:
    filing.reload = "sleep 600 & echo $! > pid"

    await filing.driver().call(isolate())

    os.kill(int((filing.folder / "pid").read_text()), signal.SIGKILL)  # it lives
    assert await seen(filing) == [Seen.ISOLATED, Seen.ROUTABLE]


@pytest.mark.parametrize("command", ["exit 1", "sleep 600"])
async def test_until_the_gateway_has_taken_it_over_nobody_knows(filing: Filing, command: str) -> None:
    filing.reload, filing.seconds = command, 0.3 if command.startswith("sleep") else 20.0

    with pytest.raises(Unanswered, match=r"gateway\.reload_command: .* is written") as caught:
        await filing.driver().call(isolate())

    assert caught.value.arrived is True
    assert filing.file.read_text() == filing.text("int4-a")
    assert await seen(filing) == [Seen.UNKNOWN, Seen.ROUTABLE]


async def test_a_reload_that_failed_is_tried_again_and_then_it_is_known(filing: Filing) -> None:
    filing.reload = "exit 1"
    with pytest.raises(Unanswered):
        await filing.driver().call(isolate())
    filing.reload = "echo >> reloads"

    await filing.driver().call(isolate())

    assert await seen(filing) == [Seen.ISOLATED, Seen.ROUTABLE]
    assert filing.reloads == 1


async def test_a_failed_isolation_that_is_taken_back_is_no_release_until_the_gateway_has_it(filing: Filing) -> None:
    """The reload that failed may have been the one that took the node out."""
    filing.reload = "exit 1"
    for order in (isolate(), release()):
        with pytest.raises(Unanswered):
            await filing.driver().call(order)

    assert filing.file.read_text() == filing.text()
    assert await seen(filing) == [Seen.UNKNOWN, Seen.ROUTABLE]


async def test_a_command_that_does_not_exist_is_named(filing: Filing) -> None:
    commands = Commands(["/no/such/program"], [], filing.folder, 5.0)
    driver = FileDriver(Place(filing.file), Template(TEMPLATE, filing.nodes), commands)

    with pytest.raises(GatewayRefused, match="/no/such/program cannot be run: No such file"):
        await driver.call(isolate())


async def test_without_commands_writing_is_all(filing: Filing) -> None:
    filing.validate = filing.reload = ""

    assert await filing.driver().call(isolate()) == f"{filing.file} is written"
    assert await seen(filing) == [Seen.ISOLATED, Seen.ROUTABLE]


HAND = ["# mine\n", "", "\udcff"]


@pytest.mark.parametrize("text", HAND)
async def test_a_file_that_somebody_else_changed_is_unknown_and_left_alone(filing: Filing, text: str) -> None:
    await filing.driver().call(isolate())
    hand = text.encode("utf-8", "surrogateescape")
    filing.file.write_bytes(hand)

    assert await seen(filing) == [Seen.UNKNOWN, Seen.UNKNOWN]
    for order in (isolate(), release()):
        with pytest.raises(GatewayRefused, match=r"not what quantwatch wrote.*gateway-file"):
            await filing.driver().call(order)
    assert filing.file.read_bytes() == hand
    assert filing.reloads == 1
    assert "not what quantwatch wrote" in str(filing.driver().objection())


async def test_a_file_that_was_never_ours_is_left_alone_too(filing: Filing) -> None:
    filing.file.write_text("# somebody's own\n")

    assert await seen(filing) == [Seen.UNKNOWN, Seen.UNKNOWN]
    with pytest.raises(GatewayRefused, match="left alone"):
        await filing.driver().call(isolate())
    assert not filing.record.exists()


async def test_a_file_put_back_as_it_belongs_is_known_again(filing: Filing) -> None:
    await filing.driver().call(isolate())
    filing.file.write_text("# mine\n")
    filing.file.write_text(filing.driver().content())

    assert await seen(filing) == [Seen.ISOLATED, Seen.ROUTABLE]
    assert filing.driver().objection() is None


async def test_another_template_finds_its_own_isolations_and_writes_them_anew(filing: Filing) -> None:
    await filing.driver().call(isolate())
    filing.template = "# second edition\n" + TEMPLATE
    filing.nodes = [*filing.nodes, node("int4-c")]

    assert await seen(filing, "int4-a", "int4-b", "int4-c") == [Seen.ISOLATED, Seen.ROUTABLE, Seen.ROUTABLE]
    await filing.driver().call(isolate("int4-c"))

    assert filing.file.read_text() == filing.text("int4-a", "int4-c")


async def test_a_target_that_left_the_configuration_can_be_released(filing: Filing) -> None:
    await filing.driver().call(isolate())
    filing.nodes = [node("int4-b")]

    between = await seen(filing)
    await filing.driver().call(release())

    assert between == [Seen.ISOLATED, Seen.ROUTABLE]
    assert await seen(filing) == [Seen.ROUTABLE, Seen.ROUTABLE]


async def test_a_target_that_the_template_does_not_know_is_refused(filing: Filing) -> None:
    with pytest.raises(GatewayRefused, match="the same file whether or not int4-z is isolated"):
        await filing.driver().call(isolate("int4-z"))

    assert filing.file.read_text() == filing.text()


# Crashes. What a killed driver leaves is put there as it would have been; each step is one file exchanged whole.

OLD, NEW = Template(TEMPLATE, [node("int4-a"), node("int4-b")]), frozenset({"int4-a"})
BEGUN = Record(NEW, digest(OLD.text(NEW)), unsure=NEW, undo=Undo(OLD.text(())))
PASSED = Record(NEW, digest(OLD.text(NEW)), unsure=NEW)
CRASHES = {
    "before the file was exchanged": (BEGUN, OLD.text(()), Seen.ROUTABLE),
    "before it was checked": (BEGUN, OLD.text(NEW), Seen.UNKNOWN),
    "before the reload was known to have worked": (PASSED, OLD.text(NEW), Seen.UNKNOWN),
}


@pytest.mark.parametrize(("record", "text", "told"), CRASHES.values(), ids=CRASHES.keys())
async def test_a_driver_killed_on_its_way_tells_the_truth_and_a_repeated_call_ends_as_wished(
    filing: Filing, record: Record, text: str, told: Seen
) -> None:
    Place(filing.file).save(record)
    filing.file.write_text(text)

    assert await seen(filing) == [told, Seen.ROUTABLE]
    await filing.driver().call(isolate())

    assert await seen(filing) == [Seen.ISOLATED, Seen.ROUTABLE]
    assert filing.reloads == 1
    assert json.loads(filing.record.read_text())["undo"] is None


@pytest.mark.parametrize("text", [OLD.text(()), OLD.text(NEW)], ids=["old file", "new file"])
async def test_a_driver_killed_on_its_way_can_be_told_the_opposite(filing: Filing, text: str) -> None:
    Place(filing.file).save(BEGUN)
    filing.file.write_text(text)

    await filing.driver().call(release())

    assert filing.file.read_text() == filing.text()
    assert await seen(filing) == [Seen.ROUTABLE, Seen.ROUTABLE]


async def test_a_file_that_a_killed_driver_left_unchecked_gives_way_to_the_one_before(filing: Filing) -> None:
    old = filing.file.read_text()
    filing.template = BREAKS
    bad = filing.text("int4-a")
    Place(filing.file).save(Record(NEW, digest(bad), unsure=NEW, undo=Undo(old)))
    filing.file.write_text(bad)

    with pytest.raises(GatewayRefused, match="the word bad"):
        await filing.driver().call(isolate())

    assert filing.file.read_text() == old
    assert await seen(filing) == [Seen.ROUTABLE, Seen.ROUTABLE]


async def test_a_record_that_cannot_be_read_acts_on_nothing(filing: Filing) -> None:
    await filing.driver().call(isolate())
    for damage in ("", "{", "[]", '{"schema": 2}', '{"schema": 1, "isolated": 3}'):
        filing.record.write_text(damage)

        assert await seen(filing) == [Seen.UNKNOWN, Seen.UNKNOWN]
        with pytest.raises(GatewayRefused, match=r"the record beside .* cannot be read"):
            await filing.driver().call(release())
    assert filing.file.read_text() == filing.text("int4-a")


async def test_mode_and_owner_stay_and_a_link_stays_a_link(filing: Filing) -> None:
    real = filing.folder / "real" / "upstream.conf"
    real.parent.mkdir()
    filing.file.rename(real)
    filing.file.symlink_to(real)
    real.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(real, 12345, 23456)
    before = real.stat()

    await filing.driver().call(isolate())

    after = real.stat()
    assert filing.file.is_symlink()
    assert real.read_text() == filing.text("int4-a")
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert stat.S_IMODE((real.parent / ".upstream.conf.quantwatch").stat().st_mode) == 0o600


async def test_a_folder_that_is_not_there_is_for_a_person(filing: Filing) -> None:
    driver = FileDriver(Place(filing.folder / "none" / "x.conf"), OLD, filing.driver()._commands)

    with pytest.raises(GatewayRefused, match=r"Look at gateway\.path"):
        await driver.call(isolate())
    assert await driver.observe(isolate()) is Seen.UNKNOWN


async def test_a_write_that_fails_leaves_the_old_file(filing: Filing) -> None:
    (filing.folder / ".upstream.conf.quantwatch-new").mkdir()

    with pytest.raises(GatewayRefused, match=r"cannot be written: Is a directory\. Look at gateway\.path"):
        await filing.driver().call(isolate())

    assert filing.file.read_text() == filing.text()
    assert await seen(filing) == [Seen.ROUTABLE, Seen.ROUTABLE]


# Templates.


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% for x in %}", "is no Jinja2 template"),
        ("{{ targetz }}", "cannot be filled in: 'targetz' is undefined"),
        ("{{ targets[0].nmae }}", "cannot be filled in"),
        ("{{ 1 / 0 }}", "cannot be filled in"),
        ("{{ ().__class__.__bases__ }}", "cannot be filled in"),
        ("nothing of it", "the same file whether or not int4-a is isolated"),
        ("{{ targets[0].isolated }}", "the same file whether or not int4-b is isolated"),
    ],
)
def test_a_template_that_cannot_be_used_is_found_at_once(template: str, said: str) -> None:
    with pytest.raises(InputError, match=r"gateway\.template") as caught:
        Template(template, [node("int4-a"), node("int4-b")])

    assert said in str(caught.value)


def test_a_template_need_not_know_targets_that_are_only_watched() -> None:
    assert Template("{{ targets[0].isolated }}", [node("a"), node("b", "code", acts=False)]).text({"a"}) == "True"


def test_a_template_sees_pool_names_and_address() -> None:
    template = "{% for t in targets %}{{ t.pool }}/{{ t.name }} {{ t.address }} {{ t.url }}{% endfor %} {{ isolated }}"
    given = [Node("a", "chat", "x", "https://h.example/v1"), Node("b", "code", "y", "http://[::1]:8000")]

    assert Template(template, given).text({"b", "gone"}) == (
        "chat/a h.example:443 https://h.example/v1code/b [::1]:8000 http://[::1]:8000 ['b', 'gone']"
    )
