"""Orbit, a durable workflow service: workers that do its tasks, clients that start and watch its executions.

Begin with `Worker` and `Client`; `SyncClient` is the client for programs without asyncio. `orbit.testing` helps to
test; `orbit.otel` and `orbit.metrics` are extras.
"""

from orbit.batches import Batch, BatchAction, Batches, BatchFailure
from orbit.client import Client, DefinitionWarning, Deployment, IdReusePolicy
from orbit.config import Config, ConfigError
from orbit.context import TaskContext, current_task
from orbit.errors import (
    Aborted,
    AlreadyExists,
    DeadlineExceeded,
    ExecutionCancelled,
    ExecutionError,
    ExecutionFailed,
    ExecutionTerminated,
    ExecutionTimedOut,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    OrbitError,
    PayloadError,
    PermanentError,
    PermissionDenied,
    ResourceExhausted,
    RetryableError,
    TaskError,
    Unauthenticated,
    Unavailable,
    Unimplemented,
    Violation,
)
from orbit.execution import Event, Execution, Failure, State, Step
from orbit.handle import ExecutionHandle
from orbit.schedules import Overlap, PlannedSlot, Schedule, SchedulePreview, Schedules, ScheduleSpec, Slot
from orbit.sync import SyncClient, SyncExecutionHandle
from orbit.sync_batches import SyncBatches
from orbit.sync_schedules import SyncSchedules
from orbit.task import Middleware, Next, task
from orbit.version import VERSION as __version__
from orbit.worker import Worker, WorkerStatus

__all__ = [
    "Aborted",
    "AlreadyExists",
    "Batch",
    "BatchAction",
    "BatchFailure",
    "Batches",
    "Client",
    "Config",
    "ConfigError",
    "DeadlineExceeded",
    "DefinitionWarning",
    "Deployment",
    "Event",
    "Execution",
    "ExecutionCancelled",
    "ExecutionError",
    "ExecutionFailed",
    "ExecutionHandle",
    "ExecutionTerminated",
    "ExecutionTimedOut",
    "FailedPrecondition",
    "Failure",
    "IdReusePolicy",
    "Internal",
    "InvalidArgument",
    "Middleware",
    "Next",
    "NotFound",
    "OrbitError",
    "Overlap",
    "PayloadError",
    "PermanentError",
    "PermissionDenied",
    "PlannedSlot",
    "ResourceExhausted",
    "RetryableError",
    "Schedule",
    "SchedulePreview",
    "ScheduleSpec",
    "Schedules",
    "Slot",
    "State",
    "Step",
    "SyncBatches",
    "SyncClient",
    "SyncExecutionHandle",
    "SyncSchedules",
    "TaskContext",
    "TaskError",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Violation",
    "Worker",
    "WorkerStatus",
    "__version__",
    "current_task",
    "task",
]
