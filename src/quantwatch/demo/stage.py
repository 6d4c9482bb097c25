"""What can be seen of the demo at any moment; the story writes it, the view and the summary read it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from quantwatch.demo.children import Child
from quantwatch.demo.client import Client
from quantwatch.demo.gateway import Gateway


class Mark(StrEnum):
    """Where a scene stands."""

    WAITING = "waiting"
    NOW = "now"
    DONE = "done"
    FAILED = "failed"


SCENES = {
    "model": "Fetch the model",
    "start": "Start the fp32 baseline and a healthy INT8 node",
    "limits": "Measure the healthy node: limits",
    "watch": "Start gateway, client and daemon; first clean run",
    "rollout": "Roll out an INT8 node with outlier channels",
    "isolated": "Breach confirmed, node isolated through the gateway",
    "cure": "The SmoothQuant node takes its place",
    "released": "Probation passed, node serves again",
}
"""The scenes in their order."""


@dataclass(slots=True)
class Scene:
    """One scene. said: its latest sentence. seconds: how long it took, None before its end."""

    title: str
    mark: Mark = Mark.WAITING
    said: str = ""
    began: float = 0.0
    seconds: float | None = None


@dataclass(slots=True)
class Stage:
    """scenes: by key. behind: what runs behind the node's address, changed: since when.

    children: every process that was started. task_sets: what is measured. board: the daemon's latest word on the node.

    lines: everything that was said, oldest first, with seconds since the beginning. hear: hears each new line.
    """

    began: float = field(default_factory=time.monotonic)
    scenes: dict[str, Scene] = field(default_factory=lambda: {key: Scene(title) for key, title in SCENES.items()})
    behind: str = "nothing yet"
    changed: datetime | None = None
    task_sets: tuple[str, ...] = ()
    board: dict[str, Any] | None = None
    children: list[Child] = field(default_factory=list)
    gateway: Gateway | None = None
    client: Client | None = None
    lines: list[tuple[float, str]] = field(default_factory=list)
    hear: Callable[[float, str], None] | None = None

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    def begin(self, key: str) -> Scene:
        """Enter a scene."""
        scene = self.scenes[key]
        scene.mark, scene.began = Mark.NOW, time.monotonic()
        self.say(scene.title)
        return scene

    def done(self, key: str, said: str) -> None:
        """Leave a scene that went as it should."""
        scene = self.scenes[key]
        scene.mark, scene.said, scene.seconds = Mark.DONE, said, time.monotonic() - scene.began
        self.say(f"  {said}")

    def failed(self, why: str) -> None:
        """Whatever goes on has failed."""
        for scene in self.scenes.values():
            if scene.mark is Mark.NOW:
                scene.mark, scene.said = Mark.FAILED, why

    def say(self, line: str) -> None:
        """Tell what happens."""
        self.lines.append((self.seconds, line))
        if self.hear is not None:
            self.hear(*self.lines[-1])
