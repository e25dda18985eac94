"""Keeps a worker connected: registers, works over a stream or by polls, and begins again for ever.

- Pauses between attempts grow, are random and stay below ten seconds; they are short again once the server answers.
- One line in the log for each change of the state, never for each attempt.
- A lost session is asked for again; results wait in `Holdings` meanwhile.
- Polls take over after the first UNIMPLEMENTED, or after three streams in a row that ended before a word was heard;
  now and then one stream is tried again, which nobody notices if it fails.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import grpc
from orbit_api.worker.v1.worker_service_pb2 import RegisterWorkerRequest, UnregisterWorkerRequest
from orbit_api.worker.v1.worker_service_pb2_grpc import WorkerServiceStub

from orbit import channel, connection, errors
from orbit.backoff import Backoff
from orbit.config import Config
from orbit.connection import ConnectionLost, Line, Session
from orbit.holdings import Holdings

log = logging.getLogger("orbit.worker")

State = Literal["connecting", "connected", "disconnected", "draining", "stopped"]
Mode = Literal["auto", "stream", "poll"]

# Streams in a row that may fail before anything was heard on them.
FAILED_STREAMS_MAX = 3
# Refusals of the first registration that no patience can mend.
_HOPELESS = frozenset(
    {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
)


@dataclass
class Contact:
    """How the connection stands, for `Worker.status`."""

    state: State = "connecting"
    # How tasks are fetched; None before the first connection.
    mode: Literal["stream", "poll"] | None = None
    session_id: str = ""
    # When the server last answered, by the monotonic clock; None if it never did.
    last_contact: float | None = None
    # Seconds of silence after which the server counts as lost.
    session_timeout: float = 30.0


class Keeper:
    """The connection of one worker."""

    def __init__(
        self,
        config: Config,
        registration: RegisterWorkerRequest,
        holdings: Holdings,
        mode: Mode,
        stream_retry: float,
        tell: Callable[[State, str], None],
    ) -> None:
        """`stream_retry` is for how many seconds polls stand in for streams before one is tried again; `tell` is called
        with each change of the state and a line about it."""
        self.contact = Contact()
        self._config = config
        self._registration = registration
        self._holdings = holdings
        self._mode = mode
        self._stream_retry = stream_retry
        self._tell = tell
        self._backoff = Backoff()
        self._channel = channel.open_channel(config)
        self._metadata = channel.metadata(config)
        self._registering: asyncio.Future[Session] | None = None
        # How tasks are fetched now, heard of or not.
        self._fetching: Literal["stream", "poll"] = "stream"
        # Streams in a row on which nothing was heard.
        self._failed_streams = 0
        self._heard_on_stream = False
        # Whether polls stand in for streams, so that the next stream is a try.
        self._stands_in = False
        # Whether it was said that the first connection does not come about.
        self._complained = False
        # Until when polls stand in for streams, by the monotonic clock.
        self._poll_until = float("inf") if mode == "poll" else 0.0

    async def keep(self) -> None:
        """Works for ever. Raises `OrbitError` only if the server refuses the first registration as such."""
        while True:
            try:
                await self._work()
            except grpc.aio.AioRpcError as error:
                refusal = errors.from_rpc(error)
                if error.code() in _HOPELESS and not self.contact.session_id:
                    raise refusal from error
                self._lost(f"{error.code().name}: {refusal.message}")
                pause = refusal.retry_after.total_seconds() if refusal.retry_after else 0.0
                await asyncio.sleep(max(pause, self._backoff.next()))
            except ConnectionLost as error:
                self._lost(str(error))
                # The way to the server may be broken without anybody's notice: take a new one.
                await self._renew_channel()
            except asyncio.InvalidStateError as error:
                # A write to a call that has ended; its reader knows more, but did not get to say it.
                self._lost(str(error))
                await asyncio.sleep(self._backoff.next())

    async def close(self, timeout: float) -> None:
        """Unregisters, within `timeout` seconds, and closes the connection."""
        deadline = time.monotonic() + timeout
        if self._registering is not None and not self._registering.done():
            # A registration that is under way is finished and undone; otherwise its session would linger.
            await asyncio.wait([self._registering], timeout=timeout)
            self._registering.cancel()
        if self._registering is not None and self._registering.done() and not self._registering.cancelled():
            self._registering.exception()  # Was seen where it was waited for.
        if self.contact.session_id:
            try:
                left = max(0.1, deadline - time.monotonic())
                request = UnregisterWorkerRequest(session_id=self.contact.session_id)
                await WorkerServiceStub(self._channel).UnregisterWorker(request, timeout=left, metadata=self._metadata)
            except grpc.aio.AioRpcError as error:
                # The server finds out by the session's timeout.
                log.warning("could not unregister (%s)", error.code().name)
        await self._channel.close()

    async def _work(self) -> None:
        """One session, until its connection is lost."""
        # Shielded: a registration that is under way when the worker stops is finished and undone.
        self._registering = asyncio.ensure_future(self._register())
        session = await asyncio.shield(self._registering)
        stub = WorkerServiceStub(self._channel)
        line = Line(stub, self._metadata, session, self._holdings, self._heard)
        while True:
            # The server ends streams in order now and then; the session stays.
            # A worker that stops tries nothing new.
            ends = self._stands_in and bool(self._holdings.draining)
            if ends or time.monotonic() < self._poll_until:
                self._fetching = "poll"
                await connection.poll(line, float("inf") if ends else self._poll_until)
            elif await self._stream_fails(line):
                continue
            if not self._holdings.draining:
                await asyncio.sleep(self._backoff.next())

    async def _stream_fails(self, line: Line) -> bool:
        """Works over one stream. Returns whether polls take over at once; raises what a lost connection raises."""
        self._fetching, self._heard_on_stream = "stream", False
        try:
            await connection.stream(line)
        except (grpc.aio.AioRpcError, ConnectionLost) as error:
            if self._polls_take_over(error):
                return True
            raise
        return self._polls_take_over(None)

    async def _register(self) -> Session:
        request = RegisterWorkerRequest()
        request.CopyFrom(self._registration)
        request.previous_session_id = self.contact.session_id
        stub = WorkerServiceStub(self._channel)
        response = await stub.RegisterWorker(request, timeout=connection.CALL_SECONDS, metadata=self._metadata)
        for warning in response.warnings:
            log.warning("the server warns: %s", warning)
        self.contact.session_id = response.session_id
        self.contact.session_timeout = response.session_timeout.ToTimedelta().total_seconds()
        return Session(
            id=response.session_id,
            heartbeat_interval=response.heartbeat_interval.ToTimedelta().total_seconds(),
            timeout=self.contact.session_timeout,
        )

    def _heard(self, willing: bool) -> None:
        """The server answered; `willing` if it also goes on."""
        self.contact.last_contact = time.monotonic()
        self.contact.mode = self._fetching
        if self._fetching == "stream":
            self._heard_on_stream = True
            self._failed_streams = 0
            if self._stands_in:
                self._stands_in = False
                log.info("streams get through to %s again", self._config.address)
        if willing:
            self._backoff.reset()
            if self.contact.state in ("connecting", "disconnected"):
                self._tell("connected", f"connected to {self._config.address}, session {self.contact.session_id}")

    def _polls_take_over(self, error: grpc.aio.AioRpcError | ConnectionLost | None) -> bool:
        """Judges a stream that has ended; counts those on which no word was heard."""
        if self._mode != "auto" or self._heard_on_stream or self._holdings.draining:
            return False
        self._failed_streams += 1
        unknown = isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.UNIMPLEMENTED
        if not (unknown or self._stands_in or self._failed_streams >= FAILED_STREAMS_MAX):
            return False
        if not self._stands_in:
            why = error.code().name if isinstance(error, grpc.aio.AioRpcError) else error or "ended without a word"
            log.warning("streams do not get through to %s (%s); polling instead", self._config.address, why)
        self._stands_in = True
        self._failed_streams = 0
        self._poll_until = time.monotonic() + self._stream_retry
        return True

    def _lost(self, why: str) -> None:
        if self.contact.state == "connected":
            self._tell("disconnected", f"lost the server ({why}); trying again")
        elif self.contact.state == "connecting" and not self._complained:
            self._complained = True
            log.warning("no connection to %s yet (%s); trying on", self._config.address, why)

    async def _renew_channel(self) -> None:
        old, self._channel = self._channel, channel.open_channel(self._config)
        await old.close()
