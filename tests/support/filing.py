"""A file driver in a folder of its own: a small template, and commands that are real programs of a few lines."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quantwatch.act.file import Commands, FileDriver
from quantwatch.act.place import Place
from quantwatch.act.template import Node, Template
from quantwatch.flow.decision import Action, Order
from support.gateway import order

TEMPLATE = """\
{% for target in targets %}
{{ target.gateway_name }}{% if target.isolated %} down{% endif %};
{% endfor %}
"""
COUNTED = "echo >> reloads"
REFUSES_BAD = "! grep -q bad upstream.conf || { echo 'the word bad stands there' >&2; exit 3; }"


def node(name: str, pool: str = "chat", *, acts: bool = True) -> Node:
    """A target called `gw-NAME` at the gateway."""
    return Node(name, pool, f"gw-{name}", f"http://{name}:8000", acts=acts)


@dataclass(slots=True)
class Filing:
    """What the driver works on. validate, reload: what a shell runs."""

    folder: Path
    nodes: list[Node] = field(default_factory=lambda: [node("int4-a"), node("int4-b")])
    template: str = TEMPLATE
    validate: str = REFUSES_BAD
    reload: str = COUNTED
    seconds: float = 20.0

    @property
    def file(self) -> Path:
        """What is written."""
        return self.folder / "upstream.conf"

    @property
    def record(self) -> Path:
        """The driver's own record."""
        return self.folder / ".upstream.conf.quantwatch"

    @property
    def reloads(self) -> int:
        """How often the gateway was told."""
        counted = self.folder / "reloads"
        return len(counted.read_text()) if counted.exists() else 0

    def begun(self) -> "Filing":
        """With the file as it is before anything happens."""
        self.file.write_text(self.text())
        return self

    def text(self, *isolated: str) -> str:
        """The file while these are isolated."""
        return Template(self.template, self.nodes).text(isolated)

    def driver(self) -> FileDriver:
        """A driver as a new life makes it."""
        commands = Commands(shell(self.validate), shell(self.reload), self.folder, self.seconds)
        return FileDriver(Place(self.file), Template(self.template, self.nodes), commands)


def shell(line: str) -> Sequence[str]:
    """A command of the configuration that runs a line."""
    return ["sh", "-c", line] if line else []


def isolate(name: str = "int4-a") -> Order:
    """An order to take a target out."""
    return order(target=name, node=f"gw-{name}", driver="file")


def release(name: str = "int4-a") -> Order:
    """An order to bring it back."""
    return order(Action.RELEASE, target=name, node=f"gw-{name}", driver="file")
