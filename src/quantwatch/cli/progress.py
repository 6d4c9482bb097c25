"""Progress on standard error: a bar with the time left for a person, a line now and then for a log."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from quantwatch.flows.plan import Progress


@contextmanager
def progress() -> "Iterator[Callable[[Progress], None]]":
    """Progress on standard error: a bar with the time left for a person, a line now and then for a log."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("handshake", total=None)
        yield lambda at: bar.update(task, completed=at.done, total=at.total, description=at.doing)


def _line(at: "Progress") -> None:
    print(f"{at.done}/{at.total} {at.doing}", file=sys.stderr, flush=True)  # noqa: T201, progress for a log
