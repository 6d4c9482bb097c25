"""docs/monitoring.md has every series as the product has it, and says how many there will be."""

import re
from pathlib import Path

import pytest

from quantwatch.expose.exposition import exposition
from quantwatch.expose.meters import Meters
from quantwatch.expose.metrics import PREFIX, Series
from support.boards import board, measured, target_board
from support.monitoring import ALL, SERIES, alerts, named, rules

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "monitoring.md").read_text(encoding="utf-8")
LAST = " Of the last run that gave numbers."


def row(one: Series) -> str:
    """The line of a series."""
    help_text = one.help.removesuffix(LAST).replace("|", "\\|")
    return f"| `{PREFIX}{one.name}` | {', '.join(one.labels)} | {help_text} |"


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_a_series_has_its_line(one: Series) -> None:
    assert TEXT.splitlines().count(row(one)) == 1, row(one)


def test_nothing_else_is_called_a_series() -> None:
    assert named(TEXT) <= SERIES


def test_the_recorded_series_are_named() -> None:
    assert {one["record"] for one in rules() if "record" in one} <= set(re.findall(r"`(quantwatch:[\w:]+)`", TEXT))


def test_alerts_that_are_named_exist() -> None:
    named_here = set(re.findall(r"`([A-Z]\w+)`", TEXT))
    assert {f"Quantwatch{one}" for one in named_here} <= set(alerts())


def counted(targets: int, sets: int, *, tokens: bool = True) -> int:
    """Samples on the page of a fleet of this size."""
    meters, names = Meters(), [f"set-{i}" for i in range(sets)]
    meters.token_kl.shown = tokens
    for i in range(targets):
        meters.expect(f"node-{i}", names)
    built = (target_board(f"node-{i}", *(measured(f"node-{i}", one) for one in names)) for i in range(targets))
    page, _ = exposition(board(*built), meters)
    return sum(not line.startswith(b"#") for line in page.splitlines())


def test_the_page_says_how_many_series_there_are() -> None:
    start, a_set, a_target = (
        int(one) for one in re.findall(r"(\d+) (?:for|for each)", TEXT.partition("How many")[2])[:3]
    )
    assert counted(1, 1) == pytest.approx(start, rel=0.1)
    assert counted(1, 2) - counted(1, 1) == pytest.approx(a_set, rel=0.1)
    assert counted(2, 1) - counted(1, 1) - a_set == pytest.approx(a_target, rel=0.1)
    assert counted(10, 8) == pytest.approx(7000, rel=0.1)
    assert "Ten targets with eight task sets\nmake 7,000, a hundred 70,000" in TEXT
    assert 1 - counted(10, 8, tokens=False) / counted(10, 8) == pytest.approx(0.25, abs=0.03)
