"""Makes the pictures of docs/images: `PYTHONPATH=tests python -m support.pictures docs/images`; some minutes.

With `tokens` behind it, the picture of the tokens alone.

What is shown is real: SmolLM2 serves as baseline and in INT8 and INT4, a daemon measures it, and Chromium takes the
pictures. Made up is the day before, so that there is something to draw.
"""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from PIL import Image

from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.tokens import PromptsShown, TokensSeen
from quantwatch.flow.verdict import BREACHES
from quantwatch.prompts.load import shipped_sets
from quantwatch.record.archive import Archive
from support.browser import DESKTOP, PHONE, Tab, chromium, tab
from support.daemons import Running, Site, site, started
from support.gateway import Gateway, served_gateway
from support.night import TOKENS, admin_call
from support.prometheus import wait
from support.real_model import smollm2
from support.serving import serving
from support.years import Past, opened, write

if TYPE_CHECKING:
    from playwright.sync_api import Page

RECIPES: dict[str, tuple[str, ...]] = {
    "int8-a": ("--scheme", "w8"),
    "int8-b": ("--scheme", "w8a8", "--outliers", "60"),
    "int4-a": ("--scheme", "w4-g64"),
}
BAD = "int8-b"
TASK_SETS = ("math",)
PROMPTS = 10
TELLING, TELLING_PROMPTS, TELLING_DRAW = "prose", 8, 14
"""The golden set whose answers are long enough to show tokens of, of how many of its short prompts,
and how many are drawn: fewer than five different ones prove nothing."""

FAR = ("--scheme", "w8a8", "--outliers", "240")
"""How the node is quantized whose tokens are shown: so few prompts prove a breach only where it is a large one."""
TURNS = 20
"""Minutes that a verdict may take."""

COLOURS = 128
LARGEST = 150_000
"""Bytes of a picture."""


def short(task_set: str, folder: Path, most: int = PROMPTS) -> None:
    """The first short prompts of a shipped golden set, as a file of its own: these nodes compute on a CPU."""
    content: dict[str, Any] = yaml.safe_load(shipped_sets()[task_set].read_text(encoding="utf-8"))
    content["prompts"] = [one for one in content["prompts"] if one["length"] == "short"][:most]
    (folder / f"{task_set}.yaml").write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")


@contextmanager
def telling() -> Iterator[tuple[Running, str]]:
    """A daemon that has measured the bad node alone on long answers, and the run that breached."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model, at = smollm2(), Path(folder)
        baseline = stack.enter_context(serving(model, "--port", "0")).ready()
        bad = stack.enter_context(serving(model, "--port", "0", *FAR)).ready()
        short(TELLING, at, TELLING_PROMPTS)
        probe = {"patience": "1ms", "timeout": "10m", "tokens_per_minute": 1_000_000}
        where = site(at, baseline, {BAD: bad}, probe=probe, expose={"prompts": "full"})
        asked = {"schedule": {"every": "1h"}, "draw": TELLING_DRAW, "draw_at_most": TELLING_DRAW}
        asked |= {"prompts": f"{TELLING}.yaml", "continuation_tokens": 40}
        where.content["task_sets"] = {TELLING: asked}
        daemon = stack.enter_context(started(where.write())).ready()
        admin_call(daemon.site.admin, "POST", "/api/v1/runs", target=BAD)
        yield daemon, breach(daemon)


def breach(daemon: Running) -> str:
    """The first run that breaches on whole answers and whose tokens are all told in words, which come by and by."""
    for _ in range(TURNS):
        with contextlib.suppress(AssertionError):
            return str(wait(lambda: _worded(daemon), "a breach"))
    with Archive.open(daemon.site.store) as archive:
        raise SystemExit(f"no breach: {[(one.quality, one.reason) for one in archive.history()]}")


def _worded(daemon: Running) -> str | None:
    with Archive.open(daemon.site.store) as archive:
        for one in archive.history():
            seen = archive.tokens(one.id, shown=PromptsShown.FULL)
            if one.quality not in BREACHES or seen is None or not _ids(seen) <= seen.texts.keys():
                continue
            if all(each.mode is ProbeMode.PROMPT_SCORING for each in seen.prompts):
                return one.id
    return None


def _ids(seen: TokensSeen) -> set[int]:
    tokens = [token for prompt in seen.prompts for token in prompt.tokens]
    listed = (each.id for token in tokens for each in (*token.baseline, *token.node))
    return {*(token.id for token in tokens), *listed}


def place(folder: Path, stack: ExitStack) -> Site:
    """The configuration, with real nodes and a gateway behind it."""
    model = smollm2()
    baseline = stack.enter_context(serving(model, "--port", "0")).ready()
    nodes = {name: stack.enter_context(serving(model, "--port", "0", *recipe)) for name, recipe in RECIPES.items()}
    at = stack.enter_context(served_gateway(Gateway())).url
    token = folder / "ada.token"
    token.write_text(TOKENS["admin"])
    for task_set in TASK_SETS:
        short(task_set, folder)
    where = site(
        folder,
        baseline,
        {name: one.ready() for name, one in nodes.items()},
        pools={
            "chat": {"mode": "enforce", "max_isolated": "50%", "fallback": "baseline"},
            "batch": {"mode": "observe"},
        },
        gateway={"driver": "webhook", "url": f"{at}/act", "state_url": f"{at}/state"},
        probe={"patience": "1ms", "timeout": "10m", "tokens_per_minute": 1_000_000},
        expose={"prompts": "full"},
        server={"tokens": [{"name": "ada", "role": "admin", "token": f"file:{token}"}]},
    )
    where.content["baseline"]["gateway_name"] = "fp32"
    where.content["targets"][-1] |= {"scheme": "int4", "pool": "batch"}
    asked: dict[str, Any] = {"schedule": {"every": "1h"}, "draw": 24, "continuation_tokens": 24}
    asked["confirm_mode"] = "prompt_scoring"
    where.content["task_sets"] = {name: {**asked, "prompts": f"{name}.yaml"} for name in TASK_SETS}
    return where.write()


def remember(where: Site) -> None:
    """The day before."""
    end = datetime.now(UTC) - timedelta(minutes=20)
    levels = {"int8-a": 0.002, "int8-b": 0.003, "int4-a": 0.03}
    pasts = [
        Past(name, task_set, "batch" if name == "int4-a" else "chat", 96, end - timedelta(minutes=number), level=level)
        for name, level in levels.items()
        for number, task_set in enumerate(TASK_SETS)
    ]
    with opened(where.store) as store:
        write(store, pasts)


@contextmanager
def scene() -> Iterator[Running]:
    """A daemon that has just isolated a node."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        where = place(Path(folder), stack)
        remember(where)
        daemon = stack.enter_context(started(where)).ready()

        # A clean run comes first: before that the baseline is not proven sound, and nothing acts.
        measured(where.admin, "ok", "int8-a")
        measured(where.admin, "degraded", BAD, "int4-a")

        wait(lambda: _of(where.admin, "routing", "out") == {BAD}, "isolated")
        yield daemon


