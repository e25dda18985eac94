"""A server in this process, for tests of callers: executions that do what the test says, and nothing on the network.

    fake = Fake()
    fake.workflow("order", lambda order: {"receipt": "R-1"})
    client = fake.client()              # or fake.sync_client()

It keeps ids, labels, signals and the rule about the same id. It knows no definitions, so it checks no schema and runs
no steps.
"""

import asyncio
import inspect
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from orbit_api.admin.v1 import admin_service_pb2 as pb
from orbit_api.workflow.v1 import event_pb2, execution_pb2

from orbit import payloads
from orbit.client import Client
from orbit.config import Config
from orbit.errors import TaskError
from orbit.execution import State
from orbit.sync import SyncClient

if TYPE_CHECKING:
    from orbit_api.admin.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from orbit_api.schedule.v1.schedule_service_pb2_grpc import ScheduleServiceAsyncStub

# Takes the input and gives the output, at once or as a coroutine; what it raises fails the execution.
Behaviour = Callable[[Any], Any]

_STATE = {
    state: execution_pb2.Execution.State.Value(f"STATE_{state.value}") for state in State if state.value != "UNKNOWN"
}


@dataclass
class _Kept:
    """One execution of the fake."""

    message: execution_pb2.Execution
    events: list[event_pb2.Event] = field(default_factory=list)
    signals: list[tuple[str, Any]] = field(default_factory=list)
    queries: dict[str, Any] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def closed(self) -> bool:
        return State.of(self.message.state).closed

    def record(self, kind: str, make: Callable[[event_pb2.Event], None] | None = None) -> int:
        event = event_pb2.Event(number=len(self.events) + 1)
        event.time.GetCurrentTime()
        getattr(event, kind).SetInParent()
        if make is not None:
            make(event)
        self.events.append(event)
        self.message.last_event_number = event.number
        self.changed.set()
        self.changed = asyncio.Event()
        return event.number

    def close(self, state: State, kind: str) -> None:
        self.message.state = cast(Any, _STATE[state])
        self.message.close_time.GetCurrentTime()
        self.record(kind)


