"""Keeps a worker connected: registers, works over a stream or by polls, and begins again for ever.

- Pauses between attempts grow, are random and stay below ten seconds; they are short again once the server answers.
- One line in the log for each change of the state, never for each attempt.
- A lost session is asked for again; results wait in `Holdings` meanwhile.
- Polls take over after the first UNIMPLEMENTED, or after three streams in a row that broke before a word was heard;
  a minute later streams are tried again.
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
# How long polls do instead of streams before streams are tried again.
STREAM_AGAIN_SECONDS = 60.0
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
        tell: Callable[[State, str], None],
    ) -> None:
        """`tell` is called with each change of the state and a line about it."""
        self.contact = Contact()
        self._config = config
        self._registration = registration
        self._holdings = holdings
        self._mode = mode
        self._tell = tell
        self._backoff = Backoff()
        self._channel = channel.open_channel(config)
        self._metadata = channel.metadata(config)
        self._registering: asyncio.Future[Session] | None = None
        # Streams in a row on which nothing was heard.
        self._failed_streams = 0
        self._heard_on_stream = False
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
                if self._streaming_failed(error):
                    continue
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
                log.info("unregistered")
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
            if time.monotonic() < self._poll_until:
                self.contact.mode = "poll"
                await connection.poll(line, self._poll_until)
                self._failed_streams = 0
            else:
                self.contact.mode = "stream"
                self._heard_on_stream = False
                await connection.stream(line)
            if not self._holdings.draining:
                await asyncio.sleep(self._backoff.next())

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
        if self.contact.mode == "stream":
            self._heard_on_stream = True
            self._failed_streams = 0
        if willing:
            self._backoff.reset()
            if self.contact.state in ("connecting", "disconnected"):
                self._tell("connected", f"connected to {self._config.address}, session {self.contact.session_id}")

    def _streaming_failed(self, error: grpc.aio.AioRpcError) -> bool:
        """Counts a stream that broke before a word was heard; True if polls take over at once."""
        if self._mode != "auto" or self.contact.mode != "stream" or self._heard_on_stream or not self._registered():
            return False
        self._failed_streams += 1
        if error.code() is not grpc.StatusCode.UNIMPLEMENTED and self._failed_streams < FAILED_STREAMS_MAX:
            return False
        log.warning("streams do not get through to %s (%s); polling instead", self._config.address, error.code().name)
        self._poll_until = time.monotonic() + STREAM_AGAIN_SECONDS
        self._failed_streams = 0
        return True

    def _registered(self) -> bool:
        """Whether the newest registration worked, so that it was not this that failed."""
        done = self._registering
        return done is not None and done.done() and not done.cancelled() and done.exception() is None

    def _lost(self, why: str) -> None:
        if self.contact.state == "connected":
            self._tell("disconnected", f"lost the server ({why}); trying again")
        elif self.contact.state == "connecting" and not self._complained:
            self._complained = True
            log.warning("no connection to %s yet (%s); trying on", self._config.address, why)

    async def _renew_channel(self) -> None:
        old, self._channel = self._channel, channel.open_channel(self._config)
        await old.close()
