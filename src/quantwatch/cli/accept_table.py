"""A release gate's evidence on a terminal."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from quantwatch.cli.accept_words import ADVICE, ANSWERS, GATES, VERDICTS, figures_line, shown

STYLE = {
    "pass": "green",
    "fail": "bold red",
    "cannot_tell": "bold magenta",
    "keep": "bold green",
    "reject": "bold red",
}


def show(document: dict[str, Any], console: Console) -> None:
    """Print the gates, what was seen under load, and the answer as the last line."""
    for one in document["task_sets"]:
        console.print(_gates(one))
        for line in _seen(one):
            console.print(Text(f"  {line}"), soft_wrap=True)
        for note in one["notes"]:
            console.print(Text(f"  {note}", style="yellow"), soft_wrap=True)
        console.print()
    if not document["complete"]:
        console.print(Text("Interrupted: this is what was known so far.", style="magenta"))
    answer = document["answer"]
    console.print(Text.assemble((ANSWERS[answer], STYLE[answer]), f": {ADVICE[answer]}"), soft_wrap=True)
    for reason in document["reasons"] if answer != "keep" else ():
        console.print(Text(f"  {reason}"), soft_wrap=True)


def _gates(one: dict[str, Any]) -> Table:
    title = Text(one["name"], style="bold")
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("gate", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("numbers")
    for gate in one["gates"]:
        lines = [figures_line(figure) for figure in gate["figures"]] or gate["reasons"]
        verdict = gate["verdict"]
        table.add_row(GATES[gate["gate"]], Text(VERDICTS[verdict], style=STYLE[verdict]), Text("\n".join(lines)))
    return table


def _seen(one: dict[str, Any]) -> list[str]:
    """Latency and memory of each node in a line, also where no gate looks at them."""
    lines = []
    for name, latency in one["latency"].items():
        if latency is not None:
            tail = shown(latency["p99"]["value"])
            quantiles = f"P50 {shown(latency['p50'])}, P95 {shown(latency['p95'])}, P99 {tail}"
            lines.append(
                f"{name}: {latency['completed']} of {latency['sent']} requests answered; {quantiles}, "
                f"slowest {shown(latency['maximum'])} s"
            )
    for name, memory in one["memory"].items():
        if memory["peak"] is not None or memory["kv_cache_tokens"] is not None:
            peak, after = (shown(memory[key], "B") for key in ("peak", "after"))
            tokens = memory["kv_cache_tokens"]
            kept = "" if tokens is None else f"; KV cache for {tokens:,} tokens"
            lines.append(f"{name}: memory {peak} MiB at its peak, {after} MiB after{kept}")
    return lines
