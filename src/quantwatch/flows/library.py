"""Chooses for each run whose answers it is held against: enrolled ones, those of the live baseline, or none."""

import asyncio
from dataclasses import dataclass

from quantwatch.config.schema import ReferenceMode
from quantwatch.errors import StoreError
from quantwatch.flow.reference import ReferenceStanding, ReferenceState
from quantwatch.flows.fit import misfit
from quantwatch.flows.memory import Memory
from quantwatch.flows.stored import StoredBaseline
from quantwatch.flows.watched import WatchedSet
from quantwatch.probe.contract import Prober
from quantwatch.record.reference_file import Reference, load
from quantwatch.record.reference_folder import ReferenceFolder

ENROLL = "quantwatch enroll --config FILE"

Stamp = tuple[int, int, int]
"""Inode, size and time of a file: another content has another one, since references are replaced, never changed."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Whose answers count in a run. baseline: the live one as well where enrolled answers are wanted and unusable."""

    baseline: Prober
    standing: ReferenceStanding


@dataclass(slots=True)
class _Seen:
    stamp: Stamp
    reference: Reference | None
    baseline: StoredBaseline | None
    damage: str = ""


class Library:
    """The references of one configuration. A file that was exchanged is read again at its next use."""

    def __init__(self, folder: ReferenceFolder, mode: ReferenceMode, memory: Memory) -> None:
        self._folder = folder
        self._mode = mode
        self._memory = memory
        self._seen: dict[str, _Seen] = {}
        self._reading = asyncio.Lock()

    async def choose(self, wanted: WatchedSet, live: Prober) -> Choice:
        """Whose answers a run of a task set is held against."""
        seen = await self._look(wanted.name)
        standing = self._memory.references[wanted.name] = self._standing(wanted, seen)
        stored = seen.baseline if seen is not None and standing.state is ReferenceState.STORED else None
        return Choice(stored or live, standing)

    async def reference(self, wanted: WatchedSet) -> Reference | None:
        """The reference that a self-check holds the baseline against: one that fits the configuration."""
        seen = await self._look(wanted.name)
        self._memory.references[wanted.name] = self._standing(wanted, seen)
        fits = seen is not None and seen.reference is not None and misfit(seen.reference, wanted) is None
        return seen.reference if seen is not None and fits else None

    def _standing(self, wanted: WatchedSet, seen: _Seen | None) -> ReferenceStanding:
        name = wanted.name
        if self._mode is ReferenceMode.LIVE or (seen is None and self._mode is ReferenceMode.AUTO):
            return ReferenceStanding(name, ReferenceState.LIVE)
        if seen is None:
            said = f"reference_missing: no answers of the baseline to {name} are enrolled; run `{ENROLL}`"
            return ReferenceStanding(name, ReferenceState.MISSING, trouble=said)
        whole = seen.reference
        if whole is None:
            said = f"reference_damaged: {seen.damage}; run `{ENROLL}`"
            return ReferenceStanding(name, ReferenceState.DAMAGED, trouble=said)
        standing = ReferenceStanding(name, ReferenceState.STORED, made=whole.made, digest=whole.digest)
        why = misfit(whole, wanted)
        if why is not None:
            said = f"reference_changed: {why}; run `{ENROLL}`"
            return ReferenceStanding(name, ReferenceState.CHANGED, whole.made, whole.digest, said)
        found = self._memory.self_checks.get(name)
        if found is None or found.digest != whole.digest:
            return standing
        state = found.state if found.trouble is not None else ReferenceState.STORED
        return ReferenceStanding(
            name, state, whole.made, whole.digest, found.trouble, checked=found.check.at, drift=found.check.drift
        )

    async def _look(self, name: str) -> _Seen | None:
        """The file as it is now; None where there is none and was none since this configuration began.

        One that has vanished since counts as damaged: nothing goes over to the live baseline without a person's word.
        """
        if self._mode is ReferenceMode.LIVE:
            return None
        async with self._reading:
            known, path = self._seen.get(name), self._folder.path(name)
            try:
                found = path.stat()
            except FileNotFoundError:
                if known is not None:
                    self._seen[name] = _Seen((0, 0, 0), None, None, f"{path}: it is gone")
                return self._seen.get(name)
            except OSError as exc:
                return _Seen((0, 0, 0), None, None, f"{path}: cannot be read: {exc.strerror}")
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
            if known is None or known.stamp != stamp:
                self._seen[name] = await asyncio.to_thread(_read, self._folder, name, stamp)
            return self._seen[name]


async def chosen(library: Library | None, wanted: WatchedSet, live: Prober) -> Choice:
    """Whose answers a run is held against; those of the live baseline where there is no library."""
    if library is None:
        return Choice(live, ReferenceStanding(wanted.name, ReferenceState.LIVE))
    return await library.choose(wanted, live)


def _read(folder: ReferenceFolder, name: str, stamp: Stamp) -> _Seen:
    path = folder.path(name)
    try:
        whole = load(path)
    except StoreError as exc:
        return _Seen(stamp, None, None, str(exc))
    if whole.name != name:
        return _Seen(stamp, None, None, f"{path}: holds the answers to {whole.name}")
    return _Seen(stamp, whole, StoredBaseline(whole))
