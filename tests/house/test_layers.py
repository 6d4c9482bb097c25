"""Imports point down, rooms on one floor never meet, and each foreign library has one owner."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "quantwatch"
FILES = sorted(SRC.rglob("*.py"))
EACH_FILE = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))

FLOOR = {
    "errors": 0,
    "clock": 0,
    "log": 0,
    "trace": 0,
    "flow": 0,
    "vllm_plugin": 0,
    "config": 1,
    "net": 2,
    "prompts": 3,
    "probe": 3,
    "measure": 3,
    "judge": 3,
    "act": 3,
    "record": 3,
    "expose": 3,
    "flows": 4,
    "wiring": 5,
    "pages": 5,
    "daemon": 6,
    "toolkit": 7,
    "lab": 8,
    "demo": 8,
    "cli": 9,
    "__main__": 10,
}
"""The floors of docs/architecture.md; change them there and here together."""

PURE = {"measure", "judge"}
"""Rooms on floor 3 that know floor 0 alone."""

OFFLINE = {"toolkit", "lab"}
"""Rooms that play a node, or work on its model: they know nothing of watching, acting and recording."""

WATCHING = {"act", "record", "expose", "flows", "wiring", "pages", "daemon"}

OWNERS = {
    "apscheduler": ("config/schedule.py", "daemon/"),
    "httpx": ("net.py", "wiring/", "daemon/build.py", "demo/"),
    "jinja2": ("act/template.py", "pages/"),
    "jsonschema": ("measure/answer.py",),
    "matplotlib": ("toolkit/", "cli/plots.py"),
    "msgspec": ("probe/wire.py",),
    "opentelemetry": ("expose/traces.py",),
    "platformdirs": ("wiring/__init__.py", "cli/serve.py"),
    "prometheus_client": ("probe/node_metrics.py", "expose/", "lab/", "vllm_plugin/"),
    "pydantic": ("config/",),
    "pydantic_core": ("config/",),
    "referencing": ("measure/answer.py",),
    "requests": ("expose/traces.py",),
    "rich": ("cli/", "demo/"),
    "safetensors": ("toolkit/",),
    "sqlalchemy": ("record/",),
    "stamina": ("net.py",),
    "standardwebhooks": ("act/",),
    "starlette": ("expose/", "pages/", "daemon/listeners.py", "daemon/entrance.py", "lab/", "demo/"),
    "structlog": ("log.py",),
    "torch": ("measure/", "toolkit/", "lab/", "vllm_plugin/"),
    "transformers": ("toolkit/", "lab/"),
    "typer": ("cli/",),
    "uvicorn": ("daemon/", "lab/", "demo/"),
    "yaml": ("config/", "demo/plan.py"),
}
"""Who may import a library: files, or folders with a slash."""

DISTRIBUTIONS = {"pyyaml": "yaml", "prometheus-client": "prometheus_client"}
"""Packages that are imported under another name."""


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Dotted names of everything that a file imports, wherever in the file: also in functions and TYPE_CHECKING.

    A file is read once: many tests ask.
    """
    return tuple(names_imported(path.read_text(encoding="utf-8")))


