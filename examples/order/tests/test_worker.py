"""The order worker as users run it: a process, its handlers, its signals."""

import asyncio
import json
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fake_server import FakeServer
from harness import run, until

PROGRAM = Path(__file__).resolve().parent.parent / "worker.py"
# One input that fits every task of the workflow.
ORDER = json.dumps(
    {
        "order_id": "order-1",
        "items": [{"sku": "lamp", "cents": 1999, "quantity": 1}],
        "cents": 1999,
        "reservation": "R-1",
        "express": False,
    }
)


@asynccontextmanager
async def process(server: FakeServer, data: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The worker as a process of its own."""
    await server.start()
    worker = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), "--server", server.address, "--data", str(data), *arguments,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield worker
    finally:
        if worker.returncode is None:
            worker.kill()
        await worker.wait()
        await server.crash()


def test_an_order_is_reserved_charged_and_shipped(tmp_path: Path) -> None:
    async def test() -> None:
        server = FakeServer()
        async with process(server, tmp_path / "shop.db", "--charge-failures", "never"):
            for contract in ("stock.reserve@1", "payments.charge@1", "shipping.send@1"):
                server.give(contract, contract, ORDER)
            await until(lambda: len(server.reports) == 3)
        outputs = {token: json.loads(report.complete.output.json) for token, report in server.reports.items()}
        assert outputs["stock.reserve@1"]["reservation"].startswith("R-")
        assert outputs["payments.charge@1"]["receipt"].startswith("C-")
        assert outputs["shipping.send@1"]["tracking"].startswith("T-")

    run(test())


def test_a_charge_that_failed_on_both_sides_of_the_money_is_one_ledger_entry(tmp_path: Path) -> None:
    async def test() -> None:
        server = FakeServer()
        async with process(server, tmp_path / "shop.db", "--charge-failures", "2"):
            # The first attempt fails before the money moves, the second after it, the third succeeds.
            for attempt in (1, 2, 3):
                token = f"t{attempt}"
                server.give(token, "payments.charge@1", ORDER, attempt=attempt, idempotency_key="one-charge")
                await until(lambda token=token: token in server.reports)  # type: ignore[misc]
        assert [server.reports[f"t{n}"].WhichOneof("kind") for n in (1, 2, 3)] == ["fail", "fail", "complete"]
        assert server.reports["t1"].fail.failure.code == "BANK_UNAVAILABLE"
        ledger = sqlite3.connect(tmp_path / "shop.db").execute("SELECT order_id, cents FROM ledger").fetchall()
        assert ledger == [("order-1", 1999)]

    run(test())


def test_a_card_that_declines_fails_for_good_and_moves_no_money(tmp_path: Path) -> None:
    async def test() -> None:
        server = FakeServer()
        async with process(server, tmp_path / "shop.db", "--charge-failures", "never"):
            server.give("t", "payments.charge@1", json.dumps({"order_id": "order-1", "cents": 100_000_001}))
            await until(lambda: "t" in server.reports)
        fail = server.reports["t"].fail
        assert (fail.failure.code, fail.retryable) == ("CARD_DECLINED", False)
        assert sqlite3.connect(tmp_path / "shop.db").execute("SELECT count(*) FROM ledger").fetchone() == (0,)

    run(test())


def test_an_item_that_is_out_of_stock_fails_for_good(tmp_path: Path) -> None:
    async def test() -> None:
        server = FakeServer()
        order = {"order_id": "order-1", "items": [{"sku": "lamp", "quantity": 10_000_000}]}
        async with process(server, tmp_path / "shop.db"):
            server.give("t", "stock.reserve@1", json.dumps(order))
            await until(lambda: "t" in server.reports)
        fail = server.reports["t"].fail
        assert (fail.failure.code, fail.retryable) == ("OUT_OF_STOCK", False)

    run(test())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_the_worker_which_says_so_and_exits_0(tmp_path: Path, number: signal.Signals) -> None:
    async def test() -> None:
        server = FakeServer()
        async with process(server, tmp_path / "shop.db") as worker:
            await until(lambda: bool(server.sessions))
            worker.send_signal(number)
            _, errors = await worker.communicate()
            assert worker.returncode == 0
            assert b"stopping: no new tasks" in errors
            assert errors.splitlines()[-1].endswith(b"0 reported, 0 given back, 0 not reported")
            assert server.unregistered == ["session-1"]

    run(test())


def test_a_worker_that_is_refused_exits_1_and_says_why(tmp_path: Path) -> None:
    async def test() -> None:
        server = FakeServer()
        server.refusal = "contracts: too many"
        async with process(server, tmp_path / "shop.db") as worker:
            _, errors = await worker.communicate()
            assert worker.returncode == 1
            assert b"error: the server refused this worker: contracts: too many" in errors

    run(test())
