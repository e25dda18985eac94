"""Measures Orbit on this machine and writes docs/measurements/bench-DATE.json and a page with pictures beside it.

    make bench                      the table, the curves and the cost by part: about 25 minutes
    make bench BENCH=--quick        one short round: says whether everything runs, not how fast it is
    scripts/bench.py --only chain   the measures whose name begins so

Rounds are interleaved, so that what else the machine does weighs on all measures alike; a value is the median of its
rounds.
`--beside NAME=COMMAND` runs another program in each round: its last line must be a number of steps a second.
"""

import argparse
import contextlib
import datetime
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bench_page

ROOT = Path(__file__).resolve().parent.parent
ORBIT = ROOT / "target/release/orbit"
# The program that is measured, as the command line says.
orbit = ORBIT
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

Result = dict[str, Any]


@dataclass
class Options:
    """What the command line asks for."""

    rounds: int
    seconds: int
    sleepers: int
    kept: int
    only: str
    stores: list[str]
    beside: dict[str, str]


@dataclass
class Measure:
    """One line of the table."""

    name: str
    arguments: str
    store: str
    # Which figures of the result count: title, path, goal, floor, whether more is better.
    figures: list["Figure"]
    once: bool = False
    run: Callable[["Measure", Options], Result] | None = None
    results: list[Result] = field(default_factory=list)


@dataclass(frozen=True)
class Figure:
    """One figure of a measure, with what it should be."""

    title: str
    path: str
    goal: float
    floor: float
    more_is_better: bool = True


def table() -> list[Measure]:
    """Every measure, with its goal and the floor below which it is a fault."""
    chain = "--steps 10 --concurrency 128"
    alone = "--steps 1 --concurrency 1"
    short = "--steps 1 --concurrency 16"

    def spread(goal: float, floor: float) -> Figure:
        return Figure("p99 against p50", "p99/p50", goal, floor, more_is_better=False)

    def cpu(goal: float, floor: float) -> Figure:
        return Figure("server CPU a step, µs", "server.cpu_us_per_step", goal, floor, more_is_better=False)

    def rate(goal: float, floor: float) -> Figure:
        return Figure("steps/s", "steps_per_second", goal, floor)

    def median(goal: float, floor: float) -> Figure:
        return Figure("median, ms", "latency_ms.p50", goal, floor, more_is_better=False)

    workflows = "workflows_per_second"
    return [
        Measure("chain", chain, "sqlite", [rate(30_000, 15_000), cpu(45, 60), spread(3, 5)]),
        Measure("chain", chain, "postgres", [rate(15_000, 8_000), cpu(60, 100), spread(3, 5)]),
        Measure("alone", alone, "sqlite", [median(2.0, 2.5)]),
        Measure("alone", alone, "postgres", [median(2.5, 3.0)]),
        Measure("short", short, "sqlite", [Figure("workflows/s", workflows, 4_000, 2_500)]),
        Measure("short", short, "postgres", [Figure("workflows/s", workflows, 3_000, 1_800)]),
        Measure("poll", chain + " --mode poll", "sqlite", [Figure("against stream", "steps/chain", 0.6, 0.4)]),
        Measure(
            "fan-out",
            "--items 10000 --concurrency 1 --slots 128",
            "sqlite",
            [Figure("against the sequence", "steps/chain", 0.8, 0.6)],
        ),
        Measure(
            "fan-out memory",
            "--items 10000 --concurrency 1 --slots 128",
            "sqlite",
            [
                Figure("growth from a fifth of the run to its end, %", "growth_percent", 5, 10, more_is_better=False),
                Figure("a page of its history meanwhile, median, ms", "page_ms", 20, 100, more_is_better=False),
            ],
            once=True,
            run=run_fan_out_memory,
        ),
        Measure(
            "idle",
            "--sleepers 1",
            "sqlite",
            [
                Figure("memory, MiB", "rss_mebibytes", 30, 60, more_is_better=False),
                Figure("CPU, % of a core", "idle_cpu_percent", 0.3, 1, more_is_better=False),
            ],
            once=True,
        ),
        Measure(
            "sleepers",
            "",
            "sqlite",
            [
                Figure("starts/s", "starts_per_second", 10_000, 5_000),
                Figure("memory, MiB", "rss_mebibytes", 150, 200, more_is_better=False),
                Figure("idle CPU, % of a core", "idle_cpu_percent", 0.3, 1, more_is_better=False),
                Figure("kill to first result, ms", "restart_to_first_result_ms", 500, 1_000, more_is_better=False),
            ],
            once=True,
            run=run_sleepers,
        ),
        Measure(
            "lists",
            chain,
            "sqlite",
            [
                Figure("slowest list, ms", "list_ms", 50, 100, more_is_better=False),
                Figure("against without lists", "steps/without", 0.95, 0.90),
            ],
            once=True,
            run=run_lists,
        ),
        Measure(
            "kept history",
            chain,
            "sqlite",
            [Figure("against an empty database", "steps/without", 0.9, 0.75)],
            once=True,
            run=run_kept,
        ),
        Measure(
            "overload",
            chain,
            "sqlite",
            [
                Figure("at twice its peak, against the peak", "overload.steps", 0.9, 0.8),
                Figure("median against that at peak", "overload.p50", 1.5, 2, more_is_better=False),
                Figure("p99 against that at peak", "overload.p99", 1.5, 2, more_is_better=False),
                Figure("memory against that at peak", "overload.memory", 1.2, 1.5, more_is_better=False),
                Figure("without a limit, against the peak", "unlimited.steps", 0.9, 0.8),
            ],
            once=True,
            run=run_overload,
        ),
    ]


