"""Runs one handler as if a worker had got a task for it."""

import time
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from orbit_api.workflow.v1.task_pb2 import Task

from orbit import payloads
from orbit.context import CURRENT, BeatWanted, TaskContext
from orbit.flag import Flag
from orbit.task import Handler, Middleware, chain, handler_of, is_task
from orbit.threads import Threads


class Recorder(BeatWanted):
    """What a handler said while `run_handler` ran it: `progress` has each one, oldest first, and `beats` their number
    with those without progress."""

    def __init__(self) -> None:
        self.progress: list[Any] = []
        self.beats = 0
        self.draining = Flag()
        # The context that the handler has, from its begin on; a test may raise `context.cancelled` or `draining`.
        self.context: TaskContext | None = None

    def by(self, timeout: timedelta | None) -> None:
        """Called for each heartbeat."""
        self.beats += 1
        assert self.context is not None
        progress, _ = self.context.take_progress()
        if progress is not None:
            self.progress.append(payloads.decode(progress))


async def run_handler(
    function: Callable[..., Any],
    input: Any = None,
    *,
    contract: str | None = None,
    attempt: int = 1,
    delivery: int | None = None,
    redelivery: bool = False,
    execution_id: str = "test-execution",
    workflow: str = "test",
    step: str = "test",
    idempotency_key: str | None = None,
    last_progress: Any = None,
    trace_parent: str = "",
    timeout: timedelta | None = None,
    heartbeat_timeout: timedelta | None = None,
    middleware: Sequence[Middleware] = (),
    recorder: Recorder | None = None,
) -> Any:
    """Calls a handler with an input that went through JSON, as a dispatched one does, and gives its output as JSON.

    Raises what the handler raises; `PermanentError` with the codes of a worker where input or output do not fit. A
    plain `def` runs in a thread. `function` was decorated with `orbit.task`, or `contract` says which it does.
    """
    if contract is not None:
        handler = Handler(contract, function)
    elif is_task(function):
        handler = handler_of(function)
    else:
        handler = Handler("test@1", function)
    task = Task(
        task_token=f"token-{uuid.uuid4().hex}",
        contract=handler.contract,
        input=payloads.encode(input),
        execution_id=execution_id,
        execution_uid=str(uuid.uuid4()),
        run=1,
        workflow=workflow,
        version="1.0.0",
        step=step,
        unit=step,
        attempt=attempt,
        delivery=delivery or attempt,
        redelivery=redelivery,
        idempotency_key=idempotency_key or uuid.uuid4().hex,
        queue="default",
        trace_parent=trace_parent,
    )
    now = time.time()
    task.schedule_time.FromNanoseconds(int(now * 1e9))
    task.dispatch_time.FromNanoseconds(int(now * 1e9))
    if timeout is not None:
        task.expire_time.FromNanoseconds(int((now + timeout.total_seconds()) * 1e9))
    if heartbeat_timeout is not None:
        task.heartbeat_timeout.FromTimedelta(heartbeat_timeout)
    if last_progress is not None:
        task.progress.CopyFrom(payloads.encode(last_progress))

    recorder = recorder or Recorder()
    context = recorder.context = TaskContext(task, recorder.draining, recorder)
    threads = Threads(1)
    before = CURRENT.set(context)
    try:
        output = await chain(handler, middleware, threads)(context, handler.read(task.input))
        return payloads.loads(payloads.dumps_output(output))
    finally:
        CURRENT.reset(before)
        threads.close()
