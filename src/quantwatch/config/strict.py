"""What every block of settings has in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", max_length=80)]


class Strict(BaseModel):
    """Unknown keys are errors, values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
