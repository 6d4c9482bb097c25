"""`quantwatch demo`: a quantized node goes bad, is caught, is taken out of traffic, and its cure comes back."""

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quantwatch.cli.exit_codes import BREACH, CANNOT_SAY, OK
from quantwatch.cli.output import STANDARD_OUTPUT, Terminal, refuse_unwritable, write_json
from quantwatch.errors import InputError

if TYPE_CHECKING:
    from quantwatch.demo.stage import Stage
    from quantwatch.demo.story import Options, Story

DRAWN_EACH_SECOND = 4


def command(
    model: Annotated[
        str, typer.Option(help="smollm2, or a model of your own: a Hugging Face folder or a GGUF file")
    ] = "smollm2",
    fast: Annotated[bool, typer.Option(help="Fewer task sets and prompts")] = False,  # noqa: FBT002, a flag
    keep: Annotated[bool, typer.Option(help="Stay up afterwards, until Ctrl-C")] = False,  # noqa: FBT002, a flag
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the result as JSON; - for standard output")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where configuration, record and logs go; a new temporary folder if left out")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for the model and the baseline's answers; the user's cache if left out")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draw that the limits come from")] = 0,
) -> None:
    r"""See it work: a really quantized language model goes bad, is caught, taken out of a gateway, and cured.

    Everything is real and runs on this machine: an fp32 baseline (SmolLM2-135M-Instruct, dequantized from its Q4_1
    release), INT8 nodes, a gateway with a client's requests, and the daemon in mode enforce. It takes less than five
    minutes on two cores. The first time fetches 93 MB. Needs the extra packages: pip install 'quantwatch\[demo]'

    Exit code 0 only if it all happened, 1 if not, 2 when it was interrupted.
    """
    from quantwatch.demo.stage import Stage
    from quantwatch.toolkit.extra import require_extra

    require_extra("quantwatch demo")
    if json_file is not None:
        refuse_unwritable(json_file)
    console = Terminal(stderr=json_file == STANDARD_OUTPUT, highlight=False)
    stage = Stage()
    with _shown(stage, console, live=False):
        options = _options(model, stage, folder=folder, cache=cache, fast=fast, seed=seed)
    try:
        passed = asyncio.run(_play(options, stage, console, json_file=json_file, keep=keep))
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("Interrupted; everything that was started is ended.")
        raise typer.Exit(CANNOT_SAY) from None
    finally:
        for child in stage.children:
            child.kill()  # whatever an impatient second Ctrl-C has left behind
    raise typer.Exit(OK if passed else BREACH)


def _options(
    model: str, stage: "Stage", *, folder: Path | None, cache: Path | None, fast: bool, seed: int
) -> "Options":
    from quantwatch.demo.plan import FAST, FULL
    from quantwatch.demo.story import Options
    from quantwatch.toolkit.source import model_folder
    from quantwatch.wiring import cache_folder

    answers = cache_folder() if cache is None else cache / "continuations"
    stage.begin("model")
    found = model_folder(model, cache=answers.parent, tell=stage.say)
    stage.done("model", str(found))
    folder = _writable(folder)
    return Options(found, folder.resolve(), answers, FAST if fast else FULL, seed)


def _writable(folder: Path | None) -> Path:
    """The folder to write to, empty of an earlier demo's record. Raises InputError."""
    from quantwatch.demo.plan import RECORD

    try:
        if folder is None:
            return Path(tempfile.mkdtemp(prefix="quantwatch-demo-"))
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as exc:
        raise InputError(f"--folder {folder}: cannot be written: {exc.strerror}") from exc
    if (folder / RECORD).exists():
        raise InputError(f"--folder {folder}: holds the record of an earlier demo; remove it or name another folder")
    return folder


async def _play(options: "Options", stage: "Stage", console: Terminal, *, json_file: Path | None, keep: bool) -> bool:
    from quantwatch.demo.children import DemoFailed
    from quantwatch.demo.story import Story
    from quantwatch.demo.summary import as_json, show, summary

    trouble = None
    _end_in_order()
    async with Story(options, stage) as story:
        with _shown(stage, console, live=True):
            try:
                await story.play()
            except DemoFailed as exc:
                trouble = str(exc)
                stage.failed(trouble)
            except asyncio.CancelledError:
                if json_file is not None:
                    write_json(as_json(summary(story.facts, stage, trouble="interrupted")), json_file)
                raise
        result = summary(story.facts, stage, trouble=trouble)
        if json_file is not None:
            write_json(as_json(result), json_file)
        staying = keep and trouble is None
        show(result, console, staying=staying)
        return result.passed and (not staying or await _stay(story, console))


async def _stay(story: "Story", console: Terminal) -> bool:
    """Leave everything up until Ctrl-C; False when a process ends by itself."""
    from quantwatch.demo.children import DemoFailed

    console.print("Everything stays up. Ctrl-C ends it.")
    try:
        await story.stay()
    except asyncio.CancelledError:
        return True
    except DemoFailed as exc:
        console.print(str(exc), style="red", markup=False, soft_wrap=True)
    return False


def _end_in_order() -> None:
    """Without it, SIGTERM or a terminal that closes would leave every process that was started behind."""
    playing = asyncio.current_task()
    assert playing is not None  # noqa: S101, a coroutine runs in a task
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, playing.cancel)


@contextlib.contextmanager
def _shown(stage: "Stage", console: Terminal, *, live: bool) -> Iterator[None]:
    """Show the stage: a picture that changes on a terminal, a line for everything that happens elsewhere."""
    if console.is_terminal and live:
        from rich.live import Live

        from quantwatch.demo.view import View

        with Live(View(stage), console=console, refresh_per_second=DRAWN_EACH_SECOND):
            yield
        return
    stage.hear = lambda at, line: console.print(f"{at:5.0f} s  {line}", markup=False, soft_wrap=True)
    try:
        yield
    finally:
        stage.hear = None
