"""Schedules: what starts executions of a workflow at certain times.

    await client.schedules.create("nightly", "report", crons=["0 3 * * *"], timezone="Europe/London")
    async for slot in client.schedules.slots("nightly"): ...

Each time of a schedule is a slot; a slot starts at most one execution, ever, and the ledger tells what became of it.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from datetime import timezone as zones
from typing import TYPE_CHECKING, Any, Literal

from google.protobuf.field_mask_pb2 import FieldMask
from orbit_api.schedule.v1 import schedule_pb2, spec_pb2
from orbit_api.schedule.v1 import schedule_service_pb2 as pb

from orbit import payloads
from orbit.calls import Calls, timestamp
from orbit.handle import UNSET, new_id

if TYPE_CHECKING:
    from orbit_api.schedule.v1.schedule_service_pb2_grpc import ScheduleServiceAsyncStub

Overlap = Literal["skip", "allow", "buffer_one", "cancel_previous", "terminate_previous"]
"""What a slot does while an execution of the schedule is open: it is skipped, starts beside it, waits until none is
open, or waits until the open ones, which are cancelled or terminated, have ended."""
ScheduleSpec = spec_pb2.ScheduleSpec
"""The message, for what has no argument of its own: calendars, exclusions, jitter, daylight saving time."""
Span = timedelta | float | None


@dataclass(frozen=True)
class Schedule:
    """A schedule as it was when the server answered."""

    id: str
    """The caller's id."""
    uid: str
    """The server's, and never used again."""
    etag: str
    """Changes with each change that a caller makes; `update`, `pause`, `resume` and `delete` take it as a condition."""
    state: str
    """`ACTIVE`, `PAUSED`, `INVALID` or `COMPLETED`; `UNKNOWN` for one that this SDK does not know."""
    workflow: str
    """What it starts."""
    input: Any
    """Input of each execution, with its expressions."""
    description: str
    """For people; may be empty."""
    pause_note: str
    """Why it is paused, for people; may be empty."""
    invalid_reason: str
    """Why it cannot go on, or why its newest start failed, for people; empty if all is well."""
    next_time: datetime | None
    """Its next slot; None if there is none, or while it is paused."""
    last_execution_id: str | None
    """What it started last; None if it has started none."""
    raw: schedule_pb2.Schedule = field(repr=False, compare=False)
    """The message that it came from, with what has no field here."""


@dataclass(frozen=True)
class Slot:
    """What became of one time of a schedule, or of several in a row that went alike."""

    nominal_time: datetime
    """What it is for, whenever it really started. Of several in a row, the first."""
    kind: str
    """`REGULAR`, `TRIGGER` or `BACKFILL`."""
    outcome: str
    """For example `STARTED` or `OVERLAPPED`."""
    execution_id: str | None
    """Id of the execution that it started; None if it has started none."""
    request: str
    """Name of the call that asked for it, as `backfill` gives it; empty for a regular one."""
    count: int
    """How many in a row went alike."""
    detail: str
    """Why, for people; may be empty."""
    raw: schedule_pb2.Slot = field(repr=False, compare=False)
    """The message that it came from, with what has no field here."""


@dataclass(frozen=True)
class PlannedSlot:
    """A time that is to come, or would come if nothing kept it away."""

    nominal_time: datetime
    """What an execution would be for."""
    local_time: str
    """In the zone of the schedule, with its offset, such as `2026-11-01T01:30:00-04:00`."""
    skip: str
    """Empty for a slot; otherwise why it is none: `EXCLUDED`, `MISSING` or `REPEATED` (when the clocks are changed)."""
    detail: str
    """More about that, for people; may be empty."""
    raw: schedule_pb2.PlannedSlot = field(repr=False, compare=False)
    """The message that it came from, with what has no field here."""


@dataclass(frozen=True)
class SchedulePreview:
    """What a schedule, or times that are not stored, has before it."""

    slots: tuple[PlannedSlot, ...]
    """The times in order, and beside them those that are left out, of which it has at most 1,000."""
    unlisted: int
    """How many more times are left out than `slots` tells."""
    stop_time: datetime | None
    """Where the look stopped because it had met too many times that are left out: a preview after it goes on. None if
    it has as many slots as were asked for, or all that are left."""


