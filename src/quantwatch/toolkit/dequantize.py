"""A GGUF file -> a Hugging Face folder in float32."""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from quantwatch.errors import InputError
from quantwatch.toolkit.library import MISSING, UNREADABLE, UNWRITABLE, transformers


def dequantize(file: Path, folder: Path) -> None:
    """Write the model (safetensors, float32) and the tokenizer of a GGUF file into an existing folder.

    The weights are the rounded ones of the file, in a format that computes with them exactly: no quality comes back.
    Raises InputError for a file that transformers cannot read, or whose weights are not complete; OSError when the
    folder cannot be written.
    """
    given: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    try:
        # The loader draws a progress bar that has no switch.
        with contextlib.redirect_stderr(io.StringIO()):
            model, info = transformers.AutoModelForCausalLM.from_pretrained(
                file.parent, dtype=torch.float32, output_loading_info=True, **given
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, **given)
    except ImportError as exc:
        raise InputError(MISSING) from exc
    except UNREADABLE as exc:
        raise InputError(f"{file}: no GGUF file of a model that transformers can read: {exc}") from exc
    if missing := sorted(info["missing_keys"]):
        raise InputError(f"{file}: {len(missing)} weights are missing, such as {missing[0]}")
    save(_plain(model), tokenizer, folder)


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a model and its tokenizer. Raises OSError when the disk refuses, which the libraries do not always do."""
    with disk_errors():
        model.save_pretrained(folder)
    save_tokenizer(tokenizer, folder)


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """Turn what safetensors raises where the disk refuses into an OSError; the error number stands in its text."""
    try:
        yield
    except UNWRITABLE as exc:
        found = re.search(r"os error (\d+)", str(exc))
        raise (OSError(int(found[1]), os.strerror(int(found[1]))) if found else OSError(str(exc))) from exc


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write a tokenizer with its chat template. Raises OSError when the disk refuses."""
    # The tokenizer's library raises a bare Exception over a full disk. This takes the same room before, and an OSError.
    (folder / "tokenizer.json").write_text(tokenizer.backend_tokenizer.to_str(), encoding="utf-8")
    tokenizer.save_pretrained(folder)


def _plain(model: nn.Module) -> Any:
    """The same weights in a model that remembers no GGUF file: transformers refuses to save one that does."""
    config: Any = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):  # no time is spent on random weights that are thrown away
        plain = transformers.AutoModelForCausalLM.from_config(config)
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    return plain
