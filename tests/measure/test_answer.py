"""Answers against their schema."""

from typing import Any

import pytest

from quantwatch.flow.canary import Sign
from quantwatch.measure.answer import fault

SCHEMA: dict[str, Any] = {"type": "object", "required": ["unit"], "properties": {"unit": {"type": "string"}}}


def sign(text: str, schema: dict[str, Any]) -> Sign | None:
    found = fault(text, schema)
    return None if found is None else found[0]


@pytest.mark.parametrize(
    "text",
    [
        '{"unit": "3B"}',
        ' \n{"unit": "3B"}\n',
        '```json\n{"unit": "3B"}\n```',
        '```\n{"unit": "3B"}```',
        '<think>\nIs it {"unit"}?\n</think>\n\n{"unit": "3B"}',
        '{"unit": "<tool_call>"}',
    ],
)
def test_a_fitting_answer_has_no_fault(text: str) -> None:
    assert sign(text, SCHEMA) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('Here it is: {"unit": "3B"}', Sign.NOT_JSON),
        ('{"unit": "3B"', Sign.NOT_JSON),
        ('{"unit": Infinity}', Sign.NOT_JSON),
        ("1" * 5000, Sign.NOT_JSON),
        ('{"unit": 3}', Sign.SCHEMA_MISMATCH),
        ("[]", Sign.SCHEMA_MISMATCH),
        ('[TOOL_CALLS] [{"name": "x"}]', Sign.TOOL_CALL_AS_TEXT),
        ("<function=x>{}</function>", Sign.TOOL_CALL_AS_TEXT),
        ("", Sign.NOT_JSON),
    ],
)
def test_every_fault_has_its_class(text: str, found: Sign) -> None:
    assert sign(text, SCHEMA) is found


def test_a_value_outside_its_list_is_no_unknown_name_where_it_names_no_call() -> None:
    schema = {"type": "object", "properties": {"area": {"enum": ["heating"]}}}

    assert sign('{"area": "cooling"}', schema) is Sign.SCHEMA_MISMATCH


BRANCHES = {
    "oneOf": [
        {"properties": {"tool": {"const": "log"}, "args": {"type": "object"}}},
        {"properties": {"tool": {"const": "page"}, "args": {"type": "array"}}},
    ]
}


def test_a_name_that_no_branch_has_is_unknown() -> None:
    assert sign('{"tool": "erase", "args": {}}', BRANCHES) is Sign.UNKNOWN_NAME


def test_a_name_that_a_branch_has_with_wrong_arguments_is_a_mismatch() -> None:
    assert sign('{"tool": "page", "args": {}}', BRANCHES) is Sign.SCHEMA_MISMATCH


def test_names_in_chinese_are_names() -> None:
    schema = {"type": "object", "properties": {"接口": {"const": "下单"}}}

    assert sign('{"接口": "退单"}', schema) is Sign.UNKNOWN_NAME


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "no such type"},
        {"$ref": "https://schemas.example/never-fetched.json"},
        {"$ref": "#/$defs/missing"},
        {"$ref": "#"},
    ],
)
def test_a_schema_that_cannot_be_used_is_held_against_nobody(schema: dict[str, Any]) -> None:
    assert fault('{"unit": 3}', schema) is None


def test_what_a_message_quotes_of_an_answer_is_short() -> None:
    found = fault('{"unit": ["' + "x" * 5000 + '"]}', SCHEMA)

    assert found is not None
    assert len(found[1]) < 140
