"""Packages as an installer leaves them: a module, and beside it the metadata that names its entry points."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def install(folder: Path, name: str, module: str, text: str, **drivers: str) -> None:
    """Put a package of one module there. drivers: names of entry points and what they point to."""
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(text, encoding="utf-8")
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    points = "".join(f"{key} = {value}\n" for key, value in drivers.items())
    (info / "entry_points.txt").write_text(f"[quantwatch.drivers]\n{points}", encoding="utf-8")


@contextmanager
def on_the_path(folder: Path) -> Iterator[None]:
    """Let this process find what is installed there, and forget it afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
