"""Whose trouble is an error? Only corrupted replies are the node's quality; everything else is missing data."""

from quantwatch.errors import Misconfigured, NodeBusy, OverBudget, OverCap, ProbeError, ReplyCorrupted, ReplyInvalid
from quantwatch.flow.verdict import Quality

_QUALITY: tuple[tuple[type[ProbeError], Quality], ...] = (
    (ReplyCorrupted, Quality.CORRUPTED),
    (ReplyInvalid, Quality.INVALID),
    (OverCap, Quality.INVALID),
    (Misconfigured, Quality.INVALID),
    (NodeBusy, Quality.SKIPPED),
    (OverBudget, Quality.SKIPPED),
)


def quality_of(error: ProbeError) -> Quality:
    """The quality that a failed probe stands for; UNKNOWN for all trouble of network and server."""
    return next((quality for kind, quality in _QUALITY if isinstance(error, kind)), Quality.UNKNOWN)


def hopeless(error: ProbeError) -> bool:
    """Tell whether further probes of the same server are pointless until a person acts."""
    return isinstance(error, Misconfigured)
