"""The tasks that a worker holds: each from its receipt until its report was answered.

Both connections (stream and poll) share this bookkeeping, and it outlives them: what was finished during an outage
waits here and is delivered when the outage ends. All of it runs on one event loop, so there are no locks; only
`want_beat` may be called from any thread.
"""

import asyncio
import heapq
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

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
from orbit_api.workflow.v1.payload_pb2 import Payload
from orbit_api.workflow.v1.task_pb2 import Task

from orbit.context import BeatWanted, TaskContext
from orbit.flag import Flag

log = logging.getLogger("orbit.worker")

# Reports for one frame or round, in bytes: far below every message limit, since one output may have 2 MiB.
BATCH_BYTES = 1024 * 1024
# Progress that goes along with one heartbeat, in bytes: 64 KiB each, of thousands of tasks, would be too much for one.
PROGRESS_BYTES = 1024 * 1024


@dataclass(slots=True, eq=False)
class Held:
    """One task that is held."""

    token: str
    task: Task
    context: TaskContext
    # The handler at work. None once the report is made.
    handler: "asyncio.Task[Report] | None" = None
    # Whether the handler runs on the event loop, where cancelling its task reaches it.
    is_async: bool = True
    # Whether the handler was asked to stop.
    stopping: bool = False
    report: Report | None = None
    # Whether the report is on its way on the present connection.
    sent: bool = False

    def stop(self) -> None:
        """Asks the handler to end; asking again does nothing."""
        if self.handler is None or self.stopping:
            return
        self.stopping = True
        self.context.cancelled.set()
        if self.is_async:
            self.handler.cancel()

    def abandon(self) -> None:
        """Waits for the handler no longer: its task is given back now."""
        self.stop()
        if self.handler is not None:
            self.handler.cancel()


@dataclass(slots=True)
class Farewell:
    """What became of tasks once the worker had begun to stop."""

    # Results and failures that the server has answered, tasks that were given back, reports that it refused for good.
    reported: int = 0
    released: int = 0
    dropped: int = 0


