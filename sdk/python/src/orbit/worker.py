"""A worker: takes tasks of its contracts, runs their handlers and reports, until it is told to stop.

    worker = orbit.Worker(queues=["payments"])

    @worker.task("payments.charge@1")
    async def charge(order: Order, context: orbit.TaskContext) -> Receipt: ...

    asyncio.run(worker.run())

How it stops, on SIGTERM, Ctrl-C or `stop`: no more tasks are taken, and handlers can know it (`context.draining`);
those that still run after `drain_timeout` are cancelled; within five seconds more what is left is given back, and
`run` returns.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Literal

import grpc
from orbit_api.worker.v1.worker_service_pb2 import RegisterWorkerRequest

from orbit.channel import MESSAGE_BYTES_MAX
from orbit.config import Config
from orbit.health import HealthServer
from orbit.holdings import Holdings, name
from orbit.runner import Runner
from orbit.session import Contact, Keeper, Mode, State
from orbit.task import Function, Handler, Middleware, check_contract, handler_of
from orbit.threads import Threads
from orbit.version import VERSION
from orbit.watchdog import Watchdog

log = logging.getLogger("orbit.worker")

# From the cancel of the last handlers to the return of `run`, in seconds; the last part is for what is to be delivered.
GRACE_SECONDS = 5.0
FAREWELL_SECONDS = 1.0
SLOTS_MAX = 10_000
# Most threads unless a worker asks for more; they are made when they are needed.
THREADS_MAX = 200


@dataclass(frozen=True)
class WorkerStatus:
    """How a worker is, at one moment."""

    state: State
    """`connecting` until the first registration, then `connected` or `disconnected`; `draining`, then `stopped`."""
    mode: Literal["stream", "poll"] | None
    """How tasks are fetched; None before the first connection."""
    session_id: str
    """The registration at the server; empty before the first."""
    last_contact_seconds: float | None
    """Seconds since the server last answered; None if it never did."""
    held: int
    """Tasks that are held, from receipt until the report is answered."""
    running: int
    """Handlers at work."""
    slots: int
    """Most tasks at once."""
    healthy: bool
    """Whether the server answered within a session's timeout: what a health check should ask."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Worker:
    """One worker: handlers, and the connection through which they get their tasks."""

    def __init__(
        self,
        tasks: Iterable[Callable[..., Any]] = (),
        *,
        queues: Sequence[str] = ("default",),
        slots: int = 100,
        threads: int | None = None,
        worker_id: str | None = None,
        build: str = "",
        mode: Mode = "auto",
        stream_retry: timedelta | float = 60.0,
        drain_timeout: timedelta | float = 30.0,
        middleware: Sequence[Middleware] = (),
        on_state: Callable[[State, WorkerStatus], None] | None = None,
        handle_signals: bool = True,
        health_address: str | None = None,
        watchdog: timedelta | float | None = 1.0,
        config: Config | None = None,
        address: str | None = None,
        api_key: str | None = None,
        tls_ca: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        profile: str | None = None,
    ) -> None:
        """Makes a worker; nothing is connected before `run`.

        - `tasks`: functions decorated with `orbit.task`; `Worker.task` and `add` bring further ones.
        - `queues`: which queues it serves.
        - `slots`: most tasks at once, 1 to 10,000.
        - `threads`: most handlers at once that are plain `def`, each in a thread; the rest wait, while the clock of
          their step runs. Default: as many as `slots`, at most 200.
        - `worker_id`: name for people; default: the host's name. `build`: what was built, for people.
        - `mode`: `auto` streams, and polls where streams do not get through; `stream` and `poll` do only that.
        - `stream_retry`: how long polls stand in before a stream is tried again; seconds, or a timedelta.
        - `drain_timeout`: how long running handlers may go on once the worker is told to stop; seconds, or a timedelta.
        - `middleware`: goes around every handler, the first one outermost.
        - `on_state`: called with each change of the state.
        - `handle_signals`: whether `run` lets SIGTERM and SIGINT stop the worker; a second one ends the process.
        - `health_address`: `HOST:PORT` to answer `GET /healthz` at, 200 or 503; default: none.
        - `watchdog`: how long a handler may block the event loop before the log says so; None: it never does.
        - the rest: where the server is, as `orbit.config` describes; `config` stands for all of it.

        Raises `ValueError` (`ConfigError` for the connection) for settings that cannot be used.
        """
        if not 1 <= slots <= SLOTS_MAX:
            raise ValueError(f"slots is {slots}; it may be 1 to {SLOTS_MAX}")
        self.config = config or Config.load(
            address=address, api_key=api_key, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key, profile=profile
        )
        self._queues = list(queues)
        self._slots = slots
        self._threads_most = threads or min(slots, THREADS_MAX)
        self._worker_id = worker_id or socket.gethostname()
        self._build = build
        self._mode: Mode = mode
        self._stream_retry_seconds = _seconds(stream_retry)
        self._drain_seconds = _seconds(drain_timeout)
        self._middleware = list(middleware)
        self._on_state = on_state
        self._handle_signals = handle_signals
        self._health_address = health_address
        self._watchdog_seconds = None if watchdog is None else _seconds(watchdog)
        self._handlers: dict[str, Handler] = {}
        self._stop_wanted = threading.Event()
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._holdings: Holdings | None = None
        self._contact = Contact()
        # When it began to stop, by the monotonic clock.
        self._stop_time: float | None = None
        for function in tasks:
            self.add(function)

    # --- Handlers ---------------------------------------------------------------------------------------------------

    def task(self, contract: str) -> Callable[[Function], Function]:
        """Gives the worker a handler for a contract: a decorator. `async def` runs on the event loop, `def` in a
        thread.

        The function takes the input, typed as its hint says, and a `TaskContext`; it may leave out either.
        """

        check_contract(contract)

        def register(function: Function) -> Function:
            self._register(Handler(contract, function))
            return function

        return register

    def add(self, function: Callable[..., Any], contract: str | None = None) -> None:
        """Gives the worker a function that `orbit.task` decorated, or any function with its `contract`."""
        self._register(handler_of(function) if contract is None else Handler(contract, function))

    @property
    def contracts(self) -> list[str]:
        """What it announces."""
        return sorted(self._handlers)

    def _register(self, handler: Handler) -> None:
        if self._loop is not None:
            raise RuntimeError("handlers are given before the worker runs")
        if handler.contract in self._handlers:
            raise ValueError(f"{handler.contract} has a handler already")
        self._handlers[handler.contract] = handler

    # --- Life -------------------------------------------------------------------------------------------------------

    async def run(self) -> bool:
        """Works until it is told to stop. Returns whether every report was delivered; what was not, the server hands
        out again. Connects for ever, so a server that is away raises nothing.

        Raises `OrbitError` if the server refuses the worker as such: `InvalidArgument`, `Unauthenticated` or
        `PermissionDenied`. A worker runs once.
        """
        if not self._handlers:
            raise RuntimeError("a worker needs a handler: decorate one with @worker.task(…)")
        if self._loop is not None:
            raise RuntimeError("a worker runs once; make another one")
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        if self._stop_wanted.is_set():
            self._stopping.set()
        threads = Threads(self._threads_most)
        runner = Runner(self._handlers, self._middleware, threads)
        self._holdings = Holdings(self._slots, runner.start)
        keeper = Keeper(
            self.config, self._registration(), self._holdings, self._mode, self._stream_retry_seconds, self._tell
        )
        self._contact = keeper.contact
        self._announce("connecting")
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(threads.close)
            stack.callback(self._stopped)
            if self._watchdog_seconds is not None:
                watchdog = Watchdog(self._watchdog_seconds)
                watchdog.start()
                stack.callback(watchdog.stop)
            if self._health_address is not None:
                await stack.enter_async_context(HealthServer(self._health_address, lambda: self.status))
            stack.enter_context(self._signals())
            return await self._work(keeper, self._holdings, self._stopping)

    def run_sync(self) -> bool:
        """`asyncio.run` of `run`, for programs that have no loop of their own."""
        return asyncio.run(self.run())

    def stop(self) -> None:
        """Begins to stop; `run` then returns. From any thread, also before `run`; again does nothing."""
        self._stop_wanted.set()
        if self._loop is not None and self._stopping is not None:
            with contextlib.suppress(RuntimeError):  # The loop is closed: `run` has returned.
                self._loop.call_soon_threadsafe(self._stopping.set)

    @property
    def status(self) -> WorkerStatus:
        """How it is now."""
        contact, holdings = self._contact, self._holdings
        silence = None if contact.last_contact is None else time.monotonic() - contact.last_contact
        return WorkerStatus(
            state=contact.state,
            mode=contact.mode,
            session_id=contact.session_id,
            last_contact_seconds=silence,
            held=len(holdings) if holdings else 0,
            running=len(holdings.running()) if holdings else 0,
            slots=self._slots,
            healthy=contact.state != "stopped" and silence is not None and silence <= contact.session_timeout,
        )

    async def _work(self, keeper: Keeper, holdings: Holdings, stopping: asyncio.Event) -> bool:
        working = asyncio.ensure_future(keeper.keep())
        waiting = asyncio.ensure_future(stopping.wait())
        deadline: float | None = None
        try:
            await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
            self._stop_time = time.monotonic()
            deadline = self._stop_time + self._drain_seconds + GRACE_SECONDS
            return await self._drain(holdings, deadline)
        finally:
            # Also when `run` itself is cancelled: then nothing is waited for.
            for held in holdings.running():
                held.abandon()
            waiting.cancel()
            working.cancel()
            await asyncio.wait([working, waiting])
            await keeper.close(0.5 if deadline is None else max(0.5, deadline - time.monotonic()))

    async def _drain(self, holdings: Holdings, deadline: float) -> bool:
        """Ends the work in order; returns whether every report was delivered."""
        running = holdings.running()
        self._tell(
            "draining",
            f"stopping: no new tasks, {len(running)} running may go on for {self._drain_seconds:g} s",
        )
        holdings.take_no_more()
        await _ended(holdings, deadline - GRACE_SECONDS)
        for held in holdings.running():
            log.info("%s: cancelled, since the worker stops", name(held.task))
            held.stop()
        await _ended(holdings, deadline - FAREWELL_SECONDS)
        for held in holdings.running():
            log.warning("%s: does not end; left behind and given back", name(held.task))
            held.abandon()
        # The connection goes on meanwhile and delivers.
        reported = asyncio.ensure_future(holdings.reported())
        await asyncio.wait([reported], timeout=max(0.0, deadline - FAREWELL_SECONDS / 2 - time.monotonic()))
        reported.cancel()
        for task in holdings.unreported():
            log.warning("%s: not reported; the server will hand it out again", name(task))
        return not holdings.unreported()

    def _stopped(self) -> None:
        """The last line: what became of the tasks. A worker that was refused, or cancelled, has nothing to say."""
        self._contact.state = "stopped"
        if self._stop_time is not None and self._holdings is not None:
            farewell = self._holdings.farewell
            told = {
                "reported": farewell.reported,
                "released": farewell.released,
                "unreported": len(self._holdings) + farewell.dropped,
                "seconds": round(time.monotonic() - self._stop_time, 1),
            }
            became = "%(reported)d reported, %(released)d given back, %(unreported)d not reported"
            log.info(f"stopped after %(seconds)s s: {became}", told, extra=told)
        self._announce("stopped")

    def _registration(self) -> RegisterWorkerRequest:
        return RegisterWorkerRequest(
            worker_id=self._worker_id,
            language="python",
            sdk=f"orbit-sdk {VERSION} (grpcio {grpc.__version__})",
            build=self._build,
            queues=self._queues,
            contracts=self.contracts,
            slots=self._slots,
            message_bytes_max=MESSAGE_BYTES_MAX,
        )

    def _tell(self, state: State, text: str) -> None:
        """Notes and tells a change of the state."""
        self._contact.state = state
        log.log(logging.WARNING if state == "disconnected" else logging.INFO, "%s", text)
        self._announce(state)

    def _announce(self, state: State) -> None:
        if self._on_state is not None:
            try:
                self._on_state(state, self.status)
            except Exception:
                log.exception("on_state raised")

    @contextlib.contextmanager
    def _signals(self) -> Any:
        """SIGTERM and SIGINT stop the worker; the second one does what it did before."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        if not self._handle_signals or threading.current_thread() is not threading.main_thread() or os.name == "nt":
            yield
            return

        def stop() -> None:
            restore()
            self.stop()

        before = {number: signal.getsignal(number) for number in numbers}

        def restore() -> None:
            while before:
                number, handler = before.popitem()
                loop.remove_signal_handler(number)
                if handler is not None:
                    signal.signal(number, handler)

        for number in numbers:
            loop.add_signal_handler(number, stop)
        try:
            yield
        finally:
            restore()


async def _ended(holdings: Holdings, deadline: float) -> None:
    """Waits until no handler runs, at most until `deadline`."""
    handlers = [held.handler for held in holdings.running() if held.handler is not None]
    if handlers and (left := deadline - time.monotonic()) > 0:
        await asyncio.wait(handlers, timeout=left)


def _seconds(span: timedelta | float) -> float:
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if seconds < 0:
        raise ValueError("a span of time is not negative")
    return seconds
