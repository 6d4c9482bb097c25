"""What to try next, by cause: one table. Which cause fits a run is found in causes.py.

Commands name their own options alone; `FILE`, `TARGET`, `FOLDER`, `RUN` and `ID` are for the reader to fill in, as in
docs/runbook.md, whose sections are named by their anchors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Cause(StrEnum):
    """What may be behind an incident, the most telling first: reports keep this order."""

    BASELINE = "baseline"
    BROKEN_NUMBERS = "broken_numbers"
    BROKEN_TEXT = "broken_text"
    TOKENIZER = "tokenizer"
    VERSION = "version"
    MODEL = "model"
    ONE_RANK = "one_rank"
    LONG_PROMPTS = "long_prompts"
    LATE_TOKENS = "late_tokens"
    STRUCTURE = "structure"
    ONE_LANGUAGE = "one_language"
    YARDSTICK_CHANGED = "yardstick_changed"
    RESTART = "restart"
    UNDER_LOAD = "under_load"
    NEVER_SOUND = "never_sound"
    OUTLIERS = "outliers"
    NOTHING_CHANGED = "nothing_changed"
    CANNOT_TELL = "cannot_tell"
    ORDER = "order"
    HELD_BACK = "held_back"
    RELEASE_ORDER = "release_order"
    RELEASE_HELD_BACK = "release_held_back"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do, and the command for it, None where there is none."""

    said: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Remedy:
    """What helps against a cause. runbook: the section of docs/runbook.md that says more."""

    title: str
    steps: tuple[Step, ...]
    runbook: str


@dataclass(frozen=True, slots=True)
class Advice:
    """A cause that fits, what of the incident speaks for it, and what helps. runbook: the section that says more."""

    cause: Cause
    seen: str
    remedy: Remedy
    runbook: str


_DIFF = Step("Compare with the last good run, factor by factor.", "quantwatch diff --config FILE RUN RUN")
_OUTLIERS = Step("Look for outlier channels in the model.", "quantwatch toolkit outliers --model FOLDER --out report")
_SMOOTH = Step("Where there are some, smooth them and quantize anew.", "quantwatch toolkit smooth --model FOLDER")
_CHECKPOINT = Step(
    "Check the checkpoint's files: NaN, zero scales, codes out of range.",
    "quantwatch toolkit check-checkpoint FOLDER",
)
_ROLL_BACK = Step("Start the node as it was before, and let it be measured.", "quantwatch inspect --config FILE")
_ASK_GATEWAY = Step("Ask the gateway what it knows.", "quantwatch gateway test --config FILE")

