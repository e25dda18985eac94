"""Schedules for programs without asyncio: `SyncClient.schedules`."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from orbit.handle import UNSET
from orbit.loop_thread import LoopThread
from orbit.schedules import Overlap, Schedule, SchedulePreview, Schedules, ScheduleSpec, Slot

Span = timedelta | float | None


class SyncSchedules:
    """As `Schedules`, with methods that wait."""

    def __init__(self, loop: LoopThread, schedules: Schedules) -> None:
        self._loop = loop
        self._schedules = schedules

    def create(
        self,
        id: str,
        workflow: str,
        input: Any = None,
        *,
        crons: Sequence[str] = (),
        every: timedelta | None = None,
        timezone: str = "",
        spec: ScheduleSpec | None = None,
        version: str = "",
        labels: Mapping[str, str] | None = None,
        overlap: Overlap = "skip",
        catchup_window: timedelta | None = None,
        max_actions: int = 0,
        pause_on_failure: bool = False,
        description: str = "",
        paused: bool = False,
        request_id: str | None = None,
        timeout: Span = None,
    ) -> Schedule:
        """As `Schedules.create`."""
        call = self._schedules.create(
            id,
            workflow,
            input,
            crons=crons,
            every=every,
            timezone=timezone,
            spec=spec,
            version=version,
            labels=labels,
            overlap=overlap,
            catchup_window=catchup_window,
            max_actions=max_actions,
            pause_on_failure=pause_on_failure,
            description=description,
            paused=paused,
            request_id=request_id,
            timeout=timeout,
        )
        return self._loop.run(call)

    def get(self, id: str, *, uid: str = "", timeout: Span = None) -> Schedule:
        """As `Schedules.get`."""
        return self._loop.run(self._schedules.get(id, uid=uid, timeout=timeout))

    def list(self, *, workflow: str = "", page_size: int = 0) -> Iterator[Schedule]:
        """As `Schedules.list`."""
        return self._loop.iterate(self._schedules.list(workflow=workflow, page_size=page_size))

    def update(
        self,
        id: str,
        *,
        crons: Sequence[str] | None = None,
        every: timedelta | None = None,
        timezone: str | None = None,
        spec: ScheduleSpec | None = None,
        workflow: str | None = None,
        input: Any = UNSET,
        version: str | None = None,
        labels: Mapping[str, str] | None = None,
        overlap: Overlap | None = None,
        catchup_window: timedelta | None = None,
        max_actions: int | None = None,
        pause_on_failure: bool | None = None,
        description: str | None = None,
        etag: str = "",
        request_id: str | None = None,
        timeout: Span = None,
    ) -> Schedule:
        """As `Schedules.update`."""
        call = self._schedules.update(
            id,
            crons=crons,
            every=every,
            timezone=timezone,
            spec=spec,
            workflow=workflow,
            input=input,
            version=version,
            labels=labels,
            overlap=overlap,
            catchup_window=catchup_window,
            max_actions=max_actions,
            pause_on_failure=pause_on_failure,
            description=description,
            etag=etag,
            request_id=request_id,
            timeout=timeout,
        )
        return self._loop.run(call)

    def pause(
        self, id: str, note: str = "", *, etag: str = "", request_id: str | None = None, timeout: Span = None
    ) -> Schedule:
        """As `Schedules.pause`."""
        return self._loop.run(self._schedules.pause(id, note, etag=etag, request_id=request_id, timeout=timeout))

    def resume(self, id: str, *, etag: str = "", request_id: str | None = None, timeout: Span = None) -> Schedule:
        """As `Schedules.resume`."""
        return self._loop.run(self._schedules.resume(id, etag=etag, request_id=request_id, timeout=timeout))

    def trigger(
        self, id: str, *, overlap: Overlap | None = None, request_id: str | None = None, timeout: Span = None
    ) -> Slot:
        """As `Schedules.trigger`."""
        call = self._schedules.trigger(id, overlap=overlap, request_id=request_id, timeout=timeout)
        return self._loop.run(call)

    def backfill(
        self,
        id: str,
        first: datetime,
        last: datetime,
        *,
        concurrency: int = 1,
        request_id: str | None = None,
        timeout: Span = None,
    ) -> str:
        """As `Schedules.backfill`."""
        call = self._schedules.backfill(
            id, first, last, concurrency=concurrency, request_id=request_id, timeout=timeout
        )
        return self._loop.run(call)

    def preview(
        self,
        id: str | None = None,
        *,
        crons: Sequence[str] = (),
        every: timedelta | None = None,
        timezone: str = "",
        spec: ScheduleSpec | None = None,
        after: datetime | None = None,
        count: int = 10,
        timeout: Span = None,
    ) -> SchedulePreview:
        """As `Schedules.preview`."""
        call = self._schedules.preview(
            id, crons=crons, every=every, timezone=timezone, spec=spec, after=after, count=count, timeout=timeout
        )
        return self._loop.run(call)

    def slots(self, id: str, *, uid: str = "", page_size: int = 0) -> Iterator[Slot]:
        """As `Schedules.slots`."""
        return self._loop.iterate(self._schedules.slots(id, uid=uid, page_size=page_size))

    def delete(
        self,
        id: str,
        *,
        etag: str = "",
        allow_missing: bool = False,
        request_id: str | None = None,
        timeout: Span = None,
    ) -> None:
        """As `Schedules.delete`."""
        call = self._schedules.delete(
            id, etag=etag, allow_missing=allow_missing, request_id=request_id, timeout=timeout
        )
        self._loop.run(call)
