"""Plays one scenario with one language's driver, step by step, and tells how it went.

The verbs of steps:

- `tell: OP` gives a command to a driver (`by`, `a` unless said) or, `by: runner`, to the server past the proxy. Its
  reply must match `gives`, or its error `fails`; with `until` it is told again until it does. `later: NAME` does not
  wait for the reply; `answer: NAME` does.
- `see: PATTERN` waits until somebody (`of`: a driver or `fake`) has told `times` such events, after the mark `since`.
- `check: PATTERN` judges now: `number` of such events, or what they `are`, the `last` so many of them if that is said.
- `mark: NAME` remembers how much everybody has told.
- `proxy`: `reset`, `close` (refused from now on), `open`, `stall` (both directions, or `stall down`, `stall up`),
  `resume`, `goaway`, `reset streams`.
- `server`: `stop`, `kill`, `start`, `freeze`, `thaw`; a fake one can `forget` its sessions.
- `signal: NAME` goes to a driver; `exits: CODE` waits for its end, `seconds` after the last signal.
- `give: TASK`, `fault: RPC`, `unwanted: TOKEN` concern the fake server: see `fake.py` and `faults.py`.
- `pause: SECONDS` is how long something lasts, an outage for example. Nothing else waits for time to pass.
"""

import asyncio
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.driver import Driver, DriverGone, fold
from runner.fake import FakeServer
from runner.faults import Fault, Faults
from runner.journal import Entry, Journal, unfold
from runner.matching import Context, mismatch, short, substitute
from runner.oracle import Oracle, Refused
from runner.proxy import Proxy
from runner.scenario import Scenario, Step
from runner.server import RealServer

# Longest wait for anything that is expected, unless a step says otherwise, and for a whole scenario.
STEP_SECONDS = 15.0
SCENARIO_SECONDS = 90.0
REPEAT_SECONDS = 0.1
# Events that a failure shows.
EVENTS_SHOWN = 25


@dataclass(frozen=True)
class Place:
    """Where things are, and how patient to be."""

    binary: Path
    drivers: Path
    definitions: Path
    # Factor for all waits: above 1 on a busy machine.
    patience: float = 1.0


@dataclass
class Outcome:
    """How one scenario went in one language."""

    scenario: Scenario
    language: str
    passed: bool
    seconds: float = 0.0
    # Of a failure: the step, what was expected, what came.
    problem: str = ""
    # Of a failure: the newest events, and the ends of the driver's stderr and of the server's log.
    trail: list[str] = field(default_factory=list)


class Failed(Exception):
    """Something else came than was expected."""


