"""Makes a small crate of the rules alone: `src/domain` is pure, so it needs few crates and builds in seconds.

`python3 scripts/domain_crate.py DIR` writes it, with a copy of the sources, into DIR (default: target/domain-crate),
which is made anew but for its target folder. Tests run there as `cargo test`, or optimised as `cargo test --release`.
"""

import re
import shutil
import sys
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent

# What tests read beside the sources.
READ_BY_TESTS = ["docs", "examples/order"]

MANIFEST = """[package]
name = "orbit"
version = "0.1.0"
edition = "2024"
publish = false

[workspace]

[dependencies]
{dependencies}

[dev-dependencies]
{dev_dependencies}

[profile.dev]
debug = false
opt-level = 0
incremental = true

[profile.dev.package."*"]
opt-level = 2
debug = false

# For long runs: optimised, and with all assertions.
[profile.release]
opt-level = 2
debug = "line-tables-only"
debug-assertions = true
"""


def toml(value: object) -> str:
    """Writes what a dependency says."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + " }"
    return f'"{value}"'


def used(dependencies: dict[str, object], text: str) -> str:
    """Lines for those dependencies that the text names, and that are no modules of the rules' own."""
    own = {path.stem for path in (ROOT / "src" / "domain").rglob("*.rs")}
    names = [name for name in dependencies if re.search(rf"\b{name.replace('-', '_')}::", text) and name not in own]
    return "\n".join(f"{name} = {toml(dependencies[name])}" for name in names)


def make(folder: Path) -> Path:
    """Writes the crate; gives its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in folder.iterdir():
        if entry.name == "target":
            continue
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    shutil.copytree(ROOT / "src" / "domain", folder / "src" / "domain")
    (folder / "src" / "lib.rs").write_text("pub mod domain;\n")
    for name in READ_BY_TESTS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
        else:
            shutil.copy2(ROOT / name, folder / name)
    shutil.copy2(ROOT / "Cargo.lock", folder / "Cargo.lock")
    sources = "\n".join(path.read_text() for path in sorted((ROOT / "src" / "domain").rglob("*.rs")))
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    text = MANIFEST.format(
        dependencies=used(manifest["dependencies"], sources),
        dev_dependencies=used({"proptest": manifest["dev-dependencies"]["proptest"]}, sources),
    )
    (folder / "Cargo.toml").write_text(text)
    return folder


if __name__ == "__main__":
    print(make(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "target" / "domain-crate"))
