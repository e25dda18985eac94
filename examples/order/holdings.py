"""The tasks that a worker holds: each from its receipt until its report was answered.

Both connections (stream and poll) share this bookkeeping, and it outlives them: what was finished during an outage
waits here and is delivered when the outage ends. All of it runs on one event loop, so there are no locks.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from orbit_api.worker.v1.worker_service_pb2 import (
    Fail,
    HeartbeatRequest,
    HeldTask,
    Release,
    Report,
    ReportError,
    ReportOutcome,
)
from orbit_api.workflow.v1.execution_pb2 import Failure
from orbit_api.workflow.v1.task_pb2 import Task

import payloads

log = logging.getLogger("orbit.worker")

# Reports for one frame or round, in bytes: far below every message limit, since one output may have 2 MiB.
BATCH_BYTES = 1024 * 1024


@dataclass
class Held:
    """One task that is held."""

    task: Task
    # The handler at work. None once the report is made.
    handler: "asyncio.Task[Report] | None" = None
    # Whether the handler was asked to stop.
    stopping: bool = False
    report: Report | None = None
    # Whether the report is on its way on the present connection.
    sent: bool = False
    # When the report may be sent, by the monotonic clock: later than now if the server asked for a pause.
    send_time: float = 0.0
    # Progress since the last heartbeat, and whether the handler asked for a beat.
    progress: Any = None
    beat: bool = False


class Holdings:
    """What a worker holds, at most `slots` tasks."""

    def __init__(self, slots: int, start: Callable[[Held], "asyncio.Task[Report]"]) -> None:
        """`start` starts the handler of a task, which ends with its report; cancelled, its task is given back."""
        self._slots = slots
        self._start = start
        self._held: dict[str, Held] = {}
        self._taking = True
        # Set when there may be something to send.
        self._changed = asyncio.Event()
        # Set when a task is held no longer.
        self._room = asyncio.Event()

    # --- What the connections ask -----------------------------------------------------------------------------------

    def free(self) -> int:
        """How many more tasks may come. A slot is free again once its report was answered, so this also bounds how
        many reports can wait during an outage."""
        return max(0, self._slots - len(self._held)) if self._taking else 0

    async def room(self) -> int:
        """Waits until a task may come and tells how many may: for ever once no more are wanted."""
        while (free := self.free()) == 0:
            self._room.clear()
            await self._room.wait()
        return free

    def accept(self, tasks: Iterable[Task]) -> None:
        """Takes tasks in and starts their handlers. Once no more are wanted, gives them back unstarted."""
        for task in tasks:
            if task.task_token in self._held:
                continue
            held = self._held[task.task_token] = Held(task)
            if self._taking:
                held.handler = self._start(held)
                held.handler.add_done_callback(partial(self._finish, held))
            else:
                self._report(held, Report(task_token=task.task_token, release=Release()))

    def unsent(self) -> list[Report]:
        """Takes the reports that are to be sent now, at most a batch; they count as sent until `connection_lost`."""
        reports: list[Report] = []
        size = 0
        for held in self._held.values():
            if held.report is None or held.sent or held.send_time > time.monotonic():
                continue
            size += held.report.ByteSize()
            if reports and size > BATCH_BYTES:
                # The rest follows at once in the next one.
                self._changed.set()
                break
            held.sent = True
            reports.append(held.report)
        return reports

    def heartbeat(self, session_id: str) -> HeartbeatRequest:
        """A heartbeat that lists every token that is held."""
        request = HeartbeatRequest(session_id=session_id)
        for token, held in self._held.items():
            listed = HeldTask(task_token=token, beat=held.beat)
            if held.progress is not None:
                listed.progress.CopyFrom(payloads.encode(held.progress))
            held.progress, held.beat = None, False
            request.held.append(listed)
        return request

    def stop(self, tokens: Iterable[str]) -> None:
        """Stops the handlers of tasks that the server does not want any more."""
        for token in tokens:
            held = self._held.get(token)
            if held is not None and held.handler is not None and not held.stopping:
                held.stopping = True
                log.info("%s is not wanted any more; stopping it", name(held.task))
                held.handler.cancel()

    def answered(self, token: str, outcome: ReportOutcome) -> None:
        """The server took a report, or told why it changes nothing: the task is held no longer."""
        held = self._remove(token)
        if held is not None and not outcome.accepted:
            reason = ReportOutcome.Reason.Name(outcome.reason)
            log.info("the report on %s changed nothing (%s)", name(held.task), reason)

    def refused(self, token: str, error: ReportError) -> None:
        """The server could not take a report: it is sent again, or replaced by one that can be taken."""
        held = self._held.get(token)
        if held is None or held.report is None:
            return
        held.sent = False
        self._changed.set()
        if error.retryable:
            held.send_time = time.monotonic() + error.retry_after.ToTimedelta().total_seconds()
        elif held.report.WhichOneof("kind") == "complete":
            # For example an output that is too large. Nobody else would tell the execution.
            log.error("the result of %s was refused: %s", name(held.task), error.message)
            failure = Failure(code=error.reason, message=f"the result was refused: {error.message}")
            held.report = Report(task_token=token, fail=Fail(failure=failure, retryable=False))
        else:
            log.error("the report on %s was refused and is dropped: %s", name(held.task), error.message)
            self._remove(token)

    def connection_lost(self) -> None:
        """Whether reports that are under way arrived is unknown: all are sent again, which does no harm."""
        for held in self._held.values():
            held.sent = False

    async def change(self, timeout: float) -> None:
        """Waits until there may be something to send: at most `timeout` seconds."""
        now = time.monotonic()
        waits = [held.send_time - now for held in self._held.values() if held.report is not None and not held.sent]
        # Not `asyncio.wait_for`, which may swallow a cancellation before Python 3.12.
        alarm = asyncio.get_running_loop().call_later(min([timeout, *waits]), self._changed.set)
        try:
            await self._changed.wait()
        finally:
            alarm.cancel()
        self._changed.clear()

    # --- What the worker asks ---------------------------------------------------------------------------------------

    def take_no_more(self) -> None:
        """From now on every task that still comes is given back unstarted."""
        self._taking = False
        self._changed.set()

    def running(self) -> list["asyncio.Task[Report]"]:
        """The handlers at work."""
        return [held.handler for held in self._held.values() if held.handler is not None]

    async def reported(self) -> None:
        """Waits until nothing is held."""
        while self._held:
            self._room.clear()
            await self._room.wait()

    def unreported(self) -> list[Task]:
        """The tasks whose report has not been answered, finished or not."""
        return [held.task for held in self._held.values()]

    def _finish(self, held: Held, handler: "asyncio.Task[Report]") -> None:
        if handler.cancelled():
            log.info("%s: stopped and given back", name(held.task))
            self._report(held, Report(task_token=held.task.task_token, release=Release()))
        else:
            self._report(held, handler.result())

    def _report(self, held: Held, report: Report) -> None:
        held.handler, held.report = None, report
        self._changed.set()

    def _remove(self, token: str) -> Held | None:
        held = self._held.pop(token, None)
        self._changed.set()
        self._room.set()
        return held


def name(task: Task) -> str:
    """A task for a log line."""
    return f"{task.contract} of {task.execution_id} (attempt {task.attempt}, delivery {task.delivery})"
