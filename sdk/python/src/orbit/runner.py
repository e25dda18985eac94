"""Runs the handler of one task and makes its report, whatever happens."""

import asyncio
import logging
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.duration_pb2 import Duration
from orbit_api.worker.v1.worker_service_pb2 import Complete, Fail, Report
from orbit_api.workflow.v1.execution_pb2 import Failure
from orbit_api.workflow.v1.payload_pb2 import Payload

from orbit import payloads
from orbit.context import CURRENT, TaskContext
from orbit.errors import PermanentError, TaskError
from orbit.holdings import Held, name
from orbit.task import Handler, Middleware, chain
from orbit.threads import Threads

log = logging.getLogger("orbit.worker")

# Longest error code and, in characters, longest message and stack that are sent; what is longer is cut.
CODE_MAX = 63
MESSAGE_MAX = 4_000
STACK_MAX = 16_000


class Runner:
    """The handlers of one worker."""

    def __init__(self, handlers: Mapping[str, Handler], middleware: Sequence[Middleware], threads: Threads) -> None:
        self._handlers = dict(handlers)
        # Without middleware the handler is called directly, which saves two coroutines a task.
        self._chains = {contract: chain(one, middleware, threads) for contract, one in handlers.items() if middleware}
        self._threads = threads

    def start(self, held: Held) -> "asyncio.Task[Report]":
        """Starts the handler of a task. The asyncio task ends with the report, or cancelled if the handler was stopped.
        Starts the handler of a task. The asyncio task ends with the report, or cancelled if the handler was stopped."""
        handler = self._handlers.get(held.task.contract)
        held.is_async = handler is None or handler.is_async
        return asyncio.get_running_loop().create_task(self._run(held, handler), name=held.task.contract)

    async def _run(self, held: Held, handler: Handler | None) -> Report:
        report = Report(task_token=held.token)
        try:
            if handler is None:
                # The server hands out what was announced; still, nobody else would tell the execution.
                raise TaskError(f"this worker has no handler for {held.task.contract}", code="CONTRACT_UNKNOWN")
            output = payloads.dumps_output(await self._call(held, handler))
            report.complete.CopyFrom(Complete(output=Payload(json=output)))
            if log.isEnabledFor(logging.DEBUG):
                log.debug("%s: done", name(held.task))
        except asyncio.CancelledError as error:
            if held.stopping:
                raise
            # Nobody stopped it: something that the handler waited for was cancelled.
            report.fail.CopyFrom(self._unexpected(held, error))
        except TaskError as error:
            report.fail.CopyFrom(failed(error))
            log.info("%s: failed with %s: %s", name(held.task), error.code, error.message)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # `SystemExit` too: a handler does not end its worker.
            report.fail.CopyFrom(self._unexpected(held, error))
        return report

    async def _call(self, held: Held, handler: Handler) -> Any:
        context: TaskContext = held.context
        CURRENT.set(context)
        value = handler.read(held.task.input)
        proceed = self._chains.get(handler.contract)
        if proceed is not None:
            return await proceed(context, value)
        return await handler.run(context, value, self._threads)

    def _unexpected(self, held: Held, error: BaseException) -> Fail:
        log.error("%s: the handler failed", name(held.task), exc_info=error)
        stack = "".join(traceback.format_exception(error))[-STACK_MAX:]
        kind = type(error).__name__
        text = str(error)
        return Fail(
            failure=Failure(
                code=code_of(kind),
                message=clean(f"{kind}: {text}" if text else kind),
                details=Payload(json=payloads.dumps({"stack": clean(stack, STACK_MAX)})),
            ),
            retryable=True,
        )


def failed(error: TaskError) -> Fail:
    """The report of an error that a handler raised on purpose."""
    fail = Fail(failure=Failure(code=code_of(error.code), message=clean(error.message)), retryable=error.retryable)
    if error.details is not None:
        try:
            details = payloads.dumps_output(error.details)
        except PermanentError as fault:
            # The failure itself counts more than what was said beside it.
            log.error("the details of %s are left out: %s", error.code, fault.message)
        else:
            fail.failure.details.json = details
    if error.retry_after is not None and error.retryable:
        fail.retry_after.CopyFrom(Duration())
        fail.retry_after.FromTimedelta(error.retry_after)
    return fail


def code_of(text: str) -> str:
    """What the server takes as a code: other characters become `_`, what is too long is cut."""
    allowed = "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "_" for c in text[:CODE_MAX])
    return allowed or "FAILED"


def clean(text: str, most: int = MESSAGE_MAX) -> str:
    """Text that can be sent: without halves of characters and null characters, and not too long."""
    return text[:most].encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
