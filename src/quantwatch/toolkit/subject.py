"""The model under study and the texts that it reads: loaded if memory suffices, on a GPU where there is one."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from quantwatch.errors import InputError
from quantwatch.flow.prompt import Prompt
from quantwatch.toolkit.answers import fingerprint
from quantwatch.toolkit.capture import MAX_TOKENS, token_ids
from quantwatch.toolkit.families import family_of
from quantwatch.toolkit.model import Loaded, load
from quantwatch.toolkit.outliers import inject_outliers

MEMINFO = Path("/proc/meminfo")

BYTES = 4
"""Of a weight in float32, in which everything here is computed."""


def available_memory(meminfo: Path = MEMINFO) -> int | None:
    """Bytes that can be had without swapping, None where the system does not tell."""
    try:
        lines = meminfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if found is None else int(found) * 1024


def float32_weights(folder: Path) -> int:
    """Bytes of all weights of a folder in float32, read from the headers of its safetensors files.

    Without such files it is the size of its .bin files, which is the least that it can be.

    Raises InputError for a file whose header cannot be read or does not fit its size.
    """
    total = 0
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="np") as tensors:  # torch cannot map a file that is larger than memory
                names = tensors.keys()
                total += sum(BYTES * _elements(tensors.get_slice(name).get_shape()) for name in names)
        except (SafetensorError, OSError) as exc:
            raise InputError(
                f"{path}: no whole safetensors file: {exc}; `quantwatch toolkit check-checkpoint` tells more"
            ) from exc
    return total or sum(path.stat().st_size for path in folder.glob("*.bin"))


def _elements(shape: Sequence[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def subject(
    folder: Path,
    *,
    inject: float | None,
    seed: int,
    tell: Callable[[str], None],
    copies: int = 1,
    available: int | None = None,
) -> Loaded:
    """Load a model in float32, with outlier channels injected if so wished; on a GPU where there is one.

    copies: how many of it are in memory together. available: bytes of memory, None to ask the system. Raises InputError
    for a model that does not fit into memory, is of no known family, quantized already or holds numbers that are not
    finite, a folder that holds no model, and whatever injection refuses.
    """
    refuse_unfit(folder)
    wanted = copies * float32_weights(folder)
    free = available_memory() if available is None else available
    if free is not None and wanted > free:
        raise InputError(
            f"{folder}: {wanted / 1e9:.1f} GB of float32 weights are needed at once, and {free / 1e9:.1f} GB of memory "
            "are free; a larger machine is wanted. `quantwatch toolkit check-checkpoint` needs no more than one tensor"
        )
    tell(f"loading {folder}")
    loaded = load(folder)
    _refuse_broken(loaded.model, folder)
    if inject is not None:
        inject_outliers(loaded.model, inject, seed=seed)
    if torch.cuda.is_available():
        loaded.model.to("cuda")
    return replace(loaded, name=fingerprint(folder))


def refuse_unfit(folder: Path) -> None:
    """Raise InputError for a model that nothing here can work on, by its config.json: before minutes of loading."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # loading says what is wrong with it
    if not isinstance(config, dict) or "model_type" not in config:
        return
    family_of(config["model_type"])
    if config.get("quantization_config"):
        raise InputError(
            f"{folder}: is quantized already; the full-precision model that it was made from is wanted. "
            "`quantwatch toolkit check-checkpoint` reads quantized ones, and `quantwatch compare` measures them"
        )


def _refuse_broken(model: nn.Module, folder: Path) -> None:
    broken = next((name for name, value in model.named_parameters() if not bool(value.isfinite().all())), None)
    if broken is not None:
        raise InputError(
            f"{folder}: {broken} holds numbers that are not finite (NaN or infinity); nothing that is computed with "
            "them means anything. `quantwatch toolkit check-checkpoint` lists all such places"
        )


def texts(loaded: Loaded, prompts: Sequence[Prompt], *, most: int | None = MAX_TOKENS) -> list[Tensor]:
    """Prompts as the model reads them: (1, n) ids each, at most so many; None cuts nothing.

    Raises InputError for a tokenizer whose ids the model does not know, which is another model's.
    """
    return [known(loaded, prompt, token_ids(loaded.tokenizer, prompt, most=most)) for prompt in prompts]


def known(loaded: Loaded, prompt: Prompt, ids: Tensor) -> Tensor:
    """The ids themselves, where the model is. Raises InputError for none, and for one beyond its vocabulary."""
    if not ids.numel():
        raise InputError(f"prompt {prompt.id}: the tokenizer makes no token of it")
    refuse_foreign(loaded, prompt, int(ids.max()))
    return ids.to(next(loaded.model.parameters()).device)


def refuse_foreign(loaded: Loaded, prompt: Prompt, largest: int) -> None:
    """Raise InputError where the largest id that a prompt has is beyond the model's vocabulary."""
    config: Any = loaded.model.config
    if largest >= config.vocab_size:
        raise InputError(
            f"prompt {prompt.id}: the tokenizer gives id {largest}, and the model knows {config.vocab_size} "
            "ids; this is another model's tokenizer"
        )
