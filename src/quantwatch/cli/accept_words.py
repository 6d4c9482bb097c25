"""How the release gate speaks, in the terminal, in JUnit and in Markdown alike."""

from typing import Any

from quantwatch.flow.acceptance import TITLES

ANSWERS = {"keep": "keep", "reject": "reject (roll back)", "cannot_tell": "cannot tell (not accepted)"}
VERDICTS = {"pass": "pass", "fail": "fail", "cannot_tell": "cannot tell"}
GATES = {kind.value: title for kind, title in TITLES.items()}
ADVICE = {
    "keep": "Every gate passes: the candidate may serve.",
    "reject": "Below the gate: roll the candidate back.",
    "cannot_tell": "Not accepted: do not roll it out. Mend what could not be told, and run the gate again.",
}
MEBIBYTE = 2**20


def figures_line(figure: dict[str, Any]) -> str:
    """One number with its bounds and its limit: `P99 latency 0.82 s (0.7 .. 1.1), limit 1`."""
    value, low, high, limit = (shown(figure[name], figure["unit"]) for name in ("value", "low", "high", "limit"))
    unit = {"B": " MiB", "": ""}.get(figure["unit"], f" {figure['unit']}")
    bounds = "" if figure["low"] is None and figure["high"] is None else f" ({low} .. {high})"
    return f"{figure['name']} {value}{unit}{bounds}" + ("" if figure["limit"] is None else f", limit {limit}")


def shown(value: float | None, unit: str = "") -> str:
    """Four digits; a dash for what is not there; bytes in MiB."""
    if value is None:
        return "-"
    return f"{value / MEBIBYTE if unit == 'B' else value:.4g}"
