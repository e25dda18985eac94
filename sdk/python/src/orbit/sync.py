"""The client for programs without asyncio: the same methods, which wait. Any thread may use it.

    with orbit.SyncClient() as client:
        receipt = client.start("order", Order("o-1")).result(Receipt, timeout=60)

The calls run on an event loop in a thread of their own, which begins with the first call and ends with `close`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, overload

from orbit_api.admin.v1 import admin_service_pb2 as pb
from orbit_api.admin.v1.explanation_pb2 import Explanation

from orbit.calls import CALL_SECONDS
from orbit.client import Client, Deployment, IdReusePolicy
from orbit.config import Config
from orbit.execution import Event, Execution, State
from orbit.handle import UNSET, ExecutionHandle
from orbit.loop_thread import LoopThread
from orbit.sync_batches import SyncBatches
from orbit.sync_schedules import SyncSchedules

Type = TypeVar("Type")
Span = timedelta | float | None


class SyncClient:
    """As `Client`, with methods that wait."""

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
        """Arguments and errors as of `Client`."""
        client = Client(
            timeout=timeout,
            headers=headers,
            config=config,
            address=address,
            api_key=api_key,
            tls_ca=tls_ca,
            tls_cert=tls_cert,
            tls_key=tls_key,
            profile=profile,
        )
        self._use(client)

    def _use(self, client: Client) -> None:
        self.config = client.config
        self._client = client
        self._loop = LoopThread()
        self.schedules = SyncSchedules(self._loop, client.schedules)
        """What starts executions at certain times."""
        self.batches = SyncBatches(self._loop, client.batches)
        """One action on many executions."""

    @classmethod
    def of(cls, client: Client) -> "SyncClient":
        """The same client, without asyncio; nobody else may use it then."""
        made = cls.__new__(cls)
        made._use(client)
        return made

    def close(self) -> None:
        """Ends the connection and its thread."""
        if self._loop.running:
            self._loop.run(self._client.close())
            self._loop.close()

    def __enter__(self) -> "SyncClient":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def deploy(
        self, source: str | Path, *, file_name: str = "", validate_only: bool = False, timeout: Span = None
    ) -> Deployment:
        """As `Client.deploy`."""
        call = self._client.deploy(source, file_name=file_name, validate_only=validate_only, timeout=timeout)
        return self._loop.run(call)

    def deploy_all(
        self, sources: Iterable[str | Path], *, validate_only: bool = False, timeout: Span = None
    ) -> list[Deployment]:
        """As `Client.deploy_all`."""
        return self._loop.run(self._client.deploy_all(sources, validate_only=validate_only, timeout=timeout))

    def definition(self, name: str, version: str = "", *, timeout: Span = None) -> pb.GetDefinitionResponse:
        """As `Client.definition`."""
        return self._loop.run(self._client.definition(name, version, timeout=timeout))

    def definitions(self, name: str = "", *, page_size: int = 0) -> Iterator[pb.DefinitionSummary]:
        """As `Client.definitions`."""
        return self._loop.iterate(self._client.definitions(name, page_size=page_size))

    def start(
        self,
        workflow: str,
        input: Any = None,
        *,
        id: str | None = None,
        version: str | None = None,
        labels: Mapping[str, str] | None = None,
        start_delay: Span = None,
        signal: tuple[str, Any] | None = None,
        id_reuse_policy: IdReusePolicy = "reject",
        request_id: str | None = None,
        timeout: Span = None,
    ) -> "SyncExecutionHandle":
        """As `Client.start`."""
        call = self._client.start(
            workflow,
            input,
            id=id,
            version=version,
            labels=labels,
            start_delay=start_delay,
            signal=signal,
            id_reuse_policy=id_reuse_policy,
            request_id=request_id,
            timeout=timeout,
        )
        return SyncExecutionHandle(self._loop, self._loop.run(call))

    def execution(self, id: str, uid: str = "") -> "SyncExecutionHandle":
        """As `Client.execution`."""

        async def make() -> ExecutionHandle:
            return self._client.execution(id, uid)

        return SyncExecutionHandle(self._loop, self._loop.run(make()))

    def list(self, filter: str = "", *, page_size: int = 0) -> Iterator[Execution]:
        """As `Client.list`."""
        return self._loop.iterate(self._client.list(filter, page_size=page_size))

    def count(self, *, timeout: Span = None) -> dict[State, int]:
        """As `Client.count`."""
        return self._loop.run(self._client.count(timeout=timeout))

    def workers(self) -> Iterator[pb.Worker]:
        """As `Client.workers`."""
        return self._loop.iterate(self._client.workers())

    def server_info(self, *, timeout: Span = None) -> pb.GetServerInfoResponse:
        """As `Client.server_info`."""
        return self._loop.run(self._client.server_info(timeout=timeout))


class SyncExecutionHandle:
    """As `ExecutionHandle`, with methods that wait."""

    def __init__(self, loop: "LoopThread", handle: ExecutionHandle) -> None:
        self._loop = loop
        self._handle = handle
        self.id = handle.id
        self.uid = handle.uid
        self.version = handle.version
        self.created = handle.created
        self.start_time = handle.start_time

    def __repr__(self) -> str:
        return repr(self._handle)

    @overload
    def result(self, type: type[Type], *, timeout: Span = None) -> Type: ...
    @overload
    def result(self, type: None = None, *, timeout: Span = None) -> Any: ...

    def result(self, type: Any = None, *, timeout: Span = None) -> Any:
        """As `ExecutionHandle.result`."""
        return self._loop.run(self._handle.result(type, timeout=timeout))

    def wait(self, *, timeout: Span = None) -> Execution:
        """As `ExecutionHandle.wait`."""
        return self._loop.run(self._handle.wait(timeout=timeout))

    def describe(self, *, timeout: Span = None) -> Execution:
        """As `ExecutionHandle.describe`."""
        return self._loop.run(self._handle.describe(timeout=timeout))

    def explain(self, *, timeout: Span = None) -> Explanation:
        """As `ExecutionHandle.explain`."""
        return self._loop.run(self._handle.explain(timeout=timeout))

    @overload
    def query(self, query: str, type: type[Type], *, timeout: Span = None) -> Type: ...
    @overload
    def query(self, query: str, type: None = None, *, timeout: Span = None) -> Any: ...

    def query(self, query: str, type: Any = None, *, timeout: Span = None) -> Any:
        """As `ExecutionHandle.query`."""
        return self._loop.run(self._handle.query(query, type, timeout=timeout))

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """As `ExecutionHandle.events`."""
        return self._loop.iterate(self._handle.events(after=after))

    def signal(
        self,
        name: str,
        payload: Any = None,
        *,
        expire_time: datetime | None = None,
        request_id: str | None = None,
        timeout: Span = None,
    ) -> int:
        """As `ExecutionHandle.signal`."""
        call = self._handle.signal(name, payload, expire_time=expire_time, request_id=request_id, timeout=timeout)
        return self._loop.run(call)

    def cancel(self, reason: str = "", *, request_id: str | None = None, timeout: Span = None) -> None:
        """As `ExecutionHandle.cancel`."""
        self._loop.run(self._handle.cancel(reason, request_id=request_id, timeout=timeout))

    def terminate(self, reason: str = "", *, request_id: str | None = None, timeout: Span = None) -> None:
        """As `ExecutionHandle.terminate`."""
        self._loop.run(self._handle.terminate(reason, request_id=request_id, timeout=timeout))

    def pause(self, reason: str = "", *, request_id: str | None = None, timeout: Span = None) -> None:
        """As `ExecutionHandle.pause`."""
        self._loop.run(self._handle.pause(reason, request_id=request_id, timeout=timeout))

    def resume(self, *, request_id: str | None = None, timeout: Span = None) -> None:
        """As `ExecutionHandle.resume`."""
        self._loop.run(self._handle.resume(request_id=request_id, timeout=timeout))

    def retry(self, *, request_id: str | None = None, timeout: Span = None) -> None:
        """As `ExecutionHandle.retry`."""
        self._loop.run(self._handle.retry(request_id=request_id, timeout=timeout))

    def rerun(
        self,
        from_step: str,
        *,
        id: str | None = None,
        input: Any = UNSET,
        labels: Mapping[str, str] | None = None,
        request_id: str | None = None,
        timeout: Span = None,
    ) -> "SyncExecutionHandle":
        """As `ExecutionHandle.rerun`."""
        call = self._handle.rerun(from_step, id=id, input=input, labels=labels, request_id=request_id, timeout=timeout)
        return SyncExecutionHandle(self._loop, self._loop.run(call))

    def delete(self, *, request_id: str | None = None, timeout: Span = None) -> None:
        """As `ExecutionHandle.delete`."""
        self._loop.run(self._handle.delete(request_id=request_id, timeout=timeout))
