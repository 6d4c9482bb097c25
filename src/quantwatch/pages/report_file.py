"""The kinds of file that a report can be, and a report as the text of one."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from quantwatch.pages.incident import Incident, Period
from quantwatch.pages.manner import Language
from quantwatch.pages.report_html import incident_html, period_html
from quantwatch.pages.report_json import incident_json, period_json
from quantwatch.pages.report_markdown import incident_markdown, period_markdown

TYPES: Mapping[str, str] = MappingProxyType(
    {"html": "text/html; charset=utf-8", "md": "text/markdown; charset=utf-8", "json": "application/json"}
)
"""Kinds by the suffix of the file, with their media types."""


def written(one: Incident | Period, kind: str, language: Language = "en", *, runbook: str | None = None) -> str:
    """A report as text. kind: one of TYPES. Its JSON is the same in every language."""
    if isinstance(one, Incident):
        if kind == "json":
            return _dumped(incident_json(one))
        write = incident_html if kind == "html" else incident_markdown
        return write(one, language, runbook=runbook)
    if kind == "json":
        return _dumped(period_json(one))
    write_period = period_html if kind == "html" else period_markdown
    return write_period(one, language, runbook=runbook)


def _dumped(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
