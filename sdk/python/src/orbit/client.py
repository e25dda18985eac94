"""A client: deploys workflows, starts executions and looks after them.

    async with orbit.Client() as client:
        handle = await client.start("order", Order("o-1"), id="order-1")
        receipt = await handle.result(Receipt, timeout=60)

Writes carry a `request_id` made once per call, so a call that is sent again does not happen twice.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from orbit_api.admin.v1 import admin_service_pb2 as pb
from orbit_api.admin.v1.admin_service_pb2_grpc import AdminServiceStub
from orbit_api.schedule.v1.schedule_service_pb2_grpc import ScheduleServiceStub

from orbit import channel, payloads
from orbit.batches import Batches
from orbit.calls import CALL_SECONDS, Calls, seconds
from orbit.config import Config
from orbit.execution import Execution, State, execution
from orbit.handle import ExecutionHandle, new_id
from orbit.schedules import Schedules

if TYPE_CHECKING:
    import grpc
    from orbit_api.admin.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from orbit_api.schedule.v1.schedule_service_pb2_grpc import ScheduleServiceAsyncStub

IdReusePolicy = Literal["reject", "allow_when_closed", "terminate_running"]
"""What a start may do if another execution has its id: nothing (the same workflow and input then find it), take the
place of a closed one, or take its place and terminate it if it is open."""


@dataclass(frozen=True)
class DefinitionWarning:
    """Something in a definition that is allowed but looks like a mistake."""

    code: str
    """What is wrong, for programs."""
    message: str
    """What is wrong, for people."""
    hint: str
    """What to do about it; may be empty."""
    path: str
    """Where: a field path such as `steps[2].retry.jitter`."""
    line: int
    """Line from 1; 0 without a source."""
    column: int
    """Column from 1, in characters; 0 without a source."""


@dataclass(frozen=True)
class Deployment:
    """What became of a definition."""

    name: str
    """Name of the workflow."""
    version: str
    """Version of the definition."""
    hash: str
    """SHA-256 of the meaning, lower-case hex."""
    created: bool
    """Whether this call stored it; false if it was there, or was only checked."""
    warnings: tuple[DefinitionWarning, ...]
    """What is allowed but looks like a mistake."""


class Client:
    """A connection for callers; it is opened with the first call and serves any number of them at once."""

    def __init__(
        self,
        *,
        timeout: timedelta | float = CALL_SECONDS,
        headers: Callable[[], Mapping[str, str]] | None = None,
        config: Config | None = None,
        address: str | None = None,
        api_key: str | None = None,
        tls_ca: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        profile: str | None = None,
    ) -> None:
        """Settings as `orbit.config` describes; `config` stands for all of them.

        - `timeout`: deadline of each call, repeats included; each method takes its own.
        - `headers`: asked before each call for what goes along, for example `orbit.otel.headers`.

        Raises `ConfigError` for settings that cannot be used.
        """
        self.config = config or Config.load(
            address=address, api_key=api_key, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key, profile=profile
        )
        self._calls = Calls(channel.metadata(self.config), seconds(timeout), headers)
        self._channel: grpc.aio.Channel | None = None
        self._made_stub: AdminServiceAsyncStub | None = None
        self._made_schedule_stub: ScheduleServiceAsyncStub | None = None
        self.schedules = Schedules(self._schedule_stub, self._calls)
        """What starts executions at certain times."""
        self.batches = Batches(lambda: self.admin, self._calls)
        """One action on many executions."""

    @property
    def admin(self) -> "AdminServiceAsyncStub":
        """The generated stub over this client's connection, for what has no method here; its calls take
        `metadata=client.metadata()` for the credentials. Its errors are gRPC's own, `grpc.aio.AioRpcError`."""
        if self._made_stub is None:
            # Not before the first call: a channel belongs to the event loop that runs when it is made.
            self._channel = self._channel or channel.open_channel(self.config)
            self._made_stub = AdminServiceStub(self._channel)
        return self._made_stub

    def _schedule_stub(self) -> "ScheduleServiceAsyncStub":
        if self._made_schedule_stub is None:
            self._channel = self._channel or channel.open_channel(self.config)
            self._made_schedule_stub = ScheduleServiceStub(self._channel)
        return self._made_schedule_stub

    def metadata(self) -> Sequence[tuple[str, str]]:
        """What a call on `admin` must carry: the API key, if there is one, and what `headers` gives."""
        return self._calls.metadata()

    async def close(self) -> None:
        """Ends the connection; calls under way fail. The next call opens another one."""
        made, self._channel, self._made_stub, self._made_schedule_stub = self._channel, None, None, None
        if made is not None:
            await made.close()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # --- Definitions ------------------------------------------------------------------------------------------------

    async def deploy(
        self,
        source: str | Path,
        *,
        file_name: str = "",
        validate_only: bool = False,
        timeout: timedelta | float | None = None,
    ) -> Deployment:
        """Checks a definition and stores it: a `Path` of a YAML or JSON file, or its text.

        The same content again changes nothing. Raises `InvalidArgument` with every fault in `violations`, and
        `AlreadyExists` if the version has other content.
        """
        if isinstance(source, Path):
            file_name, source = file_name or source.name, _read(source)
        request = pb.DeployDefinitionRequest(source=source, file_name=file_name, validate_only=validate_only)
        return _deployment(await self._calls.make(self.admin.DeployDefinition, request, timeout))

    async def deploy_all(
        self,
        sources: Iterable[str | Path],
        *,
        validate_only: bool = False,
        timeout: timedelta | float | None = None,
    ) -> list[Deployment]:
        """Checks definitions that may refer to each other, in any order, and stores all or none; as `deploy`."""
        request = pb.DeployDefinitionsRequest(validate_only=validate_only)
        for source in sources:
            if isinstance(source, Path):
                request.files.add(source=_read(source), file_name=source.name)
            else:
                request.files.add(source=source)
        answer = await self._calls.make(self.admin.DeployDefinitions, request, timeout)
        return [_deployment(one) for one in answer.definitions]

    async def definition(
        self, name: str, version: str = "", *, timeout: timedelta | float | None = None
    ) -> pb.GetDefinitionResponse:
        """Reads a definition: parsed, and as the text that was deployed. `version`: default the highest, a pre-release
        only if there is nothing else. Raises `NotFound`."""
        request = pb.GetDefinitionRequest(name=name, version=version)
        return await self._calls.make(self.admin.GetDefinition, request, timeout)

    async def definitions(self, name: str = "", *, page_size: int = 0) -> AsyncIterator[pb.DefinitionSummary]:
        """The deployed definitions by name, each name's versions from the highest down; of one workflow if it is
        named."""
        token = ""
        while True:
            request = pb.ListDefinitionsRequest(name=name, page_size=page_size, page_token=token)
            answer = await self._calls.make(self.admin.ListDefinitions, request)
            for one in answer.definitions:
                yield one
            token = answer.next_page_token
            if not token:
                return

    # --- Executions -------------------------------------------------------------------------------------------------

    async def start(
        self,
        workflow: str,
        input: Any = None,
        *,
        id: str | None = None,
        version: str | None = None,
        labels: Mapping[str, str] | None = None,
        start_delay: timedelta | float | None = None,
        signal: tuple[str, Any] | None = None,
        id_reuse_policy: IdReusePolicy = "reject",
        request_id: str | None = None,
        timeout: timedelta | float | None = None,
    ) -> ExecutionHandle:
        """Starts an execution; it is durable once this returns. `input` is JSON, a dataclass, a model and the like.

        - `id`: the caller's own name for it; the same id, workflow and input again give the same execution
          (`handle.created` is false). Default: the server makes one.
        - `version`: default the highest that is deployed.
        - `signal`: name and payload of a signal that comes with the start, or goes to the open execution of that id.
        - `request_id`: makes two calls one, for 24 hours; every repeat within a call has the same anyway.

        Raises `NotFound` (no such workflow), `InvalidArgument` (the input does not fit its schema), `AlreadyExists`
        (the id has another workflow or input).
        """
        request = pb.StartExecutionRequest(
            id=id or "",
            workflow=workflow,
            version=version or "",
            input=payloads.encode(input),
            labels=dict(labels or {}),
            request_id=new_id(request_id),
            id_reuse_policy=pb.IdReusePolicy.Value(f"ID_REUSE_POLICY_{id_reuse_policy.upper()}"),
        )
        if start_delay is not None:
            request.start_delay.FromNanoseconds(int(seconds(start_delay) * 1e9))
        if signal is not None:
            request.signal.name = signal[0]
            request.signal.payload.CopyFrom(payloads.encode(signal[1]))
        answer = await self._calls.make(self.admin.StartExecution, request, timeout)
        handle = self.execution(answer.id, answer.uid)
        handle.version, handle.created = answer.version, answer.created
        handle.start_time = answer.start_time.ToDatetime(tzinfo=timezone.utc)
        return handle

    def execution(self, id: str, uid: str = "") -> ExecutionHandle:
        """A handle for an execution that exists; makes no call."""
        return ExecutionHandle(self.admin, self._calls, id, uid)

    async def list(self, filter: str = "", *, page_size: int = 0) -> AsyncIterator[Execution]:
        """Executions, newest first, without payloads and steps.

        `filter` is for example `state = RUNNING AND workflow = "order" AND labels.tenant = "a"`. Raises
        `InvalidArgument` for a filter that is none.
        """
        token = ""
        while True:
            request = pb.ListExecutionsRequest(filter=filter, page_size=page_size, page_token=token)
            answer = await self._calls.make(self.admin.ListExecutions, request)
            for one in answer.executions:
                yield execution(one)
            token = answer.next_page_token
            if not token:
                return

    async def count(self, *, timeout: timedelta | float | None = None) -> dict[State, int]:
        """How many executions there are in each state that any is in."""
        answer = await self._calls.make(self.admin.CountExecutions, pb.CountExecutionsRequest(), timeout)
        return {State.of(one.state): one.count for one in answer.counts}

    # --- The server -------------------------------------------------------------------------------------------------

    async def workers(self) -> AsyncIterator[pb.Worker]:
        """The sessions of workers."""
        token = ""
        while True:
            answer = await self._calls.make(self.admin.ListWorkers, pb.ListWorkersRequest(page_token=token))
            for one in answer.workers:
                yield one
            token = answer.next_page_token
            if not token:
                return

    async def server_info(self, *, timeout: timedelta | float | None = None) -> pb.GetServerInfoResponse:
        """The server's version, limits and capabilities."""
        return await self._calls.make(self.admin.GetServerInfo, pb.GetServerInfoRequest(), timeout)


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def _deployment(answer: "pb.DeployDefinitionResponse | pb.DeployedDefinition") -> Deployment:
    warnings = tuple(
        DefinitionWarning(one.code, one.message, one.hint, one.path, one.line, one.column) for one in answer.warnings
    )
    return Deployment(answer.name, answer.version, answer.hash, answer.created, warnings)
