"""Whether an answer is the JSON that its prompt asked for; the three classes in which tool calls break.

K2 Vendor Verifier and Auto Exacto count calls the same way: no JSON at all, a name that was not offered, arguments that
do not fit. A call that a server left as markup in the text is told apart, since there the parser is at fault.
"""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quantwatch.flow.canary import Sign
from quantwatch.measure.text import quote

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, ValidationError

MARKUP = re.compile(
    r"</?tool_call>|<\|tool_call|\[TOOL_CALLS\]|<function=|<\|python_tag\|>|<｜tool▁call|<invoke |functools\["
)
"""How chat templates write calls that a server should have parsed."""

THINKING = re.compile(r"^.*</think>", re.DOTALL)
FENCE = re.compile(r"^```\w*\n(.*?)\n?```$", re.DOTALL)

NAME_KEYS = frozenset(
    {
        *("name", "tool", "tool_name", "function", "function_name", "call", "action", "method", "procedure", "command"),
        *("op", "do", "工具", "函数", "接口", "调用", "能力", "方法"),
    }
)
"""Keys under which calls are named."""


def fault(text: str, schema: Mapping[str, Any]) -> tuple[Sign, str] | None:
    """What is wrong with an answer, and how to say so; None where nothing is, or where the schema cannot be used.

    Thinking before the answer and one fence around it are taken off: what they are worth is not for us to say. schema:
    JSON schema, draft 2020-12; nothing that it refers to is fetched.
    """
    body = THINKING.sub("", text).strip()
    inside = FENCE.match(body)
    try:
        answer = json.loads(inside[1] if inside else body, parse_constant=_refuse)
    except (ValueError, RecursionError):
        if MARKUP.search(text):
            return Sign.TOOL_CALL_AS_TEXT, "an answer holds the markup of a tool call where JSON was asked for"
        return Sign.NOT_JSON, "an answer is not the JSON that was asked for"
    return _mismatch(answer, schema)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _mismatch(answer: Any, schema: Mapping[str, Any]) -> tuple[Sign, str] | None:
    from jsonschema import SchemaError  # noqa: PLC0415, only prompts with a schema need it
    from jsonschema.exceptions import best_match  # noqa: PLC0415
    from referencing.exceptions import Unresolvable  # noqa: PLC0415

    try:
        errors = list(_validator(schema).iter_errors(answer))
    except (SchemaError, Unresolvable, RecursionError):
        return None
    if not errors:
        return None
    named = next((one for one in errors if _names_what_is_not_there(one)), None)
    if named is not None:
        return Sign.UNKNOWN_NAME, f"an answer calls what was not offered, at {quote(named.json_path)}"
    return Sign.SCHEMA_MISMATCH, f"an answer does not fit its schema: {quote(best_match(errors).message)}"


def _validator(schema: Mapping[str, Any]) -> "Draft202012Validator":
    from jsonschema import Draft202012Validator  # noqa: PLC0415
    from referencing import Registry  # noqa: PLC0415

    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, registry=Registry())


def _names_what_is_not_there(error: "ValidationError") -> bool:
    """Whether a name is at fault; where the schema offers branches, in every one of them."""
    if not error.context:
        path, given = error.absolute_path, error.instance
        return error.validator in ("const", "enum") and isinstance(given, str) and bool(path) and path[-1] in NAME_KEYS
    branches: dict[object, bool] = {}
    for one in error.context:
        branch = one.relative_schema_path[0]
        branches[branch] = branches.get(branch, False) or _names_what_is_not_there(one)
    return all(branches.values())
