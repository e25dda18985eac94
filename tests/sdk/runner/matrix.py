"""The matrix: which scenario holds in which language. For terminals, as JSON, and for the documentation."""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from runner.play import Outcome
from runner.scenario import FAULTS, Scenario

NAMES = {"go": "Go", "python": "Python", "typescript": "TypeScript"}


def text(scenarios: Sequence[Scenario], languages: Sequence[str], outcomes: Iterable[Outcome], *, colour: bool) -> str:
    """A line for each scenario, a column for each language, then each failure with what there is to know."""
    cells = {(outcome.scenario.name, outcome.language): outcome for outcome in outcomes}
    lines: list[str] = []
    width = max((len(scenario.name) for scenario in scenarios), default=0)
    chapter = ""
    for scenario in scenarios:
        if scenario.chapter != chapter:
            chapter = scenario.chapter
            header = "  ".join(f"{NAMES.get(language, language):>12}" for language in languages)
            lines += ["", f"{chapter:{width}}  {header}"]
        row = "  ".join(_cell(cells.get((scenario.name, language)), colour) for language in languages)
        lines.append(f"{scenario.name:{width}}  {row}")
    failed = [outcome for outcome in cells.values() if not outcome.passed]
    for outcome in failed:
        title = f"{NAMES.get(outcome.language, outcome.language)}: {outcome.scenario.name}"
        lines += ["", _paint(title, 31, colour), f"  {outcome.problem}"]
        lines += [f"    {line}" for line in outcome.trail]
    lines += ["", f"{len(cells)} played, {len(failed)} failed"]
    return "\n".join(lines)


def as_json(outcomes: Iterable[Outcome]) -> str:
    """Everything, for programs."""
    entries = [
        {
            "scenario": outcome.scenario.name,
            "chapter": outcome.scenario.chapter,
            "server": outcome.scenario.server,
            "faults": list(outcome.scenario.faults),
            "language": outcome.language,
            "passed": outcome.passed,
            "seconds": round(outcome.seconds, 2),
            "problem": outcome.problem,
            "trail": outcome.trail,
        }
        for outcome in outcomes
    ]
    return json.dumps(entries, indent=1, ensure_ascii=False)


def markdown(scenarios: Sequence[Scenario], languages: Sequence[str], outcomes: Iterable[Outcome]) -> str:
    """The tables for the documentation: chapters of scenarios, and which of them show each fault."""
    passed = {(outcome.scenario.name, outcome.language): outcome.passed for outcome in outcomes}
    heads = " | ".join(NAMES.get(language, language) for language in languages)
    rule = "| --- | --- |" + " --- |" * len(languages)
    lines: list[str] = []
    for chapter in dict.fromkeys(scenario.chapter for scenario in scenarios):
        lines += [f"### {chapter.replace('-', ' ').capitalize()}", "", f"| scenario | server | {heads} |", rule]
        for scenario in scenarios:
            if scenario.chapter == chapter:
                marks = (_mark(passed.get((scenario.name, language))) for language in languages)
                lines.append(f"| {scenario.name} | {scenario.server} | {' | '.join(marks)} |")
        lines.append("")
    lines += ["### Faults", "", "| fault | scenarios that show it |", "| --- | --- |"]
    for fault in FAULTS:
        number = sum(fault in scenario.faults for scenario in scenarios)
        lines.append(f"| {fault} | {number} |")
    return "\n".join(lines) + "\n"


def results(outcomes: Iterable[Outcome]) -> str:
    """A line for each, as `cargo test` writes them: for what looks for the tests of field cases."""
    lines = []
    for outcome in outcomes:
        name = re.sub(r"\W+", "_", outcome.scenario.name)
        lines.append(f"test sdk::{outcome.language}::{name} ... {'ok' if outcome.passed else 'FAILED'}\n")
    return "".join(lines)


BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"


def write(page: Path, tables: str) -> None:
    """Puts the tables between the marks of a page. Raises `ValueError` if it has no marks."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    page.write_text(f"{before}{BEGIN}\n\n{tables}\n{END}{after}", encoding="utf-8")


def _mark(passed: bool | None) -> str:
    return "not run" if passed is None else "yes" if passed else "**no**"


def _cell(outcome: Outcome | None, colour: bool) -> str:
    if outcome is None:
        return f"{'-':>12}"
    word = f"{'ok' if outcome.passed else 'FAILED'} {outcome.seconds:4.1f} s"
    return _paint(f"{word:>12}", 32 if outcome.passed else 31, colour)


def _paint(words: str, code: int, colour: bool) -> str:
    return f"\033[{code}m{words}\033[0m" if colour else words


def on_terminal() -> bool:
    """Whether colours would be seen."""
    return sys.stdout.isatty()
