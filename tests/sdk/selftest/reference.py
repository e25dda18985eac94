"""The smallest driver that the runner can be tested with: polls, six handlers, and the runner's own client.

With `--drop-results` its worker does everything and reports nothing, so that the suite can be seen to fail.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import defaultdict
from typing import Any

import grpc
from orbit_api.worker.v1 import worker_service_pb2 as pb
from orbit_api.worker.v1.worker_service_pb2_grpc import WorkerServiceStub
from orbit_api.workflow.v1.execution_pb2 import Failure
from orbit_api.workflow.v1.payload_pb2 import Payload
from orbit_api.workflow.v1.task_pb2 import Task

from runner.oracle import CHANNEL, Oracle, Refused, json_text

ADDRESS = os.environ.get("ORBIT_ADDRESS", "").removeprefix("http://")
DROPS = "--drop-results" in sys.argv


def out(message: dict[str, Any]) -> None:
    """Writes one line."""
    print(json.dumps(message), flush=True)


class HandlerFailed(Exception):
    """What the handler `fail` throws."""

    def __init__(self, code: str, retryable: bool) -> None:
        super().__init__(code)
        self.code, self.retryable = code, retryable


class Worker:
    """A worker that polls. Lost connections are tried again each 100 ms."""

    def __init__(self, contracts: dict[str, str], slots: int) -> None:
        self.contracts, self.slots = contracts, slots
        self.gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.running: dict[str, asyncio.Task[None]] = {}
        self.counts: dict[str, int] = {}
        self.state = ""
        self.session = ""
        self.stub: Any = WorkerServiceStub(grpc.aio.insecure_channel(ADDRESS, options=CHANNEL))
        self.loop = asyncio.ensure_future(self.work())

    def change(self, state: str) -> None:
        if state != self.state:
            self.state = state
            out({"event": "state", "state": state, "mode": "poll"})

    async def work(self) -> None:
        self.change("connecting")
        while True:
            try:
                request = pb.RegisterWorkerRequest(worker_id="reference", language="reference")
                request.previous_session_id = self.session
                request.contracts.extend(self.contracts)
                answer = await self.stub.RegisterWorker(request, timeout=2)
                self.session = answer.session_id
                self.change("connected")
                beats = asyncio.ensure_future(self.beat(answer.heartbeat_interval.ToNanoseconds() / 1e9))
                try:
                    await self.poll()
                finally:
                    beats.cancel()
            except grpc.aio.AioRpcError:
                if self.state == "connected":
                    self.change("disconnected")
                await asyncio.sleep(0.1)

    async def poll(self) -> None:
        while True:
            free = self.slots - len(self.running)
            if free > 0:
                request = pb.PollTasksRequest(session_id=self.session, max_tasks=free)
                request.wait_duration.FromSeconds(5)
                for task in (await self.stub.PollTasks(request, timeout=10)).tasks:
                    self.running[task.task_token] = asyncio.ensure_future(self.handle(task))
            else:
                await asyncio.wait(self.running.values(), return_when=asyncio.FIRST_COMPLETED)

    async def beat(self, seconds: float) -> None:
        while True:
            request = pb.HeartbeatRequest(session_id=self.session)
            request.held.extend(pb.HeldTask(task_token=token) for token in self.running)
            with contextlib.suppress(grpc.aio.AioRpcError):
                for token in (await self.stub.Heartbeat(request, timeout=2)).stop:
                    self.running[token].cancel()
            await asyncio.sleep(seconds)

    async def handle(self, task: Task) -> None:
        def tell(what: str) -> None:
            names = ("contract", "execution_id", "step", "attempt", "delivery", "redelivery", "idempotency_key")
            out({"event": "task", "what": what, **{name: getattr(task, name) for name in names}})

        token = task.task_token
        try:
            tell("begun")
            try:
                output = json.dumps(await self.run(self.contracts[task.contract], task))
                report = pb.Report(task_token=token, complete=pb.Complete(output=Payload(json=output)))
            except HandlerFailed as error:
                failure = Failure(code=error.code, message="told to")
                report = pb.Report(task_token=token, fail=pb.Fail(failure=failure, retryable=error.retryable))
            except asyncio.CancelledError:
                tell("cancelled")
                report = pb.Report(task_token=token, release=pb.Release())
            tell("ended")
            while not DROPS:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await self.report(report)
                    break
                await asyncio.sleep(0.1)
        finally:
            del self.running[token]

    async def run(self, handler: str, task: Task) -> Any:
        value = json.loads(json_text(task.input) or "null")
        if handler == "sleep":
            await asyncio.sleep(value["seconds"])
            return {"slept": value["seconds"]}
        if handler == "gate":
            await self.gates[value["gate"]].wait()
            return {"gate": value["gate"]}
        if handler == "fail" and task.attempt < value.get("until_attempt", sys.maxsize):
            raise HandlerFailed(value["code"], value.get("retryable", False))
        if handler == "count":
            times = self.counts[task.idempotency_key] = self.counts.get(task.idempotency_key, 0) + 1
            if times == 1:
                out({"event": "effect", "idempotency_key": task.idempotency_key})
            return {"times": times}
        return value

    async def report(self, report: pb.Report) -> None:
        token = report.task_token
        if report.HasField("complete"):
            complete = pb.CompleteTaskRequest(task_token=token, output=report.complete.output)
            await self.stub.CompleteTask(complete, timeout=2)
        elif report.HasField("fail"):
            fail = pb.FailTaskRequest(task_token=token, failure=report.fail.failure)
            fail.retryable = report.fail.retryable
            await self.stub.FailTask(fail, timeout=2)
        else:
            await self.stub.ReleaseTask(pb.ReleaseTaskRequest(task_token=token), timeout=2)


async def main() -> None:
    """Takes commands until stdin ends or a SIGTERM comes."""
    oracle = Oracle(ADDRESS)
    worker: Worker | None = None
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    out({"event": "ready", "language": "reference", "sdk": "none"})

    async def do(number: int, op: str, args: dict[str, Any]) -> None:
        nonlocal worker
        try:
            answer: dict[str, Any] = {}
            if op == "worker.start":
                worker = Worker(args["contracts"], args.get("slots") or 4)
            elif op == "gate.open" and worker is not None:
                worker.gates[args["gate"]].set()
            else:
                answer = await oracle.tell(op, args)
            out({"id": number, "ok": answer})
        except Refused as refused:
            out({"id": number, "error": refused.error})

    running: set[asyncio.Task[None]] = set()

    async def read() -> None:
        stdin = asyncio.StreamReader(limit=64 * 1024 * 1024)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
        async for line in stdin:
            command = json.loads(line)
            running.add(asyncio.ensure_future(do(command["id"], command["op"], command["args"])))
        end.set()

    reading = asyncio.ensure_future(read())
    await end.wait()
    reading.cancel()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
