"""The shop's books: whatever is asked twice with one key happens once."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shop import FIRST_STOCK, OutOfStock, Shop


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


def count(path: Path, query: str) -> int:
    connection = sqlite3.connect(path)
    number: int = connection.execute(query).fetchone()[0]
    connection.close()
    return number


def test_a_reservation_repeated_with_its_key_takes_the_stock_once(path: Path) -> None:
    shop = Shop(path)
    items: list[dict[str, Any]] = [{"sku": "lamp", "quantity": 2}, {"sku": "bulb"}]
    first = shop.reserve("k", "order-1", items)
    assert shop.reserve("k", "order-1", items) == first
    assert count(path, "SELECT available FROM stock WHERE sku = 'lamp'") == FIRST_STOCK - 2
    assert count(path, "SELECT available FROM stock WHERE sku = 'bulb'") == FIRST_STOCK - 1


def test_a_reservation_takes_all_items_or_none(path: Path) -> None:
    shop = Shop(path)
    with pytest.raises(OutOfStock, match="bulb"):
        shop.reserve("k", "order-1", [{"sku": "lamp"}, {"sku": "bulb", "quantity": FIRST_STOCK + 1}])
    assert count(path, "SELECT count(*) FROM done") == 0
    assert count(path, f"SELECT count(*) FROM stock WHERE available < {FIRST_STOCK}") == 0
    # The key is still free.
    assert shop.reserve("k", "order-1", [{"sku": "lamp"}])


def test_the_ledger_has_one_entry_for_a_key_whoever_charges_at_once(path: Path) -> None:
    Shop(path)
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda _: Shop(path).charge("k", "order-1", 1999)["receipt"], range(32)))
    assert len(set(receipts)) == 1
    assert count(path, "SELECT count(*) FROM ledger") == 1
    assert count(path, "SELECT cents FROM ledger") == 1999


def test_other_keys_are_other_charges(path: Path) -> None:
    shop = Shop(path)
    assert shop.charge("a", "order-1", 5) != shop.charge("b", "order-1", 5)
    assert count(path, "SELECT count(*) FROM ledger") == 2


def test_a_shipment_repeated_with_its_key_keeps_its_tracking_number(path: Path) -> None:
    shop = Shop(path)
    assert shop.ship("k", "order-1", express=False) == shop.ship("k", "order-1", express=False)
    assert shop.ship("x", "order-2", express=True)["tracking"].startswith("X-")
