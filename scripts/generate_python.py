"""Makes the Python stubs in sdk/python/gen/orbit_api from proto/; with --check, only compares them.

Messages and types come from buf and proto/buf.gen.yaml, services from grpc_tools. Two things are then changed:

- The protos' package `orbit` becomes the Python package `orbit_api`, since `orbit` is the name of the SDK. Only module
  names change, never a name on the wire.
- Each folder gets an `__init__.py`, and the package `py.typed`.

Runs in .venv-generate (scripts/requirements-generate.txt), which `make generate` sets up; buf is taken from .venv.
"""

import argparse
import filecmp
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
TARGET = ROOT / "sdk/python/gen/orbit_api"
BUF = ROOT / ".venv/bin/buf"

# A module of ours wherever it is named: an import, a qualified name or the text that names the module.
MODULE = re.compile(r"\borbit\.((?:\w+\.)*)(\w+_pb2)\b")
# `from orbit.workflow.v1 import task_pb2`: the module's package, apart from its name.
FROM = re.compile(r"^from orbit\.([\w.]+) import (\w+_pb2)", re.MULTILINE)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--check", action="store_true", help="compare with the committed stubs and write nothing")
    check = arguments.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        made = generate(Path(folder))
        if check:
            faults = differences(made, TARGET)
            for fault in faults:
                print(f"{fault}: not what the protos give; run `make generate`", file=sys.stderr)
            return 1 if faults else 0
        shutil.rmtree(TARGET, ignore_errors=True)
        shutil.copytree(made, TARGET)
    return 0


def generate(folder: Path) -> Path:
    """Generates into `folder` and returns the finished package."""
    # The plugins of buf.gen.yaml are looked up on the path: those of the Python that runs this.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run(
        [
            str(BUF),
            "generate",
            str(PROTO),
            "--path",
            str(PROTO / "orbit"),
            "--template",
            str(PROTO / "buf.gen.yaml"),
            "--output",
            str(folder),
        ],
        {**os.environ, "PATH": path},
    )
    services = sorted(str(file.relative_to(PROTO)) for file in PROTO.glob("orbit/**/*_service.proto"))
    run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", f"--grpc_python_out={folder / 'python'}", *services],
        dict(os.environ),
    )

    package = (folder / "python/orbit").rename(folder / "orbit_api")
    for file in package.rglob("*.py*"):
        if file.name.endswith("_pb2_grpc.pyi") and not file.with_suffix(".py").exists():
            file.unlink()  # Types of a file without services: there is nothing that they would describe.
            continue
        text = FROM.sub(r"from orbit_api.\1 import \2", file.read_text())
        file.write_text(MODULE.sub(r"orbit_api.\1\2", text))
    for inner in (package, *(path for path in package.rglob("*") if path.is_dir())):
        (inner / "__init__.py").write_text('"""Generated from proto/ by scripts/generate_python.py. Do not edit."""\n')
    (package / "py.typed").touch()
    return package


def run(command: list[str], environment: dict[str, str]) -> None:
    """Runs a generator; shows what it printed only if it failed."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def differences(made: Path, committed: Path) -> list[str]:
    """Names the files that are missing, left over or different."""

    def files(folder: Path) -> set[Path]:
        return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}

    names = files(made) | files(committed)
    same, _, _ = filecmp.cmpfiles(made, committed, [str(name) for name in names], shallow=False)
    return sorted(str((committed / name).relative_to(ROOT)) for name in names if str(name) not in same)


if __name__ == "__main__":
    sys.exit(main())
