"""The tokens behind a run for a terminal: the golden text coloured by KL, and both lists where it is worst."""

import math
from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from quantwatch.cli.tables import number
from quantwatch.errors import InputError
from quantwatch.flow.tokens import Candidate, PromptSeen, PromptsShown, TokenSeen, TokensSeen

POSITIONS = 3
"""The worst positions of a prompt that are shown with both lists."""

COLOURS = ((1.0, "bold red"), (0.1, "red"), (0.01, "yellow"), (0.0, "green"))
"""From this KL on, in nats."""

BROKEN = "bold white on red"

NOTHING = {
    PromptsShown.OFF: "expose.prompts is off, so no tokens are shown",
    PromptsShown.IDS: "no tokens are kept of this run: nothing was measured, newer runs of its kind have taken its "
    "place, or the store could not take them (the log says so); those of a run that has just ended follow in a moment",
}


def show_tokens(seen: TokensSeen | None, out: Console, *, shown: PromptsShown, prompt: str | None) -> None:
    """The prompts that are kept, and one of them position by position. Raises InputError for one that is not."""
    if seen is None:
        out.print(NOTHING.get(shown, NOTHING[PromptsShown.IDS]), markup=False)
        return
    chosen = chosen_prompt(seen, prompt)
    whose = f"the {len(seen.prompts)} of {seen.measured} prompts that carry the most divergence"
    out.print(f"{whose}; --prompt shows another", markup=False)
    out.print(_prompts_table(seen.prompts, chosen), soft_wrap=False)
    out.print(_legend())
    out.print(_golden(chosen, seen.texts))
    for one in worst_positions(chosen):
        out.print(_heading(one, seen.texts))
        out.print(_both_lists(one, seen.texts), soft_wrap=False)


def chosen_prompt(seen: TokensSeen, prompt: str | None) -> PromptSeen:
    """The prompt of an id, the worst without one. Raises InputError."""
    found = next((one for one in seen.prompts if prompt in (None, one.prompt_id)), None)
    if found is None:
        kept = ", ".join(one.prompt_id for one in seen.prompts)
        raise InputError(f"--prompt {prompt}: its tokens are not kept; there are {kept}")
    return found


def worst_positions(prompt: PromptSeen) -> list[TokenSeen]:
    """The worst positions, broken ones first, in the order of the text."""
    worst = sorted(prompt.tokens, key=lambda one: (one.mark is None, -(one.kl or 0.0)))[:POSITIONS]
    return sorted(worst, key=lambda one: one.position)


def _prompts_table(prompts: Sequence[PromptSeen], chosen: PromptSeen) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("prompt", overflow="fold")
    for name in ("mean KL", "max KL", "positions", "broken"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in prompts:
        broken = sum(token.mark is not None for token in one.tokens)
        row = (number(one.kl_mean), number(one.kl_max), str(len(one.tokens)), str(broken or "-"))
        table.add_row(Text(one.prompt_id), *row, style="bold" if one is chosen else None)
    return table


def _legend() -> Text:
    steps = [("KL ", "")] + [(f"from {least:g} ", style) for least, style in reversed(COLOURS)]
    return Text.assemble(*steps, ("broken", BROKEN))


def _golden(prompt: PromptSeen, texts: Mapping[int, str]) -> Text:
    """The golden tokens that were looked at; ids have spaces between them, texts bring their own."""
    said, following = Text(f"{prompt.prompt_id} from position {prompt.tokens[0].position}: "), None
    for one in prompt.tokens:
        if following not in (None, one.position):
            said.append(" ... ", style="dim")  # mode one_token asks at positions here and there
        following = one.position + 1
        said.append(printable(texts[one.id]) if one.id in texts else f" {one.id} ", style=_colour(one))
    return said


def _heading(one: TokenSeen, texts: Mapping[int, str]) -> Text:
    what = f"KL {number(one.kl)}" if one.mark is None else one.mark
    own = f"{_share(one.logprob_baseline)} at the baseline, {_share(one.logprob_node)} at the node"
    moved = "" if one.mark is not None else f", at least {moved_mass(one):.1%} of the probability moved"
    return Text.assemble(
        f"position {one.position}: ", (_token(one.id, texts), "bold"), " ", (what, _colour(one)), f"; {own}{moved}"
    )


def _both_lists(one: TokenSeen, texts: Mapping[int, str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("baseline", "node"):
        table.add_column(name, overflow="fold")
        table.add_column("share", justify="right", no_wrap=True)
    table.add_column("moved", justify="right", no_wrap=True)
    before = {each.id: math.exp(each.logprob) for each in one.baseline}
    for i in range(max(len(one.baseline), len(one.node))):
        ours, theirs = _at(one.baseline, i), _at(one.node, i)
        moved = "" if theirs is None else _moved(before, theirs)
        table.add_row(*_cells(ours, one, texts), *_cells(theirs, one, texts), moved)
    table.add_row(*_others(one.baseline), *_others(one.node), "", style="dim")
    return table


def _others(listed: Sequence[Candidate]) -> tuple[str, str]:
    """What the tokens that are not shown have between them."""
    rest = max(1.0 - math.fsum(math.exp(each.logprob) for each in listed), 0.0)
    return ("all others", f"{rest:.1%}") if listed else ("", "")


def _at(listed: Sequence[Candidate], place: int) -> Candidate | None:
    return listed[place] if place < len(listed) else None


def _cells(one: Candidate | None, at: TokenSeen, texts: Mapping[int, str]) -> tuple[Text, str]:
    if one is None:
        return Text(""), ""
    return Text(_token(one.id, texts), style="bold" if one.id == at.id else ""), _share(one.logprob)


def _moved(before: Mapping[int, float], one: Candidate) -> str:
    """How much more or less probable the node finds a token; the baseline's list is a limit for all it leaves out."""
    if one.id in before:
        return f"{math.exp(one.logprob) - before[one.id]:+.1%}"
    least = math.exp(one.logprob) - min(before.values(), default=1.0)
    return f">{least:+.1%}" if least > 0 else "-"


def moved_mass(one: TokenSeen) -> float:
    """A lower bound on the total variation of both: tokens on both lists one by one, all others at once."""
    theirs = {each.id: math.exp(each.logprob) for each in one.node}
    shared = [(math.exp(each.logprob), theirs[each.id]) for each in one.baseline if each.id in theirs]
    apart = math.fsum(abs(p - q) for p, q in shared)
    rest = abs(math.fsum(p for p, _ in shared) - math.fsum(q for _, q in shared))
    return min((apart + rest) / 2, 1.0)


def _colour(one: TokenSeen) -> str:
    if one.mark is not None or one.kl is None:
        return BROKEN
    return next((style for least, style in COLOURS if one.kl >= least), COLOURS[-1][1])


def _token(key: int, texts: Mapping[int, str]) -> str:
    return f"{key} '{printable(texts[key])}'" if key in texts else str(key)


def printable(text: str) -> str:
    """Text that moves no cursor: what cannot be printed is written as Python writes it."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def _share(logprob: float | None) -> str:
    return "not listed" if logprob is None else f"{math.exp(logprob):.1%}"
