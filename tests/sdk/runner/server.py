"""The real server: a process with an empty database, that can be stopped, killed, frozen and started again."""

import asyncio
import contextlib
import os
import re
import signal
from pathlib import Path

# Nothing that waits for long.
OPTIONS = ("--log", "warn", "--drain-timeout", "2s")


class ServerFailed(Exception):
    """The server did not start."""


class RealServer:
    """One server on one database."""

    def __init__(self, binary: Path, folder: Path, session_timeout: str = "3s") -> None:
        """The database is a file in the folder. Heartbeats come thrice as often as a session would be lost."""
        self._binary, self._folder, self._session_timeout = binary, folder, session_timeout
        self._process: asyncio.subprocess.Process | None = None
        self.port: int | None = None

    async def start(self) -> None:
        """Starts the program on the same database and waits until it serves, on a new port."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                str(self._binary),
                "server",
                *("--db", str(self._folder / "orbit.db"), "--listen", "127.0.0.1:0"),
                *("--session-timeout", self._session_timeout),
                *OPTIONS,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={key: value for key, value in os.environ.items() if not key.startswith("ORBIT_")},
                start_new_session=True,
            )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        found = re.search(rb"127\.0\.0\.1:(\d+)", line)
        if found is None:
            raise ServerFailed(f"the server said {line!r} instead of its address")
        self.port = int(found[1])

    async def end(self, sent: signal.Signals) -> None:
        """Sends a signal and waits for the end."""
        self.port = None
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            # One that was frozen would not notice a SIGTERM.
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(sent)
        try:
            await asyncio.wait_for(self._process.wait(), 30)
        except asyncio.TimeoutError:
            self._process.kill()
            await self._process.wait()
        self._process = None

    def send(self, sent: signal.Signals) -> None:
        """Sends a signal."""
        if self._process is not None:
            self._process.send_signal(sent)

    def log(self) -> str:
        """The end of what it logged."""
        path = self._folder / "server.log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""
