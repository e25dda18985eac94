"""A worker: registers, fetches tasks, runs their handlers and reports, through every outage, until it is told to stop.

- It connects again for ever, with growing random pauses of at most one second, and logs one line for each change.
- Every token that it holds is listed in its heartbeats, from receipt until the report is answered.
- A result that is finished during an outage is delivered when the outage ends.
- `stop` drains: no new tasks, those that have not begun go back, those that run may finish within a bound.
"""

import asyncio
import logging
import random
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import grpc
from orbit_api.worker.v1.worker_service_pb2 import (
    Complete,
    Fail,
    RegisterWorkerRequest,
    Report,
    UnregisterWorkerRequest,
)
from orbit_api.worker.v1.worker_service_pb2_grpc import WorkerServiceStub
from orbit_api.workflow.v1.execution_pb2 import Failure
from orbit_api.workflow.v1.task_pb2 import Task

import connection
import payloads
from connection import ConnectionLost, Session
from holdings import Held, Holdings, name

if TYPE_CHECKING:
    from orbit_api.worker.v1.worker_service_pb2_grpc import WorkerServiceAsyncStub

log = logging.getLogger("orbit.worker")

# Largest message that the worker can take, in bytes.
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # A broken path is noticed although nothing is sent: long polls die silently behind some gateways.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Pauses between attempts are ours (`Backoff`); the channel's own would grow to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # A second worker in one process gets a connection of its own.
    ("grpc.use_local_subchannel_pool", 1),
]

# How long a worker that stops tries to deliver its last reports.
DELIVERY_SECONDS = 5.0


class TaskError(Exception):
    """What a handler raises to fail its attempt with a code of its own. Others fail it as `UNEXPECTED`."""

    def __init__(
        self, code: str, message: str, *, retryable: bool = True, retry_after: timedelta | None = None
    ) -> None:
        """`code` is for programs: the definition's `retry.non_retryable` names codes. `retry_after` is the shortest
        pause before the next attempt; the step's own policy counts if it is longer."""
        super().__init__(message)
        self.code, self.message, self.retryable, self.retry_after = code, message, retryable, retry_after


