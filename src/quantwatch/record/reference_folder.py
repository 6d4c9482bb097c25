"""The folder of references: one file a task set that counts, superseded ones beside, and what is half made.

`NAME.safetensors` counts; `superseded/NAME.TIME.safetensors` did before; `parts/KEY/` holds single prompts, each a
whole reference of one prompt, so that an enrolment that is broken off goes on where it was.
"""

import contextlib
import hashlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from quantwatch.errors import StoreError
from quantwatch.flow.prompt import ProbeMode
from quantwatch.record.files import write_whole
from quantwatch.record.place import only_writer
from quantwatch.record.reference_file import SUFFIX, Reference, load, save
from quantwatch.record.references import StoredAnswer

SUPERSEDED = "superseded"
PARTS = "parts"


class ReferenceFolder:
    """Where references lie. Every method raises StoreError for trouble with the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """Where the reference of a task set that counts lies, or would."""
        return self.folder / f"{name}{SUFFIX}"

    def current(self) -> list[Path]:
        """References that count, by name."""
        return sorted(self.folder.glob(f"*{SUFFIX}"))

    def superseded(self) -> list[Path]:
        """References that counted before, oldest first for each name."""
        return sorted((self.folder / SUPERSEDED).glob(f"*{SUFFIX}"))

    def half_made(self) -> list[Path]:
        """Folders of enrolments that have not come to their end."""
        return sorted(one for one in (self.folder / PARTS).glob("*") if one.is_dir())

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only one who enrols into this folder."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise StoreError(f"{self.folder}: cannot be created: {exc.strerror}") from exc
        with only_writer(self.folder / "references"):
            yield

    def put(self, reference: Reference) -> Reference:
        """Let a reference count from now on; at every moment one of the two does."""
        self.set_aside(reference.name)
        return save(self.path(reference.name), reference)

    def set_aside(self, name: str) -> Path | None:
        """Copy the reference that counts to the superseded ones; where to, None where there is none."""
        path = self.path(name)
        if not path.is_file():
            return None
        try:
            at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            aside = self.folder / SUPERSEDED / f"{name}.{at:%Y%m%dT%H%M%S%fZ}{SUFFIX}"
            aside.parent.mkdir(exist_ok=True)
            write_whole(aside, path.read_bytes())
        except OSError as exc:
            raise StoreError(f"{path}: cannot be kept beside its successor: {exc.strerror}") from exc
        return aside

    def parts(self, key: str) -> "Parts":
        """The half-made reference under a key."""
        return Parts(self.folder / PARTS / key)

    def remove(self, path: Path) -> None:
        """Remove a superseded reference or a half-made one."""
        try:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as exc:
            raise StoreError(f"{path}: cannot be removed: {exc.strerror}") from exc


class Parts:
    """The prompts of an enrolment that have their answers already."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, prompt: str) -> Reference | None:
        """The part of a prompt; None where there is none, or none that can be read: it is made anew."""
        try:
            part = load(self._path(prompt))
        except StoreError:
            return None
        return part if part.prompts == (prompt,) else None

    def put(self, part: Reference) -> None:
        """Keep a part, whole or not at all."""
        save(self._path(part.prompts[0]), part)

    def _path(self, prompt: str) -> Path:
        return self.folder / f"{hashlib.sha256(prompt.encode()).hexdigest()[:24]}{SUFFIX}"


def joined(parts: list[Reference], *, made: datetime) -> Reference:
    """Parts of one enrolment as one reference. made: when the last of it was."""
    answers: dict[ProbeMode, Mapping[str, StoredAnswer]] = {}
    left_out: dict[ProbeMode, Mapping[str, str]] = {}
    for mode in parts[0].modes:
        answers[mode] = {name: one for part in parts for name, one in part.answers[mode].items()}
        left_out[mode] = {name: said for part in parts for name, said in part.left_out[mode].items()}
    prompts = tuple(prompt for part in parts for prompt in part.prompts)
    free = {name: one for part in parts for name, one in part.free.items()}
    return replace(parts[0], made=made, prompts=prompts, answers=answers, left_out=left_out, free=free, digest="")
