"""A report as one HTML file that needs nothing else: pictures inside, no script, no network."""

import base64
from collections.abc import Sequence
from html import escape

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:75em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .7em;border-bottom:1px solid #ddd;text-align:right}"
    "td:first-child,th:first-child{text-align:left}img{max-width:100%}"
)


def page(title: str, parts: Sequence[str]) -> str:
    """The whole file. parts: made by the functions below."""
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
    body = "\n".join(parts)
    return f"{head}<style>{STYLE}</style></head><body>\n<h1>{escape(title)}</h1>\n{body}\n</body></html>\n"


def heading(text: str) -> str:
    """A heading within the page."""
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def picture(png: bytes, said: str) -> str:
    """A PNG picture, and what it shows for who cannot see it."""
    return f'<img alt="{escape(said)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of plain text; its first column is to the left."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return "<table>" + line(head, "th") + "".join(line(row, "td") for row in rows) + "</table>"
