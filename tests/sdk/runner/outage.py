"""Restarts a server again and again under load, then leaves it away for minutes: `python -m runner.outage`.

One worker of each language serves its step of the same workflow, all at once. After each return of the server the time
is taken until each worker has done a task again. In the end every start that was accepted must have succeeded, and each
step's effect must have happened once.
"""

import argparse
import asyncio
import contextlib
import os
import random
import signal
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.__main__ import LANGUAGES, ROOT, SUITE
from runner.driver import Driver
from runner.oracle import Oracle, Refused
from runner.proxy import Proxy
from runner.server import RealServer

# Longest that a worker may take to do a task after its server is back.
RESUME_SECONDS = 30.0
# Longest that a server is away between two restarts.
AWAY_SECONDS = 3.0
STARTS_PER_SECOND = 5.0
# For what is open when the load ends.
FINISH_SECONDS = 120.0
# What `Oracle` calls refusals that the same call may get over.
PASSING = ("Unavailable", "DeadlineExceeded", "Cancelled")


@dataclass
class Worker:
    """One language's worker and what was measured of it."""

    language: str
    driver: Driver
    # Seconds from each return of the server to the first task after it.
    resumed: list[float] = field(default_factory=list)
    outage: float = 0.0

    def done(self) -> int:
        """How many tasks its handler has ended."""
        return len(self.driver.journal.find(lambda entry: entry.get("what") == "ended"))


