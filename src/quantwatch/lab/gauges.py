"""The node's own metrics, under vLLM's names, so far as a watchdog or a dashboard reads them."""

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from quantwatch.lab.engine import Answer

FINISHED = ("stop", "length", "abort", "error", "repetition")


class Gauges:
    """Counts requests and tokens of one model; each prompt is a request, as in vLLM."""

    def __init__(self, model: str, *, started: float) -> None:
        self._registry = CollectorRegistry()
        self._model = model
        since = "Start time of the process since unix epoch in seconds."
        Gauge("process_start_time_seconds", since, registry=self._registry).set(started)
        self._running = self._gauge("vllm:num_requests_running", "Number of requests in model execution batches.")
        self._waiting = self._gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.")
        self._cache = self._gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.")
        self._prompt = self._counter("vllm:prompt_tokens", "Number of prefill tokens processed.")
        self._generated = self._counter("vllm:generation_tokens", "Number of generation tokens processed.")
        labels = ["engine", "finished_reason", "model_name"]
        done = Counter(
            "vllm:request_success", "Count of successfully processed requests.", labels, registry=self._registry
        )
        self._done = {one: done.labels(engine="0", finished_reason=one, model_name=model) for one in FINISHED}

    def load(self, *, running: int, waiting: int, cache: float) -> None:
        """Say how busy the node is now. cache: share of the KV cache in use, 0 to 1."""
        self._running.set(running)
        self._waiting.set(waiting)
        self._cache.set(cache)

    def answered(self, answer: Answer, *, prompt: int) -> None:
        """Count an answered prompt of so many tokens."""
        self._prompt.inc(prompt)
        self._generated.inc(len(answer.ids))
        self._done[answer.finish].inc()

    def aborted(self, prompts: int) -> None:
        """Count prompts that nobody waits for any more."""
        self._done["abort"].inc(prompts)

    def page(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _gauge(self, name: str, help_text: str) -> Gauge:
        gauge = Gauge(name, help_text, ["engine", "model_name"], registry=self._registry)
        return gauge.labels(engine="0", model_name=self._model)

    def _counter(self, name: str, help_text: str) -> Counter:
        counter = Counter(name, help_text, ["engine", "model_name"], registry=self._registry)
        return counter.labels(engine="0", model_name=self._model)