REMEDIES: Mapping[Cause, Remedy] = MappingProxyType(
    {
        Cause.BASELINE: Remedy(
            "The baseline is in doubt",
            (
                Step("Mend the baseline first: until it is proven, a verdict on a node says little."),
                Step("See what it is and whether it answers.", "quantwatch status --config FILE"),
                Step(
                    "If it is meant to answer otherwise now, say so.",
                    'quantwatch accept-baseline --config FILE --reason "new build"',
                ),
            ),
            "alert-baseline-moved",
        ),
        Cause.BROKEN_NUMBERS: Remedy(
            "The node computes broken numbers",
            (
                Step("Keep users away and start the node anew: NaN spreads to the next users' answers."),
                _CHECKPOINT,
                Step("Watch the logits of the same model in your own program: docs/toolkit.md, LogitGuard."),
                Step("Look at the node's log, its GPU's memory errors, and the kernels that it chose."),
            ),
            "quality-corrupted",
        ),
        Cause.BROKEN_TEXT: Remedy(
            "The node's free answers are garbage",
            (
                Step("Keep users away and start the node anew; a passing /health proves nothing."),
                _CHECKPOINT,
                Step("Compare engine version, kernels and flags with a node that is well."),
            ),
            "quality-corrupted",
        ),
        Cause.TOKENIZER: Remedy(
            "The tokenizer is another one",
            (
                Step("Serve the node with the baseline's tokenizer files and chat template."),
                Step("Hold both servers against each other.", "quantwatch handshake --config FILE"),
            ),
            "not-comparable",
        ),
        Cause.VERSION: Remedy(
            "The engine's version changed",
            (
                Step("Roll the node back to the version of the last good run."),
                _ROLL_BACK,
                Step("Before the next upgrade let one node pass the release gate.", "quantwatch accept --plan FILE"),
            ),
            "alert-target-bad",
        ),
        Cause.MODEL: Remedy(
            "The model that is served changed",
            (Step("Roll back to the checkpoint of the last good run."), _CHECKPOINT, _ROLL_BACK),
            "alert-target-bad",
        ),
        Cause.ONE_RANK: Remedy(
            "One data-parallel rank is worse than the others",
            (
                Step("Start that rank anew, or take its GPU out, and look at its memory errors."),
                Step("Measure again.", "quantwatch inspect --config FILE --target TARGET"),
            ),
            "quality-degraded",
        ),
        Cause.LONG_PROMPTS: Remedy(
            "Long prompts are hit, short ones are not",
            (
                Step("Suspect the KV cache: start the node with a KV cache in full precision and measure again."),
                Step("See in the model what a quantized KV cache costs.", "quantwatch toolkit growth --model FOLDER"),
                Step("Compare rope scaling and the longest context with the baseline's."),
            ),
            "quality-degraded",
        ),
        Cause.LATE_TOKENS: Remedy(
            "The answer drifts the longer it gets",
            (
                Step("Suspect the KV cache: start the node with a KV cache in full precision and measure again."),
                Step("See how errors grow from layer to layer.", "quantwatch toolkit growth --model FOLDER"),
            ),
            "quality-degraded",
        ),
        Cause.STRUCTURE: Remedy(
            "Structure breaks first: braces, tags, tool calls",
            (
                Step("Compare chat template, tool parser and structured-output settings with the baseline's."),
                Step("Quantize with calibration prompts that hold tool calls and JSON."),
            ),
            "quality-degraded",
        ),
        Cause.ONE_LANGUAGE: Remedy(
            "One language is hit more than the others",
            (
                Step("Quantize with calibration prompts in that language."),
                Step(
                    "See whether its prompts reach other outlier channels.",
                    "quantwatch toolkit outliers --model FOLDER --prompts FILE",
                ),
            ),
            "quality-degraded",
        ),
        Cause.YARDSTICK_CHANGED: Remedy(
            "It was measured otherwise than before",
            (
                Step("Prompts, k, mode, limits or the baseline differ: do not compare number by number."),
                Step("Measure again before you blame the node.", "quantwatch inspect --config FILE"),
            ),
            "first-look",
        ),
        Cause.RESTART: Remedy(
            "The node was started anew in between",
            (Step("Compare command line, environment, driver and kernels of both starts."), _DIFF),
            "alert-target-bad",
        ),
        Cause.UNDER_LOAD: Remedy(
            "The node was busy while it was measured",
            (
                Step("Measure it again when it is idle; what goes away then comes from batching or memory pressure."),
                Step("Limit the sequences that it computes at once, and measure again."),
            ),
            "quality-inconclusive",
        ),
        Cause.NEVER_SOUND: Remedy(
            "No run before was good",
            (
                Step("Have people read its answers: the limits may be too narrow for this model."),
                Step(
                    "If they find them right, set limits of its own.",
                    "quantwatch calibrate --config FILE --target TARGET",
                ),
                _OUTLIERS,
                _SMOOTH,
            ),
            "alert-target-bad",
        ),
        Cause.OUTLIERS: Remedy(
            "The whole distribution moved, in every part",
            (_OUTLIERS, _SMOOTH, _CHECKPOINT),
            "quality-degraded",
        ),
        Cause.NOTHING_CHANGED: Remedy(
            "Nothing that quantwatch can see has changed",
            (
                Step("Suspect what it cannot see: GPU, driver, clocks, memory, hours of uptime."),
                Step("Start the node anew and measure.", "quantwatch inspect --config FILE --target TARGET"),
                Step("Move the model to another machine; does the fault move with it?"),
            ),
            "alert-target-bad",
        ),
        Cause.CANNOT_TELL: Remedy(
            "This run could not tell",
            (
                Step("The reason says which measurement is missing; mend that, not the node."),
                Step("Ask what both servers can do.", "quantwatch handshake --config FILE"),
            ),
            "alert-cannot-tell",
        ),
        Cause.ORDER: Remedy(
            "The order did not take effect at the gateway",
            (
                _ASK_GATEWAY,
                Step("Until it is mended, take the node out at the gateway by hand."),
            ),
            "orders-to-the-gateway",
        ),
        Cause.HELD_BACK: Remedy(
            "The action was held back",
            (
                Step("The node still serves. Mend what objects, or take it out at the gateway yourself."),
                Step(
                    "Or isolate it by hand, on your own responsibility.",
                    'quantwatch isolate --config FILE TARGET --reason "seen in a report"',
                ),
            ),
            "alert-action-held-back",
        ),
        Cause.RELEASE_ORDER: Remedy(
            "The release did not take effect at the gateway",
            (
                _ASK_GATEWAY,
                Step("Until it is mended the node may get no traffic; if it is well, put it back by hand."),
            ),
            "orders-to-the-gateway",
        ),
        Cause.RELEASE_HELD_BACK: Remedy(
            "The release was held back",
            (
                Step("The node stays out of traffic. Mend what objects, and it comes back by itself once it is clean."),
                Step(
                    "Or release it by hand, on your own responsibility.",
                    'quantwatch release --config FILE TARGET --reason "seen in a report"',
                ),
            ),
            "alert-action-held-back",
        ),
    }
)
"""One for each cause."""


def advice(cause: Cause, seen: str, *, runbook: str | None = None) -> Advice:
    """What helps against a cause. runbook: a section of its own, where the cause alone is not all."""
    remedy = REMEDIES[cause]
    return Advice(cause, seen, remedy, runbook or remedy.runbook)
