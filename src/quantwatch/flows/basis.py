"""What must stay equal for runs to be counted together."""

import hashlib
import json

from quantwatch.flow.identity import Identity
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.report import SetReport


def basis_of(
    baseline: Identity | None,
    node: Identity | None,
    one: SetReport,
    *,
    limits: str,
    mode: ProbeMode,
    reference: str = "",
) -> str:
    """What must stay equal for runs to be counted together: 12 hex digits; empty where a side stayed unknown.

    A node without a tokenizer broke off its introduction, so what it would have been asked for is not known either. Its
    process is told apart beside this: a node may tell its start time in one run and not in the next. The mode is the
    set's own: a confirming run asks by another path, so that a fault of one path is not taken for the node's.
    reference: digest of the enrolled answers, empty without any.
    """
    if baseline is None or node is None or node.tokenizer is None:
        return ""
    parts = [
        [baseline.model, baseline.root, baseline.version, baseline.tokenizer],
        [node.model, node.root, node.version],
        [one.pool, one.k, mode.value, limits],
    ]
    if reference:
        parts.append([reference])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]
