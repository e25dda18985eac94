"""A worker service in this process that hands out given tasks, writes down all it hears and fails when told to."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from orbit_api.worker.v1 import worker_service_pb2 as pb
from orbit_api.worker.v1.worker_service_pb2_grpc import WorkerServiceServicer, add_WorkerServiceServicer_to_server
from orbit_api.workflow.v1.payload_pb2 import Payload
from orbit_api.workflow.v1.task_pb2 import Task

Context = Any


class FakeServer(WorkerServiceServicer):
    """Keeps its tasks, sessions and reports over `crash` and `start`, as a real server does."""

    def __init__(self) -> None:
        # What the test sets.
        self.streams = True
        self.heartbeat_seconds = 0.05
        self.session_seconds = 5.0
        self.stop_tokens: set[str] = set()
        self.answers_reports = True
        self.report_errors: deque[pb.ReportError] = deque()
        self.frozen = False
        self.loses_progress = False
        self.progress_lost = 0
        self.refusal = ""
        # What the test reads.
        self.sessions: dict[str, pb.RegisterWorkerRequest] = {}
        self.registrations: list[pb.RegisterWorkerRequest] = []
        self.unregistered: list[str] = []
        self.heartbeats: list[set[str]] = []
        self.progress: dict[str, str] = {}
        self.beats: set[str] = set()
        self.reports: dict[str, pb.Report] = {}
        self.report_count = 0
        self.credits_most = 0
        self.opened = 0

        self._ready: deque[Task] = deque()
        self._wake = asyncio.Event()
        self._port = 0
        self._server: grpc.aio.Server | None = None
        # Key and certificate, and who may sign those of callers; without them in clear text.
        self.tls: tuple[bytes, bytes, bytes] | None = None
        self.authorizations: set[str] = set()

    # --- Life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listens; on the same port again after a crash."""
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        add_WorkerServiceServicer_to_server(self, self._server)
        listen = f"127.0.0.1:{self._port}"
        if self.tls is None:
            self._port = self._server.add_insecure_port(listen)
        else:
            key, certificate, signer = self.tls
            credentials = grpc.ssl_server_credentials([(key, certificate)], signer, require_client_auth=True)
            self._port = self._server.add_secure_port(listen, credentials)
        await self._server.start()

    async def crash(self) -> None:
        """Cuts every connection."""
        assert self._server is not None
        await self._server.stop(grace=None)
        self._server = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def give(self, token: str, contract: str, input: str | None = "null", **fields: Any) -> None:
        """Queues a task. `input` is JSON text; None leaves the payload without content."""
        payload = Payload() if input is None else Payload(json=input)
        fields.setdefault("idempotency_key", f"key-of-{token}")
        fields.setdefault("attempt", 1)
        self._ready.append(Task(task_token=token, contract=contract, input=payload, execution_id="order-1", **fields))
        self._wake.set()

    def listed(self) -> set[str]:
        """The tokens that the newest heartbeat listed."""
        return self.heartbeats[-1] if self.heartbeats else set()

    # --- Sessions ---------------------------------------------------------------------------------------------------

    async def RegisterWorker(self, request: pb.RegisterWorkerRequest, context: Context) -> pb.RegisterWorkerResponse:
        if self.refusal:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refusal)
        self.registrations.append(request)
        self.authorizations |= {str(value) for key, value in context.invocation_metadata() if key == "authorization"}
        resumed = request.previous_session_id in self.sessions
        session_id = request.previous_session_id if resumed else f"session-{len(self.registrations)}"
        self.sessions[session_id] = request
        return pb.RegisterWorkerResponse(
            session_id=session_id,
            heartbeat_interval=duration(self.heartbeat_seconds),
            session_timeout=duration(self.session_seconds),
            resumed=resumed,
        )

    async def UnregisterWorker(
        self, request: pb.UnregisterWorkerRequest, context: Context
    ) -> pb.UnregisterWorkerResponse:
        self.unregistered.append(request.session_id)
        self.sessions.pop(request.session_id, None)
        return pb.UnregisterWorkerResponse()

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:
        await self._check(request.session_id, context)
        answer = self._beat(request)
        if answer is None:
            await asyncio.Event().wait()
            raise AssertionError("waits for ever")
        return answer

    async def _check(self, session_id: str, context: Context) -> None:
        if session_id not in self.sessions:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such session")

    def _beat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse | None:
        held = {held.task_token for held in request.held}
        self.heartbeats.append(held)
        for entry in request.held:
            if entry.HasField("progress") and self.loses_progress:
                # As if the connection broke: neither taken nor answered.
                self.progress_lost += 1
                return None
            if entry.HasField("progress"):
                self.progress[entry.task_token] = entry.progress.json
            if entry.beat:
                self.beats.add(entry.task_token)
        return pb.HeartbeatResponse(stop=sorted(held & self.stop_tokens))

    # --- Tasks ------------------------------------------------------------------------------------------------------

    async def StreamTasks(
        self, request_iterator: AsyncIterator[pb.StreamTasksRequest], context: Context
    ) -> AsyncIterator[pb.StreamTasksResponse]:
        if not self.streams:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no streams here")
        out: asyncio.Queue[pb.StreamTasksResponse] = asyncio.Queue()
        credits = 0

        async def read() -> None:
            nonlocal credits
            first = True
            async for frame in request_iterator:
                if first:
                    await self._check(frame.session_id, context)
                    self.opened += 1
                    first = False
                credits += frame.credits
                self.credits_most = max(self.credits_most, credits)
                answer = pb.StreamTasksResponse()
                for report in frame.reports:
                    result = self._take(report)
                    if result is not None:
                        answer.results.append(result)
                if frame.HasField("heartbeat"):
                    beat = self._beat(frame.heartbeat)
                    if beat is None:
                        # Nothing that follows on this connection counts either.
                        await asyncio.Event().wait()
                        raise AssertionError("waits for ever")
                    answer.heartbeat.CopyFrom(beat)
                if not self.frozen:
                    out.put_nowait(answer)
                self._wake.set()

        reader = asyncio.ensure_future(read())
        try:
            while True:
                if reader.done():
                    reader.result()
                    return
                while credits > 0 and self._ready:
                    credits -= 1
                    out.put_nowait(pb.StreamTasksResponse(tasks=[self._ready.popleft()]))
                while not out.empty():
                    yield out.get_nowait()
                self._wake.clear()
                await asyncio.wait([reader, asyncio.ensure_future(self._wake.wait())], timeout=0.05, return_when=FIRST)
        finally:
            reader.cancel()

    async def PollTasks(self, request: pb.PollTasksRequest, context: Context) -> pb.PollTasksResponse:
        await self._check(request.session_id, context)
        deadline = asyncio.get_running_loop().time() + request.wait_duration.ToTimedelta().total_seconds()
        while not self._ready and (left := deadline - asyncio.get_running_loop().time()) > 0:
            self._wake.clear()
            await asyncio.wait([asyncio.ensure_future(self._wake.wait())], timeout=left)
        self.credits_most = max(self.credits_most, request.max_tasks)
        return pb.PollTasksResponse(
            tasks=[self._ready.popleft() for _ in range(min(request.max_tasks, len(self._ready)))]
        )

    def _take(self, report: pb.Report) -> pb.ReportResult | None:
        self.report_count += 1
        if not self.answers_reports:
            return None
        if self.report_errors:
            return pb.ReportResult(task_token=report.task_token, error=self.report_errors.popleft())
        before = self.reports.setdefault(report.task_token, report)
        assert before == report, "a report may be repeated, not changed"
        return pb.ReportResult(
            task_token=report.task_token,
            outcome=pb.ReportOutcome(accepted=True, duplicate=before is not report),
        )

    async def _take_call(self, report: pb.Report, context: Context) -> pb.ReportOutcome:
        result = self._take(report)
        if result is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "told not to answer")
            raise AssertionError("abort raises")
        if result.HasField("error"):
            code = grpc.StatusCode.UNAVAILABLE if result.error.retryable else grpc.StatusCode.INVALID_ARGUMENT
            await context.abort(code, result.error.message)
        return result.outcome

    async def CompleteTask(self, request: pb.CompleteTaskRequest, context: Context) -> pb.CompleteTaskResponse:
        report = pb.Report(task_token=request.task_token, complete=pb.Complete(output=request.output))
        return pb.CompleteTaskResponse(outcome=await self._take_call(report, context))

    async def FailTask(self, request: pb.FailTaskRequest, context: Context) -> pb.FailTaskResponse:
        fail = pb.Fail(failure=request.failure, retryable=request.retryable)
        if request.HasField("retry_after"):
            fail.retry_after.CopyFrom(request.retry_after)
        report = pb.Report(task_token=request.task_token, fail=fail)
        return pb.FailTaskResponse(outcome=await self._take_call(report, context))

    async def ReleaseTask(self, request: pb.ReleaseTaskRequest, context: Context) -> pb.ReleaseTaskResponse:
        report = pb.Report(task_token=request.task_token, release=pb.Release())
        return pb.ReleaseTaskResponse(outcome=await self._take_call(report, context))


FIRST = asyncio.FIRST_COMPLETED


def duration(seconds: float) -> Duration:
    """Seconds as a message."""
    return Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))
