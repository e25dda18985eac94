"""Traces, metrics, and the helpers for tests."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import prometheus_client
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import orbit
import orbit.metrics
import orbit.otel
from orbit import TaskContext
from orbit.testing import Recorder, run_handler

TRACE_PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def fails(context: TaskContext) -> None:
    raise orbit.PermanentError("no", code="NO")


async def works(value: int) -> int:
    return value + 1


def test_a_task_has_a_span_below_the_one_that_started_its_execution() -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracing = orbit.otel.tracing(provider.get_tracer("test"))

    async def test() -> None:
        assert await run_handler(works, 1, middleware=[tracing], trace_parent=TRACE_PARENT) == 2
        with pytest.raises(orbit.PermanentError):
            await run_handler(fails, middleware=[tracing], contract="fails@1")

    asyncio.run(test())
    first, second = spans.get_finished_spans()
    assert first.parent is not None
    assert f"{first.parent.span_id:016x}" == "b7ad6b7169203331"
    assert second.name == "task fails@1"
    assert second.attributes is not None
    assert second.attributes["error.type"] == "NO"
    assert second.status.status_code is trace.StatusCode.ERROR
    assert second.parent is None


def test_calls_carry_the_present_trace() -> None:
    assert dict(orbit.otel.headers()) == {}
    with TracerProvider().get_tracer("test").start_as_current_span("caller") as span:
        headers = orbit.otel.headers()
    assert f"{span.get_span_context().trace_id:032x}" in headers["traceparent"]


def test_metrics_count_and_time_handlers() -> None:
    registry = prometheus_client.CollectorRegistry()
    metrics = orbit.metrics.Metrics(registry)
    worker = orbit.Worker(middleware=[metrics], slots=7)
    metrics.watch(worker)

    async def test() -> None:
        await run_handler(works, 1, middleware=[metrics], contract="works@1")
        with pytest.raises(orbit.PermanentError):
            await run_handler(fails, middleware=[metrics], contract="fails@1")

    asyncio.run(test())

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("orbit_worker_tasks_total", contract="works@1", outcome="succeeded") == 1
    assert value("orbit_worker_tasks_total", contract="fails@1", outcome="failed") == 1
    assert value("orbit_worker_task_seconds_count", contract="works@1") == 1
    assert (value("orbit_worker_slots"), value("orbit_worker_healthy"), value("orbit_worker_held")) == (7, 0, 0)


def test_a_handler_runs_as_if_dispatched(caplog: pytest.LogCaptureFixture) -> None:
    def work(value: Any, context: TaskContext) -> Any:
        context.heartbeat({"at": 1})
        context.heartbeat()
        context.log.info("working")
        assert context.deadline is not None
        return [value, context.attempt, context.redelivery, context.last_progress, context.idempotency_key]

    recorder = Recorder()
    call = run_handler(
        work,
        {"n": 2**70},
        attempt=2,
        redelivery=True,
        last_progress={"at": 0},
        idempotency_key="k",
        timeout=timedelta(seconds=5),
        recorder=recorder,
    )
    with caplog.at_level(logging.INFO, logger="orbit.task"):
        assert asyncio.run(call) == [{"n": 2**70}, 2, True, {"at": 0}, "k"]
    assert (recorder.progress, recorder.beats) == ([{"at": 1}], 2)
    assert caplog.records[0].getMessage() == "[test-execution test #2] working"
    assert vars(caplog.records[0])["execution_id"] == "test-execution"


def test_a_test_can_drain_and_cancel_a_handler() -> None:
    async def waits(context: TaskContext) -> str:
        await context.draining
        return "drained"

    def cancels(context: TaskContext) -> None:
        context.cancelled.wait(5)
        context.heartbeat()

    async def test() -> None:
        recorder = Recorder()
        running = asyncio.ensure_future(run_handler(waits, recorder=recorder))
        await asyncio.sleep(0.01)
        recorder.draining.set()
        assert await running == "drained"
        recorder = Recorder()
        running = asyncio.ensure_future(run_handler(cancels, recorder=recorder))
        await asyncio.sleep(0.01)
        assert recorder.context is not None
        recorder.context.cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(test())


@pytest.mark.parametrize(
    ("progress", "error"), [("x" * 70_000, ValueError), (object(), TypeError), (float("nan"), ValueError)]
)
def test_progress_that_cannot_be_sent_is_told_to_the_handler(progress: Any, error: type[Exception]) -> None:
    async def says(context: TaskContext) -> None:
        with pytest.raises(error):
            context.heartbeat(progress)

    asyncio.run(run_handler(says))


def test_a_decorated_function_stays_what_it_was() -> None:
    @orbit.task("add@1")
    async def add(value: int) -> int:
        return value + 1

    class Shop:
        @orbit.task("sell@1")
        def sell(self, sku: str) -> str:
            return f"{sku} of {type(self).__name__}"

    assert asyncio.run(add(1)) == 2
    assert asyncio.run(run_handler(add, 1)) == 2
    assert asyncio.run(run_handler(Shop().sell, "desk")) == "desk of Shop"
    tasks: list[Callable[..., Any]] = [add, Shop().sell]
    assert orbit.Worker(tasks).contracts == ["add@1", "sell@1"]
