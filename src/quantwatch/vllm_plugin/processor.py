"""The logits processor that vLLM loads by its entry point: a thin coat over the tally.

Model runner V1 and V2 have different base classes, and V2 refuses what is not of its own, so this class has both where
both are there. The interfaces do not contradict each other: V1 makes it with (config, device, pinned memory), V2 with
(config, request states), and V2 hands `apply` the layout of the batch as well.
"""

import importlib
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from quantwatch.vllm_plugin.outlet import Outlet, outlet
from quantwatch.vllm_plugin.start import off
from quantwatch.vllm_plugin.tally import Tally

log = logging.getLogger(__name__)

INTERFACES = ("vllm.v1.sample.logits_processor.interface", "vllm.v1.worker.gpu.sample.logits_processor.interface")


def bases(interfaces: tuple[str, ...] = INTERFACES) -> tuple[type, ...]:
    """The base classes that this vLLM has; none where there is no vLLM, which leaves a plain class."""
    found = []
    for name in interfaces:
        try:
            found.append(importlib.import_module(name).LogitsProcessor)
        except Exception as exc:  # noqa: BLE001
            # One of the few broad handlers: a plugin that cannot be imported would keep the server from starting.
            log.debug("%s has no interface for logits processors: %s", name, exc)
    return tuple(found)


class Watcher:
    """Takes steps in and shows the counts. The first trouble of its own ends it, and the engine goes on without."""

    def __init__(self, way: Outlet | None) -> None:
        self._tally, self._way = Tally(), way

    def look(self, logits: Tensor) -> None:
        """Take a step in. logits: (rows, vocabulary). Never raises."""
        if self._way is None:
            return
        try:
            self._tally.look(logits)
            self._way.put(self._tally.counts())
        except Exception:
            # One of the few broad handlers: what raises here ends the engine, and every request with it.
            self._way = None
            log.exception("quantwatch counts no rows of logits any longer; the server goes on")


def watcher(vllm_config: Any, loaded: Mapping[str, Any] = sys.modules) -> Watcher:
    """The watcher of an engine; one without effect where another process of it counts the same rows. Never raises."""
    try:
        if off(os.environ) or _copy(loaded):
            return Watcher(None)
        rank = getattr(getattr(vllm_config, "parallel_config", None), "data_parallel_rank", 0)
        way = outlet(str(int(rank or 0)))
        if way is None:
            log.warning("quantwatch counts no rows of logits: VLLM_PLUGINS leaves out its general plugin `quantwatch`")
        return Watcher(way)
    except Exception:
        # One of the few broad handlers: as above, while the engine starts.
        log.exception("quantwatch counts no rows of logits")
        return Watcher(None)


def _copy(loaded: Mapping[str, Any]) -> bool:
    """Whether this is a tensor-parallel rank after the first: every rank samples from the same logits."""
    known = loaded.get("vllm.distributed.parallel_state")
    try:
        return known is not None and bool(known.get_tensor_model_parallel_rank())
    except AssertionError:  # vLLM's word for: there are no ranks here
        return False


class LogitsWatch(*bases()):  # type: ignore[misc]  # which bases there are is known at run time alone
    """Counts broken rows and passes all logits on unchanged."""

    def __init__(self, vllm_config: Any, *_more: Any) -> None:
        self._watcher = watcher(vllm_config)

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Every request is welcome."""

    def is_argmax_invariant(self) -> bool:
        """No, although it is: V1 leaves invariant processors out of greedy requests, which would not be counted."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """V1 tells here who is in the batch; rows are counted whosever they are."""

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:  # noqa: ARG002, the interface of V2
        """Yes: V2 leaves out a step in which no request wants its logits processed."""
        return True

    def apply(self, logits: Tensor, ctx: Any = None) -> Tensor:  # noqa: ARG002, the interface of V2
        """The same logits. (rows, vocabulary)."""
        self._watcher.look(logits)
        return logits
