"""The two ways to fetch tasks and to report on them: a stream, or plain calls where streams do not get through.

`stream` and `poll` return when the server ended the connection in order, and raise `grpc.aio.AioRpcError` when it was
lost. Either way the caller opens the next one; nothing that is held gets lost in between.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import grpc
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

from orbit import errors
from orbit.channel import Metadata
from orbit.flag import Flag
from orbit.holdings import Holdings

if TYPE_CHECKING:
    from orbit_api.worker.v1.worker_service_pb2_grpc import WorkerServiceAsyncStub

# Longest silence of a unary call. Every call here can be repeated without harm.
CALL_SECONDS = 10.0
# How long a poll waits for its first task.
POLL_SECONDS = 20
# Pause before a report is sent again if the server does not name one.
RETRY = timedelta(seconds=0.5)
# Most tasks that one poll may bring.
POLL_TASKS_MAX = 1_000
# Refusals that the same call meets again, however often it is sent.
FINAL = frozenset({grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.OUT_OF_RANGE})


@dataclass(frozen=True)
class Session:
    """A registration, as the server gave it."""

    id: str
    # Seconds from one heartbeat to the next.
    heartbeat_interval: float
    # Seconds of silence after which the other side counts as lost.
    timeout: float


@dataclass(frozen=True)
class Line:
    """What both ways work with."""

    stub: "WorkerServiceAsyncStub"
    metadata: Metadata
    session: Session
    holdings: Holdings
    # Called whenever the server answers; with True if it also wants work done, with False while it shuts down.
    heard: Callable[[bool], None]


class ConnectionLost(Exception):
    """The server has been silent for longer than a session lasts, or than a first word may take."""


async def stream(line: Line) -> None:
    """Works over one stream until it ends.

    Credits cannot be taken back, and a task that a draining worker gives back would come to it again on what was
    granted before. So such a stream is ended in favour of one without credits as soon as there is something to give
    back.
    """
    session, holdings = line.session, line.holdings
    call = line.stub.StreamTasks(metadata=line.metadata)
    # Tasks that were asked for on this stream and have not come yet.
    expected = 0
    draining = False
    # Whether the worker drained already when this stream was opened, so that no credits were granted on it.
    dry = bool(holdings.draining)
    answered = asyncio.Event()
    silent_since = time.monotonic()

    def wanted_credits(others: bool) -> int:
        """Credits to grant now. They go along with other things for nothing; alone they are worth a frame once there
        are many of them, or if the server has none left."""
        credits = 0 if draining else holdings.free() - expected
        return credits if others or expected == 0 or 4 * credits >= holdings.slots else 0

    async def write() -> None:
        nonlocal expected
        await call.write(
            StreamTasksRequest(session_id=session.id, credits=grant(True), heartbeat=holdings.heartbeat(""))
        )
        beat_time = time.monotonic() + session.heartbeat_interval
        if dry:
            # Once the server answers here, the stream before and its credits are gone.
            await answered.wait()
        while True:
            await holdings.change(timeout=min(beat_time, holdings.beat_time) - time.monotonic())
            # Handlers that are about to end join this frame: one with many reports costs as much as one with few.
            await asyncio.sleep(0)
            if holdings.draining and not dry and holdings.gives_back():
                return
            frame = StreamTasksRequest()
            if holdings.parting_words():
                await call.write(StreamTasksRequest(heartbeat=holdings.heartbeat("")))
            elif time.monotonic() >= min(beat_time, holdings.beat_time):
                frame.heartbeat.CopyFrom(holdings.heartbeat(""))
                beat_time = time.monotonic() + session.heartbeat_interval
            frame.reports.extend(holdings.unsent())
            frame.credits = grant(bool(frame.reports) or frame.HasField("heartbeat"))
            if frame.ByteSize() > 0:
                await call.write(frame)

    def grant(others: bool) -> int:
        nonlocal expected
        credits = max(0, wanted_credits(others))
        expected += credits
        return credits

    async def read() -> None:
        nonlocal expected, draining, silent_since
        async for frame in call:
            silent_since = time.monotonic()
            answered.set()
            if frame.results:
                for result in frame.results:
                    if result.HasField("error"):
                        holdings.refused(result.task_token, result.error)
                    else:
                        holdings.answered(result.task_token, result.outcome)
            if frame.tasks:
                expected -= len(frame.tasks)
                holdings.accept(frame.tasks)
            if frame.HasField("heartbeat"):
                holdings.heartbeat_answered(frame.heartbeat.stop)
            draining = draining or frame.draining or frame.heartbeat.draining
            line.heard(not draining)

    async def watch() -> None:
        # Every heartbeat is answered, so silence means that the other side is gone or frozen; before a first word, also
        # that something on the way holds streams back. Polls then take over while the session still lives.
        while True:
            patience = session.timeout if answered.is_set() else min(CALL_SECONDS, session.timeout / 2)
            left = silent_since + patience - time.monotonic()
            if left <= 0:
                raise ConnectionLost("the server does not answer heartbeats")
            await asyncio.sleep(left)

    try:
        await first_to_end(read(), write(), watch())
    finally:
        call.cancel()
        holdings.connection_lost()


async def poll(line: Line, until: float = float("inf")) -> None:
    """Works by plain calls until one of them fails, or until `until` (monotonic)."""
    session, holdings, stub, metadata = line.session, line.holdings, line.stub, line.metadata

    async def fetch() -> None:
        # What a draining worker gives back must not come to a poll of its own that still waits.
        polling = asyncio.ensure_future(fetch_for_ever())
        draining = asyncio.ensure_future(until_raised(holdings.draining))
        try:
            await asyncio.wait([polling, draining], return_when=asyncio.FIRST_COMPLETED)
            if polling.done():
                return polling.result()
            polling.cancel()
            await asyncio.Event().wait()
        finally:
            polling.cancel()
            draining.cancel()

    async def fetch_for_ever() -> None:
        while True:
            most = min(await holdings.room(), POLL_TASKS_MAX)
            # The last poll ends in time: one that were cut off could take tasks along.
            wait = min(POLL_SECONDS, until - time.monotonic())
            if wait <= 0:
                return
            request = PollTasksRequest(session_id=session.id, max_tasks=most)
            request.wait_duration.FromMilliseconds(max(1, int(1000 * wait)))
            response = await stub.PollTasks(request, timeout=POLL_SECONDS + CALL_SECONDS, metadata=metadata)
            holdings.accept(response.tasks)
            line.heard(not response.draining)
            if response.draining:
                await asyncio.sleep(1.0)

    async def beat() -> None:
        while True:
            response = await stub.Heartbeat(holdings.heartbeat(session.id), timeout=CALL_SECONDS, metadata=metadata)
            holdings.heartbeat_answered(response.stop)
            line.heard(not response.draining)
            beat_time = time.monotonic() + session.heartbeat_interval
            # A handler may want to be heard sooner; looking now and then is cheaper than a second signal.
            while (left := min(beat_time, holdings.beat_time) - time.monotonic()) > 0:  # noqa: ASYNC110
                await asyncio.sleep(min(left, 0.2))

    async def report() -> None:
        while True:
            if holdings.parting_words():
                parting = holdings.heartbeat(session.id)
                response = await stub.Heartbeat(parting, timeout=CALL_SECONDS, metadata=metadata)
                holdings.heartbeat_answered(response.stop)
            await asyncio.gather(*(send(line, report) for report in holdings.unsent()))
            await holdings.change(timeout=session.heartbeat_interval)

    try:
        await first_to_end(fetch(), beat(), report())
    finally:
        holdings.connection_lost()


async def send(line: Line, report: Report) -> None:
    """Sends one report as a call of its own."""
    stub, metadata = line.stub, line.metadata
    token = report.task_token
    call: Awaitable[CompleteTaskResponse | FailTaskResponse | ReleaseTaskResponse]
    if report.HasField("complete"):
        complete = CompleteTaskRequest(task_token=token, output=report.complete.output)
        call = stub.CompleteTask(complete, timeout=CALL_SECONDS, metadata=metadata)
    elif report.HasField("fail"):
        fail = FailTaskRequest(task_token=token, failure=report.fail.failure)
        if report.fail.HasField("retryable"):
            fail.retryable = report.fail.retryable
        if report.fail.HasField("retry_after"):
            fail.retry_after.CopyFrom(report.fail.retry_after)
        call = stub.FailTask(fail, timeout=CALL_SECONDS, metadata=metadata)
    else:
        call = stub.ReleaseTask(ReleaseTaskRequest(task_token=token), timeout=CALL_SECONDS, metadata=metadata)
    try:
        response = await call
    except grpc.aio.AioRpcError as error:
        refusal = errors.from_rpc(error)
        answer = ReportError(reason=refusal.reason or error.code().name, message=refusal.message)
        if error.code() not in FINAL:
            # Without a reason it was not the server that spoke: the connection is lost.
            if not refusal.reason or error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            answer.retryable = True
            answer.retry_after.FromTimedelta(refusal.retry_after or RETRY)
        line.holdings.refused(token, answer)
    else:
        line.holdings.answered(token, response.outcome)
        line.heard(True)


async def until_raised(flag: Flag) -> None:
    """Waits for a flag."""
    await flag


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
