"""The way of the counts from the engine's processes to the page of the server's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from quantwatch.probe.node_metrics import read_load
from quantwatch.vllm_plugin.counts import Counts
from quantwatch.vllm_plugin.names import FOLDER, SWITCH
from quantwatch.vllm_plugin.outlet import ClientOutlet, FileOutlet, outlet, read, remove
from quantwatch.vllm_plugin.start import start

OTHER_PROCESS = """\
import sys
from pathlib import Path
from quantwatch.vllm_plugin.outlet import outlet
from quantwatch.vllm_plugin.counts import Counts
outlet(sys.argv[1]).put(Counts(10, 3, 2, 17.5))
"""


def page(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return [one for one in lines if not one.startswith("#")]


def other_process(engine: str, environment: dict[str, str]) -> None:
    subprocess.run([sys.executable, "-c", OTHER_PROCESS, engine], env={**os.environ, **environment}, check=True)  # noqa: S603


def test_what_another_process_counts_is_on_the_page() -> None:
    environment: dict[str, str] = {}
    registry = CollectorRegistry()
    start(environment, registry)
    try:
        assert page(registry) == []
        other_process("0", environment)
        assert page(registry) == [
            'quantwatch_vllm_logit_rows_total{engine="0"} 10.0',
            'quantwatch_vllm_broken_logit_rows_total{engine="0"} 3.0',
            'quantwatch_vllm_runaway_logit_rows_total{engine="0"} 2.0',
            'quantwatch_vllm_logit_magnitude{engine="0"} 17.5',
        ]
        other_process("1", environment)
        load = read_load(generate_latest(registry) + b"process_start_time_seconds 5.0\n")
        assert load is not None
        assert load.counted == {"broken_rows": 6.0, "runaway_rows": 4.0}
    finally:
        remove(Path(environment[FOLDER]), os.getpid())


def test_the_folder_is_the_users_alone_and_goes_with_its_owner_only() -> None:
    environment: dict[str, str] = {}
    start(environment, CollectorRegistry())
    folder = Path(environment[FOLDER])
    assert folder.stat().st_mode & 0o077 == 0
    remove(folder, os.getpid() + 1)
    assert folder.is_dir()
    remove(folder, os.getpid())
    assert not folder.exists()


def test_a_child_uses_the_folder_of_its_parent(tmp_path: Path) -> None:
    environment = {FOLDER: str(tmp_path)}
    start(environment, CollectorRegistry())
    assert environment == {FOLDER: str(tmp_path)}


@pytest.mark.parametrize("environment", [{SWITCH: "off"}, {"PROMETHEUS_MULTIPROC_DIR": "somewhere"}])
def test_nothing_is_made_where_it_is_not_wanted(environment: dict[str, str]) -> None:
    registry, before = CollectorRegistry(), dict(environment)
    start(environment, registry)
    assert environment == before
    assert page(registry) == []


def test_a_folder_that_cannot_be_made_does_not_keep_the_server_from_starting(tmp_path: Path) -> None:
    class Full(CollectorRegistry):
        def register(self, collector: object) -> None:  # noqa: ARG002
            raise OSError(28, "No space left on device", str(tmp_path))

    start({FOLDER: str(tmp_path)}, Full())


def test_later_counts_replace_earlier_ones(tmp_path: Path) -> None:
    way = FileOutlet(tmp_path, "0")
    assert read(tmp_path) == {"0": Counts()}
    way.put(Counts(1, 0, 0, 5.0))
    way.put(Counts(2, 1, 0, 4.0))
    assert read(tmp_path) == {"0": Counts(2, 1, 0, 4.0)}


def test_processes_of_one_engine_are_added(tmp_path: Path) -> None:
    FileOutlet(tmp_path, "0").put(Counts(1, 1, 0, 5.0))
    other_process("0", {FOLDER: str(tmp_path)})
    assert read(tmp_path) == {"0": Counts(11, 4, 2, 17.5)}


def test_files_that_are_no_counts_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "0.1.counts").write_bytes(b"short")
    (tmp_path / "1.1.counts").mkdir()
    FileOutlet(tmp_path, "2").put(Counts(1, 0, 0, 1.0))
    assert list(read(tmp_path)) == ["2"]


def test_a_folder_that_is_gone_leaves_the_page_without_counts(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    start({FOLDER: str(tmp_path / "gone")}, registry)
    assert page(registry) == []


def test_nobody_would_find_the_counts_without_a_folder() -> None:
    assert outlet("0", {}) is None


def test_the_clients_own_counters_grow_by_what_is_new() -> None:
    registry = CollectorRegistry()
    way = ClientOutlet("3", registry)
    way.put(Counts(4, 1, 0, 9.0))
    way.put(Counts(6, 1, 2, 8.0))
    found = [one for one in page(registry) if "_created" not in one]
    assert found == [
        'quantwatch_vllm_logit_rows_total{engine="3"} 6.0',
        'quantwatch_vllm_broken_logit_rows_total{engine="3"} 1.0',
        'quantwatch_vllm_runaway_logit_rows_total{engine="3"} 2.0',
        'quantwatch_vllm_logit_magnitude{engine="3"} 8.0',
    ]


def test_where_the_client_runs_in_several_processes_its_own_files_are_used(tmp_path: Path) -> None:
    environment = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    other_process("0", environment)
    program = (
        "from prometheus_client import CollectorRegistry, generate_latest, multiprocess as m\n"
        "r = CollectorRegistry(); m.MultiProcessCollector(r); print(generate_latest(r).decode())"
    )
    seen = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], env={**os.environ, **environment}, check=True, capture_output=True, text=True
    )
    assert 'quantwatch_vllm_broken_logit_rows_total{engine="0"} 3.0' in seen.stdout
