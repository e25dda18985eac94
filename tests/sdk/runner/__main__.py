"""Runs scenarios and prints the matrix: `python -m runner`, in `tests/sdk`."""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from runner import matrix
from runner.play import Outcome, Place, play
from runner.scenario import Scenario, load

SUITE = Path(__file__).resolve().parent.parent
ROOT = SUITE.parent.parent
LANGUAGES = ("go", "python", "typescript")
# Most of a scenario is waiting, so more of them than cores.
JOBS = 8


def main() -> int:
    """0 if everything passed, 1 if something failed, 2 if it could not be run."""
    options = _options()
    scenarios = [
        scenario
        for scenario in load(options.scenarios)
        if all(word in f"{scenario.chapter} {scenario.name}" for word in options.scenario)
    ]
    if not scenarios:
        print("no scenario has such a name", file=sys.stderr)
        return 2
    languages = options.language or [name for name in LANGUAGES if (options.drivers / name / "run").exists()]
    if not options.binary.exists():
        print(
            f"{options.binary} is not there: build it, or name another with --binary or ORBIT_BINARY", file=sys.stderr
        )
        return 2
    if not options.no_build and not all([_build(options.drivers / language) for language in languages]):
        return 2
    place = Place(options.binary.resolve(), options.drivers.resolve(), SUITE / "definitions", options.patience)
    outcomes = asyncio.run(_play_all(scenarios, languages, place, options.jobs, quiet=options.json))
    if options.json:
        print(matrix.as_json(outcomes))
    else:
        print(matrix.text(scenarios, languages, outcomes, colour=matrix.on_terminal()))
    if options.markdown:
        matrix.write(options.markdown, matrix.markdown(scenarios, languages, outcomes))
    if options.results:
        options.results.parent.mkdir(parents=True, exist_ok=True)
        options.results.write_text(matrix.results(outcomes), encoding="utf-8")
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m runner", description=__doc__)
    parser.add_argument("--language", action="append", help="only this one; may be repeated")
    parser.add_argument("--scenario", action="append", default=[], help="only those with this in chapter or name")
    parser.add_argument("--binary", type=Path, default=os.environ.get("ORBIT_BINARY", ROOT / "target/debug/orbit"))
    parser.add_argument("--drivers", type=Path, default=SUITE / "drivers", help="folder of the drivers")
    parser.add_argument("--scenarios", type=Path, default=SUITE / "scenarios", help="folder of the scenarios")
    parser.add_argument("--jobs", type=int, default=JOBS, help="how many at once")
    parser.add_argument("--patience", type=float, default=1.0, help="factor for the limits of all waits")
    parser.add_argument("--no-build", action="store_true", help="takes the drivers as they are")
    parser.add_argument("--json", action="store_true", help="prints JSON")
    parser.add_argument("--results", type=Path, help="also writes a line for each to this file, as `cargo test` does")
    parser.add_argument("--markdown", type=Path, help="also writes the matrix into this page, between its marks")
    return parser.parse_args()


def _build(driver: Path) -> bool:
    script = driver / "build"
    if not script.exists():
        return True
    built = subprocess.run([str(script.resolve())], cwd=ROOT, check=False, capture_output=True, text=True)
    if built.returncode != 0:
        print(f"{script} failed:\n{built.stdout}{built.stderr}", file=sys.stderr)
    return built.returncode == 0


async def _play_all(
    scenarios: Sequence[Scenario], languages: Sequence[str], place: Place, jobs: int, *, quiet: bool
) -> list[Outcome]:
    turns = asyncio.Semaphore(jobs)
    begin = time.monotonic()

    async def one(scenario: Scenario, language: str) -> Outcome:
        async with turns:
            outcome = await play(scenario, language, place)
        if not quiet and not outcome.passed:
            print(
                f"{time.monotonic() - begin:6.1f} s  FAILED  {language}: {scenario.name}", file=sys.stderr, flush=True
            )
        return outcome

    return list(await asyncio.gather(*(one(scenario, language) for scenario in scenarios for language in languages)))


if __name__ == "__main__":
    sys.exit(main())
