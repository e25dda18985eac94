"""A TCP proxy that breaks connections on demand, between a driver and its server.

It knows HTTP/2 just well enough to forward whole frames, so that it can put frames of its own between them.
"""

import asyncio
import contextlib
import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RST_STREAM, GOAWAY = 1, 3, 7
# Error codes of HTTP/2, by the name that scenarios use.
ERRORS = {"NO_ERROR": 0, "INTERNAL_ERROR": 2, "REFUSED_STREAM": 7, "CANCEL": 8, "ENHANCE_YOUR_CALM": 11}


class Proxy:
    """Listens on one port for its whole life and forwards to a target that may change."""

    def __init__(self) -> None:
        # Port of the server. None: connections are refused.
        self.target: int | None = None
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._connections: set[_Connection] = set()
        self._listener: asyncio.Server | None = None
        # Bound and never listening: keeps the port ours while nobody listens on it.
        self._place = _socket(0)
        self.port: int = self._place.getsockname()[1]
        self.resume()

    async def open(self) -> None:
        """Listens."""
        if self._listener is None:
            listening = _socket(self.port)
            self._listener = await asyncio.start_server(self._accept, sock=listening)

    async def close(self) -> None:
        """Closes every connection in order, and refuses new ones."""
        self._stop_listening()
        for connection in list(self._connections):
            connection.end(reset=False)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def finish(self) -> None:
        """Ends everything."""
        self.resume()
        self._stop_listening()
        connections = list(self._connections)
        for connection in connections:
            connection.end(reset=True)
        await asyncio.gather(*(connection.over.wait() for connection in connections))
        self._place.close()

    def reset(self) -> None:
        """Resets every connection; new ones are taken."""
        for connection in list(self._connections):
            connection.end(reset=True)

    def hold(self, *, up: bool, down: bool) -> None:
        """Forwards nothing any more in these directions (up: to the server), on old and new connections."""
        if up:
            self._up.clear()
        if down:
            self._down.clear()

    def resume(self) -> None:
        """Forwards again, also what was held."""
        self._up.set()
        self._down.set()

    def goaway(self, error: str, last_stream: int) -> None:
        """Tells the driver's side that the connection ends; streams above `last_stream` were not looked at."""
        payload = struct.pack(">II", last_stream, ERRORS[error])
        for connection in list(self._connections):
            connection.inject(_frame(GOAWAY, 0, payload))

    def reset_streams(self, error: str) -> None:
        """Ends every stream that is open, in the direction of the driver."""
        for connection in list(self._connections):
            for stream in sorted(connection.streams):
                connection.inject(_frame(RST_STREAM, stream, struct.pack(">I", ERRORS[error])))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(reader, writer)
        self._connections.add(connection)
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await connection.run(self.target, self._up, self._down)
        finally:
            self._connections.discard(connection)
            connection.over.set()


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._pumps: list[asyncio.Task[None]] = []
        self._server: asyncio.StreamWriter | None = None
        # Streams that the driver's side has opened and nobody has ended, as far as the proxy sees.
        self.streams: set[int] = set()
        self.over = asyncio.Event()

    async def run(self, target: int | None, up: asyncio.Event, down: asyncio.Event) -> None:
        try:
            if target is None:
                raise ConnectionRefusedError
            reader, self._server = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            self.end(reset=True)
            return
        self._pumps = [
            asyncio.ensure_future(self._pump(self._reader, self._server, up, opens=True)),
            asyncio.ensure_future(self._pump(reader, self._writer, down, opens=False)),
        ]
        try:
            await asyncio.wait(self._pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.end(reset=False)
            await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, go: asyncio.Event, *, opens: bool
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if opens:
                preface = await reader.readexactly(len(PREFACE))
                await go.wait()
                writer.write(preface)
            while True:
                header = await reader.readexactly(9)
                body = await reader.readexactly(int.from_bytes(header[:3], "big"))
                kind, flags = header[3], header[4]
                stream = int.from_bytes(header[5:9], "big") & 0x7FFF_FFFF
                await go.wait()
                if opens and kind == HEADERS:
                    self.streams.add(stream)
                # Flag 1 is END_STREAM. Once the server has ended a stream, it is over for the driver's side.
                if kind == RST_STREAM or (not opens and kind == HEADERS and flags & 1):
                    self.streams.discard(stream)
                writer.write(header + body)
                await writer.drain()

    def inject(self, frame: bytes) -> None:
        with contextlib.suppress(OSError):
            self._writer.write(frame)

    def end(self, *, reset: bool) -> None:
        for writer in (self._writer, self._server):
            if writer is None:
                continue
            if reset:
                connected = writer.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            else:
                writer.close()
        for pump in self._pumps:
            pump.cancel()


def _frame(kind: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, 0]) + stream.to_bytes(4, "big") + payload


def _socket(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    return made
