"""What gateways of their own dialect ask of a configuration, and how HAProxy's names are read."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from quantwatch.cli.main import main
from quantwatch.config.gateway import GatewaySettings, Leave
from quantwatch.config.haproxy import address_of, servers_of
from quantwatch.config.kubernetes import pod_of
from quantwatch.config.load import load_settings
from quantwatch.config.upstreams import member_of
from quantwatch.errors import ConfigError
from support.filing import TEMPLATE

HAPROXY = {"driver": "haproxy", "socket": "/run/haproxy/admin.sock", "backend": "llm"}
FILE = {"driver": "file", "path": "llm.conf", "template": "llm.j2"}
LITELLM = {"driver": "litellm", "url": "http://litellm:4000", "api_key": "env:KEY"}
KUBERNETES = {"driver": "kubernetes", "namespace": "llm", "service": "vllm"}
APISIX = {"driver": "apisix", "url": "http://apisix:9180", "api_key": "env:KEY", "upstream": "1"}
KONG = {"driver": "kong", "url": "http://kong:8001", "upstream": "llm"}


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


PODS = {
    ("vllm-0", "vllm"): ("vllm", "vllm-0"),
    ("other:vllm-0", "vllm"): ("other", "vllm-0"),
    ("other:vllm-0", None): ("other", "vllm-0"),
    ("app=vllm,example.com/instance=a", "vllm"): ("vllm", "app=vllm,example.com/instance=a"),
    ("other:app=vllm", None): ("other", "app=vllm"),
}


@pytest.mark.parametrize(("given", "pod"), PODS.items())
def test_a_pod_is_a_name_or_labels_of_a_service(given: tuple[str, str | None], pod: tuple[str, str]) -> None:
    assert pod_of(*given) == pod


MEMBERS = {
    ("10.0.0.1:8000", "1"): ("1", "10.0.0.1:8000"),
    ("llm/10.0.0.1:8000", "1"): ("llm", "10.0.0.1:8000"),
    ("llm/node-a.example:80", None): ("llm", "node-a.example:80"),
    ("[::1]:8000", "llm"): ("llm", "[::1]:8000"),
}


@pytest.mark.parametrize(("given", "member"), MEMBERS.items())
def test_a_member_is_an_address_of_an_upstream(given: tuple[str, str | None], member: tuple[str, str]) -> None:
    assert member_of(*given) == member


NEEDS = {
    "litellm": (LITELLM, "driver litellm needs a gateway_name: the deployment's id there"),
    "kubernetes": (KUBERNETES, "driver kubernetes needs a gateway_name: its POD or SERVICE:POD there"),
    "apisix": (APISIX, "driver apisix needs a gateway_name: its HOST:PORT or UPSTREAM/HOST:PORT there"),
    "kong": (KONG, "driver kong needs a gateway_name: its HOST:PORT or UPSTREAM/HOST:PORT there"),
}


@pytest.mark.parametrize(("gateway", "said"), NEEDS.values(), ids=NEEDS)
def test_gateways_that_know_no_url_need_a_name(gateway: dict[str, Any], said: str, tmp_path: Path) -> None:
    assert ("targets[0]", said) in problems(written(tmp_path, gateway, None, None))


WRONG = [
    (KUBERNETES, "Pod_A", "is no pod: write its name, or labels"),
    (KUBERNETES, "a b", "is no pod"),
    (KUBERNETES, "pods/a", "is no pod"),
    (KUBERNETES, "app=vllm,", "is no pod"),
    (KUBERNETES, "Svc:vllm-0", "is no name of a service"),
    ({**KUBERNETES, "service": None}, "vllm-0", "names no service; write SERVICE:vllm-0, or set gateway.service"),
    (APISIX, "http://10.0.0.1:8000", "is no HOST:PORT"),
    (APISIX, "10.0.0.1", "is no HOST:PORT"),
    (APISIX, "a b/10.0.0.1:80", "is no id or name of an upstream"),
    ({**KONG, "upstream": None}, "10.0.0.1:8000", "names no upstream; write UPSTREAM/10.0.0.1:8000"),
]


@pytest.mark.parametrize(("gateway", "name", "said"), WRONG)
def test_a_name_that_cannot_be_one_is_told_with_its_key(
    gateway: dict[str, Any], name: str, said: str, tmp_path: Path
) -> None:
    given = {key: value for key, value in gateway.items() if value is not None}
    told = problems(written(tmp_path, given, name, "llm:b" if given["driver"] == "kubernetes" else "llm/b:1"))
    assert told[0][0] == "targets[0].gateway_name"
    assert said in told[0][1]


@pytest.mark.parametrize("gateway", [LITELLM, KUBERNETES, APISIX, KONG], ids=NEEDS)
def test_two_targets_share_no_name(gateway: dict[str, Any], tmp_path: Path) -> None:
    names = {"litellm": ("a", ""), "kubernetes": ("pod", "vllm:"), "apisix": ("a:1", "1/"), "kong": ("a:1", "llm/")}
    name, default = names[gateway["driver"]]
    (told,) = problems(written(tmp_path, gateway, name, f"{default}{name}"))
    assert told == ("targets[1].gateway_name", f"{default}{name} belongs to targets[0] already")


LACKING = [
    ({"driver": "litellm", "url": "http://x"}, "driver litellm needs api_key"),
    ({"driver": "kubernetes"}, "driver kubernetes needs namespace"),
    ({"driver": "apisix", "api_key": "env:K"}, "driver apisix needs url"),
    ({"driver": "kong"}, "driver kong needs url"),
    ({**KONG, "namespace": "llm"}, "namespace has no meaning for driver kong; it belongs to kubernetes"),
    ({**HAPROXY, "upstream": "llm"}, "it belongs to apisix and kong"),
    ({**FILE, "envoy_admin": "http://x"}, "envoy_admin and envoy_cluster go together"),
    ({**FILE, "envoy_cluster": "llm"}, "envoy_admin and envoy_cluster go together"),
    ({**KUBERNETES, "label": "no label"}, "label"),
    ({**KUBERNETES, "namespace": "a/b"}, "namespace"),
]


@pytest.mark.parametrize(("gateway", "said"), LACKING)
def test_what_a_driver_needs_and_does_not_know_is_told(gateway: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(said)):
        GatewaySettings.model_validate(gateway)


UNPROVEN = {"litellm": (LITELLM, "a", "b"), "kubernetes": (KUBERNETES, "a", "b")}
UNPROVEN |= {"apisix": (APISIX, "a:1", "b:1"), "kong": (KONG, "a:1", "b:1")}


@pytest.mark.parametrize(("gateway", "first", "second"), UNPROVEN.values(), ids=UNPROVEN)
def test_check_config_warns_of_a_driver_that_was_never_proven(
    gateway: dict[str, Any], first: str, second: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-config", str(written(tmp_path, gateway, first, second))]) == 0
    told = capsys.readouterr().out

    name = gateway["driver"]
    assert f"gateway: driver {name}: reads back; not proven: rehearse it before you rely on it" in told
    assert f"warning: gateway.driver: {name} is not proven against the real program" in told


@pytest.mark.parametrize(("gateway", "names"), [(HAPROXY, ("a", "b")), ({"driver": "dry_run"}, (None, None))])
def test_check_config_does_not_warn_of_others(
    gateway: dict[str, Any], names: tuple[str | None, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-config", str(written(tmp_path, gateway, *names, mode="dry_run"))]) == 0
    assert "is not proven against the real program" not in capsys.readouterr().out
