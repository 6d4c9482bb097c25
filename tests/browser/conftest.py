"""One browser and one night for all tests of the live page."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support.browser import chromium
from support.crawl import Found, crawled
from support.night import Night, night_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """The system's Chromium."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    """A real daemon after an incident."""
    with night_of(tmp_path_factory.mktemp("night")) as scene:
        yield scene


@pytest.fixture(scope="session")
def found(night: Night) -> Found:
    """Every page that can be reached from the first one."""
    return crawled(night.origin)
