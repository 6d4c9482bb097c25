"""The templates: what they find in every page, and how names from outside are written in addresses and ids."""

import functools
import hashlib
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from quantwatch.flow.identity import moment
from quantwatch.pages import shown


@functools.cache
def environment() -> Environment:
    """The templates of the package. Everything is escaped that does not say otherwise, and none of them does."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "number": shown.number,
        "figure": shown.figure,
        "share": shown.share,
        "ratio": shown.ratio,
        "seconds": shown.seconds,
        "iso": shown.iso,
        "moment": shown.moment,
        "exactly": shown.exactly,
        "process_start": lambda started: shown.NOTHING if started is None else moment(started),
        "segment": segment,
        "key": short_key,
    }
    return made


def segment(text: str) -> str:
    """A name as one segment of a path; what is no UTF-8 becomes a question mark."""
    return quote(text, safe="", errors="replace")


def short_key(text: str) -> str:
    """A name as an id inside a page: the same in every answer, and free of anything from outside."""
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:12]
