"""`quantwatch report`: one file that tells an incident, or all incidents of a period."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quantwatch.cli.output import STANDARD_OUTPUT, write_text
from quantwatch.cli.store import ConfigOption, StoreOption, console, store_and_shown
from quantwatch.clock import SystemClock
from quantwatch.errors import InputError

if TYPE_CHECKING:
    from quantwatch.pages.manner import Language

SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md", ".json": "json"}
KINDS = ("html", "md", "json")
LANGUAGES = ("en", "zh")


def command(
    wanted: Annotated[
        str | None, typer.Argument(metavar="ID", help="A run or decision; beginning or end of its id will do")
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="FILE.html, FILE.md or FILE.json; - for standard output with --format")],
    config: ConfigOption = None,
    store: StoreOption = None,
    period: Annotated[
        str | None,
        typer.Option("--range", help="In place of an ID: all of a period, such as 24h, 7d or 2026-11-29..2026-11-30"),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--format", help="html, md or json; by the file's name if left out")
    ] = None,
    lang: Annotated[str, typer.Option(help="en or zh")] = "en",
) -> None:
    """Write an incident report: timeline, numbers against limits, worst tokens, what changed, what to try next.

    One file that needs nothing else. Tokens and words are shown as the configuration's expose.prompts says; without
    a configuration, ids alone.
    """
    from quantwatch.pages.gather import incident_of, period_of
    from quantwatch.pages.report_file import written
    from quantwatch.record.archive import Archive

    form, language = kind_of(out, kind), _language(lang)
    if (wanted is None) == (period is None):
        raise InputError("give either the ID of a run or decision, or --range")
    now = SystemClock().now()
    (path, shown), runbook = store_and_shown(config, store), _runbook(config)
    with Archive.open(path) as archive:
        if period is not None:
            since, until = moments(period, now=now)
            text = written(period_of(archive, since, until, now=now), form, language, runbook=runbook)
        else:
            one = incident_of(archive, archive.find(wanted or ""), now=now, shown=shown)
            text = written(one, form, language, runbook=runbook)
    write_text(text, out)
    if out != STANDARD_OUTPUT:
        console(None).print(f"written: {out}", markup=False)


def kind_of(out: Path, given: str | None) -> str:
    """What is written: as given, or by the suffix. Raises InputError."""
    kind = given or SUFFIXES.get(out.suffix.lower())
    if kind in KINDS:
        return kind
    if given is not None:
        raise InputError(f"--format {given}: html, md or json is wanted")
    if out == STANDARD_OUTPUT:
        raise InputError("--out - needs --format html, md or json")
    raise InputError(f"{out}: a name that ends with .html, .md or .json is wanted, or --format")


def moments(given: str, *, now: datetime) -> tuple[datetime, datetime]:
    """The period of `24h` (until now) or `FROM..TO` in ISO 8601, in UTC where no zone is given. Raises InputError."""
    from quantwatch.config.units import positive_seconds

    first, dots, last = given.partition("..")
    if not dots:
        try:
            return now - timedelta(seconds=positive_seconds(given)), now
        except (ValueError, OverflowError):
            raise InputError(f"--range {given}: a span such as 24h or 7d, or FROM..TO, is wanted") from None
    since, until = _moment(first), now if not last.strip() else _moment(last, end=True)
    if since >= until:
        raise InputError(f"--range {given}: it ends before it begins")
    return since, until


def _moment(text: str, *, end: bool = False) -> datetime:
    """A moment; a bare day means its beginning, and at the end of a period the whole of it."""
    try:
        moment = datetime.fromisoformat(text.strip())
        if end and re.fullmatch(r"\d{4}-?\d{2}-?\d{2}", text.strip()):
            moment += timedelta(days=1)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InputError(f"--range: {text.strip() or 'nothing'} is no moment such as 2026-11-29T22:00") from None


def _language(given: str) -> "Language":
    if given == "zh":
        return "zh"
    if given == "en":
        return "en"
    raise InputError(f"--lang {given}: one of {', '.join(LANGUAGES)} is wanted")


def _runbook(config: Path | None) -> str | None:
    """Where the runbook lies by the first channel that says so; None where none does."""
    from quantwatch.config.load import load_settings
    from quantwatch.prompts.load import shipped_sets

    if config is None:
        return None
    settings = load_settings(config, shipped=shipped_sets())
    return next((one.runbook_url for one in settings.notifications if one.runbook_url is not None), None)
