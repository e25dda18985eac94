"""The commands `client.…` of the drivers' protocol, by gRPC directly: what the runner itself asks a server.

It is also the client of the reference driver, with which the runner is tested.
"""

import asyncio
import time
from typing import Any

import grpc
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status
from orbit_api.admin.v1 import admin_service_pb2 as pb
from orbit_api.admin.v1.admin_service_pb2_grpc import AdminServiceStub
from orbit_api.workflow.v1.execution_pb2 import Execution, Failure, StepStatus
from orbit_api.workflow.v1.payload_pb2 import Payload

MESSAGE_BYTES = 64 * 1024 * 1024
CHANNEL = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    # One connection for each channel, so that servers which had the same port are not mixed up.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
]
CALL_SECONDS = 10.0
# What becomes of an execution, as errors of `client.result`.
ENDS = {"FAILED": "Failed", "CANCELLED": "Cancelled", "TIMED_OUT": "TimedOut", "TERMINATED": "Terminated"}


class Refused(Exception):
    """A command failed; the error as drivers report it."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error))
        self.error = error


class Oracle:
    """A client of one address."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=CHANNEL)
        self._stub: Any = AdminServiceStub(self._channel)

    async def close(self) -> None:
        """Ends the connection."""
        await self._channel.close()

    async def tell(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        """Does a command. Raises `Refused`."""
        method = getattr(self, "_" + op.removeprefix("client."), None)
        if not op.startswith("client.") or method is None:
            raise Refused({"class": "UnknownOp", "message": op})
        try:
            answer: dict[str, Any] = await method(**{key: value for key, value in args.items() if value is not None})
        except grpc.aio.AioRpcError as error:
            raise Refused(describe_error(error)) from error
        return answer

    async def _call(self, rpc: str, request: Any, timeout: float = CALL_SECONDS) -> Any:
        return await getattr(self._stub, rpc)(request, timeout=timeout, wait_for_ready=True)

    async def _deploy(self, source: str, file_name: str = "") -> dict[str, Any]:
        request = pb.DeployDefinitionRequest(source=source, file_name=file_name)
        answer = await self._call("DeployDefinition", request)
        return {name: getattr(answer, name) for name in ("name", "version", "hash", "created")}

    async def _start(self, **args: Any) -> dict[str, Any]:
        request = pb.StartExecutionRequest(
            **{name: args[name] for name in ("id", "workflow", "version", "labels", "request_id") if name in args}
        )
        if "input_json" in args:
            request.input.json = args["input_json"]
        if "start_delay_seconds" in args:
            request.start_delay.FromNanoseconds(int(args["start_delay_seconds"] * 1e9))
        if "id_reuse_policy" in args:
            name = f"ID_REUSE_POLICY_{args['id_reuse_policy'].upper()}"
            request.id_reuse_policy = pb.IdReusePolicy.Value(name)
        answer = await self._call("StartExecution", request, args.get("timeout_seconds", CALL_SECONDS))
        return {name: getattr(answer, name) for name in ("id", "uid", "version", "created")}

    async def _closed(self, id: str, uid: str, timeout_seconds: float) -> Execution:
        end = time.monotonic() + timeout_seconds
        while (left := end - time.monotonic()) > 0:
            request = pb.WaitExecutionRequest(id=id, uid=uid)
            request.wait_duration.FromNanoseconds(int(min(left, 20) * 1e9))
            try:
                answer = await self._call("WaitExecution", request, left + 1)
            except grpc.aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(0.1)
                continue
            if answer.execution.HasField("close_time"):
                closed: Execution = answer.execution
                return closed
        raise Refused({"class": "DeadlineExceeded", "code": "DEADLINE_EXCEEDED", "message": f"{id} is open"})

    async def _wait(self, id: str, uid: str = "", timeout_seconds: float = 60) -> dict[str, Any]:
        return {"state": state(await self._closed(id, uid, timeout_seconds))}

    async def _result(self, id: str, uid: str = "", timeout_seconds: float = 60) -> dict[str, Any]:
        execution = await self._closed(id, uid, timeout_seconds)
        if execution.state == Execution.STATE_SUCCEEDED:
            return {"output_json": json_text(execution.output)}
        kind = f"Execution{ENDS[state(execution)]}"
        raise Refused({"class": kind, "message": execution.failure.message, "failure": failure(execution.failure)})

    async def _describe(self, id: str, uid: str = "", timeout_seconds: float = CALL_SECONDS) -> dict[str, Any]:
        answer = await self._call("GetExecution", pb.GetExecutionRequest(id=id, uid=uid), timeout_seconds)
        execution: Execution = answer.execution
        return {
            **{name: getattr(execution, name) for name in ("id", "uid", "workflow", "version")},
            "state": state(execution),
            "labels": dict(execution.labels),
            "input_json": json_text(execution.input),
            "output_json": json_text(execution.output),
            "steps": [
                {
                    "step": step.step,
                    "state": StepStatus.State.Name(step.state).removeprefix("STATE_"),
                    "attempt": step.attempt,
                    "delivery": step.delivery,
                    "output_json": json_text(step.output),
                    "failure": failure(step.failure) if step.HasField("failure") else None,
                }
                for step in execution.steps
            ],
        }

    async def _signal(self, id: str, name: str, payload_json: str = "null", request_id: str = "") -> dict[str, Any]:
        payload = Payload(json=payload_json)
        request = pb.SignalExecutionRequest(id=id, name=name, payload=payload, request_id=request_id)
        return {"event_number": (await self._call("SignalExecution", request)).event_number}

    async def _query(self, id: str, query: str) -> dict[str, Any]:
        answer = await self._call("QueryExecution", pb.QueryExecutionRequest(id=id, query=query))
        return {"result_json": json_text(answer.result)}

    async def _cancel(self, id: str, reason: str = "") -> dict[str, Any]:
        await self._call("CancelExecution", pb.CancelExecutionRequest(id=id, reason=reason))
        return {}

    async def _terminate(self, id: str, reason: str = "") -> dict[str, Any]:
        await self._call("TerminateExecution", pb.TerminateExecutionRequest(id=id, reason=reason))
        return {}

    async def _list(self, filter: str = "", page_size: int = 0, limit: int | None = None) -> dict[str, Any]:
        ids: list[str] = []
        token = ""
        while True:
            request = pb.ListExecutionsRequest(filter=filter, page_size=page_size, page_token=token)
            answer = await self._call("ListExecutions", request)
            ids += [execution.id for execution in answer.executions]
            token = answer.next_page_token
            if not token or (limit is not None and len(ids) >= limit):
                return {"ids": ids[:limit]}

    async def _events(self, id: str, after: int = 0) -> dict[str, Any]:
        events: list[dict[str, Any]] = []
        token = ""
        while True:
            answer = await self._call("ListEvents", pb.ListEventsRequest(id=id, page_size=1000, page_token=token))
            events += [{"number": event.number, "type": event.WhichOneof("kind")} for event in answer.events]
            token = answer.next_page_token
            if not token:
                return {"events": [event for event in events if event["number"] > after]}

    async def _workers(self) -> dict[str, Any]:
        """The sessions, as only the runner asks for them."""
        answer = await self._call("ListWorkers", pb.ListWorkersRequest())
        return {"sessions": [worker.session_id for worker in answer.workers]}


def json_text(payload: Payload) -> str | None:
    """The text of a payload; None if it has none."""
    return payload.json if payload.HasField("json") else None


def state(execution: Execution) -> str:
    """An execution's state without its prefix."""
    return Execution.State.Name(execution.state).removeprefix("STATE_")


def failure(failed: Failure) -> dict[str, Any]:
    """A failure as drivers report it."""
    details = json_text(failed.details)
    return {"code": failed.code, "message": failed.message, "unit": failed.unit, "details_json": details}


def describe_error(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    """A failed call as drivers report it."""
    code = str(error.code().name)
    described: dict[str, Any] = {
        "class": "".join(word.title() for word in code.split("_")),
        "code": code,
        "message": error.details() or "",
    }
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        for detail in Status.FromString(value).details:
            info, bad = ErrorInfo(), BadRequest()
            if detail.Unpack(info):
                described["reason"], described["metadata"] = info.reason, dict(info.metadata)
            elif detail.Unpack(bad):
                described["violations"] = [
                    {"field": each.field, "description": each.description} for each in bad.field_violations
                ]
    return described
