"""Drivers that installed packages bring: named in the configuration, held behind a wall, no success by a fault."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from quantwatch.act.carry_out import carry_out
from quantwatch.act.contract import ByHand, Lists, Seen
from quantwatch.act.known import abilities_of
from quantwatch.act.package import Outside, Walled, package
from quantwatch.cli.main import main
from quantwatch.errors import GatewayError, GatewayRefused, GatewayUnavailable, InputError
from quantwatch.flow.decision import Action, Intent, Result
from support.builders import FakeClock
from support.gateway import MemoryLedger, order
from support.installed import install, on_the_path

HEAD = """\
import asyncio
from quantwatch.act.contract import Abilities, Seen
from quantwatch.errors import GatewayRefused

class Lamp:
    abilities = Abilities(reads_back=True, proven=True, calls=True)
    def __init__(self, options, outside):
        self.options, self.outside = options, outside
"""
CALL = "    async def call(self, order):\n        return 'the lamp is ' + order.action.value\n"
OBSERVE = "    async def observe(self, order):\n        return Seen.ISOLATED\n"

Install = Callable[..., None]


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Install]:
    """Installs a package `lamp-driver` that brings the driver `lamp`, whose source is given."""
    folder = tmp_path / "site"
    folder.mkdir()

    def put(text: str = HEAD + CALL + OBSERVE, name: str = "lamp-driver", module: str = "lamp_driver") -> None:
        install(folder, name, module, text, lamp=f"{module}:Lamp")

    with on_the_path(folder):
        yield put


def lamp(options: dict[str, Any] | None = None, seconds: float = 5.0) -> Walled:
    return package("lamp").driver(options or {}, Outside(clock=FakeClock()), seconds=seconds)


def config(folder: Path, **gateway: Any) -> Path:
    content = {
        "schema": 1,
        "baseline": {"url": "http://fp16.test"},
        "targets": [
            {"name": name, "url": f"http://{name}.test", "scheme": "int8", "pool": "chat"} for name in ("a", "b")
        ],
        "pools": {"chat": {"mode": "enforce", "fallback": "baseline", "max_isolated": "50%"}},
        "task_sets": {"math": {}},
        "gateway": {"driver": "lamp", **gateway},
    }
    file = folder / "quantwatch.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


async def test_a_package_s_driver_calls_and_reads_back(installed: Install) -> None:
    installed()
    driver = lamp({"colour": "red"})

    assert driver.abilities.proven
    assert abilities_of("lamp", state_url=False) == driver.abilities
    assert await driver.call(order()) == "the lamp is isolate"
    assert await driver.observe(order()) is Seen.ISOLATED
    assert isinstance(driver, ByHand)
    assert not isinstance(driver, Lists)
    assert await driver.by_hand(order(Action.RELEASE)) == "release http://node-a:8000 at the gateway, by its own means"


async def test_what_a_package_can_do_besides_is_seen(installed: Install) -> None:
    more = (
        "    async def names(self):\n        return ['b', 'a']\n"
        "    async def by_hand(self, order):\n        return 'lampctl off'\n"
    )
    installed(HEAD + CALL + OBSERVE + more)
    driver = lamp()

    assert isinstance(driver, Lists)
    assert await driver.names() == ("a", "b")
    assert await driver.by_hand(order()) == "lampctl off"


FAULTS = {
    "raises": "raise RuntimeError('no\\n bulb')",
    "raises nothing to say": "raise KeyError",
    "answers nothing": "return None",
    "hangs": "await asyncio.sleep(99)",
    "asserts": "assert False",
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_a_package_that_breaks_is_trouble_of_the_gateway(fault: str, installed: Install) -> None:
    methods = "".join(
        f"    async def {name}(self, *order):\n        {fault}\n" for name in ("call", "observe", "names")
    )
    installed(HEAD + methods)
    driver: Any = lamp(seconds=0.05)

    with pytest.raises(
        GatewayUnavailable, match=r"package lamp-driver 1\.0 \(entry point lamp = lamp_driver:Lamp\) broke"
    ):
        await driver.call(order())
    assert await driver.observe(order()) is Seen.UNKNOWN
    with pytest.raises(GatewayError):
        await driver.names()


async def test_a_broken_package_ends_as_failed_and_never_as_done(installed: Install) -> None:
    installed(
        HEAD + "    async def call(self, order):\n        1 / 0\n" + OBSERVE.replace("Seen.ISOLATED", "'isolated'")
    )
    clock = FakeClock()
    outcome = await carry_out(
        Intent(order(), clock.now(), 0),
        lamp(),
        MemoryLedger(),
        clock,
        give_up_seconds=600,
        wanted=lambda: None,
        tell=lambda _: None,
    )

    assert outcome.result is Result.FAILED
    assert outcome.doubt
    assert "ZeroDivisionError: division by zero" in outcome.detail


async def test_a_refusal_of_a_package_is_one(installed: Install) -> None:
    installed(HEAD + "    async def call(self, order):\n        raise GatewayRefused('no')\n" + OBSERVE)
    with pytest.raises(GatewayRefused, match=r"^no$"):
        await lamp().call(order())


async def test_a_call_that_is_cancelled_ends(installed: Install) -> None:
    installed(HEAD + "    async def call(self, order):\n        await asyncio.sleep(99)\n" + OBSERVE)
    task = asyncio.create_task(lamp().call(order()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


UNUSABLE = {
    "an import that fails": ("import lamps_that_are_not_there", "cannot be imported: ModuleNotFoundError: No module"),
    "an import that ends the process": ("raise SystemExit(7)", "cannot be imported: SystemExit: 7"),
    "a fault of syntax": ("class Lamp(:", "cannot be imported: SyntaxError"),
    "no class": ("x = 1", "cannot be imported: AttributeError"),
    "no callable": ("Lamp = 5", "is no driver: it has no class that makes it"),
    "no abilities": ("class Lamp:\n    abilities = True", "is no driver: it has no `abilities`"),
    "no call": (HEAD + OBSERVE, "is no driver: it has no `async def call`"),
    "a call that does not wait": (HEAD + CALL.replace("async ", "") + OBSERVE, "it has no `async def call`"),
    "no observe": (HEAD + CALL, "is no driver: it has no `async def observe`"),
}


@pytest.mark.parametrize(("text", "said"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_package_that_cannot_be_used_is_named(
    text: str, said: str, installed: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(text)
    assert main(["check-config", str(config(tmp_path))]) == 3

    told = capsys.readouterr().err
    assert "gateway.driver: package lamp-driver 1.0 (entry point lamp = lamp_driver:Lamp)" in told
    assert said in told


def test_options_that_a_package_refuses_are_a_fault_of_the_configuration(
    installed: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check = "        if options: raise ValueError('no colours')\n"
    installed(HEAD + check + CALL + OBSERVE)

    assert main(["check-config", str(config(tmp_path, options={"colour": "red"}))]) == 3
    assert "gateway.options: package lamp-driver 1.0" in (told := capsys.readouterr().err)
    assert "cannot use them: no colours" in told


def test_a_package_that_breaks_on_its_options_is_named(installed: Install) -> None:
    installed(HEAD + "        options['colour']\n" + CALL + OBSERVE)
    with pytest.raises(InputError, match="broke on them: KeyError: 'colour'"):
        lamp()


def test_two_packages_that_bring_one_name_are_both_told(installed: Install) -> None:
    installed()
    installed(name="other-lamp", module="other_lamp")
    with pytest.raises(InputError, match=r"package lamp-driver 1\.0 .* and package other-lamp 1\.0 .* both bring"):
        package("lamp")


def test_without_the_package_the_configuration_is_at_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", str(config(tmp_path))]) == 3
    told = capsys.readouterr().err

    assert "gateway.driver: no such driver; known: 'dry_run', 'webhook'" in told
    assert "A package that brings another must be installed beside quantwatch" in told
    with pytest.raises(InputError, match="no installed package brings a driver lamp"):
        package("lamp")


def test_only_the_package_that_is_named_is_imported(
    installed: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed("raise SystemExit('imported')")
    file = config(tmp_path)
    file.write_text(file.read_text().replace("driver: lamp", "driver: dry_run"))

    assert main(["check-config", str(file)]) == 0
    assert "imported" not in capsys.readouterr().err


def test_a_name_that_is_nearly_a_package_s_is_helped(
    installed: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed()
    file = config(tmp_path)
    file.write_text(file.read_text().replace("driver: lamp", "driver: lampp"))
    assert main(["check-config", str(file)]) == 3
    assert "did you mean lamp?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gateway", "said"),
    [
        ({"url": "http://x"}, "url has no meaning for driver lamp"),
        ({"driver": "dry_run", "options": {"a": 1}}, "it belongs to drivers of installed packages"),
        ({"options": {"token": "abc"}}, "looks like a secret; use env:NAME"),
    ],
)
def test_settings_that_are_not_the_package_s_are_refused(
    gateway: dict[str, Any], said: str, installed: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed()
    assert main(["check-config", str(config(tmp_path, **gateway))]) == 3
    assert said in capsys.readouterr().err


def test_what_the_package_says_of_itself_is_shown(
    installed: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetches = "        outside.secret(options['token'])\n"
    installed(HEAD.replace("proven=True", "proven=False") + fetches + CALL + OBSERVE)
    assert main(["check-config", str(config(tmp_path, options={"token": "env:NO_SUCH_LAMP"}))]) == 0

    told = capsys.readouterr().out
    assert "gateway: driver lamp: reads back; not proven: rehearse it" in told
    assert "warning: gateway.driver: lamp is not proven against the real program" in told
    assert "warning: gateway.options.token: the environment variable NO_SUCH_LAMP is not set" in told
