"""The shop's own books, in a small SQLite file: stock, ledger and shipments.

This stands for the systems that real handlers talk to. Each operation takes an idempotency key and happens once for
it: the key is looked up and the work is recorded in one transaction, so a task that is handed out again, or whose
report was lost, finds its own result and does nothing twice.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS stock (
    sku TEXT PRIMARY KEY,
    available INTEGER NOT NULL CHECK (available >= 0)
) STRICT;
CREATE TABLE IF NOT EXISTS done (
    idempotency_key TEXT PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('reservation', 'charge', 'shipment')),
    order_id TEXT NOT NULL,
    cents INTEGER,  -- of a charge
    result TEXT NOT NULL,  -- JSON, given again to whoever asks with the same key
    CHECK ((kind = 'charge') = (cents IS NOT NULL))
) STRICT;
CREATE VIEW IF NOT EXISTS ledger AS
    SELECT idempotency_key, order_id, cents, json_extract(result, '$.receipt') AS receipt
    FROM done WHERE kind = 'charge';
"""

# How many pieces there are of something that is asked for the first time.
FIRST_STOCK = 1_000_000
# How long to wait for another process that writes, in seconds.
BUSY_SECONDS = 10.0


class OutOfStock(Exception):
    """There is not enough of something. Nothing was reserved."""


class Shop:
    """The books. Every call opens the file for itself, so calls may come from any thread or process."""

    def __init__(self, path: Path) -> None:
        """Opens the books at `path` and makes them if they are not there."""
        self._path = path
        with closing(self._connect()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(SCHEMA)

    def reserve(self, key: str, order_id: str, items: list[dict[str, Any]]) -> dict[str, Any]:
        """Takes all items out of the stock, or raises `OutOfStock` and takes none."""

        def work(connection: sqlite3.Connection) -> dict[str, Any]:
            for item in items:
                sku, quantity = item["sku"], item.get("quantity", 1)
                connection.execute("INSERT OR IGNORE INTO stock VALUES (?, ?)", (sku, FIRST_STOCK))
                taken = connection.execute(
                    "UPDATE stock SET available = available - ? WHERE sku = ? AND available >= ?",
                    (quantity, sku, quantity),
                )
                if taken.rowcount == 0:
                    raise OutOfStock(f"there are not {quantity} of {sku}")
            return {"reservation": f"R-{key[:12]}"}

        return self._once(key, "reservation", order_id, None, work)

    def charge(self, key: str, order_id: str, cents: int) -> dict[str, Any]:
        """Writes one entry into the ledger."""
        return self._once(key, "charge", order_id, cents, lambda _: {"receipt": f"C-{key[:12]}"})

    def ship(self, key: str, order_id: str, *, express: bool) -> dict[str, Any]:
        """Sends the order off; the tracking number says how."""
        service = "X" if express else "T"
        return self._once(key, "shipment", order_id, None, lambda _: {"tracking": f"{service}-{key[:12]}"})

    def _once(
        self,
        key: str,
        kind: str,
        order_id: str,
        cents: int | None,
        work: Callable[[sqlite3.Connection], dict[str, Any]],
    ) -> dict[str, Any]:
        """Does the work and records it under its key, both or neither; a key that is there gives its result again."""
        with self._transaction() as connection:
            row = connection.execute("SELECT result FROM done WHERE idempotency_key = ?", (key,)).fetchone()
            if row is not None:
                before: dict[str, Any] = json.loads(row[0])
                return before
            result = work(connection)
            connection.execute(
                "INSERT INTO done VALUES (?, ?, ?, ?, ?)", (key, kind, order_id, cents, json.dumps(result))
            )
            return result

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(self._connect()) as connection:
            # IMMEDIATE: two processes with one key must not both look before one of them writes.
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def _connect(self) -> sqlite3.Connection:
        # `isolation_level=None`: transactions begin where the code says so.
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")
        return connection
