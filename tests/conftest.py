"""What holds for every test."""

import gc
from collections.abc import Generator

import pytest
from hypothesis import settings

# Two shared cores can be slow for a moment; an example that takes long is no failure.
settings.register_profile("quantwatch", deadline=None)
settings.load_profile("quantwatch")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is made by collecting stays until the end: there is no garbage to look for in it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
