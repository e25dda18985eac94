"""Lists the field cases that tests must cover: case, result, test. The arguments are files with the output of
`cargo test`, or of whatever reports its tests in the same form.

A field case is a fault that people met in systems like this one, reduced to a small scenario. A test that covers one
has its id in its name (`c013_a_late_success_counts`). Ends with 1 if a case has no test or a test failed.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

# The cases that the present features must pass, as numbers and ranges of odd numbers.
REQUIRED = "1-19 21-27 29-33 35-113 117-121 125-133 137-143 147 151-155"

# Those that must hold on two nodes, too: in a test whose path names them.
ON_TWO_NODES = "1-19 21-27 29-33 35 39 67-73"
TWO_NODES = "on_two_nodes"

# Those of the workflow language, which must hold on both databases: in tests whose paths name each.
ON_BOTH_STORES = "37 41-45 83-89 93-97 143 153 155"
STORES = ["sqlite", "postgres"]

# One line of `cargo test`, also with the time that some runners add.
LINE = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (\w+)", re.MULTILINE)
ID = re.compile(r"c(\d{3})(?=_)")


def main() -> int:
    results: dict[int, list[tuple[str, str]]] = defaultdict(list)
    text = "\n".join(Path(path).read_text() for path in sys.argv[1:])
    for name, result in LINE.findall(text):
        for number in ID.findall(name):
            results[int(number)].append((name, result))

    required = cases(REQUIRED)
    for number in sorted(required | set(results)):
        for name, result in results.get(number, [("no test", "MISSING")]):
            print(f"C{number:03}  {result:7}  {name}")
    missing = [number for number in required if number not in results]
    for number in sorted(cases(ON_TWO_NODES)):
        if not any(TWO_NODES in name for name, _ in results.get(number, [])):
            print(f"C{number:03}  MISSING  no test on two nodes")
            missing.append(number)
    for number in sorted(cases(ON_BOTH_STORES)):
        for store in STORES:
            if not any(store in name for name, _ in results.get(number, [])):
                print(f"C{number:03}  MISSING  no test on {store}")
                missing.append(number)
    failed = [name for tests in results.values() for name, result in tests if result != "ok"]
    print(f"{len(required)} cases asked for, {len(missing)} without a test, {len(failed)} failed")
    return 1 if missing or failed else 0


def cases(text: str) -> set[int]:
    """Reads the list above."""
    found: set[int] = set()
    for part in text.split():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1, 2))
    return found


if __name__ == "__main__":
    sys.exit(main())
