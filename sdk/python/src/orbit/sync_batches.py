"""Batches for programs without asyncio: `SyncClient.batches`."""

from collections.abc import Iterator
from datetime import timedelta

from orbit.batches import Batch, BatchAction, Batches
from orbit.loop_thread import LoopThread

Span = timedelta | float | None


class SyncBatches:
    """As `Batches`, with methods that wait."""

    def __init__(self, loop: LoopThread, batches: Batches) -> None:
        self._loop = loop
        self._batches = batches

    def create(
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
        """As `Batches.create`."""
        call = self._batches.create(
            action,
            filter,
            reason=reason,
            max_executions=max_executions,
            dry_run=dry_run,
            request_id=request_id,
            timeout=timeout,
        )
        return self._loop.run(call)

    def get(self, id: str, *, timeout: Span = None) -> Batch:
        """As `Batches.get`."""
        return self._loop.run(self._batches.get(id, timeout=timeout))

    def list(self, *, page_size: int = 0) -> Iterator[Batch]:
        """As `Batches.list`."""
        return self._loop.iterate(self._batches.list(page_size=page_size))

    def cancel(self, id: str, *, timeout: Span = None) -> Batch:
        """As `Batches.cancel`."""
        return self._loop.run(self._batches.cancel(id, timeout=timeout))

    def wait(self, id: str, *, timeout: Span = None) -> Batch:
        """As `Batches.wait`."""
        return self._loop.run(self._batches.wait(id, timeout=timeout))
