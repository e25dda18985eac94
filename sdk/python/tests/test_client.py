"""Callers, against a real server; and the fake, where it does the same."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

import orbit
from harness import run
from orbit import Client, State, SyncClient
from orbit.testing import Fake, Server

FLOW = """
name: flow
version: 1.0.0
tasks:
  double@1: {}
input:
  type: object
  required: [n]
  properties: {n: {type: integer}}
signals:
  go: {type: object}
queries:
  total: ${ input.n + 1 }
steps:
  - id: wait
    await: {signal: go}
  - id: double
    needs: [wait]
    task: double@1
    input: {n: "${ input.n }"}
    timeout: 30s
result: ${ steps.double.output }
"""


@dataclass
class Number:
    n: int


async def double(number: Number) -> Number:
    if number.n < 0:
        raise orbit.PermanentError("negative", code="NEGATIVE", details={"n": number.n})
    return Number(2 * number.n)


def with_worker(server: Server, test: Callable[[Client], Any]) -> None:
    """Runs a test with a client, the workflow and its worker."""

    async def whole() -> None:
        worker = orbit.Worker(address=server.address, handle_signals=False)
        worker.add(double, "double@1")
        async with Client(address=server.address) as client:
            await client.deploy(FLOW)
            working = asyncio.ensure_future(worker.run())
            try:
                await test(client)
            finally:
                worker.stop()
                assert await working

    run(whole())


def test_a_caller_starts_signals_and_gets_a_typed_result(orbit_server: Server) -> None:
    async def test(client: Client) -> None:
        handle = await client.start("flow", Number(2**60), id="typed", labels={"team": "a"})
        assert (handle.created, handle.version) == (True, "1.0.0")
        assert await handle.query("total") == 2**60 + 1
        assert await handle.signal("go", {"by": "me"}) > 0
        assert await handle.result(Number, timeout=20) == Number(2**61)
        execution = await handle.describe()
        assert (execution.state, execution.labels, execution.input) == (State.SUCCEEDED, {"team": "a"}, {"n": 2**60})
        assert execution.step("double").output == {"n": 2**61}
        again = await client.start("flow", Number(2**60), id="typed")
        assert (again.created, again.uid) == (False, handle.uid)
        events = [event async for event in handle.events()]
        assert events[0].type == "execution_created"
        assert events[-1].type == "execution_succeeded"
        assert [event.number async for event in handle.events(after=3)] == [event.number for event in events[3:]]

    with_worker(orbit_server, test)


def test_a_failure_says_what_the_handler_said(orbit_server: Server) -> None:
    async def test(client: Client) -> None:
        handle = await client.start("flow", Number(-1), signal=("go", {}))
        with pytest.raises(orbit.ExecutionFailed) as raised:
            await handle.result(timeout=20)
        assert (raised.value.code, raised.value.message, raised.value.details) == ("NEGATIVE", "negative", {"n": -1})

    with_worker(orbit_server, test)


def test_each_refusal_is_an_error_of_its_own_with_its_reason(orbit_server: Server) -> None:
    async def test(client: Client) -> None:
        with pytest.raises(orbit.NotFound) as missing:
            await client.start("no-such-flow")
        assert missing.value.reason == "DEFINITION_NOT_FOUND"
        with pytest.raises(orbit.InvalidArgument) as invalid:
            await client.start("flow", {"n": "x"})
        assert invalid.value.violations[0].field.startswith("input")
        handle = await client.start("flow", Number(1), id="refused")
        with pytest.raises(orbit.AlreadyExists) as taken:
            await client.start("flow", Number(2), id="refused")
        assert taken.value.metadata["uid"] == handle.uid
        with pytest.raises(orbit.DeadlineExceeded):
            await handle.result(timeout=0.2)
        await handle.cancel("enough")
        with pytest.raises(orbit.ExecutionCancelled, match="enough"):
            await handle.result(timeout=20)
        with pytest.raises(orbit.FailedPrecondition) as closed:
            await handle.signal("go", {})
        assert closed.value.reason == "EXECUTION_CLOSED"
        terminated = await client.start("flow", Number(1))
        await terminated.terminate("now")
        with pytest.raises(orbit.ExecutionTerminated):
            await terminated.result()
        with pytest.raises(orbit.InvalidArgument) as faulty:
            await client.deploy("name: 1\n", file_name="faulty.yaml")
        assert faulty.value.reason == "DEFINITION_INVALID"

    with_worker(orbit_server, test)


def test_lists_go_through_all_pages(orbit_server: Server) -> None:
    async def test(client: Client) -> None:
        ids = {(await client.start("flow", Number(n), labels={"list": "yes"})).id for n in range(7)}
        listed = client.list('labels.list = "yes"', page_size=2)
        assert {execution.id async for execution in listed} == ids
        assert (await client.count())[State.RUNNING] >= 7
        assert [worker.language async for worker in client.workers()] == ["python"]
        assert (await client.server_info()).version

    with_worker(orbit_server, test)


def test_a_wait_outlasts_a_server_that_goes_and_comes(orbit_server: Server) -> None:
    async def test() -> None:
        # One of its own, since it is killed; where there is none, `orbit_server` has skipped this.
        with Server() as server:
            async with Client(address=server.address) as client:
                await client.deploy(FLOW)
                handle = await client.start("flow", Number(4))
                waiting = asyncio.ensure_future(handle.result(timeout=25))
                seen: list[str] = []

                async def watch() -> None:
                    async for event in handle.events():
                        seen.append(event.type)

                watching = asyncio.ensure_future(watch())
                await asyncio.sleep(0.2)
                await asyncio.to_thread(server.kill)
                starting = asyncio.ensure_future(client.start("flow", Number(5), id="during", timeout=25))
                await asyncio.sleep(0.5)
                await asyncio.to_thread(server.start)
                assert (await starting).created
                await handle.cancel()
                with pytest.raises(orbit.ExecutionCancelled):
                    await waiting
                await watching
                assert len(seen) == len(set(seen)) == 4

    run(test())


def test_the_client_without_asyncio_does_the_same(orbit_client: SyncClient) -> None:
    orbit_client.deploy(FLOW)
    handle = orbit_client.start("flow", Number(1))
    assert handle.query("total", int) == 2
    first = next(iter(handle.events()))
    assert (first.number, first.type) == (1, "execution_created")
    handle.terminate()
    assert handle.wait().state is State.TERMINATED
    assert handle.id in {execution.id for execution in orbit_client.list()}


def test_a_server_that_cannot_be_reached_is_unavailable_once_the_deadline_passes() -> None:
    async def test() -> None:
        async with Client(address="http://127.0.0.1:9", timeout=0.5) as client:
            begin = asyncio.get_running_loop().time()
            with pytest.raises(orbit.Unavailable):
                await client.start("flow")
            assert asyncio.get_running_loop().time() - begin < 5

    run(test())


class Forgetful(Fake):
    """Loses its answers: the call was done, and the caller sees a broken connection."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 2
        self.request_ids: list[str] = []

    async def StartExecution(self, request: Any, **options: Any) -> Any:
        self.request_ids.append(request.request_id)
        answer = await super().StartExecution(request, **options)
        if self.lost > 0:
            self.lost -= 1
            empty = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, empty, empty, details="connection reset")
        return answer


