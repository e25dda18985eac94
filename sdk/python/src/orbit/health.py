"""A small HTTP endpoint for health checks: `GET /healthz` is 200 while the server answers the worker, otherwise 503.

The body is the worker's status as JSON. What the check reflects is the last answer of the server, not that the process
exists: a worker that has gone deaf is unhealthy.
"""

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbit.worker import WorkerStatus

# How long a caller may take to send its request, in seconds, and how long the request may be.
REQUEST_SECONDS = 5.0
REQUEST_BYTES_MAX = 8192


class HealthServer:
    """Listens while it is entered: `async with HealthServer("0.0.0.0:8081", …)`."""

    def __init__(self, address: str, status: "Callable[[], WorkerStatus]") -> None:
        """Raises `ValueError` for an address that is not `HOST:PORT`; port 0 takes a free one."""
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"{address!r} is not HOST:PORT")
        self._host, self._port = host.strip("[]"), int(port)
        self._status = status
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "HealthServer":
        self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=REQUEST_BYTES_MAX)
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self._server is not None:
            self._server.close()

    @property
    def port(self) -> int:
        """Port that it listens at."""
        assert self._server is not None, "it listens only while it is entered"
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_SECONDS)
            method, path, *_ = head.split(b" ", 2)
            writer.write(self._answer(method, path.split(b"?")[0]))
            await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.TimeoutError, ValueError, OSError):
            pass  # Whoever does not speak HTTP gets no answer.
        finally:
            writer.close()

    def _answer(self, method: bytes, path: bytes) -> bytes:
        status = self._status()
        if path not in (b"/healthz", b"/"):
            line, body = "404 Not Found", b"{}"
        elif method not in (b"GET", b"HEAD"):
            line, body = "405 Method Not Allowed", b"{}"
        else:
            line = "200 OK" if status.healthy else "503 Service Unavailable"
            body = json.dumps(status.as_dict()).encode()
        head = (
            f"HTTP/1.1 {line}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == b"HEAD" else body)