class Fake:
    """Executions in memory. The methods below are the test's side; callers use `client` or `sync_client`."""

    def __init__(self) -> None:
        self._behaviours: dict[str, Behaviour] = {}
        self._kept: dict[str, _Kept] = {}
        self._requests: dict[str, pb.StartExecutionResponse] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # --- The test's side --------------------------------------------------------------------------------------------

    def client(self) -> Client:
        """A client whose server this is."""
        client = Client(config=Config())
        client._made_stub = cast("AdminServiceAsyncStub", self)
        client._made_schedule_stub = cast("ScheduleServiceAsyncStub", self)
        return client

    def sync_client(self) -> SyncClient:
        """The same without asyncio."""
        return SyncClient.of(self.client())

    def workflow(self, name: str, behaviour: Behaviour | None = None) -> None:
        """Makes a workflow known. Its executions end with what `behaviour` gives or raises (`PermanentError` with a
        code of its own); without one they run until `complete` or `fail`."""
        self._behaviours[name] = behaviour or _for_ever

    def complete(self, id: str, output: Any = None) -> None:
        """Ends an execution well."""
        kept = self._open(id)
        kept.message.output.CopyFrom(payloads.encode(output))
        kept.close(State.SUCCEEDED, "execution_succeeded")

    def fail(self, id: str, code: str, message: str = "", details: Any = None) -> None:
        """Ends an execution with a failure."""
        kept = self._open(id)
        kept.message.failure.code, kept.message.failure.message = code, message
        if details is not None:
            kept.message.failure.details.CopyFrom(payloads.encode(details))
        kept.close(State.FAILED, "execution_failed")

    def answer_query(self, id: str, query: str, result: Any) -> None:
        """Says what a query of an execution gives."""
        self._kept[id].queries[query] = result

    def signals(self, id: str) -> list[tuple[str, Any]]:
        """The signals that an execution got: name and payload, in order."""
        return list(self._kept[id].signals)

    def input(self, id: str) -> Any:
        """The input that an execution was started with."""
        return payloads.decode(self._kept[id].message.input)

    @property
    def executions(self) -> list[str]:
        """The ids of all executions, oldest first."""
        return list(self._kept)

    def _open(self, id: str) -> _Kept:
        kept = self._kept[id]
        if kept.closed:
            raise ValueError(f"execution {id} is closed")
        return kept

    # --- The server's side: the rpcs of the generated stub that callers use -----------------------------------------

    async def StartExecution(self, request: pb.StartExecutionRequest, **_: Any) -> pb.StartExecutionResponse:
        if (before := self._requests.get(request.request_id)) is not None:
            return before
        behaviour = self._behaviours.get(request.workflow)
        if behaviour is None:
            raise refuse(grpc.StatusCode.NOT_FOUND, "DEFINITION_NOT_FOUND", f"no workflow {request.workflow!r}")
        id = request.id or str(uuid.uuid4())
        kept = self._kept.get(id)
        created = kept is None
        if kept is not None and (
            kept.message.workflow != request.workflow
            or payloads.decode(kept.message.input) != payloads.decode(request.input)
        ):
            raise refuse(grpc.StatusCode.ALREADY_EXISTS, "EXECUTION_ALREADY_EXISTS", f"execution {id!r} exists")
        if kept is None:
            message = execution_pb2.Execution(
                id=id,
                uid=str(uuid.uuid4()),
                run=1,
                workflow=request.workflow,
                version=request.version or "1.0.0",
                state=cast(Any, _STATE[State.RUNNING]),
                labels=dict(request.labels),
                input=request.input,
            )
            message.start_time.GetCurrentTime()
            kept = self._kept[id] = _Kept(message)
            kept.record("execution_created")
            task = asyncio.ensure_future(self._behave(kept, behaviour))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if request.HasField("signal"):
            kept.signals.append((request.signal.name, payloads.decode(request.signal.payload)))
            kept.record("signal_received")
        answer = pb.StartExecutionResponse(
            id=id,
            uid=kept.message.uid,
            version=kept.message.version,
            created=created,
            start_time=kept.message.start_time,
        )
        self._requests[request.request_id] = answer
        return answer

    async def _behave(self, kept: _Kept, behaviour: Behaviour) -> None:
        try:
            output = behaviour(payloads.decode(kept.message.input))
            if inspect.isawaitable(output):
                output = await output
        except TaskError as error:
            if not kept.closed:
                self.fail(kept.message.id, error.code, error.message, error.details)
        except Exception as error:
            if not kept.closed:
                self.fail(kept.message.id, type(error).__name__, str(error))
        else:
            if not kept.closed:
                self.complete(kept.message.id, output)

    async def GetExecution(self, request: pb.GetExecutionRequest, **_: Any) -> pb.GetExecutionResponse:
        return pb.GetExecutionResponse(execution=self._find(request).message)

    async def WaitExecution(self, request: pb.WaitExecutionRequest, **_: Any) -> pb.WaitExecutionResponse:
        kept = self._find(request)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.wait_duration.ToTimedelta().total_seconds()
        while not kept.closed and (left := deadline - loop.time()) > 0:
            await asyncio.wait([asyncio.ensure_future(kept.changed.wait())], timeout=left)
        return pb.WaitExecutionResponse(execution=kept.message)

    def WatchEvents(self, request: pb.WatchEventsRequest, **_: Any) -> "_Stream":
        return _Stream(self._watch(request))

    async def _watch(self, request: pb.WatchEventsRequest) -> AsyncIterator[pb.WatchEventsResponse]:
        kept = self._find(request)
        number = request.after_number
        while True:
            changed = kept.changed
            for event in kept.events[number:]:
                number = event.number
                yield pb.WatchEventsResponse(event=event)
            if kept.closed and number >= len(kept.events):
                return
            if number >= len(kept.events):
                await changed.wait()

    async def ListExecutions(self, request: pb.ListExecutionsRequest, **_: Any) -> pb.ListExecutionsResponse:
        if request.filter:
            raise refuse(grpc.StatusCode.UNIMPLEMENTED, "METHOD_UNKNOWN", "the fake knows no filters")
        return pb.ListExecutionsResponse(executions=[kept.message for kept in reversed(self._kept.values())])

    async def CountExecutions(self, request: pb.CountExecutionsRequest, **_: Any) -> pb.CountExecutionsResponse:
        states = [kept.message.state for kept in self._kept.values()]
        counts = [pb.StateCount(state=state, count=states.count(state)) for state in dict.fromkeys(states)]
        return pb.CountExecutionsResponse(counts=counts)

    async def QueryExecution(self, request: pb.QueryExecutionRequest, **_: Any) -> pb.QueryExecutionResponse:
        kept = self._find(request)
        if request.query not in kept.queries:
            raise refuse(grpc.StatusCode.NOT_FOUND, "QUERY_NOT_FOUND", f"no query {request.query!r}")
        result = payloads.encode(kept.queries[request.query])
        return pb.QueryExecutionResponse(result=result, last_event_number=len(kept.events))

    async def SignalExecution(self, request: pb.SignalExecutionRequest, **_: Any) -> pb.SignalExecutionResponse:
        kept = self._find_open(request)
        kept.signals.append((request.name, payloads.decode(request.payload)))
        return pb.SignalExecutionResponse(event_number=kept.record("signal_received"))

    async def CancelExecution(self, request: pb.CancelExecutionRequest, **_: Any) -> pb.CancelExecutionResponse:
        kept = self._find_open(request)
        kept.message.reason = request.reason
        number = kept.record("wind_down_started")
        kept.close(State.CANCELLED, "execution_cancelled")
        return pb.CancelExecutionResponse(event_number=number)

    async def TerminateExecution(
        self, request: pb.TerminateExecutionRequest, **_: Any
    ) -> pb.TerminateExecutionResponse:
        kept = self._find_open(request)
        kept.message.reason = request.reason
        kept.close(State.TERMINATED, "execution_terminated")
        return pb.TerminateExecutionResponse(event_number=len(kept.events))

    def _find(self, request: Any) -> _Kept:
        kept = self._kept.get(request.id)
        if kept is None or (request.uid and request.uid != kept.message.uid):
            raise refuse(grpc.StatusCode.NOT_FOUND, "EXECUTION_NOT_FOUND", f"no execution {request.id!r}")
        return kept

    def _find_open(self, request: Any) -> _Kept:
        kept = self._find(request)
        if kept.closed:
            state = State.of(kept.message.state).value
            text = f"execution is closed ({state})"
            raise refuse(grpc.StatusCode.FAILED_PRECONDITION, "EXECUTION_CLOSED", text, state=state)
        return kept

    def __getattr__(self, name: str) -> Any:
        if not name[:1].isupper():
            raise AttributeError(name)

        async def unknown(request: Any, **_: Any) -> Any:
            raise refuse(grpc.StatusCode.UNIMPLEMENTED, "METHOD_UNKNOWN", f"the fake does not know {name}")

        return unknown


def refuse(code: grpc.StatusCode, reason: str, message: str, **metadata: str) -> grpc.aio.AioRpcError:
    """The error of a call, with details as the server gives them."""
    info = AnyMessage()
    info.Pack(ErrorInfo(reason=reason, domain="orbit", metadata=metadata))
    status = Status(code=code.value[0], message=message, details=[info])
    trailing = grpc.aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details=message)


class _Stream:
    """As much of a gRPC call as a reader of events uses."""

    def __init__(self, answers: AsyncIterator[pb.WatchEventsResponse]) -> None:
        self._answers = answers

    def __aiter__(self) -> AsyncIterator[pb.WatchEventsResponse]:
        return self._answers

    def cancel(self) -> None:
        """Nothing is left behind."""


async def _for_ever(_: Any) -> Any:
    await asyncio.Event().wait()