def test_a_call_whose_answer_was_lost_is_repeated_with_the_same_request_id() -> None:
    async def test() -> None:
        fake = Forgetful()
        fake.workflow("flow")
        handle = await fake.client().start("flow")
        assert handle.created
        assert len(fake.request_ids) == 3
        assert len(set(fake.request_ids)) == 1
        assert fake.executions == [handle.id]

    run(test())


def test_the_fake_keeps_signals_queries_and_ends() -> None:
    async def test() -> None:
        fake = Fake()
        fake.workflow("flow")
        client = fake.client()
        handle = await client.start("flow", Number(3), id="a")
        assert fake.input("a") == {"n": 3}
        await handle.signal("go", {"by": "me"})
        assert fake.signals("a") == [("go", {"by": "me"})]
        fake.answer_query("a", "total", 4)
        assert await handle.query("total") == 4
        waiting = asyncio.ensure_future(handle.result(Number))
        await asyncio.sleep(0)
        fake.complete("a", {"n": 6})
        assert await waiting == Number(6)
        with pytest.raises(orbit.FailedPrecondition):
            await handle.cancel()
        with pytest.raises(orbit.AlreadyExists):
            await client.start("flow", Number(4), id="a")
        assert [event.type async for event in handle.events()] == [
            "execution_created",
            "signal_received",
            "execution_succeeded",
        ]

        async def fails(_: Any) -> Any:
            raise orbit.PermanentError("no", code="NO")

        fake.workflow("fails", fails)
        with pytest.raises(orbit.ExecutionFailed, match="NO: no"):
            await (await client.start("fails")).result()

    run(test())
