"""Every fault of a configuration file is told with file, line, key, what was found and what is allowed."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from quantwatch.config.load import load_settings
from quantwatch.errors import ConfigError, Problem

GOOD = """\
schema: 1
baseline:
  url: http://fp16.test:8000
targets:
  - name: node-a
    url: http://a.test:8000
    scheme: int8
    pool: llama
pools:
  llama:
    mode: observe
task_sets:
  math: {}
"""
SHIPPED = {"math": Path("math.yaml"), "sql": Path("sql.yaml")}
BASELINE = "  url: http://fp16.test:8000\n"
NODE = "    pool: llama\n"
POOL = "    mode: observe\n"
SET = "  math: {}\n"


@dataclass(frozen=True)
class Fault:
    """An edit of a good file, the text on the line that is to blame, and what must be said."""

    old: str
    new: str
    at: str
    key: str
    words: tuple[str, ...]


def edited(*edits: tuple[str, str]) -> str:
    text = GOOD
    for old, new in edits:
        assert text.count(old) == 1, f"{old!r} must stand in the good file once"
        text = text.replace(old, new)
    return text


def line_of(text: str, marker: str) -> int:
    (line,) = (number for number, content in enumerate(text.splitlines(), 1) if marker in content)
    return line


def problems_of(text: str, folder: Path) -> tuple[Problem, ...]:
    file = folder / "quantwatch.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings(file, shipped=SHIPPED)
    return caught.value.problems


def test_the_file_that_the_faults_are_put_into_is_good(tmp_path: Path) -> None:
    file = tmp_path / "quantwatch.yaml"
    file.write_text(GOOD, encoding="utf-8")
    assert [target.name for target in load_settings(file, shipped=SHIPPED).targets] == ["node-a"]


UNKNOWN_KEYS = {
    "top level": Fault(SET, SET + "prob: {}\n", "prob:", "prob", ("unknown key", "did you mean probe?", "baseline,")),
    "baseline": Fault(
        BASELINE, BASELINE + "  modle: m\n", "modle", "baseline.modle", ("did you mean model?", "url, model, api_key")
    ),
    "inside a list": Fault(
        NODE, NODE + "    shceme: int4\n", "shceme", "targets[0].shceme", ("did you mean scheme?", "pool")
    ),
    "inside a mapping of names": Fault(
        POOL, POOL + "    fallbak: x\n", "fallbak", "pools.llama.fallbak", ("did you mean fallback?", "max_isolated")
    ),
    "inside an optional block": Fault(
        SET,
        "  math:\n    limits:\n      kl_mean:\n        critcal: 1\n",
        "critcal",
        "task_sets.math.limits.kl_mean.critcal",
        ("did you mean critical?", "allowed here: warn, critical"),
    ),
    "limits of a scheme": Fault(
        SET,
        SET + "limits:\n  int4:\n    kl_men: {}\n",
        "kl_men",
        "limits.int4.kl_men",
        ("did you mean kl_mean?", "top1_agreement"),
    ),
    "nothing near it": Fault(SET, SET + "zzz: 1\n", "zzz", "zzz", ("unknown key; allowed here: schema, baseline",)),
}

MISSING_KEYS = {
    "schema": Fault("schema: 1\n", "", "baseline:", "schema", ("required and missing",)),
    "scheme": Fault("    scheme: int8\n", "", "name: node-a", "targets[0].scheme", ("required and missing",)),
    "url": Fault(BASELINE, "  model: m\n", "baseline:", "baseline.url", ("required and missing",)),
    "pools": Fault("pools:\n  llama:\n    mode: observe\n", "", "schema: 1", "pools", ("required and missing",)),
}

WRONG_TYPES = {
    "text for a number": Fault(
        SET, "  math:\n    k: many\n", "k: many", "task_sets.math.k", ("valid integer", "'many'")
    ),
    "fraction": Fault(SET, "  math:\n    k: 2.5\n", "k: 2.5", "task_sets.math.k", ("valid integer", "2.5")),
    "too small": Fault(SET, "  math:\n    draw: 1\n", "draw: 1", "task_sets.math.draw", ("equal to 2", "found 1")),
    "too large": Fault(SET, "  math:\n    k: 1001\n", "k: 1001", "task_sets.math.k", ("equal to 1000", "1001")),
    "number for a name": Fault("name: node-a", "name: 5", "name: 5", "targets[0].name", ("valid string", "found 5")),
    "space in a name": Fault(
        "name: node-a", "name: node a", "node a", "targets[0].name", ("match pattern", "'node a'")
    ),
    "number for a block": Fault(
        SET, "  math:\n    limits: 5\n", "limits: 5", "task_sets.math.limits", ("valid dictionary", "found 5")
    ),
    "no list": Fault(SET, "  math: [1]\n", "math: [1]", "task_sets.math", ("valid dictionary", "found a list")),
    "not an address": Fault(
        BASELINE, "  url: fp16.test:8000\n", "url: fp16", "baseline.url", ("^https?://", "'fp16.test:8000'")
    ),
    "no port": Fault(
        SET, SET + "server:\n  listen: localhost\n", "listen: l", "server.listen", ("match pattern", "'localhost'")
    ),
    "long value is cut": Fault(
        "name: node-a", f"name: {'x' * 200}", "name: x", "targets[0].name", ("at most 80", "xxx...")
    ),
}

UNITS = {
    "whole number for a duration": Fault(
        SET,
        SET + "probe:\n  timeout: 5\n",
        "timeout",
        "probe.timeout",
        ("a duration with its unit", "30s", "write 5s", "found 5"),
    ),
    "text without a unit": Fault(
        SET, SET + "store:\n  keep: '90'\n", "keep", "store.keep", ("a duration with its unit", "found '90'")
    ),
    "unknown unit": Fault(
        SET, SET + "store:\n  keep: 3 weeks\n", "keep", "store.keep", ("a duration with its unit", "'3 weeks'")
    ),
    "number for a size": Fault(
        SET,
        SET + "probe:\n  max_response_size: 64\n",
        "max_response_size",
        "probe.max_response_size",
        ("a size with its unit", "write 64MiB", "found 64"),
    ),
    "share over one": Fault(
        POOL,
        POOL + "    max_isolated: 34\n",
        "max_isolated",
        "pools.llama.max_isolated",
        ("a share such as 50% or 0.5", "found 34"),
    ),
    "share over 100 %": Fault(
        POOL,
        POOL + "    max_isolated: 120%\n",
        "max_isolated",
        "pools.llama.max_isolated",
        ("a share such as 50%", "'120%'"),
    ),
    "share below zero": Fault(
        SET, SET + "probe:\n  max_kv_usage: -0.1\n", "max_kv_usage", "probe.max_kv_usage", ("a share such as", "-0.1")
    ),
    "yes is no share": Fault(
        POOL, POOL + "    max_isolated: yes\n", "max_isolated", "pools.llama.max_isolated", ("a share such as",)
    ),
}

SCHEDULES = {
    "cron out of range": Fault(
        SET,
        "  math:\n    schedule:\n      cron: 61 * * * *\n",
        "cron",
        "task_sets.math.schedule.cron",
        ("not a crontab expression (minute hour day month weekday)", "61", "59"),
    ),
    "cron with too few fields": Fault(
        SET,
        "  math:\n    schedule:\n      cron: often\n",
        "cron",
        "task_sets.math.schedule.cron",
        ("not a crontab expression", "expected 5", "'often'"),
    ),
    "both": Fault(
        SET,
        "  math:\n    schedule: {every: 5m, cron: '* * * * *'}\n",
        "schedule",
        "task_sets.math.schedule",
        ("exactly one of every and cron",),
    ),
    "neither": Fault(
        SET,
        "  math:\n    schedule: {}\n",
        "schedule",
        "task_sets.math.schedule",
        ("exactly one of every and cron",),
    ),
    "too often": Fault(
        SET,
        "  math:\n    schedule: {every: 9s}\n",
        "schedule",
        "task_sets.math.schedule",
        ("every 9s is too often", "10s is the least"),
    ),
}

CHOICES = {
    "scheme": Fault("int8", "int3", "int3", "targets[0].scheme", ("found 'int3'", "'fp8'", "did you mean int8?")),
    "mode of a pool": Fault(
        "observe", "enforced", "enforced", "pools.llama.mode", ("'enforced'", "'dry_run'", "did you mean enforce?")
    ),
    "probe mode": Fault(
        SET,
        "  math:\n    mode: onetoken\n",
        "onetoken",
        "task_sets.math.mode",
        ("'prompt_scoring'", "did you mean one_token?"),
    ),
    "driver": Fault(
        SET,
        SET + "gateway:\n  driver: webhok\n",
        "webhok",
        "gateway.driver",
        ("'verdict'", "did you mean webhook?"),
    ),
    "log level": Fault(
        SET, SET + "logging:\n  level: warn\n", "level", "logging.level", ("'debug'", "did you mean warning?")
    ),
    "scheme of limits": Fault(
        SET, SET + "limits:\n  int44: {}\n", "int44", "limits.int44", ("found 'int44'", "did you mean int4?")
    ),
    "schema of the future": Fault("schema: 1", "schema: 2", "schema", "schema", ("found 2", "allowed: 1")),
    "nothing near it": Fault("int8", "gguf", "gguf", "targets[0].scheme", ("found 'gguf'; allowed: 'int8', 'int4'",)),
}

BLOCKS = {
    "certificate without key": Fault(
        BASELINE,
        BASELINE + "  tls: {certificate_file: c.pem}\n",
        "tls",
        "baseline.tls",
        ("certificate_file and key_file go together",),
    ),
    "key without certificate": Fault(
        BASELINE,
        BASELINE + "  tls: {key_file: k.pem}\n",
        "tls",
        "baseline.tls",
        ("certificate_file and key_file go together",),
    ),
    "webhook without url": Fault(
        SET, SET + "gateway: {driver: webhook}\n", "gateway", "gateway", ("driver webhook needs url",)
    ),
    "url without webhook": Fault(
        SET, SET + "gateway: {url: 'http://g.test'}\n", "gateway", "gateway", ("url has no meaning for driver dry_run",)
    ),
    "no targets": Fault(
        GOOD[GOOD.index("targets:") : GOOD.index("pools:")], "targets: []\n", "targets", "targets", ("at least 1",)
    ),
}

DANGLING = {
    "pool with a near name": Fault(
        "  llama:\n", "  lama:\n", "pool: llama", "targets[0].pool", ("no pool llama", "did you mean lama?")
    ),
    "fallback with a near name": Fault(
        POOL,
        POOL + "    fallback: baselin\n",
        "fallback",
        "pools.llama.fallback",
        ("no fallback baselin", "did you mean baseline?", "known: baseline"),
    ),
    "fallback in its own pool": Fault(
        POOL,
        POOL + "    fallback: node-a\n",
        "fallback",
        "pools.llama.fallback",
        ("no fallback node-a", "known: baseline"),
    ),
    "pool without targets": Fault(
        POOL, POOL + "  spare: {}\n", "spare", "pools.spare", ("no target belongs to this pool",)
    ),
    "pool of one may act without fallback": Fault(
        "observe", "enforce", "llama:", "pools.llama", ("pool of one", "needs a fallback")
    ),
    "pool of one may act after approval": Fault(
        "observe", "approve", "llama:", "pools.llama", ("pool of one", "needs a fallback")
    ),
    "task set": Fault(
        "math:", "mth:", "mth:", "task_sets.mth", ("no shipped task set mth", "did you mean math?", "math, sql")
    ),
    "prompts file": Fault(
        SET, "  math: {prompts: nope.yaml}\n", "nope", "task_sets.math.prompts", ("no such prompts file", "nope.yaml")
    ),
    "name used twice": Fault(
        NODE,
        NODE + "  - {url: 'http://b.test', scheme: int8, pool: llama, name: node-a}\n",
        "b.test",
        "targets[1].name",
        ("node-a is the name of targets[0] already",),
    ),
    "one node under two names": Fault(
        NODE,
        NODE + "  - {url: 'http://a.test:8000/', scheme: int8, pool: llama, name: node-b}\n",
        "node-b",
        "targets[1].url",
        ("targets[0] has this URL and model already",),
    ),
    "baseline against itself": Fault(
        "http://a.test:8000", "http://fp16.test:8000/", "8000/", "targets[0].url", ("baseline's URL", "against itself")
    ),
}

ALL = {
    f"{kind}: {name}": fault
    for kind, faults in {
        "unknown key": UNKNOWN_KEYS,
        "missing key": MISSING_KEYS,
        "wrong type": WRONG_TYPES,
        "units": UNITS,
        "schedule": SCHEDULES,
        "choice": CHOICES,
        "block": BLOCKS,
        "dangling": DANGLING,
    }.items()
    for name, fault in faults.items()
}


def at_the_key(fault: Fault, folder: Path) -> Problem:
    """The one problem at the key that is to blame."""
    (problem,) = (one for one in problems_of(edited((fault.old, fault.new)), folder) if one.key == fault.key)
    return problem


@pytest.mark.parametrize("fault", ALL.values(), ids=ALL.keys())
def test_a_fault_names_file_line_and_key(fault: Fault, tmp_path: Path) -> None:
    problem = at_the_key(fault, tmp_path)
    line = line_of(edited((fault.old, fault.new)), fault.at)
    assert str(problem).startswith(f"{tmp_path / 'quantwatch.yaml'}:{line}: {fault.key}: ")


@pytest.mark.parametrize("fault", ALL.values(), ids=ALL.keys())
def test_a_fault_tells_what_was_found_and_what_is_allowed(fault: Fault, tmp_path: Path) -> None:
    message = at_the_key(fault, tmp_path).message
    assert [word for word in fault.words if word not in message] == [], message


@pytest.mark.parametrize("fault", ALL.values(), ids=ALL.keys())
def test_a_single_fault_is_one_problem(fault: Fault, tmp_path: Path) -> None:
    renamed_pool = fault is DANGLING["pool with a near name"]  # leaves the new name without a target as well
    assert len(problems_of(edited((fault.old, fault.new)), tmp_path)) == 1 + renamed_pool


def test_a_long_value_is_not_repeated_whole(tmp_path: Path) -> None:
    (problem,) = problems_of(edited(("name: node-a", f"name: {'x' * 200}")), tmp_path)
    assert "x" * 60 not in problem.message


def test_a_pool_of_two_may_act_without_a_fallback(tmp_path: Path) -> None:
    second = "  - {name: node-b, url: 'http://b.test', scheme: int8, pool: llama}\n"
    file = tmp_path / "quantwatch.yaml"
    half = "    mode: enforce\n    max_isolated: 50%\n"
    file.write_text(edited((NODE, NODE + second), (POOL, half)), encoding="utf-8")
    assert load_settings(file, shipped=SHIPPED).pools["llama"].mode == "enforce"


def test_a_cap_under_one_target_could_never_act(tmp_path: Path) -> None:
    second = "  - {name: node-b, url: 'http://b.test', scheme: int8, pool: llama}\n"
    (problem,) = problems_of(edited((NODE, NODE + second), ("observe", "enforce")), tmp_path)
    assert problem.key == "pools.llama.max_isolated"
    assert "34% of 2 targets" in problem.message
    assert "50%" in problem.message


def test_a_cap_of_nothing_at_all_is_a_choice(tmp_path: Path) -> None:
    second = "  - {name: node-b, url: 'http://b.test', scheme: int8, pool: llama}\n"
    file = tmp_path / "quantwatch.yaml"
    none = "    mode: enforce\n    max_isolated: 0%\n"
    file.write_text(edited((NODE, NODE + second), (POOL, none)), encoding="utf-8")
    assert load_settings(file, shipped=SHIPPED).pools["llama"].max_isolated == 0


def test_an_admin_address_beyond_loopback_needs_a_token(tmp_path: Path) -> None:
    (problem,) = problems_of(GOOD + "server: {admin_listen: '0.0.0.0:9470'}\n", tmp_path)
    assert "admin_token" in problem.message


def test_a_target_of_another_pool_is_a_fallback(tmp_path: Path) -> None:
    second = "  - {name: node-b, url: 'http://b.test', scheme: int8, pool: other}\n"
    text = edited((NODE, NODE + second), (POOL, POOL + "    fallback: node-b\n  other: {}\n"))
    file = tmp_path / "quantwatch.yaml"
    file.write_text(text, encoding="utf-8")
    assert load_settings(file, shipped=SHIPPED).pools["llama"].fallback == "node-b"


def test_a_prompts_file_is_looked_for_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("anything", encoding="utf-8")
    file = tmp_path / "quantwatch.yaml"
    file.write_text(edited((SET, "  mine: {prompts: own.yaml}\n")), encoding="utf-8")
    assert load_settings(file, shipped=SHIPPED).task_sets["mine"].prompts == "own.yaml"


DUPLICATES = {
    "top level": (("schema: 1\n", "schema: 1\nschema: 1\n"), 2, "schema", 1),
    "nested": ((BASELINE, BASELINE + "  model: m\n  url: http://b.test\n"), 5, "baseline.url", 3),
    "inside a list": ((NODE, NODE + "    name: node-b\n"), 9, "targets[0].name", 5),
    "a whole task set": ((SET, SET + "  sql: {}\n  math: {k: 5}\n"), 15, "task_sets.math", 13),
    "flow style": ((SET, "  math: {k: 5,\n    k: 6}\n"), 14, "task_sets.math.k", 13),
}


@pytest.mark.parametrize(("edit", "line", "key", "first"), DUPLICATES.values(), ids=DUPLICATES.keys())
def test_a_duplicate_key_names_both_lines(
    edit: tuple[str, str], line: int, key: str, first: int, tmp_path: Path
) -> None:
    (problem,) = problems_of(edited(edit), tmp_path)
    told = f"{tmp_path / 'quantwatch.yaml'}:{line}: {key}: duplicate key; it stands on line {first} already"
    assert str(problem) == told


def test_every_repetition_of_a_key_is_told(tmp_path: Path) -> None:
    found = problems_of(edited(("schema: 1\n", "schema: 1\nschema: 1\nschema: 1\n")), tmp_path)
    assert [problem.line for problem in found] == [2, 3]


def test_the_same_key_in_two_blocks_is_no_duplicate(tmp_path: Path) -> None:
    file = tmp_path / "quantwatch.yaml"
    file.write_text(edited((SET, "  math: {k: 5}\n  sql: {k: 6}\n")), encoding="utf-8")
    assert load_settings(file, shipped=SHIPPED).task_sets["sql"].k == 6


BAD_YAML = {
    "colon in a value": ("schema: 1\na: b: c\n", 2, "mapping values are not allowed"),
    "open list": ("a: [1\nb: 2\n", 2, "no valid YAML"),
    "open quote": ('a: 1\nb: "x\n', 3, "no valid YAML"),
    "unknown tag": ("a: 1\nb: !python/name:os.system x\n", 2, "could not determine a constructor"),
    "unknown anchor": ("a: 1\nb: *nobody\n", 2, "undefined alias"),
    "two documents": ("a: 1\n---\nb: 2\n", 2, "another document"),
    "list as a key": ("a: 1\n? [x, y]\n: 3\n", 2, "no valid YAML"),
    "tab for an indent": ("a:\n\tb: 1\n", 2, "no valid YAML"),
}


@pytest.mark.parametrize(("text", "line", "words"), BAD_YAML.values(), ids=BAD_YAML.keys())
def test_bad_yaml_is_told_with_its_line(text: str, line: int, words: str, tmp_path: Path) -> None:
    (problem,) = problems_of(text, tmp_path)
    assert problem.line == line
    assert "no valid YAML" in problem.message
    assert words in problem.message


def test_a_control_character_is_no_valid_yaml(tmp_path: Path) -> None:
    (problem,) = problems_of("a: \x00\n", tmp_path)
    assert "no valid YAML" in problem.message


def test_a_block_that_contains_itself_is_refused(tmp_path: Path) -> None:
    assert problems_of("a: &loop [*loop]\n", tmp_path)


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "null\n"])
def test_an_empty_file_is_refused(text: str, tmp_path: Path) -> None:
    (problem,) = problems_of(text, tmp_path)
    assert (problem.line, problem.message) == (1, "the file is empty; a mapping of keys is wanted")


@pytest.mark.parametrize(("text", "found"), [("- a\n- b\n", "list"), ("words\n", "str"), ("7\n", "int")])
def test_a_file_that_is_no_mapping_is_refused(text: str, found: str, tmp_path: Path) -> None:
    (problem,) = problems_of(text, tmp_path)
    assert problem.message == f"the file holds a {found}; a mapping of keys is wanted"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.yaml: no such file$"):
        load_settings(tmp_path / "gone.yaml", shipped=SHIPPED)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(tmp_path, shipped=SHIPPED)


def test_a_file_in_another_encoding_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "latin1.yaml"
    file.write_bytes("schema: 1 # für\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin1\.yaml: cannot be read: "):
        load_settings(file, shipped=SHIPPED)


def test_several_faults_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = edited(("schema: 1", "schema: 2"), ("int8", "int3"), (SET, "  math: {k: x}\nzzz: 1\n"))
    found = problems_of(text, tmp_path)
    assert [(problem.line, problem.key) for problem in found] == [
        (1, "schema"),
        (7, "targets[0].scheme"),
        (13, "task_sets.math.k"),
        (14, "zzz"),
    ]


def test_the_order_is_that_of_the_file_not_of_the_schema(tmp_path: Path) -> None:
    found = problems_of("zzz: 1\nlogging: {level: loud}\n" + edited(("schema: 1", "schema: 2")), tmp_path)
    assert [(problem.line, problem.key) for problem in found] == [(1, "zzz"), (2, "logging.level"), (3, "schema")]


def test_every_repetition_of_a_name_is_told_with_its_first_place(tmp_path: Path) -> None:
    again = "  - {{name: node-a, url: 'http://{}.test', scheme: int8, pool: llama}}\n"
    found = problems_of(edited((NODE, NODE + again.format("b") + again.format("c"))), tmp_path)
    first = "node-a is the name of targets[0] already"
    assert [(problem.key, problem.message) for problem in found] == [
        ("targets[1].name", first),
        ("targets[2].name", first),
    ]


def test_several_dangling_names_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = edited(
        ("http://a.test:8000", "http://fp16.test:8000"),
        (POOL, POOL + "    fallback: nobody\n  spare: {}\n"),
        (SET, "  mth: {}\n"),
    )
    found = problems_of(text, tmp_path)
    assert [problem.key for problem in found] == [
        "targets[0].url",
        "pools.llama.fallback",
        "pools.spare",
        "task_sets.mth",
    ]
    assert [problem.line for problem in found] == [6, 12, 13, 15]


def test_the_message_has_one_line_for_every_problem(tmp_path: Path) -> None:
    file = tmp_path / "quantwatch.yaml"
    file.write_text(edited(("schema: 1", "schema: 2"), ("int8", "int3")), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings(file, shipped=SHIPPED)
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]


def test_the_python_name_of_a_key_is_unknown(tmp_path: Path) -> None:
    found = problems_of(edited(("schema: 1", "schema_version: 1")), tmp_path)
    assert {problem.key: problem.message.partition(";")[0] for problem in found} == {
        "schema": "this key is required and missing",
        "schema_version": "unknown key",
    }


LAX = {
    "yes for a count": (SET, "  math: {k: yes}\n"),
    "yes for a limit": (SET, "  math: {limits: {kl_mean: {warn: yes}}}\n"),
    "port over 65535": (SET, SET + "server: {listen: '0.0.0.0:99999'}\n"),
    "no time at all": (SET, SET + "probe: {timeout: 0s}\n"),
}


@pytest.mark.parametrize("edit", LAX.values(), ids=LAX.keys())
def test_a_value_without_meaning_is_refused(edit: tuple[str, str], tmp_path: Path) -> None:
    assert problems_of(edited(edit), tmp_path)


def test_a_name_that_yaml_reads_as_a_number_is_told_on_its_own_line(tmp_path: Path) -> None:
    found = problems_of(edited((POOL, POOL + "  7: {}\n")), tmp_path)
    assert [(problem.line, problem.key) for problem in found] == [(12, "pools.7")]


@pytest.mark.parametrize(
    "value",
    ["2024-13-45", "!!int abc", "!!float abc", "!!timestamp abc", "!!bool abc", "9" * 5000],
    ids=["date", "int", "float", "timestamp", "bool", "digits"],
)
def test_a_value_that_its_tag_does_not_allow_is_refused(value: str, tmp_path: Path) -> None:
    assert problems_of(f"x: {value}\n", tmp_path)


@pytest.mark.parametrize(
    "edit", [("probe: {timeout: %sd}", "smaller"), ("probe: {max_response_size: %sGiB}", "smaller")]
)
def test_numbers_beyond_reason_are_refused(edit: tuple[str, str], tmp_path: Path) -> None:
    text = edited((SET, SET + edit[0] % ("9" * 400) + "\n"))
    assert edit[1] in problems_of(text, tmp_path)[0].message


def test_aliases_that_multiply_are_refused_quickly(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    (problem,) = problems_of("\n".join(lines), tmp_path)
    assert "aliases multiply" in problem.message
