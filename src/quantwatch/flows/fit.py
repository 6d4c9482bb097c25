"""Does a reference fit what the configuration asks for?"""

from quantwatch.flow.prompt import ProbeMode
from quantwatch.flows.watched import WatchedSet
from quantwatch.record.reference_file import Reference


def modes_of(wanted: WatchedSet) -> tuple[ProbeMode, ...]:
    """The modes that runs of a task set ask in: its own, and that of confirming runs where it is another."""
    second = wanted.confirm_mode or wanted.mode
    return (wanted.mode,) if second is wanted.mode else (wanted.mode, second)


def misfit(reference: Reference, wanted: WatchedSet) -> str | None:
    """What keeps a reference from being used for a task set, in words; None where it fits.

    Fewer log-probabilities than wanted do no harm where that many had been asked for: the server gives no more.
    """
    if reference.pool != wanted.prompts.digest:
        return f"the golden prompts of {wanted.name} are others than those that were enrolled"
    absent = [mode.value for mode in modes_of(wanted) if mode not in reference.modes]
    if absent:
        return f"{wanted.name} is asked in mode {' and '.join(absent)}, which was not enrolled"
    if reference.continuation_tokens != wanted.continuation_tokens:
        enrolled, now = reference.continuation_tokens, wanted.continuation_tokens
        return f"continuation_tokens of {wanted.name} is {now}, and {enrolled} was enrolled"
    if reference.asked_k < wanted.k:
        return f"k of {wanted.name} is {wanted.k}, and {reference.asked_k} was enrolled"
    if ProbeMode.ONE_TOKEN in modes_of(wanted) and reference.positions < wanted.positions:
        return f"positions of {wanted.name} is {wanted.positions}, and {reference.positions} were enrolled"
    return None
