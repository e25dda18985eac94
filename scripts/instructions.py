#!/usr/bin/env python3
"""Counts the instructions of the parts of a step and compares them with benches/instructions.txt.

    scripts/instructions.py            compare: ends with 1 if a part needs over 10 % more than the file says
    scripts/instructions.py --record   write the file

A count is the same whatever else the machine does, so it shows what a clock on a busy machine cannot. Each part runs
under callgrind twice, with different numbers of times, and the difference is divided: start and end of the program drop
out.
Needs valgrind; the counts belong to one target architecture and one compiler, which the file names.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "benches/instructions.txt"

# Part -> times, few enough to take seconds under callgrind.
PARTS = {"decide": 40, "evolve": 40, "encode": 40, "decode": 40, "expression": 400, "schema": 400, "commit": 40}

# More than this above the recorded count fails; so much below asks to record anew.
TOLERANCE = 0.10


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--record", action="store_true", help="write benches/instructions.txt")
    record = arguments.parse_args().record
    program = build()
    counts = {part: per_time(program, part, times) for part, times in PARTS.items()}
    if record:
        FILE.write_text(render(counts))
        print(FILE.read_text(), end="")
        return 0
    return compare(counts, read())


def build() -> str:
    """Builds the benchmark and returns the path of its program."""
    command = ["cargo", "bench", "--locked", "--bench", "parts", "--no-run", "--message-format=json"]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    for line in lines:
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "parts":
            return str(message["executable"])
    raise SystemExit("cargo named no program for the benchmark `parts`")


def per_time(program: str, part: str, times: int) -> int:
    """Instructions of doing a part once."""
    few, many = (instructions(program, part, number) for number in (times // 4, times))
    return round((many - few) / (times - times // 4))


def instructions(program: str, part: str, times: int) -> int:
    """Instructions of the whole program, all threads together."""
    with tempfile.TemporaryDirectory() as folder:
        output = f"{folder}/callgrind.out"
        tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={output}", "--error-exitcode=99"]
        run = subprocess.run(
            [*tool, program, "--count", part, str(times)],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "RUST_BACKTRACE": "0"},
        )
        if run.returncode != 0:
            raise SystemExit(f"{part}: {run.stderr}")
        for line in Path(output).read_text().splitlines():
            if line.startswith(("summary:", "totals:")):
                return int(line.split()[1])
    raise SystemExit(f"{part}: callgrind wrote no total")


def machine() -> str:
    """What the counts belong to."""
    rustc = subprocess.run(["rustc", "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()[1]
    return f"{platform.machine()}, rustc {rustc}"


def render(counts: dict[str, int]) -> str:
    lines = [
        "# Instructions of each part, once: see benches/parts. `make record-instructions` writes this file.",
        f"# {machine()}",
    ]
    return "\n".join(lines + [f"{part:<12}{count:>10}" for part, count in counts.items()]) + "\n"


def read() -> dict[str, int]:
    rows = [line.split() for line in FILE.read_text().splitlines() if not line.startswith("#")]
    return {part: int(count) for part, count in rows}


def compare(counts: dict[str, int], recorded: dict[str, int]) -> int:
    worse = False
    for part, count in counts.items():
        change = count / recorded[part] - 1
        verdict = "ok"
        if change > TOLERANCE:
            verdict, worse = "MORE than 10 %", True
        elif change < -TOLERANCE:
            verdict = "less: run `make record-instructions`"
        print(f"{part:<12}{count:>10}  was {recorded[part]:>10}  {change:+7.1%}  {verdict}")
    if worse and f"# {machine()}" not in FILE.read_text():
        print(f"the file was recorded elsewhere; this is {machine()}: nothing follows from it")
        return 0
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
