"""The systemd unit: accepted by systemd, locked down, and in step with the daemon's own limits."""

import shutil
import subprocess
from pathlib import Path

import pytest

from quantwatch.cli.exit_codes import USAGE
from quantwatch.config.schema import ListenSettings, StoreSettings
from quantwatch.wiring import cache_folder

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "systemd"
UNIT = FOLDER / "quantwatch.service"
WORST_EXPOSURE = 20  # systemd's tenths; 15 when this was written, 96 without any setting


def entries() -> dict[str, str]:
    """KEY=value of every section. No key stands twice, and no line is continued."""
    lines = [line for line in UNIT.read_text(encoding="utf-8").splitlines() if line and line[0] not in "#["]
    found = dict(line.split("=", 1) for line in lines)
    assert len(found) == len(lines)
    return found


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run(  # noqa: S603, a checker
        [program, *arguments], capture_output=True, text=True, check=False
    )


def test_systemd_finds_no_fault(tmp_path: Path) -> None:
    # The program is installed nowhere here, and verify insists on it; everything else is the shipped text.
    unit = tmp_path / UNIT.name
    start = entries()["ExecStart"].split()[0]
    unit.write_text(UNIT.read_text(encoding="utf-8").replace(start, "/bin/true"), encoding="utf-8")
    done = analyze("verify", "--man=no", unit)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_systemd_finds_little_exposed() -> None:
    done = analyze("security", "--no-pager", "--offline=true", f"--threshold={WORST_EXPOSURE}", UNIT)
    assert done.returncode == 0, done.stdout


def test_the_daemon_tells_systemd_itself() -> None:
    unit = entries()
    assert (unit["Type"], unit["NotifyAccess"], unit["WatchdogSec"]) == ("notify", "main", "60")
    assert unit["ExecReload"].endswith("kill -HUP $MAINPID")
    assert unit["KillSignal"] == "SIGTERM"


def test_stopping_waits_longer_than_the_drain() -> None:
    assert int(entries()["TimeoutStopSec"]) > ListenSettings().drain + 10


def test_a_crash_is_restarted_but_a_wrong_configuration_is_not() -> None:
    assert entries()["Restart"] == "on-failure"
    assert entries()["RestartPreventExitStatus"] == str(USAGE)


def test_the_default_store_lies_in_the_state_directory() -> None:
    assert Path(StoreSettings().path).parent == Path("/var/lib") / entries()["StateDirectory"]


def test_the_answers_of_the_baseline_lie_in_the_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "XDG_CACHE_HOME=%C" in entries()["Environment"].split()
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")  # what %C stands for
    assert cache_folder().parent == Path("/var/cache") / entries()["CacheDirectory"]


@pytest.mark.parametrize(
    ("key", "value"),
    {
        "DynamicUser": "yes",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "PrivateDevices": "yes",
        "CapabilityBoundingSet": "",
        "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
        "MemoryMax": "512M",
    }.items(),
)
def test_the_unit_is_locked_down(key: str, value: str) -> None:
    assert entries()[key] == value


def test_the_example_environment_sets_nothing() -> None:
    lines = (FOLDER / "quantwatch.env").read_text(encoding="utf-8").splitlines()
    assert all(line.startswith("#") for line in lines)
    assert [line for line in lines if "=" in line and not line.endswith("=")] == []
