"""The end of the demo: what was measured on which node, what had to happen and did, and how to go on by hand."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from quantwatch import __version__
from quantwatch.demo.client import Client
from quantwatch.demo.facts import Check, Facts, Row, checks, kl_ratio
from quantwatch.demo.gateway import Gateway
from quantwatch.demo.stage import Stage

TITLES = {"healthy": "healthy", "outlier": "outliers", "smoothed": "smoothed"}


@dataclass(frozen=True, slots=True)
class Summary:
    """trouble: why the story broke off, None where it came to its end."""

    facts: Facts
    rows: Mapping[str, list[Row]]
    checks: list[Check]
    client: Client
    gateway: Gateway
    seconds: float
    trouble: str | None

    @property
    def passed(self) -> bool:
        """Whether it all happened."""
        return self.trouble is None and all(one.passed for one in self.checks)


def summary(facts: Facts, stage: Stage, *, trouble: str | None) -> Summary:
    """Read everything once, at the end."""
    assert stage.client is not None and stage.gateway is not None  # noqa: S101, PT018, both are there from the start
    found = checks(facts, stage.gateway, stage.client)
    return Summary(facts, facts.rows(), found, stage.client, stage.gateway, stage.seconds, trouble)


def as_json(one: Summary) -> dict[str, Any]:
    """The whole result, schema 1."""
    facts = one.facts
    return {
        "schema": 1,
        "quantwatch": __version__,
        "passed": one.passed,
        "trouble": one.trouble,
        "seconds": round(one.seconds, 1),
        "folder": str(facts.folder),
        "config": str(facts.config),
        "urls": asdict(facts.at),
        "limits": facts.limits,
        "by_the_shipped_int8_limits": {name: seen.verdict.quality.value for name, seen in facts.healthy.items()},
        "nodes": {role: [asdict(row) for row in rows] for role, rows in one.rows.items()},
        "kl_ratio": kl_ratio(one.rows),
        "gateway": {"calls": [call.as_json() for call in one.gateway.calls], "retried": one.gateway.retried},
        "client": {
            "requests": len(one.client.replies),
            "failed": len(one.client.failed),
            "answered_by": one.client.by,
        },
        "peak_memory_mib": facts.peaks,
        "checks": [asdict(check) for check in one.checks],
        "compare": facts.compare_commands(one.rows),
    }


def show(one: Summary, console: Console, *, staying: bool) -> None:
    """Print the summary. staying: everything goes on running, so that its addresses are of use."""
    console.print(_limits(one.facts))
    console.print(_nodes(one))
    console.print(_checks(one))
    facts = one.facts
    for name, path in (("configuration", facts.config), ("record", facts.store), ("logs", facts.folder)):
        if path.exists():
            console.print(f"{name:13} {path}", markup=False, soft_wrap=True)
    if staying:
        _addresses(one, console)
    if one.trouble is not None:
        console.print(Text(one.trouble, style="red"), soft_wrap=True)
    verdict = ("It all happened", "bold green") if one.passed else ("The demo did not succeed", "bold red")
    console.print(Text.assemble(verdict, f", in {one.seconds:.0f} s."))


def _limits(facts: Facts) -> Table:
    """What the limits came from, and what the shipped ones would have said of the same healthy node."""
    table = _table("limits from the healthy node, and what the shipped ones say of it")
    for name in ("task set", "mean KL", "95 % interval", "warn", "critical", "shipped ones"):
        left = name in ("task set", "shipped ones")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for name, seen in facts.healthy.items():
        if seen.divergence is not None:
            kl, limit = seen.divergence.kl_mean, facts.limits.get(name, {}).get("kl_mean", {})
            ends = None if kl.interval is None else (kl.interval.low, kl.interval.high)
            limits = (f"{limit[level]:g}" if level in limit else "-" for level in ("warn", "critical"))
            table.add_row(name, f"{kl.value:.4f}", _interval(ends), *limits, seen.verdict.quality.value)
    return table


def _nodes(one: Summary) -> Table:
    table = _table("what the daemon measured (INT8 nodes, one after another)")
    for name in ("node", "task set", "mean KL", "interval", "PPL ratio", "top-1", "run says"):
        table.add_column(name, justify="left" if name in ("node", "task set", "run says") else "right", no_wrap=True)
    for role, rows in one.rows.items():
        for row in rows:
            numbers = (f"{row.kl_mean:.4f}", _interval(row.kl_interval), f"{row.perplexity_ratio:.3f}")
            table.add_row(TITLES[role], row.task_set, *numbers, f"{row.top1_agreement:.3f}", row.verdict)
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))


def _interval(ends: tuple[float, float] | None) -> str:
    return "-" if ends is None else f"{ends[0]:.4f} .. {ends[1]:.4f}"


def _checks(one: Summary) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    for check in one.checks:
        sign = Text("✔", style="green") if check.passed else Text("✘", style="bold red")
        table.add_row(sign, check.name, Text(check.said, style="dim"))
    return table


def _addresses(one: Summary, console: Console) -> None:
    at = one.facts.at
    for name, url in (
        ("baseline", at.baseline),
        ("int8 node", at.node),
        ("gateway", at.gateway),
        ("metrics", f"{at.metrics}/metrics"),
        ("admin", at.admin),
    ):
        console.print(f"{name:13} {url}", markup=False)
    console.print(
        "Measure by hand what the daemon measured last: same draws, so the same numbers. `compare` judges them by the "
        "shipped limits, which are those of larger models:"
    )
    for command in one.facts.compare_commands(one.rows):
        console.print(f"  {command}", markup=False, soft_wrap=True)
