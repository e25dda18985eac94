"""Traces by OpenTelemetry; needs the extra `otel`, which brings the API only. Exporters are the program's own choice.

    worker = orbit.Worker(middleware=[orbit.otel.tracing()])
    client = orbit.Client(headers=orbit.otel.headers)

A task's span is a child of the span in which the execution was started, in whatever process that was.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer

from orbit.context import TaskContext
from orbit.errors import TaskError
from orbit.task import Middleware, Next
from orbit.version import VERSION


def tracing(tracer: Tracer | None = None) -> Middleware:
    """A middleware that makes a span for each task: `task payments.charge@1`, with ids of the task as attributes.

    `tracer` is one of the global provider's unless given.
    """
    used = tracer or trace.get_tracer("orbit", VERSION)

    async def trace_task(context: TaskContext, input: Any, proceed: Next, /) -> Any:
        parent = propagate.extract({"traceparent": context.trace_parent}) if context.trace_parent else None
        with used.start_as_current_span(
            f"task {context.contract}",
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes={
                "orbit.execution.id": context.execution_id,
                "orbit.workflow": context.workflow,
                "orbit.step": context.step,
                "orbit.contract": context.contract,
                "orbit.attempt": context.attempt,
                "orbit.delivery": context.delivery,
            },
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                return await proceed(context, input)
            except asyncio.CancelledError:
                span.set_attribute("orbit.outcome", "cancelled")
                raise
            except Exception as error:
                code = error.code if isinstance(error, TaskError) else type(error).__name__
                span.set_attribute("error.type", code)
                span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, str(error)))
                raise

    return trace_task


def headers() -> Mapping[str, str]:
    """What a call carries so that what it starts belongs to the present trace; nothing outside of one."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier
