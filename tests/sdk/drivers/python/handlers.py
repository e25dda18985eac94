"""The handlers of the Python driver, by the names that the suite has for them."""

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import orbit
from orbit import TaskContext

Tell = Callable[[dict[str, Any]], None]


class Boom(Exception):
    """A bug in a handler."""


@dataclass
class Named:
    """The input of `typed`."""

    name: str
    count: int


@dataclass
class Text:
    """The output of `typed`."""

    text: str


class Gates:
    """What handlers wait at until the suite lets them go."""

    def __init__(self) -> None:
        self._gates: dict[str, asyncio.Event] = {}

    def at(self, name: str) -> asyncio.Event:
        """The gate of a name."""
        return self._gates.setdefault(name, asyncio.Event())

    def open(self, name: str) -> None:
        """Lets go all that wait there, or will."""
        self.at(name).set()


_counts: Counter[str] = Counter()
_lock = threading.Lock()


@contextlib.contextmanager
def told(tell: Tell, context: TaskContext) -> Iterator[Callable[[str], None]]:
    """Tells the begin and the end of a task, and gives what tells the rest."""

    def say(what: str) -> None:
        tell(
            {
                "event": "task",
                "what": what,
                "contract": context.contract,
                "execution_id": context.execution_id,
                "step": context.step,
                "attempt": context.attempt,
                "delivery": context.delivery,
                "redelivery": context.redelivery,
                "idempotency_key": context.idempotency_key,
            }
        )

    say("begun")
    try:
        yield say
    finally:
        say("ended")


@contextlib.asynccontextmanager
async def listening(tell: Tell, context: TaskContext) -> AsyncIterator[None]:
    """As `told`, and tells when the task learns of a drain or of its cancel."""
    with told(tell, context) as say:

        async def drained() -> None:
            await context.draining
            say("draining")

        drain = asyncio.ensure_future(drained())
        try:
            yield
        except asyncio.CancelledError:
            say("cancelled")
            raise
        finally:
            drain.cancel()


def echo(tell: Tell, gates: Gates) -> Callable[..., Any]:
    async def handler(input: Any, context: TaskContext) -> Any:
        with told(tell, context):
            return input

    return handler


def nothing(tell: Tell, gates: Gates) -> Callable[..., Any]:
    async def handler(context: TaskContext) -> None:
        with told(tell, context):
            pass

    return handler


def sleep(tell: Tell, gates: Gates) -> Callable[..., Any]:
    async def handler(input: Any, context: TaskContext) -> Any:
        async with listening(tell, context):
            await asyncio.sleep(input["seconds"])
            return {"slept": input["seconds"]}

    return handler


def stubborn(tell: Tell, gates: Gates) -> Callable[..., Any]:
    def handler(input: Any, context: TaskContext) -> Any:
        with told(tell, context):
            time.sleep(input["seconds"])
            return {"slept": input["seconds"]}

    return handler


def gate(tell: Tell, gates: Gates) -> Callable[..., Any]:
    async def handler(input: Any, context: TaskContext) -> Any:
        async with listening(tell, context):
            await gates.at(input["gate"]).wait()
            return {"gate": input["gate"]}

    return handler


def drain(tell: Tell, gates: Gates) -> Callable[..., Any]:
    async def wait(context: TaskContext) -> None:
        await context.draining

    async def handler(input: Any, context: TaskContext) -> Any:
        async with listening(tell, context):
            await asyncio.wait_for(wait(context), 60)
            # The listener is told at the same time; it has its say first.
            await asyncio.sleep(0.01)
            return {"drained": True}

    return handler


def fail(tell: Tell, gates: Gates) -> Callable[..., Any]:
    async def handler(input: Any, context: TaskContext) -> Any:
        with told(tell, context):
            if fails(input, context):
                kind = orbit.RetryableError if input.get("retryable") else orbit.PermanentError
                options: dict[str, Any] = {name: input[name] for name in ("code", "details") if name in input}
                if "retry_after_seconds" in input:
                    options["retry_after"] = timedelta(seconds=input["retry_after_seconds"])
                raise kind(input.get("message", ""), **options)
            return {"attempt": context.attempt}

    return handler


def panic(tell: Tell, gates: Gates) -> Callable[..., Any]:
    async def handler(input: Any, context: TaskContext) -> Any:
        with told(tell, context):
            if fails(input, context):
                raise Boom(input.get("message", ""))
            return {"attempt": context.attempt}

    return handler


def fails(input: Any, context: TaskContext) -> bool:
    return "until_attempt" not in input or context.attempt < input["until_attempt"]


def big(tell: Tell, gates: Gates) -> Callable[..., Any]:
    async def handler(input: Any, context: TaskContext) -> Any:
        with told(tell, context):
            return {"data": "x" * input["bytes"]}

    return handler


def progress(tell: Tell, gates: Gates) -> Callable[..., Any]:
    async def handler(input: Any, context: TaskContext) -> Any:
        async with listening(tell, context):
            last = context.last_progress
            resumed_from = last["beat"] if last else None
            for beat in range((resumed_from or 0) + 1, input["beats"] + 1):
                if input.get("silent"):
                    await context.heartbeat()
                else:
                    await context.heartbeat({"beat": beat})
                await asyncio.sleep(input["seconds"])
                if context.attempt == 1 and beat == input.get("fail_at"):
                    raise orbit.RetryableError("interrupted", code="INTERRUPTED")
            return {"resumed_from": resumed_from, "beats": input["beats"]}

    return handler


def context_of(tell: Tell, gates: Gates) -> Callable[..., Any]:
    async def handler(input: Any, context: TaskContext) -> Any:
        with told(tell, context):
            names = (
                "execution_id",
                "run",
                "workflow",
                "step",
                "contract",
                "attempt",
                "delivery",
                "redelivery",
                "idempotency_key",
                "trace_parent",
                "last_progress",
            )
            deadline = context.deadline
            left = None if deadline is None else (deadline - datetime.now(timezone.utc)).total_seconds()
            return {
                **{name: getattr(context, name) for name in names},
                "deadline_seconds": left,
                "cancelled": bool(context.cancelled),
                "draining": bool(context.draining),
            }

    return handler


def count(tell: Tell, gates: Gates) -> Callable[..., Any]:
    async def handler(input: Any, context: TaskContext) -> Any:
        with told(tell, context):
            with _lock:
                _counts[context.idempotency_key] += 1
                times = _counts[context.idempotency_key]
            if times == 1:
                tell({"event": "effect", "idempotency_key": context.idempotency_key})
            return {"times": times}

    return handler


def log(tell: Tell, gates: Gates) -> Callable[..., Any]:
    async def handler(input: Any, context: TaskContext) -> None:
        with told(tell, context):
            context.log.info(input["message"])

    return handler


def typed(tell: Tell, gates: Gates) -> Callable[..., Any]:
    async def handler(input: Named, context: TaskContext) -> Text:
        with told(tell, context):
            return Text(f"{input.name} x{input.count}")

    return handler


def unsayable(tell: Tell, gates: Gates) -> Callable[..., Any]:
    async def handler(input: Any, context: TaskContext) -> Any:
        with told(tell, context):
            return object()

    return handler


HANDLERS: dict[str, Callable[[Tell, Gates], Callable[..., Any]]] = {
    "echo": echo,
    "nothing": nothing,
    "sleep": sleep,
    "stubborn": stubborn,
    "gate": gate,
    "drain": drain,
    "fail": fail,
    "panic": panic,
    "big": big,
    "progress": progress,
    "context": context_of,
    "count": count,
    "log": log,
    "typed": typed,
    "unsayable": unsayable,
}
