"""A support bundle: files in one archive, each gathered on its own, so that a broken part spoils no other."""

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from quantwatch import __version__
from quantwatch.config.redaction import Redaction
from quantwatch.errors import InputError, QuantwatchError

MODE = 0o600
FAILED = ".failed.txt"
BROKEN = (
    *(QuantwatchError, OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
    *(RecursionError, ImportError, MemoryError, EOFError, subprocess.SubprocessError),
)
"""What a part may break with: whoever needs a bundle has something that is broken."""

README = """\
A support bundle of quantwatch {version}, made {at}.

Look through it before you send it to anybody. Secrets that quantwatch knows of, or that look like secrets, are masked
as ***; MANIFEST.json counts what was masked in which file. Names and addresses of your servers, reasons of verdicts and
the log's sentences are in it as they are. Prompts and answers are left out where a name marks them, such as prompt,
text or content; ids of prompts stay. What a line repeats of a prompt without such a name cannot be told from other
words and stays, and so does a prompt of one word that looks like an id: look for them in logs/.
{unknown}
MANIFEST.json   every file with its size and SHA-256, what was masked, which secrets were not known, and what could not
                be gathered
config/         the configuration without comments and secrets, and what `quantwatch check-config` says of it
system/         versions of quantwatch, Python, the platform and all packages; disk space
daemon/         what the running daemon shows: /metrics and /api/v1/status
store/          the latest runs, decisions, transitions and orders; what `quantwatch store check` says
logs/           the ends of logs

A name that ends in .failed.txt stands for a part that could not be gathered, and says why.
"""


@dataclass(frozen=True, slots=True)
class Member:
    """A file of the bundle as its manifest lists it. failed: why the part is not there, None where it is."""

    name: str
    bytes: int
    sha256: str
    failed: str | None = None


@dataclass(slots=True)
class Bundle:
    """An archive that is being written. Nothing gets into it but through the redaction."""

    archive: tarfile.TarFile
    redaction: Redaction
    at: datetime
    members: list[Member] = field(default_factory=list)

    def text(self, name: str, gather: Callable[[], str]) -> None:
        """Add a text, or a note of why there is none."""
        self._part(name, lambda: self.redaction.text(gather(), name))

    def document(self, name: str, gather: Callable[[], Any]) -> None:
        """Add JSON, or a note of why there is none."""
        self._part(name, lambda: _json(self.redaction.document(gather(), name)))

    def configuration(self, name: str, gather: Callable[[], str]) -> None:
        """Add a configuration file without its secrets, or a note of why there is none."""
        self._part(name, lambda: self.redaction.configuration(gather(), name))

    def unknown(self) -> list[str]:
        """What to tell of each secret that could not be fetched here."""
        return [f"NOT known here, so masked only by its look: {one}" for one in self.redaction.unknown]

    def close(self) -> None:
        """Add what tells of all the others."""
        unknown = "".join(f"\n{one}" for one in self.unknown())
        at = f"{self.at:%Y-%m-%d %H:%M:%S} UTC"
        self._add("README.txt", README.format(version=__version__, at=at, unknown=unknown and f"{unknown}\n"))
        masked = [{"file": file, "what": what, "times": count} for (file, what), count in self.redaction.found.items()]
        manifest = {
            "schema": 1,
            "quantwatch": __version__,
            "made": self.at.isoformat(timespec="seconds"),
            "files": [asdict(one) for one in self.members],
            "masked": masked,
            "unknown_secrets": list(self.redaction.unknown),
            "failed": [
                {"part": one.name.removesuffix(FAILED), "why": one.failed}
                for one in self.members
                if one.failed is not None
            ],
        }
        self._add("MANIFEST.json", _json(manifest))

    def _part(self, name: str, make: Callable[[], str]) -> None:
        try:
            text = make()
        except BROKEN as exc:
            said = self.redaction.text(f"{type(exc).__name__}: {exc}", name)
            self._add(f"{name}{FAILED}", said + "\n", failed=said)
            return
        self._add(name, text)

    def _add(self, name: str, text: str, *, failed: str | None = None) -> None:
        content = text.encode("utf-8", "backslashreplace")
        entry = tarfile.TarInfo(f"quantwatch-support-{self.at:%Y%m%dT%H%M%SZ}/{name}")
        entry.size, entry.mode, entry.mtime = len(content), MODE, int(self.at.timestamp())
        self.archive.addfile(entry, io.BytesIO(content))
        self.members.append(Member(name, len(content), hashlib.sha256(content).hexdigest(), failed))


def write_bundle(path: Path, redaction: Redaction, at: datetime, fill: Callable[[Bundle], None]) -> Bundle:
    """Write a new archive that only its owner can read; whole, or not there. Raises InputError."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
    except FileExistsError as exc:
        raise InputError(f"{path}: exists already; a bundle never replaces a file") from exc
    except OSError as exc:
        raise InputError(f"{path}: cannot be written: {exc.strerror}") from exc
    whole = False
    try:
        with os.fdopen(number, "wb") as out, tarfile.open(fileobj=out, mode="w:gz") as archive:
            bundle = Bundle(archive, redaction, at)
            fill(bundle)
            bundle.close()
        whole = True
    except OSError as exc:
        raise InputError(f"{path}: cannot be written: {exc.strerror or exc}") from exc
    finally:
        if not whole:
            path.unlink(missing_ok=True)
    return bundle


def _json(content: Any) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n"
