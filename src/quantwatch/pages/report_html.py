"""An incident, or a period, as one HTML file that needs nothing else: no network, no script, no other file."""

from functools import cache, partial
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader

from quantwatch.pages.asset import FOLDER
from quantwatch.pages.incident import Incident, Period
from quantwatch.pages.manner import Language
from quantwatch.pages.templating import environment
from quantwatch.pages.tokens import token_view
from quantwatch.pages.view import incident_values, period_values, shared
from quantwatch.pages.words import said

PROMPTS = 4
"""Golden texts in a file, the worst first: all that are kept would make it too large to be sent by mail."""


def incident_html(one: Incident, language: Language = "en", *, runbook: str | None = None) -> str:
    """The report of a run or a decision. runbook: where it lies, None for the path in the project."""
    tokens = None if one.tokens is None else token_view(one.tokens, most=PROMPTS)
    values = incident_values(one, language, tokens=tokens)
    return _written("report.html", language, runbook, {**values, "made": one.made, "version": one.version})


def period_html(one: Period, language: Language = "en", *, runbook: str | None = None) -> str:
    """The report of a period."""
    values = period_values(one, language)
    return _written("period.html", language, runbook, {**values, "made": one.made, "version": one.version})


def _written(template: str, language: Language, runbook: str | None, values: dict[str, Any]) -> str:
    frame = {"t": partial(_translated, language), "lang": language}
    words = shared(language, linked=False, runbook=runbook)
    return _templates().get_template(template).render(**words, **frame, **values)


def _translated(language: Language, key: str, **values: object) -> str:
    return said(key, language, **values)


@cache
def _templates() -> Environment:
    """Those of the pages; the style sheets can be included as well."""
    made = environment()
    made.loader = ChoiceLoader([made.loader, FileSystemLoader(FOLDER)]) if made.loader is not None else None
    return made
