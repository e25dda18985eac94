"""Fixtures for pytest, there as soon as orbit-sdk is installed:

- `orbit_server`: a real server with an empty database, one for all tests that ask for it (`orbit.testing.Server`).
- `orbit_client`: a `SyncClient` for it. Tests with a loop of their own make
  `orbit.Client(address=orbit_server.address)`.
- `orbit_fake`: an in-memory fake for one test (`orbit.testing.Fake`).

Without a binary the tests that ask for a server are skipped, unless `ORBIT_BINARY` names one that is not there.
"""

import os
from collections.abc import Iterator

import pytest

# Nothing else of the SDK is imported until a fixture is used: whoever has it installed pays nothing for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from orbit.sync import SyncClient
    from orbit.testing import Fake, Server


@pytest.fixture(scope="session")
def orbit_server() -> "Iterator[Server]":
    """A server for all tests of the session; its database was empty at the first of them."""
    from orbit.testing import Server, ServerError

    try:
        server = Server()
    except ServerError as error:
        if os.environ.get("ORBIT_BINARY"):
            raise
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture
def orbit_client(orbit_server: "Server") -> "Iterator[SyncClient]":
    """A client for `orbit_server`."""
    from orbit.sync import SyncClient

    with SyncClient(address=orbit_server.address) as client:
        yield client


@pytest.fixture
def orbit_fake() -> "Fake":
    """A fake in this process, without executions."""
    from orbit.testing import Fake

    return Fake()
