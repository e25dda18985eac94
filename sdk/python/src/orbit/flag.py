"""A flag that is raised once and that coroutines and threads can wait for."""

import asyncio
import threading
from collections.abc import Callable, Generator
from typing import Any


class Flag:
    """Down until it is raised, then up for ever.

    `if flag:` asks, `flag.wait(seconds)` waits in a thread, `await flag` in a coroutine.
    """

    __slots__ = ("_callbacks", "_lock", "_up")

    def __init__(self) -> None:
        self._up = False
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []

    def __bool__(self) -> bool:
        return self._up

    def is_set(self) -> bool:
        """Whether it is up, as `threading.Event` has it."""
        return self._up

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until it is up, at most `timeout` seconds; returns whether it is. Not for coroutines."""
        woken = threading.Event()
        if self._call(woken.set):
            woken.wait(timeout)
            self._forget(woken.set)
        return self._up

    def __await__(self) -> Generator[Any, None, None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def finish() -> None:
            if not future.done():
                future.set_result(None)

        def wake() -> None:
            loop.call_soon_threadsafe(finish)

        if self._call(wake):
            try:
                yield from future
            finally:
                self._forget(wake)

    def set(self) -> None:
        """Raises it."""
        with self._lock:
            self._up = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def _call(self, callback: Callable[[], object]) -> bool:
        """Has `callback` called when the flag goes up; False, and no call, if it is up."""
        with self._lock:
            if not self._up:
                self._callbacks.append(callback)
            return not self._up

    def _forget(self, callback: Callable[[], object]) -> None:
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)
