"""One browser and one incident for all tests of the live page."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support.browser import chromium
from support.crawl import Found, crawled
from support.incident import Incident, incident

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """The system's Chromium."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    """A real daemon after an incident."""
    with incident(tmp_path_factory.mktemp("night")) as scene:
        yield scene


@pytest.fixture(scope="session")
def found(night: Incident) -> Found:
    """Every page that can be reached from the first one."""
    return crawled(night.origin)
