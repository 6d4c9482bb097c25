"""The packages that a plain installation lacks: those that run a language model, and draw pictures of it."""

import importlib.util

from quantwatch.errors import InputError

PACKAGES = ("transformers", "gguf", "accelerate")

TOOLKIT = (*PACKAGES, "safetensors", "matplotlib")
"""What the commands of `quantwatch toolkit` need."""


def missing(command: str) -> str:
    """What to tell whoever gave a command that needs them."""
    return f"{command} needs the extra packages of the lab: pip install 'quantwatch[demo]'"


def require_extra(command: str) -> None:
    """Raise InputError unless they are installed. Imports none of them, so it costs no time."""
    if any(importlib.util.find_spec(one) is None for one in PACKAGES):
        raise InputError(missing(command))


def require_toolkit(packages: tuple[str, ...] = TOOLKIT) -> None:
    """Raise InputError unless the packages of the toolkit are installed, naming those that are not."""
    absent = [one for one in packages if importlib.util.find_spec(one) is None]
    if absent:
        raise InputError(
            f"quantwatch toolkit needs {', '.join(absent)}, which a plain installation lacks: "
            "pip install 'quantwatch[toolkit]'"
        )
