"""Metrics for Prometheus; needs the extra `metrics`. Times are in seconds.

    metrics = orbit.metrics.Metrics()
    worker = orbit.Worker(middleware=[metrics])
    metrics.watch(worker)

| metric | labels | |
|---|---|---|
| `orbit_worker_tasks_total` | `contract`, `outcome` | handlers that ended: `succeeded`, `failed`, `cancelled` |
| `orbit_worker_task_seconds` | `contract` | how long they took, a histogram |
| `orbit_worker_running` | | handlers at work |
| `orbit_worker_held` | | tasks from receipt until the report is answered, of `watch` |
| `orbit_worker_slots` | | most tasks at once, of `watch` |
| `orbit_worker_healthy` | | 1 while the server answers, otherwise 0, of `watch` |
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from orbit.context import TaskContext
from orbit.task import Next
from orbit.worker import Worker

# Upper bounds of the histogram, in seconds: from a lookup in a cache to a batch that takes minutes.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """A middleware that counts and times."""

    def __init__(self, registry: CollectorRegistry = REGISTRY, *, buckets: Sequence[float] = BUCKETS) -> None:
        """Registers the metrics; twice in one registry raises `ValueError`."""
        self._registry = registry
        self._tasks = Counter(
            "orbit_worker_tasks", "Handlers that ended, by outcome.", ["contract", "outcome"], registry=registry
        )
        self._seconds = Histogram(
            "orbit_worker_task_seconds",
            "How long handlers took.",
            ["contract"],
            registry=registry,
            buckets=list(buckets),
        )
        self._running = Gauge("orbit_worker_running", "Handlers at work.", registry=registry)

    async def __call__(self, context: TaskContext, input: Any, proceed: Next, /) -> Any:
        """Goes around a handler."""
        contract = context.contract
        begin = time.perf_counter()
        outcome = "failed"
        self._running.inc()
        try:
            output = await proceed(context, input)
            outcome = "succeeded"
            return output
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            self._running.dec()
            self._tasks.labels(contract, outcome).inc()
            self._seconds.labels(contract).observe(time.perf_counter() - begin)

    def watch(self, worker: Worker) -> None:
        """Tells how a worker is, whenever the metrics are read."""
        held = Gauge("orbit_worker_held", "Tasks from receipt until the report is answered.", registry=self._registry)
        slots = Gauge("orbit_worker_slots", "Most tasks at once.", registry=self._registry)
        healthy = Gauge("orbit_worker_healthy", "1 while the server answers.", registry=self._registry)
        held.set_function(lambda: float(worker.status.held))
        slots.set_function(lambda: float(worker.status.slots))
        healthy.set_function(lambda: float(worker.status.healthy))
