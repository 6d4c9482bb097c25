"""Style sheets, scripts and pictures of the pages, out of the package."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).parent / "assets"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
VERSION = 12
"""Characters of a digest that stand in an address, so that a new version of a file is fetched at once."""


@dataclass(frozen=True, slots=True)
class Asset:
    """One file. version: of its content."""

    content: bytes
    type: str
    version: str


class Assets:
    """All files of the folder, read once. Nothing else is ever served."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = {path.name: _asset(path) for path in sorted(folder.iterdir()) if path.suffix in TYPES}

    def address(self, name: str) -> str:
        """Where a file is. Raises KeyError for one that is not there."""
        return f"/assets/{name}?v={self._files[name].version}"

    async def serve(self, request: Request) -> Response:
        """A file by its name; kept by the browser for good under the address of its version."""
        found = self._files.get(request.path_params["name"])
        if found is None:
            raise HTTPException(404)
        known = request.query_params.get("v") == found.version
        headers = {
            "Cache-Control": "private, max-age=31536000, immutable" if known else "no-cache",
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'",
        }
        return Response(found.content, headers=headers, media_type=found.type)


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    return Asset(content, TYPES[path.suffix], hashlib.sha256(content).hexdigest()[:VERSION])
