"""Golden prompt files -> PromptSets. A set is added by adding a file."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from quantwatch.config.golden import GoldenFile, GoldenPrompt
from quantwatch.config.problems import validated
from quantwatch.config.source import Source, read_yaml
from quantwatch.errors import ConfigError, Problem, PromptError
from quantwatch.flow.prompt import Message, Prompt, PromptSet

_PACKAGE = files("quantwatch")
_BESIDE_SOURCE = Path(__file__).resolve().parents[3] / "golden_prompts"


def shipped_folder() -> Path:
    """Where the golden prompts of this installation are: inside the wheel, or beside src/ in a checkout."""
    packaged = Path(str(_PACKAGE)) / "data" / "golden_prompts"
    return packaged if packaged.is_dir() else _BESIDE_SOURCE


def shipped_sets(folder: Path | None = None) -> dict[str, Path]:
    """Names and files of the shipped task sets, in alphabetical order."""
    return {path.stem: path for path in sorted((folder or shipped_folder()).glob("*.yaml"))}


def load_set(path: Path) -> PromptSet:
    """Read one golden prompts file. Raises ConfigError with every problem, or PromptError for a missing file."""
    if not path.is_file():
        raise PromptError(f"{path}: no such prompts file; shipped task sets: {', '.join(shipped_sets())}")
    source = read_yaml(path)
    golden = validated(GoldenFile, source)
    _refuse_duplicates(golden, source)
    prompts = tuple(_prompt(entry) for entry in golden.prompts)
    return PromptSet(
        name=golden.name,
        description=golden.description,
        prompts=prompts,
        digest=digest(golden.prompts),
        mode=golden.mode,
        protocol=tuple(golden.protocol),
    )


def digest(entries: Sequence[GoldenPrompt]) -> str:
    """SHA-256 over the content of all prompts in the order of their ids, so that moving lines changes nothing."""
    rows = [entry.model_dump(mode="json") for entry in sorted(entries, key=lambda entry: entry.id)]
    canonical = json.dumps(rows, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _prompt(entry: GoldenPrompt) -> Prompt:
    return Prompt(
        id=entry.id,
        language=entry.language,
        length=entry.length,
        tags=tuple(entry.tags),
        text=entry.prompt,
        messages=tuple(Message(m.role, m.content) for m in entry.messages or ()),
        continuation=entry.continuation,
        answer_schema=entry.answer_schema,
    )


def _refuse_duplicates(golden: GoldenFile, source: Source) -> None:
    times = Counter(entry.id for entry in golden.prompts)
    problems = [
        Problem(source.file, source.line(("prompts", i, "id")), f"prompts[{i}].id", f"{entry.id} is used twice")
        for i, entry in enumerate(golden.prompts)
        if times[entry.id] > 1
    ]
    if problems:
        raise ConfigError(problems)
