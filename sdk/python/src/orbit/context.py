"""What a handler knows about its task beside the input, and what it can say while it works."""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Generator, Mapping, MutableMapping
from datetime import datetime, timedelta, timezone
from typing import Any

from orbit_api.workflow.v1.payload_pb2 import Payload
from orbit_api.workflow.v1.task_pb2 import Task

from orbit import payloads
from orbit.flag import Flag

# Longest progress, in bytes of JSON text.
PROGRESS_BYTES_MAX = 64 * 1024

_NOTHING: Any = object()
_log = logging.getLogger("orbit.task")


class TaskContext:
    """One delivery of a task to a handler. Handlers in threads may use all of it."""

    __slots__ = ("_beat", "_beat_wanted", "_log", "_progress", "_task", "cancelled", "draining")

    def __init__(self, task: Task, draining: Flag, beat_wanted: "BeatWanted") -> None:
        self._task = task
        self._beat_wanted = beat_wanted
        self._progress: Payload | None = None
        self._beat = False
        self._log: logging.LoggerAdapter[logging.Logger] | None = None
        # Raised when the work is not wanted any more. A coroutine gets `asyncio.CancelledError` as well; a handler in a
        # thread looks at this flag, waits for it, or meets the error at its next `heartbeat`.
        self.cancelled = Flag()
        # Raised when the worker begins to stop: what cannot be finished soon may end at a good place.
        self.draining = draining

    # --- Who and where ----------------------------------------------------------------------------------------------

    @property
    def task(self) -> Task:
        """The task as it came."""
        return self._task

    @property
    def execution_id(self) -> str:
        """Id of the execution, as its caller chose it."""
        return self._task.execution_id

    @property
    def execution_uid(self) -> str:
        """Uid of the execution, never used again."""
        return self._task.execution_uid

    @property
    def run(self) -> int:
        """Run of the execution, from 1."""
        return self._task.run

    @property
    def workflow(self) -> str:
        """Name of the workflow."""
        return self._task.workflow

    @property
    def version(self) -> str:
        """Version of the workflow's definition."""
        return self._task.version

    @property
    def step(self) -> str:
        """Id of the step."""
        return self._task.step

    @property
    def unit(self) -> str:
        """The unit: the step's id, with its item where the step has many."""
        return self._task.unit

    @property
    def contract(self) -> str:
        """Contract `name@version` that this handler was called for."""
        return self._task.contract

    @property
    def queue(self) -> str:
        """Queue that the task waited in."""
        return self._task.queue

    @property
    def attempt(self) -> int:
        """Attempt, from 1, as the retry policy counts."""
        return self._task.attempt

    @property
    def delivery(self) -> int:
        """Delivery of all attempts together, from 1."""
        return self._task.delivery

    @property
    def redelivery(self) -> bool:
        """Whether an earlier delivery of this attempt ended without a report: the work may have been done already."""
        return self._task.redelivery

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt and delivery, for ever: what must happen once is recorded under it."""
        return self._task.idempotency_key

    @property
    def deadline(self) -> datetime | None:
        """When this delivery times out, in UTC; None without a timeout."""
        if not self._task.HasField("expire_time"):
            return None
        return self._task.expire_time.ToDatetime(tzinfo=timezone.utc)

    @property
    def heartbeat_timeout(self) -> timedelta | None:
        """Longest time between two calls of `heartbeat`; None without a limit."""
        return self._task.heartbeat_timeout.ToTimedelta() if self._task.HasField("heartbeat_timeout") else None

    @property
    def trace_parent(self) -> str:
        """W3C `traceparent` of the call that started the execution; empty if it had none."""
        return self._task.trace_parent

    @property
    def last_progress(self) -> Any:
        """Newest progress of the attempt or delivery before this one; None if there was none."""
        return payloads.decode(self._task.progress) if self._task.HasField("progress") else None

    @property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger that says which task speaks: in the text, and as fields `execution_id`, `step` … of the record."""
        if self._log is None:
            self._log = TaskLogger(_log, tags(self._task))
        return self._log

    # --- While it works ---------------------------------------------------------------------------------------------

    def heartbeat(self, progress: Any = _NOTHING) -> Awaitable[None]:
        """Says that the handler is alive and, if `progress` is given, how far it is: any JSON value.

        Costs nothing: it goes along with the worker's own heartbeats. The next attempt finds the progress in
        `last_progress`. Raises `asyncio.CancelledError` if the work is not wanted any more, so a handler in a thread
        ends here; a coroutine may write `await context.heartbeat(…)`, which also lets others run.
        Raises `ValueError` for a progress of more than 64 KiB and, as `TypeError`, for what JSON cannot say.
        """
        if self.cancelled:
            raise asyncio.CancelledError("the task is not wanted any more")
        if progress is not _NOTHING:
            payload = payloads.encode(progress)
            if len(payload.json.encode()) > PROGRESS_BYTES_MAX:
                raise ValueError(f"a progress has at most {PROGRESS_BYTES_MAX} bytes of JSON")
            self._progress = payload
        self._beat = True
        self._beat_wanted.by(self._task.heartbeat_timeout.ToTimedelta() if self.heartbeat_timeout else None)
        return _YIELD

    def take_progress(self) -> tuple[Payload | None, bool]:
        """For the worker: what was said since the last call, progress and whether there was a beat."""
        said = self._progress, self._beat
        self._progress, self._beat = None, False
        return said

    def return_progress(self, progress: Payload) -> None:
        """For the worker: the heartbeat with this progress may not have arrived. A newer one takes its place."""
        if self._progress is None:
            self._progress = progress

    @property
    def has_progress(self) -> bool:
        """For the worker: whether there is progress that no heartbeat has taken along."""
        return self._progress is not None


class BeatWanted:
    """Where a context says that the next heartbeat should not wait for long; the worker's own is `Holdings`."""

    def by(self, timeout: timedelta | None) -> None:
        """A beat must reach the server well within `timeout`; None: with the usual ones."""


class TaskLogger(logging.LoggerAdapter):  # type: ignore[type-arg]
    """Puts the tags of a task before each message and into each record."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Called by `logging` for each message."""
        extra: Mapping[str, Any] = self.extra or {}
        kwargs["extra"] = {**extra, **(kwargs.get("extra") or {})}
        return f"[{extra['execution_id']} {extra['step']} #{extra['attempt']}] {msg}", kwargs


def tags(task: Task) -> dict[str, Any]:
    """What a log record says about its task."""
    return {
        "execution_id": task.execution_id,
        "workflow": task.workflow,
        "step": task.step or task.contract,
        "contract": task.contract,
        "attempt": task.attempt,
        "delivery": task.delivery,
    }


def current_task() -> TaskContext:
    """The context of the task whose handler calls this, however deep. Raises `LookupError` outside of handlers."""
    return CURRENT.get()


CURRENT: contextvars.ContextVar[TaskContext] = contextvars.ContextVar("orbit_task")


class _Yield:
    """Awaited, lets others run once; not awaited, is nothing."""

    def __await__(self) -> Generator[None, None, None]:
        yield


_YIELD = _Yield()
