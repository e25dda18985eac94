"""An event loop in a thread of its own, for whoever has none."""

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

Type = TypeVar("Type")


class LoopThread:
    """An event loop in a thread, made with the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether there is a loop."""
        return self._loop is not None

    def run(self, call: Coroutine[Any, Any, Type]) -> Type:
        """Runs a coroutine there and waits for its end; interrupted, by Ctrl-C for example, it is cancelled."""
        future: concurrent.futures.Future[Type] = asyncio.run_coroutine_threadsafe(call, self._begin())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[Type]) -> Iterator[Type]:
        """Goes through an asynchronous iterator. Left early, it is closed."""

        async def following() -> tuple[bool, Any]:
            try:
                return True, await anext(items)
            except StopAsyncIteration:
                return False, None

        async def close() -> None:
            if (aclose := getattr(items, "aclose", None)) is not None:
                await aclose()

        try:
            while (step := self.run(following()))[0]:
                yield step[1]
        finally:
            if self.running:
                self.run(close())

    def close(self) -> None:
        """Ends the loop and waits for its thread."""
        with self._lock:
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _begin(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="orbit-client", daemon=True)
                self._thread.start()
            return self._loop
