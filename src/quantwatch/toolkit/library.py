"""transformers, asked for in one place: quiet, and with a plain sentence where it is missing."""

import struct
from typing import Any

from quantwatch.errors import InputError
from quantwatch.toolkit.extra import missing

MISSING = missing("quantwatch serve")

try:
    import transformers as _package
    from safetensors import SafetensorError
except ModuleNotFoundError as exc:
    raise InputError(MISSING) from exc

UNREADABLE = (OSError, ValueError, LookupError, RuntimeError, AttributeError, struct.error, SafetensorError)
"""What transformers raises over files that are not what it takes them for."""

UNWRITABLE = SafetensorError
"""What saving weights raises where the disk refuses; the error number stands in its text."""

# Its types change with every release, so we use it untyped.
transformers: Any = _package
"""The transformers package, without its progress bars and warnings. Importing it from here raises InputError where
the extra packages are not installed."""

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

TEMPLATE_FAULTS = (transformers.utils.chat_template_utils.jinja2.TemplateError, TypeError, ValueError, LookupError)
"""What a chat template raises over messages that it does not take; it is a program of the model's makers."""
