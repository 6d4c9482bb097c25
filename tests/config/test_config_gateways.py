"""What gateways of their own dialect ask of a configuration, and how HAProxy's names are read."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from quantwatch.cli.main import main
from quantwatch.config.gateway import GatewaySettings, Leave
from quantwatch.config.haproxy import address_of, servers_of
from quantwatch.config.load import load_settings
from quantwatch.errors import ConfigError
from support.filing import TEMPLATE

HAPROXY = {"driver": "haproxy", "socket": "/run/haproxy/admin.sock", "backend": "llm"}
FILE = {"driver": "file", "path": "llm.conf", "template": "llm.j2"}


def written(folder: Path, gateway: dict[str, Any], *names: str | None, mode: str = "enforce") -> Path:
    """A configuration of targets with these gateway names."""
    targets = [
        {"name": f"t{i}", "url": f"http://t{i}.test", "scheme": "int8", "pool": "chat"}
        | ({} if name is None else {"gateway_name": name})
        for i, name in enumerate(names)
    ]
    content = {
        "schema": 1,
        "baseline": {"url": "http://fp16.test"},
        "targets": targets,
        "pools": {"chat": {"mode": mode, "fallback": "baseline", "max_isolated": "50%"}},
        "task_sets": {"math": {}},
        "gateway": gateway,
    }
    file = folder / "quantwatch.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return file


def problems(file: Path) -> list[tuple[str, str]]:
    """Key and message of every fault."""
    with pytest.raises(ConfigError) as caught:
        load_settings(file, shipped={"math": Path("math.yaml")})
    return [(one.key, one.message) for one in caught.value.problems]


SERVERS = {
    ("a", "llm"): ("llm/a",),
    ("chat/a", "llm"): ("chat/a",),
    ("chat/a", None): ("chat/a",),
    ("a, chat/a", "llm"): ("llm/a", "chat/a"),
    ("a,llm/a", "llm"): ("llm/a",),
    ("node-a.example:8000", "llm"): ("llm/node-a.example:8000",),
}


@pytest.mark.parametrize(("given", "servers"), SERVERS.items())
def test_a_gateway_name_is_one_server_or_several(given: tuple[str, str | None], servers: tuple[str, ...]) -> None:
    assert servers_of(*given) == servers


ADDRESSES = {
    "127.0.0.1:9999": ("127.0.0.1", 9999),
    "[::1]:9999": ("::1", 9999),
    "haproxy:1": ("haproxy", 1),
    "/run/haproxy/admin.sock": None,
    "run/admin.sock:1": None,
    "admin.sock": None,
}


@pytest.mark.parametrize(("socket", "address"), ADDRESSES.items())
def test_a_runtime_socket_is_a_port_or_a_path(socket: str, address: tuple[str, int] | None) -> None:
    assert address_of(socket) == address


def test_a_server_leaves_by_drain_if_nothing_else_is_said() -> None:
    assert GatewaySettings.model_validate(HAPROXY).leave is Leave.DRAIN


@pytest.mark.parametrize("backend", ["l m", "llm;", "llm\n", "", "a/b"])
def test_a_backend_that_could_carry_a_command_is_refused(backend: str) -> None:
    with pytest.raises(ValidationError, match="backend"):
        GatewaySettings.model_validate(HAPROXY | {"backend": backend})


@pytest.mark.parametrize("mode", ["approve", "enforce"])
def test_a_target_that_may_be_isolated_needs_its_server_s_name(tmp_path: Path, mode: str) -> None:
    (told,) = problems(written(tmp_path, HAPROXY, "a", None, mode=mode))

    assert told == ("targets[1]", "driver haproxy needs a gateway_name: its SERVER or BACKEND/SERVER there")


def test_a_target_that_is_only_watched_needs_none(tmp_path: Path) -> None:
    file = written(tmp_path, HAPROXY, "a", None, mode="observe")

    assert load_settings(file, shipped={"math": Path("math.yaml")}).targets


@pytest.mark.parametrize("name", ["a b", "a;b", "a\nb", "http://t0.test", "a,", "a/b/c"])
def test_a_name_that_could_carry_a_command_is_told_with_its_key(tmp_path: Path, name: str) -> None:
    (told,) = problems(written(tmp_path, HAPROXY, name, "b"))

    assert told[0] == "targets[0].gateway_name"
    assert "is no SERVER or BACKEND/SERVER of HAProxy" in told[1]


def test_without_a_backend_every_name_has_its_own(tmp_path: Path) -> None:
    alone = {key: value for key, value in HAPROXY.items() if key != "backend"}
    (told,) = problems(written(tmp_path, alone, "llm/a", "b"))

    assert told == ("targets[1].gateway_name", "'b' names no backend; write BACKEND/b, or set gateway.backend")


def test_two_targets_share_no_server(tmp_path: Path) -> None:
    (told,) = problems(written(tmp_path, HAPROXY, "a", "chat/b,llm/a"))

    assert told == ("targets[1].gateway_name", "llm/a belongs to targets[0] already")


def test_a_template_is_looked_for_beside_the_configuration(tmp_path: Path) -> None:
    file = written(tmp_path, FILE, "a", "b")
    (told,) = problems(file)
    (tmp_path / "llm.j2").write_text(TEMPLATE)

    assert told == ("gateway.template", f"no such template: {tmp_path / 'llm.j2'}")
    assert load_settings(file, shipped={"math": Path("math.yaml")}).gateway.template == "llm.j2"


def test_check_config_refuses_a_template_that_does_not_tell_who_is_isolated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "llm.j2").write_text("{% for one in targets %}{{ one.name }}{% endfor %}")

    assert main(["check-config", str(written(tmp_path, FILE, "a", "b"))]) == 3
    assert "gives the same file whether or not t0 is isolated" in capsys.readouterr().err


def test_check_config_warns_of_a_file_that_would_not_be_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "llm.j2").write_text(TEMPLATE)
    (tmp_path / "llm.conf").write_text("by hand\n")
    file = written(tmp_path, FILE, "a", "b")

    assert main(["check-config", str(file)]) == 0
    warned = capsys.readouterr().out
    assert main(["gateway-file", str(file)]) == 0
    (tmp_path / "llm.conf").write_text(capsys.readouterr().out)
    assert main(["check-config", str(file)]) == 0
    fine = capsys.readouterr().out

    assert "warning: gateway.path: " in warned
    assert "is not what quantwatch wrote, or would write" in warned
    assert (tmp_path / "llm.conf").read_text() == "\na;\n\nb;\n\n"
    assert "gateway.path" not in fine


def test_gateway_file_is_for_a_driver_that_writes_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gateway-file", str(written(tmp_path, HAPROXY, "a", "b"))]) == 3
    assert "gateway.driver is haproxy, which writes no file" in capsys.readouterr().err
