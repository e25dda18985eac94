"""Scenarios, as their files say them, checked when they are read.

A file is a list of scenarios:

    - name: a sentence about what must happen
      server: real                  # or `fake`, whose tasks and answers the steps decide
      faults: [connection reset]    # which of FAULTS it shows; may be left out
      deploy: [one]                 # files of tests/sdk/definitions, where LANGUAGE stands for the driver's
      session_timeout: 10s          # of the real server; 3s unless said
      environment: {ORBIT_API_KEY: secret}   # of the drivers, beside the suite's own; empty takes one away
      files: {.config/orbit/config.toml: …}  # in the drivers' folders
      steps: …

Each step has one of the VERBS below; `runner/play.py` says what they do.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

# What can go wrong, in the words of scenarios. Each must be met by a scenario at least.
FAULTS = (
    "connection reset",
    "stream stall",
    "GOAWAY",
    "server gone for minutes",
    "lost reply to complete",
    "stale token",
    "oversize result",
    "cancel in the middle",
    "drain",
    "SIGTERM",
    "SIGSTOP",
    "slow handler",
    "panicking handler",
    "big integers",
    "empty and null payloads",
    "unicode",
)

# The verbs, each with the further keys that a step with it may have.
VERBS: dict[str, frozenset[str]] = {
    "tell": frozenset({"by", "args", "gives", "fails", "until", "later", "within"}),
    "answer": frozenset({"gives", "fails", "within"}),
    "see": frozenset({"of", "times", "since", "within"}),
    "check": frozenset({"of", "number", "are", "since", "last"}),
    "mark": frozenset(),
    "proxy": frozenset({"error", "last_stream"}),
    "server": frozenset(),
    "signal": frozenset({"of"}),
    "exits": frozenset({"of", "within", "seconds"}),
    "give": frozenset(),
    "unwanted": frozenset(),
    "fault": frozenset(
        {
            "do",
            "times",
            "after",
            "status",
            "reason",
            "message",
            "metadata",
            "violations",
            "retry_after",
            "seconds",
            "outcome",
        }
    ),
    "pause": frozenset(),
}

PROXY = ("reset", "close", "open", "stall", "stall down", "stall up", "resume", "goaway", "reset streams")
SERVER = ("stop", "kill", "start", "freeze", "thaw", "forget")


@dataclass(frozen=True)
class Step:
    """One step: its verb, the verb's own value and the further keys."""

    verb: str
    value: Any
    keys: dict[str, Any]
    # From 1, for messages.
    number: int

    def get(self, key: str, default: Any = None) -> Any:
        return self.keys.get(key, default)

    def __str__(self) -> str:
        return f"step {self.number}, {self.verb}: {self.value}"


@dataclass(frozen=True)
class Scenario:
    """One scenario."""

    name: str
    server: str
    steps: tuple[Step, ...]
    faults: tuple[str, ...] = ()
    deploy: tuple[str, ...] = ()
    session_timeout: str = "3s"
    environment: dict[str, str] = field(default_factory=dict)
    # Texts of files in each driver's folder, by path. PORT stands for the port, here and in the environment, where HOME
    # stands for that folder.
    files: dict[str, str] = field(default_factory=dict)
    # File name without its number and its ending: the chapter of the matrix.
    chapter: str = ""


class Unreadable(Exception):
    """A scenario is not as it must be."""


def load(folder: Path) -> list[Scenario]:
    """Reads all scenarios of a folder, in the order of files and places. Raises `Unreadable`."""
    scenarios: list[Scenario] = []
    for path in sorted(folder.glob("*.yaml")):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8")):
            try:
                scenarios.append(_scenario(entry, path.stem.lstrip("0123456789-")))
            except Unreadable as error:
                raise Unreadable(f"{path.name}: {entry.get('name')!r}: {error}") from error
    names = [scenario.name for scenario in scenarios]
    for name in names:
        if names.count(name) > 1:
            raise Unreadable(f"two scenarios are named {name!r}")
    return scenarios


def _scenario(entry: dict[str, Any], chapter: str) -> Scenario:
    left = dict(entry)
    name, server, steps = left.pop("name"), left.pop("server"), left.pop("steps")
    if server not in ("real", "fake"):
        raise Unreadable(f"no server is {server!r}")
    faults = tuple(left.pop("faults", ()))
    for fault in faults:
        if fault not in FAULTS:
            raise Unreadable(f"no fault is {fault!r}")
    scenario = Scenario(
        name=name,
        server=server,
        faults=faults,
        deploy=tuple(left.pop("deploy", ())),
        session_timeout=left.pop("session_timeout", "3s"),
        environment=dict(left.pop("environment", {})),
        files=dict(left.pop("files", {})),
        chapter=chapter,
        steps=tuple(_step(step, number) for number, step in enumerate(steps, 1)),
    )
    if left:
        raise Unreadable(f"unknown keys {sorted(left)}")
    if server == "fake" and (scenario.deploy or "session_timeout" in entry):
        raise Unreadable("a fake server has no definitions and no options")
    return scenario


def _step(entry: dict[str, Any], number: int) -> Step:
    verbs = [key for key in entry if key in VERBS]
    if len(verbs) != 1:
        raise Unreadable(f"step {number} has {len(verbs)} verbs instead of one")
    verb = verbs[0]
    keys = {key: value for key, value in entry.items() if key != verb}
    unknown = set(keys) - VERBS[verb]
    if unknown:
        raise Unreadable(f"step {number}: {verb!r} has no keys {sorted(unknown)}")
    if verb == "proxy" and entry[verb] not in PROXY:
        raise Unreadable(f"step {number}: the proxy cannot {entry[verb]!r}")
    if verb == "server" and entry[verb] not in SERVER:
        raise Unreadable(f"step {number}: a server cannot {entry[verb]!r}")
    return Step(verb, entry[verb], keys, number)
