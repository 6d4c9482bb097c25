"""The coat that vLLM puts on: both interfaces, no change of logits, and nothing that reaches the engine."""

import logging
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from quantwatch.vllm_plugin.counts import Counts
from quantwatch.vllm_plugin.names import FOLDER, SWITCH
from quantwatch.vllm_plugin.outlet import read
from quantwatch.vllm_plugin.processor import LogitsWatch, Watcher, bases, watcher

ROOT = Path(__file__).resolve().parents[2]
ENGINE = SimpleNamespace(parallel_config=SimpleNamespace(data_parallel_rank=2))
NAN_ROW = torch.tensor([[torch.nan, 1.0], [2.0, 3.0]])


class Kept:
    """An outlet that remembers; it fails where it is told to."""

    def __init__(self, *, fails: bool = False) -> None:
        self.seen: list[Counts] = []
        self.fails = fails

    def put(self, counts: Counts) -> None:
        if self.fails:
            raise OSError(5, "Input/output error")
        self.seen.append(counts)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("more", [("cpu", False), (object(),)], ids=["V1", "V2"])
def test_both_interfaces_are_met(folder: Path, more: tuple[object, ...]) -> None:
    made = LogitsWatch(ENGINE, *more)
    made.update_state(None)
    assert made.add_request(0, None) is True
    assert made.is_argmax_invariant() is False
    assert (made.apply(NAN_ROW) if len(more) == 2 else made.apply(NAN_ROW, object())) is NAN_ROW
    assert read(folder) == {"2": Counts(2, 1, 0, 3.0)}


def test_every_request_is_welcome() -> None:
    LogitsWatch.validate_params(None)


def test_switched_off_it_counts_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")
    assert LogitsWatch(ENGINE).apply(NAN_ROW) is NAN_ROW
    assert read(folder) == {}


def test_without_a_way_it_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    with caplog.at_level(logging.WARNING):
        assert LogitsWatch(ENGINE).apply(NAN_ROW) is NAN_ROW
    assert "VLLM_PLUGINS" in caplog.text


def test_a_configuration_of_another_shape_is_the_first_engine(folder: Path) -> None:
    LogitsWatch(object()).apply(NAN_ROW)
    assert list(read(folder)) == ["0"]


def test_a_folder_that_is_none_does_not_keep_the_engine_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "none"))
    assert LogitsWatch(ENGINE).apply(NAN_ROW) is NAN_ROW
    assert "counts no rows" in caplog.text


def test_the_first_trouble_ends_the_counting_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    way = Kept(fails=True)
    watcher = Watcher(way)
    watcher.look(NAN_ROW)
    assert caplog.text.count("the server goes on") == 1
    way.fails = False
    watcher.look(NAN_ROW)
    assert way.seen == []


def test_logits_that_are_none_do_not_reach_the_engine_as_a_fault(caplog: pytest.LogCaptureFixture) -> None:
    Watcher(Kept()).look(None)  # type: ignore[arg-type]
    assert "the server goes on" in caplog.text


@pytest.mark.parametrize(("rank", "rows"), [(0, 2), (1, None)])
def test_of_tensor_parallel_ranks_only_the_first_counts(folder: Path, rank: int, rows: int | None) -> None:
    state = SimpleNamespace(get_tensor_model_parallel_rank=lambda: rank)
    watcher(ENGINE, {"vllm.distributed.parallel_state": state}).look(NAN_ROW)
    assert [one.rows for one in read(folder).values()] == ([] if rows is None else [rows])


def test_without_ranks_the_only_process_counts(folder: Path) -> None:
    def rank() -> int:
        raise AssertionError("tensor model parallel group is not initialized")

    watcher(ENGINE, {"vllm.distributed.parallel_state": SimpleNamespace(get_tensor_model_parallel_rank=rank)}).look(
        NAN_ROW
    )
    assert read(folder)["2"].broken == 1


def test_an_interface_that_is_missing_is_left_out() -> None:
    assert bases(("no.such.module", "logging")) == ()


def test_the_entry_points_name_what_is_there() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    for group in ("vllm.general_plugins", "vllm.logits_processors"):
        module, _, name = points[group]["quantwatch"].partition(":")
        assert callable(getattr(import_module(module), name))


def test_the_plugin_brings_nothing_of_quantwatch_into_the_server() -> None:
    program = (
        "import sys; import quantwatch.vllm_plugin.start\n"
        "print('torch' in sys.modules)\n"
        "import torch; known = set(sys.modules)\n"
        "import quantwatch.vllm_plugin.processor\n"
        "print(sorted({n.split('.')[0] for n in set(sys.modules) - known} - set(sys.stdlib_module_names)))\n"
        "print(sorted(n for n in sys.modules if n.startswith('quantwatch.') and 'vllm_plugin' not in n))"
    )
    seen = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)  # noqa: S603
    assert seen.stdout.splitlines() == ["False", "['quantwatch']", "[]"]
