"""Text from anywhere as Markdown shows it: nothing in it acts as markup, HTML, a link or a mention."""

import re

ACTIVE = re.compile(r"[&<>|\[\]()*_!`\\~]")
"""What Markdown or HTML could act on."""

CALLS = re.compile("[@#]")
"""What begins a mention or a reference. A forge looks for them in the finished page, where an entity is a plain
character again, so they are parted from the word behind them by a comment."""

UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+")
"""Control characters, and those that turn or hide text."""


def quoted(text: str) -> str:
    """Text that a page shows as it is: one line, nothing in it acts."""
    flat = " ".join(UNSEEN.sub(" ", text).split())
    parts = CALLS.split(flat)
    marks = [*CALLS.findall(flat), ""]
    return "".join(_still(part) + mark + ("<!-- -->" if mark else "") for part, mark in zip(parts, marks, strict=True))


def _still(text: str) -> str:
    """Text in which nothing acts, of any but the characters that call."""
    entities = ACTIVE.sub(lambda found: f"&#{ord(found[0])};", text)
    return entities.replace("://", "&#58;//").replace("www.", "www&#46;")
