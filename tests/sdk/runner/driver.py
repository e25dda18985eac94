"""One driver process: commands to it, replies and events from it."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from runner.journal import Journal, unfold

# Longest line of a driver: larger than any payload.
LINE_BYTES = 64 * 1024 * 1024
# Text of stderr that is kept for a failure.
STDERR_LINES = 40


class DriverGone(Exception):
    """The process ended or closed stdout while something was expected of it."""


class Driver:
    """A process that speaks the protocol of `tests/sdk/README.md`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ids = itertools.count(1)
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.journal = Journal()
        self.stderr: list[str] = []
        self._readers = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._read_errors())]

    @classmethod
    async def start(cls, command: Path, folder: Path, environment: dict[str, str]) -> "Driver":
        """Starts a driver in an empty folder and waits until it is ready."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("ORBIT_", "XDG_"))}
        process = await asyncio.create_subprocess_exec(
            str(command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=folder,
            env=inherited | {"HOME": str(folder)} | environment,
            limit=LINE_BYTES,
            # A group of its own: Ctrl-C in the terminal is the runner's.
            start_new_session=True,
        )
        driver = cls(process)
        try:
            await driver.journal.wait(lambda entry: entry.get("event") == "ready", 1, timeout=60)
        except TimeoutError:
            await driver.finish()
            raise DriverGone("the driver did not get ready") from None
        return driver

    def send(self, op: str, args: dict[str, Any]) -> "tuple[int, asyncio.Future[dict[str, Any]]]":
        """Sends a command; its id and its reply to come."""
        number = next(self._ids)
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._replies[number] = reply
        if self._process.returncode is not None or self._process.stdin is None:
            reply.set_exception(DriverGone("the driver has ended"))
            return number, reply
        self._process.stdin.write(json.dumps({"id": number, "op": op, "args": args}).encode() + b"\n")
        return number, reply

    def signal(self, name: str) -> None:
        """Sends a signal by its name."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.Signals[name])

    async def exit(self, timeout: float) -> tuple[int, float]:
        """Waits for the end of the process: its code and the seconds that it took from now."""
        begin = time.monotonic()
        code = await asyncio.wait_for(self._process.wait(), timeout)
        return code, time.monotonic() - begin

    async def finish(self) -> None:
        """Ends the process if it still runs: the end of stdin, then a kill."""
        # One that was stopped could not notice.
        self.signal("SIGCONT")
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 3)
        except asyncio.TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                message = {"event": "garbage", "line": line.decode(errors="replace")}
            reply = self._replies.pop(message["id"], None) if "id" in message else None
            if reply is not None and not reply.done():
                reply.set_result(unfold(message))
            elif "id" in message:
                self.journal.add({"event": "garbage", "line": f"a reply that nobody waits for: {message}"})
            else:
                self.journal.add(message)
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(DriverGone("the driver ended before it replied"))

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.stderr.append(line.decode(errors="replace").rstrip())
            del self.stderr[:-STDERR_LINES]


# Arguments of commands whose values scenarios write as YAML and drivers get as JSON text.
_VALUES = {"input": "input_json", "payload": "payload_json", "progress": "progress_json", "value": "value_json"}


def fold(args: dict[str, Any]) -> dict[str, Any]:
    """The other way round, for arguments."""
    return {
        _VALUES.get(key, key): json.dumps(value, ensure_ascii=False) if key in _VALUES else value
        for key, value in args.items()
    }
