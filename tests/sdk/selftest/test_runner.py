"""The runner itself: that it passes what holds, and fails what does not."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from runner.__main__ import SUITE
from runner.matching import Context, mismatch, substitute
from runner.matrix import BEGIN
from runner.play import Outcome, Place, play
from runner.scenario import FAULTS, Unreadable, load

HERE = Path(__file__).resolve().parent
BINARY = Path(os.environ.get("ORBIT_BINARY", SUITE.parent.parent / "target/debug/orbit"))
BASICS = {scenario.name: scenario for scenario in load(HERE / "scenarios")}


def run(name: str, drivers: str = "good") -> Outcome:
    if BASICS[name].server == "real" and not BINARY.exists():
        pytest.skip("the server is not built")
    place = Place(BINARY, HERE / drivers, SUITE / "definitions", patience=0.4 if drivers == "dropping" else 1.0)
    return asyncio.run(play(BASICS[name], "reference", place))


@pytest.mark.parametrize("name", BASICS)
def test_the_reference_driver_passes(name: str) -> None:
    outcome = run(name)
    assert outcome.passed, "\n".join([outcome.problem, *outcome.trail])


@pytest.mark.parametrize(
    "name",
    [
        "a fake server's task is reported",
        "a real server's execution succeeds",
        "a report whose reply is lost is sent again",
    ],
)
def test_a_driver_that_drops_results_fails(name: str) -> None:
    outcome = run(name, "dropping")
    assert not outcome.passed
    assert outcome.trail, "a failure shows what was told"


@pytest.mark.parametrize(
    ("expected", "came"),
    [
        (1, 1),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": None}, {}),
        ({"$above": 1, "$below": 3}, 2),
        ({"$contains": {"a": 1}}, [{"a": 2}, {"a": 1}]),
        ({"$unordered": [1, 2]}, [2, 1]),
        ({"$by_language": {"go": 1, "default": 2}}, 1),
        ({"$not": {"$contains": "x"}}, "y"),
        ({"$length": {"$least": 2}}, [1, 2]),
    ],
)
def test_what_matches(expected: Any, came: Any) -> None:
    assert mismatch(expected, came, Context("go")) is None


@pytest.mark.parametrize(
    ("expected", "came"),
    [
        (1, True),
        (1, "1"),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {}),
        ([1], [1, 2]),
        ({"$above": 1}, 1),
        ({"$any": True}, None),
        ({"$unordered": [1, 1]}, [1, 2]),
        (9007199254740993, 9007199254740992),
    ],
)
def test_what_does_not_match(expected: Any, came: Any) -> None:
    assert mismatch(expected, came, Context("go")) is not None


def test_a_name_stands_for_the_first_value() -> None:
    context = Context("go")
    assert mismatch({"$is": "key"}, "a", context) is None
    assert mismatch({"$is": "key"}, "b", context) is not None
    assert substitute({"x": ["$key", "$other"]}, context) == {"x": ["a", "$other"]}


def test_every_fault_is_met_and_no_two_scenarios_are_alike() -> None:
    scenarios = load(SUITE / "scenarios")
    assert {fault for scenario in scenarios for fault in scenario.faults} == set(FAULTS)
    assert len(scenarios) >= 40
    for scenario in scenarios:
        for name in scenario.deploy:
            assert (SUITE / "definitions" / f"{name}.yaml").exists()
    bodies = [[(step.verb, step.value, step.keys) for step in scenario.steps] for scenario in scenarios]
    for scenario, body in zip(scenarios, bodies, strict=True):
        assert bodies.count(body) == 1, f"{scenario.name!r} does what another one does"


def test_the_documentation_has_every_scenario_and_every_one_passed() -> None:
    page = (SUITE.parent.parent / "docs/sdks.md").read_text(encoding="utf-8")
    _, tables = page.split(BEGIN)
    rows = [row.split(" | ") for row in tables.split("### Faults")[0].splitlines() if row.endswith(" yes |")]
    documented = [row[0].removeprefix("| ") for row in rows]
    assert documented == [scenario.name for scenario in load(SUITE / "scenarios")], "run `make document-sdks`"
    for row in rows:
        assert row[2:] == ["yes", "yes", "yes |"], row


@pytest.mark.parametrize(
    "steps",
    [
        "[{tells: x}]",
        "[{tell: x, give: y}]",
        "[{proxy: explode}]",
        "[{pause: 1, within: 2}]",
    ],
)
def test_a_scenario_with_a_mistake_is_refused(tmp_path: Path, steps: str) -> None:
    (tmp_path / "x.yaml").write_text(f"- {{name: x, server: fake, steps: {steps}}}")
    with pytest.raises(Unreadable):
        load(tmp_path)
