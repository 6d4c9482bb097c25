"""What a vLLM node's own /metrics page tells us: its load and when its process started."""

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

WAITING = "vllm:num_requests_waiting"
RUNNING = "vllm:num_requests_running"
KV_USAGE = frozenset({"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"})
STARTED = "process_start_time_seconds"
CORRUPTED = "vllm:corrupted_requests"
_WANTED = ("vllm:num_requests_", "vllm:kv_cache_usage", "vllm:gpu_cache_usage", "vllm:corrupted_requests", STARTED)


@dataclass(frozen=True, slots=True)
class Load:
    """A node's load: requests running and waiting, share of the KV cache in use (the fullest engine's).

    started: process start in seconds since 1970. corrupted: requests with NaN logits that the server counted itself.
    """

    running: float = 0.0
    waiting: float = 0.0
    kv_usage: float = 0.0
    started: float | None = None
    corrupted: float | None = None


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
        running=sum(values.get(RUNNING, [])),
        waiting=sum(values.get(WAITING, [])),
        kv_usage=max((v for name in KV_USAGE for v in values.get(name, [])), default=0.0),
        started=next(iter(values.get(STARTED, [])), None),
        corrupted=sum(values[CORRUPTED]) if CORRUPTED in values else None,
    )


def _wanted_lines(body: bytes) -> str:
    """Keep only the lines that matter: a node's page has thousands."""
    lines = body.decode("utf-8", "replace").splitlines()
    return "\n".join(line for line in lines if line.startswith(_WANTED)) + "\n"