def measured(origin: str, quality: str, *targets: str) -> None:
    """Measure targets until this is what is known of them; a run can be inconclusive."""
    for _ in range(TURNS):
        for name in set(targets) - _of(origin, "quality", quality):
            admin_call(origin, "POST", "/api/v1/runs", token=TOKENS["admin"], target=name)
        with contextlib.suppress(AssertionError):
            wait(lambda: set(targets) <= _of(origin, "quality", quality), quality)
            return
    raise SystemExit(f"{', '.join(targets)}: never {quality}")


def _of(origin: str, key: str, value: str) -> set[str]:
    """Which targets have this value on the board."""
    board = admin_call(origin, "GET", "/api/v1/status", token=TOKENS["admin"]).json()
    return {one["target"] for one in board["targets"] if one[key] == value}


def taken(page: "Page", file: Path, *, height: int) -> None:
    """Write what the window shows as a small PNG."""
    width = page.viewport_size["width"] if page.viewport_size is not None else DESKTOP[0]
    raw = page.screenshot(clip={"x": 0, "y": 0, "width": width, "height": height})
    few = Image.open(BytesIO(raw)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(file, optimize=True)
    size = file.stat().st_size
    print(f"{file}: {size} bytes")  # noqa: T201, a program
    if size > LARGEST:
        raise SystemExit(f"{file} has {size} bytes; {LARGEST} are the most")


def longest(one: Tab, path: str) -> "Page":
    """The page of a run with the golden text that has most tokens far apart."""
    far = {}
    for number in range(1, one.open(path).locator(".tabs a").count() + 1):
        page = one.open(f"{path}?prompt={number}")
        far[number] = page.locator(".tokens .tok.k4, .tokens .tok.k3, .tokens .tok.k2").count()
    return one.open(f"{path}?prompt={max(far, key=lambda number: far[number])}")


def tokens(folder: Path) -> None:
    """Take the picture of the tokens of a breach."""
    with telling() as (daemon, run), chromium() as browser, tab(browser, daemon.site.admin, dark=True) as one:
        page = longest(one, f"/runs/{run}")
        page.locator("#tokens").evaluate("heading => heading.scrollIntoView()")
        page.locator(".tokens .tok.k4").nth(1).focus()
        taken(page, folder / "tokens-dark.png", height=DESKTOP[1])


def pictures(folder: Path) -> None:
    """Take all of them."""
    tokens(folder)
    with scene() as daemon, chromium() as browser:
        origin = daemon.site.admin
        with tab(browser, origin) as one:
            taken(one.open("/"), folder / "fleet.png", height=DESKTOP[1])
            taken(one.open(f"/nodes/{BAD}"), folder / "node.png", height=DESKTOP[1])
        with tab(browser, origin, size=PHONE) as one:
            taken(one.open("/"), folder / "fleet-phone.png", height=PHONE[1])


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    (tokens if sys.argv[2:] == ["tokens"] else pictures)(target)
