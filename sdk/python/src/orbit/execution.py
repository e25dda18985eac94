"""What is known of an execution and of its events, as plain Python values; `raw` has the message that it came from."""

import enum
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from orbit_api.workflow.v1 import event_pb2, execution_pb2
from orbit_api.workflow.v1.payload_pb2 import Payload

from orbit import payloads


class State(str, enum.Enum):
    """Where an execution is in its life. A state that this SDK does not know counts as `UNKNOWN`, and as open."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    WINDING_DOWN = "WINDING_DOWN"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"
    TERMINATED = "TERMINATED"
    UNKNOWN = "UNKNOWN"

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self in _CLOSED

    @classmethod
    def of(cls, number: int) -> "State":
        """The state of an enum value on the wire."""
        try:
            return cls(execution_pb2.Execution.State.Name(number).removeprefix("STATE_"))  # type: ignore[arg-type]
        except ValueError:
            return cls.UNKNOWN


_CLOSED = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.TIMED_OUT, State.TERMINATED})


@dataclass(frozen=True)
class Failure:
    """Why a step or an execution failed."""

    code: str
    """For programs."""
    message: str
    """For people."""
    details: Any = None
    """Further data of the worker's; None if there is none."""
    unit: str = ""
    """Unit that failed; empty where the failure is of none."""


@dataclass(frozen=True)
class Step:
    """How one step stands."""

    id: str
    """As the definition has it; `compensate:ID` undoes a step, `failure:ID` is of a handler."""
    state: str
    """For example `RUNNING`; `UNKNOWN` for one that this SDK does not know."""
    attempt: int
    """From 1; 0 before the first."""
    delivery: int
    """Of all attempts together, from 1; 0 before the first."""
    output: Any
    """What it gave; None unless it succeeded."""
    failure: Failure | None
    """Why the newest attempt, or the step, failed; None if it did not."""
    progress: Any
    """What its worker reported last; None if it has reported nothing."""
    raw: execution_pb2.StepStatus = field(repr=False, compare=False)
    """The message that it came from, with what has no field here."""


@dataclass(frozen=True)
class Execution:
    """An execution as it was when the server answered. In lists, input, output, failure and steps are absent."""

    id: str
    """The caller's id, or the server's if the caller gave none."""
    uid: str
    """Always the server's, and never used again."""
    run: int
    """Number of the present run, from 1: `continue_as_new` begins the next."""
    workflow: str
    """Name of its workflow."""
    version: str
    """Version of its definition."""
    state: State
    """Where it is in its life."""
    labels: dict[str, str]
    """Labels of the definition and of the start."""
    input: Any
    """What it was started with; None in lists."""
    output: Any
    """What it ended with; None unless it succeeded, and in lists."""
    failure: Failure | None
    """Why it failed; None if it did not, and in lists."""
    reason: str
    """What a cancel, a terminate or a pause gave as its reason."""
    start_time: datetime
    """When it was started."""
    close_time: datetime | None
    """When it ended; None while it is open."""
    steps: tuple[Step, ...]
    """In the definition's order, then what undoes steps and handlers that have begun; empty in lists."""
    raw: execution_pb2.Execution = field(repr=False, compare=False)
    """The message that it came from, with what has no field here."""

    def step(self, id: str) -> Step:
        """One of the steps. Raises `KeyError` if there is none of that id."""
        for step in self.steps:
            if step.id == id:
                return step
        raise KeyError(id)


@dataclass(frozen=True)
class Event:
    """One entry of an execution's history."""

    number: int
    """From 1, without gaps."""
    type: str
    """What happened, for example `step_succeeded`; empty for a kind that this SDK does not know."""
    time: datetime
    """When it was written."""
    raw: event_pb2.Event = field(repr=False, compare=False)
    """The message that it came from, with what has no field here."""


def execution(raw: execution_pb2.Execution) -> Execution:
    """Makes the value of a message."""
    return Execution(
        id=raw.id,
        uid=raw.uid,
        run=raw.run,
        workflow=raw.workflow,
        version=raw.version,
        state=State.of(raw.state),
        labels=dict(raw.labels),
        input=_payload(raw.input) if raw.HasField("input") else None,
        output=_payload(raw.output) if raw.HasField("output") else None,
        failure=failure(raw.failure) if raw.HasField("failure") else None,
        reason=raw.reason,
        start_time=_time(raw.start_time),
        close_time=_time(raw.close_time) if raw.HasField("close_time") else None,
        steps=tuple(_step(one) for one in raw.steps),
        raw=raw,
    )


def failure(raw: execution_pb2.Failure) -> Failure:
    """Makes the value of a message."""
    return Failure(raw.code, raw.message, _payload(raw.details) if raw.HasField("details") else None, raw.unit)


def event(raw: event_pb2.Event) -> Event:
    """Makes the value of a message."""
    return Event(number=raw.number, type=raw.WhichOneof("kind") or "", time=_time(raw.time), raw=raw)


def _step(raw: execution_pb2.StepStatus) -> Step:
    try:
        state = execution_pb2.StepStatus.State.Name(raw.state).removeprefix("STATE_")
    except ValueError:
        state = "UNKNOWN"
    return Step(
        id=raw.step,
        state=state,
        attempt=raw.attempt,
        delivery=raw.delivery,
        output=_payload(raw.output) if raw.HasField("output") else None,
        failure=failure(raw.failure) if raw.HasField("failure") else None,
        progress=_payload(raw.progress) if raw.HasField("progress") else None,
        raw=raw,
    )


def _payload(raw: Payload) -> Any:
    return payloads.decode(raw)


def _time(raw: Timestamp) -> datetime:
    return raw.ToDatetime(tzinfo=timezone.utc)
