"""The table of client methods in docs/sdks.md against the protos and the sources of the SDKs."""

import re
from pathlib import Path

import pytest
from orbit_api.admin.v1 import admin_service_pb2
from orbit_api.schedule.v1 import schedule_service_pb2

import orbit

ROOT = Path(__file__).resolve().parents[3]


def table() -> list[list[list[str]]]:
    """The rows: for each of its cells the names in it."""
    section = (ROOT / "docs/sdks.md").read_text(encoding="utf-8").split("## What the clients have")[1].split("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| `")]
    return [[re.findall(r"`([^`]+)`", cell) for cell in row] for row in rows]


def names(column: int) -> list[str]:
    return [name for row in table() for name in row[column]]


def test_every_call_has_its_row() -> None:
    services = [
        admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"],
        schedule_service_pb2.DESCRIPTOR.services_by_name["ScheduleService"],
    ]
    assert sorted(names(0)) == sorted(method.name for service in services for method in service.methods)
    assert all(row[1] and row[2] and row[3] for row in table())


def test_go_has_what_the_table_says() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "sdk/go").glob("*.go"))
    there = {f"{kind}.{name}" for kind, name in re.findall(r"^func \(\w+ \*?(\w+)\) (\w+)\(", source, re.MULTILINE)}
    assert set(names(1)) <= there


@pytest.mark.parametrize("sync", ["", "Sync"])
def test_python_has_what_the_table_says(sync: str) -> None:
    for name in names(2):
        kind, method = name.split(".")
        assert callable(getattr(getattr(orbit, sync + kind), method, None)), name


def test_typescript_has_what_the_table_says() -> None:
    there = set()
    for path in (ROOT / "sdk/typescript/sdk/src").glob("*.ts"):
        kind = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if found := re.match(r"export class (\w+)", line):
                kind = found[1]
            elif found := re.match(r"  (?:async )?\*?(\w+)[<(]", line):
                there.add(f"{kind}.{found[1]}")
    assert set(names(3)) <= there
