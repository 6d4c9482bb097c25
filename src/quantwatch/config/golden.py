"""The schema of a golden prompts file."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from quantwatch.flow.prompt import LengthBucket, ProbeMode

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=80)]
SetName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+([_-][a-z0-9]+)*$", max_length=60)]
Mark = Annotated[str, StringConstraints(pattern=r"^\S{1,24}$")]
Text = Annotated[str, StringConstraints(min_length=1)]


class GoldenMessage(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Literal["system", "user", "assistant"]
    content: Text


class GoldenPrompt(BaseModel):
    """One golden prompt: raw text or a conversation, never both."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Slug
    language: Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}(-[A-Za-z]+)?$")]
    length: LengthBucket
    tags: list[Slug] = Field(min_length=1, max_length=8)
    prompt: Text | None = None
    messages: list[GoldenMessage] | None = None
    continuation: Text | None = None
    answer_schema: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> "GoldenPrompt":
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give exactly one of prompt and messages")
        if self.messages is not None and (not self.messages or self.messages[-1].role != "user"):
            raise ValueError("messages must end with a turn of the user")
        return self


class GoldenFile(BaseModel):
    """One task set: a pool of golden prompts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = Field(alias="schema")
    name: SetName
    description: Text
    license: Text
    mode: ProbeMode = ProbeMode.PROMPT_SCORING
    protocol: list[Mark] = Field(default_factory=list, max_length=12)
    prompts: list[GoldenPrompt] = Field(min_length=1)
