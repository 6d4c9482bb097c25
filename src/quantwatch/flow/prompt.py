"""Golden prompts, the sets they come in, and the id sequences that servers score."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class LengthBucket(StrEnum):
    """How long a prompt is, by an estimate that needs no tokenizer."""

    SHORT = "short"
    MEDIUM = "medium"
    LONG = "long"


class ProbeMode(StrEnum):
    """How a server is asked for the distribution at a position (docs/measurement.md)."""

    PROMPT_SCORING = "prompt_scoring"
    ONE_TOKEN = "one_token"
    FIRST_TOKEN = "first_token"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """One golden prompt: either raw text or a conversation.

    id: stable across releases. continuation: text to score instead of the baseline's own answer. answer_schema: JSON
    schema (draft 2020-12) that a right answer satisfies.
    """

    id: str
    language: str
    length: LengthBucket
    tags: tuple[str, ...]
    text: str | None = None
    messages: tuple[Message, ...] = ()
    continuation: str | None = None
    answer_schema: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def content(self) -> str:
        """All words of the prompt in order, for estimates and duplicate checks."""
        if self.text is not None:
            return self.text
        return "\n".join(message.content for message in self.messages)

    @property
    def question(self) -> str:
        """The words that the person said last."""
        return self.text if self.text is not None else self.messages[-1].content


@dataclass(frozen=True, slots=True)
class PromptSet:
    """A pool of prompts that exercise one kind of task.

    digest: SHA-256 over the content of all prompts, so that results of different pools are never mixed. protocol: marks
    (braces, tags) whose tokens are measured apart.
    """

    name: str
    description: str
    prompts: tuple[Prompt, ...]
    digest: str
    mode: ProbeMode = ProbeMode.PROMPT_SCORING
    protocol: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GoldenSequence:
    """Token ids that both servers score: a prompt and its continuation (teacher forcing).

    ids: prompt ids followed by continuation ids. prompt_length: how many of them are the prompt.
    """

    prompt_id: str
    ids: tuple[int, ...]
    prompt_length: int

    @property
    def continuation(self) -> tuple[int, ...]:
        """The ids after the prompt."""
        return self.ids[self.prompt_length :]
