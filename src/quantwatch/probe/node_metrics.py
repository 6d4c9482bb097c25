"""What a vLLM node's own /metrics page tells us: its load and when its process started."""

import math
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

WAITING = "vllm:num_requests_waiting"
KV_USAGE = frozenset({"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"})
STARTED = "process_start_time_seconds"
_WANTED = ("vllm:num_requests_waiting", "vllm:kv_cache_usage", "vllm:gpu_cache_usage", STARTED)


@dataclass(frozen=True, slots=True)
class Load:
    """A node's load: requests waiting, share of the KV cache in use (the fullest engine's).

    started: process start in seconds since 1970.
    """

    waiting: float = 0.0
    kv_usage: float = 0.0
    started: float | None = None


def read_load(body: bytes) -> Load | None:
    """Read a Prometheus page; None when it is none or tells nothing of the load."""
    try:
        families = list(text_string_to_metric_families(_wanted_lines(body)))
    except (ValueError, KeyError, IndexError):
        return None
    values: dict[str, list[float]] = {}
    for sample in (sample for family in families for sample in family.samples):
        values.setdefault(sample.name.removesuffix("_total"), []).append(sample.value)
    if WAITING not in values and STARTED not in values:
        return None
    return Load(
        waiting=sum(values.get(WAITING, [])),
        kv_usage=max((v for name in KV_USAGE for v in values.get(name, [])), default=0.0),
        started=next((value for value in values.get(STARTED, []) if math.isfinite(value)), None),
    )


def _wanted_lines(body: bytes) -> str:
    """Keep only the lines that matter: a node's page has thousands."""
    lines = body.decode("utf-8", "replace").splitlines()
    return "\n".join(line for line in lines if line.startswith(_WANTED)) + "\n"
