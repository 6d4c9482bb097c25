"""What of answers and golden prompts is kept back from a run's document, by expose.prompts."""

import re
from collections.abc import Mapping
from typing import Any

from quantwatch.flow.tokens import PromptsShown

_QUOTE = re.compile(r"(?:: |, at )'.*", re.DOTALL)
"""Where the sentence of a sign begins to quote an answer: measure/canary.py, measure/answer.py."""


def kept_back(document: Mapping[str, Any], shown: PromptsShown) -> Mapping[str, Any]:
    """A run's document, in the form of run_json, as far as it may be shown.

    Quotes of answers are for FULL alone; under OFF ids of prompts are None as well, and no reason of a missing answer
    names them.
    """
    report = document.get("report")
    if shown is PromptsShown.FULL or not report:
        return document
    cut = dict(report)
    if report.get("canary"):
        signs = [_sign(one, shown) for one in report["canary"].get("signs") or ()]
        cut["canary"] = {**report["canary"], "signs": signs}
    if shown is PromptsShown.OFF:
        cut["missing"] = [_nameless(one) for one in report.get("missing") or ()]
    return {**document, "report": cut}


def _sign(one: Mapping[str, Any], shown: PromptsShown) -> dict[str, Any]:
    said = _QUOTE.sub("", str(one.get("said", "")))
    return {**one, "said": said, "prompt": None if shown is PromptsShown.OFF else one.get("prompt")}


def _nameless(one: Mapping[str, Any]) -> dict[str, Any]:
    """A missing answer without the id of its prompt; one that stands for all prompts has none."""
    prompt = one.get("prompt")
    if not prompt:
        return dict(one)
    return {**one, "prompt": None, "reason": str(one.get("reason", "")).replace(prompt, "the prompt")}
