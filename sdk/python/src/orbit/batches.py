"""Batches: one action on all executions that a filter names, worked off in the background by the server.

batch = await client.batches.create("cancel", 'workflow = "order" AND state = RUNNING', reason="out of stock")
done = await client.batches.wait(batch.id, timeout=60)
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Literal

import grpc
from orbit_api.admin.v1 import admin_service_pb2 as pb
from orbit_api.admin.v1 import batch_pb2

from orbit.backoff import Backoff
from orbit.calls import PAUSE_SECONDS, Calls, seconds
from orbit.errors import DeadlineExceeded, Unavailable
from orbit.handle import new_id

if TYPE_CHECKING:
    from orbit_api.admin.v1.admin_service_pb2_grpc import AdminServiceAsyncStub

BatchAction = Literal["cancel", "terminate", "retry", "delete"]
"""What is done with each execution; `retry` skips all but FAILED and TIMED_OUT ones, `delete` those that are open."""
Span = timedelta | float | None


@dataclass(frozen=True)
class BatchFailure:
    """An execution with which a batch failed."""

    id: str
    """Id of the execution."""
    uid: str
    """Uid of the execution."""
    message: str
    """Why, for people."""


@dataclass(frozen=True)
class Batch:
    """A batch as it was when the server answered."""

    id: str
    """Empty for a dry run, of which nothing is stored."""
    action: str
    """`cancel`, `terminate`, `retry` or `delete`; empty for one that this SDK does not know."""
    filter: str
    """Which executions."""
    state: str
    """`RUNNING`, `SUCCEEDED` or `CANCELLED`; `UNKNOWN` for one that this SDK does not know."""
    expected: int
    """How many executions matched when it was made, as far as they were counted."""
    expected_complete: bool
    """Whether `expected` is all: counting stops at 100,000 and after half a second."""
    done: int
    """Executions with which the action was done."""
    skipped: int
    """Executions that went another way before their turn came."""
    failed: int
    """Executions with which it failed."""
    failures: tuple[BatchFailure, ...]
    """The first failures, at most 10."""
    create_time: datetime | None
    """When it was made; None for a dry run."""
    end_time: datetime | None
    """When it ended; None while it runs."""
    raw: batch_pb2.Batch = field(repr=False, compare=False)
    """The message that it came from, with what has no field here."""

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.end_time is not None


class Batches:
    """The batches of a server: `client.batches`."""

    def __init__(self, stub: "Callable[[], AdminServiceAsyncStub]", calls: Calls) -> None:
        self._stub = stub
        self._calls = calls

    async def create(
        self,
        action: BatchAction,
        filter: str,
        *,
        reason: str = "",
        max_executions: int = 0,
        dry_run: bool = False,
        request_id: str | None = None,
        timeout: Span = None,
    ) -> Batch:
        """Makes a batch and returns at once; the server works it off.

        - `filter`: as of `Client.list`; all executions are `start_time > "1970-01-01T00:00:00Z"`. Those that are
          started after this call are left alone.
        - `reason`: why, for people, at most 1,024 characters; only with `cancel` and `terminate`.
        - `max_executions`: most that it reaches; 0 for no limit.
        - `dry_run`: whether only to count (`expected`); nothing is stored then.

        Raises `InvalidArgument` for a filter that is none.
        """
        if reason and action not in ("cancel", "terminate"):
            raise ValueError(f"{action} takes no reason")
        request = pb.CreateBatchRequest(
            filter=filter, max_executions=max_executions, dry_run=dry_run, request_id=new_id(request_id)
        )
        chosen = getattr(request, action)
        chosen.SetInParent()
        if reason:
            chosen.reason = reason
        return _batch((await self._calls.make(self._stub().CreateBatch, request, timeout)).batch)

    async def get(self, id: str, *, timeout: Span = None) -> Batch:
        """Reads a batch. Raises `NotFound`."""
        return _batch((await self._calls.make(self._stub().GetBatch, pb.GetBatchRequest(id=id), timeout)).batch)

    async def list(self, *, page_size: int = 0) -> AsyncIterator[Batch]:
        """The batches, newest first; those that ended are kept as long as closed executions are."""
        token = ""
        while True:
            request = pb.ListBatchesRequest(page_size=page_size, page_token=token)
            answer = await self._calls.make(self._stub().ListBatches, request)
            for one in answer.batches:
                yield _batch(one)
            token = answer.next_page_token
            if not token:
                return

    async def cancel(self, id: str, *, timeout: Span = None) -> Batch:
        """Ends a batch; what it has done stays done. One that has ended is not changed. Raises `NotFound`."""
        return _batch((await self._calls.make(self._stub().CancelBatch, pb.CancelBatchRequest(id=id), timeout)).batch)

    async def wait(self, id: str, *, timeout: Span = None) -> Batch:
        """Asks again and again, at least every two seconds, until the batch has ended, and gives it.

        Waits for ever, through every outage, unless `timeout` says how long. Raises `DeadlineExceeded`, `NotFound`.
        """
        deadline = float("inf") if timeout is None else time.monotonic() + seconds(timeout)
        backoff = Backoff(longest=PAUSE_SECONDS)
        while True:
            left = deadline - time.monotonic()
            if left > 0:
                try:
                    batch = await self.get(id, timeout=min(left, 10.0))
                    if batch.ended:
                        return batch
                except (Unavailable, DeadlineExceeded):
                    pass  # Until the caller's own time is up.
                left = deadline - time.monotonic()
            if left <= 0:
                raise DeadlineExceeded(
                    f"batch {id} has not ended within {seconds(timeout or 0):g} s",
                    code=grpc.StatusCode.DEADLINE_EXCEEDED,
                )
            await asyncio.sleep(min(backoff.next(), left))


def _batch(raw: batch_pb2.Batch) -> Batch:
    try:
        state = batch_pb2.Batch.State.Name(raw.state).removeprefix("STATE_")
    except ValueError:
        state = "UNKNOWN"
    return Batch(
        id=raw.id,
        action=raw.WhichOneof("action") or "",
        filter=raw.filter,
        state=state,
        expected=raw.expected_count,
        expected_complete=raw.expected_complete,
        done=raw.done_count,
        skipped=raw.skipped_count,
        failed=raw.failed_count,
        failures=tuple(BatchFailure(one.id, one.uid, one.message) for one in raw.failures),
        create_time=raw.create_time.ToDatetime(tzinfo=timezone.utc) if raw.HasField("create_time") else None,
        end_time=raw.end_time.ToDatetime(tzinfo=timezone.utc) if raw.HasField("end_time") else None,
        raw=raw,
    )
