"""How many steps one worker does a second: ten no-op steps one after the other, in many executions at once.

All executions are started before the worker, so that what is measured is the worker and its server. The CPU time of
both is told as well: on a machine with other work it says more than the clock does.

    tests/sdk/bench/python/run --executions 2000 --slots 1000 [--mode poll] [--sync] [--uvloop] [--profile FILE]
"""

import argparse
import asyncio
import cProfile
import os
import resource
import time
from pathlib import Path
from typing import Any

import orbit
from orbit.testing import Server

STEPS = 10
# Starts that are under way at once.
STARTS = 64

DEFINITION = "name: bench\nversion: 1.0.0\ntasks: {noop@1: {}}\nsteps:\n" + "".join(
    f"  - {{id: s{n}, task: noop@1" + (f", needs: [s{n - 1}]}}\n" if n else "}\n") for n in range(STEPS)
)


async def measure(server: Server, options: argparse.Namespace) -> None:
    """Runs the load once and prints what it cost."""
    total = options.executions * STEPS
    async with orbit.Client(address=server.address) as client:
        await client.deploy(DEFINITION)
        left = iter(range(options.executions))

        async def start() -> None:
            for _ in left:
                await client.start("bench", timeout=60)

        await asyncio.gather(*(start() for _ in range(STARTS)))

    worker = orbit.Worker(address=server.address, slots=options.slots, mode=options.mode)
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        if done == total:
            worker.stop()

    async def noop(_: Any) -> None:
        count()

    def noop_in_a_thread(_: Any) -> None:
        count()

    worker.add(noop_in_a_thread if options.sync else noop, "noop@1")
    profile = cProfile.Profile() if options.profile else None
    begin, own, servers = time.monotonic(), own_cpu(), server_cpu(server.pid)
    if profile:
        profile.enable()
    await worker.run()
    if profile:
        profile.disable()
        profile.dump_stats(options.profile)
    seconds = time.monotonic() - begin
    print(
        f"{total / seconds:.0f} steps/s: {total} steps in {seconds:.1f} s, "
        f"{(own_cpu() - own) * 1e6 / total:.0f} µs CPU a step in the worker, "
        f"{(server_cpu(server.pid) - servers) * 1e6 / total:.0f} µs in the server"
    )


def own_cpu() -> float:
    """CPU seconds that this process has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def server_cpu(pid: int) -> float:
    """CPU seconds that the server has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--executions", type=int, default=2_000, help="executions of ten steps")
    parser.add_argument("--slots", type=int, default=1_000, help="most tasks at once")
    parser.add_argument("--mode", choices=["stream", "poll"], default="stream", help="how tasks are fetched")
    parser.add_argument("--sync", action="store_true", help="a plain function, in threads, instead of a coroutine")
    parser.add_argument("--uvloop", action="store_true", help="uvloop instead of asyncio's own loop")
    parser.add_argument("--profile", help="file for a profile of the worker (for pstats)")
    options = parser.parse_args()
    if options.uvloop:
        import uvloop  # pyright: ignore[reportMissingImports]

        uvloop.install()
    with Server(arguments=["--log", "warn"]) as server:
        asyncio.run(measure(server, options))


if __name__ == "__main__":
    main()
