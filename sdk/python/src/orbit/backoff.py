"""Pauses between attempts: growing, random, bounded."""

import random

FIRST_SECONDS = 0.1
# Far below the 30 s within which a worker must be back after its server is.
LONGEST_SECONDS = 10.0


class Backoff:
    """Gives one pause after another: up to 100 ms, then up to twice as long each time, at most ten seconds.

    The whole pause is random, so that many workers do not come back in step.
    """

    def __init__(self, longest: float = LONGEST_SECONDS) -> None:
        self._longest = longest
        self._next = FIRST_SECONDS

    def reset(self) -> None:
        """It works again: the next pause is a short one."""
        self._next = FIRST_SECONDS

    def next(self) -> float:
        """The next pause, in seconds."""
        bound = self._next
        self._next = min(self._longest, bound * 2)
        return random.uniform(0.0, bound)