class TaskContext:
    """What a handler knows about its task beside the input."""

    def __init__(self, held: Held) -> None:
        self._held = held

    @property
    def task(self) -> Task:
        """The task as it came: ids, attempt, delivery, deadline."""
        return self._held.task

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt and delivery: what must happen once is recorded under it."""
        return self._held.task.idempotency_key

    def progress(self, value: Any) -> None:
        """Tells how far the work is, with the next heartbeat. The next attempt finds it in `task.progress`."""
        payloads.encode(value)  # A value that JSON cannot say is the caller's mistake, so it is told here.
        self._held.progress = value

    def beat(self) -> None:
        """Says that the handler itself is alive, with the next heartbeat: for steps with a `heartbeat_timeout`."""
        self._held.beat = True


Handler = Callable[[TaskContext, Any], Awaitable[Any]]


@dataclass
class Options:
    """How a worker works. The defaults suit one process beside a server."""

    # Address of the server, `host:port`.
    server: str = "127.0.0.1:7070"
    # Name of the worker, for people. Two processes may share it.
    worker_id: str = field(default_factory=socket.gethostname)
    queues: Sequence[str] = ("default",)
    # Most tasks at once.
    slots: int = 8
    # Whether to fetch tasks by plain calls instead of a stream.
    poll: bool = False
    # Seconds that running handlers get when the worker is told to stop.
    drain_seconds: float = 20.0


class Backoff:
    """Pauses between attempts to connect: growing, random, of at most one second."""

    LONGEST = 1.0

    def __init__(self) -> None:
        self._next = 0.1

    def reset(self) -> None:
        """The connection works."""
        self._next = 0.1

    async def pause(self) -> None:
        """Waits. Half of the pause is random, so that many workers do not come back in step."""
        pause = self._next
        self._next = min(self.LONGEST, pause * 2)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))


class Worker:
    """One worker process."""

    def __init__(self, handlers: Mapping[str, Handler], options: Options) -> None:
        """`handlers` has an async function for each contract `name@version`."""
        self._handlers = dict(handlers)
        self._options = options
        self._holdings = Holdings(options.slots, lambda held: asyncio.ensure_future(self._handle(held)))
        self._stopping = asyncio.Event()
        self._connect = connection.poll if options.poll else connection.stream
        self._session_id = ""
        self._registering: asyncio.Future[Session] | None = None
        self._connected: bool | None = None

    def stop(self) -> None:
        """Begins to drain; `run` then returns."""
        self._stopping.set()

    async def run(self) -> bool:
        """Works until `stop` is called. Returns whether every report was delivered.

        Raises `grpc.aio.AioRpcError` only if the server refuses the registration as such, for example a contract
        that is no `name@version`.
        """
        async with grpc.aio.insecure_channel(self._options.server, options=CHANNEL_OPTIONS) as channel:
            stub = WorkerServiceStub(channel)
            working = asyncio.ensure_future(self._keep_connected(stub))
            stopping = asyncio.ensure_future(self._stopping.wait())
            try:
                await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
                if working.done():
                    working.result()
                delivered = await self._drain()
            finally:
                stopping.cancel()
                working.cancel()
                await asyncio.wait([working, stopping])
            await self._unregister(stub)
            return delivered

    # --- The connection ---------------------------------------------------------------------------------------------

    async def _keep_connected(self, stub: "WorkerServiceAsyncStub") -> None:
        backoff = Backoff()

        def heard() -> None:
            backoff.reset()
            self._say(True, f"connected to {self._options.server}, session {self._session_id}")

        while True:
            try:
                # Shielded: a registration that is under way when the worker stops is finished and undone.
                self._registering = asyncio.ensure_future(self._register(stub))
                session = await asyncio.shield(self._registering)
                while True:
                    # The server ends streams in order now and then; the session stays.
                    await self._connect(stub, session, self._holdings, heard)
                    await backoff.pause()
            except grpc.aio.AioRpcError as error:
                if error.code() == grpc.StatusCode.UNIMPLEMENTED and self._connect is connection.stream:
                    log.warning("streams do not get through to %s; polling instead", self._options.server)
                    self._connect = connection.poll
                    continue
                if error.code() == grpc.StatusCode.INVALID_ARGUMENT and not self._session_id:
                    raise
                self._say(False, f"lost the server ({error.code().name}: {error.details()}); trying again")
            except (ConnectionLost, asyncio.InvalidStateError) as error:
                self._say(False, f"lost the server ({error}); trying again")
            await backoff.pause()

    async def _register(self, stub: "WorkerServiceAsyncStub") -> Session:
        response = await stub.RegisterWorker(
            RegisterWorkerRequest(
                worker_id=self._options.worker_id,
                language="python",
                sdk=f"orbit order example (grpcio {grpc.__version__})",
                queues=self._options.queues,
                contracts=sorted(self._handlers),
                slots=self._options.slots,
                message_bytes_max=MESSAGE_BYTES_MAX,
                previous_session_id=self._session_id,
            ),
            timeout=connection.CALL_SECONDS,
        )
        for warning in response.warnings:
            log.warning("the server warns: %s", warning)
        self._session_id = response.session_id
        return Session(
            id=response.session_id,
            heartbeat_interval=response.heartbeat_interval.ToTimedelta().total_seconds(),
            timeout=response.session_timeout.ToTimedelta().total_seconds(),
        )

    async def _unregister(self, stub: "WorkerServiceAsyncStub") -> None:
        if self._registering is not None:
            await asyncio.wait([self._registering], timeout=2.0)
            if not self._registering.cancel():
                self._registering.exception()  # Was logged where it was waited for; here it only counts as seen.
        if not self._session_id:
            return
        try:
            await stub.UnregisterWorker(UnregisterWorkerRequest(session_id=self._session_id), timeout=2.0)
            log.info("unregistered; bye")
        except grpc.aio.AioRpcError as error:
            # The server finds out by the session's timeout.
            log.warning("could not unregister (%s); bye", error.code().name)

    def _say(self, connected: bool, text: str) -> None:
        """Logs a change of the connection, and only a change."""
        if connected != self._connected:
            self._connected = connected
            log.log(logging.INFO if connected else logging.WARNING, "%s", text)

    # --- Tasks ------------------------------------------------------------------------------------------------------

    async def _handle(self, held: Held) -> Report:
        """Runs the handler of one task and makes its report, whatever happens; only a cancellation passes through."""
        task = held.task
        report = Report(task_token=task.task_token)
        try:
            output = await self._handlers[task.contract](TaskContext(held), payloads.decode(task.input))
            report.complete.CopyFrom(Complete(output=payloads.encode(output)))
            log.info("%s: done", name(task))
        except TaskError as error:
            report.fail.CopyFrom(failed(error.code, error.message, error.retryable))
            if error.retry_after is not None:
                report.fail.retry_after.FromTimedelta(error.retry_after)
            log.info("%s: failed with %s: %s", name(task), error.code, error.message)
        except payloads.UnknownPayload as error:
            report.fail.CopyFrom(failed("PAYLOAD_UNKNOWN", str(error), False))
            log.error("%s: %s", name(task), error)
        except Exception as error:
            report.fail.CopyFrom(failed("UNEXPECTED", f"{type(error).__name__}: {error}", True))
            log.exception("%s: the handler failed", name(task))
        return report

    async def _drain(self) -> bool:
        """Ends the work in order; returns whether every report was delivered."""
        self._holdings.take_no_more()
        running = self._holdings.running()
        log.info("stopping: no new tasks, %d running get up to %.0f s", len(running), self._options.drain_seconds)
        if running:
            _, late = await asyncio.wait(running, timeout=self._options.drain_seconds)
            for handler in late:
                handler.cancel()
        # The connection goes on meanwhile and delivers.
        reported = asyncio.ensure_future(self._holdings.reported())
        await asyncio.wait([reported], timeout=DELIVERY_SECONDS)
        reported.cancel()
        for task in self._holdings.unreported():
            log.warning("%s: not reported; the server will hand it out again", name(task))
        return not self._holdings.unreported()


def failed(code: str, message: str, retryable: bool) -> Fail:
    """A failure to report."""
    return Fail(failure=Failure(code=code, message=message), retryable=retryable)
