"""A worker at work beside a server in this process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import orbit
from fake_server import FakeServer
from orbit import TaskContext, Worker


def run(test: Coroutine[Any, Any, None]) -> None:
    """Runs one asynchronous test, at most half a minute."""
    asyncio.run(asyncio.wait_for(test, 30))


async def until(condition: Callable[[], bool]) -> None:
    """Waits until the condition holds; the bound of `run` ends a wait in vain."""
    while not condition():  # noqa: ASYNC110 (conditions on the fake are many, and tests may poll)
        await asyncio.sleep(0.005)


class Running:
    """A worker at work and the server that it works for."""

    def __init__(self, server: FakeServer, worker: Worker) -> None:
        self.server = server
        self.worker = worker
        self.states: list[str] = []
        self.ended: asyncio.Future[bool] = asyncio.ensure_future(worker.run())

    async def stop(self) -> bool:
        self.worker.stop()
        return await self.ended


@asynccontextmanager
async def working(
    handlers: dict[str, Callable[..., Any]], server: FakeServer | None = None, **options: Any
) -> AsyncIterator[Running]:
    """A server and a worker; both are stopped at the end."""
    server = server or FakeServer()
    if server._server is None:
        await server.start()
    states: list[str] = []
    options = {
        "address": server.address,
        "worker_id": "test",
        "slots": 8,
        "on_state": lambda state, status: states.append(state),
        **options,
    }
    worker = orbit.Worker(**options)
    for contract, handler in handlers.items():
        worker.add(handler, contract)
    running = Running(server, worker)
    running.states = states
    try:
        yield running
    finally:
        running.ended.cancel()
        await asyncio.gather(running.ended, return_exceptions=True)
        if server._server is not None:
            await server.crash()


async def echo(value: Any) -> Any:
    return value


class Gate:
    """A handler that begins, and ends when it is let go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self, value: Any, context: TaskContext) -> Any:
        self.begun.set()
        await self.open.wait()
        return "done"
