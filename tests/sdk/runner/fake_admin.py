"""The admin service of the fake server: as much of it as faults of callers need.

Executions begin, and succeed at once with their input as output; their history is always the same five events.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from orbit_api.admin.v1 import admin_service_pb2 as pb
from orbit_api.admin.v1.admin_service_pb2_grpc import AdminServiceServicer
from orbit_api.workflow.v1.event_pb2 import Event
from orbit_api.workflow.v1.execution_pb2 import Execution

from runner.faults import Fault, Faults, credentials, refuse
from runner.journal import Journal
from runner.oracle import MESSAGE_BYTES, json_text

HISTORY = ("execution_created", "step_scheduled", "step_dispatched", "step_succeeded", "execution_succeeded")
GONE = Fault(status="NOT_FOUND", reason="EXECUTION_NOT_FOUND", message="no such execution")


class FakeAdmin(AdminServiceServicer):
    """Executions that succeed at once."""

    def __init__(self, journal: Journal, faults: Faults) -> None:
        self._journal, self._faults = journal, faults
        self._executions: dict[str, Execution] = {}
        self._started: dict[str, pb.StartExecutionResponse] = {}

    async def StartExecution(self, request: pb.StartExecutionRequest, context: Any) -> pb.StartExecutionResponse:
        fault = await self._begin("StartExecution", request.request_id, context)
        answer = self._started.get(request.request_id)
        if answer is None:
            number = len(self._executions) + 1
            id = request.id or f"execution-{number}"
            execution = Execution(id=id, uid=f"uid-{number}", workflow=request.workflow, version="1.0.0", run=1)
            execution.state = Execution.STATE_SUCCEEDED
            execution.input.CopyFrom(request.input)
            execution.output.CopyFrom(request.input)
            execution.close_time.GetCurrentTime()
            self._executions[id] = execution
            answer = pb.StartExecutionResponse(id=id, uid=execution.uid, version="1.0.0", created=True)
            if request.request_id:
                self._started[request.request_id] = answer
            self._journal.add({"event": "execution", "id": id, "input": json_text(request.input)})
        await self._end(fault, context)
        return answer

    async def GetExecution(self, request: pb.GetExecutionRequest, context: Any) -> pb.GetExecutionResponse:
        fault = await self._begin("GetExecution", "", context)
        execution = await self._find(request.id, context)
        await self._end(fault, context)
        return pb.GetExecutionResponse(execution=execution)

    async def WaitExecution(self, request: pb.WaitExecutionRequest, context: Any) -> pb.WaitExecutionResponse:
        fault = await self._begin("WaitExecution", "", context)
        execution = await self._find(request.id, context)
        await self._end(fault, context)
        return pb.WaitExecutionResponse(execution=execution)

    async def SignalExecution(self, request: pb.SignalExecutionRequest, context: Any) -> pb.SignalExecutionResponse:
        fault = await self._begin("SignalExecution", request.request_id, context)
        await self._end(fault, context)
        return pb.SignalExecutionResponse(event_number=7)

    async def CancelExecution(self, request: pb.CancelExecutionRequest, context: Any) -> pb.CancelExecutionResponse:
        fault = await self._begin("CancelExecution", request.request_id, context)
        await self._end(fault, context)
        return pb.CancelExecutionResponse(event_number=7)

    async def GetServerInfo(self, request: pb.GetServerInfoRequest, context: Any) -> pb.GetServerInfoResponse:
        fault = await self._begin("GetServerInfo", "", context)
        await self._end(fault, context)
        limits = pb.Limits(payload_bytes_max=2 * 1024 * 1024, message_bytes_max=MESSAGE_BYTES, page_size_max=1000)
        return pb.GetServerInfoResponse(version="0.1.0", store="fake", limits=limits)

    async def WatchEvents(self, request: pb.WatchEventsRequest, context: Any) -> AsyncIterator[pb.WatchEventsResponse]:
        self._journal.add({"event": "watch", "after": request.after_number})
        fault = self._faults.take("WatchEvents")
        if fault is not None and fault.do != "break":
            await refuse(context, fault)
        told = 0
        for number, kind in enumerate(HISTORY, 1):
            if number <= request.after_number:
                continue
            if fault is not None and told == fault.after:
                await refuse(context, fault)
            event = Event(number=number)
            getattr(event, kind).SetInParent()
            yield pb.WatchEventsResponse(event=event)
            told += 1

    async def _find(self, id: str, context: Any) -> Execution:
        if id not in self._executions:
            await refuse(context, GONE)
        return self._executions[id]

    async def _begin(self, rpc: str, request_id: str, context: Any) -> Fault | None:
        entry = {"event": "call", "rpc": rpc, "request_id": request_id, "authorization": credentials(context)}
        self._journal.add(entry)
        fault = self._faults.take(rpc)
        if fault is None:
            return None
        if fault.do == "ignore":
            await asyncio.sleep(3600)
        if fault.do == "refuse":
            await refuse(context, fault)
        return fault

    async def _end(self, fault: Fault | None, context: Any) -> None:
        if fault is None:
            return
        if fault.do == "delay":
            await asyncio.sleep(fault.seconds)
        elif fault.do in ("cut", "silence"):
            if fault.do == "cut":
                self._faults.cut()
            await asyncio.sleep(3600)
        else:
            await refuse(context, Fault(message="the reply is lost"))
