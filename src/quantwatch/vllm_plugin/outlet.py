"""How the counts of the engine's processes reach the server's /metrics page: through small files, or Prometheus' own.

The engine and the server are processes of their own. Where Prometheus' client runs in several processes already it has
files for that; its page then lacks the process's start time, so it is never switched on for our sake.
"""

import contextlib
import mmap
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from quantwatch.vllm_plugin.counts import Counts
from quantwatch.vllm_plugin.names import BROKEN, ENGINE, FOLDER, HELP, MAGNITUDE, ROWS, RUNAWAY

SEVERAL = "PROMETHEUS_MULTIPROC_DIR"
"""Set where Prometheus' client runs in several processes, in time before it is imported."""

LAYOUT = struct.Struct("<4d")
SUFFIX = ".counts"
ORDER = (ROWS, BROKEN, RUNAWAY, MAGNITUDE)
"""The series by the places of Counts."""


class Outlet(Protocol):
    """Where counts go."""

    def put(self, counts: Counts) -> None:
        """Show these from now on."""
        ...


class FileOutlet:
    """A file of four numbers, `ENGINE.PID.counts`, that is written in memory: no call to the system for a step."""

    def __init__(self, folder: Path, engine: str) -> None:
        path = folder / f"{engine}.{os.getpid()}{SUFFIX}"
        with path.open("w+b") as file:
            file.write(bytes(LAYOUT.size))
            file.flush()
            self._held = mmap.mmap(file.fileno(), LAYOUT.size)

    def put(self, counts: Counts) -> None:
        """Write the numbers where a reader finds them."""
        LAYOUT.pack_into(self._held, 0, *counts)


class ClientOutlet:
    """Counters and a gauge of Prometheus' client, which keeps them in files that the server reads."""

    def __init__(self, engine: str, registry: CollectorRegistry = REGISTRY) -> None:
        self._counters = [
            Counter(name, HELP[name], [ENGINE], registry=registry).labels(engine) for name in (ROWS, BROKEN, RUNAWAY)
        ]
        gauge = Gauge(MAGNITUDE, HELP[MAGNITUDE], [ENGINE], registry=registry, multiprocess_mode="livemostrecent")
        self._gauge = gauge.labels(engine)
        self._told = Counts()

    def put(self, counts: Counts) -> None:
        """Add what is new."""
        for counter, now, before in zip(self._counters, counts, self._told, strict=False):
            if now > before:
                counter.inc(now - before)
        self._gauge.set(counts.magnitude)
        self._told = counts


class FileCollector(Collector):
    """What lies in the folder, for the page of the process that serves it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def describe(self) -> Iterator[Metric]:
        """Nothing: registering must not read files."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """One sample for each engine; none where nothing can be read, so that the page never fails for our sake."""
        found = read(self._folder)
        for place, name in enumerate(ORDER):
            kind = GaugeMetricFamily if name == MAGNITUDE else CounterMetricFamily
            family = kind(name, HELP[name], labels=[ENGINE])
            for engine, counts in found.items():
                family.add_metric([engine], counts[place])
            if found:
                yield family


def read(folder: Path) -> dict[str, Counts]:
    """The counts by engine, summed over its processes; files that cannot be read are passed over."""
    found: dict[str, Counts] = {}
    with contextlib.suppress(OSError):
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            with contextlib.suppress(OSError, struct.error):
                counts = Counts(*LAYOUT.unpack(path.read_bytes()))
                engine = path.name.split(".")[0]
                found[engine] = _together(found.get(engine, Counts()), counts)
    return found


def _together(one: Counts, other: Counts) -> Counts:
    rows, broken, runaway = (a + b for a, b in zip(one[:3], other[:3], strict=True))
    return Counts(rows, broken, runaway, max(one.magnitude, other.magnitude))


def several(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether Prometheus' client runs in several processes here."""
    return bool(environment.get(SEVERAL))


def outlet(engine: str, environment: Mapping[str, str] = os.environ) -> Outlet | None:
    """Where an engine's counts go; None where nobody would find them. Raises OSError for a folder that is none."""
    if several(environment):
        return ClientOutlet(engine)
    folder = environment.get(FOLDER)
    return FileOutlet(Path(folder), engine) if folder else None


def made_folder() -> Path:
    """A new folder for counts, for the user of this process alone."""
    return Path(tempfile.mkdtemp(prefix="quantwatch-vllm-"))


def remove(folder: Path, owner: int) -> None:
    """Take a folder away again, in the process that made it alone."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
