"""How far the sharp bound comes over the truth, over many random pairs of whole vocabularies."""

import torch
from torch import Tensor

from quantwatch.measure.bounds import sharp
from quantwatch.measure.kl import FLOAT32, FLOAT64, align, bucket
from quantwatch.measure.listed import Listed
from support.vocabulary import Damage, damaged_logits, full_kl, narrowed, rounded, top

VOCABULARY = 50_000
KS = (1, 5, 20, 100)
ALLOWED = {"float64": 1e-9, "float32": 1e-6, "float32, summed in blocks": 5e-6, "float32, summed in a row": 3e-5}
"""Most that a bound may exceed the truth, by what the servers computed and printed (nats).

In blocks: a log-softmax as GPUs compute it. In a row: torch's CPU kernel, whose sum over a vocabulary loses up to 3e-5.
"""


def worst_excess(damage: Damage, n: int, *, seed: int) -> dict[str, float]:
    """The largest bound - truth over n pairs, all KS and every second row with an own token, by kind of input."""
    logits_p, logits_q = damaged_logits(damage, n, vocabulary=VOCABULARY, seed=seed)
    p, q = logits_p.double().log_softmax(1), logits_q.double().log_softmax(1)
    truth = full_kl(p, q)
    own = torch.randint(VOCABULARY, (n,), generator=torch.Generator().manual_seed(seed))
    wide_p, wide_q = top(p, max(KS), own=own), top(q, max(KS), own=own)
    worst = dict.fromkeys(ALLOWED, -torch.inf)
    for k in KS:
        lists = (_shortened(wide_p, k), _shortened(wide_q, k))
        exact = _bound(*lists, rounding=FLOAT64)
        worst["float64"] = max(worst["float64"], float((exact - truth).max()))
        printed = _bound(*map(rounded, lists), rounding=FLOAT32)
        worst["float32"] = max(worst["float32"], float((printed - truth).max()))
        shared = align(*lists)
        assert bool((exact >= bucket(shared, rounding=FLOAT64)).all())
    for kind, log_softmax in (("in blocks", _in_blocks), ("in a row", _in_a_row)):
        computed = [top(log_softmax(logits).double(), 20) for logits in (logits_p, logits_q)]
        worst[f"float32, summed {kind}"] = float((_bound(*computed, rounding=FLOAT32) - truth).max())
    return worst


def _in_blocks(logits: Tensor) -> Tensor:
    shifted = logits - logits.amax(1, keepdim=True)
    return shifted - shifted.exp().sum(1, keepdim=True).log()


def _in_a_row(logits: Tensor) -> Tensor:
    return logits.log_softmax(1)


def _bound(baseline: Listed, node: Listed, *, rounding: float) -> Tensor:
    return sharp(baseline, node, align(baseline, node), rounding=rounding)


def _shortened(side: Listed, k: int) -> Listed:
    """The top k, and on every second row the own token where it is not within."""
    short = narrowed(side, k)
    has_own = side.held[:, -1] & (torch.arange(len(side.ids)) % 2 == 0)
    short.ids[has_own, -1] = side.ids[has_own, -1]
    short.logprobs[has_own, -1] = side.logprobs[has_own, -1]
    return short
