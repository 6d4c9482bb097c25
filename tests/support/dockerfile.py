"""A Dockerfile read far enough to check it, and to rehearse its stages where no engine is.

As a script it needs the standard library alone: `python dockerfile.py script FILE STAGE ROOT` prints the stage as
shell, `env` its environment, `health` its health check and `command` its start, one word a line.
"""

import json
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

INSTALLED = re.compile(r"(?<![\w./-])(/src|/wheels|/opt/quantwatch|/var/lib/quantwatch|/etc/quantwatch)(?![\w-])")
"""Folders of the image that a rehearsal moves below a folder of its own."""


@dataclass(frozen=True)
class Instruction:
    """One instruction: its name in capitals, and everything after it on one line."""

    name: str
    value: str


def instructions(text: str) -> list[Instruction]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    pairs = (line.split(None, 1) for line in joined.splitlines() if line.strip())
    return [Instruction(name.upper(), value) for name, value in pairs]


def stages(text: str) -> dict[str, list[Instruction]]:
    """Instructions by stage; what stands before the first one is under "", a stage without a name under "final"."""
    found: dict[str, list[Instruction]] = {"": []}
    here = found[""]
    for one in instructions(text):
        if one.name == "FROM":
            named = re.search(r"\sAS\s+(\S+)$", one.value, re.IGNORECASE)
            here = found.setdefault(named[1] if named else "final", [])
        here.append(one)
    return found


def pairs(stage: list[Instruction], name: str) -> dict[str, str]:
    """The KEY=value pairs of ENV, LABEL or ARG; an ARG without a default is an error here."""
    words = [word for one in stage if one.name == name for word in shlex.split(one.value)]
    return dict(word.split("=", 1) for word in words)


def health_command(stage: list[Instruction]) -> list[str]:
    (health,) = [one.value for one in stage if one.name == "HEALTHCHECK"]
    command: list[str] = json.loads(health.partition("CMD ")[2])
    return command


def start_command(stage: list[Instruction]) -> list[str]:
    """ENTRYPOINT and CMD, which an engine puts together."""
    return [
        word for name in ("ENTRYPOINT", "CMD") for one in stage if one.name == name for word in json.loads(one.value)
    ]


def moved(text: str, root: str) -> str:
    return INSTALLED.sub(lambda match: root + match[1], text)


def script(stage: list[Instruction], root: str) -> list[str]:
    """A stage as shell lines. Arguments given in the environment win, as --build-arg does; the context is $CONTEXT."""
    lines = []
    for one in stage:
        if one.name == "ARG":
            lines += [f": ${{{key}={shlex.quote(value)}}}; export {key}" for key, value in pairs([one], "ARG").items()]
        elif one.name == "WORKDIR":
            lines.append(moved(f"mkdir -p {one.value}; cd {one.value}", root))
        elif one.name == "COPY" and not one.value.startswith("--from="):
            *sources, target = shlex.split(one.value)
            copied = " ".join(f'"$CONTEXT"/{name}' for name in sources)
            lines.append(f"cp -r {copied} {moved(target, root)}")
        elif one.name == "RUN":
            lines.append(moved(one.value, root))
    return lines


def main(what: str, file: str, stage_name: str, root: str) -> None:
    stage = stages(Path(file).read_text(encoding="utf-8"))[stage_name]
    if what == "script":
        lines = script(stage, root)
    elif what == "env":
        lines = [f"{key}={moved(value, root)}" for key, value in pairs(stage, "ENV").items()]
    elif what == "health":
        lines = health_command(stage)
    else:
        lines = [moved(word, root) for word in start_command(stage)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
