"""The README's code, as a new user runs it: copied into an empty folder, beside a server."""

import os
import re
import subprocess
import sys
from pathlib import Path

from orbit.testing import Server

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def test_the_readme_works_as_it_stands(tmp_path: Path, orbit_server: Server) -> None:
    worker, caller, sync_caller, tests = blocks("python")
    (tmp_path / "greet.yaml").write_text(blocks("yaml")[0])
    for name, text in {"worker": worker, "caller": caller, "sync_caller": sync_caller, "test_greet": tests}.items():
        (tmp_path / f"{name}.py").write_text(text)
    environment = {**os.environ, "ORBIT_ADDRESS": orbit_server.address, "GRPC_VERBOSITY": "NONE"}
    environment.pop("ORBIT_CONFIG", None)

    def python(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=90
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with (tmp_path / "worker.log").open("w") as log:
        process = subprocess.Popen([sys.executable, "worker.py"], cwd=tmp_path, env=environment, stderr=log)
    try:
        assert python("caller.py") == "Hello Ada\n"
        lines = python("sync_caller.py").splitlines()
        assert lines[0] == "1 execution_created"
        assert lines[-2].endswith("execution_succeeded")
        assert lines[-1] == "EXECUTION_NOT_FOUND"
        assert "3 passed" in python("-m", "pytest", "-q", "test_greet.py")
    finally:
        process.terminate()
        assert process.wait(30) == 0
    lines = (tmp_path / "worker.log").read_text().splitlines()
    assert any("[greet-ada hello #1] greeting Ada" in line for line in lines)
    assert lines[-1].endswith(" s: 0 reported, 0 given back, 0 not reported")
