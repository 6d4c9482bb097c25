"""The shipped golden prompts: complete, fit for their task, and free of other people's addresses."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from quantwatch.flow.prompt import LengthBucket, ProbeMode, Prompt, PromptSet
from quantwatch.prompts.estimate import estimated_tokens
from quantwatch.prompts.lint import faults
from quantwatch.prompts.load import load_set

GOLDEN = Path(__file__).resolve().parents[2] / "golden_prompts"
SIZES = {
    "chat": 48,
    "chinese": 48,
    "code": 48,
    "json_tools": 48,
    "long_context": 24,
    "math": 48,
    "prose": 48,
    "sql": 48,
}
EACH_SET = pytest.mark.parametrize("name", SIZES)
RESERVED = ("example.com", "localhost", ".example.com", ".example", ".test", ".invalid", ".localhost")
ADDRESS = re.compile(r"(?:https?://(?:[^\s/@]*@)?|[\w.+-]+@)([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)")


@cache
def pool(name: str) -> PromptSet:
    return load_set(GOLDEN / f"{name}.yaml")


def prompt(name: str, prompt_id: str) -> Prompt:
    (found,) = (one for one in pool(name).prompts if one.id == prompt_id)
    return found


def real_hosts(text: str) -> list[str]:
    """Hosts of URLs and mail addresses that could belong to somebody; a name without a dot is no public host."""
    hosts = [host.lower() for host in ADDRESS.findall(text)]
    return [host for host in hosts if "." in host and not host.endswith(RESERVED) and not is_private(host)]


def is_private(host: str) -> bool:
    """Loopback and private or documentation addresses."""
    return host.startswith(("127.", "10.", "192.168.", "192.0.2.", "198.51.100.", "203.0.113."))


def test_the_shipped_sets_are_the_eight_of_the_design() -> None:
    assert sorted(path.name for path in GOLDEN.glob("*.yaml")) == [f"{name}.yaml" for name in sorted(SIZES)]


def test_beside_the_sets_lie_only_the_prompts_that_calibrate_a_quantization() -> None:
    others = [path for path in GOLDEN.rglob("*") if path.is_file() and path.parent != GOLDEN]
    assert [str(path.relative_to(GOLDEN)) for path in others] == ["calibration/general.yaml"]


@EACH_SET
def test_a_set_is_named_after_its_file(name: str) -> None:
    assert pool(name).name == name


@EACH_SET
def test_a_set_has_all_its_prompts(name: str) -> None:
    assert len(pool(name).prompts) == SIZES[name]


@EACH_SET
def test_a_set_has_no_faults(name: str) -> None:
    assert faults(pool(name)) == []


@EACH_SET
def test_ids_start_with_the_name_of_their_set(name: str) -> None:
    start = name.replace("_", "-") + "-"
    assert [one.id for one in pool(name).prompts if not one.id.startswith(start)] == []


@EACH_SET
def test_a_set_is_free_to_use(name: str) -> None:
    assert yaml.safe_load((GOLDEN / f"{name}.yaml").read_text(encoding="utf-8"))["license"] == "Apache-2.0"


def test_no_id_stands_in_two_sets() -> None:
    times = Counter(one.id for name in SIZES for one in pool(name).prompts)
    assert [prompt_id for prompt_id, count in times.items() if count > 1] == []


def test_no_text_stands_in_two_sets() -> None:
    times = Counter(one.content for name in SIZES for one in pool(name).prompts)
    assert [text[:60] for text, count in times.items() if count > 1] == []


@EACH_SET
def test_a_set_holds_several_kinds_of_prompts(name: str) -> None:
    assert len({(one.length, one.tags) for one in pool(name).prompts}) >= 3


@EACH_SET
def test_a_set_holds_several_lengths(name: str) -> None:
    sizes = [estimated_tokens(one.content) for one in pool(name).prompts]
    assert max(sizes) > 2 * min(sizes)


@EACH_SET
def test_prompts_hold_nobodys_address(name: str) -> None:
    assert {one.id: real_hosts(one.content) for one in pool(name).prompts if real_hosts(one.content)} == {}


ADDRESSES = [
    ("write to jo@gmail.com now", ["gmail.com"]),
    ("see https://www.python.org/x", ["www.python.org"]),
    ("http://user:pw@db.shop.io:80/", ["db.shop.io"]),
    ("https://notexample.org", ["notexample.org"]),
    ("a@canal.example b@x.test https://api.example.com http://localhost:8000 http://stream:8000/main", []),
    ("http://127.0.0.1:9/ http://192.0.2.7/", []),
    ("http://93.184.216.34/", ["93.184.216.34"]),
    ("no address @ all", []),
]


@pytest.mark.parametrize(("text", "hosts"), ADDRESSES)
def test_the_search_for_addresses_finds_real_ones_only(text: str, hosts: list[str]) -> None:
    assert real_hosts(text) == hosts


@pytest.mark.parametrize("prompt_id", ["math-ftc-proof-cpp", "math-complex-eigenvalues"])
def test_the_classic_mathematics_is_asked_in_chinese(prompt_id: str) -> None:
    assert prompt("math", prompt_id).language == "zh"


def test_the_classic_deadlock_is_asked_step_by_step() -> None:
    assert "deadlock" in prompt("sql", "sql-deadlock-step-by-step").content.lower()


def test_every_structured_answer_has_a_schema() -> None:
    assert [one.id for one in pool("json_tools").prompts if not one.answer_schema] == []


@pytest.mark.parametrize(
    "one", [one for name in SIZES for one in pool(name).prompts if one.answer_schema], ids=lambda p: p.id
)
def test_an_answer_schema_is_valid(one: Prompt) -> None:
    Draft202012Validator.check_schema(one.answer_schema)


@pytest.mark.parametrize("one", pool("json_tools").prompts, ids=lambda one: one.id)
def test_an_answer_schema_refuses_an_answer_of_the_wrong_kind(one: Prompt) -> None:
    assert not Draft202012Validator(one.answer_schema).is_valid("I am sorry, I cannot do that.")


def test_the_chinese_set_is_chinese_throughout() -> None:
    assert {one.language for one in pool("chinese").prompts} == {"zh"}


def test_every_prompt_said_to_be_chinese_has_chinese_characters() -> None:
    said = [one for name in SIZES for one in pool(name).prompts if one.language == "zh"]
    assert [one.id for one in said if len(re.findall(r"[\u4e00-\u9fff]", one.content)) < 10] == []


def test_long_prompts_are_long_but_affordable() -> None:
    sizes = {one.id: estimated_tokens(one.content) for one in pool("long_context").prompts}
    assert {name: size for name, size in sizes.items() if not 1000 <= size <= 4000} == {}


def test_the_long_set_is_asked_token_by_token() -> None:
    assert pool("long_context").mode is ProbeMode.ONE_TOKEN


def test_every_long_prompt_says_so() -> None:
    assert {one.length for one in pool("long_context").prompts} == {LengthBucket.LONG}
