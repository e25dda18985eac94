"""What the worker promises, against a server in this process: over a stream and by polling, where both count."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import grpc
import pytest
from orbit_api.worker.v1 import worker_service_pb2 as pb

import orbit
import orbit.payloads
from fake_server import FakeServer, duration
from harness import Gate, echo, run, until, working
from orbit import TaskContext

both = pytest.mark.parametrize("mode", ["stream", "poll"])


@both
def test_tasks_are_done_and_never_more_at_once_than_slots(mode: str) -> None:
    most = now = 0

    async def count(value: Any, context: TaskContext) -> Any:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.005)
        now -= 1
        return value + 1

    async def test() -> None:
        async with working({"count@1": count}, mode=mode, slots=3) as it:
            for number in range(20):
                it.server.give(f"t{number}", "count@1", str(number))
            await until(lambda: len(it.server.reports) == 20)
            for number in range(20):
                assert it.server.reports[f"t{number}"].complete.output.json == str(number + 1)
        assert most <= 3
        assert it.server.credits_most <= 3
        assert it.server.registrations[0].contracts == ["count@1"]
        assert it.server.registrations[0].language == "python"

    run(test())


@both
def test_integers_beyond_doubles_keep_every_digit(mode: str) -> None:
    async def test() -> None:
        async with working({"echo@1": echo}, mode=mode) as it:
            it.server.give("t", "echo@1", '{"n":9007199254740993,"m":123456789012345678901234567890}')
            await until(lambda: "t" in it.server.reports)
            output = it.server.reports["t"].complete.output.json
            assert output == '{"n":9007199254740993,"m":123456789012345678901234567890}'

    run(test())


@both
def test_a_payload_without_content_is_refused_and_no_handler_runs(mode: str) -> None:
    async def never(value: Any, context: TaskContext) -> Any:
        raise AssertionError("ran")

    async def test() -> None:
        async with working({"never@1": never}, mode=mode) as it:
            it.server.give("t", "never@1", None)
            await until(lambda: "t" in it.server.reports)
            fail = it.server.reports["t"].fail
            assert (fail.failure.code, fail.retryable) == ("PAYLOAD_UNKNOWN", False)

    run(test())


@both
def test_failures_carry_code_pause_and_whether_a_retry_helps(mode: str) -> None:
    async def decline(value: Any, context: TaskContext) -> Any:
        raise orbit.PermanentError("no", code="DECLINED", details={"card": 4})

    async def busy(value: Any, context: TaskContext) -> Any:
        raise orbit.RetryableError("later", code="BUSY", retry_after=timedelta(seconds=90))

    async def broken(value: Any, context: TaskContext) -> Any:
        raise ZeroDivisionError("by zero")

    async def unsayable(value: Any, context: TaskContext) -> Any:
        return float("nan")

    handlers: dict[str, Callable[..., Any]] = {"a@1": decline, "b@1": busy, "c@1": broken, "d@1": unsayable}

    async def test() -> None:
        async with working(handlers, mode=mode) as it:
            for contract in handlers:
                it.server.give(contract, contract)
            await until(lambda: len(it.server.reports) == 4)
            fails = {token: report.fail for token, report in it.server.reports.items()}
            assert (fails["a@1"].failure.code, fails["a@1"].retryable) == ("DECLINED", False)
            assert (fails["b@1"].retryable, fails["b@1"].retry_after.seconds) == (True, 90)
            assert (fails["c@1"].failure.code, fails["c@1"].retryable) == ("ZeroDivisionError", True)
            assert fails["c@1"].failure.message == "ZeroDivisionError: by zero"
            assert (fails["d@1"].failure.code, fails["d@1"].retryable) == ("OUTPUT_UNENCODABLE", False)
            assert json.loads(fails["a@1"].failure.details.json) == {"card": 4}
            assert "in broken" in json.loads(fails["c@1"].failure.details.json)["stack"]

    run(test())


@both
def test_heartbeats_list_a_token_from_receipt_until_its_report_is_answered(mode: str) -> None:
    async def test() -> None:
        gate = Gate()
        async with working({"gate@1": gate}, mode=mode) as it:
            it.server.answers_reports = False
            it.server.give("t", "gate@1")
            await gate.begun.wait()
            await until(lambda: it.server.listed() == {"t"})
            gate.open.set()
            await until(lambda: it.server.report_count > 0)
            count = len(it.server.heartbeats)
            # Reported, but nobody has answered: the worker still holds it.
            await until(lambda: len(it.server.heartbeats) > count + 2)
            assert all(held == {"t"} for held in it.server.heartbeats[count + 1 :])
            it.server.answers_reports = True
            if mode == "stream":
                # A stream that leaves a report unanswered must be lost before the report is sent again.
                await it.server.crash()
                await it.server.start()
            await until(lambda: "t" in it.server.reports)
            await until(lambda: it.server.listed() == set())

    run(test())


@both
def test_progress_and_beats_go_along_with_heartbeats(mode: str) -> None:
    async def test() -> None:
        async def tell(value: Any, context: TaskContext) -> Any:
            await context.heartbeat({"done": 3})
            await asyncio.sleep(60)

        async with working({"tell@1": tell}, mode=mode, drain_timeout=0.05) as it:
            it.server.give("t", "tell@1")
            await until(lambda: "t" in it.server.progress)
            assert json.loads(it.server.progress["t"]) == {"done": 3}
            assert "t" in it.server.beats

    run(test())


@both
def test_a_task_that_is_not_wanted_any_more_is_stopped_and_given_back(mode: str) -> None:
    async def test() -> None:
        gate = Gate()
        async with working({"gate@1": gate, "echo@1": echo}, mode=mode) as it:
            it.server.give("t", "gate@1")
            await gate.begun.wait()
            it.server.stop_tokens = {"t"}
            await until(lambda: "t" in it.server.reports)
            assert it.server.reports["t"].HasField("release")
            # The worker goes on.
            it.server.give("u", "echo@1")
            await until(lambda: "u" in it.server.reports)

    run(test())


@both
def test_a_result_made_during_an_outage_is_delivered_when_it_ends(mode: str) -> None:
    async def test() -> None:
        gate = Gate()
        async with working({"gate@1": gate, "echo@1": echo}, mode=mode) as it:
            it.server.give("t", "gate@1")
            await gate.begun.wait()
            await it.server.crash()
            gate.open.set()
            await asyncio.sleep(0.5)
            await it.server.start()
            await until(lambda: "t" in it.server.reports)
            assert it.server.reports["t"].complete.output.json == '"done"'
            # The same session was asked for and given back.
            assert it.server.registrations[-1].previous_session_id == "session-1"
            assert list(it.server.sessions) == ["session-1"]
            it.server.give("u", "echo@1")
            await until(lambda: "u" in it.server.reports)

    run(test())


@both
def test_a_worker_that_starts_before_its_server_connects_when_it_comes(mode: str) -> None:
    async def test() -> None:
        server = FakeServer()
        await server.start()
        await server.crash()
        worker = orbit.Worker(address=server.address, mode=mode)  # type: ignore[arg-type]
        worker.add(echo, "echo@1")
        ended = asyncio.ensure_future(worker.run())
        await asyncio.sleep(0.3)
        await server.start()
        server.give("t", "echo@1")
        await until(lambda: "t" in server.reports)
        worker.stop()
        assert await ended
        await server.crash()

    run(test())


@both
def test_a_session_that_is_gone_is_replaced_and_results_still_go_out(mode: str) -> None:
    async def test() -> None:
        gate = Gate()
        async with working({"gate@1": gate}, mode=mode) as it:
            it.server.give("t", "gate@1")
            await gate.begun.wait()
            it.server.sessions.clear()
            await it.server.crash()
            await it.server.start()
            gate.open.set()
            await until(lambda: "t" in it.server.reports)
            await until(lambda: list(it.server.sessions) == ["session-2"])

    run(test())


def test_where_streams_do_not_get_through_the_worker_polls() -> None:
    async def test() -> None:
        server = FakeServer()
        server.streams = False
        async with working({"echo@1": echo}, server) as it:
            server.give("t", "echo@1", "1")
            await until(lambda: "t" in it.server.reports)

    run(test())


def test_a_frozen_server_is_noticed_by_its_silence() -> None:
    async def test() -> None:
        server = FakeServer()
        server.session_seconds = 0.3
        async with working({"echo@1": echo}, server) as it:
            await until(lambda: it.server.opened == 1)
            server.frozen = True
            await until(lambda: it.server.opened == 2)
            server.frozen = False
            server.give("t", "echo@1")
            await until(lambda: "t" in it.server.reports)

    run(test())


@pytest.mark.parametrize("code", [grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE])
def test_a_stream_that_the_server_breaks_is_opened_again(code: grpc.StatusCode) -> None:
    async def test() -> None:
        server = FakeServer()
        broken = 0

        async def check(session_id: str, context: Any) -> None:
            nonlocal broken
            if broken < 2:
                broken += 1
                await context.abort(code, "broken")

        server._check = check  # type: ignore[method-assign]
        async with working({"echo@1": echo}, server) as it:
            server.give("t", "echo@1")
            await until(lambda: "t" in it.server.reports)
            assert broken == 2

    run(test())


@both
def test_a_report_that_could_not_be_taken_is_sent_again_after_the_pause(mode: str) -> None:
    async def test() -> None:
        async with working({"echo@1": echo}, mode=mode) as it:
            error = pb.ReportError(reason="STORE_UNAVAILABLE", retryable=True, retry_after=duration(0.2))
            it.server.report_errors.extend([error, error])
            begin = asyncio.get_running_loop().time()
            it.server.give("t", "echo@1", "7")
            await until(lambda: "t" in it.server.reports)
            assert it.server.reports["t"].complete.output.json == "7"
            assert it.server.report_count == 3
            if mode == "stream":
                assert asyncio.get_running_loop().time() - begin >= 0.4

    run(test())


@both
def test_a_result_that_can_never_be_taken_fails_its_task(mode: str) -> None:
    async def test() -> None:
        async with working({"echo@1": echo}, mode=mode) as it:
            it.server.report_errors.append(pb.ReportError(reason="PAYLOAD_TOO_LARGE", message="3 MiB", retryable=False))
            it.server.give("t", "echo@1", "7")
            await until(lambda: "t" in it.server.reports)
            fail = it.server.reports["t"].fail
            assert fail.retryable is False
            assert "3 MiB" in fail.failure.message

    run(test())


def test_many_large_results_go_in_several_frames() -> None:
    async def large(value: Any, context: TaskContext) -> Any:
        await asyncio.sleep(0.05)
        return "x" * 600_000

    async def test() -> None:
        # The server's own limit of 4 MiB a message would break the stream.
        async with working({"large@1": large}, slots=16) as it:
            for number in range(16):
                it.server.give(f"t{number}", "large@1")
            await until(lambda: len(it.server.reports) == 16)
            assert it.server.opened == 1

    run(test())


@both
def test_a_drain_lets_running_tasks_finish_gives_the_rest_back_and_unregisters(mode: str) -> None:
    async def test() -> None:
        gate = Gate()
        async with working({"gate@1": gate, "echo@1": echo}, mode=mode, slots=2) as it:
            it.server.give("t", "gate@1")
            await gate.begun.wait()
            await until(lambda: it.server.listed() == {"t"})
            it.worker.stop()
            await asyncio.sleep(0.05)
            it.server.give("late", "echo@1")
            if mode == "stream":
                # Comes on what was granted before the stop: given back without having begun.
                await until(lambda: "late" in it.server.reports)
                assert it.server.reports["late"].HasField("release")
            assert not it.ended.done()
            gate.open.set()
            assert await it.ended
            assert it.server.reports["t"].complete.output.json == '"done"'
            assert it.server.unregistered == ["session-1"]
            # The poll that waited was given up, so nothing came by it.
            assert ("late" in it.server.reports) == (mode == "stream")

    run(test())


@both
def test_a_drain_is_bounded_and_gives_back_what_does_not_finish(mode: str) -> None:
    async def test() -> None:
        gate = Gate()
        async with working({"gate@1": gate}, mode=mode, drain_timeout=0.1) as it:
            it.server.give("t", "gate@1")
            await gate.begun.wait()
            assert await it.stop()
            assert it.server.reports["t"].HasField("release")

    run(test())


def test_a_drain_during_an_outage_ends_and_says_what_was_not_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbit.worker.GRACE_SECONDS", 1.5)

    async def test() -> None:
        gate = Gate()
        async with working({"gate@1": gate}, drain_timeout=0.1) as it:
            it.server.give("t", "gate@1")
            await gate.begun.wait()
            await it.server.crash()
            gate.open.set()
            assert await it.stop() is False

    run(test())


def test_a_worker_that_the_server_refuses_says_so() -> None:
    async def test() -> None:
        server = FakeServer()
        server.refusal = "contracts: too many"
        async with working({"echo@1": echo}, server) as it:
            with pytest.raises(orbit.InvalidArgument, match="contracts: too many"):
                await it.ended

    run(test())


@both
def test_each_change_of_the_connection_is_one_line(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with working({"echo@1": echo}, mode=mode) as it:
            await until(lambda: bool(it.server.heartbeats))
            await it.server.crash()
            await asyncio.sleep(1.0)
            await it.server.start()
            it.server.give("t", "echo@1")
            await until(lambda: "t" in it.server.reports)

    with caplog.at_level("INFO", logger="orbit.worker"):
        run(test())
    lines = [
        record.getMessage()
        for record in caplog.records
        if "server" in record.getMessage() or "connected" in record.getMessage()
    ]
    assert [line.split(" ")[0] for line in lines] == ["connected", "lost", "connected"]


def test_the_health_endpoint_tells_whether_the_server_answers() -> None:
    async def get(port: int, path: str = "/healthz") -> tuple[int, Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
        return int(answer.split(" ")[1]), json.loads(answer.split("\r\n\r\n")[1])

    async def test() -> None:
        server = FakeServer()
        server.session_seconds = 0.3
        probe = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = probe.sockets[0].getsockname()[1]
        probe.close()
        await probe.wait_closed()
        async with working({"echo@1": echo}, server, health_address=f"127.0.0.1:{port}") as it:
            await until(lambda: it.worker.status.healthy)
            code, body = await get(port)
            assert (code, body["state"], body["mode"], body["held"]) == (200, "connected", "stream", 0)
            assert (await get(port, "/other"))[0] == 404
            await server.crash()
            await until(lambda: not it.worker.status.healthy)
            assert (await get(port))[0] == 503

    run(test())


def test_what_cannot_be_a_worker_is_told_before_it_runs() -> None:
    worker = orbit.Worker()
    worker.add(echo, "echo@1")
    with pytest.raises(ValueError, match="has a handler already"):
        worker.add(echo, "echo@1")
    with pytest.raises(ValueError, match="NAME@VERSION"):
        worker.task("echo")
    with pytest.raises(TypeError, match="no contract"):
        worker.add(echo)
    with pytest.raises(TypeError, match="must be a TaskContext"):
        worker.add(two_inputs, "b@1")
    with pytest.raises(ValueError, match="slots"):
        orbit.Worker(slots=0)
    with pytest.raises(RuntimeError, match="needs a handler"):
        asyncio.run(orbit.Worker().run())


def two_inputs(one: int, two: int) -> None:
    """No handler: nobody knows which of them is the input."""
