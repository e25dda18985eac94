"""A real server for tests: the binary on a free port with an empty database of its own."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

# How long a server may take until it is ready, and until it has stopped, in seconds.
START_SECONDS = 30.0
STOP_SECONDS = 15.0


class ServerError(RuntimeError):
    """The server could not be found or started; the text has the end of what it printed."""


def find_binary(binary: str | os.PathLike[str] | None = None) -> Path:
    """The program: the argument, else `ORBIT_BINARY`, else `orbit` on the path, else what a checkout of the repository
    around the present folder has built. Raises `ServerError` if there is none."""
    if named := binary or os.environ.get("ORBIT_BINARY"):
        path = Path(named)
        if not path.is_file():
            raise ServerError(f"there is no program {path}")
        return path.resolve()
    if found := shutil.which("orbit"):
        return Path(found)
    for folder in (Path.cwd(), *Path.cwd().parents, *Path(__file__).resolve().parents):
        for profile in ("release", "debug"):
            if (path := folder / "target" / profile / "orbit").is_file():
                return path
    raise ServerError("no orbit program was found: put it on the PATH, or name it in ORBIT_BINARY")


class Server:
    """A server process: `with Server() as server: Client(address=server.address)`.

    The database is SQLite in a temporary folder, which goes with it; `stop` or `kill`, then `start`, keep both database
    and port.
    """

    def __init__(self, *, binary: str | os.PathLike[str] | None = None, arguments: Sequence[str] = ()) -> None:
        """`arguments` are added to `orbit server`. Raises `ServerError` if there is no program."""
        self._binary = find_binary(binary)
        self._arguments = list(arguments)
        self._folder = Path(tempfile.mkdtemp(prefix="orbit-test."))
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where it listens: `http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Id of its process. Raises `ServerError` while it is stopped."""
        if self._process is None:
            raise ServerError("the server does not run")
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has printed."""
        file = self._folder / "server.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def start(self) -> None:
        """Starts it and waits until it is ready. Raises `ServerError` if it ends instead, or takes longer than 30 s."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._binary),
                    "server",
                    "--db",
                    str(self._folder / "orbit.db"),
                    "--listen",
                    f"127.0.0.1:{self._port}",
                    *self._arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # What configures another server on this machine is none of this one's business.
                env={name: value for name, value in os.environ.items() if not name.startswith("ORBIT_")},
                # Ctrl-C is for whoever runs the tests.
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise ServerError(f"the server did not start:\n{self.log[-2000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stops it in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once, as a crash does."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Ends it and removes its folder."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/readyz", timeout=2) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def __enter__(self) -> "Server":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
