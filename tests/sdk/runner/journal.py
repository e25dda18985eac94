"""What somebody told, in order, and the wait for more of it."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

Entry = dict[str, Any]


class Journal:
    """Grows and forgets nothing."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._changed = asyncio.Event()

    def add(self, entry: Entry) -> None:
        """Writes an entry down."""
        self.entries.append(entry)
        self._changed.set()

    def find(self, wanted: Callable[[Entry], bool], since: int = 0) -> list[Entry]:
        """The entries from a number on that are wanted."""
        return [entry for entry in self.entries[since:] if wanted(entry)]

    async def wait(self, wanted: Callable[[Entry], bool], times: int, *, since: int = 0, timeout: float) -> None:
        """Waits until so many such entries are there. Raises `TimeoutError`."""
        end = time.monotonic() + timeout
        while len(self.find(wanted, since)) < times:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._changed.clear()
            alarm = asyncio.get_running_loop().call_later(left, self._changed.set)
            try:
                await self._changed.wait()
            finally:
                alarm.cancel()