class Load:
    """Starts executions all the time and remembers which starts were accepted."""

    def __init__(self, address: str) -> None:
        self._oracle = Oracle(address)
        self.accepted: list[str] = []
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while True:
            # A new call has a new request id; the same call, made again, has the same.
            id = str(uuid.uuid4())
            args = {"workflow": "outage", "id": id, "request_id": id}
            await persist(self._oracle, "client.start", args)
            self.accepted.append(id)
            await asyncio.sleep(1 / STARTS_PER_SECOND)

    async def end(self) -> dict[str, int]:
        """Starts no more and waits for all: how many ended in each state."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        states: dict[str, int] = {}
        deadline = time.monotonic() + FINISH_SECONDS
        for id in self.accepted:
            left = max(0.1, deadline - time.monotonic())
            try:
                state = (await self._oracle.tell("client.wait", {"id": id, "timeout_seconds": left}))["state"]
            except Refused as refused:
                state = refused.error["class"]
            states[state] = states.get(state, 0) + 1
        await self._oracle.close()
        return states


async def persist(oracle: Oracle, op: str, args: dict[str, Any]) -> dict[str, Any]:
    """Makes a call until the server is there to answer it."""
    while True:
        try:
            return await oracle.tell(op, args)
        except Refused as refused:
            if refused.error["class"] not in PASSING:
                raise
            await asyncio.sleep(0.1)


async def resume(workers: Sequence[Worker], since: float, before: Sequence[int]) -> list[float]:
    """Waits until each worker has done more tasks than before: the seconds of each since then."""
    took: dict[str, float] = {}
    while len(took) < len(workers):
        for worker, count in zip(workers, before, strict=True):
            if worker.language not in took and worker.done() > count:
                took[worker.language] = time.monotonic() - since
        if time.monotonic() - since > 4 * RESUME_SECONDS:
            missing = [worker.language for worker in workers if worker.language not in took]
            raise SystemExit(f"no task was done by {', '.join(missing)} in {4 * RESUME_SECONDS:.0f} s")
        await asyncio.sleep(0.02)
    return [took[worker.language] for worker in workers]


async def run(options: argparse.Namespace, folder: Path) -> int:
    """Everything; 0 if nothing was lost and every worker came back in time."""
    randomness = random.Random(options.seed)
    server = RealServer(options.binary, folder, session_timeout="30s")
    proxy = Proxy()
    await proxy.open()

    async def start() -> float:
        await server.start()
        proxy.target = server.port
        return time.monotonic()

    await start()
    address = f"127.0.0.1:{proxy.port}"
    workers: list[Worker] = []
    steps = "".join(
        f"  - {{id: {name}, task: work@1, language: {name}, timeout: 60s, retry: {{max_attempts: 20}}}}\n"
        for name in options.language
    )
    source = f"name: outage\nversion: 1.0.0\ntasks: {{work@1: {{}}}}\nsteps:\n{steps}"
    oracle = Oracle(address)
    await oracle.tell("client.deploy", {"source": source})
    await oracle.close()
    for language in options.language:
        (folder / language).mkdir()
        environment = {"ORBIT_ADDRESS": f"http://{address}"}
        driver = await Driver.start(options.drivers / language / "run", folder / language, environment)
        _, reply = driver.send("worker.start", {"contracts": {"work@1": "count"}, "slots": 8})
        await reply
        workers.append(Worker(language, driver))
    load = Load(address)
    await resume(workers, time.monotonic(), [0] * len(workers))

    for number in range(options.restarts):
        proxy.target = None
        await server.end(signal.SIGKILL if number % 2 else signal.SIGTERM)
        await asyncio.sleep(randomness.uniform(0, AWAY_SECONDS))
        before = [worker.done() for worker in workers]
        for worker, seconds in zip(workers, await resume(workers, await start(), before), strict=True):
            worker.resumed.append(seconds)
        await asyncio.sleep(randomness.uniform(0, 1))
    if options.outage:
        proxy.target = None
        await server.end(signal.SIGKILL)
        await asyncio.sleep(options.outage)
        before = [worker.done() for worker in workers]
        for worker, seconds in zip(workers, await resume(workers, await start(), before), strict=True):
            worker.outage = seconds

    states = await load.end()
    code = report(options, workers, load, states)
    await asyncio.gather(*(worker.driver.finish() for worker in workers))
    await server.end(signal.SIGKILL)
    await proxy.finish()
    return code


def report(options: argparse.Namespace, workers: Sequence[Worker], load: Load, states: dict[str, int]) -> int:
    """Prints what was measured, and judges it."""
    print(f"{options.restarts} restarts (seed {options.seed}), then {options.outage:.0f} s without a server.")
    print(f"{len(load.accepted)} starts were accepted; their executions: {states}.\n")
    columns = (
        "worker",
        "median s",
        "slowest s",
        "after outage s",
        "disconnected",
        "log lines",
        "effects",
        "repeated runs",
    )
    print("  ".join(f"{column:>14}" for column in columns))
    wrong: list[str] = []
    if states != {"SUCCEEDED": len(load.accepted)}:
        wrong.append("not every accepted start succeeded")
    for worker in workers:
        journal = worker.driver.journal
        lost = len(journal.find(lambda entry: entry.get("state") == "disconnected"))
        lines = len(journal.find(lambda entry: entry.get("event") == "log"))
        effects = {entry["idempotency_key"] for entry in journal.entries if entry.get("event") == "effect"}
        begun = len(journal.find(lambda entry: entry.get("what") == "begun"))
        middle, slowest = statistics.median(worker.resumed or [0]), max(worker.resumed or [0])
        cells = (
            f"{middle:.2f}",
            f"{slowest:.2f}",
            f"{worker.outage:.2f}",
            lost,
            lines,
            len(effects),
            begun - len(effects),
        )
        print("  ".join(f"{cell:>14}" for cell in (worker.language, *cells)))
        if max(slowest, worker.outage) > RESUME_SECONDS:
            wrong.append(f"{worker.language} took longer than {RESUME_SECONDS:.0f} s to come back")
        if len(effects) != len(load.accepted):
            wrong.append(f"{worker.language} had {len(effects)} effects for {len(load.accepted)} executions")
        # One change each way a restart; a busy machine may lose a connection besides.
        if lost > options.restarts + 10:
            wrong.append(f"{worker.language} told {lost} times that it was disconnected")
    print(
        "\n" + ("\n".join(f"WRONG: {line}" for line in wrong) or "Nothing was lost or repeated, all came back in time.")
    )
    return 1 if wrong else 0


def main() -> int:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="python -m runner.outage", description=__doc__)
    parser.add_argument("--restarts", type=int, default=50)
    parser.add_argument("--outage", type=float, default=300.0, help="seconds without a server at the end")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--language", action="append", help="only these; default: all three")
    parser.add_argument("--drivers", type=Path, default=SUITE / "drivers")
    parser.add_argument("--binary", type=Path, default=os.environ.get("ORBIT_BINARY", ROOT / "target/debug/orbit"))
    options = parser.parse_args()
    options.language = options.language or list(LANGUAGES)
    options.binary, options.drivers = options.binary.resolve(), options.drivers.resolve()
    with tempfile.TemporaryDirectory(prefix="orbit-outage-") as folder:
        return asyncio.run(run(options, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
