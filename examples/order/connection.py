"""The two ways to fetch tasks and to report on them: a stream, or plain calls where streams do not get through.

`stream` and `poll` return when the server ended the connection in order, and raise `grpc.aio.AioRpcError` when it was
lost. Either way the caller opens the next one; nothing that is held gets lost in between.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from orbit_api.worker.v1.worker_service_pb2 import (
    CompleteTaskRequest,
    CompleteTaskResponse,
    FailTaskRequest,
    FailTaskResponse,
    PollTasksRequest,
    ReleaseTaskRequest,
    ReleaseTaskResponse,
    Report,
    ReportError,
    StreamTasksRequest,
)

from holdings import Holdings

if TYPE_CHECKING:
    from orbit_api.worker.v1.worker_service_pb2_grpc import WorkerServiceAsyncStub

# Longest silence of a unary call. Every call here can be repeated without harm.
CALL_SECONDS = 10.0
# How long a poll waits for its first task.
POLL_SECONDS = 20
# Refusals that the same call meets again, however often it is sent.
FINAL = frozenset({grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.OUT_OF_RANGE})

Result = TypeVar("Result")


@dataclass
class Session:
    """A registration, as the server gave it."""

    id: str
    # Seconds from one heartbeat to the next.
    heartbeat_interval: float
    # Seconds of silence after which the other side counts as lost.
    timeout: float


class ConnectionLost(Exception):
    """The server has been silent for longer than a session lasts."""


async def stream(
    stub: "WorkerServiceAsyncStub", session: Session, holdings: Holdings, heard: Callable[[], None]
) -> None:
    """Works over one stream until it ends. `heard` is called whenever the server shows that it works."""
    call = stub.StreamTasks()
    # Tasks that were asked for on this stream and have not come yet.
    expected = 0
    draining = False
    silent_since = time.monotonic()

    async def write() -> None:
        nonlocal expected
        first, beat_time = True, time.monotonic()
        while True:
            frame = StreamTasksRequest(reports=holdings.unsent())
            credits = holdings.free() - expected
            if credits > 0 and not draining:
                frame.credits = credits
                expected += credits
            if time.monotonic() >= beat_time:
                frame.heartbeat.CopyFrom(holdings.heartbeat(session.id))
                beat_time = time.monotonic() + session.heartbeat_interval
            if first:
                frame.session_id = session.id
                first = False
            if frame.ByteSize() > 0:
                await call.write(frame)
            await holdings.change(timeout=beat_time - time.monotonic())

    async def read() -> None:
        nonlocal expected, draining, silent_since
        async for frame in call:
            silent_since = time.monotonic()
            expected -= len(frame.tasks)
            holdings.accept(frame.tasks)
            for result in frame.results:
                if result.HasField("error"):
                    holdings.refused(result.task_token, result.error)
                else:
                    holdings.answered(result.task_token, result.outcome)
            holdings.stop(frame.heartbeat.stop)
            draining = draining or frame.draining or frame.heartbeat.draining
            if not draining:
                heard()

    async def watch() -> None:
        # Every heartbeat is answered, so silence means that the other side is gone or frozen.
        while True:
            left = silent_since + session.timeout - time.monotonic()
            if left <= 0:
                raise ConnectionLost("the server does not answer heartbeats")
            await asyncio.sleep(left)

    try:
        await first_to_end(read(), write(), watch())
    finally:
        call.cancel()
        holdings.connection_lost()


async def poll(stub: "WorkerServiceAsyncStub", session: Session, holdings: Holdings, heard: Callable[[], None]) -> None:
    """Works by plain calls until one of them fails."""

    async def fetch() -> None:
        while True:
            request = PollTasksRequest(session_id=session.id, max_tasks=await holdings.room())
            request.wait_duration.seconds = POLL_SECONDS
            response = await stub.PollTasks(request, timeout=POLL_SECONDS + CALL_SECONDS)
            holdings.accept(response.tasks)
            if response.draining:
                await asyncio.sleep(1.0)

    async def beat() -> None:
        while True:
            response = await stub.Heartbeat(holdings.heartbeat(session.id), timeout=CALL_SECONDS)
            holdings.stop(response.stop)
            if not response.draining:
                heard()
            await asyncio.sleep(session.heartbeat_interval)

    async def report() -> None:
        while True:
            await asyncio.gather(*(send(stub, holdings, report) for report in holdings.unsent()))
            await holdings.change(timeout=session.heartbeat_interval)

    try:
        await first_to_end(fetch(), beat(), report())
    finally:
        holdings.connection_lost()


async def send(stub: "WorkerServiceAsyncStub", holdings: Holdings, report: Report) -> None:
    """Sends one report as a call of its own."""
    token = report.task_token
    call: Awaitable[CompleteTaskResponse | FailTaskResponse | ReleaseTaskResponse]
    if report.HasField("complete"):
        complete = CompleteTaskRequest(task_token=token, output=report.complete.output)
        call = stub.CompleteTask(complete, timeout=CALL_SECONDS)
    elif report.HasField("fail"):
        fail = FailTaskRequest(task_token=token, failure=report.fail.failure)
        if report.fail.HasField("retryable"):
            fail.retryable = report.fail.retryable
        if report.fail.HasField("retry_after"):
            fail.retry_after.CopyFrom(report.fail.retry_after)
        call = stub.FailTask(fail, timeout=CALL_SECONDS)
    else:
        call = stub.ReleaseTask(ReleaseTaskRequest(task_token=token), timeout=CALL_SECONDS)
    try:
        response = await call
    except grpc.aio.AioRpcError as error:
        if error.code() not in FINAL:
            raise
        holdings.refused(token, ReportError(reason=reason(error), message=error.details() or ""))
    else:
        holdings.answered(token, response.outcome)


def reason(error: grpc.aio.AioRpcError) -> str:
    """Why the server refused a call: the `ErrorReason` without its prefix, or the gRPC code where there is none."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            info = ErrorInfo()
            for detail in Status.FromString(value).details:
                if detail.Unpack(info):
                    return str(info.reason)
    return str(error.code().name)


async def first_to_end(*parts: Coroutine[Any, Any, None]) -> None:
    """Runs the parts side by side until the first one ends, ends the others and gives that one's result or error."""
    running = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for part in running:
            part.cancel()
        results = await asyncio.gather(*running, return_exceptions=True)
    # The reader's word first: a writer on a dead stream only knows that it is dead.
    for part, result in zip(running, results, strict=True):
        if part in done and isinstance(result, BaseException):
            raise result
