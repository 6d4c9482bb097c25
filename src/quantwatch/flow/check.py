"""What a self-check of the baseline found."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Check:
    """The baseline held against its own stored answers.

    sound: whether it gives answers that were proven right; None when it did not answer, or when nothing has proven its
    answers yet. drift: mean KL from then to now in nats. trouble: the sentence where it drifted. thorough: all kept
    answers were asked again, not one of them. new: its answers are not proven yet. enrolled: no baseline was asked;
    its enrolled answers stand for it.
    """

    at: datetime
    sound: bool | None
    drift: float | None = None
    trouble: str | None = None
    thorough: bool = False
    new: bool = False
    enrolled: bool = False
