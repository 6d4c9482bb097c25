"""How a page is shown to whoever asks: in which language and in which colours."""

from dataclasses import dataclass
from typing import Literal, TypeVar

from starlette.requests import Request
from starlette.responses import Response

Language = Literal["en", "zh"]
Theme = Literal["auto", "light", "dark"]

LANGUAGES: tuple[Language, ...] = ("en", "zh")
THEMES: tuple[Theme, ...] = ("auto", "light", "dark")
LANGUAGE_COOKIE = "quantwatch_lang"
THEME_COOKIE = "quantwatch_theme"
A_YEAR = 365 * 86_400

Choice = TypeVar("Choice", bound=str)


@dataclass(frozen=True, slots=True)
class Manner:
    """The choices that hold for one request. auto: as the browser prefers. chosen: what the URL has just said."""

    language: Language
    theme: Theme
    chosen: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, request: Request) -> "Manner":
        """What the URL says, else the cookie, else (for the language) the browser's own wish, else English."""
        language = _known(request.query_params.get("lang"), LANGUAGES)
        theme = _known(request.query_params.get("theme"), THEMES)
        chosen = ((LANGUAGE_COOKIE, language), (THEME_COOKIE, theme))
        kept = _known(request.cookies.get(LANGUAGE_COOKIE), LANGUAGES)
        wished = preferred(request.headers.get("accept-language", ""))
        return cls(
            language or kept or wished,
            theme or _known(request.cookies.get(THEME_COOKIE), THEMES) or "auto",
            tuple((name, value) for name, value in chosen if value is not None),
        )

    def keep(self, reply: Response, *, secure: bool) -> None:
        """Let the browser remember what the URL said. secure: whether it came by https."""
        for name, value in self.chosen:
            reply.set_cookie(name, value, max_age=A_YEAR, httponly=True, samesite="lax", secure=secure)


def preferred(header: str) -> Language:
    """The first of our languages by an Accept-Language header; English where it names none of them."""
    wishes: list[tuple[float, int, Language]] = []
    for place, part in enumerate(header.split(",")[:20]):
        tag, _, more = part.partition(";")
        language = _known(tag.strip().lower().partition("-")[0], LANGUAGES)
        weight = _weight(more)
        if language is not None and weight > 0:
            wishes.append((-weight, place, language))
    return min(wishes)[2] if wishes else "en"


def _weight(text: str) -> float:
    """The q of one wish, 1 where it gives none, 0 where it cannot be read."""
    name, _, value = text.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        weight = float(value)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0


def _known(given: str | None, choices: tuple[Choice, ...]) -> Choice | None:
    return next((one for one in choices if one == given), None)
