"""A release gate's evidence as JUnit XML for a pipeline, and as Markdown for people who read its summary.

Both are made of the stored document, so that `--show` gives them again. Reasons can quote what servers sent, so nothing
in them may act as XML, HTML, a link or a mention.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Any

from quantwatch.cli.accept_words import ADVICE, ANSWERS, GATES, VERDICTS, figures_line
from quantwatch.pages.quoted import quoted

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 does not allow, section 2.2."""


def junit_xml(document: dict[str, Any]) -> str:
    """One test case a gate of a task set: a failed gate is a failure, one that cannot tell an error."""
    cases = list(_cases(document))
    counts = {kind: str(sum(verdict == kind for _, _, verdict, _ in cases)) for kind in ("fail", "cannot_tell")}
    totals = {
        "tests": str(len(cases)),
        "failures": counts["fail"],
        "errors": counts["cannot_tell"],
        "time": f"{document['seconds']:.3f}",
    }
    root = ET.Element("testsuites", {"name": "quantwatch accept", **totals})
    about = {"skipped": "0", "timestamp": _clean(document["started_at"]), "id": _clean(document["id"])}
    suite = ET.SubElement(root, "testsuite", {"name": "quantwatch accept", **totals, **about})
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(document):
        ET.SubElement(properties, "property", {"name": name, "value": _clean(str(value))})
    for task_set, gate, verdict, reasons in cases:
        place = {"classname": f"quantwatch.accept.{_clean(task_set)}", "name": GATES[gate], "time": "0"}
        case = ET.SubElement(suite, "testcase", place)
        if verdict != "pass":
            tag = "failure" if verdict == "fail" else "error"
            told = ET.SubElement(case, tag, {"message": _clean(reasons[0]), "type": verdict})
            told.text = _clean("\n".join(reasons))
        else:
            ET.SubElement(case, "system-out").text = _clean("\n".join(reasons))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _cases(document: dict[str, Any]) -> Iterator[tuple[str, str, str, list[str]]]:
    for one in document["task_sets"]:
        for gate in one["gates"]:
            yield one["name"], gate["gate"], gate["verdict"], gate["reasons"]


def _properties(document: dict[str, Any]) -> Iterator[tuple[str, object]]:
    yield "answer", document["answer"]
    yield "evidence", document["id"]
    yield "evidence.digest", document["digest"]
    yield "quantwatch", document["quantwatch"]
    for name in ("file", "digest", "scheme", "seed"):
        yield f"plan.{name}", document["plan"][name]
    for name, identity in _identities(document):
        for field in ("url", "model", "version"):
            yield f"{name}.{field}", identity[field]


def _identities(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "candidate", document["candidate"]["identity"]
    yield "baseline", document["baseline"]
    if document["running"] is not None:
        yield "running", document["running"]["identity"]


def _clean(text: str) -> str:
    return NOT_XML.sub("\ufffd", text)


def markdown_page(document: dict[str, Any]) -> str:
    """The answer, what to do about it, and a row for every gate."""
    lines = [f"## Release gate: {ANSWERS[document['answer']]}", "", ADVICE[document["answer"]], ""]
    lines += ["| task set | gate | verdict | numbers | why |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(cells)} |" for cells in _rows(document)]
    notes = [f"- {quoted(one['name'])}: {quoted(note)}" for one in document["task_sets"] for note in one["notes"]]
    lines += ["", *notes] if notes else []
    who = [f"{name} {quoted(str(one['model']))} ({quoted(str(one['version']))})" for name, one in _identities(document)]
    plan = f"plan {quoted(document['plan']['digest'])}, seed {document['plan']['seed']}"
    lines += ["", f"{'; '.join(who)}; {plan}; evidence `{document['id']}`, quantwatch {document['quantwatch']}."]
    return "\n".join(lines) + "\n"


def _rows(document: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for one in document["task_sets"]:
        for gate in one["gates"]:
            numbers = "<br>".join(quoted(figures_line(figure)) for figure in gate["figures"]) or "-"
            reasons = "<br>".join(quoted(reason) for reason in gate["reasons"])
            yield quoted(one["name"]), GATES[gate["gate"]], f"**{VERDICTS[gate['verdict']]}**", numbers, reasons
