"""What a fake server does wrong on demand.

A fault waits for a call of one rpc, or for one kind of report (`complete`, `fail`, `release`, by call or by stream),
and is used up after some times. What it does:

- `refuse`: answers with an error and does nothing
- `lose`: does it, and answers that it is unavailable
- `cut`: does it, and resets the connection instead of answering
- `silence`: does it, and never answers
- `ignore`: does not do it, and never answers
- `delay`: does it after `seconds`
- `end`: ends a stream in order, at once
- `break`: ends a watch with an error after so many events
- `outcome`: answers a report with `accepted = false` and that reason
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.duration_pb2 import Duration
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

ACTIONS = ("refuse", "lose", "cut", "silence", "ignore", "delay", "end", "break", "outcome")


@dataclass
class Fault:
    """One fault; the fields are those of the step that makes it."""

    do: str = "refuse"
    # How often; -1 is always.
    times: int = 1
    # How many calls or events go well before.
    after: int = 0
    status: str = "UNAVAILABLE"
    reason: str = ""
    message: str = "told to"
    metadata: dict[str, str] = field(default_factory=dict)
    violations: list[dict[str, str]] = field(default_factory=list)
    # Seconds for `RetryInfo`.
    retry_after: float | None = None
    seconds: float = 0.0
    outcome: str = "STALE_TOKEN"


class Faults:
    """The faults that wait for their calls."""

    def __init__(self, cut: Callable[[], None]) -> None:
        """`cut` resets the connections of the callers."""
        self.cut = cut
        self._waiting: list[tuple[str, Fault]] = []

    def add(self, rpc: str, fault: Fault) -> None:
        """Has the fault wait for an rpc or a kind of report."""
        if fault.do not in ACTIONS:
            raise ValueError(f"no fault does {fault.do!r}")
        self._waiting.append((rpc, fault))

    def clear(self) -> None:
        """Everything goes well again."""
        self._waiting.clear()

    def take(self, rpc: str) -> Fault | None:
        """The fault that a call meets, if any."""
        for entry in self._waiting:
            name, fault = entry
            if name != rpc:
                continue
            if fault.after > 0 and fault.do != "break":
                fault.after -= 1
                return None
            if fault.times > 0:
                fault.times -= 1
                if fault.times == 0:
                    self._waiting.remove(entry)
            return fault
        return None


async def refuse(context: Any, fault: Fault) -> NoReturn:
    """Ends a call with the fault's error, with all that real servers send along."""
    code = grpc.StatusCode[fault.status]
    details: list[Packed] = []

    def attach(message: Any) -> None:
        packed = Packed()
        packed.Pack(message)
        details.append(packed)

    if fault.reason:
        attach(ErrorInfo(reason=fault.reason, domain="orbit", metadata=fault.metadata))
    if fault.violations:
        attach(BadRequest(field_violations=[BadRequest.FieldViolation(**each) for each in fault.violations]))
    if fault.retry_after is not None:
        attach(RetryInfo(retry_delay=duration(fault.retry_after)))
    trailer = ()
    if details:
        status = Status(code=Code.Value(fault.status), message=fault.message, details=details)
        trailer = (("grpc-status-details-bin", status.SerializeToString()),)  # type: ignore[assignment]
    await context.abort(code, fault.message, trailing_metadata=trailer)
    raise AssertionError("abort raises")


def duration(seconds: float) -> Duration:
    """Seconds as a message."""
    made = Duration()
    made.FromNanoseconds(int(seconds * 1e9))
    return made


def credentials(context: Any) -> str:
    """What a caller sends as `authorization`; empty without."""
    return str(dict(context.invocation_metadata() or ()).get("authorization", ""))
