"""Every error of the SDK.

- `OrbitError` and below it one class for each way in which a call can be refused or fail; `reason` is for programs.
- `ExecutionFailed` and its siblings: how an execution ended, from `ExecutionHandle.result`.
- `PermanentError` and `RetryableError`: what a handler raises to fail its attempt.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import grpc
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

if TYPE_CHECKING:
    from orbit.execution import Execution

# --- Calls ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Violation:
    """One field of a request that the server did not take."""

    field: str
    """Path of the field, for example `steps[2].retry.jitter`."""
    description: str
    """What is wrong with it."""


class OrbitError(Exception):
    """A call that was refused or failed. Everything that the SDK raises for a call is one of these."""

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        """For people."""
        self.reason = reason
        """Why, for programs: an `ErrorReason` without its prefix, for example `EXECUTION_NOT_FOUND`. Empty if the
        server did not say, as when it could not be reached."""
        self.metadata = dict(metadata or {})
        """What belongs to the reason, for example the `state` of an execution that is closed."""
        self.code = code
        """Code of gRPC."""
        self.retry_after = retry_after
        """The pause that the server asks for before the same call is made again; None if it asks for none."""

    def __str__(self) -> str:
        return f"{self.message} ({self.reason})" if self.reason else self.message


class InvalidArgument(OrbitError, ValueError):
    """The request has fields that the server does not take: `violations` has all of them."""

    def __init__(self, message: str, *, violations: tuple[Violation, ...] = (), **details: Any) -> None:
        super().__init__(message, **details)
        self.violations = violations


class NotFound(OrbitError, LookupError):
    """What the call names is not there."""


class AlreadyExists(OrbitError):
    """The id, or the version, is taken by something else."""


class FailedPrecondition(OrbitError):
    """The state of things forbids it, for example a signal to a closed execution."""


class Aborted(OrbitError):
    """Somebody else was first, for example since an etag was read: read again, and decide again."""


class PermissionDenied(OrbitError):
    """The caller is known and may not do this."""


class Unauthenticated(OrbitError):
    """The caller showed no key, or one that does not count."""


class ResourceExhausted(OrbitError):
    """Something is full; `retry_after` tells when it may help to try again."""


class Unavailable(OrbitError, ConnectionError):
    """The server, or its database, could not be reached within the call's deadline."""


class DeadlineExceeded(OrbitError, TimeoutError):
    """The call's deadline passed. A write may have happened; the same `request_id` would tell."""


class Unimplemented(OrbitError):
    """The server does not know this call: it is older than the SDK."""


class Internal(OrbitError):
    """A fault of the server's; its log has more."""


_CLASSES: dict[grpc.StatusCode, type[OrbitError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgument,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.ABORTED: Aborted,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    # A connection that was cut in the middle of an answer; nobody in this process cancelled the call.
    grpc.StatusCode.CANCELLED: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.UNIMPLEMENTED: Unimplemented,
    grpc.StatusCode.INTERNAL: Internal,
    grpc.StatusCode.DATA_LOSS: Internal,
}


def from_rpc(error: grpc.aio.AioRpcError) -> OrbitError:
    """Makes the typed error of one that gRPC raised."""
    reason, metadata, retry_after = "", {}, None
    violations: list[Violation] = []
    for detail in _details(error):
        info, bad, retry = ErrorInfo(), BadRequest(), RetryInfo()
        if detail.Unpack(info):
            reason, metadata = info.reason, dict(info.metadata)
        elif detail.Unpack(bad):
            violations.extend(Violation(entry.field, entry.description) for entry in bad.field_violations)
        elif detail.Unpack(retry):
            retry_after = retry.retry_delay.ToTimedelta()
    message = error.details() or error.code().name
    kind = _CLASSES.get(error.code(), OrbitError)
    common: dict[str, Any] = {
        "reason": reason,
        "metadata": metadata,
        "code": error.code(),
        "retry_after": retry_after,
    }
    if issubclass(kind, InvalidArgument):
        return kind(message, violations=tuple(violations), **common)
    return kind(message, **common)


def _details(error: grpc.aio.AioRpcError) -> Any:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            return Status.FromString(value if isinstance(value, bytes) else value.encode()).details
    return ()


# --- Ends of executions -----------------------------------------------------------------------------------------------


class ExecutionError(Exception):
    """An execution that closed without an output. `execution` has all that is known of it."""

    _how: ClassVar[str] = "did not succeed"

    def __init__(self, execution: "Execution") -> None:
        self.execution = execution
        """The execution as it ended, without its steps."""
        failure = execution.failure
        self.code = failure.code if failure else ""
        """Code of the failure; empty where the execution has none."""
        self.message = failure.message if failure else execution.reason
        """Message of the failure, or the reason that was given for the end."""
        self.details = failure.details if failure else None
        """Further data of the failure; None if there is none."""
        text = f"execution {execution.id} of {execution.workflow} {self._how}"
        what = ": ".join(part for part in (self.code, self.message) if part)
        super().__init__(f"{text}: {what}" if what else text)


class ExecutionFailed(ExecutionError):
    """It failed; `code` and `message` say why."""

    _how = "failed"


class ExecutionCancelled(ExecutionError):
    """Somebody cancelled it; `message` has the reason that was given."""

    _how = "was cancelled"


class ExecutionTimedOut(ExecutionError):
    """Its own timeout passed."""

    _how = "timed out"


class ExecutionTerminated(ExecutionError):
    """Somebody terminated it; `message` has the reason that was given."""

    _how = "was terminated"


# --- Tasks ------------------------------------------------------------------------------------------------------------


class TaskError(Exception):
    """What a handler raises to fail its attempt with a code of its own: one of the two classes below.

    A subclass may stand for a code: `class CardDeclined(PermanentError): ...` fails with `CardDeclined`.
    """

    retryable: ClassVar[bool] = True

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        details: Any = None,
        retry_after: timedelta | None = None,
    ) -> None:
        """`code` is for programs: 1 to 63 characters of `A-Z a-z 0-9 _ . -`; unless given the name of the subclass, or
        `FAILED`.
        `details` is any JSON value. `retry_after` is the shortest pause before the next attempt; the step's own
        policy counts if its pause is longer, and a permanent error has no next attempt."""
        super().__init__(message)
        self.message = message
        self.code = code or ("FAILED" if type(self) in (RetryableError, PermanentError) else type(self).__name__)
        self.details = details
        self.retry_after = retry_after


class RetryableError(TaskError):
    """Fails the attempt; the step's retry policy decides about the next one."""


class PermanentError(TaskError):
    """Fails the step: another attempt would end the same way."""

    retryable = False


class PayloadError(ValueError):
    """A payload that cannot be read: none of its forms is known here, or it does not fit the type that is wanted."""