def names_imported(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from (f"{module}.{alias.name}" for alias in node.names)


def room_of(path: Path, src: Path) -> str:
    return path.relative_to(src).parts[0].removesuffix(".py")


def rooms_imported(path: Path) -> set[str]:
    """Rooms of ours that a file imports; a bare name of the package itself, such as its version, is no room."""
    parts = [name.split(".") for name in imported(path)]
    found = {part[1] for part in parts if part[0] == "quantwatch" and len(part) > 1}
    return {room for room in found if room in FLOOR or not room.startswith("__")}


def may_import(room: str, other: str) -> bool:
    if room == other:
        return True
    if other not in FLOOR or room not in FLOOR:
        return False
    if room in PURE:
        return FLOOR[other] == 0
    if room in OFFLINE and other in WATCHING:
        return False
    return FLOOR[other] < FLOOR[room]


def faults(path: Path, src: Path) -> list[str]:
    """Imports of a file that point up, sideways, nowhere, or are relative."""
    room = room_of(path, src)
    wrong = [other for other in sorted(rooms_imported(path)) if not may_import(room, other)]
    return wrong + [name for name in imported(path) if name.startswith(".")]


def foreign(path: Path) -> set[str]:
    """Libraries that a file imports which are neither ours nor Python's."""
    names = {name.split(".")[0] for name in imported(path) if not name.startswith(".")}
    return names - {"quantwatch"} - sys.stdlib_module_names


def may_own(library: str, place: str) -> bool:
    return any(place == owner or (owner.endswith("/") and place.startswith(owner)) for owner in OWNERS.get(library, ()))


@EACH_FILE
def test_imports_point_down(path: Path) -> None:
    assert faults(path, SRC) == []


@EACH_FILE
def test_every_file_has_its_floor(path: Path) -> None:
    assert room_of(path, SRC) in {*FLOOR, "__init__"}


@EACH_FILE
def test_a_library_is_imported_by_its_owner_only(path: Path) -> None:
    place = path.relative_to(SRC).as_posix()
    assert [library for library in sorted(foreign(path)) if not may_own(library, place)] == []


def test_every_dependency_has_its_owner() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [dependency.split(">")[0] for dependency in project["dependencies"]]
    assert [name for name in names if DISTRIBUTIONS.get(name, name) not in OWNERS] == []


@pytest.mark.parametrize("library", OWNERS)
def test_every_library_with_an_owner_is_used(library: str) -> None:
    assert any(library in foreign(path) for path in FILES)


def test_the_house_is_not_empty() -> None:
    assert {"flow", "config", "net", "prompts", "probe", "measure", "judge", "record", "flows", "wiring", "cli"} <= {
        room_of(path, SRC) for path in FILES
    }


def test_the_root_of_the_house_imports_nothing() -> None:
    assert imported(SRC / "__init__.py") == ()


ALLOWED = [
    ("flows/cycle.py", "from quantwatch.judge.threshold import findings"),
    ("judge/threshold.py", "from quantwatch.flow.verdict import Limit"),
    ("judge/threshold.py", "import quantwatch.errors"),
    ("judge/threshold.py", "from quantwatch.judge.blame import hopeless"),
    ("prompts/load.py", "from quantwatch.config import golden"),
    ("cli/main.py", "from quantwatch import __version__"),
    ("wiring/__init__.py", "import quantwatch.net, quantwatch.flows.compare"),
    ("flow/verdict.py", "import math"),
    ("lab/engine.py", "from quantwatch.toolkit.prepare import prepare"),
    ("demo/story.py", "from quantwatch.wiring import comparison"),
]
REFUSED = [
    ("lab/engine.py", "from quantwatch.flows.compare import Comparison"),
    ("toolkit/outliers.py", "from quantwatch.lab.engine import Engine"),
    ("demo/story.py", "from quantwatch.lab.serve import serve"),
    ("judge/threshold.py", "from quantwatch.config.schema import Settings"),
    ("measure/kl.py", "from quantwatch.net import Link"),
    ("prompts/load.py", "from quantwatch.flows.compare import Comparison"),
    ("prompts/load.py", "from quantwatch import flows"),
    ("prompts/load.py", "import quantwatch.flows.compare as compare"),
    ("prompts/load.py", "import json, quantwatch.cli.main"),
    ("prompts/load.py", "from quantwatch.probe.rows import Columns"),
    ("probe/vllm.py", "import quantwatch.measure.kl"),
    ("flow/verdict.py", "from quantwatch.errors import ProbeError"),
    ("errors.py", "from quantwatch.flow.verdict import Quality"),
    ("config/load.py", "from quantwatch.prompts.load import load_set"),
    ("net.py", "from quantwatch.wiring import budget"),
    ("flows/cycle.py", "from quantwatch import wiring"),
    ("daemon.py", "from quantwatch.cli import main"),
    ("judge/threshold.py", "from quantwatch.attic import x"),
    ("attic.py", "from quantwatch.flow.verdict import Limit"),
    ("judge/threshold.py", "from . import blame"),
    ("judge/threshold.py", "from ..config import load"),
    ("judge/threshold.py", "def f():\n    from quantwatch.config import load"),
    ("judge/threshold.py", "if TYPE_CHECKING:\n    import quantwatch.config.load"),
    ("judge/threshold.py", "try:\n    import quantwatch.probe\nexcept ImportError:\n    pass"),
    ("judge/threshold.py", "class A:\n    async def f(self):\n        import quantwatch.probe.vllm"),
]


def small_house(place: str, text: str, folder: Path) -> Path:
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(("place", "text"), ALLOWED)
def test_an_import_that_points_down_is_allowed(place: str, text: str, tmp_path: Path) -> None:
    assert faults(small_house(place, text, tmp_path), tmp_path) == []


@pytest.mark.parametrize(("place", "text"), REFUSED)
def test_an_import_that_points_elsewhere_is_caught(place: str, text: str, tmp_path: Path) -> None:
    assert faults(small_house(place, text, tmp_path), tmp_path) != []


@pytest.mark.parametrize(
    "text", ["import httpx", "from httpx import Client", "def f():\n    import httpx._models as m"]
)
def test_a_foreign_library_is_caught(text: str, tmp_path: Path) -> None:
    assert foreign(small_house("probe/vllm.py", text, tmp_path)) == {"httpx"}


PLACES = [
    ("httpx", "net.py", True),
    ("httpx", "probe/net.py", False),
    ("pydantic", "config/schema.py", True),
    ("pydantic", "config.py", False),
    ("torch", "wiring/__init__.py", False),
    ("httpx", "flows/wiring.py", False),
    ("numpy", "measure/kl.py", False),
]


@pytest.mark.parametrize(("library", "place", "allowed"), PLACES)
def test_a_library_has_the_owners_of_the_table(library: str, place: str, *, allowed: bool) -> None:
    assert may_own(library, place) is allowed
