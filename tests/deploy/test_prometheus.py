"""The scrape jobs: accepted by promtool, and they keep quantwatch's pods and no others."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
FOLDER = CONFIGS / "prometheus"


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)  # noqa: S603, a checker


def content(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return loaded


def with_targets(*discovered: dict[str, str]) -> dict[str, Any]:
    """The Kubernetes job with targets that discovery would give: Debian's promtool knows no discovery in Kubernetes."""
    data = content("scrape-kubernetes.yaml")
    (job,) = data["scrape_configs"]
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    job["static_configs"] = [{"targets": ["10.0.0.1:9469"], "labels": labels} for labels in discovered]
    return data


def kept(tmp_path: Path, **labels: str) -> dict[str, str]:
    """Labels that a discovered container port is stored with; none if it is not scraped."""
    known = {f"__meta_kubernetes_{key}": value for key, value in labels.items()}
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump(with_targets(known)), encoding="utf-8")
    done = promtool("check", "service-discovery", "--timeout=1s", file, "quantwatch-kubernetes")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout[done.stdout.index("[") :])
    return {key: value for key, value in (found.get("labels") or {}).items() if not key.startswith("__")}


def test_promtool_accepts_the_scrape_file() -> None:
    done = promtool("check", "config", FOLDER / "scrape.yaml")
    assert done.returncode == 0, done.stderr


def test_promtool_accepts_the_job_inside_a_larger_configuration(tmp_path: Path) -> None:
    jobs = content("scrape.yaml")["scrape_configs"]
    larger = {"global": {"scrape_interval": "15s"}, "scrape_configs": [{"job_name": "other"}, *jobs]}
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump(larger), encoding="utf-8")
    done = promtool("check", "config", file)
    assert done.returncode == 0, done.stderr


def test_promtool_accepts_the_kubernetes_job(tmp_path: Path) -> None:
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump(with_targets({})), encoding="utf-8")
    done = promtool("check", "config", file)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["scrape.yaml", "scrape-kubernetes.yaml"])
def test_quantwatch_may_not_name_the_process(name: str) -> None:
    (job,) = content(name)["scrape_configs"]
    assert job["honor_labels"] is False
    assert (job["scrape_interval"], job["scrape_timeout"]) == ("30s", "10s")


def test_a_quantwatch_pod_is_scraped_and_named(tmp_path: Path) -> None:
    labels = kept(
        tmp_path,
        pod_container_port_name="qw-metrics",
        pod_container_init="true",
        pod_phase="Running",
        pod_name="llama-int8-x",
        namespace="inference",
        pod_node_name="gpu-7",
    )
    assert labels == {
        "instance": "10.0.0.1:9469",
        "job": "quantwatch-kubernetes",
        "namespace": "inference",
        "pod": "llama-int8-x",
        "kubernetes_node": "gpu-7",
    }


@pytest.mark.parametrize(
    "labels",
    [
        {"pod_container_port_name": "http", "pod_phase": "Running"},
        {"pod_container_port_name": "qw-metrics", "pod_phase": "Succeeded"},
        {"pod_phase": "Running"},
    ],
    ids=["another port", "ended pod", "no port name"],
)
def test_another_port_is_not_scraped(tmp_path: Path, labels: dict[str, str]) -> None:
    assert kept(tmp_path, **labels) == {}


@pytest.mark.parametrize("name", ["sidecar.yaml", "standalone.yaml"])
def test_the_manifests_name_the_port_that_is_looked_for(name: str) -> None:
    (job,) = content("scrape-kubernetes.yaml")["scrape_configs"]
    assert f"name: {job['relabel_configs'][0]['regex']}\n" in (CONFIGS / "kubernetes" / name).read_text(
        encoding="utf-8"
    )