# --- Running ----------------------------------------------------------------------------------------------------------


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=int, default=6, help="measured time of one run")
    arguments.add_argument("--sleepers", type=int, default=1_000_000)
    arguments.add_argument("--kept", type=int, default=1_000_000, help="executions of the kept history")
    arguments.add_argument("--only", default="", help="measures whose name begins so, without curves")
    arguments.add_argument("--store", action="append", choices=["sqlite", "postgres"], help="both unless said")
    arguments.add_argument("--beside", action="append", default=[], metavar="NAME=COMMAND")
    arguments.add_argument("--orbit", type=Path, default=ORBIT, help="the program [default: target/release/orbit]")
    arguments.add_argument("--quick", action="store_true", help="one round of a second, little of everything")
    given = arguments.parse_args()
    global orbit
    orbit = given.orbit
    beside = dict(entry.split("=", 1) for entry in given.beside)
    stores = given.store or ["sqlite", "postgres"]
    options = Options(given.rounds, given.seconds, given.sleepers, given.kept, given.only, stores, beside)
    if given.quick:
        options = Options(1, 1, 2_000, 2_000, given.only, stores, beside)

    measures = [one for one in table() if one.name.startswith(options.only) and one.store in options.stores]
    others: dict[str, list[float]] = {name: [] for name in beside}
    for number in range(options.rounds):
        for name, command in beside.items():
            say(f"round {number + 1}: {name}")
            others[name].append(last_number(command))
        for measure in measures:
            if not measure.once:
                say(f"round {number + 1}: {measure.name} on {measure.store}")
                measure.results.append(run(measure, options))
    for measure in measures:
        if measure.once:
            say(f"once: {measure.name} on {measure.store}")
            measure.results.append(run(measure, options))
    curves = {} if options.only else {store: curve(store, options) for store in options.stores}

    report: Result = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
        "command": "scripts/bench.py " + shlex.join(sys.argv[1:]),
        "rounds": options.rounds,
        "beside": others,
        "measures": [summary(measure, measures) for measure in measures],
        "curves": curves,
        "instructions": instructions(),
    }
    if options.only:
        print(json.dumps(report, indent=1))
    else:
        bench_page.write(report, ROOT / ("target/bench" if given.quick else "docs/measurements"))
    missed = [line for one in report["measures"] for line in one["figures"] if line["verdict"] == "below the floor"]
    for line in missed:
        print(f"below the floor: {line}", file=sys.stderr)
    return 1 if missed and not given.quick else 0


