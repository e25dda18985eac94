"""Checks the crates that the program is built from: licences, where they come from, and no second version of a few.

Reads `cargo metadata --locked`, so it needs no network beyond what a build needs.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from typing import Any

# Licences that let anybody use the program, also inside products that are sold.
ALLOWED = {
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}
# Two versions of one of these would not know each other's types, or would be two runtimes in one process.
ONCE = {
    "axum",
    "bytes",
    "h2",
    "http",
    "hyper",
    "prost",
    "prost-types",
    "rustls",
    "serde_json",
    "sqlx-core",
    "tokio",
    "tonic",
}


def main() -> int:
    packages = crates()
    faults = [fault for package in packages for fault in judge(package)]
    for name, count in Counter(package["name"] for package in packages).items():
        if name in ONCE and count > 1:
            faults.append(f"{name}: {count} versions; one is needed")
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(packages)} crates, {len(faults)} faults")
    return 1 if faults else 0


def crates() -> list[dict[str, Any]]:
    """All crates of a build for Linux, ours and what it needs."""
    command = [
        "cargo",
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
        "x86_64-unknown-linux-gnu",
    ]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    used = {node["id"] for node in metadata["resolve"]["nodes"]}
    return [package for package in metadata["packages"] if package["id"] in used]


def judge(package: dict[str, Any]) -> list[str]:
    """What is wrong with one crate."""
    name = f"{package['name']} {package['version']}"
    faults = []
    # Ours has no source. Anything else must come from the crate registry, where a version's content cannot change.
    if package["source"] is not None and not package["source"].startswith("registry+"):
        faults.append(f"{name}: comes from {package['source']}, not from the crate registry")
    if not allowed(package["license"] or ""):
        faults.append(f"{name}: licence {package['license']!r} is not in the list of scripts/check_crates.py")
    return faults


def allowed(expression: str) -> bool:
    """Whether an SPDX expression can be met: `OR` (also written `/`) needs one side, `AND` both."""
    expression = expression.strip()
    inner = re.fullmatch(r"\(([^()]*)\)(.*)", expression)
    if inner and inner[2].lstrip().startswith("AND"):
        return allowed(inner[1]) and allowed(inner[2].lstrip().removeprefix("AND"))
    if " AND " in expression:
        return all(allowed(part) for part in expression.split(" AND "))
    return any(part.strip() in ALLOWED for part in re.split(r" OR |/", expression.strip("()")))


if __name__ == "__main__":
    sys.exit(main())
