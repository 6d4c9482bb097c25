"""Drivers that installed packages bring, by their names; nothing of them is imported here."""

import difflib
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points

GROUP = "quantwatch.drivers"
"""The group of entry points by which a package names its drivers."""


def brought(name: str) -> tuple[EntryPoint, ...]:
    """Every entry point of that name; more than one is a quarrel of two packages."""
    return tuple(entry_points(group=GROUP, name=name))


def known_driver(name: str, shipped: Sequence[str]) -> str:
    """The name, where there is such a driver. Raises ValueError with those that there are."""
    if name in shipped or brought(name):
        return name
    known = [*shipped, *sorted({one.name for one in entry_points(group=GROUP)} - set(shipped))]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}? " if close else ""
    raise ValueError(
        f"no such driver; {hint}known: {', '.join(map(repr, known))}. A package that brings another must be installed "
        "beside quantwatch"
    )
