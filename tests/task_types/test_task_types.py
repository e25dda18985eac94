"""What `orbit generate task-types` writes compiles in each language; with a renamed field a worker no longer does."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BINARY = Path(os.environ.get("ORBIT_BINARY", ROOT / "target/debug/orbit"))
NODE_MODULES = ROOT / "sdk/typescript/node_modules"

pytestmark = pytest.mark.skipif(not BINARY.exists(), reason="the server is not built")


def generate(language: str, out: Path, definition: str) -> None:
    """Writes the types of a definition's text."""
    source = out.parent / "shop.yaml"
    source.write_text(definition, encoding="utf-8")
    options = ["--language", language, "--package", "main", "--out", str(out)]
    subprocess.run([BINARY, "generate", "task-types", *options, str(source)], check=True)


def run(*command: "str | Path", folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a tool and keeps what it says."""
    return subprocess.run([*map(str, command)], cwd=folder, check=False, capture_output=True, text=True)


def passes(result: subprocess.CompletedProcess[str]) -> None:
    assert result.returncode == 0, result.stdout + result.stderr


def fails(result: subprocess.CompletedProcess[str], name: str) -> None:
    assert result.returncode != 0
    assert name in result.stdout + result.stderr


@pytest.fixture
def shop() -> str:
    return (HERE / "shop.yaml").read_text(encoding="utf-8")


@pytest.fixture
def renamed(shop: str) -> str:
    """The same with another name for one field of the task's input."""
    return (
        shop.replace("required: [order_id, cents", "required: [number, cents")
        .replace("order_id: {type: string, description", "number: {type: string, description")
        .replace("      order_id: ${ input.order_id }", "      number: ${ input.order_id }")
    )


@pytest.mark.skipif(shutil.which("go") is None, reason="needs Go")
def test_go_types_compile_and_a_renamed_field_does_not(tmp_path: Path, shop: str, renamed: str) -> None:
    sdk = ROOT / "sdk/go"
    module = (sdk / "go.mod").read_text().replace("module orbit.example/sdk/go", "module example.test/shop")
    module += f"\nrequire orbit.example/sdk/go v0.0.0\n\nreplace orbit.example/sdk/go => {sdk}\n"
    (tmp_path / "go.mod").write_text(module)
    shutil.copy(sdk / "go.sum", tmp_path)
    shutil.copy(HERE / "worker.go.txt", tmp_path / "worker.go")
    generate("go", tmp_path / "contracts.go", shop)
    passes(run("go", "vet", "-mod=mod", ".", folder=tmp_path))
    assert run("gofmt", "-l", ".", folder=tmp_path).stdout == "", "it is formatted as gofmt would"
    generate("go", tmp_path / "contracts.go", renamed)
    fails(run("go", "vet", "-mod=mod", ".", folder=tmp_path), "OrderID")


def test_python_types_check_and_run_and_a_renamed_field_does_not(tmp_path: Path, shop: str, renamed: str) -> None:
    tools = Path(sys.executable).parent
    shutil.copy(HERE / "worker.py.txt", tmp_path / "worker.py")
    generate("python", tmp_path / "contracts.py", shop)
    check = (tools / "mypy", "--strict", "--config-file=", "contracts.py", "worker.py")
    passes(run(*check, folder=tmp_path))
    rules = ("--isolated", "--target-version", "py310", "--select", "E4,E7,E9,F,UP")
    passes(run(tools / "ruff", "check", *rules, "contracts.py", folder=tmp_path))
    passes(run(sys.executable, "worker.py", folder=tmp_path))
    generate("python", tmp_path / "contracts.py", renamed)
    fails(run(*check, folder=tmp_path), "order_id")


@pytest.mark.skipif(not (NODE_MODULES / "@orbit/sdk/dist").exists(), reason="the TypeScript SDK is not built")
def test_typescript_types_compile_and_a_renamed_field_does_not(tmp_path: Path, shop: str, renamed: str) -> None:
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    shutil.copy(HERE / "worker.ts.txt", tmp_path / "worker.ts")
    generate("typescript", tmp_path / "contracts.ts", shop)
    options = (
        "--strict --noEmit --exactOptionalPropertyTypes --noUncheckedIndexedAccess --module nodenext --target es2022"
    )
    check: list[str | Path] = [NODE_MODULES / ".bin/tsc", *options.split(), "--types", "node", "worker.ts"]
    passes(run(*check, folder=tmp_path))
    generate("typescript", tmp_path / "contracts.ts", renamed)
    fails(run(*check, folder=tmp_path), "order_id")
