"""What somebody told, in order, and the wait for more of it."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

Entry = dict[str, Any]


def unfold(value: Any) -> Any:
    """Adds to each text named `x_json` its content as `x`, exactly: integers of any size, as Python has them."""
    if isinstance(value, dict):
        unfolded = {key: unfold(item) for key, item in value.items()}
        for key, item in value.items():
            if key.endswith("_json"):
                unfolded[key.removesuffix("_json")] = None if item is None else json.loads(item)
        return unfolded
    if isinstance(value, list):
        return [unfold(item) for item in value]
    return value


class Journal:
    """Grows and forgets nothing."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._changed = asyncio.Event()

    def add(self, entry: Entry) -> None:
        """Writes an entry down, with its texts of JSON unfolded."""
        self.entries.append(unfold(entry))
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
