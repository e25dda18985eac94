"""Tells when a handler blocks the event loop: then nothing else runs, and heartbeats stay away."""

import asyncio
import logging
import sys
import threading
import time
import traceback

log = logging.getLogger("orbit.worker")


class Watchdog:
    """A thread that looks at the loop from outside. It logs once when the loop has stood still for longer than
    `threshold` seconds, with the code that runs, and once when it goes on."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._stop = threading.Event()
        self._tick = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to watch the running loop."""
        loop = asyncio.get_running_loop()
        interval = self._threshold / 4
        loop_thread = threading.get_ident()

        def tick() -> None:
            self._tick = time.monotonic()
            self._timer = loop.call_later(interval, tick)

        def watch() -> None:
            blocked_since: float | None = None
            looked = time.monotonic()
            while not self._stop.wait(interval):
                now, last = time.monotonic(), looked
                looked = now
                if now - last > self._threshold:
                    continue  # The whole process stood still, this thread too: nobody here blocked anything.
                if blocked_since is None and now - self._tick > self._threshold:
                    blocked_since = self._tick
                    self._complain(loop_thread, now - self._tick)
                elif blocked_since is not None and self._tick != blocked_since:
                    log.warning("the event loop was blocked for %.1f s", self._tick - blocked_since)
                    blocked_since = None

        tick()
        threading.Thread(target=watch, name="orbit-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Ends the watch."""
        self._stop.set()
        if self._timer is not None:
            self._timer.cancel()

    def _complain(self, loop_thread: int, seconds: float) -> None:
        frame = sys._current_frames().get(loop_thread)
        where = "".join(traceback.format_stack(frame, limit=6)) if frame is not None else "(it just went on)"
        advice = "a handler that blocks belongs into `def`, which runs in a thread"
        log.warning(
            "the event loop has been blocked for %.1f s; %s. It stands here:\n%s", seconds, advice, where.rstrip()
        )