class Schedules:
    """The schedules of a server: `client.schedules`."""

    def __init__(self, stub: "Callable[[], ScheduleServiceAsyncStub]", calls: Calls) -> None:
        self._stub = stub
        self._calls = calls

    async def create(
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
        """Makes a schedule.

        - When: `crons` and `every`, together or alone, read in the IANA `timezone` (required with crons); or a
          `spec`, to which those are added.
        - What: an execution of `workflow` with `input`, whose texts may hold `${ schedule.nominal_time }` and the like.
        - `overlap`: what a slot does while an execution of the schedule is open.
        - `catchup_window`: how late a slot may start; default 365 days. `max_actions`: how many start in all.

        Raises `AlreadyExists` if there is another one of this id, `InvalidArgument` for times or an input that
        cannot be used, `NotFound` for a workflow that is not there.
        """
        request = pb.CreateScheduleRequest(
            id=id,
            spec=_spec(spec, crons, every, timezone),
            start=schedule_pb2.StartTemplate(
                workflow=workflow, version=version, input=payloads.encode(input), labels=dict(labels or {})
            ),
            policies=schedule_pb2.SchedulePolicies(
                overlap=_overlap(overlap), max_actions=max_actions, pause_on_failure=pause_on_failure
            ),
            description=description,
            paused=paused,
            request_id=new_id(request_id),
        )
        if catchup_window is not None:
            request.policies.catchup_window.FromTimedelta(catchup_window)
        answer = await self._calls.make(self._stub().CreateSchedule, request, timeout)
        return _schedule(answer.schedule)

    async def get(self, id: str, *, uid: str = "", timeout: Span = None) -> Schedule:
        """Reads a schedule. Raises `NotFound`."""
        request = pb.GetScheduleRequest(id=id, uid=uid)
        return _schedule((await self._calls.make(self._stub().GetSchedule, request, timeout)).schedule)

    async def list(self, *, workflow: str = "", page_size: int = 0) -> AsyncIterator[Schedule]:
        """The schedules, by id; only those that start a workflow if one is named."""
        token = ""
        while True:
            request = pb.ListSchedulesRequest(workflow=workflow, page_size=page_size, page_token=token)
            answer = await self._calls.make(self._stub().ListSchedules, request)
            for one in answer.schedules:
                yield _schedule(one)
            token = answer.next_page_token
            if not token:
                return

    async def update(
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
        """Changes what is given, and leaves the rest. The arguments are those of `create`; `every` takes the place of
        all intervals, `crons` that of all crons, and `spec` that of everything about times.

        Raises `InvalidArgument` for what `create` would refuse, `NotFound`, and `Aborted` (`ETAG_MISMATCH`) if somebody
        else has changed it since it had `etag`.
        """
        times = {"spec.crons": crons, "spec.intervals": every, "spec.timezone": timezone}
        if spec is not None and any(value is not None for value in times.values()):
            raise ValueError("spec takes the place of crons, every and timezone")
        given = times | {
            "spec": spec,
            "start.workflow": workflow,
            "start.version": version,
            "start.labels": labels,
            "policies.overlap": overlap,
            "policies.catchup_window": catchup_window,
            "policies.max_actions": max_actions,
            "policies.pause_on_failure": pause_on_failure,
            "description": description,
        }
        mask = [path for path, value in given.items() if value is not None]
        # What is not given has some value here, which the mask leaves out.
        changed = schedule_pb2.Schedule(
            spec=spec or ScheduleSpec(crons=crons, timezone=timezone or ""),
            start=schedule_pb2.StartTemplate(workflow=workflow or "", version=version or "", labels=labels),
            policies=schedule_pb2.SchedulePolicies(
                overlap=_overlap(overlap or "skip"),
                max_actions=max_actions or 0,
                pause_on_failure=pause_on_failure or False,
            ),
            description=description or "",
        )
        if every is not None:
            changed.spec.intervals.add().every.FromTimedelta(every)
        if catchup_window is not None:
            changed.policies.catchup_window.FromTimedelta(catchup_window)
        if input is not UNSET:
            mask.append("start.input")
            changed.start.input.CopyFrom(payloads.encode(input))
        if not mask:
            raise ValueError("nothing to change")
        request = pb.UpdateScheduleRequest(
            id=id, schedule=changed, update_mask=FieldMask(paths=mask), etag=etag, request_id=new_id(request_id)
        )
        return _schedule((await self._calls.make(self._stub().UpdateSchedule, request, timeout)).schedule)

    async def pause(
        self, id: str, note: str = "", *, etag: str = "", request_id: str | None = None, timeout: Span = None
    ) -> Schedule:
        """Pauses it: nothing starts by itself, and the times that come meanwhile are passed over for good."""
        request = pb.PauseScheduleRequest(id=id, note=note, etag=etag, request_id=new_id(request_id))
        return _schedule((await self._calls.make(self._stub().PauseSchedule, request, timeout)).schedule)

    async def resume(self, id: str, *, etag: str = "", request_id: str | None = None, timeout: Span = None) -> Schedule:
        """Ends a pause, and judges a schedule anew that is invalid."""
        request = pb.ResumeScheduleRequest(id=id, etag=etag, request_id=new_id(request_id))
        return _schedule((await self._calls.make(self._stub().ResumeSchedule, request, timeout)).schedule)

    async def trigger(
        self, id: str, *, overlap: Overlap | None = None, request_id: str | None = None, timeout: Span = None
    ) -> Slot:
        """Starts an execution now, beside the schedule's own times, and gives the slot: it may have started, wait or
        have been skipped, as `overlap` says (default: the schedule's)."""
        request = pb.TriggerScheduleRequest(id=id, request_id=new_id(request_id))
        if overlap is not None:
            request.overlap = _overlap(overlap)
        return _slot((await self._calls.make(self._stub().TriggerSchedule, request, timeout)).slot)

    async def backfill(
        self,
        id: str,
        first: datetime,
        last: datetime,
        *,
        concurrency: int = 1,
        request_id: str | None = None,
        timeout: Span = None,
    ) -> str:
        """Starts executions for the schedule's times from `first` to `last` (aware of their zones), in order and in the
        background; gives the name of the call, which its slots carry."""
        request = pb.BackfillScheduleRequest(
            id=id,
            first_time=timestamp(first),
            last_time=timestamp(last),
            concurrency=concurrency,
            request_id=new_id(request_id),
        )
        return (await self._calls.make(self._stub().BackfillSchedule, request, timeout)).request

    async def preview(
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
        """The next times of a schedule, or of times that are not stored (as for `create`), with those that are left out
        and why.

        - `after`: default now. `count`: most slots, 1 to 1,000; what is left out comes beside them.

        Raises `InvalidArgument` for times that cannot be used, `NotFound`.
        """
        request = pb.PreviewScheduleRequest(id=id or "", max_slots=count)
        if id is None:
            request.spec.CopyFrom(_spec(spec, crons, every, timezone))
        if after is not None:
            request.after_time.CopyFrom(timestamp(after))
        answer = await self._calls.make(self._stub().PreviewSchedule, request, timeout)
        return SchedulePreview(
            slots=tuple(_planned(one) for one in answer.slots),
            unlisted=answer.unlisted_count,
            stop_time=answer.stop_time.ToDatetime(tzinfo=zones.utc) if answer.HasField("stop_time") else None,
        )

    async def slots(self, id: str, *, uid: str = "", page_size: int = 0) -> AsyncIterator[Slot]:
        """The ledger, the newest time first."""
        token = ""
        while True:
            request = pb.ListSlotsRequest(id=id, uid=uid, page_size=page_size, page_token=token)
            answer = await self._calls.make(self._stub().ListSlots, request)
            for one in answer.slots:
                yield _slot(one)
            token = answer.next_page_token
            if not token:
                return

    async def delete(
        self,
        id: str,
        *,
        etag: str = "",
        allow_missing: bool = False,
        request_id: str | None = None,
        timeout: Span = None,
    ) -> None:
        """Deletes it; executions that it started go on. Raises `NotFound`, unless it may be missing."""
        request = pb.DeleteScheduleRequest(id=id, etag=etag, allow_missing=allow_missing, request_id=new_id(request_id))
        await self._calls.make(self._stub().DeleteSchedule, request, timeout)


def _schedule(raw: schedule_pb2.Schedule) -> Schedule:
    return Schedule(
        id=raw.id,
        uid=raw.uid,
        etag=raw.etag,
        state=_name(schedule_pb2.Schedule.State, raw.state, "STATE_"),
        workflow=raw.start.workflow,
        input=payloads.decode(raw.start.input) if raw.start.HasField("input") else None,
        description=raw.description,
        pause_note=raw.pause_note,
        invalid_reason=raw.invalid_reason,
        next_time=raw.next_time.ToDatetime(tzinfo=zones.utc) if raw.HasField("next_time") else None,
        last_execution_id=raw.last_execution.id if raw.HasField("last_execution") else None,
        raw=raw,
    )


def _slot(raw: schedule_pb2.Slot) -> Slot:
    return Slot(
        nominal_time=raw.nominal_time.ToDatetime(tzinfo=zones.utc),
        kind=_name(schedule_pb2.Slot.Kind, raw.kind, "KIND_"),
        outcome=_name(schedule_pb2.Slot.Outcome, raw.outcome, "OUTCOME_"),
        execution_id=raw.execution.id if raw.HasField("execution") else None,
        request=raw.request,
        count=raw.slot_count,
        detail=raw.detail,
        raw=raw,
    )


def _planned(raw: schedule_pb2.PlannedSlot) -> PlannedSlot:
    skip = _name(schedule_pb2.PlannedSlot.Skip, raw.skip, "SKIP_")
    return PlannedSlot(
        nominal_time=raw.nominal_time.ToDatetime(tzinfo=zones.utc),
        local_time=raw.local_time,
        skip="" if skip == "UNSPECIFIED" else skip,
        detail=raw.detail,
        raw=raw,
    )


def _spec(spec: ScheduleSpec | None, crons: Sequence[str], every: timedelta | None, timezone: str) -> ScheduleSpec:
    """A spec, to which the arguments are added."""
    whole = ScheduleSpec()
    if spec is not None:
        whole.CopyFrom(spec)
    whole.crons.extend(crons)
    if every is not None:
        whole.intervals.add().every.FromTimedelta(every)
    if timezone:
        whole.timezone = timezone
    return whole


def _name(kind: Any, number: int, prefix: str) -> str:
    try:
        return str(kind.Name(number)).removeprefix(prefix)
    except ValueError:
        return "UNKNOWN"


def _overlap(overlap: Overlap) -> schedule_pb2.SchedulePolicies.Overlap.ValueType:
    return schedule_pb2.SchedulePolicies.Overlap.Value(f"OVERLAP_{overlap.upper()}")
