"""The gateway's file, out of a Jinja2 template and the targets with who of them is isolated."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from quantwatch.config.schema import Settings
from quantwatch.errors import InputError
from quantwatch.flow.decision import PoolMode

FAULTS = (TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What an expression of a template can raise."""


@dataclass(frozen=True, slots=True)
class Node:
    """A target as a template sees it. address: HOST:PORT of its URL. acts: whether it may ever be isolated."""

    name: str
    pool: str
    gateway_name: str
    url: str
    acts: bool = True
    isolated: bool = False

    @property
    def address(self) -> str:
        """Host and port of its URL, the port also where the URL leaves it out."""
        parts = urlsplit(self.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = parts.hostname or ""
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Template:
    """A template for these nodes. Raises InputError when it is none, or does not tell an isolated node from others."""

    def __init__(self, source: str, nodes: Sequence[Node]) -> None:
        # what is written is no web page: nothing is to be escaped
        environment = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
        self._nodes = tuple(nodes)
        try:
            self._template = environment.from_string(source)
        except TemplateError as exc:
            raise InputError(f"gateway.template is no Jinja2 template: {exc}") from exc
        everyone = self.text(())
        blind = [one.name for one in nodes if one.acts and self.text({one.name}) == everyone]
        if blind:
            raise InputError(
                f"gateway.template gives the same file whether or not {blind[0]} is isolated; let it look at "
                "target.isolated of every target in a pool that may act"
            )

    def text(self, isolated: Collection[str]) -> str:
        """The file while these targets are isolated. Raises InputError for a template that breaks off."""
        targets = [replace(one, isolated=one.name in isolated) for one in self._nodes]
        try:
            return self._template.render(targets=targets, isolated=sorted(isolated))
        except FAULTS as exc:
            raise InputError(f"gateway.template cannot be filled in: {exc}") from exc


def nodes_of(settings: Settings) -> Iterable[Node]:
    """The targets of a configuration."""
    for one in settings.targets:
        acts = settings.pools[one.pool].mode is not PoolMode.OBSERVE
        yield Node(one.name, one.pool, one.gateway_name or one.url, one.url, acts=acts)


def template_of(settings: Settings, *, folder: Path) -> Template:
    """The template of a configuration with driver file. folder: where the configuration is. Raises InputError."""
    path = folder / (settings.gateway.template or "")
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise InputError(f"gateway.template: {path} cannot be read: {exc}") from exc
    return Template(source, list(nodes_of(settings)))
