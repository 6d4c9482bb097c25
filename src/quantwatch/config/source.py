"""YAML text -> plain data that remembers its line numbers and refuses duplicate keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from quantwatch.errors import ConfigError, Problem

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Path_ = tuple[str | int, ...]

MOST_NODES = 200_000

TEXT_TAGS = frozenset({"tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"})


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed file. lines: path of keys and indices -> line of that key, counted from 1."""

    file: str
    data: Any
    lines: Mapping[Path_, int] = field(repr=False)

    def line(self, path: Path_) -> int | None:
        """Line of the nearest known ancestor of a path."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None


def read_yaml(path: Path) -> Source:
    """Read one YAML document. Raises ConfigError: no such file, no YAML, a duplicate key."""
    file = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as exc:
        raise ConfigError([Problem(file, None, "", "no such file")]) from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError([Problem(file, None, "", f"cannot be read: {exc}")]) from exc
    return parse_yaml(text, file)


def parse_yaml(text: str, file: str) -> Source:
    """Parse YAML text; file is what errors call it."""
    loader = Loader(text)
    try:
        node = loader.get_single_node()
        lines: dict[Path_, int] = {(): 1}
        problems: list[Problem] = []
        if node is not None:
            _walk(node, (), _Walk(file, lines, problems))
        data = loader.construct_document(node) if node is not None else None
    except (ValueError, KeyError, AttributeError, OverflowError) as exc:
        raise ConfigError([Problem(file, None, "", f"holds a value that its YAML tag does not allow: {exc}")]) from exc
    except yaml.MarkedYAMLError as exc:
        line = exc.problem_mark.line + 1 if exc.problem_mark else None
        raise ConfigError([Problem(file, line, "", f"no valid YAML: {exc.problem or exc}")]) from exc
    except yaml.YAMLError as exc:
        raise ConfigError([Problem(file, None, "", f"no valid YAML: {exc}")]) from exc
    finally:
        loader.dispose()
    if problems:
        raise ConfigError(problems)
    return Source(file, data, lines)


@dataclass(slots=True)
class _Walk:
    """What a walk through a document gathers. open: the blocks that the walk is inside of."""

    file: str
    lines: dict[Path_, int]
    problems: list[Problem]
    open: list[yaml.Node] = field(default_factory=list)
    steps: int = 0


def _walk(node: yaml.Node, path: Path_, walk: _Walk) -> None:
    walk.steps += 1
    if walk.steps > MOST_NODES:
        raise ConfigError([Problem(walk.file, None, "", f"more than {MOST_NODES} values; aliases multiply them")])
    if any(node is outer for outer in walk.open):
        line = node.start_mark.line + 1
        raise ConfigError([Problem(walk.file, line, dotted(path), "this block contains itself")])
    walk.open.append(node)
    if isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            walk.lines[(*path, i)] = item.start_mark.line + 1
            _walk(item, (*path, i), walk)
    elif isinstance(node, yaml.MappingNode):
        for key_node, value in node.value:
            _walk_key(key_node, value, path, walk)
    walk.open.pop()


def _walk_key(key_node: yaml.Node, value: yaml.Node, path: Path_, walk: _Walk) -> None:
    """Note a key's line; refuse it when it stands twice or is no text, as `on:` and `7:` are not in YAML 1.1."""
    key, line = str(key_node.value), key_node.start_mark.line + 1
    here = (*path, key)
    if here in walk.lines:
        first = f"duplicate key; it stands on line {walk.lines[here]} already"
        walk.problems.append(Problem(walk.file, line, dotted(here), first))
        return
    walk.lines[here] = line
    if key_node.tag not in TEXT_TAGS:
        kind = key_node.tag.rpartition(":")[2]
        walk.problems.append(Problem(walk.file, line, dotted(here), f"YAML reads this key as {kind}; write '{key}'"))
        return
    _walk(value, here, walk)


def dotted(path: Path_) -> str:
    """targets[0].url for ("targets", 0, "url")."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else str(part)
    return out
