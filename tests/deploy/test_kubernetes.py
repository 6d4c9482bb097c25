"""The Kubernetes manifests: valid, locked down, and never a danger to a good node."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from quantwatch.act.kubernetes import KubernetesDriver, Place
from quantwatch.config.load import load_settings
from quantwatch.config.schema import Settings
from quantwatch.config.secrets import secrets_of
from quantwatch.flow.decision import Action, PoolMode
from quantwatch.prompts.load import shipped_sets
from support.admin_fakes import LABEL, FakeKubernetes
from support.gateway import order

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "kubernetes"
FILES = ["sidecar.yaml", "standalone.yaml"]
OPERATOR = "prometheus-operator.yaml"
RBAC = "driver-rbac.yaml"
EACH = pytest.mark.parametrize("name", FILES)
SIDECARS_SINCE = "1.29"
NEWEST_CHECKED = "1.35"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


def only(name: str, kind: str) -> dict[str, Any]:
    (found,) = [one for one in documents(name) if one["kind"] == kind]
    return found


def pod(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = only(name, "Deployment")["spec"]["template"]["spec"]
    return spec


def watchdog(name: str) -> dict[str, Any]:
    containers = [*pod(name).get("initContainers", []), *pod(name)["containers"]]
    (found,) = [one for one in containers if one["name"] == "quantwatch"]
    return dict(found)


def settings(name: str, folder: Path) -> Settings:
    (file,) = only(name, "ConfigMap")["data"].items()
    path = folder / file[0]
    path.write_text(file[1], encoding="utf-8")
    return load_settings(path, shipped=shipped_sets())


def mounted(name: str, volume_kind: str) -> str:
    """Where the volume of this kind is mounted in the watchdog."""
    volumes = {one["name"] for one in pod(name)["volumes"] if volume_kind in one}
    (path,) = [one["mountPath"] for one in watchdog(name)["volumeMounts"] if one["name"] in volumes]
    return str(path)


@pytest.mark.parametrize("name", [*FILES, RBAC])
@pytest.mark.parametrize("version", [SIDECARS_SINCE, NEWEST_CHECKED])
def test_a_manifest_satisfies_kubernetes_own_schema(name: str, version: str) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    for document in documents(name):
        kubernetes_validate.validate(document, version, strict=True)


def test_the_folder_holds_the_files_that_are_tested() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted([*FILES, OPERATOR, RBAC])


def test_the_operators_rules_are_those_of_the_file() -> None:
    groups = yaml.safe_load((FOLDER.parent / "prometheus" / "rules.yaml").read_text(encoding="utf-8"))["groups"]
    assert only(OPERATOR, "PrometheusRule")["spec"] == {"groups": groups}


def test_the_operator_scrapes_the_port_that_the_manifests_name() -> None:
    (endpoint,) = only(OPERATOR, "PodMonitor")["spec"]["podMetricsEndpoints"]
    ports = [port["name"] for name in FILES for port in watchdog(name)["ports"]]
    assert endpoint["port"] in ports
    assert endpoint["honorLabels"] is False


@EACH
def test_the_embedded_configuration_loads(name: str, tmp_path: Path) -> None:
    assert settings(name, tmp_path).targets


@EACH
def test_the_daemon_is_given_the_file_of_the_config_map(name: str) -> None:
    (key,) = only(name, "ConfigMap")["data"]
    assert watchdog(name)["args"] == ["run", "--config", f"{mounted(name, 'configMap')}/{key}"]


@EACH
def test_every_secret_is_a_mounted_file_that_the_secret_holds(name: str, tmp_path: Path) -> None:
    held = {f"file:{mounted(name, 'secret')}/{key}" for key in only(name, "Secret")["stringData"]}
    assert {str(secret) for _, secret in secrets_of(settings(name, tmp_path))} == held


@EACH
def test_an_example_secret_holds_no_value(name: str) -> None:
    assert set(only(name, "Secret")["stringData"].values()) == {"replace-me"}


@EACH
def test_the_volumes_are_those_of_the_file(name: str) -> None:
    volumes = {key: value for one in pod(name)["volumes"] for key, value in one.items() if key != "name"}
    assert volumes["configMap"]["name"] == only(name, "ConfigMap")["metadata"]["name"]
    assert volumes["secret"]["secretName"] == only(name, "Secret")["metadata"]["name"]


@EACH
def test_the_container_is_locked_down(name: str) -> None:
    assert watchdog(name)["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert pod(name)["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & set(pod(name))


@EACH
def test_only_the_state_is_writable(name: str, tmp_path: Path) -> None:
    writable = [one["mountPath"] for one in watchdog(name)["volumeMounts"] if not one.get("readOnly")]
    assert writable == [str(Path(settings(name, tmp_path).store.path).parent)]
    assert not any("subPath" in one for one in watchdog(name)["volumeMounts"])


@EACH
def test_the_secret_can_be_read_by_the_user_and_written_by_nobody(name: str) -> None:
    (mode,) = [one["secret"]["defaultMode"] for one in pod(name)["volumes"] if "secret" in one]
    by_group = pod(name).get("securityContext", {}).get("fsGroup") == 10001
    assert mode & (0o040 if by_group else 0o004)
    assert not mode & 0o222


@EACH
def test_liveness_is_slow_to_anger(name: str) -> None:
    probe = watchdog(name)["livenessProbe"]
    assert probe["httpGet"]["path"] == "/-/healthy"
    assert probe["failureThreshold"] * probe["periodSeconds"] >= 120
    assert probe["timeoutSeconds"] < probe["periodSeconds"]


@EACH
def test_memory_is_limited_and_no_gpu_is_taken(name: str) -> None:
    resources = watchdog(name)["resources"]
    assert resources["limits"] == {"cpu": "1", "memory": "512Mi"}
    assert set(resources["requests"]) == {"cpu", "memory"}


@EACH
def test_the_pod_waits_longer_than_the_drain(name: str, tmp_path: Path) -> None:
    assert pod(name)["terminationGracePeriodSeconds"] > settings(name, tmp_path).server.drain + 10


@EACH
def test_the_port_is_the_one_listened_on(name: str, tmp_path: Path) -> None:
    (port,) = watchdog(name)["ports"]
    assert settings(name, tmp_path).server.listen == f"0.0.0.0:{port['containerPort']}"
    assert watchdog(name)["livenessProbe"]["httpGet"]["port"] == port["name"]


@EACH
def test_the_admin_side_stays_on_the_loopback_and_has_a_token(name: str, tmp_path: Path) -> None:
    server = settings(name, tmp_path).server
    assert server.admin_listen.startswith("127.0.0.1:")
    assert server.admin_token is not None


@EACH
def test_no_example_acts_before_someone_says_so(name: str, tmp_path: Path) -> None:
    modes = {pool.mode for pool in settings(name, tmp_path).pools.values()}
    assert modes <= {PoolMode.OBSERVE, PoolMode.DRY_RUN}


def test_the_sidecar_is_a_native_one_that_cannot_unready_its_node() -> None:
    sidecar = watchdog("sidecar.yaml")
    assert sidecar in pod("sidecar.yaml")["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert not {"readinessProbe", "startupProbe", "lifecycle"} & set(sidecar)


def test_the_sidecar_asks_the_node_of_its_own_pod_and_only_observes(tmp_path: Path) -> None:
    loaded = settings("sidecar.yaml", tmp_path)
    (node,) = pod("sidecar.yaml")["containers"]
    assert [target.url for target in loaded.targets] == [f"http://127.0.0.1:{node['ports'][0]['containerPort']}"]
    assert {pool.mode for pool in loaded.pools.values()} == {PoolMode.OBSERVE}


def test_the_sidecar_leaves_the_nodes_own_settings_alone() -> None:
    (node,) = pod("sidecar.yaml")["containers"]
    assert "securityContext" not in pod("sidecar.yaml")
    assert not {"volumeMounts", "securityContext"} & set(node)


def test_one_process_owns_the_store_of_the_stand_alone_form() -> None:
    spec = only("standalone.yaml", "Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    claim = only("standalone.yaml", "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    claims = [one.get("persistentVolumeClaim") for one in pod("standalone.yaml")["volumes"]]
    assert {"claimName": claim["metadata"]["name"]} in claims


def test_service_and_policy_select_the_pod() -> None:
    labels = only("standalone.yaml", "Deployment")["spec"]["template"]["metadata"]["labels"]
    service, policy = only("standalone.yaml", "Service"), only("standalone.yaml", "NetworkPolicy")
    assert service["spec"]["selector"] == policy["spec"]["podSelector"]["matchLabels"] == labels
    (port,) = watchdog("standalone.yaml")["ports"]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    assert [one["port"] for rule in policy["spec"]["ingress"] for one in rule["ports"]] == [port["containerPort"]]


def test_the_policy_lets_out_to_every_server_of_the_configuration(tmp_path: Path) -> None:
    loaded = settings("standalone.yaml", tmp_path)
    gateway = [loaded.gateway.url, loaded.gateway.release_url, loaded.gateway.state_url]
    parts = [urlsplit(url or "") for url in [loaded.baseline.url, *(one.url for one in loaded.targets), *gateway]]
    needed = {part.port or {"http": 80, "https": 443}[part.scheme] for part in parts}
    rules = only("standalone.yaml", "NetworkPolicy")["spec"]["egress"]
    assert {one["port"] for rule in rules for one in rule["ports"]} == needed | {53}


def test_a_service_account_is_bound_to_the_role_and_gives_its_token_to_nobody_unasked() -> None:
    account, role, binding = (only(RBAC, kind) for kind in ("ServiceAccount", "Role", "RoleBinding"))

    assert account["automountServiceAccountToken"] is False
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [one["name"] for one in binding["subjects"]] == [account["metadata"]["name"]]


async def test_the_driver_may_do_what_it_does_and_nothing_else() -> None:
    fake = FakeKubernetes()
    async with fake.link() as link:
        driver = KubernetesDriver(fake.api(link, {}), Place("llm", "vllm", LABEL))
        for node in ("vllm-0", "pod=vllm-0"):
            for action in Action:
                await driver.call(order(action, node=node))
                await driver.observe(order(action, node=node))
    asked = [("list" if url.params else "get", url.path) for url in fake.looks]
    asked += [(method.lower(), path) for method, path, _ in fake.changes]

    allowed = {
        (verb, group, resource)
        for rule in only(RBAC, "Role")["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert {(verb, *resource_of(path)) for verb, path in asked} == allowed


def resource_of(path: str) -> tuple[str, str]:
    """The API group and resource of a path under a namespace."""
    home, _, rest = path.partition("/namespaces/llm/")
    return ("" if home == "/api/v1" else home.split("/")[2]), rest.split("/")[0]
