"""A tiny model that the tests of the lab node share."""

from pathlib import Path

import pytest

from support.tiny_llama import tiny_llama


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("models") / "tiny")
