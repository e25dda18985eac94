"""Breaks the rules on purpose, one at a time, and says which property of the random histories notices, and how soon.

Each mutation is put into a copy of the rules (`scripts/domain_crate.py`), and `decide::tests::property` alone runs on
it, from the first case on. Ends with 1 if one is not noticed within CASES cases.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import domain_crate

CASES = os.environ.get("CASES", "3000")
# As a check that nothing is noticed where nothing is wrong.
UNBROKEN_CASES = "200"
CARGO = os.environ.get("CARGO", "cargo")


@dataclass(frozen=True)
class Mutation:
    """A change that makes a rule wrong."""

    what: str
    file: str
    before: str
    after: str


MUTATIONS = [
    Mutation(
        "what ended first is undone first", "state/work.rs", "self.indexes.undo.last()", "self.indexes.undo.first()"
    ),
    Mutation(
        "undoing does not wait for what is out",
        "state/work.rs",
        "Phase::WindingDown if self.indexes.engaged > 0 || self.indexes.active.undo > 0",
        "Phase::WindingDown if self.indexes.active.undo > 0",
    ),
    Mutation(
        "a success counts for a unit that has ended",
        "decide/task.rs",
        "let resolved = resolved && !self.state.takes_late_success(key);",
        "let resolved = resolved && self.state.is_closed();",
    ),
    Mutation(
        "a lost delivery's outcome is taken for known",
        "state/evolve.rs",
        "        task.redelivery = true;\n        unit.unknown = true;",
        "        task.redelivery = true;",
    ),
    Mutation(
        "a signal is taken again when it comes again",
        "decide/send.rs",
        "match self.state.find_sender(sender) {",
        "match self.state.find_sender(sender).filter(|_| self.state.is_closed()) {",
    ),
    Mutation(
        "the child of an attempt that timed out is forgotten",
        "state/evolve.rs",
        "                    self.abandon_child(key);\n                }\n                self.change(key, |unit| {\n"
        "                    unit.status = match",
        "                }\n                self.change(key, |unit| {\n                    unit.status = match",
    ),
    Mutation(
        "a terminated child does not tell its parent",
        "state/effects.rs",
        "self.is_closed() && self.created.parent.is_some()",
        "self.is_closed() && self.phase != Phase::Terminated && self.created.parent.is_some()",
    ),
    Mutation(
        "steps begin while it is paused",
        "state/work.rs",
        "Phase::Running if self.is_held() => None,",
        "Phase::Running if self.is_delayed() => None,",
    ),
    Mutation(
        "more items run at once than may",
        "state/fan_out.rs",
        "parallel_max.is_none_or(|most| self.open < most)",
        "parallel_max.is_none_or(|most| self.open <= most)",
    ),
    Mutation(
        "one attempt too many", "decide/task.rs", "attempt >= policy.max_attempts", "attempt > policy.max_attempts"
    ),
    Mutation(
        "a retry keeps what was undone",
        "state/reopen.rs",
        "Status::Succeeded | Status::Skipped => unit.undone,",
        "Status::Succeeded | Status::Skipped => false,",
    ),
    Mutation(
        "a sleep is not woken from",
        "state/unit.rs",
        "Status::Sleeping { wake_time } => [unless_paused(Some((wake_time, Timer::Sleep))), None, None, None],",
        "Status::Sleeping { .. } => [None, None, None, None],",
    ),
]


def notice(folder: Path, cases: str = CASES) -> tuple[str, int] | None:
    """Runs the properties on what stands in the folder; which one failed, and in which case, from 1."""
    command = [CARGO, "test", "--quiet", "--offline", "--lib", "decide::tests::property::every_history"]
    environment = os.environ | {"CASES": cases, "RUST_BACKTRACE": "0"}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    output = result.stdout + result.stderr
    if result.returncode == 0:
        return None
    seed = re.search(r"failed with SEED=(\d+)", output)
    # The line after the one that says where.
    panic = re.search(r"panicked at [^\n]*\n([^\n]*)", output)
    if seed is None or panic is None:
        sys.exit(f"it does not build:\n{output[-4000:]}")
    says = panic[1].removeprefix("rule broken: ")
    return re.split(r": |\n", says)[0][:90], int(seed[1]) + 1


def main() -> int:
    """Prints the table."""
    folder = domain_crate.make(domain_crate.ROOT / "target" / "mutations")
    if (found := notice(folder, UNBROKEN_CASES)) is not None:
        print(f"The rules as they are break a property: {found}")
        return 1
    print("| mutation | file | noticed by | in case |\n| --- | --- | --- | --- |")
    missed = 0
    for mutation in MUTATIONS:
        path = folder / "src" / "domain" / mutation.file
        text = path.read_text()
        if text.count(mutation.before) != 1:
            sys.exit(f"{mutation.file} does not have this once: {mutation.before}")
        path.write_text(text.replace(mutation.before, mutation.after))
        found = notice(folder)
        path.write_text(text)
        missed += found is None
        by, case = found or ("**nothing**", f"> {CASES}")
        print(f"| {mutation.what} | `{mutation.file}` | {by} | {case} |", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
