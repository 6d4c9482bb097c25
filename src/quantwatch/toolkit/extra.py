"""The packages that a plain installation lacks: those that run a language model."""

import importlib.util

from quantwatch.errors import InputError

PACKAGES = ("transformers", "gguf", "accelerate")


def missing(command: str) -> str:
    """What to tell whoever gave a command that needs them."""
    return f"{command} needs the extra packages of the lab: pip install 'quantwatch[demo]'"


def require_extra(command: str) -> None:
    """Raise InputError unless they are installed. Imports none of them, so it costs no time."""
    if any(importlib.util.find_spec(one) is None for one in PACKAGES):
        raise InputError(missing(command))
