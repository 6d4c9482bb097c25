"""What a vLLM node's own /metrics page tells us: its load, what it has done, and when its process started."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from quantwatch.flow.acceptance import Footprint
from quantwatch.flow.load import Load
from quantwatch.vllm_plugin.names import BROKEN, RUNAWAY

WAITING = "vllm:num_requests_waiting"
RUNNING = "vllm:num_requests_running"
KV_USAGE = frozenset({"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"})
STARTED = "process_start_time_seconds"
CACHE_CONFIG = "vllm:cache_config_info"
BORN = "vllm:num_preemptions_created"
PROMPT_TOKENS = "vllm:prompt_tokens"
GENERATED_TOKENS = "vllm:generation_tokens"
PREFIX_HITS = "vllm:prefix_cache_hits"
CORRUPTED = "vllm:corrupted_requests"
_COUNTERS = (PROMPT_TOKENS, GENERATED_TOKENS, PREFIX_HITS, CORRUPTED, BROKEN, RUNAWAY)
_WANTED = frozenset({WAITING, RUNNING, *KV_USAGE, STARTED, BORN, *(f"{name}_total" for name in _COUNTERS)})
MOST_LINES = 10_000
"""Lines of these metrics that a page may have; thousands of engines would not fill it."""


def read_load(body: bytes) -> Load | None:
    """Read a Prometheus page; None when it is none or tells nothing of the load."""
    values: dict[str, list[float]] = {}
    samples = _samples(body, _WANTED)
    for sample in samples:
        values.setdefault(sample.name.removesuffix("_total"), []).append(sample.value)
    if WAITING not in values and STARTED not in values:
        return None
    return Load(
        waiting=_sum(values, WAITING) or 0.0,
        kv_usage=max((v for name in KV_USAGE for v in values.get(name, []) if math.isfinite(v)), default=0.0),
        started=next((value for value in values.get(STARTED, []) if math.isfinite(value)), None),
        running=_sum(values, RUNNING),
        prompt_tokens=_sum(values, PROMPT_TOKENS),
        generated_tokens=_sum(values, GENERATED_TOKENS),
        born=min((value for value in values.get(BORN, []) if math.isfinite(value)), default=None),
        engines=tuple(sorted({one.labels.get("engine", "") for one in samples if one.name == WAITING} - {""})),
        prefix_hits=_sum(values, PREFIX_HITS),
        broken_rows=_sum(values, BROKEN),
        runaway_rows=_sum(values, RUNAWAY),
        corrupted_requests=_sum(values, CORRUPTED),
    )


def _sum(values: Mapping[str, Sequence[float]], name: str) -> float | None:
    """Over all engines; None where the page does not tell, or tells no number."""
    total = sum(values[name]) if name in values else math.nan
    return total if math.isfinite(total) else None


def read_footprint(body: bytes, metric: str) -> Footprint:
    """What a page says of memory: the sum over a metric's samples, and the tokens that the KV caches hold together."""
    samples = _samples(body, {metric, CACHE_CONFIG})
    sizes = [sample.value for sample in samples if sample.name == metric and math.isfinite(sample.value)]
    caches = [_cache_tokens(sample.labels) for sample in samples if sample.name == CACHE_CONFIG]
    known = [tokens for tokens in caches if tokens is not None]
    return Footprint(math.fsum(sizes) if sizes else None, sum(known) if known else None)


def _cache_tokens(labels: Mapping[str, str]) -> int | None:
    """Blocks times tokens a block of one engine; None where it does not tell both."""
    given = [labels.get(name, "") for name in ("num_gpu_blocks", "block_size")]
    if not all(text.isascii() and text.isdigit() and len(text) <= 12 for text in given):
        return None
    return int(given[0]) * int(given[1])


def _samples(body: bytes, names: Collection[str]) -> list[Sample]:
    """The samples of these metrics, values as floats; none at all where the page is none or has more than any has.

    Only their lines are parsed: a node's page has thousands, and another kind of page may have millions.
    """
    known = "|".join(map(re.escape, sorted(names)))
    wanted = re.compile(rf"^(?:{known})[ {{][^\r\n]{{1,4000}}(?=\r?$)".encode(), re.MULTILINE)
    lines = [match[0] for match in islice(wanted.finditer(body), MOST_LINES + 1)]
    if len(lines) > MOST_LINES:
        return []
    try:
        families = list(text_string_to_metric_families(b"\n".join([*lines, b""]).decode("utf-8", "replace")))
        return [one._replace(value=_float(one.value)) for family in families for one in family.samples]
    except (ValueError, KeyError, IndexError):
        return []


def _float(value: float) -> float:
    """The value as a float; a page may write a whole number that none can hold."""
    try:
        return float(value)
    except OverflowError:
        return math.nan
