"""The worker of the order example: reserves stock, charges, ships.

Run it beside a server: `python examples/order/worker.py`. What a worker needs for any tasks is in the SDK (`orbit`);
here are only the handlers of this shop, and its command line.
"""

import argparse
import asyncio
import logging
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import orbit
from orbit import PermanentError, RetryableError, TaskContext
from shop import OutOfStock, Shop

# Queues that order.yaml asks for.
QUEUES = ("default", "payments")
# No card pays more than this at once.
CARD_LIMIT_CENTS = 100_000_000
# Share of charges that fail when `ORDER_CHARGE_FAILURES` does not say otherwise.
CHARGE_FAILURE_SHARE = 0.25


@dataclass
class Order:
    """What is reserved: input of `stock.reserve@1`."""

    order_id: str
    items: list[dict[str, Any]]


@dataclass
class Charge:
    """What is paid: input of `payments.charge@1`."""

    order_id: str
    cents: int


@dataclass
class Parcel:
    """What is sent: input of `shipping.send@1`."""

    order_id: str
    reservation: str
    express: bool


class Reservation(TypedDict):
    """Output of `stock.reserve@1`."""

    reservation: str


class Receipt(TypedDict):
    """Output of `payments.charge@1`."""

    receipt: str


class Shipment(TypedDict):
    """Output of `shipping.send@1`."""

    tracking: str


class Orders:
    """The handlers. The books block, so these are plain functions, which run in threads."""

    def __init__(self, shop: Shop, charge_failures: str) -> None:
        """`charge_failures`: `random` (a quarter of the attempts), `never`, or a number N: the first N attempts of
        each charge fail."""
        self._shop = shop
        self._charge_failures = charge_failures

    @property
    def tasks(self) -> list[Callable[..., Any]]:
        """For a worker."""
        return [self.reserve, self.charge, self.send]

    @orbit.task("stock.reserve@1")
    def reserve(self, order: Order, context: TaskContext) -> Reservation:
        """Takes the items out of the stock."""
        try:
            reserved = self._shop.reserve(context.idempotency_key, order.order_id, order.items)
        except OutOfStock as error:
            raise PermanentError(str(error), code="OUT_OF_STOCK") from error
        context.log.info("done: %s", reserved["reservation"])
        return Reservation(reservation=reserved["reservation"])

    @orbit.task("payments.charge@1")
    def charge(self, charge: Charge, context: TaskContext) -> Receipt:
        """Takes the money. Now and then the bank does not answer: sometimes before the money moved, sometimes after."""
        if charge.cents > CARD_LIMIT_CENTS:
            # The same card would refuse again, so no attempt is wasted on it.
            raise PermanentError("the card does not pay that much", code="CARD_DECLINED")
        fails = self._charge_fails(context)
        if fails and context.attempt % 2 == 1:
            raise RetryableError("the bank could not be reached", code="BANK_UNAVAILABLE")
        receipt = self._shop.charge(context.idempotency_key, charge.order_id, charge.cents)
        if fails:
            # The money has moved and nobody knows. The next attempt has the same key, so it moves once.
            raise RetryableError("the bank's answer was lost", code="BANK_UNAVAILABLE")
        context.log.info("done: %s", receipt["receipt"])
        return Receipt(receipt=receipt["receipt"])

    @orbit.task("shipping.send@1")
    def send(self, parcel: Parcel, context: TaskContext) -> Shipment:
        """Sends the parcel."""
        shipment = self._shop.ship(context.idempotency_key, parcel.order_id, express=parcel.express)
        context.log.info("done: %s", shipment["tracking"])
        return Shipment(tracking=shipment["tracking"])

    def _charge_fails(self, context: TaskContext) -> bool:
        if self._charge_failures == "random":
            return random.random() < CHARGE_FAILURE_SHARE
        return self._charge_failures != "never" and context.attempt <= int(self._charge_failures)


def run(arguments: argparse.Namespace) -> int:
    """Works until a signal; returns the exit code."""
    try:
        worker = orbit.Worker(
            Orders(Shop(arguments.data), arguments.charge_failures).tasks,
            address=arguments.server,
            worker_id=arguments.worker_id,
            queues=QUEUES,
            slots=arguments.slots,
            mode="poll" if arguments.poll else "auto",
            drain_timeout=arguments.drain_seconds,
        )
        return 0 if asyncio.run(worker.run()) else 1
    except orbit.OrbitError as error:
        print(f"error: the server refused this worker: {error}", file=sys.stderr)
    except orbit.ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
    return 1


def parse(arguments: list[str]) -> argparse.Namespace:
    """Reads the command line; where nothing is said about the server, the SDK asks the environment."""
    environment = os.environ
    parser = argparse.ArgumentParser(description="Does the tasks of the order example.")
    parser.add_argument("--server", help="address of the server, http://localhost:7070 unless ORBIT_ADDRESS says more")
    parser.add_argument(
        "--data", type=Path, default=environment.get("ORDER_DATA", "shop.db"), help="the shop's SQLite file"
    )
    parser.add_argument("--worker-id", help="name of this worker, for people")
    parser.add_argument("--slots", type=int, default=8, help="most tasks at once")
    parser.add_argument("--poll", action="store_true", help="fetch tasks by plain calls instead of a stream")
    parser.add_argument("--drain-seconds", type=float, default=20.0, help="time for running tasks after a signal")
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
    sys.exit(run(parse(sys.argv[1:])))
