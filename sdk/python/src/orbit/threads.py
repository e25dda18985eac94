"""Threads for handlers that block. They never keep a process alive: a handler that does not end is left behind."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class _Work:
    call: Callable[[], Any]
    context: contextvars.Context
    loop: asyncio.AbstractEventLoop
    result: "asyncio.Future[Any]"


class Threads:
    """At most `most` threads, each made when it is first needed. All methods are for the event loop's own thread.

    `concurrent.futures` is not used since it waits at the end of the process for every thread, however stuck.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._idle = 0
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()

    async def run(self, call: Callable[[], Any]) -> Any:
        """Calls in a thread, with the context variables of the caller, and gives the result or raises the error.

        Cancelled, it returns at once and leaves the thread to itself.
        """
        loop = asyncio.get_running_loop()
        work = _Work(call, contextvars.copy_context(), loop, loop.create_future())
        if self._idle > 0:
            self._idle -= 1
        elif self._count < self._most:
            self._count += 1
            threading.Thread(target=self._serve, name=f"orbit-handler-{self._count}", daemon=True).start()
        else:
            # Balanced when the thread that will take this says that it is idle.
            self._idle -= 1
        self._queue.put(work)
        return await work.result

    def close(self) -> None:
        """Ends the threads, each once its call has returned."""
        for _ in range(self._count):
            self._queue.put(None)
        self._count = 0

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            error: BaseException | None = None
            value = None
            try:
                value = work.context.run(work.call)
            except BaseException as raised:
                error = raised
            try:
                work.loop.call_soon_threadsafe(self._done, work.result, value, error)
            except RuntimeError:
                return  # The loop is closed: nobody waits any more.
            del work, error, value

    def _done(self, result: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
        self._idle += 1
        if result.done():
            return
        if error is None:
            result.set_result(value)
        elif isinstance(error, StopIteration):
            # A future cannot hold it.
            result.set_exception(RuntimeError(f"the handler raised {error!r}"))
        else:
            result.set_exception(error)
