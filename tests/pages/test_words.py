"""Every word of the pages is there in both languages."""

import re
import string
from enum import StrEnum
from pathlib import Path

import pytest

from quantwatch.flow.access import Role
from quantwatch.flow.decision import Action, Brake, Lane, Origin, PoolMode, Result, Ruling
from quantwatch.flow.divergence import Dimension
from quantwatch.flow.notice import Topic
from quantwatch.flow.pool import PoolState
from quantwatch.flow.prompt import LengthBucket, ProbeMode
from quantwatch.flow.proposal import Fate
from quantwatch.flow.reference import ReferenceState
from quantwatch.flow.run import Trigger
from quantwatch.flow.state import Axis, Human, Routing
from quantwatch.flow.verdict import Metric, Quality
from quantwatch.pages import words as package
from quantwatch.pages.acting import ABOUT, LASTING, ORDERING
from quantwatch.pages.chart import CHARTS, RANGES
from quantwatch.pages.incident import Kind
from quantwatch.pages.manner import LANGUAGES, THEMES
from quantwatch.pages.rank import STATES
from quantwatch.pages.view import KNOWN_PARTS
from quantwatch.pages.words import PARTS, WORDS, said
from quantwatch.record.differences import ASKED, IDENTITY
from quantwatch.record.documents import PLAIN

FOLDER = Path(package.__file__).parent
TEMPLATES = sorted((FOLDER.parent / "templates").glob("*.html"))
CODE = sorted(FOLDER.parent.glob("*.py"))

WHOLE = re.compile(r"""\bt\(\s*['"]([a-z0-9_.]+)['"]\s*[,)]""")
"""A key that stands whole in a template."""

BEGUN = re.compile(r"""\b(?:t\(\s*['"]([a-z0-9_.]+\.)['"]\s*~|term\(\s*['"]([a-z0-9_.]+\.)['"],)""")
"""A key that ends with a value: `t('quality.' ~ value)`, or `term('brake.', code)`."""

ENUMS: dict[str, type[StrEnum]] = {
    "quality.": Quality,
    "routing.": Routing,
    "human.": Human,
    "axis.": Axis,
    "mode.": PoolMode,
    "pool.": PoolState,
    "action.": Action,
    "ruling.": Ruling,
    "result.": Result,
    "trigger.": Trigger,
    "reference.": ReferenceState,
    "probe.": ProbeMode,
    "sets.length.": LengthBucket,
    "event.": Kind,
    "brake.": Brake,
    "origin.": Origin,
    "lane.": Lane,
    "fate.": Fate,
    "timeline.fate.": Fate,
    "topic.": Topic,
    "slice.": Dimension,
}
DONE = (
    "isolated",
    "out",
    "leaving",
    "returning",
    "contradicted",
    "waits",
    "human",
    "paused",
    "mode",
    "confirming",
    "objection",
)
CHOICES: dict[str, tuple[str, ...]] = {
    **{begin: tuple(kind) for begin, kind in ENUMS.items()},
    "metric.": (*Metric, *CHARTS),
    "level.": ("warn", "critical"),
    "frame.theme.": THEMES,
    "fleet.state.": STATES,
    "node.range.": tuple(RANGES),
    "done.": DONE,
    "number.": (*Metric, *PLAIN),
    "identity.": IDENTITY,
    "factor.": ("target", "task_set", *IDENTITY, *ASKED, "limits"),
    "changed.": ("run", "baseline", "node", "measurement", "limits"),
    **{f"slice.{dimension}.": values for dimension, values in KNOWN_PARTS.items()},
    "role.": (*Role, "none"),
    "act.": tuple(ABOUT),
    "act.does.": tuple(ABOUT),
    "act.done.": tuple(ABOUT),
    "act.ordered.": ORDERING,
    "act.lasts.": ("", *LASTING),
    "act.field.": (*sorted(set(ABOUT.values())), "about", "reason", "author", "seconds", "task_set", "scope"),
}
"""What can follow where a key is put together."""


def values_in(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("key", WORDS)
def test_both_languages_say_something_with_the_same_values(key: str) -> None:
    english, chinese = WORDS[key]
    assert english.strip()
    assert chinese.strip()
    assert values_in(english) == values_in(chinese)


def test_chinese_is_chinese() -> None:
    plain = [key for key, (_, chinese) in WORDS.items() if not re.search(r"[\u4e00-\u9fff：]", chinese)]
    assert plain == []


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_uses_words_that_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert set(WHOLE.findall(text)) - WORDS.keys() == set()
    begun = {whole or part for whole, part in BEGUN.findall(text)}
    assert {begin for begin in begun if begin not in CHOICES and begin != "trouble."} == set()


@pytest.mark.parametrize("begin", CHOICES)
def test_a_key_that_is_put_together_exists_for_every_value(begin: str) -> None:
    assert [begin + value for value in CHOICES[begin] if begin + value not in WORDS] == []


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.name)
def test_code_uses_words_that_exist(path: Path) -> None:
    used = re.findall(r'"((?:frame|fleet\.verdict)\.[a-z0-9_.]+[a-z0-9])"', path.read_text(encoding="utf-8"))
    assert [key for key in used if key not in WORDS] == []


def test_templates_hold_no_words_of_their_own() -> None:
    """Text between tags of a template, without what it calls, is a sign, a unit or the product's name."""
    kept = {"quantwatch", "English", "中文", "k =", "expose.prompts: full", "Markdown", "JSON", "KL"}
    for path in TEMPLATES:
        text = re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", " ", path.read_text(encoding="utf-8"), flags=re.S)
        bare = " ".join(re.sub(r"<[^>]*>", " ", text, flags=re.S).split())
        for word in kept:
            bare = bare.replace(word, "")
        assert re.findall(r"[A-Za-z\u4e00-\u9fff]{2,}", bare) == [], path.name


def test_every_file_of_words_is_used() -> None:
    names = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert {part.__name__.rsplit(".", 1)[-1] for part in PARTS} == names


def test_values_are_put_in() -> None:
    assert said("frame.ago", "en", span="3 h") == "3 h ago"
    assert said("frame.ago", "zh", span="3 小时") == "3 小时前"


def test_a_missing_value_is_a_fault() -> None:
    with pytest.raises(KeyError):
        said("frame.ago", "en")


def test_there_are_two_languages() -> None:
    assert LANGUAGES == ("en", "zh")
