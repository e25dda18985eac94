"""The worker of the order example: reserves stock, charges, ships.

Run it beside a server: `python examples/order/worker.py`. The handlers below are what is special about orders; the rest
(`runtime.py` and what it uses) serves any task and is yours to copy.
"""

import argparse
import asyncio
import logging
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import grpc

from runtime import Options, TaskContext, TaskError, Worker
from shop import OutOfStock, Shop

# Queues that order.yaml asks for.
QUEUES = ("default", "payments")
# No card pays more than this at once.
CARD_LIMIT_CENTS = 100_000_000
# Share of charges that fail when `ORDER_CHARGE_FAILURES` does not say otherwise.
CHARGE_FAILURE_SHARE = 0.25


class Orders:
    """The handlers, by contract."""

    def __init__(self, shop: Shop, charge_failures: str) -> None:
        """`charge_failures`: `random` (a quarter of the attempts), `never`, or a number N: the first N attempts of
        each charge fail."""
        self._shop = shop
        self._charge_failures = charge_failures
        self.handlers = {
            "stock.reserve@1": self.reserve,
            "payments.charge@1": self.charge,
            "shipping.send@1": self.send,
        }

    async def reserve(self, context: TaskContext, order: Any) -> Any:
        """Takes the items out of the stock."""
        # The books block, so they are asked in a thread: heartbeats must not wait for them.
        try:
            return await asyncio.to_thread(
                self._shop.reserve, context.idempotency_key, order["order_id"], order["items"]
            )
        except OutOfStock as error:
            raise TaskError("OUT_OF_STOCK", str(error), retryable=False) from error

    async def charge(self, context: TaskContext, order: Any) -> Any:
        """Takes the money. Now and then the bank does not answer: sometimes before the money moved, sometimes after."""
        if order["cents"] > CARD_LIMIT_CENTS:
            # The same card would refuse again, so no attempt is wasted on it.
            raise TaskError("CARD_DECLINED", "the card does not pay that much", retryable=False)
        fails = self._charge_fails(context)
        if fails and context.task.attempt % 2 == 1:
            raise TaskError("BANK_UNAVAILABLE", "the bank could not be reached")
        receipt = await asyncio.to_thread(self._shop.charge, context.idempotency_key, order["order_id"], order["cents"])
        if fails:
            # The money has moved and nobody knows. The next attempt has the same key, so it moves once.
            raise TaskError("BANK_UNAVAILABLE", "the bank's answer was lost")
        return receipt

    async def send(self, context: TaskContext, order: Any) -> Any:
        """Sends the parcel."""
        return await asyncio.to_thread(
            self._shop.ship, context.idempotency_key, order["order_id"], express=order["express"]
        )

    def _charge_fails(self, context: TaskContext) -> bool:
        if self._charge_failures == "random":
            return random.random() < CHARGE_FAILURE_SHARE
        return self._charge_failures != "never" and context.task.attempt <= int(self._charge_failures)


async def run(arguments: argparse.Namespace) -> int:
    """Works until a signal; returns the exit code."""
    orders = Orders(Shop(arguments.data), arguments.charge_failures)
    worker = Worker(
        orders.handlers,
        Options(
            server=arguments.server,
            worker_id=arguments.worker_id,
            queues=QUEUES,
            slots=arguments.slots,
            poll=arguments.poll,
            drain_seconds=arguments.drain_seconds,
        ),
    )
    loop = asyncio.get_running_loop()

    def stop() -> None:
        worker.stop()
        # A second Ctrl-C ends the process at once.
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        return 0 if await worker.run() else 1
    except grpc.aio.AioRpcError as error:
        print(f"error: the server refused this worker: {error.details()}", file=sys.stderr)
        return 1


def parse(arguments: list[str]) -> argparse.Namespace:
    """Reads the command line; the environment gives the defaults."""
    environment = os.environ
    parser = argparse.ArgumentParser(description="Does the tasks of the order example.")
    defaults = Options()
    parser.add_argument("--server", default=environment.get("ORBIT_SERVER", defaults.server), help="host:port")
    parser.add_argument(
        "--data", type=Path, default=environment.get("ORDER_DATA", "shop.db"), help="the shop's SQLite file"
    )
    parser.add_argument("--worker-id", default=defaults.worker_id, help="name of this worker, for people")
    parser.add_argument("--slots", type=int, default=defaults.slots, help="most tasks at once")
    parser.add_argument("--poll", action="store_true", help="fetch tasks by plain calls instead of a stream")
    parser.add_argument(
        "--drain-seconds", type=float, default=defaults.drain_seconds, help="time for running tasks after a signal"
    )
    parser.add_argument(
        "--charge-failures",
        default=environment.get("ORDER_CHARGE_FAILURES", "random"),
        metavar="random|never|N",
        help="which charges fail: a quarter of them, none, or the first N attempts of each",
    )
    parsed = parser.parse_args(arguments)
    if not 1 <= parsed.slots <= 10_000:
        parser.error("--slots is 1 to 10000")
    if parsed.charge_failures not in ("random", "never") and not parsed.charge_failures.isdigit():
        parser.error("--charge-failures is `random`, `never` or a number")
    return parsed


if __name__ == "__main__":
    # The worker says itself what happens to its connection, once; gRPC would repeat it in its own words.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", stream=sys.stderr)
    sys.exit(asyncio.run(run(parse(sys.argv[1:]))))
