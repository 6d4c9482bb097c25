"""A store that holds an incident: good runs, an upgrade, a breach with its tokens, and what was done about it."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from quantwatch.flow.decision import Action, Decision, Outcome, Result
from quantwatch.flow.divergence import Dimension, Estimate, Slice
from quantwatch.flow.load import Load
from quantwatch.flow.notice import Matter, Notice, Topic
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.run import RunRecord
from quantwatch.flow.state import Axis, Routing, TargetState, Transition
from quantwatch.flow.tokens import Candidate, PromptSeen, TokenSeen, TokensSeen
from quantwatch.flow.verdict import Interval, Quality
from quantwatch.record.continuations import fingerprint
from quantwatch.record.notices import Change
from quantwatch.record.store import Store
from support.stored import (
    BASELINE,
    NODE,
    after,
    answer,
    at,
    decision,
    divergence,
    intent,
    leaving,
    opened,
    run,
    set_report,
    suppressed,
)

WORDS = ("The", " answer", " is", " 42", ".", "\n", "def", " f", "(", "x", ")", ":", " return", " x", " *", " 2")
EVIL = "<script>alert(1)</script>"
UPGRADED = replace(NODE, version="0.33.0", started=1_760_009_000.0)
TOKENIZER = "t" * 8


def part(dimension: Dimension, value: str, kl: float) -> Slice:
    """A slice with this mean KL in nats."""
    estimate = Estimate(kl, Interval(kl * 0.8, kl * 1.2))
    return Slice(dimension, value, 8, 8, 768, estimate, Estimate(1.02), Estimate(0.96))


PARTS = (
    part(Dimension.LENGTH, "short", 0.02),
    part(Dimension.LENGTH, "medium", 0.05),
    part(Dimension.LENGTH, "long", 0.31),
    part(Dimension.LANGUAGE, "en", 0.08),
    part(Dimension.LANGUAGE, "zh", 0.11),
)


def bad_run(number: int = 20, kl: float = 0.12, **changes: Any) -> RunRecord:
    """A breach after an upgrade that hits long prompts."""
    report = set_report(kl, quality=Quality.DEGRADED, seed=8, divergence=replace(divergence(kl), slices=PARTS))
    loads = {"load_before": Load(running=3, kv_usage=0.3), "load_after": Load(waiting=2, running=5, kv_usage=0.95)}
    return run(number, kl, quality=Quality.DEGRADED, node=UPGRADED, **{"report": report, **loads, **changes})


def token(position: int, key: int, kl: float | None, *, mark: str | None = None) -> TokenSeen:
    """A position where the node moves mass from the golden token to the next one."""
    share = 0.95 if kl is None else max(0.02, 0.95 * math.exp(-3 * kl))
    ours = (Candidate(key, math.log(0.95)), Candidate(key + 1, math.log(0.03)), Candidate(90, math.log(0.01)))
    theirs = sorted(
        (Candidate(key, math.log(share)), Candidate(key + 1, math.log(0.97 - share)), Candidate(91, math.log(0.02))),
        key=lambda one: -one.logprob,
    )
    node = () if mark is not None else tuple(theirs)
    return TokenSeen(position, key, kl, math.log(0.95), None if mark else math.log(share), ours, node, 0.01, 0.01, mark)


KLS = (0.001, 0.02, 0.0, 1.7, 0.3, 0.004, 0.09, 0.0, 0.012, 0.6, 0.0, 0.0, 0.03, 2.4, 0.0, 0.05)


def prompt_seen(name: str, *, scale: float = 1.0, repeat: int = 6, broken: int | None = None) -> PromptSeen:
    """A golden text with every step of KL in it, and a gap. broken: a row whose numbers are none."""
    tokens = []
    for row in range(repeat * len(KLS)):
        key, kl = 10 + 2 * (row % len(KLS)), KLS[row % len(KLS)] * scale
        place = 40 + row + (3 if row >= 2 * len(KLS) else 0)
        marked = row == broken
        tokens.append(token(place, key, None if marked else kl, mark="non_finite: 3 of 20 values" if marked else None))
    mean = sum(one.kl or 0.0 for one in tokens) / len(tokens)
    return PromptSeen(name, ProbeMode.PROMPT_SCORING, 40, mean, max(one.kl or 0.0 for one in tokens), tuple(tokens))


def texts() -> dict[int, str]:
    """What the ids of prompt_seen mean; one of them is HTML."""
    golden = {10 + 2 * i: word for i, word in enumerate(WORDS)}
    others = {11 + 2 * i: f" other{i}" for i in range(len(WORDS))}
    return {**golden, **others, 90: EVIL, 91: "\u202eevil"}


def tokens_seen(**changes: Any) -> TokensSeen:
    """What is kept of the bad run."""
    prompts = (prompt_seen("math-03", broken=5), prompt_seen("math-11", scale=0.5), prompt_seen("math-<b>", scale=0.1))
    return replace(TokensSeen(prompts, 23), **changes)


def isolated(kept: Store, bad: RunRecord) -> Decision:
    """The decision to isolate, carried out, and one that was held back before."""
    kept.decide(replace(suppressed("d-held", 20.2), wish=replace(suppressed().wish, run=bad.id)))
    made = decision("d-1", 21, run=bad.id)
    moved = Transition(at(21), "int8-a", Axis.ROUTING, "in", "leaving", "mean KL over its limit", decision="d-1")
    kept.decide(made, intent=intent(made), state=leaving(made), transitions=[moved])
    kept.begin_attempt("d-1")
    out = TargetState("int8-a", "llama", Routing.OUT, owner="d-1", since=at(22), ejections=1)
    kept.settle(
        "d-1",
        Outcome(Result.VERIFIED, "read back as isolated at http://ada:hunter2@gateway:8080", at(22), 1),
        state=out,
        transitions=[Transition(at(22), "int8-a", Axis.ROUTING, "leaving", "out", "verified", decision="d-1")],
    )
    return made


def incident_store(folder: Path, *, tokens: TokensSeen | None = None, words: bool = True) -> Path:
    """The store of an incident; its bad run is `bad_run()`, its decisions are d-held, d-1 and d-back."""
    with opened(folder) as kept:
        kept.keep_references(fingerprint(BASELINE), "d" * 64, [answer(f"math-0{i}", i) for i in range(3)])
        for number in range(1, 20):
            good = run(number, 0.003 + 0.0004 * (number % 5))
            kept.add_run(good, after(good))
        bad = bad_run()
        changed = Transition(
            at(20.5), "int8-a", Axis.QUALITY, "ok", "degraded", "mean KL 0.12 is degraded", task_set="math", run=bad.id
        )
        kept.add_run(bad, after(bad), [changed])
        kept.keep_tokens(bad.id, tokens or tokens_seen(), tokenizer=TOKENIZER)
        if words:
            kept.keep_texts(TOKENIZER, texts())
        isolated(kept, bad)
        matter = Matter(Topic.QUALITY, "int8-a math", "degraded", "mean KL over its limit", target="int8-a", run=bad.id)
        kept.tell(Change(told=[Notice("n-1", at(20.6), at(20.5), matter)]))
        well = run(40, 0.004, node=UPGRADED)
        kept.add_run(well, after(well))
        kept.decide(decision("d-back", 41, action=Action.RELEASE, run=well.id, lane=None, findings=()))
    return folder / "q.db"
