"""Gateways that read a file: written whole from a template at every change, checked, and taken over by a command.

Who is isolated stands in a record beside the file, never in memory alone. A file that somebody else changed tells
nothing and is not written over.
"""

import asyncio
import errno
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from quantwatch.act.command import Failure, run
from quantwatch.act.contract import Abilities, Seen, Unanswered
from quantwatch.act.place import Locked, Place, Record, Undo, digest
from quantwatch.act.template import Template, template_of
from quantwatch.config.schema import Settings
from quantwatch.errors import GatewayRefused, InputError
from quantwatch.flow.decision import Action, Order

FOR_A_PERSON = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EBUSY,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
}
"""What does not go away by itself, unlike a full disk."""

HOLDS = 3
"""A writer holds the file for two commands at most, so another waits for three."""


@dataclass(frozen=True, slots=True)
class Commands:
    """What is run, where, and for how many seconds each at most. Empty: nothing."""

    validate: Sequence[str]
    reload: Sequence[str]
    folder: Path
    seconds: float


class FileDriver:
    """One file of one gateway."""

    name = "file"
    abilities = Abilities(reads_back=True, proven=True, calls=True)

    def __init__(self, place: Place, template: Template, commands: Commands) -> None:
        self._place = place
        self._template = template
        self._commands = commands
        self._one_at_a_time = asyncio.Lock()

    async def call(self, order: Order) -> str:
        """Write, check and reload. Raises Unanswered or GatewayRefused, the latter with the old file in its place.

        Cancelled, what is under way comes to its own end; the next call waits for that.
        """
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._bring_about, order)

    async def observe(self, order: Order) -> Seen:
        """By the file and the record beside it; UNKNOWN until the gateway has taken over what was written."""
        return await asyncio.to_thread(self._look, order.target)

    def objection(self) -> str | None:
        """Why the file could not be written as it stands now; None where it could."""
        try:
            self._known()
        except (GatewayRefused, OSError) as exc:
            return str(exc)
        return None

    def content(self) -> str:
        """The file as it should be, with those isolated who are so on record. Raises GatewayRefused, OSError."""
        return self._rendered((self._record() or Record()).isolated)

    def _look(self, target: str) -> Seen:
        try:
            _, known = self._known()
        except (GatewayRefused, OSError):
            return Seen.UNKNOWN
        if known.digest is None or target in known.unsure:
            return Seen.UNKNOWN
        return Seen.ISOLATED if target in known.isolated else Seen.ROUTABLE

    def _bring_about(self, order: Order) -> str:
        try:
            with self._place.locked(HOLDS * self._commands.seconds):
                record = self._written(order)
                try:
                    self._reloaded(self._validated(record))
                except OSError as exc:
                    raise Unanswered(f"{self._place.path}: {_words(exc)}") from exc
        except Locked:
            raise Unanswered(f"{self._place.path} is held by another process", arrived=False) from None
        except OSError as exc:
            said = f"{self._place.path} cannot be written: {_words(exc)}"
            if exc.errno in FOR_A_PERSON:
                raise GatewayRefused(f"{said}. Look at gateway.path, its folder and their owner") from exc
            raise Unanswered(said, arrived=False) from exc
        return f"{self._place.path} is written{' and taken over' if self._commands.reload else ''}"

    def _written(self, order: Order) -> Record:
        """Put the file as the order wants it into its place, and give the record of that. Raises OSError."""
        text, known = self._known()
        others = known.isolated - {order.target}
        wanted = others | {order.target} if order.action is Action.ISOLATE else others
        new = self._rendered(wanted)
        if order.action is Action.ISOLATE and new == self._rendered(others):
            raise GatewayRefused(
                f"gateway.template gives the same file whether or not {order.target} is isolated. Let it look at "
                "target.isolated"
            )
        unsure = known.unsure | (wanted ^ known.isolated)
        undo = known.undo if new == text else known.undo or Undo(text, known.isolated, known.unsure)
        record = Record(wanted, digest(new), unsure, undo)
        self._place.save(record)
        if new != text:
            self._place.write(new)
        return record

    def _validated(self, record: Record) -> Record:
        """Give the record of a file that has passed; of one that has not, the old file comes back. Raises OSError."""
        failure = self._run(self._commands.validate)
        if failure is None:
            passed = replace(record, undo=None)
            self._place.save(passed)
            return passed
        if (undo := record.undo) is not None:
            self._place.write(undo.text)
            self._place.save(Record(undo.isolated, digest(undo.text), undo.unsure))
        said = f"gateway.validate_command: {failure.said}; {self._place.path} is as it was before"
        if failure.late:
            raise Unanswered(said, arrived=False)
        raise GatewayRefused(f"{said}. Look at gateway.template")

    def _reloaded(self, record: Record) -> None:
        failure = self._run(self._commands.reload)
        if failure is not None:
            raise Unanswered(f"gateway.reload_command: {failure.said}; {self._place.path} is written")
        self._place.save(replace(record, unsure=frozenset()))

    def _run(self, command: Sequence[str]) -> Failure | None:
        if not command:
            return None
        return run(command, folder=self._commands.folder, seconds=self._commands.seconds)

    def _rendered(self, isolated: frozenset[str]) -> str:
        try:
            return self._template.text(isolated)
        except InputError as exc:
            raise GatewayRefused(str(exc)) from exc

    def _known(self) -> tuple[str | None, Record]:
        """The file and what is known of it. Raises OSError, and GatewayRefused for a file that is not ours."""
        known, text = self._record() or Record(), self._place.text()
        if known.undo is not None and text == known.undo.text:  # broken off before the file was exchanged
            return text, Record(known.undo.isolated, digest(text), known.undo.unsure)
        if digest(text) == known.digest or text == self._rendered(known.isolated):
            return text, replace(known, digest=digest(text))
        raise GatewayRefused(
            f"{self._place.path} is not what quantwatch wrote, or would write, and is left alone. "
            "`quantwatch gateway-file FILE` prints what belongs there"
        )

    def _record(self) -> Record | None:
        try:
            return self._place.record()
        except ValueError as exc:
            place = self._place
            said = f"{place.beside}, the record beside {place.path}, cannot be read: {exc}"
            raise GatewayRefused(f"{said}. Remove it once {place.path} has everybody in traffic") from exc


def file_driver(settings: Settings, *, folder: Path) -> FileDriver:
    """The driver of a configuration. folder: where that is. Raises InputError for a template that cannot be used."""
    gateway = settings.gateway
    template = template_of(settings, folder=folder)
    commands = Commands(gateway.validate_command, gateway.reload_command, folder.absolute(), gateway.timeout)
    return FileDriver(Place(folder / (gateway.path or "")), template, commands)


def _words(exc: OSError) -> str:
    return exc.strerror or str(exc)
