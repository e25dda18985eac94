"""The worker service of the fake server."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from orbit_api.worker.v1 import worker_service_pb2 as pb
from orbit_api.worker.v1.worker_service_pb2_grpc import WorkerServiceServicer
from orbit_api.workflow.v1.task_pb2 import Task

from runner.faults import Fault, Faults, credentials, duration, refuse
from runner.journal import Journal
from runner.oracle import json_text

# As short as tests need them; the order is that of a real server, a third or less.
HEARTBEAT_SECONDS = 0.2
SESSION_SECONDS = 3.0
FOREVER = 3600.0

SESSION_GONE = Fault(status="NOT_FOUND", reason="SESSION_NOT_FOUND", message="no such session")


class FakeWorkers(WorkerServiceServicer):
    """Sessions, tasks and reports."""

    def __init__(self, journal: Journal, faults: Faults) -> None:
        self._journal, self._faults = journal, faults
        self.sessions: set[str] = set()
        # Tokens that the answers of heartbeats name, while they are listed.
        self.unwanted: set[str] = set()
        # Set while the server drains: streams and polls end.
        self.draining = asyncio.Event()
        self._made = 0
        self._ready: deque[Task] = deque()
        self._news = asyncio.Condition()
        self._reports: dict[str, pb.Report] = {}

    def give(self, task: Task) -> None:
        """Queues a task for whoever asks first."""
        self._ready.append(task)
        self._notify()

    def drain(self) -> None:
        """Ends streams and polls in order."""
        self.draining.set()
        self._notify()

    def _notify(self) -> None:
        async def notify() -> None:
            async with self._news:
                self._news.notify_all()

        self._notifying = asyncio.ensure_future(notify())

    # --- Sessions ---------------------------------------------------------------------------------------------------

    async def RegisterWorker(self, request: pb.RegisterWorkerRequest, context: Any) -> pb.RegisterWorkerResponse:
        fault = await self._begin("RegisterWorker", context)
        resumed = request.previous_session_id in self.sessions
        self._made += not resumed
        session = request.previous_session_id if resumed else f"session-{self._made}"
        self.sessions.add(session)
        self._journal.add(
            {
                "event": "register",
                "session": session,
                "previous_session": request.previous_session_id,
                "resumed": resumed,
                "worker_id": request.worker_id,
                "language": request.language,
                "sdk": request.sdk,
                "queues": list(request.queues),
                "contracts": sorted(request.contracts),
                "slots": request.slots,
                "authorization": credentials(context),
            }
        )
        await self._end(fault, context)
        return pb.RegisterWorkerResponse(
            session_id=session,
            heartbeat_interval=duration(HEARTBEAT_SECONDS),
            session_timeout=duration(SESSION_SECONDS),
            resumed=resumed,
        )

    async def UnregisterWorker(self, request: pb.UnregisterWorkerRequest, context: Any) -> pb.UnregisterWorkerResponse:
        fault = await self._begin("UnregisterWorker", context)
        self.sessions.discard(request.session_id)
        self._journal.add({"event": "unregister", "session": request.session_id})
        await self._end(fault, context)
        return pb.UnregisterWorkerResponse()

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatResponse:
        fault = await self._begin("Heartbeat", context)
        await self._check(request.session_id, context)
        answer = self._beat(request)
        await self._end(fault, context)
        return answer

    async def _check(self, session: str, context: Any) -> None:
        if session not in self.sessions:
            await refuse(context, SESSION_GONE)

    def _beat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        held = [each.task_token for each in request.held]
        self._journal.add({"event": "heartbeat", "held": sorted(held)})
        for each in request.held:
            progress = json_text(each.progress)
            if progress is not None or each.beat:
                self._journal.add(
                    {"event": "beat", "token": each.task_token, "progress_json": progress, "beat": each.beat}
                )
        stop = sorted(self.unwanted.intersection(held))
        return pb.HeartbeatResponse(stop=stop, draining=self.draining.is_set())

    # --- Tasks ------------------------------------------------------------------------------------------------------

    async def StreamTasks(
        self, request_iterator: AsyncIterator[pb.StreamTasksRequest], context: Any
    ) -> AsyncIterator[pb.StreamTasksResponse]:
        fault = self._faults.take("StreamTasks")
        self._journal.add({"event": "stream", "authorization": credentials(context)})
        if fault is not None and fault.do == "end":
            return
        if fault is not None:
            await self._wrong(fault, context)
        out: deque[pb.StreamTasksResponse] = deque()
        credits = 0
        delayed: set[asyncio.Future[Any]] = set()

        async def read() -> None:
            nonlocal credits
            first = True
            async for frame in request_iterator:
                if first:
                    await self._check(frame.session_id, context)
                    first = False
                credits += frame.credits
                if frame.credits:
                    self._journal.add({"event": "credits", "granted": frame.credits, "outstanding": credits})
                if frame.reports:
                    self._journal.add({"event": "frame", "reports": len(frame.reports)})
                answer = pb.StreamTasksResponse()
                for report in frame.reports:
                    report_fault = self._faults.take(str(report.WhichOneof("kind")))
                    result = self._take(report, report_fault)
                    if report_fault is not None and report_fault.do == "delay":
                        delayed.add(asyncio.ensure_future(later(report_fault.seconds, result)))
                    elif report_fault is not None and report_fault.do in ("lose", "cut"):
                        self._faults.cut()
                    elif result is not None:
                        answer.results.append(result)
                if frame.HasField("heartbeat"):
                    beat_fault = self._faults.take("Heartbeat")
                    heartbeat = self._beat(frame.heartbeat)
                    if beat_fault is None:
                        answer.heartbeat.CopyFrom(heartbeat)
                out.append(answer)
                self._notify()

        async def later(seconds: float, result: pb.ReportResult | None) -> None:
            await asyncio.sleep(seconds)
            out.append(pb.StreamTasksResponse(results=[result] if result else []))
            self._notify()

        reader = asyncio.ensure_future(read())
        reader.add_done_callback(lambda _: self._notify())
        try:
            while not self.draining.is_set():
                if reader.done():
                    reader.result()
                    return
                batch = []
                while credits > 0 and self._ready:
                    credits -= 1
                    batch.append(self._ready.popleft())
                if batch:
                    out.append(pb.StreamTasksResponse(tasks=batch))
                while out:
                    yield out.popleft()
                async with self._news:
                    if not (out or reader.done() or self.draining.is_set() or (credits > 0 and self._ready)):
                        await self._news.wait()
            yield pb.StreamTasksResponse(draining=True)
        finally:
            for part in (reader, *delayed):
                part.cancel()

    async def PollTasks(self, request: pb.PollTasksRequest, context: Any) -> pb.PollTasksResponse:
        self._journal.add({"event": "poll", "max_tasks": request.max_tasks})
        fault = await self._begin("PollTasks", context)
        await self._check(request.session_id, context)
        wait = request.wait_duration.ToNanoseconds() / 1e9 if request.HasField("wait_duration") else 25.0

        async def ready() -> None:
            async with self._news:
                await self._news.wait_for(lambda: self._ready or self.draining.is_set())

        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(ready(), min(wait, 50.0))
        taken = [self._ready.popleft() for _ in range(min(max(1, request.max_tasks), len(self._ready)))]
        await self._end(fault, context)
        return pb.PollTasksResponse(tasks=taken, draining=self.draining.is_set())

    # --- Reports ----------------------------------------------------------------------------------------------------

    def _take(self, report: pb.Report, fault: Fault | None) -> pb.ReportResult | None:
        """Writes a report down and answers it, unless the fault says otherwise."""
        kind = str(report.WhichOneof("kind"))
        entry: dict[str, Any] = {"event": "report", "kind": kind, "token": report.task_token}
        if kind == "complete":
            entry["output_json"] = json_text(report.complete.output)
        elif kind == "fail":
            fail = report.fail
            entry |= {
                "code": fail.failure.code,
                "message": fail.failure.message,
                "details_json": json_text(fail.failure.details),
                "retryable": fail.retryable if fail.HasField("retryable") else True,
                "retry_after": fail.retry_after.ToNanoseconds() / 1e9 if fail.HasField("retry_after") else None,
            }
        result = pb.ReportResult(task_token=report.task_token)
        if fault is not None and fault.do in ("refuse", "ignore"):
            self._journal.add(entry | {"taken": False})
            if fault.do == "ignore":
                return None
            result.error.reason, result.error.message = fault.reason or fault.status, fault.message
            result.error.retryable = fault.status == "UNAVAILABLE"
            if fault.retry_after is not None:
                result.error.retry_after.CopyFrom(duration(fault.retry_after))
            return result
        if fault is not None and fault.do == "outcome":
            self._journal.add(entry | {"taken": False})
            result.outcome.reason = pb.ReportOutcome.Reason.Value(f"REASON_{fault.outcome}")
            return result
        before = self._reports.setdefault(report.task_token, report)
        same = before == report
        self._journal.add(entry | {"taken": same, "duplicate": same and before is not report})
        result.outcome.accepted, result.outcome.duplicate = same, same and before is not report
        if not same:
            result.outcome.reason = pb.ReportOutcome.REASON_UNIT_RESOLVED
        return None if fault is not None and fault.do == "silence" else result

    async def _report(self, report: pb.Report, context: Any) -> pb.ReportOutcome:
        fault = self._faults.take(str(report.WhichOneof("kind")))
        result = self._take(report, fault)
        if fault is not None and fault.do in ("refuse", "ignore", "silence"):
            await self._wrong(fault, context)
        await self._end(fault, context)
        assert result is not None
        return result.outcome

    async def CompleteTask(self, request: pb.CompleteTaskRequest, context: Any) -> pb.CompleteTaskResponse:
        report = pb.Report(task_token=request.task_token, complete=pb.Complete(output=request.output))
        return pb.CompleteTaskResponse(outcome=await self._report(report, context))

    async def FailTask(self, request: pb.FailTaskRequest, context: Any) -> pb.FailTaskResponse:
        fail = pb.Fail(failure=request.failure)
        if request.HasField("retryable"):
            fail.retryable = request.retryable
        if request.HasField("retry_after"):
            fail.retry_after.CopyFrom(request.retry_after)
        report = pb.Report(task_token=request.task_token, fail=fail)
        return pb.FailTaskResponse(outcome=await self._report(report, context))

    async def ReleaseTask(self, request: pb.ReleaseTaskRequest, context: Any) -> pb.ReleaseTaskResponse:
        report = pb.Report(task_token=request.task_token, release=pb.Release())
        return pb.ReleaseTaskResponse(outcome=await self._report(report, context))

    # --- Faults -----------------------------------------------------------------------------------------------------

    async def _begin(self, rpc: str, context: Any) -> Fault | None:
        """Meets a fault that strikes before anything is done; one that strikes afterwards is for `_end`."""
        fault = self._faults.take(rpc)
        if fault is not None and fault.do in ("refuse", "ignore"):
            self._journal.add({"event": "refused", "rpc": rpc, "status": fault.status})
            await self._wrong(fault, context)
        return fault

    async def _end(self, fault: Fault | None, context: Any) -> None:
        if fault is None or fault.do == "outcome":
            return
        if fault.do == "delay":
            await asyncio.sleep(fault.seconds)
        elif fault.do == "cut":
            self._faults.cut()
            await asyncio.sleep(FOREVER)
        elif fault.do == "silence":
            await asyncio.sleep(FOREVER)
        else:
            await refuse(context, Fault(message="the reply is lost"))

    async def _wrong(self, fault: Fault, context: Any) -> None:
        if fault.do in ("ignore", "silence"):
            await asyncio.sleep(FOREVER)
        await refuse(context, fault)
