"""Makes the stubs under sdk/ from proto/, in every language; with --check, only compares them.

One run of buf with proto/buf.gen.yaml makes the code of all languages, each in a folder of its own. `LANGUAGES` says
where each belongs and what is still done to it; a new language is a plugin there and a line here.

Runs in .venv-generate (scripts/requirements-generate.txt), which `make generate` sets up with the other generators:
buf is taken from .venv, the Go plugins from .tools/bin (scripts/tools/go.mod), the one for TypeScript from its
node_modules.
"""

import argparse
import filecmp
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
BUF = ROOT / ".venv/bin/buf"
# Where the plugins of buf.gen.yaml are looked up: beside the Python that runs this, then among the tools of the others.
PLUGINS = (Path(sys.executable).parent, ROOT / ".tools/bin", ROOT / "sdk/typescript/node_modules/.bin")

# A module of ours wherever it is named: an import, a qualified name or the text that names the module.
MODULE = re.compile(r"\borbit\.((?:\w+\.)*)(\w+_pb2)\b")
# `from orbit.workflow.v1 import task_pb2`: the module's package, apart from its name.
FROM = re.compile(r"^from orbit\.([\w.]+) import (\w+_pb2)", re.MULTILINE)


@dataclass
class Language:
    """Stubs of one language."""

    # Folder that buf.gen.yaml writes to.
    out: str
    # Folder in the repository that holds these stubs and nothing else.
    target: str
    # Finishes what buf made in the folder `out` and returns the folder that `target` must equal.
    finish: Callable[[Path], Path]


def python(folder: Path) -> Path:
    """Adds the services, and renames the package `orbit` to `orbit_api`, since `orbit` is the name of the SDK.

    Only module names change, never a name on the wire. Each folder gets an `__init__.py`, and the package `py.typed`.
    """
    services = sorted(str(file.relative_to(PROTO)) for file in PROTO.glob("orbit/**/*_service.proto"))
    run([sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", f"--grpc_python_out={folder}", *services])

    package = (folder / "orbit").rename(folder / "orbit_api")
    for file in package.rglob("*.py*"):
        if file.name.endswith("_pb2_grpc.pyi") and not file.with_suffix(".py").exists():
            file.unlink()  # Types of a file without services: there is nothing that they would describe.
            continue
        text = FROM.sub(r"from orbit_api.\1 import \2", file.read_text())
        file.write_text(MODULE.sub(r"orbit_api.\1\2", text))
    for inner in (package, *(path for path in package.rglob("*") if path.is_dir())):
        (inner / "__init__.py").write_text('"""Generated from proto/ by scripts/generate.py. Do not edit."""\n')
    (package / "py.typed").touch()
    return package


def as_made(folder: Path) -> Path:
    """Leaves everything as the plugins made it."""
    return folder


LANGUAGES = (
    Language("python", "sdk/python/gen/orbit_api", python),
    Language("go", "sdk/go/gen", as_made),
    Language("typescript", "sdk/typescript/gen/src", as_made),
)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--check", action="store_true", help="compare with the committed stubs and write nothing")
    check = arguments.parse_args().check
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        for language in LANGUAGES:
            made, target = language.finish(Path(folder) / language.out), ROOT / language.target
            if check:
                faults += differences(made, target)
                continue
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(made, target)
    for fault in faults:
        print(f"{fault}: not what the protos give; run `make generate`", file=sys.stderr)
    return 1 if faults else 0


def generate(folder: Path) -> None:
    """Runs the plugins of every language. Imported protos that are not ours are not generated."""
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
        ]
    )


def run(command: list[str]) -> None:
    """Runs a generator; shows what it printed only if it failed."""
    path = os.pathsep.join([*map(str, PLUGINS), os.environ["PATH"]])
    done = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, cwd=ROOT)
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
