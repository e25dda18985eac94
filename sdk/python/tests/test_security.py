"""Encrypted connections, certificates of both sides, and keys."""

import shutil
import subprocess
from pathlib import Path

import pytest

import orbit
from fake_server import FakeServer
from harness import echo, run, until, working


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder with an authority (`ca.pem`), a server's and a caller's certificate with their keys."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not here")

    def make(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=tmp_path, check=True, capture_output=True)

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    make(*new, "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", "-days", "2")
    (tmp_path / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    for name in ("server", "caller"):
        make(*new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        make("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)
    return tmp_path


def secure_server(certificates: Path) -> FakeServer:
    server = FakeServer()
    files = ("server.key", "server.pem", "ca.pem")
    key, certificate, signer = ((certificates / name).read_bytes() for name in files)
    server.tls = (key, certificate, signer)
    return server


def test_a_worker_shows_certificate_and_key_on_an_encrypted_connection(certificates: Path) -> None:
    async def test() -> None:
        server = secure_server(certificates)
        await server.start()
        config = orbit.Config(
            address=f"https://{server.address}",
            api_key="secret",
            tls_ca=str(certificates / "ca.pem"),
            tls_cert=str(certificates / "caller.pem"),
            tls_key=str(certificates / "caller.key"),
        )
        async with working({"echo@1": echo}, server, config=config) as it:
            server.give("t", "echo@1", "1")
            await until(lambda: "t" in it.server.reports)
            assert server.authorizations == {"Bearer secret"}

    run(test())


def test_a_server_that_nobody_vouches_for_gets_nothing(certificates: Path) -> None:
    async def test() -> None:
        server = secure_server(certificates)
        await server.start()
        async with orbit.Client(address=f"https://{server.address}", api_key="secret", timeout=1.0) as client:
            with pytest.raises(orbit.Unavailable):
                await client.server_info()
        assert server.authorizations == set()
        await server.crash()

    run(test())


def test_files_that_are_not_there_are_told_at_once() -> None:
    async def test() -> None:
        worker = orbit.Worker(address="https://localhost:1", tls_ca="/nowhere/ca.pem")
        worker.add(echo, "echo@1")
        with pytest.raises(FileNotFoundError, match=r"ca\.pem"):
            await worker.run()

    run(test())
