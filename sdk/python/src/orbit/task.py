"""Handlers: functions that do the tasks of a contract, with types from their hints."""

import asyncio
import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import typing_extensions
from orbit_api.workflow.v1.payload_pb2 import Payload

from orbit import codec, payloads
from orbit.context import TaskContext
from orbit.errors import PayloadError, PermanentError
from orbit.threads import Threads

# A contract, as definitions write it: `payments.charge@1`.
CONTRACT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}@[A-Za-z0-9._+-]{1,128}")

# Attribute of a function that `task` decorated; not the handler itself, since a method is bound only later.
_MARK = "__orbit_task__"

Function = TypeVar("Function", bound=Callable[..., Any])
# What a middleware calls to go on: the next one, and in the end the handler.
Next = Callable[[TaskContext, Any], Awaitable[Any]]


class Middleware(Protocol):
    """Goes around every handler of a worker.

        async def timing(context, input, proceed):
            return await proceed(context, input)

    `input` is typed as the handler wants it. What it returns or raises counts as the handler's own.
    """

    def __call__(self, context: TaskContext, input: Any, proceed: Next, /) -> Awaitable[Any]:
        """Does its part and calls `proceed`, or does not."""
        ...


class Handler:
    """A function with its contract: how its input is read and how it is called."""

    def __init__(self, contract: str, function: Callable[..., Any]) -> None:
        """Raises `ValueError` for what is no contract, and `TypeError` for a function that takes too much or hints at
        types that no payload can be read as."""
        check_contract(contract)
        self.contract = contract
        self.function = function
        plain = inspect.isroutine(function) or isinstance(function, functools.partial)
        target: Callable[..., Any] = function if plain else getattr(function, "__call__", function)  # noqa: B004
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(target)) or inspect.iscoroutinefunction(target)
        self._input, self._context, hint = _parameters(target)
        self._read = codec.reader(hint)

    def read(self, payload: Payload) -> Any:
        """Makes the function's input of a task's. Raises `PermanentError` (`INPUT_INVALID`, or `PAYLOAD_UNKNOWN` if
        this SDK cannot read the payload at all): another attempt would meet the same input."""
        kind = payload.WhichOneof("content")
        try:
            return self._read(payload.json if kind == "json" else payloads.dumps(payloads.decode(payload)))
        except PayloadError as error:
            code = "INPUT_INVALID" if kind in ("json", "value") else "PAYLOAD_UNKNOWN"
            raise PermanentError(f"the input does not fit the handler: {error}", code=code) from error

    def call(self, context: TaskContext, value: Any) -> Any:
        """Calls the function; of an async one the result is its coroutine."""
        if self._input is None:
            return self.function(context) if self._context == 0 else self.function()
        if self._context is None:
            return self.function(value)
        return self.function(value, context) if self._context == 1 else self.function(context, value)

    async def run(self, context: TaskContext, value: Any, threads: Threads) -> Any:
        """Calls the function and gives its result: a coroutine here, any other function in a thread."""
        if self.is_async:
            return await self.call(context, value)

        def work() -> Any:
            if context.cancelled:  # While it waited for a thread.
                raise asyncio.CancelledError
            return self.call(context, value)

        result = await threads.run(work)
        return await result if inspect.isawaitable(result) else result

    def __repr__(self) -> str:
        return f"<handler of {self.contract}: {getattr(self.function, '__qualname__', self.function)}>"


def chain(handler: Handler, middleware: Sequence[Middleware], threads: Threads) -> Next:
    """The handler with all that goes around it; the first middleware is the outermost."""

    async def innermost(context: TaskContext, value: Any) -> Any:
        return await handler.run(context, value, threads)

    proceed: Next = innermost
    for layer in reversed(middleware):
        proceed = _around(layer, proceed)
    return proceed


def _around(layer: Middleware, proceed: Next) -> Next:
    async def call(context: TaskContext, value: Any) -> Any:
        return await layer(context, value, proceed)

    return call


def task(contract: str) -> Callable[[Function], Function]:
    """Says which contract a function does; a worker takes it with `Worker(tasks=[…])` or `worker.add(…)`.

    The function itself stays as it is and can be called as before, for example by a test.
    """

    check_contract(contract)

    def mark(function: Function) -> Function:
        function.__dict__[_MARK] = contract
        return function

    return mark


def handler_of(function: Callable[..., Any]) -> Handler:
    """The handler of a function, or a method, that `task` decorated. Raises `TypeError` for any other function."""
    contract = getattr(function, _MARK, None)
    if not isinstance(contract, str):
        raise TypeError(f'{function!r} has no contract: decorate it with @orbit.task("NAME@VERSION")')
    return Handler(contract, function)


def is_task(function: Callable[..., Any]) -> bool:
    """Whether `task` decorated it."""
    return isinstance(getattr(function, _MARK, None), str)


def check_contract(contract: str) -> None:
    """Raises `ValueError` for what is no contract."""
    if not CONTRACT.fullmatch(contract):
        raise ValueError(f"{contract!r} is no contract: write NAME@VERSION, for example payments.charge@1")


def _parameters(function: Callable[..., Any]) -> tuple[int | None, int | None, Any]:
    """Where input and context go, and the input's hint. The context is what is hinted as `TaskContext`; without
    hints it is the second parameter, or the one called `context` or `ctx`."""
    positional = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    hints = _hints(function)
    wanted = [p for p in positional if p.default is p.empty or hints.get(p.name) is TaskContext]
    if not wanted and positional:
        wanted = positional[:1]
    if len(wanted) > 2:
        raise TypeError(f"{function!r} takes {len(wanted)} arguments; a handler takes an input and a TaskContext")
    contexts = [index for index, p in enumerate(wanted) if hints.get(p.name) is TaskContext]
    if not contexts:
        contexts = [i for i, p in enumerate(wanted) if p.name not in hints and p.name in ("context", "ctx")]
    if not contexts and len(wanted) == 2 and wanted[1].name not in hints:
        contexts = [1]
    if len(wanted) == 2 and len(contexts) != 1:
        raise TypeError(f"{function!r} takes two arguments; one of them must be a TaskContext")
    inputs = [index for index in range(len(wanted)) if index not in contexts]
    hint = hints.get(wanted[inputs[0]].name, Any) if inputs else Any
    return inputs[0] if inputs else None, contexts[0] if contexts else None, hint


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function.func if isinstance(function, functools.partial) else function
    try:
        return typing_extensions.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"the hints of {function!r} name something that is not known where it is defined: {error}"
        ) from error