async def play(scenario: Scenario, language: str, place: Place) -> Outcome:
    """Plays a scenario in a folder of its own, on a server of its own."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="orbit-sdk-") as folder:
        player = _Player(scenario, language, place, Path(folder))
        problem = ""
        try:
            await asyncio.wait_for(player.run(), SCENARIO_SECONDS * place.patience)
        except asyncio.TimeoutError:
            problem = f"{player.step}: the scenario took longer than {SCENARIO_SECONDS * place.patience:.0f} s"
        except (Failed, DriverGone) as error:
            problem = f"{player.step}: {error}"
        except Exception as error:
            # A fault of the scenario or of the runner is a failure as well, and no reason to forget the others.
            problem = f"{player.step}: {type(error).__name__}: {error}"
        finally:
            trail = player.trail()
            await player.finish()
    return Outcome(scenario, language, not problem, time.monotonic() - begin, problem, trail if problem else [])


class _Player:
    def __init__(self, scenario: Scenario, language: str, place: Place, folder: Path) -> None:
        self._scenario, self._place, self._folder = scenario, place, folder
        self._language = language
        self._context = Context(language)
        self.step: Step | str = "start"
        self._proxy = Proxy()
        self._fake: FakeServer | None = None
        self._real: RealServer | None = None
        if scenario.server == "fake":
            self._fake = FakeServer(Faults(self._proxy.reset))
        else:
            self._real = RealServer(place.binary, folder, scenario.session_timeout)
        self._oracle: Oracle | None = None
        self._drivers: dict[str, Driver] = {}
        self._later: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._marks: dict[str, dict[str, int]] = {}
        self._signalled: dict[str, float] = {}
        # Drivers whose end a step has asked for.
        self._ended: set[str] = set()

    async def run(self) -> None:
        await self._proxy.open()
        self._context.names["address"] = f"http://127.0.0.1:{self._proxy.port}"
        await self._start_server()
        for name in self._scenario.deploy:
            source = (self._place.definitions / f"{name}.yaml").read_text(encoding="utf-8")
            source = source.replace("LANGUAGE", self._language)
            await self._tell("runner", "client.deploy", {"source": source})
        verbs: dict[str, Callable[[Step], Any]] = {
            "tell": self._do_tell,
            "answer": self._do_answer,
            "see": self._do_see,
            "check": self._do_check,
            "mark": self._do_mark,
            "proxy": self._do_proxy,
            "server": self._do_server,
            "signal": self._do_signal,
            "exits": self._do_exits,
            "give": self._do_give,
            "unwanted": self._do_unwanted,
            "fault": self._do_fault,
            "pause": self._do_pause,
        }
        for step in self._scenario.steps:
            self.step = step
            await verbs[step.verb](step)
        self.step = "end"
        for name, driver in self._drivers.items():
            garbage = driver.journal.find(lambda entry: entry.get("event") == "garbage")
            if garbage:
                raise Failed(f"driver {name} broke the protocol: {short(garbage)}")

    async def finish(self) -> None:
        await asyncio.gather(*(driver.finish() for driver in self._drivers.values()))
        for reply in self._later.values():
            reply.cancel()
        await asyncio.gather(*self._later.values(), return_exceptions=True)
        await self._proxy.finish()
        if self._oracle is not None:
            await self._oracle.close()
        if self._fake is not None:
            await self._fake.kill()
        if self._real is not None:
            await self._real.end(signal.SIGKILL)

    def trail(self) -> list[str]:
        lines: list[str] = []
        for name, journal in self._journals().items():
            # The same heartbeat again and again tells nothing.
            told = [
                entry for entry, before in zip(journal.entries, [{}, *journal.entries], strict=False) if entry != before
            ]
            lines += [f"{name}: {short(entry)}" for entry in told[-EVENTS_SHOWN:]]
        for name, driver in self._drivers.items():
            lines += [f"{name} stderr: {line}" for line in driver.stderr]
        if self._real is not None:
            lines += [f"server: {line}" for line in self._real.log().splitlines()]
        return lines

    # --- Commands ---------------------------------------------------------------------------------------------------

    async def _do_tell(self, step: Step) -> None:
        by, args = step.get("by", "a"), fold(substitute(step.get("args", {}), self._context))
        if "later" in step.keys:
            self._later[step.get("later")] = asyncio.ensure_future(self._tell(by, step.value, args))
            # Sent before the next step is done.
            await asyncio.sleep(0)
            return
        end = time.monotonic() + self._seconds(step)
        while True:
            reply = await self._within(self._tell(by, step.value, args), end - time.monotonic(), "no reply")
            if "until" not in step.keys:
                return self._judge(reply, step)
            problem = mismatch(step.get("until"), reply.get("ok"), self._context)
            if problem is None:
                return None
            if time.monotonic() >= end:
                raise Failed(f"in the end {problem}; the reply was {short(reply)}")
            await asyncio.sleep(REPEAT_SECONDS)

    async def _do_answer(self, step: Step) -> None:
        reply = await self._within(self._later[step.value], self._seconds(step), "no reply")
        self._judge(reply, step)

    async def _tell(self, by: str, op: str, args: dict[str, Any]) -> dict[str, Any]:
        if by == "runner":
            if self._oracle is None:
                raise Failed("the runner cannot ask a server that does not run")
            try:
                return {"ok": unfold(await self._oracle.tell(op, args))}
            except Refused as refused:
                return {"error": unfold(refused.error)}
        driver = await self._driver(by)
        number, reply = driver.send(op, args)
        # Events of a watch name the command; scenarios know it by the name of the step.
        self._context.names["command"] = number
        return await reply

    def _judge(self, reply: dict[str, Any], step: Step) -> None:
        if "fails" in step.keys:
            if "error" not in reply:
                raise Failed(f"an error was expected, but the reply is {short(reply)}")
            problem = mismatch(step.get("fails"), reply["error"], self._context, "the error")
        else:
            if "ok" not in reply:
                raise Failed(f"the command failed: {short(reply)}")
            problem = mismatch(step.get("gives", {}), reply["ok"], self._context, "the reply")
        if problem:
            raise Failed(f"{problem}; the reply is {short(reply)}")

    # --- What was told ----------------------------------------------------------------------------------------------

    async def _do_see(self, step: Step) -> None:
        journal, since = await self._source(step)
        times = step.get("times", 1)
        try:
            await journal.wait(self._wanted(step), times, since=since, timeout=self._seconds(step))
        except TimeoutError:
            found = len(journal.find(self._wanted(step), since))
            raise Failed(f"seen {found} times instead of {times}") from None
        # Names that the pattern gives are those of the first that matches.
        first = journal.find(self._wanted(step), since)[0]
        mismatch(substitute(step.value, self._context), first, self._context)

    async def _do_check(self, step: Step) -> None:
        journal, since = await self._source(step)
        found = journal.find(self._wanted(step), since)
        if "last" in step.keys:
            found = found[-step.get("last") :]
        problem = None
        if "number" in step.keys:
            problem = mismatch(step.get("number"), len(found), self._context, "the number")
        if problem is None and "are" in step.keys:
            problem = mismatch(step.get("are"), found, self._context, "the list")
        if problem:
            raise Failed(f"{problem}; they are {[short(entry) for entry in found]}")

    def _wanted(self, step: Step) -> Callable[[Entry], bool]:
        pattern = substitute(step.value, self._context)
        # Each entry may give the names that the pattern has; they count only once the step is done with it.
        return lambda entry: mismatch(pattern, entry, Context(self._language, dict(self._context.names))) is None

    async def _source(self, step: Step) -> tuple[Journal, int]:
        of = step.get("of", "a")
        if of == "fake":
            assert self._fake is not None, "the scenario has no fake server"
            journal = self._fake.journal
        else:
            journal = (await self._driver(of)).journal
        since = self._marks[step.get("since")].get(of, 0) if "since" in step.keys else 0
        return journal, since

    def _journals(self) -> dict[str, Journal]:
        journals = {name: driver.journal for name, driver in self._drivers.items()}
        return journals if self._fake is None else {"fake": self._fake.journal, **journals}

    async def _do_mark(self, step: Step) -> None:
        self._marks[step.value] = {name: len(journal.entries) for name, journal in self._journals().items()}

    # --- Drivers ----------------------------------------------------------------------------------------------------

    async def _driver(self, name: str) -> Driver:
        if name not in self._drivers:
            folder = self._folder / f"driver-{name}"
            folder.mkdir()
            for file, text in self._scenario.files.items():
                path = folder / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text.replace("PORT", str(self._proxy.port)), encoding="utf-8")
            environment = {"ORBIT_ADDRESS": f"http://127.0.0.1:{self._proxy.port}"}
            for key, value in self._scenario.environment.items():
                environment[key] = value.replace("PORT", str(self._proxy.port)).replace("HOME", str(folder))
            command = self._place.drivers / self._language / "run"
            self._drivers[name] = await Driver.start(command, folder, {k: v for k, v in environment.items() if v})
        return self._drivers[name]

    async def _do_signal(self, step: Step) -> None:
        name = step.get("of", "a")
        (await self._driver(name)).signal(step.value)
        self._signalled[name] = time.monotonic()

    async def _do_exits(self, step: Step) -> None:
        name = step.get("of", "a")
        driver = await self._driver(name)
        code, _ = await self._within(driver.exit(self._seconds(step) + 1), self._seconds(step), "it did not end")
        took = time.monotonic() - self._signalled.get(name, time.monotonic())
        problem = mismatch(step.value, code, self._context, "the code")
        if problem is None and "seconds" in step.keys:
            problem = mismatch(step.get("seconds"), took, self._context, "the time")
        if problem:
            raise Failed(problem)

    # --- Server and network -----------------------------------------------------------------------------------------

    async def _start_server(self) -> None:
        server = self._fake or self._real
        assert server is not None
        await server.start()
        self._proxy.target = server.port
        if self._real is not None:
            if self._oracle is not None:
                await self._oracle.close()
            self._oracle = Oracle(f"127.0.0.1:{server.port}")

    async def _do_server(self, step: Step) -> None:
        what = step.value
        if what == "start":
            await self._start_server()
        elif self._fake is not None:
            if what == "stop":
                self._proxy.target = None
                await self._fake.stop()
            elif what == "kill":
                self._proxy.target = None
                await self._fake.kill()
            elif what == "forget":
                self._fake.workers.sessions.clear()
            else:
                raise Failed(f"a fake server cannot {what}: stall the proxy")
        elif self._real is not None:
            if what in ("stop", "kill"):
                self._proxy.target = None
                await self._real.end(signal.SIGTERM if what == "stop" else signal.SIGKILL)
            elif what in ("freeze", "thaw"):
                self._real.send(signal.SIGSTOP if what == "freeze" else signal.SIGCONT)
            else:
                raise Failed(f"a real server cannot {what}")

    async def _do_proxy(self, step: Step) -> None:
        what = step.value
        if what == "reset":
            self._proxy.reset()
        elif what == "close":
            await self._proxy.close()
        elif what == "open":
            await self._proxy.open()
        elif what == "resume":
            self._proxy.resume()
        elif what == "goaway":
            self._proxy.goaway(step.get("error", "NO_ERROR"), step.get("last_stream", 2**31 - 1))
        elif what == "reset streams":
            self._proxy.reset_streams(step.get("error", "CANCEL"))
        else:
            self._proxy.hold(up=what != "stall down", down=what != "stall up")

    # --- The fake server --------------------------------------------------------------------------------------------

    async def _do_give(self, step: Step) -> None:
        assert self._fake is not None, "only a fake server can be given tasks"
        self._fake.give(fold(substitute(step.value, self._context)))

    async def _do_unwanted(self, step: Step) -> None:
        assert self._fake is not None, "only a fake server can be told that"
        self._fake.workers.unwanted.add(step.value)

    async def _do_fault(self, step: Step) -> None:
        assert self._fake is not None, "only a fake server has faults"
        if step.value == "clear":
            self._fake.faults.clear()
        else:
            self._fake.faults.add(step.value, Fault(**step.keys))

    async def _do_pause(self, step: Step) -> None:
        await asyncio.sleep(step.value)

    def _seconds(self, step: Step) -> float:
        return float(step.get("within", STEP_SECONDS)) * self._place.patience

    async def _within(self, awaited: Any, seconds: float, otherwise: str) -> Any:
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(awaited)), max(seconds, 0.1))
        except asyncio.TimeoutError:
            raise Failed(f"{otherwise} after {max(seconds, 0.1):.0f} s") from None
