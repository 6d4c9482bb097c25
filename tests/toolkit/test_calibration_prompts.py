"""The shipped calibration prompts: varied, well-formed, and none of them is ever compared."""

from collections import Counter

import pytest

from quantwatch.flow.prompt import Prompt
from quantwatch.prompts.lint import MAX_SHARED, faults, grams
from quantwatch.prompts.load import load_set, shipped_folder, shipped_sets
from quantwatch.toolkit.prepare import calibration_prompts

FILE = shipped_folder() / "calibration" / "general.yaml"
SETS = [load_set(path) for path in shipped_sets().values()]
COMPARED = [(prompt, set(grams(prompt.content, 5))) for pool in SETS for prompt in pool.prompts]


def test_the_file_passes_its_own_check() -> None:
    assert faults(load_set(FILE)) == []


def test_calibration_is_no_task_set() -> None:
    assert FILE.stem not in shipped_sets()
    assert len(shipped_sets()) == 8


def test_it_covers_what_the_task_sets_ask() -> None:
    prompts = calibration_prompts()
    tags = Counter(tag for prompt in prompts for tag in prompt.tags)
    assert len(prompts) == 24
    assert sum(prompt.language == "zh" for prompt in prompts) >= 4
    assert all(tags[tag] >= 2 for tag in ("chat", "math", "code", "sql", "json", "prose"))
    assert any(prompt.messages for prompt in prompts)
    assert any(prompt.text for prompt in prompts)


@pytest.mark.parametrize("prompt", calibration_prompts(), ids=lambda prompt: prompt.id)
def test_no_prompt_is_compared_too(prompt: Prompt) -> None:
    ours = set(grams(prompt.content, 5))
    for other, theirs in COMPARED:
        assert prompt.id != other.id
        assert prompt.content != other.content
        assert len(ours & theirs) <= MAX_SHARED * min(len(ours), len(theirs)), other.id