class Holdings(BeatWanted):
    """What a worker holds, at most `slots` tasks."""

    def __init__(self, slots: int, start: Callable[[Held], "asyncio.Task[Report]"]) -> None:
        """`start` starts the handler of a task, which ends with its report; cancelled, its task is given back."""
        self.slots = slots
        # Raised when the worker begins to stop; every task's context has it.
        self.draining = Flag()
        self._start = start
        self._held: dict[str, Held] = {}
        # Reports to be sent now, and later, at a time of the monotonic clock, if the server asked for a pause.
        self._ready: deque[Held] = deque()
        self._later: list[tuple[float, int, Held]] = []
        self._numbers = itertools.count()
        # Progress in heartbeats that have not been answered.
        self._told: list[tuple[Held, Payload]] = []
        # When the next heartbeat should go out, at the latest, because a handler spoke.
        self._beat_time = float("inf")
        self._loop = asyncio.get_running_loop()
        # Set when there may be something to send.
        self._changed = asyncio.Event()
        # Set when a task is held no longer.
        self._room = asyncio.Event()
        # What became of the tasks that were held when the worker began to stop, or came later, for the last line.
        self.farewell = Farewell()

    def __len__(self) -> int:
        return len(self._held)

    # --- What the connections ask -----------------------------------------------------------------------------------

    def free(self) -> int:
        """How many more tasks may come. A slot is free again once its report was answered, so this also bounds how
        many reports can wait during an outage."""
        return 0 if self.draining else max(0, self.slots - len(self._held))

    async def room(self) -> int:
        """Waits until a task may come and tells how many may: for ever once no more are wanted."""
        while (free := self.free()) == 0:
            self._room.clear()
            await self._room.wait()
        return free

    def accept(self, tasks: Iterable[Task]) -> None:
        """Takes tasks in and starts their handlers. Once no more are wanted, gives them back unstarted."""
        for task in tasks:
            token = task.task_token
            if token in self._held:
                continue
            held = self._held[token] = Held(token, task, TaskContext(task, self.draining, self))
            if self.draining:
                self._report(held, Report(task_token=token, release=Release()))
            else:
                handler = held.handler = self._start(held)
                # A closure and not `functools.partial`, which would keep the context of whoever made it alive.
                handler.add_done_callback(lambda done, held=held: self._finish(held, done))  # type: ignore[misc]

    def unsent(self) -> list[Report]:
        """Takes the reports that are to be sent now, at most a batch; they count as sent until `connection_lost`."""
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            self._ready.append(heapq.heappop(self._later)[2])
        reports: list[Report] = []
        size = 0
        while self._ready:
            held = self._ready[0]
            # Answered meanwhile, or in the list twice: by `refused` after a loss of the connection, for example.
            if held.report is None or held.sent or self._held.get(held.token) is not held:
                self._ready.popleft()
                continue
            size += held.report.ByteSize()
            if reports and size > BATCH_BYTES:
                # The rest follows at once in the next one.
                self._changed.set()
                break
            self._ready.popleft()
            held.sent = True
            reports.append(held.report)
        return reports

    def parting_words(self) -> bool:
        """Whether a failure waits to be sent whose progress has not been: a heartbeat must then go out before it, since
        the next attempt gets the progress that was known when this one failed."""
        return any(held.context.has_progress and held.report and held.report.HasField("fail") for held in self._ready)

    def gives_back(self) -> bool:
        """Whether a task waits to be given back."""
        return any(held.report is not None and held.report.HasField("release") for held in self._ready)

    def heartbeat(self, session_id: str) -> HeartbeatRequest:
        """A heartbeat that lists every token that is held."""
        request = HeartbeatRequest(session_id=session_id)
        self._beat_time = float("inf")
        left = PROGRESS_BYTES
        for token, held in self._held.items():
            listed = HeldTask(task_token=token)
            if left > 0:
                progress, listed.beat = held.context.take_progress()
                if progress is not None:
                    listed.progress.CopyFrom(progress)
                    self._told.append((held, progress))
                    left -= len(progress.json)
            elif held.context.has_progress:
                self._beat_time = 0.0
            request.held.append(listed)
        return request

    def heartbeat_answered(self, stop: Iterable[str]) -> None:
        """The server knows what the heartbeats said, and names the tasks that it does not want any more."""
        self._told.clear()
        self.stop(stop)

    @property
    def beat_time(self) -> float:
        """When the next heartbeat should go out at the latest because a handler spoke, by the monotonic clock."""
        return self._beat_time

    def by(self, timeout: timedelta | None) -> None:
        """A handler spoke; called from any thread."""
        if timeout is None:
            return
        # A third of the time that the step allows, so that one lost frame does not fail it.
        beat_time = time.monotonic() + timeout.total_seconds() / 3
        if beat_time < self._beat_time:
            self._beat_time = beat_time
            self._loop.call_soon_threadsafe(self._changed.set)

    def stop(self, tokens: Iterable[str]) -> None:
        """Stops the handlers of tasks that the server does not want any more."""
        for token in tokens:
            held = self._held.get(token)
            if held is not None and held.handler is not None and not held.stopping:
                log.info("%s is not wanted any more; stopping it", name(held.task))
                held.stop()

    def answered(self, token: str, outcome: ReportOutcome) -> None:
        """The server took a report, or told why it changes nothing: the task is held no longer."""
        held = self._remove(token)
        if held is not None and held.report is not None and self.draining:
            if held.report.HasField("release"):
                self.farewell.released += 1
            else:
                self.farewell.reported += 1
        if held is not None and not outcome.accepted:
            reason = ReportOutcome.Reason.Name(outcome.reason)
            log.info("the report on %s changed nothing (%s)", name(held.task), reason)

    def refused(self, token: str, error: ReportError) -> None:
        """The server could not take a report: it is sent again, or replaced by one that can be taken."""
        held = self._held.get(token)
        if held is None or held.report is None:
            return
        held.sent = False
        if error.retryable:
            pause = error.retry_after.ToTimedelta().total_seconds()
            heapq.heappush(self._later, (time.monotonic() + pause, next(self._numbers), held))
            self._changed.set()
        elif held.report.HasField("complete"):
            # For example an output that is too large. Nobody else would tell the execution.
            log.error("the result of %s was refused: %s", name(held.task), error.message)
            failure = Failure(code=error.reason, message=f"the result was refused: {error.message}")
            self._report(held, Report(task_token=token, fail=Fail(failure=failure, retryable=False)))
        else:
            log.error("the report on %s was refused and is dropped: %s", name(held.task), error.message)
            self.farewell.dropped += bool(self.draining)
            self._remove(token)

    def connection_lost(self) -> None:
        """Whether what is under way arrived is unknown: all of it is sent again, which does no harm."""
        for held in self._held.values():
            if held.sent:
                held.sent = False
                self._ready.append(held)
        for held, progress in self._told:
            held.context.return_progress(progress)
        self._told.clear()
        self._changed.set()

    async def change(self, timeout: float) -> None:
        """Waits until there may be something to send: at most `timeout` seconds."""
        if self._later:
            timeout = min(timeout, self._later[0][0] - time.monotonic())
        if self._changed.is_set() or timeout <= 0:
            self._changed.clear()
            return
        # Not `asyncio.wait_for`, which may swallow a cancellation before Python 3.12.
        alarm = self._loop.call_later(timeout, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            alarm.cancel()
        self._changed.clear()

    # --- What the worker asks ---------------------------------------------------------------------------------------

    def take_no_more(self) -> None:
        """From now on every task that still comes is given back unstarted, and handlers can know it."""
        self.draining.set()
        self._changed.set()

    def running(self) -> list[Held]:
        """The tasks whose handlers are at work."""
        return [held for held in self._held.values() if held.handler is not None]

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
            self._report(held, Report(task_token=held.token, release=Release()))
        else:
            self._report(held, handler.result())

    def _report(self, held: Held, report: Report) -> None:
        held.handler, held.report = None, report
        self._ready.append(held)
        self._changed.set()

    def _remove(self, token: str) -> Held | None:
        held = self._held.pop(token, None)
        self._changed.set()
        self._room.set()
        return held


def name(task: Task) -> str:
    """A task for a log line."""
    return f"{task.contract} of {task.execution_id} (attempt {task.attempt}, delivery {task.delivery})"