def say(text: str) -> None:
    print(f"{datetime.datetime.now().strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def run(measure: Measure, options: Options) -> Result:
    """One run on a new database."""
    if measure.run is not None:
        return measure.run(measure, options)
    arguments = shlex.split(measure.arguments)
    if "--sleepers" not in arguments:
        arguments += ["--duration", f"{options.seconds}s"]
    else:
        arguments += ["--idle", "60s" if options.seconds >= 5 else "2s"]
    with new_database(measure.store) as database:
        return bench(["--db", database, *arguments])


def bench(arguments: list[str]) -> Result:
    """`orbit bench` with these arguments; a run with errors ends the program."""
    command = [str(orbit), "bench", *arguments, "-o", "json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: Result = json.loads(done.stdout)
    return result


@contextlib.contextmanager
def new_database(store: str) -> Iterator[str]:
    """A place for `--db`: a folder on the disk of target/, or a PostgreSQL server of its own."""
    if store == "sqlite":
        parent = ROOT / "target/bench"
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            yield folder
        return
    server = subprocess.Popen(
        [str(ROOT / "scripts/postgres"), "private"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin
    assert server.stdout
    try:
        yield server.stdout.readline().strip()
    finally:
        server.stdin.close()
        server.wait()


def run_sleepers(_: Measure, options: Options) -> Result:
    idle = "60s" if options.seconds >= 5 else "2s"
    with new_database("sqlite") as database:
        return bench(["--db", database, "--sleepers", str(options.sleepers), "--idle", idle])


def run_fan_out_memory(measure: Measure, options: Options) -> Result:
    """Fan-outs one after the other, with a caller who pages their histories: the server's memory as it goes on."""
    seconds = 5 * options.seconds
    with server() as (address, pid):
        load = ["--server", address, "--server-pid", str(pid), *shlex.split(measure.arguments)]
        with watched_memory(pid) as memory, paging(address) as pages:
            rate = bench([*load, "--duration", f"{seconds}s"])["steps_per_second"]
    fifth = len(memory) // 5
    early, late = (statistics.median(part) for part in (memory[fifth : 2 * fifth], memory[-fifth:]))
    return {
        "steps_per_second": rate,
        "rss_early_bytes": early,
        "rss_late_bytes": late,
        "rss_max_bytes": max(memory),
        "growth_percent": 100 * (late / early - 1),
        "page_ms": 1_000 * statistics.median(pages),
        "page_max_ms": 1_000 * max(pages),
        "pages": len(pages),
    }


@contextlib.contextmanager
def repeating(pause: float, work: Callable[[], None]) -> Iterator[None]:
    """Does this again and again beside what runs inside; an error ends the program."""
    over = threading.Event()
    errors: list[BaseException] = []

    def loop() -> None:
        try:
            while not over.wait(pause):
                work()
        except BaseException as error:  # told by whoever waits
            errors.append(error)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if errors:
        raise errors[0]


def ask(address: str, path: str, **query: str) -> Result:
    """What a GET over HTTP answers."""
    with urllib.request.urlopen(f"http://{address}{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
        found: Result = json.load(answer)
    return found


@contextlib.contextmanager
def watched_memory(pid: int) -> Iterator[list[int]]:
    """Resident bytes of a process, fifty times a second."""
    sizes: list[int] = []

    def look() -> None:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        sizes.append(pages * os.sysconf("SC_PAGE_SIZE"))

    with repeating(0.02, look):
        yield sizes


@contextlib.contextmanager
def paging(address: str) -> Iterator[list[float]]:
    """Pages the history of what runs, page after page, twenty times a second; how long each page took."""
    times: list[float] = []
    # The execution that is read, and the token of its next page.
    place = ["", ""]

    def turn() -> None:
        if not place[0]:
            running = ask(address, "/v1/executions", filter="state = RUNNING", page_size="1").get("executions", [])
            if not running:
                return
            place[:] = [running[0]["id"], ""]
        begin = time.monotonic()
        page = ask(address, f"/v1/executions/{place[0]}/events", page_size="100", page_token=place[1])
        times.append(time.monotonic() - begin)
        place[1] = page.get("nextPageToken", "")
        if not place[1]:
            place[0] = ""

    with repeating(0.05, turn):
        yield times


def run_lists(measure: Measure, options: Options) -> Result:
    """The chain without and with a caller that lists, pages and counts all the time, in turn on one server."""
    with server() as (address, pid):
        load = ["--server", address, "--server-pid", str(pid), *shlex.split(measure.arguments)]
        load += ["--duration", f"{options.seconds}s"]
        bench(load)
        without, beside, slowest = [], [], []
        for _ in range(options.rounds):
            without.append(bench(load)["steps_per_second"])
            with listing(address) as times:
                beside.append(bench(load)["steps_per_second"])
            slowest.append(max(times) * 1_000)
    return {
        "list_ms": statistics.median(slowest),
        "steps_per_second": statistics.median(beside),
        "without": statistics.median(without),
    }


@contextlib.contextmanager
def listing(address: str) -> Iterator[list[float]]:
    """Asks for a filtered page, the page after it and the counts, ten times a second; how long each took."""
    times: list[float] = []

    def timed(path: str, **query: str) -> Result:
        begin = time.monotonic()
        found = ask(address, path, **query)
        times.append(time.monotonic() - begin)
        return found

    def turn() -> None:
        query = {"filter": 'state = RUNNING AND workflow = "bench-10"', "page_size": "100"}
        page = timed("/v1/executions", **query)
        if token := page.get("nextPageToken"):
            timed("/v1/executions", **query, page_token=token)
        timed("/v1/executions:count")

    with repeating(0.1, turn):
        yield times


def run_kept(measure: Measure, options: Options) -> Result:
    """The chain on an empty database, and after so many executions have been kept."""
    with server() as (address, pid):
        load = ["--server", address, "--server-pid", str(pid), *shlex.split(measure.arguments)]
        load += ["--duration", f"{options.seconds}s"]
        without = statistics.median(bench(load)["steps_per_second"] for _ in range(options.rounds))
        kept = 0.0
        while kept < options.kept:
            filled = bench(["--server", address, "--steps", "1", "--concurrency", "256", "--duration", "20s"])
            kept += filled["workflows_per_second"] * 22
            say(f"about {kept:.0f} executions kept")
        after = statistics.median(bench(load)["steps_per_second"] for _ in range(options.rounds))
    return {"steps_per_second": after, "without": without, "kept": round(kept)}


def run_overload(measure: Measure, options: Options) -> Result:
    """The chain at its peak, then twice as many starts a second: with a limit on open executions, and without one."""
    peaks, limited, unlimited = [], [], []
    seconds = ["--duration", f"{options.seconds}s"]
    for _ in range(options.rounds):
        with server() as (address, pid):
            peaks.append(
                bench(["--server", address, "--server-pid", str(pid), *shlex.split(measure.arguments), *seconds])
            )
        rate = max(1, round(2 * statistics.median(peak["workflows_per_second"] for peak in peaks)))
        offered = ["--steps", "10", "--rate", str(rate), *seconds]
        with server(ORBIT_MAX_ACTIVE_EXECUTIONS="128") as (address, pid):
            limited.append(bench(["--server", address, "--server-pid", str(pid), *offered]))
        with server() as (address, pid):
            unlimited.append(bench(["--server", address, "--server-pid", str(pid), *offered]))

    def against_peak(results: list[Result]) -> Result:
        def ratio(value: Callable[[Result], float]) -> float:
            pairs = zip(results, peaks, strict=True)
            return statistics.median(value(result) / max(value(peak), 0.001) for result, peak in pairs)

        return {
            "steps": ratio(lambda result: float(result["steps_per_second"])),
            "p50": ratio(lambda result: float(result["latency_ms"]["p50"])),
            "p99": ratio(lambda result: float(result["latency_ms"]["p99"])),
            "memory": ratio(lambda result: float(result["server"]["rss_bytes"])),
            "refused": statistics.median(result["refused"] for result in results),
        }

    return {"peak": peaks, "overload": against_peak(limited), "unlimited": against_peak(unlimited)}


@contextlib.contextmanager
def server(**settings: str) -> Iterator[tuple[str, int]]:
    """A server on a new SQLite database, with these variables: its address and process."""
    with new_database("sqlite") as folder:
        command = [str(orbit), "server", "--listen", "127.0.0.1:0", "--log", "warn", "-o", "json"]
        environment = {**os.environ, **settings, "ORBIT_DB": f"sqlite:{folder}/orbit.db"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout
            try:
                yield json.loads(process.stdout.readline())["address"], process.pid
            finally:
                process.terminate()


def curve(store: str, options: Options) -> list[Result]:
    """Throughput and latency of the chain at each concurrency."""
    points = []
    for concurrency in CONCURRENCIES:
        say(f"curve: {concurrency} at once on {store}")
        with new_database(store) as database:
            load = ["--steps", "10", "--concurrency", str(concurrency), "--duration", f"{options.seconds}s"]
            points.append(bench(["--db", database, *load]))
    return points


def last_number(command: str) -> float:
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])


# --- What came out ----------------------------------------------------------------------------------------------------


def summary(measure: Measure, measures: list[Measure]) -> Result:
    """A measure with the median of each of its figures."""
    figures = []
    for figure in measure.figures:
        value = statistics.median(value_of(figure.path, result, measures) for result in measure.results)
        figures.append({"title": figure.title, "value": round(value, 3), "goal": figure.goal, "floor": figure.floor})
        figures[-1]["verdict"] = verdict(figure, value)
    return {
        "name": measure.name,
        "store": measure.store,
        "arguments": measure.arguments,
        "figures": figures,
        "results": measure.results,
    }


def value_of(path: str, result: Result, measures: list[Measure]) -> float:
    if path == "p99/p50":
        return float(result["latency_ms"]["p99"] / max(result["latency_ms"]["p50"], 0.001))
    if path == "steps/chain":
        chains = [one for one in measures if one.name == "chain" and one.store == "sqlite"]
        rates = [chain["steps_per_second"] for one in chains for chain in one.results]
        return float(result["steps_per_second"] / statistics.median(rates)) if rates else float("nan")
    if path == "steps/without":
        return float(result["steps_per_second"] / result["without"])
    if path == "rss_mebibytes":
        return float(result["rss_bytes"] / 2**20)
    found: Any = result
    for part in path.split("."):
        found = found[part]
    return float(found)


def verdict(figure: Figure, value: float) -> str:
    def reaches(bound: float) -> bool:
        return value >= bound if figure.more_is_better else value <= bound

    if reaches(figure.goal):
        return "goal"
    return "floor" if reaches(figure.floor) else "below the floor"


def commit() -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")


def machine() -> str:
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    return f"{os.cpu_count()} cores, {round(int(memory.split()[1]) / 2**20)} GiB"


def instructions() -> dict[str, int]:
    """The recorded counts of the parts of a step."""
    lines = (ROOT / "benches/instructions.txt").read_text().splitlines()
    return {part: int(count) for part, count in (line.split() for line in lines if not line.startswith("#"))}


if __name__ == "__main__":
    sys.exit(main())
