"""What a worker promises to handlers: types, threads, progress, the end of a task, and what they may raise."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest

import orbit
import orbit.payloads
from fake_server import FakeServer, duration
from harness import echo, run, until, working
from orbit import TaskContext

both = pytest.mark.parametrize("mode", ["stream", "poll"])


@dataclass
class Order:
    id: str
    cents: int = 0


class Receipt(TypedDict):
    order: str


@both
def test_handlers_are_typed_by_their_hints_async_or_not(mode: str) -> None:
    async def charge(order: Order, context: TaskContext) -> Receipt:
        return {"order": f"{order.id} {order.cents} {context.attempt}"}

    def ship(context: TaskContext, order: Order) -> Receipt:
        assert threading.current_thread() is not threading.main_thread()
        assert orbit.current_task() is context
        return {"order": order.id}

    async def nothing() -> None:
        assert orbit.current_task().contract == "nothing@1"

    async def test() -> None:
        handlers: dict[str, Callable[..., Any]] = {"charge@1": charge, "ship@1": ship, "nothing@1": nothing}
        async with working(handlers, mode=mode) as it:
            it.server.give("a", "charge@1", '{"id":"o-1","cents":5}')
            it.server.give("b", "ship@1", '{"id":"o-2"}')
            it.server.give("c", "nothing@1", "null")
            it.server.give("d", "charge@1", '{"cents":5}')
            await until(lambda: len(it.server.reports) == 4)
            outputs = [it.server.reports[token].complete.output.json for token in "abc"]
            assert outputs == ['{"order":"o-1 5 1"}', '{"order":"o-2"}', "null"]
            fail = it.server.reports["d"].fail
            assert (fail.failure.code, fail.retryable) == ("INPUT_INVALID", False)
            assert "$.id: is missing" in fail.failure.message

    run(test())


@both
def test_a_handler_in_a_thread_ends_at_its_next_heartbeat_once_it_is_not_wanted(mode: str) -> None:
    ended = threading.Event()

    def work(context: TaskContext) -> None:
        try:
            while True:
                context.heartbeat()
                context.cancelled.wait(0.01)
        finally:
            ended.set()

    async def test() -> None:
        async with working({"work@1": work}, mode=mode) as it:
            it.server.give("t", "work@1")
            await until(lambda: it.server.listed() == {"t"})
            it.server.stop_tokens = {"t"}
            await until(lambda: "t" in it.server.reports)
            assert it.server.reports["t"].HasField("release")
            assert ended.is_set()

    run(test())


def test_threads_are_bounded_and_other_handlers_go_on_meanwhile() -> None:
    most = now = 0
    lock = threading.Lock()

    def block(value: Any) -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.05)
        with lock:
            now -= 1

    async def test() -> None:
        async with working({"block@1": block, "echo@1": echo}, threads=2, slots=8) as it:
            for number in range(6):
                it.server.give(f"t{number}", "block@1")
            it.server.give("u", "echo@1")
            await until(lambda: "u" in it.server.reports)
            assert len(it.server.reports) < 7
            await until(lambda: len(it.server.reports) == 7)
        assert most == 2

    run(test())


@both
def test_progress_reaches_the_server_before_the_failure_that_follows_it(mode: str) -> None:
    async def fail(context: TaskContext) -> None:
        await context.heartbeat({"done": 7})
        raise orbit.RetryableError("interrupted")

    async def test() -> None:
        server = FakeServer()
        server.heartbeat_seconds = 60.0
        async with working({"fail@1": fail}, server, mode=mode) as it:
            await until(lambda: it.worker.status.state == "connected")
            server.give("t", "fail@1")
            await until(lambda: "t" in server.reports)
            assert json.loads(server.progress["t"]) == {"done": 7}

    run(test())


@both
def test_progress_whose_heartbeat_was_lost_is_told_again(mode: str) -> None:
    async def slow(context: TaskContext) -> None:
        await context.heartbeat({"done": 7})
        await asyncio.sleep(60)

    async def test() -> None:
        server = FakeServer()
        server.loses_progress = True
        async with working({"slow@1": slow}, server, mode=mode, drain_timeout=0) as it:
            server.give("t", "slow@1")
            await until(lambda: server.progress_lost == 1)
            await server.crash()
            server.loses_progress = False
            await server.start()
            await until(lambda: "t" in it.server.progress)

    run(test())


@both
def test_a_step_with_a_short_heartbeat_timeout_is_heard_in_time(mode: str) -> None:
    async def slow(context: TaskContext) -> None:
        await context.heartbeat()
        await asyncio.sleep(60)

    async def test() -> None:
        server = FakeServer()
        server.heartbeat_seconds = 60.0
        async with working({"slow@1": slow}, server, mode=mode, drain_timeout=0) as it:
            await until(lambda: it.worker.status.state == "connected")
            server.give("t", "slow@1", heartbeat_timeout=duration(1.0))
            begin = time.monotonic()
            await until(lambda: "t" in server.beats)
            assert time.monotonic() - begin < 0.9

    run(test())


def test_the_next_attempt_finds_the_last_progress() -> None:
    async def last(context: TaskContext) -> Any:
        return context.last_progress

    async def test() -> None:
        async with working({"last@1": last}) as it:
            it.server.give("t", "last@1", progress=orbit.payloads.encode({"done": 3}))
            await until(lambda: "t" in it.server.reports)
            assert it.server.reports["t"].complete.output.json == '{"done":3}'

    run(test())


def test_a_drain_is_told_to_handlers_and_a_stuck_thread_does_not_keep_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("orbit.worker.GRACE_SECONDS", 1.5)
    let_go = threading.Event()

    async def polite(context: TaskContext) -> str:
        await context.draining
        return "early"

    def stuck(context: TaskContext) -> None:
        let_go.wait(20)

    async def test() -> None:
        async with working({"polite@1": polite, "stuck@1": stuck}, drain_timeout=0.3) as it:
            it.server.give("p", "polite@1")
            it.server.give("s", "stuck@1")
            await until(lambda: it.server.listed() == {"p", "s"})
            begin = time.monotonic()
            assert await it.stop()
            assert 0.3 <= time.monotonic() - begin < 2.5
            assert it.server.reports["p"].complete.output.json == '"early"'
            assert it.server.reports["s"].HasField("release")
            assert it.states == ["connecting", "connected", "draining", "stopped"]

    run(test())
    let_go.set()


def test_middleware_goes_around_handlers_in_order() -> None:
    seen: list[str] = []

    def layer(name: str) -> orbit.Middleware:
        async def around(context: TaskContext, input: Any, proceed: orbit.Next, /) -> Any:
            seen.append(f"{name} before {context.contract} {input}")
            try:
                return await proceed(context, input + 1)
            finally:
                seen.append(f"{name} after")

        return around

    def twice(value: int) -> int:
        return 2 * value

    async def test() -> None:
        async with working({"twice@1": twice}, middleware=[layer("outer"), layer("inner")]) as it:
            it.server.give("t", "twice@1", "1")
            await until(lambda: "t" in it.server.reports)
            assert it.server.reports["t"].complete.output.json == "6"

    run(test())
    assert seen == ["outer before twice@1 1", "inner before twice@1 2", "inner after", "outer after"]


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), StopIteration(), RecursionError("deep")])
@pytest.mark.parametrize("threaded", [False, True])
def test_a_worker_outlives_whatever_its_handlers_raise(error: BaseException, threaded: bool) -> None:
    async def raises() -> None:
        raise error

    def raises_in_a_thread() -> None:
        raise error

    async def test() -> None:
        handler: Callable[..., Any] = raises_in_a_thread if threaded else raises
        async with working({"raises@1": handler, "echo@1": echo}) as it:
            it.server.give("t", "raises@1")
            await until(lambda: "t" in it.server.reports)
            assert it.server.reports["t"].fail.retryable
            it.server.give("u", "echo@1")
            await until(lambda: "u" in it.server.reports)

    run(test())


def test_the_watchdog_tells_who_blocks_the_event_loop(caplog: pytest.LogCaptureFixture) -> None:
    async def blocks() -> None:
        time.sleep(0.5)  # noqa: ASYNC251

    async def test() -> None:
        async with working({"blocks@1": blocks}, watchdog=0.2) as it:
            it.server.give("t", "blocks@1")
            await until(lambda: "t" in it.server.reports)
            await until(lambda: "was blocked for" in caplog.text)

    with caplog.at_level("WARNING", logger="orbit.worker"):
        run(test())
    assert "the event loop has been blocked for" in caplog.text
    assert "time.sleep(0.5)" in caplog.text
