"""Calls that may be repeated: each with a deadline, sent again while the server cannot be reached."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from orbit import errors
from orbit.backoff import Backoff
from orbit.channel import Metadata
from orbit.errors import OrbitError, Unavailable

# Deadline of a call, repeats included, in seconds, unless the caller gives another.
CALL_SECONDS = 10.0
# Longest pause between two tries of one call, in seconds.
PAUSE_SECONDS = 2.0

Response = TypeVar("Response", covariant=True)


class Rpc(Protocol[Response]):
    """One rpc of a stub."""

    def __call__(self, request: Any, *, timeout: float | None = None, metadata: Any = None) -> Awaitable[Response]:
        """Makes the call."""
        ...


class Calls:
    """How a client makes its calls."""

    def __init__(self, metadata: Metadata, timeout: float, headers: Callable[[], Mapping[str, str]] | None) -> None:
        """`headers` is asked before each call for what goes along with it, such as a `traceparent`."""
        self._metadata = metadata
        self._timeout = timeout
        self._headers = headers

    async def make(self, rpc: Rpc[Response], request: Any, timeout: timedelta | float | None = None) -> Response:
        """Makes a call that does no harm when it is repeated: it reads, or it has a `request_id`.

        Sent again on UNAVAILABLE, no sooner than the server asks for, until the deadline. Raises `OrbitError`.
        """
        deadline = time.monotonic() + (self._timeout if timeout is None else seconds(timeout))
        metadata = self.metadata()
        backoff = Backoff(longest=PAUSE_SECONDS)
        while True:
            try:
                return await rpc(request, timeout=max(0.001, deadline - time.monotonic()), metadata=metadata)
            except grpc.aio.AioRpcError as error:
                refusal = errors.from_rpc(error)
                pause = pause_after(refusal, backoff)
                if not isinstance(refusal, Unavailable) or time.monotonic() + pause >= deadline:
                    raise refusal from error
            await asyncio.sleep(pause)

    def metadata(self) -> Metadata:
        """What goes along with a call."""
        if self._headers is None:
            return self._metadata
        return (*self._metadata, *((name.lower(), value) for name, value in self._headers().items()))


def pause_after(error: OrbitError, backoff: Backoff) -> float:
    """Seconds to wait before the next try: what the server asks for, or a growing random pause if that is longer."""
    asked = error.retry_after.total_seconds() if error.retry_after else 0.0
    return max(asked, backoff.next())


def seconds(span: timedelta | float) -> float:
    """A span of time as a number."""
    return span.total_seconds() if isinstance(span, timedelta) else float(span)


def timestamp(time: datetime) -> Timestamp:
    """A time as a message. Raises `ValueError` for one that does not say its zone: it might be meant in any."""
    if time.utcoffset() is None:
        raise ValueError(f"{time!r} has no time zone: give it one, for example tzinfo=timezone.utc")
    stamp = Timestamp()
    stamp.FromDatetime(time)
    return stamp
