"""One execution: its result, its events, and what can be done with it."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, TypeVar, overload

import grpc
from orbit_api.admin.v1 import admin_service_pb2 as pb
from orbit_api.admin.v1.explanation_pb2 import Explanation
from orbit_api.workflow.v1 import execution_pb2
from orbit_api.workflow.v1.payload_pb2 import Payload

from orbit import errors, payloads
from orbit.backoff import Backoff
from orbit.calls import Calls, pause_after, seconds, timestamp
from orbit.errors import (
    DeadlineExceeded,
    ExecutionCancelled,
    ExecutionFailed,
    ExecutionTerminated,
    ExecutionTimedOut,
    Internal,
    OrbitError,
    Unavailable,
)
from orbit.execution import Event, Execution, State, event, execution

if TYPE_CHECKING:
    from orbit_api.admin.v1.admin_service_pb2_grpc import AdminServiceAsyncStub

Type = TypeVar("Type")
# An argument that was not given, where None is a value.
UNSET: Any = object()

# How long one call waits for the close, in seconds; the next one follows at once.
WAIT_SECONDS = 25
# What a call may take beside what it waits for.
CALL_SECONDS = 10.0

_ENDS = {
    State.FAILED: ExecutionFailed,
    State.CANCELLED: ExecutionCancelled,
    State.TIMED_OUT: ExecutionTimedOut,
    State.TERMINATED: ExecutionTerminated,
}


class ExecutionHandle:
    """An execution, by its id; with a uid only that one, also once its id has gone to another.

    Made by `Client.start` and `Client.execution`. All methods raise `NotFound` if there is no such execution.
    """

    def __init__(self, stub: "AdminServiceAsyncStub", calls: Calls, id: str, uid: str = "") -> None:
        self._stub = stub
        self._calls = calls
        self.id = id
        self.uid = uid
        self.version: str | None = None
        """The version that `start` or `rerun` chose; None for a handle of `Client.execution`."""
        self.created: bool | None = None
        """Whether that call made it, and did not find it; None for a handle of `Client.execution`."""
        self.start_time: datetime | None = None
        """When it was started; None for a handle of `Client.execution`."""

    def __repr__(self) -> str:
        return f"<execution {self.id}>"

    # --- Its end ----------------------------------------------------------------------------------------------------

    @overload
    async def result(self, type: type[Type], *, timeout: timedelta | float | None = None) -> Type: ...
    @overload
    async def result(self, type: None = None, *, timeout: timedelta | float | None = None) -> Any: ...

    async def result(self, type: Any = None, *, timeout: timedelta | float | None = None) -> Any:
        """Waits for the end and gives the output, as `type` if one is given, otherwise as JSON has it.

        Waits for ever, through every outage, unless `timeout` says how long. Raises `ExecutionFailed`,
        `ExecutionCancelled`, `ExecutionTimedOut` or `ExecutionTerminated` for another end, and `DeadlineExceeded`.
        """
        closed = await self._closed(timeout)
        if (end := _ENDS.get(State.of(closed.state))) is not None:
            raise end(execution(closed))
        output = closed.output
        if closed.payloads_omitted and not closed.HasField("output"):
            output = await self._output_of_events(closed)
        return payloads.read(output, type) if closed.HasField("output") or output.json else None

    async def wait(self, *, timeout: timedelta | float | None = None) -> Execution:
        """Waits for the end and gives the execution, however it ended. Raises `DeadlineExceeded` after `timeout`."""
        return execution(await self._closed(timeout))

    async def _closed(self, timeout: timedelta | float | None) -> execution_pb2.Execution:
        deadline = float("inf") if timeout is None else time.monotonic() + seconds(timeout)
        backoff = Backoff()
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise DeadlineExceeded(
                    f"execution {self.id} has not ended within {seconds(timeout or 0):g} s",
                    code=grpc.StatusCode.DEADLINE_EXCEEDED,
                )
            asked = time.monotonic()
            request = pb.WaitExecutionRequest(id=self.id, uid=self.uid)
            request.wait_duration.FromMilliseconds(int(1000 * min(left, WAIT_SECONDS)))
            try:
                # Somewhat longer than is left: the server's answer at the end is better than none.
                limit = min(left + 1.0, WAIT_SECONDS + CALL_SECONDS)
                answer = await self._stub.WaitExecution(request, timeout=limit, metadata=self._calls.metadata())
            except grpc.aio.AioRpcError as error:
                refusal = errors.from_rpc(error)
                if not _passing(refusal) and not isinstance(refusal, DeadlineExceeded):
                    raise refusal from error
                await asyncio.sleep(max(0.0, min(pause_after(refusal, backoff), deadline - time.monotonic())))
                continue
            if State.of(answer.execution.state).closed:
                return answer.execution
            if time.monotonic() - asked >= min(1.0, left):
                backoff.reset()
            else:
                # A server that shuts down answers at once; it must not be asked again and again.
                await asyncio.sleep(min(backoff.next(), left))

    async def _output_of_events(self, closed: execution_pb2.Execution) -> Payload:
        """The output of an execution that is too large for one answer together with its input."""
        async for last in self.events(after=closed.last_event_number - 1):
            if last.type == "execution_succeeded":
                return last.raw.execution_succeeded.output
        raise Internal(f"execution {self.id} has no output among its events")

    # --- What is known of it ----------------------------------------------------------------------------------------

    async def describe(self, *, timeout: timedelta | float | None = None) -> Execution:
        """Reads it with its steps."""
        request = pb.GetExecutionRequest(id=self.id, uid=self.uid)
        return execution((await self._calls.make(self._stub.GetExecution, request, timeout)).execution)

    async def explain(self, *, timeout: timedelta | float | None = None) -> Explanation:
        """Tells why it does not move: everything that it waits for."""
        request = pb.ExplainExecutionRequest(id=self.id, uid=self.uid)
        return (await self._calls.make(self._stub.ExplainExecution, request, timeout)).explanation

    @overload
    async def query(self, query: str, type: type[Type], *, timeout: timedelta | float | None = None) -> Type: ...
    @overload
    async def query(self, query: str, type: None = None, *, timeout: timedelta | float | None = None) -> Any: ...

    async def query(self, query: str, type: Any = None, *, timeout: timedelta | float | None = None) -> Any:
        """Evaluates a query of its definition on its committed state. Raises `NotFound` and `FailedPrecondition`."""
        request = pb.QueryExecutionRequest(id=self.id, uid=self.uid, query=query)
        answer = await self._calls.make(self._stub.QueryExecution, request, timeout)
        return payloads.read(answer.result, type)

    async def events(self, *, after: int = 0) -> AsyncIterator[Event]:
        """Its events from number `after` + 1 on, as they are committed, until the last one of a closed execution.

        Goes on by itself after the last event that came, whatever happens to the connection; to go on in another
        process, give the `number` of the last event that was seen.
        """
        backoff = Backoff()
        while True:
            request = pb.WatchEventsRequest(id=self.id, uid=self.uid, after_number=after)
            call = self._stub.WatchEvents(request, metadata=self._calls.metadata())
            try:
                async for answer in call:
                    backoff.reset()
                    after = answer.event.number
                    yield event(answer.event)
                return
            except grpc.aio.AioRpcError as error:
                refusal = errors.from_rpc(error)
                if not _passing(refusal):
                    raise refusal from error
                await asyncio.sleep(pause_after(refusal, backoff))
            finally:
                call.cancel()

    # --- What can be done with it -----------------------------------------------------------------------------------

    async def signal(
        self,
        name: str,
        payload: Any = None,
        *,
        expire_time: datetime | None = None,
        request_id: str | None = None,
        timeout: timedelta | float | None = None,
    ) -> int:
        """Gives it a signal, which is durable once this returns; returns the number of its event.

        `expire_time` (aware of its zone) is when the signal loses its meaning if no step has taken it. Raises
        `FailedPrecondition` if the execution is closed, `InvalidArgument` for a signal that is not as declared, and
        `ResourceExhausted` if too many wait.
        """
        request = pb.SignalExecutionRequest(
            id=self.id, uid=self.uid, name=name, payload=payloads.encode(payload), request_id=new_id(request_id)
        )
        if expire_time is not None:
            request.expire_time.CopyFrom(timestamp(expire_time))
        return (await self._calls.make(self._stub.SignalExecution, request, timeout)).event_number

    async def cancel(
        self, reason: str = "", *, request_id: str | None = None, timeout: timedelta | float | None = None
    ) -> None:
        """Cancels it: nothing new starts, running tasks are asked to stop; it ends cancelled a little later.

        Raises `FailedPrecondition` if it is closed, or winds down for another cause.
        """
        request = pb.CancelExecutionRequest(id=self.id, uid=self.uid, reason=reason, request_id=new_id(request_id))
        await self._calls.make(self._stub.CancelExecution, request, timeout)

    async def terminate(
        self, reason: str = "", *, request_id: str | None = None, timeout: timedelta | float | None = None
    ) -> None:
        """Ends it at once, without undoing anything. Raises `FailedPrecondition` if it is closed."""
        request = pb.TerminateExecutionRequest(id=self.id, uid=self.uid, reason=reason, request_id=new_id(request_id))
        await self._calls.make(self._stub.TerminateExecution, request, timeout)

    async def pause(
        self, reason: str = "", *, request_id: str | None = None, timeout: timedelta | float | None = None
    ) -> None:
        """Holds it: nothing begins until `resume`. Raises `FailedPrecondition` if it is closed or winds down."""
        request = pb.PauseExecutionRequest(id=self.id, uid=self.uid, reason=reason, request_id=new_id(request_id))
        await self._calls.make(self._stub.PauseExecution, request, timeout)

    async def resume(self, *, request_id: str | None = None, timeout: timedelta | float | None = None) -> None:
        """Lets it go on. Raises `FailedPrecondition` if it is closed or winds down."""
        request = pb.ResumeExecutionRequest(id=self.id, uid=self.uid, request_id=new_id(request_id))
        await self._calls.make(self._stub.ResumeExecution, request, timeout)

    async def retry(self, *, request_id: str | None = None, timeout: timedelta | float | None = None) -> None:
        """Runs a failed or timed-out one again from where it failed. Raises `FailedPrecondition` for any other."""
        request = pb.RetryExecutionRequest(id=self.id, uid=self.uid, request_id=new_id(request_id))
        await self._calls.make(self._stub.RetryExecution, request, timeout)

    async def rerun(
        self,
        from_step: str,
        *,
        id: str | None = None,
        input: Any = UNSET,
        labels: Mapping[str, str] | None = None,
        request_id: str | None = None,
        timeout: timedelta | float | None = None,
    ) -> "ExecutionHandle":
        """Starts a new execution that repeats this one from a step on, with the results of steps that do not depend on
        it. This one is not changed.

        - `id`: of the new one; default: the server makes one. `input`: default that of this one.
        - `labels`: added to those of this one; these win.

        Raises `InvalidArgument` if there is no such step or the input does not fit, `AlreadyExists` if `id` is taken.
        """
        request = pb.RerunExecutionRequest(
            id=self.id,
            uid=self.uid,
            from_step=from_step,
            new_id=id or "",
            labels=dict(labels or {}),
            request_id=new_id(request_id),
        )
        if input is not UNSET:
            request.input.CopyFrom(payloads.encode(input))
        answer = await self._calls.make(self._stub.RerunExecution, request, timeout)
        handle = ExecutionHandle(self._stub, self._calls, answer.id, answer.uid)
        handle.version, handle.created = answer.version, answer.created
        handle.start_time = answer.start_time.ToDatetime(tzinfo=timezone.utc)
        return handle

    async def delete(self, *, request_id: str | None = None, timeout: timedelta | float | None = None) -> None:
        """Deletes it; its id is free then. Raises `FailedPrecondition` while it is open."""
        request = pb.DeleteExecutionRequest(id=self.id, uid=self.uid, request_id=new_id(request_id))
        await self._calls.make(self._stub.DeleteExecution, request, timeout)


def new_id(given: str | None) -> str:
    """The id of one call, made before it is first sent so that every repeat has the same."""
    return given or uuid.uuid4().hex


def _passing(error: OrbitError) -> bool:
    """Whether a call that waits goes on after this: the server is away, or the connection broke in the middle."""
    return isinstance(error, Unavailable) or (isinstance(error, Internal) and not error.reason)
